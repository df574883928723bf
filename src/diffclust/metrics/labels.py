"""Labels as numbers."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def encoded(labels: ArrayLike, name: str) -> tuple[NDArray[np.int64], list[Any]]:
    """Labels as 0 .. k-1, and the label that each number stands for."""
    array = np.asarray(labels)
    if array.dtype.kind in "US" and not isinstance(labels, np.ndarray):
        # numpy would make strings of everything: 1 and "1" would be the same label, and NaN a word
        array = np.asarray(labels, dtype=object)
    if array.ndim != 1:
        raise ValueError(f"{name} should be one label per row, (n,); it has shape {array.shape}.")
    if len(array) == 0:
        raise ValueError(f"{name} is empty: 0 labels.")
    missing = len(array) - int(is_labelled(array).sum())
    if missing:
        raise ValueError(f"{name} has {missing} missing (NaN) labels among {len(array)}.")
    if array.dtype.kind != "O":
        names, codes = np.unique(array, return_inverse=True)
        return codes.astype(np.int64), names.tolist()
    # labels of several types cannot be compared; this order does not depend on the order of the rows
    order = sorted(set(array), key=lambda label: (type(label).__name__, repr(label)))
    number = {label: i for i, label in enumerate(order)}
    return np.fromiter((number[label] for label in array), np.int64, len(array)), order


def is_labelled(y: ArrayLike) -> NDArray[np.bool_]:
    """Which rows have a label: one that is neither None nor NaN. (n,)"""
    array = np.asarray(y) if isinstance(y, np.ndarray) else np.asarray(y, dtype=object)
    if array.dtype.kind == "O":
        return np.array([not _is_missing(label) for label in array], bool)
    return ~np.isnan(array) if array.dtype.kind in "fcmM" else np.ones(len(array), bool)


def _is_missing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)
    except TypeError:  # pandas.NA is neither true nor false
        return True


def entropy_of_sizes(sizes: NDArray[np.int64]) -> float:
    p = sizes[sizes > 0] / sizes.sum()
    return max(float(-(p * np.log(p)).sum()), 0.0)
