"""Work on a second CUDA stream.

In a backward pass the next layer waits only for the gradient of a layer's input; the gradients of its weights are
needed at the end. On a second stream, which becomes a branch of a captured graph, they overlap with the rest: a small
network leaves most of the GPU idle. With several runs side by side less is idle: see `runs_alone`.
"""

import contextlib
import functools
from collections.abc import Iterator

import torch
from torch import Tensor

_runs = 1


@contextlib.contextmanager
def side_by_side(runs: int) -> Iterator[None]:
    """A context in which this many runs share the GPU."""
    global _runs
    before, _runs = _runs, runs
    try:
        yield
    finally:
        _runs = before


def runs_alone() -> bool:
    """Whether one run has the GPU to itself. Only then is overlapping work worth while: it would slow other runs."""
    return _runs == 1


class SideStream:
    """A second stream next to the current one; does nothing on a CPU or if not `wanted`. Call `join` before using
    results.

    Args:
        long: use a third stream, for work that is not waited for when others join the second.
    """

    def __init__(self, device: torch.device, wanted: bool = True, long: bool = False) -> None:
        self.long = long
        self.main = torch.cuda.current_stream(device) if wanted and device.type == "cuda" else None
        self.held: list[Tensor] = []
        self.joined = True

    @contextlib.contextmanager
    def overlap(self, *read: Tensor) -> Iterator[None]:
        """A context in which work goes to the second stream. `read` are tensors of the main stream that this work
        reads; they are kept alive until `join`, so that their memory is not reused before."""
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
    """One per stream, so that runs side by side do not wait for one another."""
    return torch.cuda.Stream(main.device)
