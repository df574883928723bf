"""The steps of several runs as one, where their models differ in numbers alone.

Side by side on a GPU every run launches its own kernels, hundreds a step, and each leaves most of the GPU idle. Here
weights and buffers of all runs lie in common tensors, one beside the other, and `torch.vmap` takes every loss at once:
a kernel works on all of them. A model holds views of its part, so that whatever else is done to it is done as ever.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from ..data import Batch
from ..loop import Stage, tensors_of
from ..model import Losses, Trainable
from ..runtime import Randomness, autocast

Party = Sequence[tuple[Stage, Randomness]]


def likeness(stage: Stage) -> Hashable | None:
    """Stages where it is the same can be stacked; None where that is not to be."""
    model, data = stage.model, stage.data
    kind = model.kind() if _speaks_for_itself(model) else None
    if kind is None or stage.optimizer is None or not data.among.alone:
        return None
    sizes = data.steps, data.batch_size, data.row_shape
    tensors = tuple((name, t.shape, t.dtype, t.requires_grad) for name, t in tensors_of(model).items())
    return type(model), kind, sizes, tensors, model.regime, stage.precision


def _speaks_for_itself(model: Trainable) -> bool:
    """Not where a class has a loss of its own, and from another class the word on what that depends on."""
    place = {name: i for i, each in reversed(list(enumerate(type(model).__mro__))) for name in vars(each)}
    return all(place["kind"] <= place.get(name, place["kind"]) for name in ("loss", "embed", "clustering_loss"))


class _Loss(nn.Module):
    """`model.loss` as a module's forward, which `functional_call` wants."""

    def __init__(self, model: Trainable) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, clean: Tensor | None, index: Tensor) -> Losses:
        return self.model.loss(Batch(x, x if clean is None else clean, index))


class Stack:
    """Stages of one likeness."""

    def __init__(self, party: Party) -> None:
        self.party = list(party)
        modules = [_Loss(stage.model) for stage, _ in party]
        self.first = modules[0]
        self.each: list[dict[str, Tensor]] = [dict(module.named_parameters()) for module in modules]
        self.weights = _join(self.each)
        self.buffers = _join([dict(module.named_buffers()) for module in modules])
        for stage, _ in party:
            stage.in_stack = True

    def _losses(self, weights: dict[str, Tensor], buffers: dict[str, Tensor], *batch: Any) -> Losses:
        return functional_call(self.first, {**weights, **buffers}, batch)

    def step(self) -> None:
        with self.party[0][1].borrowed():  # so that no other thread takes a step meanwhile
            self._step()

    def _step(self) -> None:
        batches = []
        for stage, randomness in self.party:
            with randomness.borrowed():
                batches.append(stage.model.prepare(stage.feed.batch()))
        x, index = torch.stack([batch.x for batch in batches]), torch.stack([batch.index for batch in batches])
        changed = any(batch.x is not batch.clean for batch in batches)
        clean = torch.stack([batch.clean for batch in batches]) if changed else None
        first = self.party[0][0]
        with autocast(first.data.device, first.precision):
            where = (0, 0, 0, 0 if changed else None, 0)
            losses = vmap(self._losses, in_dims=where)(self.weights, self.buffers, x, clean, index)
            objective = torch.stack(list(losses.values())).sum()
        wanted = {name: weight for name, weight in self.weights.items() if weight.requires_grad}
        gradients = torch.autograd.grad(objective, list(wanted.values()), allow_unused=True)
        # laid out in memory as the weights are, which fused optimisers take for granted
        known = {name: g.contiguous() for name, g in zip(wanted, gradients, strict=True) if g is not None}
        parts = {name: value.detach().unbind() for name, value in losses.items()}
        for place, ((stage, randomness), batch) in enumerate(zip(self.party, batches, strict=True)):
            for name, weight in self.each[place].items():
                weight.grad = known[name][place] if name in known else None
            with randomness.borrowed():
                stage.learn(batch, {name: values[place] for name, values in parts.items()})


@torch.no_grad()
def _join(each: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Tensors of one name in a common one, of which they become views."""
    joint = {}
    for name, example in each[0].items():
        whole = torch.stack([tensors[name].detach() for tensors in each])
        for tensors, part in zip(each, whole.unbind(), strict=True):
            tensors[name].data = part
        joint[name] = whole.requires_grad_(example.requires_grad)
    return joint
