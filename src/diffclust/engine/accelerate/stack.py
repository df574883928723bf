"""Take the steps of several runs as one, if their models differ only in tensor values.

Side by side on a GPU, every run launches hundreds of kernels per step, and each leaves most of the GPU idle. Here the
weights and buffers of all runs are stacked, and `torch.vmap` computes all losses at once, one kernel for all runs. Each
model holds views of its part of the stack, so everything else works as without it.
"""

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import fields

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from ..data import Batch
from ..model import Losses, Trainable
from ..phase import Phase, tensors_of
from ..runtime import Randomness, autocast

Members = Sequence[tuple[Phase, Randomness]]

# hooks that run for each model of a stack separately, so that `stack_key` need not cover them
HOOKS_PER_MODEL = {
    "prepare", "lr_factor", "extra_metrics", "refresh", "reconstruct", "before_training", "before_epoch",
    "after_backward", "after_step", "after_epoch", "after_training", "training_state", "load_training_state",
    "freeze_centers",
}  # fmt: skip


def stack_key_of(phase: Phase) -> Hashable | None:
    """Phases with equal keys can be stacked. None: this phase cannot."""
    model, data = phase.model, phase.data
    key = None if _inherits_stack_key(model) else model.stack_key()
    if key is None or phase.optimizer is None or not data.processes.alone:
        return None
    known = None if data.knowledge is None else tuple(part.shape for part in data.knowledge)
    sizes = data.steps, data.batch_size, data.row_shape, data.graph is not None, known
    tensors = tuple((name, t.shape, t.dtype, t.requires_grad) for name, t in tensors_of(model).items())
    return type(model), key, sizes, tensors, model.step_key, phase.precision


def _inherits_stack_key(model: Trainable) -> bool:
    """Whether a subclass defines something that `loss` may call without defining `stack_key`: the inherited key may not
    cover what it depends on."""
    subclasses = itertools.takewhile(lambda cls: "stack_key" not in vars(cls), type(model).__mro__)
    defined = {name for cls in subclasses for name in vars(cls) if not name.startswith(("__", "_abc_"))}
    return bool(defined - HOOKS_PER_MODEL)


class _Loss(nn.Module):
    """A module whose forward is `model.losses`, as `functional_call` requires."""

    def __init__(self, model: Trainable) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: dict[str, Tensor]) -> Losses:
        return self.model.losses(Batch(**{"clean": batch["x"], **batch}))


class Stack:
    """Phases of one stack key, whose steps are taken together."""

    def __init__(self, members: Members) -> None:
        self.members = list(members)
        modules = [_Loss(phase.model) for phase, _ in members]
        self.first = modules[0]
        self.each: list[dict[str, Tensor]] = [dict(module.named_parameters()) for module in modules]
        self.weights = _join(self.each)
        self.buffers = _join([dict(module.named_buffers()) for module in modules])
        for phase, _ in members:
            phase.in_stack = True

    def _losses(self, weights: dict[str, Tensor], buffers: dict[str, Tensor], batch: dict[str, Tensor]) -> Losses:
        return functional_call(self.first, {**weights, **buffers}, (batch,))

    def step(self) -> None:
        with self.members[0][1].borrowed():  # so that no other thread takes a step at the same time
            self._step()

    def _step(self) -> None:
        batches = []
        for phase, randomness in self.members:
            with randomness.borrowed():
                batches.append(phase.model.prepare(phase.feed.batch()))
        changed = any(batch.x is not batch.clean for batch in batches)
        given = [each.name for each in fields(Batch) if getattr(batches[0], each.name) is not None]
        names = [name for name in given if changed or name != "clean"]
        joint = {name: torch.stack([getattr(batch, name) for batch in batches]) for name in names}
        first = self.members[0][0]
        with autocast(first.data.device, first.precision):
            losses = vmap(self._losses)(self.weights, self.buffers, joint)
            objective = torch.stack(list(losses.values())).sum()
        wanted = {name: weight for name, weight in self.weights.items() if weight.requires_grad}
        gradients: Sequence[Tensor | None] = [None] * len(wanted)
        if objective.requires_grad:
            gradients = torch.autograd.grad(objective, list(wanted.values()), allow_unused=True)
        else:
            first.check_that_a_part_is_frozen()
        # in the memory layout of the weights, as fused optimisers require
        known = {name: g.contiguous() for name, g in zip(wanted, gradients, strict=True) if g is not None}
        parts = {name: value.detach().unbind() for name, value in losses.items()}
        for place, ((phase, randomness), batch) in enumerate(zip(self.members, batches, strict=True)):
            for name, weight in self.each[place].items():
                weight.grad = known[name][place] if name in known else None
            with randomness.borrowed():
                phase.apply_gradients(batch, {name: values[place] for name, values in parts.items()})


@torch.no_grad()
def _join(each: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Stack tensors of the same name; the originals become views of the stack."""
    joint = {}
    for name, example in each[0].items():
        whole = torch.stack([tensors[name].detach() for tensors in each])
        for tensors, part in zip(each, whole.unbind(), strict=True):
            tensors[name].data = part
        joint[name] = whole.requires_grad_(example.requires_grad)
    return joint
