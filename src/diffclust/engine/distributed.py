"""Several processes that share a fit: who they are, what each computes, and how they stay in sync.

Every process runs the same program on the same data. They agree on everything random about the fit as a whole: weights,
order of rows, initial centres. A process computes its part of each batch and of each pass over all rows; sums and
gradients are added up (`nn/parallel.py`), so all processes hold the same model after every step. Only the first
process, the leader, writes files and prints.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

from ..nn.parallel import shared
from .runtime import Randomness

T = TypeVar("T")

ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun tells a process
ERRORS = {error.__name__: error for error in (ValueError, TypeError, NotImplementedError)}


@dataclass(frozen=True)
class Processes:
    """The processes that share a fit, as seen from one of them. With one process, every method does nothing or returns
    its input."""

    rank: int = 0
    size: int = 1
    local: int = 0  # rank among those of this machine

    @property
    def alone(self) -> bool:
        return self.size == 1

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def part(self, n: int) -> slice:
        """This process's range of n items."""
        return slice(self.rank * n // self.size, (self.rank + 1) * n // self.size)

    def parts(self, n: int) -> list[slice]:
        """Every process's range of n items."""
        return [Processes(rank, self.size).part(n) for rank in range(self.size)]

    # ---- staying together

    @contextlib.contextmanager
    def raising_together(self) -> Iterator[None]:
        """A context in which an error in one process is raised in all of them, so no process waits for one that has
        failed."""
        if self.alone:
            yield
            return
        error: Exception | None = None
        try:
            yield
        except Exception as raised:
            error = raised
        errors: list[tuple[str, str] | None] = [None] * self.size
        kinds = [kind.__name__ for kind in type(error).__mro__ if kind in ERRORS.values()]
        dist.all_gather_object(errors, error and ([*kinds, ""][0], str(error)))
        if error is not None:
            raise error
        for rank, trouble in enumerate(errors):
            if trouble is not None:
                kind, message = trouble
                raise ERRORS.get(kind, RuntimeError)(f"In process {rank}: {message}")

    def broadcast(self, make: Callable[[], T]) -> T:
        """The leader's value, sent to all processes."""
        if self.alone:
            return make()
        box: list[Any] = [None]
        with self.raising_together():
            box = [make()] if self.leads else box
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def check_same(self, things: dict[str, Any]) -> None:
        """Raise if the processes do not all have the same values."""
        for rank, others in enumerate(self.all_gather(things)):
            for name, thing in things.items():
                if others.get(name) != thing:
                    raise ValueError(
                        f"The processes differ in {name}: process {self.rank} has {thing!s:.80}, process {rank} "
                        f"{others.get(name)!s:.80}. All need the same; each takes its part."
                    )

    def all_gather(self, value: T) -> list[T]:
        """The values of all processes, by rank."""
        if self.alone:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    # ---- working together

    def sharing(self) -> contextlib.AbstractContextManager[None]:
        """A context in which batches are shared."""
        return contextlib.nullcontext() if self.alone else shared()

    def randomness(self, common: Randomness) -> Randomness:
        """The generator for random numbers of single rows, which differ between processes."""
        return common if self.alone else common.branch(self.rank)

    def all_gather_rows(self, part: Tensor, sizes: list[int]) -> Tensor:
        """The rows of all processes in order; `sizes` has the number of each."""
        if self.alone:
            return part
        row = part.element_size() * int(part.shape[1:].numel())
        mine = torch.zeros(max(sizes) * row, dtype=torch.uint8, device=part.device)  # bytes: of whatever type
        mine[: len(part) * row] = part.contiguous().view(-1).view(torch.uint8)
        every = [torch.empty_like(mine) for _ in sizes]
        dist.all_gather(every, mine)
        whole = torch.cat([block[: size * row] for block, size in zip(every, sizes, strict=True)])
        return whole.view(part.dtype).view(sum(sizes), *part.shape[1:])

    @torch.no_grad()
    def add_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Replace each gradient by the sum over all processes."""
        if self.alone:
            return
        gradients = [p.grad for p in parameters if p.grad is not None]
        if not gradients:
            return
        flat = torch.cat([g.reshape(-1) for g in gradients])
        dist.all_reduce(flat)
        for gradient, whole in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(whole.view(gradient.shape))

    @torch.no_grad()
    def align(self, model: nn.Module) -> None:
        """Send the leader's parameters and buffers to all processes, because other hardware rounds differently."""
        if not self.alone:
            for value in model.state_dict().values():
                whole = value.contiguous()
                dist.broadcast(whole, src=0)
                value.copy_(whole)


ONE_PROCESS = Processes()
_current = ONE_PROCESS


def current_processes() -> Processes:
    """The processes that share a fit which starts now."""
    return _current


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """A context in which nothing is shared."""
    global _current
    before, _current = _current, ONE_PROCESS
    try:
        yield
    finally:
        _current = before


def started_by_torchrun() -> bool:
    """Whether torchrun, or something like it, started this process as one of several."""
    return all(name in os.environ for name in ENVIRONMENT) and int(os.environ["WORLD_SIZE"]) > 1


def times_restarted() -> int:
    """How often torchrun has started the processes again, because one of them died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))


def _begin() -> None:
    """torch's default process group, from what torchrun tells us."""
    on_gpu = torch.cuda.is_available() and dist.is_nccl_available()
    store, rank, size = next(rendezvous("env://"))
    # torchrun's store outlives the processes: they would call at the addresses of those that died
    store = dist.PrefixStore(f"attempt {times_restarted()}", store)  # type: ignore[attr-defined]
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", store=store, rank=rank, world_size=size)


@contextlib.contextmanager
def distributed() -> Iterator[Processes]:
    """A context in which several processes share every `fit`.

    The processes are those that torchrun started, or those of torch's default process group if there is one. All of
    them must enter the context, with the same settings and data. Without torchrun nothing changes. ::

        with diffclust.distributed() as processes:
            model = TELL(10, random_state=0).fit(X)
            if processes.leads:
                model.save("runs/a")
    """
    global _current
    begins = dist.is_available() and started_by_torchrun() and not dist.is_initialized()
    if begins:
        _begin()
    before = _current
    try:
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            local = int(os.environ.get("LOCAL_RANK", 0))
            _current = Processes(dist.get_rank(), dist.get_world_size(), local)
            if local < torch.cuda.device_count():
                torch.cuda.set_device(local)
        yield _current
    finally:
        _current = before
        if begins:
            dist.destroy_process_group()
