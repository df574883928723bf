"""Rows far from zero, such as timestamps: an offset is subtracted in float64, before they become float32."""

import warnings

import torch
from torch import Tensor

from ..engine.rows import Rows

FAR = 100  # a mean more than this many times the spread is far from zero: below, float32 has five digits of the spread
NOISE = 2.0**-40  # smallest spread relative to the mean: below, float64 has too few digits
ROUNDING = 2.0**-50  # below this spread relative to the mean, a column is a rounded constant


def origin_of(rows: Rows) -> Tensor | None:
    """The offset to subtract from every row, from a sample of rows: the mean of each column that is far from zero, and
    0 for the others; for images one number. None if all are 0."""
    if rows.divisor != 1:
        return None
    found = rows.moments()
    mean, spread, distance = found.mean, found.deviation, found.mean.abs()
    if len(rows) == 1:  # a single row has no spread
        far = distance > FAR
    else:
        far = (distance > FAR * spread) & (spread > NOISE * distance)
        _warn_of_rounding((spread > ROUNDING * distance) & (spread <= NOISE * distance))
    if not bool((far & mean.isfinite()).any()):
        return None
    origin = torch.where(far & mean.isfinite(), mean, 0.0)
    return origin if len(rows.row_shape) == 1 else origin[0]


def _warn_of_rounding(lost: Tensor) -> None:
    if bool(lost.any()):
        which = int(lost.nonzero()[0])
        text = (
            f"Column {which} varies by less than float64 can resolve so far from zero, and counts as "
            "constant: subtract its mean where it still has more digits."
        )
        warnings.warn(text, UserWarning, stacklevel=2)
