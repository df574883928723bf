"""A restart of a fit: its phases, its place in them, its random numbers, and its entry in the checkpoint."""

import contextlib
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from .checkpoint import Checkpoint, restoring
from .data import Data
from .model import ClusterModel, Event
from .phase import Callback, Phase, Record
from .run import Run
from .runtime import Randomness, random_states, set_random_states


class EpochWatchers(Protocol):
    """Receives a callback after every epoch; a context around the training."""

    callbacks: list[Callback]

    def __enter__(self) -> Any: ...
    def __exit__(self, *error: object) -> None: ...


@dataclass(eq=False)
class FitContext:
    """What the restarts of one fit share.

    Args:
        attributes: the fitted attributes of the estimator that describe the data.
        at_once: how many of them may run side by side; if 1, restarts of other fits may not either.
        capture: whether steps are captured as CUDA graphs; None: if that is faster.
    """

    device: torch.device
    checkpoint: Checkpoint
    watchers: EpochWatchers
    attributes: dict[str, Any] = field(default_factory=dict)
    at_once: int = 1
    capture: bool | None = None
    interrupted: bool = False


class Restart:
    """One run of a fit. `advance` finishes a phase that is over and starts the next one that has epochs to run; after
    the last phase it sets `result`."""

    def __init__(
        self,
        context: FitContext,
        number: int,
        model: ClusterModel,
        data: Data,
        phases: list[Phase],
        randomness: Randomness,
    ) -> None:
        self.context, self.model, self.data, self.randomness = context, model, data, randomness
        self.waiting = phases
        self.plan = {phase.name: phase.epochs for phase in phases}
        self.expected_steps = sum(self.plan.values()) * data.steps
        self.phase: Phase | None = None
        self.history: list[Record] = []
        self.events: list[Event] = []
        self.terms: list[str] = []
        self.seed = context.checkpoint.seeds[number]
        self.entry = context.checkpoint.entries[number]
        kept = self.entry["result"]
        with restoring():
            self.result = None if kept is None else Run.restore(model, kept)

    @property
    def current(self) -> Phase:
        assert self.phase is not None
        return self.phase

    def advance(self) -> None:
        with self.randomness.borrowed():
            while self.result is None and (self.phase is None or self.phase.over):
                if self.phase is not None:
                    self._finish_phase()
                elif self.waiting:
                    self._start_phase(self.waiting.pop(0))
                else:
                    self._measure()

    def begin_epoch(self) -> None:
        with self.randomness.borrowed():
            self.current.begin_epoch()

    def end_epoch(self) -> None:
        with self.randomness.borrowed():
            phase = self.current
            phase.end_epoch()
            if self.context.checkpoint.is_due(phase.epoch) and not phase.over:
                phase.last_finite.keep()  # so that a fit resumed from here has the same state to fall back to
                self._keep(current={"phase": phase.name, "state": phase.state()})

    def interrupt(self) -> None:
        """Ctrl-C: end this phase; the remaining ones run without training."""
        self.context.interrupted = True
        self.current.interrupt()

    def _start_phase(self, phase: Phase) -> None:
        """Start the phase, or continue it from the checkpoint. A phase that the checkpoint has finished is loaded
        instead. A phase without epochs is skipped, unless it places centres or is the last."""
        with restoring():
            done, current = self.entry["phases"].get(phase.name), self.entry["current"]
            saved = current["state"] if current is not None and current["phase"] == phase.name else None
        if done is not None:
            with restoring():
                self.model.load_state_dict(done["model"])
                set_random_states(done["random"], self.data.device)
                self.history += done["history"]
                self.events += [Event(*event) for event in done["events"]]
            return
        if self.context.interrupted:
            phase.epochs = 0
        if phase.epochs > 0 or phase.places_centers or not self.waiting:
            phase.callbacks = self.context.watchers.callbacks
            with restoring() if saved is not None else contextlib.nullcontext():
                phase.start(saved)
            self.phase = phase

    def _finish_phase(self) -> None:
        phase, self.phase = self.current, None
        phase.finish()
        self.history += phase.history
        self.events += phase.model.events
        self.terms = phase.terms
        if self.waiting:
            outcome = {"history": phase.history, "events": [tuple(event) for event in phase.model.events]}
            state = {"model": self.model.state_dict(), "random": random_states(self.data.device)}
            self._keep(phases={**self.entry["phases"], phase.name: {**outcome, **state}}, current=None)

    def _measure(self) -> None:
        self.result = Run.evaluate(
            self.model.eval(),
            self.data,
            seed=self.seed,
            history=self.history,
            terms=self.terms,
            events=self.events,
        )
        self._keep(result=self.result.state(), phases={}, current=None)

    def _keep(self, **news: Any) -> None:
        """Update the entry of the next checkpoint, but not after an interruption, so that a resumed fit continues from
        before it."""
        if not self.context.interrupted:
            self.context.checkpoint.note(self.entry, news)
