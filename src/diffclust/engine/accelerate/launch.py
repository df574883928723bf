"""Launching Triton kernels, and finding out ahead which ones will be."""

import contextlib
import functools
import importlib.util
from collections.abc import Iterator
from typing import Any

import torch

from .aside import has_room

_rehearsing = False


@functools.cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


@functools.cache
def _can_overlap() -> bool:
    """Whether a kernel may come onto the GPU before the last one has ended: from NVIDIA's Hopper on, if Triton can."""
    if not torch.cuda.is_available() or torch.version.hip or torch.cuda.get_device_capability() < (9, 0):
        return False
    from triton.backends.nvidia.compiler import CUDAOptions
    from triton.language.extra import cuda

    return "launch_pdl" in CUDAOptions.__dataclass_fields__ and hasattr(cuda, "gdc_wait")


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """`kernel[grid](...)`; in a rehearsal nothing is run."""
    options |= {"PDL": True, "launch_pdl": True} if has_room() and _can_overlap() else {"PDL": False}
    if _rehearsing:
        kernel.warmup(*arguments, grid=grid, **options)
    else:
        kernel[grid](*arguments, **options)


@functools.cache
def can_rehearse() -> bool:
    return has_triton() and importlib.util.find_spec("triton.knobs") is not None


@contextlib.contextmanager
def rehearsal() -> Iterator[list[str]]:
    """Inside, kernels are not launched; at the end the list holds, as Triton's specialization data, those that would
    have been and that this Python has not compiled."""
    from triton import knobs  # not in old versions: `can_rehearse`

    global _rehearsing
    found: dict[str, None] = {}
    kernels: list[str] = []

    def note(compile: dict[str, Any], **_: Any) -> bool:
        found[compile["specialization_data"]] = None
        return True  # not now

    before, knobs.runtime.jit_cache_hook = knobs.runtime.jit_cache_hook, note
    _rehearsing = True
    try:
        yield kernels
    finally:
        _rehearsing, knobs.runtime.jit_cache_hook = False, before
        kernels += found
