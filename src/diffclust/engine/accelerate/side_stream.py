"""Work beside the main line of a step.

A layer's input gradient is what the next layer waits for; the gradients of its weights are wanted at the end alone. On
a stream of their own, which a recorded step keeps as a branch, they run beside it, where a small network leaves most
of the GPU idle. Several runs side by side leave less: see `runs_alone`.
"""

import contextlib
import functools
from collections.abc import Iterator

import torch
from torch import Tensor

_runs = 1


@contextlib.contextmanager
def side_by_side(runs: int) -> Iterator[None]:
    """Inside, so many runs share the GPU."""
    global _runs
    before, _runs = _runs, runs
    try:
        yield
    finally:
        _runs = before


def runs_alone() -> bool:
    """Whether one run has the GPU for itself. Then whatever can overlaps; of five runs the overlaps of one would take
    from the others."""
    return _runs == 1


class SideStream:
    """A second stream beside the current one; on a CPU, or where it is not wanted, nothing at all. `join` before any
    result is used.

    Args:
        long: on a third stream, whose work is not waited for where others join the second.
    """

    def __init__(self, device: torch.device, wanted: bool = True, long: bool = False) -> None:
        self.long = long
        self.main = torch.cuda.current_stream(device) if wanted and device.type == "cuda" else None
        self.held: list[Tensor] = []
        self.joined = True

    @contextlib.contextmanager
    def overlap(self, *read: Tensor) -> Iterator[None]:
        """Inside, work is put on the second stream. `read` are tensors of the main one that it reads: they are kept
        until `join`, lest their memory be given away before."""
        if self.main is None:
            yield
            return
        second = _other(self.main, self.long)
        second.wait_stream(self.main)
        self.held += read
        self.joined = False
        with torch.cuda.stream(second):
            yield

    def join(self) -> None:
        if self.main is not None and not self.joined:
            self.main.wait_stream(_other(self.main, self.long))
        self.held, self.joined = [], True


@functools.cache
def _other(main: torch.cuda.Stream, long: bool) -> torch.cuda.Stream:
    """One for each, so that runs side by side do not wait for one another."""
    return torch.cuda.Stream(main.device)
