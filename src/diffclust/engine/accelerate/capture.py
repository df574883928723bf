"""The loop over the steps of an epoch: one by one, or on a GPU captured once as a CUDA graph and replayed.

A step consists of some hundred small kernels, and launching them takes far longer than running them. A CUDA graph holds
the whole step, from the forward pass to the update of the centres, and costs one launch. The steps of several runs are
branches of one graph, which the GPU runs at the same time; each computes what it would compute alone, up to rounding.
Runs that can be stacked share a branch.
"""

import contextlib
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ..phase import CaptureKey, Phase
from ..runtime import Randomness
from .side_stream import side_by_side
from .stack import Members, Stack, stack_key_of

WARM_UP_STEPS = 3  # before a step is captured: libraries choose kernels, optimisers allocate their state
MIN_REPLAYS = 200  # expected replays from which on capturing a step pays


class StepRunner:
    """Runs epochs, and keeps the captured graphs."""

    def __init__(
        self, device: torch.device, *, expected: int = 0, capture: bool | None = None, stack: bool | None = None
    ) -> None:
        """Nothing is captured yet.

        Args:
            expected: expected number of steps; capturing pays only for many.
            capture: whether to capture steps; None: decide by `expected`.
            stack: whether to stack runs that can be stacked; None: if steps are captured.
        """
        self.device = device
        self.captures = device.type == "cuda" and (expected >= MIN_REPLAYS if capture is None else capture)
        self.stacking = self.captures if stack is None else stack
        self.stacks: dict[tuple[int, ...], Stack] = {}  # by their members
        self.graphs: dict[tuple[CaptureKey, ...], torch.cuda.CUDAGraph] = {}
        self.warmth: Counter[tuple[CaptureKey, ...]] = Counter()
        self.side = torch.cuda.Stream(device) if self.captures else None
        self.runs: int | None = None  # that share the GPU, at first

    def run_epoch(self, members: Members) -> None:
        """One epoch of every phase, each with its own random numbers."""
        taking_part = {id(phase) for phase, _ in members}
        self.stacks = {ids: stack for ids, stack in self.stacks.items() if taking_part.issuperset(ids)}
        own = [(phase, phase.data.processes.randomness(randomness)) for phase, randomness in members]
        self.runs = self.runs or len(members)  # others may end earlier: that alone is no reason to compile again
        with side_by_side(self.runs):
            for step in range(max(phase.data.steps for phase, _ in members)):
                for phase, randomness in members:
                    if step < phase.data.steps:
                        phase.begin_step(step, randomness)
                active = [(phase, randomness) for phase, randomness in own if step < phase.data.steps]
                graph = self._recording(active) if self.captures else None
                if graph is None:
                    self._step(active)
                else:
                    graph.replay()

    def _step(self, members: Members) -> None:
        with contextlib.ExitStack() as contexts:
            if self.side is not None:  # autograd can be captured only if it has never run on the default stream
                self.side.wait_stream(torch.cuda.current_stream(self.device))
                contexts.enter_context(torch.cuda.stream(self.side))
            for branch in self._branches(members):
                branch()
        if self.side is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.side)

    def _branches(self, members: Members) -> list[Callable[[], None]]:
        """One step of all members, as independent functions."""
        alike: dict[Any, list[tuple[Phase, Randomness]]] = {}
        for phase, randomness in members:
            key = stack_key_of(phase) if self.stacking else None
            alike.setdefault(id(phase) if key is None else key, []).append((phase, randomness))
        return [
            self._stack(group).step if len(group) > 1 else partial(_step_alone, *group[0]) for group in alike.values()
        ]

    def _stack(self, group: Members) -> Stack:
        key = tuple(id(phase) for phase, _ in group)
        if key not in self.stacks:
            moved = set(key)  # stacking moves their tensors, so older stacks and graphs of them are invalid
            self.stacks = {old: stack for old, stack in self.stacks.items() if moved.isdisjoint(old)}
            self.graphs = {
                old: graph for old, graph in self.graphs.items() if moved.isdisjoint(identity for identity, *_ in old)
            }
            self.stacks[key] = Stack(group)
        return self.stacks[key]

    def _recording(self, members: Members) -> torch.cuda.CUDAGraph | None:
        """The graph of a step of all members, once it is warmed up; None: run the step itself."""
        key = tuple(phase.capture_key for phase, _ in members)
        if key in self.graphs:
            return self.graphs[key]
        self.warmth[key] += 1
        if self.warmth[key] <= WARM_UP_STEPS:
            return None
        states = [randomness.cuda.get_state() for _, randomness in members if randomness.cuda is not None]
        handled = sys.exc_info()[1]  # by the caller of `fit`
        try:
            self._forget(members)
            self.graphs[key] = self._record(members)
        except RuntimeError as error:
            self.captures = False
            torch.cuda.synchronize(self.device)
            cause = _cause(error, handled)
            reason = (str(cause).strip() or type(cause).__name__).splitlines()[0]
            for (phase, randomness), state in zip(members, states, strict=True):
                randomness.renew(state)
                phase.model.note(
                    "not-captured", f"The training step could not be captured as a CUDA graph and runs slower: {reason}"
                )
            return None
        return self.graphs[key]

    def _record(self, members: Members) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        pool = next(iter(self.graphs.values())).pool() if self.graphs else None  # shared: one graph runs at a time
        for _, randomness in members:
            graph.register_generator_state(randomness.cuda)
        torch.cuda.synchronize(self.device)
        # "thread_local": what other threads do meanwhile, such as predicting, neither fails nor spoils the graph
        recording = torch.cuda.graph(graph, pool=pool, stream=self.side, capture_error_mode="thread_local")
        with members[0][1].borrowed(), recording:
            trunk = torch.cuda.current_stream(self.device)
            first, *others = self._branches(members)
            streams = [torch.cuda.Stream(self.device) for _ in others]
            for stream, branch in zip(streams, others, strict=True):
                stream.wait_stream(trunk)
                with torch.cuda.stream(stream):
                    branch()
            first()
            for stream in streams:
                trunk.wait_stream(stream)
        return graph

    def _forget(self, members: Members) -> None:
        """Drop graphs of phases that are over, and of former learning rates."""
        current = {phase.capture_key[0]: phase.capture_key[2] for phase, _ in members}
        self.graphs = {
            key: graph
            for key, graph in self.graphs.items()
            if all(current.get(identity) == rates for identity, _, rates in key)
        }


def _cause(error: BaseException, handled: BaseException | None) -> BaseException:
    """What failed first: ending a broken recording raises an error of its own, which says nothing."""
    while isinstance(error.__context__, RuntimeError) and error.__context__ is not handled:
        error = error.__context__
    return error


def _step_alone(phase: Phase, randomness: Randomness) -> None:
    phase.leave_stack()
    with randomness.borrowed():
        phase.step()
