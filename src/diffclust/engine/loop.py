"""The only optimisation loop."""

import copy
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from .data import Data
from .model import Trainable
from .runtime import autocast

Record = dict[str, Any]  # {"phase": ..., "epoch": ..., then one number a loss term}


@dataclass
class Progress:
    """What a callback sees after each epoch; setting `stop` ends the phase."""

    phase: str
    epoch: int
    epochs: int
    losses: dict[str, float]
    model: Trainable
    data: Data
    stop: bool = field(default=False)


Callback = Callable[[Progress], None]

PATIENCE = 3  # how often a run may fall back before it stays where it is
INTERVAL = 10  # epochs between the states a run can fall back to


class LastGood:
    """The last state with finite numbers, to fall back to when a loss is not."""

    def __init__(self, model: Trainable, optimizer: Optimizer | None) -> None:
        self.model, self.optimizer, self.failures = model, optimizer, 0
        self.keep()

    def keep(self) -> None:
        state = self.model.state_dict()
        if all(bool(t.isfinite().all()) for t in state.values()):
            self.state = {name: t.clone() for name, t in state.items()}
            self.moments = copy.deepcopy(self.optimizer.state_dict()) if self.optimizer else {}

    def restore(self, phase: str, epoch: int) -> None:
        self.failures += 1
        self.model.load_state_dict(self.state)
        what = "went back to the last finite state"
        if self.optimizer:
            self.optimizer.load_state_dict(self.moments)
            for group in self.optimizer.param_groups:
                group["lr"] *= 0.5**self.failures
            what += f" and set the learning rate to {self.optimizer.param_groups[0]['lr']:.3g}"
        if self.failures > PATIENCE:
            what = f"went back to the last finite state and stopped there, after {PATIENCE} attempts to go on"
        self.model.report("non-finite", f"The loss was not finite in epoch {epoch} of {phase}: {what}.")


@torch.no_grad()
def settle_batch_norm(model: Trainable, data: Data, most: int = 50) -> None:
    """Set the batch-norm statistics to the plain mean over unchanged rows. Those that training leaves behind lag
    by some ten steps and come from changed rows: after few steps they are far off."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a cumulative mean
        norm.train()
    for batch in itertools.islice(data.shuffled(), most):
        model.reconstruct(batch.clean)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()


def train(
    model: Trainable,
    data: Data,
    optimizer: Optimizer | None,
    *,
    epochs: int,
    phase: str,
    precision: str = "float32",
    callbacks: Sequence[Callback] = (),
) -> list[Record]:
    """Minimise the sum of the model's losses; one record an epoch. Without an optimiser only the model's own
    closed-form updates act."""
    history: list[Record] = []
    model.train()
    model.before_training(data)
    last_good = LastGood(model, optimizer)
    for epoch in range(epochs):
        model.train()
        model.before_epoch(epoch, data)
        totals: dict[str, torch.Tensor] = {}
        for batch in data.shuffled():
            with autocast(data.device, precision):
                losses = model.loss(batch)
                objective = torch.stack(list(losses.values())).sum()
            if optimizer is not None:
                optimizer.zero_grad(set_to_none=True)
                objective.backward()
                model.after_backward()
                optimizer.step()
            model.after_step(batch)
            for name, value in losses.items():
                totals[name] = totals.get(name, 0) + value.detach()
        means = dict(zip(totals, (torch.stack(list(totals.values())) / data.steps).tolist(), strict=True))
        history.append({"phase": phase, "epoch": epoch, **means})
        if not all(map(math.isfinite, means.values())):
            last_good.restore(phase, epoch)
            if last_good.failures > PATIENCE:
                break
            continue
        model.after_epoch(epoch, data)
        if epoch % INTERVAL == INTERVAL - 1:
            last_good.keep()
        progress = Progress(phase, epoch, epochs, means, model, data)
        for callback in callbacks:
            callback(progress)
        if progress.stop or model.finished:
            break
    if not all(bool(t.isfinite().all()) for t in model.state_dict().values()):
        last_good.restore(phase, len(history))
    model.after_training(data)
    model.eval()
    if history:
        settle_batch_norm(model, data)
    return history
