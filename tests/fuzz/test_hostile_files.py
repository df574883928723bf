"""A few hundred of the hostile files of `make fuzz`, the same ones every time."""

import pytest
from hostile import FILES, fuzz

CASES = {**dict.fromkeys(FILES, 150), "tables": 50}


@pytest.mark.parametrize("kind", FILES)
def test_hostile_files_give_an_answer_or_a_clear_error(kind):
    counts, failures = fuzz(range(CASES[kind]), seed=7, names=(kind,), warm=5)
    assert not failures
    assert sum(counts.values()) == CASES[kind]
    assert len({end for _, end in counts}) > 1  # some are read, and some refused
