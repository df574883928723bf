"""How an epoch's steps are run: one after the other, or on a GPU recorded once and replayed.

A step of these methods is some hundred small kernels, and launching them takes far longer than running them. A CUDA
graph holds the whole step, forward to centre update, and costs one launch. The steps of several runs are branches of
one graph: each computes what it would compute alone, up to rounding, and the GPU fills itself with all of them. Runs
that can be stacked share a branch.
"""

import contextlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ..loop import Stage, Variant
from ..runtime import Randomness
from .stack import Party, Stack, likeness

WARM_UP = 3  # steps run as they are before one is recorded: libraries choose kernels, optimisers allot their state
FEWEST = 200  # replays a recording should serve to be worth its making


class Steps:
    """Runs epochs; keeps the recordings."""

    def __init__(
        self, device: torch.device, *, expected: int = 0, capture: bool | None = None, stack: bool | None = None
    ) -> None:
        """expected: steps the whole work will take; few are not worth recording. `capture` overrules. stack: whether
        runs are stacked that can be; None: where they are recorded."""
        self.device = device
        self.captures = device.type == "cuda" and (expected >= FEWEST if capture is None else capture)
        self.stacking = self.captures if stack is None else stack
        self.stacks: dict[tuple[int, ...], Stack] = {}  # by their members
        self.graphs: dict[tuple[Variant, ...], torch.cuda.CUDAGraph] = {}
        self.warmth: Counter[tuple[Variant, ...]] = Counter()
        self.side = torch.cuda.Stream(device) if self.captures else None

    def epoch(self, party: Party) -> None:
        """One epoch of every stage, each with its own random numbers."""
        taking_part = {id(stage) for stage, _ in party}
        self.stacks = {members: stack for members, stack in self.stacks.items() if taking_part.issuperset(members)}
        for stage, randomness in party:
            with randomness.borrowed():
                stage.begin()
        own = [(stage, stage.data.among.randomness(randomness)) for stage, randomness in party]
        length = max(stage.data.steps for stage, _ in party)
        for step in range(length):
            for stage, randomness in party:
                if step < stage.data.steps:
                    if stage.wants_refresh:
                        with randomness.borrowed():
                            stage.model.refresh(stage.data)
                    stage.feed.bring(step)
                    stage.taken += 1
            present = [(stage, randomness) for stage, randomness in own if step < stage.data.steps]
            graph = self._recording(present) if self.captures else None
            if graph is None:
                self._step(present)
            else:
                graph.replay()

    def _step(self, party: Party) -> None:
        with contextlib.ExitStack() as contexts:
            if self.side is not None:  # where autograd is to be recorded, it must not have met the default stream
                self.side.wait_stream(torch.cuda.current_stream(self.device))
                contexts.enter_context(torch.cuda.stream(self.side))
            for branch in self._branches(party):
                branch()
        if self.side is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.side)

    def _branches(self, party: Party) -> list[Callable[[], None]]:
        """The party's step, in parts that know nothing of one another."""
        alike: dict[Any, list[tuple[Stage, Randomness]]] = {}
        for stage, randomness in party:
            kind = likeness(stage) if self.stacking else None
            alike.setdefault(id(stage) if kind is None else kind, []).append((stage, randomness))
        return [self._stack(group).step if len(group) > 1 else partial(_alone, *group[0]) for group in alike.values()]

    def _stack(self, group: Party) -> Stack:
        key = tuple(id(stage) for stage, _ in group)
        if key not in self.stacks:
            members = set(key)  # whose tensors are elsewhere from here on
            self.stacks = {old: stack for old, stack in self.stacks.items() if members.isdisjoint(old)}
            self.graphs = {
                old: graph for old, graph in self.graphs.items() if members.isdisjoint(identity for identity, *_ in old)
            }
            self.stacks[key] = Stack(group)
        return self.stacks[key]

    def _recording(self, party: Party) -> torch.cuda.CUDAGraph | None:
        """The party's step as a graph, once it is warm."""
        key = tuple(stage.variant for stage, _ in party)
        if key in self.graphs:
            return self.graphs[key]
        self.warmth[key] += 1
        if self.warmth[key] <= WARM_UP:
            return None
        states = [randomness.cuda.get_state() for _, randomness in party if randomness.cuda is not None]
        try:
            self._forget(party)
            self.graphs[key] = self._record(party)
        except RuntimeError as error:
            self.captures = False
            torch.cuda.synchronize(self.device)
            reason = str(error).strip().splitlines()[0]
            for (stage, randomness), state in zip(party, states, strict=True):
                randomness.renew(state)
                stage.model.report("not-captured", f"The step could not be recorded and runs slower: {reason}")
            return None
        return self.graphs[key]

    def _record(self, party: Party) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        pool = next(iter(self.graphs.values())).pool() if self.graphs else None  # only one of them runs at a time
        for _, randomness in party:
            graph.register_generator_state(randomness.cuda)
        torch.cuda.synchronize(self.device)
        with party[0][1].borrowed(), torch.cuda.graph(graph, pool=pool, stream=self.side):
            trunk = torch.cuda.current_stream(self.device)
            first, *others = self._branches(party)
            streams = [torch.cuda.Stream(self.device) for _ in others]
            for stream, branch in zip(streams, others, strict=True):
                stream.wait_stream(trunk)
                with torch.cuda.stream(stream):
                    branch()
            first()
            for stream in streams:
                trunk.wait_stream(stream)
        return graph

    def _forget(self, party: Party) -> None:
        """Drop recordings of stages that are over, or of learning rates they no longer have."""
        current = {stage.variant[0]: stage.variant[2] for stage, _ in party}
        self.graphs = {
            key: graph
            for key, graph in self.graphs.items()
            if all(current.get(identity) == rates for identity, _, rates in key)
        }


def _alone(stage: Stage, randomness: Randomness) -> None:
    stage.leave_stack()
    with randomness.borrowed():
        stage.step()
