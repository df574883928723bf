"""Memory that the next step needs again stays with the process."""

import ctypes
import os
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's numbers
KEPT, MAPPED = (
    2**30,
    2**25,
)  # bytes at the heap's end that stay; blocks from here on do not: glibc takes no larger number


def keep_memory() -> bool:
    """Where glibc allocates, what a training step frees is not given back to the system, which would have to bring it,
    and fill it with zeros, for the next step: of large images that takes a tenth of the time. It is a setting of the
    whole process, so that only the command does it. Who has set glibc's own variables is not overruled."""
    if sys.platform != "linux" or {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"} & os.environ.keys():
        return False
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another libc
        return False
    return bool(set_option(M_MMAP_THRESHOLD, MAPPED) and set_option(M_TRIM_THRESHOLD, KEPT))
