"""Rows far from zero, such as timestamps: an offset is subtracted in float64, before they become float32."""

import warnings

import torch
from torch import Tensor

from ..engine.rows import Rows

FAR = 100  # times its spread away from zero: nearer, single precision keeps five digits of the spread
NOISE = 2.0**-40  # of its distance from zero: below that, the digits that double precision has are not enough
ROUNDING = 2.0**-50  # and below that, a spread is how a constant was rounded


def origin_of(rows: Rows) -> Tensor | None:
    """What to subtract from every row, found from some of them: the mean of each column that is far from zero, and
    nothing of others; of images, one number for all pixels. None where there is nothing to subtract."""
    if rows.divisor != 1:
        return None
    found = rows.moments()
    mean, spread, distance = found.mean, found.deviation, found.mean.abs()
    if len(rows) == 1:  # of one row alone nothing is known but where it is
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
