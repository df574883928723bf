"""What the user knows about some rows (`known`, `must_link`, `cannot_link`): read it, check that it is consistent, and
derive what follows from it."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ..nn.knowledge import Knowledge

UNKNOWN_CLASS = -1  # in y, as in scikit-learn's semi-supervised methods


class UserKnowledge(NamedTuple):
    """The knowledge given to `fit`: None and no classes if there is none."""

    facts: Knowledge | None
    classes: tuple[Any, ...]  # the known ones, in order: the first clusters
    links: tuple[int, int] = (0, 0)  # how many rows must be together, and must not, as pairs

    def describe(self, labels: NDArray[Any]) -> dict[str, Any]:
        """A summary in numbers, with the share of it that these labels satisfy."""
        assert self.facts is not None
        return {
            "classes": [str(each) for each in self.classes],
            "rows": len(self.facts.rows),
            "must_link": self.links[0],
            "cannot_link": self.links[1],
            "kept": self.facts.share_satisfied(torch.from_numpy(labels)),
        }


NOTHING_KNOWN = UserKnowledge(None, ())


def read_knowledge(n: int, known: Any, must_link: Any, cannot_link: Any) -> UserKnowledge:
    """Read and check the knowledge about n rows. Linked rows share a class if the class of one of them is known;
    contradictions raise an error."""
    classes, codes = _classes(n, known)
    must, cannot = _pairs("must_link", n, must_link), _pairs("cannot_link", n, cannot_link)
    if not classes and not len(must) and not len(cannot):
        return NOTHING_KNOWN
    linked = coo_array((np.ones(len(must)), (must[:, 0], must[:, 1])), shape=(n, n))
    _, group = connected_components(linked, directed=False)
    codes = _spread(codes, group, classes)
    together = group[cannot[:, 0]] == group[cannot[:, 1]]
    if together.any():
        i, j = cannot[together][0]
        raise ValueError(f"cannot_link: rows {i} and {j} are linked by must_link.")
    alike = (codes[cannot] != UNKNOWN_CLASS).all(1) & (codes[cannot[:, 0]] == codes[cannot[:, 1]])
    if alike.any():
        i, j = cannot[alike][0]
        raise ValueError(f"cannot_link: rows {i} and {j} are both known as {classes[codes[i]]!r}.")
    rows = np.flatnonzero(codes != UNKNOWN_CLASS)
    pairs = np.concatenate([must, cannot])
    same = np.arange(len(pairs)) < len(must)
    facts = Knowledge(*(torch.from_numpy(part) for part in (rows, codes[rows], pairs, same)))
    return UserKnowledge(facts, classes, (len(must), len(cannot)))


def _classes(n: int, known: Any) -> tuple[tuple[Any, ...], NDArray[np.int64]]:
    """The known classes in order, and the class index of each row."""
    codes = np.full(n, UNKNOWN_CLASS)
    if known is None:
        return (), codes
    values = known.tolist() if hasattr(known, "tolist") else list(known)
    if len(values) != n or any(isinstance(value, (list, tuple)) for value in values):
        raise ValueError(f"known has {len(values)} entries, expected one for each of the {n} rows.")
    named = {i: value for i, value in enumerate(values) if not _is_unknown(value)}
    try:
        classes = sorted(set(named.values()))
    except TypeError:
        raise TypeError("known: classes should be all numbers or all names, and -1 or None for unknown rows.") from None
    place = {each: j for j, each in enumerate(classes)}
    for i, value in named.items():
        codes[i] = place[value]
    return tuple(classes), codes


def _is_unknown(value: Any) -> bool:
    if type(value).__name__ == "NAType":  # pandas.NA, which is neither equal to itself nor unequal
        return True
    return value is None or value != value or (not isinstance(value, str) and value == UNKNOWN_CLASS)


def _pairs(name: str, n: int, given: Any) -> NDArray[np.int64]:
    """Pairs of different rows, without duplicates."""
    if given is None or len(given) == 0:
        return np.empty((0, 2), np.int64)
    pairs = np.asarray(given)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise ValueError(f"{name} has shape {pairs.shape} of {pairs.dtype}, expected (m, 2) positions of rows.")
    if pairs.min() < 0 or pairs.max() >= n:
        wrong = pairs[(pairs < 0) | (pairs >= n)][0]
        raise ValueError(f"{name}: there is no row {wrong}; rows are counted from 0 to {n - 1}.")
    if (pairs[:, 0] == pairs[:, 1]).any():
        raise ValueError(f"{name}: row {pairs[pairs[:, 0] == pairs[:, 1]][0, 0]} is linked with itself.")
    return np.unique(np.sort(pairs.astype(np.int64), axis=1), axis=0)


def _spread(codes: NDArray[np.int64], group: NDArray[Any], classes: tuple[Any, ...]) -> NDArray[np.int64]:
    """Extend known classes to all rows that are linked with a row of known class."""
    of_group = np.full(group.max() + 1, UNKNOWN_CLASS)
    for i in np.flatnonzero(codes != UNKNOWN_CLASS):
        before = of_group[group[i]]
        if before not in (UNKNOWN_CLASS, codes[i]):
            other = next(j for j in np.flatnonzero(codes == before) if group[j] == group[i])
            named = f"{classes[before]!r} and {classes[codes[i]]!r}"
            raise ValueError(f"must_link: rows {other} and {i} are linked, but are known as {named}.")
        of_group[group[i]] = codes[i]
    return of_group[group]
