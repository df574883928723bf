"""Which column of a table holds labels."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .cells import as_words, cells_of, objects
from .columns import did_you_mean

LABEL_COLUMNS = ("label", "labels", "y", "target", "class")
MAX_CLASSES = 50  # distinct labels that are always allowed; more must be fewer than half of the rows


class NoSuchLabel(ValueError):
    """The column that should be the labels does not exist."""


def label_column(
    names: Sequence[str], wanted: str | None = None, may_be: Callable[[int], bool] | None = None
) -> int | None:
    """The position of the column of labels: the one `wanted`, or else one with such a name whose cells `may_be`
    labels."""
    if wanted is not None:
        if wanted not in names:
            there = ", ".join(map(repr, names[:10]))
            close = did_you_mean(wanted, names)
            raise NoSuchLabel(f"there is no column {wanted!r} for the labels{close}; there are {there}.")
        return list(names).index(wanted)
    folded = [name.casefold() for name in names]
    known = [name for name in LABEL_COLUMNS if name != "y" or "x" not in folded]  # next to x, y is a coordinate
    found = [i for i, name in enumerate(folded) if name in known and (may_be is None or may_be(i))]
    if len(found) > 1:
        raise ValueError(f"{', '.join(repr(names[i]) for i in found)} could all be the labels. Keep one.")
    return found[0] if found else None


def may_be_labels(values: Iterable[Any]) -> bool:
    """Whether these may be labels: neither fractions nor values that differ in most rows."""
    there = [word for word in as_words(cells_of(objects(list(values)))) if word is not None]
    kinds = set(there)
    if len(kinds) > max(MAX_CLASSES, len(there) / 2):
        return False
    try:
        return all(float(word).is_integer() for word in kinds)
    except ValueError:
        return True
