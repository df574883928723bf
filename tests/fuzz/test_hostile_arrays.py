"""Some of the hostile arrays and settings of `make fuzz`, the same ones every time."""

import pytest
from hostile import fuzz


@pytest.mark.parametrize(("kind", "cases"), [("arrays", 25), ("questions", 15), ("settings", 60), ("baselines", 25)])
def test_hostile_arrays_and_settings_give_an_answer_or_a_clear_error(kind, cases):
    counts, failures = fuzz(range(cases), seed=7, names=(kind,), warm=5)
    assert not failures
    assert sum(counts.values()) == cases
    assert len({end for _, end in counts}) > 1  # some are answered, and some refused
