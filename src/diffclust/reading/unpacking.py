"""A limit on the size of unpacked files: a few kilobytes can unpack to terabytes."""

import math
import os
from pathlib import Path

MIN_LIMIT, MAX_RATIO = 2**28, 100  # size in bytes that any file may unpack to, and the largest multiple of its own size
VARIABLE = "DIFFCLUST_UNPACK_GB"


class UnpacksTooLarge(ValueError):
    """A file unpacks to more than the limit."""


def unpack_limit(packed: int) -> int:
    """The limit for a file of `packed` bytes: a hundred times as many, at least 256 MiB, or the gigabytes in the
    environment variable DIFFCLUST_UNPACK_GB."""
    said = os.environ.get(VARIABLE)
    if not said:
        return max(MIN_LIMIT, MAX_RATIO * packed)
    try:
        gigabytes = float(said)
    except ValueError:
        gigabytes = math.nan
    if not 0 < gigabytes < math.inf:
        raise ValueError(f"{VARIABLE}={said!r} should be a number of gigabytes, such as 8.")
    return int(gigabytes * 1e9)


def check_unpacked(path: Path, packed: int, unpacked: int) -> None:
    """Raise if a file of `packed` bytes unpacks to more than the limit."""
    if unpacked > unpack_limit(packed):
        raise UnpacksTooLarge(
            f"{path}: its {_said(packed)} become {_said(unpacked)} or more, over the limit of "
            f"{_said(unpack_limit(packed))}. If you trust it, set {VARIABLE} to the gigabytes it may become."
        )


def _said(n: int) -> str:
    if n < 10_000:
        return f"{n:,} bytes"
    unit = next(i for i in range(1, 5) if n < 1000 ** (i + 1) or i == 4)
    return f"{n / 1000**unit:,.3g} {('kB', 'MB', 'GB', 'TB')[unit - 1]}"
