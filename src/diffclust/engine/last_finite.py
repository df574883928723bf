"""The last state of a run with finite numbers, which is restored when the loss is not finite."""

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from .model import Trainable

MAX_FALLBACKS = 3  # how often training continues after a restore before it stops


class LastFinite:
    """The last state with finite numbers, to fall back to when a loss is not."""

    def __init__(self, model: Trainable, optimizer: Optimizer | None, failures: int = 0) -> None:
        self.model, self.optimizer, self.failures = model, optimizer, failures
        state = {n: value for n, value in model.state_dict().items() if value.is_floating_point() and value.numel()}
        finite = _are_finite(state.values()).tolist()
        self.watched = [name for name, sound in zip(state, finite, strict=True) if sound]  # masks may hold -inf
        self.keep()

    @property
    def gave_up(self) -> bool:
        return self.failures > MAX_FALLBACKS

    def is_finite(self) -> bool:
        state = self.model.state_dict()
        return bool(_are_finite(state[name] for name in self.watched).all())

    def keep(self) -> None:
        if self.is_finite():
            self.state = {name: value.clone() for name, value in self.model.state_dict().items()}
            self.moments = _copied(self.optimizer.state_dict()) if self.optimizer else {}

    def restore(self, phase: str, epoch: int, wrong: str = "loss") -> None:
        self.failures += 1
        rates = [group["base_lr"] / 2 for group in self.optimizer.param_groups] if self.optimizer else []
        self.model.load_state_dict(self.state)
        what = "went back to the last finite state"
        if self.optimizer:
            self.optimizer.load_state_dict(_copied(self.moments))  # the optimiser writes into the tensors it is given
            for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
                group["lr"] = group["base_lr"] = rate
            what += f" and set the learning rate to {rates[0]:.3g}"
        if self.gave_up:
            what = f"went back to the last finite state and stopped there, after {MAX_FALLBACKS} attempts to go on"
        self.model.note("non-finite", f"The {wrong} was not finite in epoch {epoch} of {phase}: {what}.")


def _are_finite(tensors: Iterable[Tensor]) -> Tensor:
    """Whether each tensor is finite, from its sum. Does not wait for a GPU until the result is read."""
    sums = [each.sum() for each in tensors]
    return torch.stack(sums).isfinite() if sums else torch.ones(0, dtype=torch.bool)


def _copied(state: Any) -> Any:
    """A copy of dictionaries, lists and tensors; `copy.deepcopy` takes ten times as long."""
    if isinstance(state, dict):
        return {key: _copied(value) for key, value in state.items()}
    if isinstance(state, list):
        return [_copied(value) for value in state]
    return state.detach().clone() if isinstance(state, Tensor) else copy.deepcopy(state)
