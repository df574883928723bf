"""How much a file may unpack to: a few kilobytes can stand for terabytes, so that is asked before memory is taken."""

import math
import os
from pathlib import Path

MIN_LIMIT, MAX_RATIO = 2**28, 100  # bytes that any file may become, and how many times its own size
VARIABLE = "DIFFCLUST_UNPACK_GB"


class UnpacksTooLarge(ValueError):
    """A file unpacks to more than it may."""


def unpack_limit(packed: int) -> int:
    """Bytes that a file of `packed` bytes may become: a hundred times as many, at least 256 MiB, or the gigabytes that
    the environment variable DIFFCLUST_UNPACK_GB says."""
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
    """Refuse a file of `packed` bytes that becomes more than it may."""
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
