"""Restarts side by side: every one a coroutine with random numbers of its own, advanced an epoch at a time."""

from collections.abc import Generator, Sequence
from typing import Any, Generic, TypeVar

from torch.optim import Optimizer

from .capture import Steps
from .checkpoint import Ledger
from .data import Data
from .loop import Record, Stage, training
from .model import Trainable
from .runtime import Randomness

T = TypeVar("T")


class Lane(Generic[T]):
    """One run on its way, from one epoch that must be run to the next, to its result."""

    def __init__(self, run: Generator[Stage, None, T], randomness: Randomness) -> None:
        self.run, self.randomness = run, randomness
        self.stage: Stage | None = None
        self.result: T

    def advance(self, error: BaseException | None = None) -> None:
        with self.randomness.borrowed():
            try:
                self.stage = next(self.run) if error is None else self.run.throw(error)
            except StopIteration as end:
                self.stage, self.result = None, end.value


def side_by_side(lanes: Sequence[Lane[T]], steps: Steps, ledger: Ledger | None = None) -> list[T]:
    """Every lane to its end, all of them an epoch at a time. What a lane gives does not depend on the others."""
    for lane in lanes:
        lane.advance()
    while running := [lane for lane in lanes if lane.stage is not None]:
        if ledger is not None:
            ledger.commit()
        error: BaseException | None = None
        try:
            steps.epoch([(lane.stage, lane.randomness) for lane in running if lane.stage is not None])
        except KeyboardInterrupt as interrupt:
            error = interrupt
        for lane in running:
            if error is None and ledger is not None and ledger.interrupted:
                error = KeyboardInterrupt()  # a lane was interrupted between two epochs: so are the rest
            lane.advance(error)
    if ledger is not None:
        ledger.commit()
    return [lane.result for lane in lanes]


def train(
    model: Trainable, data: Data, optimizer: Optimizer | None, *, seed: int = 0, capture: bool | None = None, **how: Any
) -> list[Record]:
    """`training`, alone and to its end."""
    lane = Lane(training(model, data, optimizer, **how), Randomness(seed, data.device))
    return side_by_side([lane], Steps(data.device, capture=capture))[0]
