"""Runs side by side: every one a coroutine with random numbers of its own, advanced an epoch at a time.

They are the restarts of one fit, or of the fits of several estimators: a fit is a coroutine, too, which gives its lanes
and waits for them.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch.optim import Optimizer

from .accelerate.capture import Steps
from .checkpoint import Ledger
from .data import Data
from .loop import Record, Stage, training
from .model import Trainable
from .runtime import Randomness, learning

T = TypeVar("T")


class Lane(Generic[T]):
    """One run on its way, from one epoch that must be run to the next, to its result."""

    def __init__(self, run: Generator[Stage, None, T], randomness: Randomness) -> None:
        self.run, self.randomness = run, randomness
        self.stage: Stage | None = None
        self.result: T | None = None

    def advance(self, error: BaseException | None = None) -> None:
        with self.randomness.borrowed():
            try:
                self.stage = next(self.run) if error is None else self.run.throw(error)
            except StopIteration as end:
                self.stage, self.result = None, end.value


@dataclass
class Work(Generic[T]):
    """What a fit wants run. width: how many lanes at once, at most; with 1 nothing else may run beside them.
    expected: steps of a lane.
    capture: as in `Steps`.
    """

    lanes: list[Lane[T]]
    ledger: Ledger
    device: torch.device
    width: int
    expected: int
    capture: bool | None = None


Fit = Generator[Work[T], None, None]


@learning()
def complete(fits: Sequence[Fit[Any]]) -> None:
    """Several fits to their ends; nobody is finished before all lanes are, so that a kill leaves all checkpoints."""
    try:
        works = [next(fit) for fit in fits]
        for group in _groups(works):
            _perform(group)
            if any(work.ledger.interrupted for work, _ in group):
                break
        for fit in fits:
            next(fit, None)
    finally:
        for fit in fits:
            fit.close()


Group = list[tuple[Work[Any], Lane[Any]]]


def _groups(works: Sequence[Work[Any]]) -> list[Group]:
    """Lanes that run at once: of all fits on one device that allow for it, else one by one."""
    parties: dict[Any, Group] = {}
    for number, work in enumerate(works):
        party = (work.device, work.width, work.capture) if work.width > 1 else number
        parties.setdefault(party, []).extend((work, lane) for lane in work.lanes)
    return [
        party[first : first + party[0][0].width]
        for party in parties.values()
        for first in range(0, len(party), party[0][0].width)
    ]


def _perform(group: Group) -> None:
    works = list({id(work): work for work, _ in group}.values())
    steps = Steps(works[0].device, expected=max(work.expected for work in works), capture=works[0].capture)
    side_by_side([lane for _, lane in group], steps, [work.ledger for work in works])


def side_by_side(lanes: Sequence[Lane[T]], steps: Steps, ledgers: Sequence[Ledger] = ()) -> list[T]:
    """Every lane to its end, all of them an epoch at a time. What a lane gives does not depend on the others."""
    for lane in lanes:
        lane.advance()
    while running := [lane for lane in lanes if lane.stage is not None]:
        for ledger in ledgers:
            ledger.commit()
        error: BaseException | None = None
        try:
            steps.epoch([(lane.stage, lane.randomness) for lane in running if lane.stage is not None])
        except KeyboardInterrupt as interrupt:
            error = interrupt
        for lane in running:
            if error is None and any(ledger.interrupted for ledger in ledgers):
                error = KeyboardInterrupt()  # a lane was interrupted between two epochs: so are the rest
            lane.advance(error)
    for ledger in ledgers:
        ledger.commit()
    return [lane.result for lane in lanes if lane.result is not None]


def train(
    model: Trainable, data: Data, optimizer: Optimizer | None, *, seed: int = 0, capture: bool | None = None, **how: Any
) -> list[Record]:
    """`training`, alone and to its end."""
    lane = Lane(training(model, data, optimizer, **how), Randomness(seed, data.device))
    return side_by_side([lane], Steps(data.device, capture=capture))[0]
