"""The only optimisation loop."""

import copy
import itertools
import math
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from ..nn.parallel import shared_norms, total
from .accelerate.layers import fused_layers
from .checkpoint import Page, random_states, set_random_states
from .data import Batch, Data, Feed
from .model import Losses, Trainable
from .runtime import autocast

Record = dict[str, Any]  # {"phase": ..., "epoch": ..., then one number a loss term}
Variant = tuple[int, Hashable, tuple[float, ...]]  # of a step: which stage's, its regime, its learning rates


@dataclass
class Progress:
    """What a callback sees after each epoch; setting `stop` ends the phase. Numbers it adds to `record`, the epoch's
    entry in the history, stay there."""

    phase: str
    epoch: int
    epochs: int
    losses: dict[str, float]
    model: Trainable
    data: Data
    record: Record
    restart: int = 0
    stop: bool = field(default=False)


Callback = Callable[[Progress], None]

PATIENCE = 3  # how often a run may fall back before it stays where it is
INTERVAL = 10  # epochs between the states a run can fall back to
LONG = 20_000  # steps: from here on the fused kernels win back the time it takes to compile them


class LastGood:
    """The last state with finite numbers, to fall back to when a loss is not."""

    def __init__(self, model: Trainable, optimizer: Optimizer | None, failures: int = 0) -> None:
        self.model, self.optimizer, self.failures = model, optimizer, failures
        state = model.state_dict()
        self.watched = [name for name, value in state.items() if bool(value.isfinite().all())]  # masks may hold -inf
        self.keep()

    def is_finite(self) -> bool:
        state = self.model.state_dict()
        return all(bool(state[name].isfinite().all()) for name in self.watched)

    def keep(self) -> None:
        if self.is_finite():
            self.state = {name: value.clone() for name, value in self.model.state_dict().items()}
            self.moments = copy.deepcopy(self.optimizer.state_dict()) if self.optimizer else {}

    def restore(self, phase: str, epoch: int) -> None:
        self.failures += 1
        rates = [group["base_lr"] / 2 for group in self.optimizer.param_groups] if self.optimizer else []
        self.model.load_state_dict(self.state)
        what = "went back to the last finite state"
        if self.optimizer:
            self.optimizer.load_state_dict(copy.deepcopy(self.moments))  # it would go on writing into them
            for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
                group["lr"] = group["base_lr"] = rate
            what += f" and set the learning rate to {rates[0]:.3g}"
        if self.failures > PATIENCE:
            what = f"went back to the last finite state and stopped there, after {PATIENCE} attempts to go on"
        self.model.report("non-finite", f"The loss was not finite in epoch {epoch} of {phase}: {what}.")


def set_rate(optimizer: Optimizer, factor: float) -> None:
    """The model's factor on each rate as it was given; that one is kept with the optimiser, for `LastGood` to halve."""
    for group in optimizer.param_groups:
        group["lr"] = group.setdefault("base_lr", group["lr"]) * factor


@torch.no_grad()
def settle_batch_norm(model: Trainable, data: Data, most: int = 50) -> None:
    """Set the batch-norm statistics to the plain mean over unchanged rows. Those that training leaves behind lag
    by some ten steps and come from changed rows: after few steps they are far off."""
    norms = [
        module
        for module in model.modules()
        if isinstance(module, _BatchNorm)
        and module.track_running_stats
        and (module.weight is None or module.weight.requires_grad)
    ]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a cumulative mean
        norm.train()
    with shared_norms():
        for batch in itertools.islice(data.shuffled(), most):
            model.reconstruct(batch.clean)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers, by name."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


@dataclass(eq=False)
class Stage:
    """One phase of a run in the loop's hands: its step, all that a checkpoint must hold, and how to put it back."""

    phase: str
    model: Trainable
    data: Data
    optimizer: Optimizer | None
    callbacks: Sequence[Callback] = ()
    precision: str = "float32"
    long: bool = False  # whether it is worth compiling kernels for
    history: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.feed = Feed(self.data)
        self.totals: dict[Hashable, dict[str, Tensor]] = {}  # a regime's sums of its loss terms over an epoch
        self.kept: list[Any] = [None] * len(self.callbacks)
        self.taken = 0  # steps of this phase
        self.in_stack = False  # whether the model's tensors are parts of common ones: see `stack`
        self._keep_counts_on_the_device()

    def _keep_counts_on_the_device(self) -> None:
        """An optimiser that counts its steps on the host could not be recorded."""
        if self.optimizer is not None and self.data.device.type == "cuda":
            for group in self.optimizer.param_groups:
                if "capturable" in group:
                    group["capturable"] = True

    # ---- an epoch

    @property
    def variant(self) -> Variant:
        """Steps of the same one do the same work."""
        rates = tuple(float(group["lr"]) for group in self.optimizer.param_groups) if self.optimizer else ()
        return id(self), self.model.regime, rates

    def begin(self) -> None:
        self.data.among.align(self.model)
        self.feed.begin()
        self.taken = len(self.history) * self.data.steps  # so that a resumed phase counts on
        for amount in self.totals.get(self.model.regime, {}).values():
            amount.zero_()

    @property
    def wants_refresh(self) -> bool:
        return self.model.interval is not None and self.taken % self.model.interval == 0

    def step(self) -> None:
        batch = self.model.prepare(self.feed.batch())
        with (
            autocast(self.data.device, self.precision),
            fused_layers(self.long and self.data.among.alone),
            shared_norms(),
        ):
            losses = self.data.portion(self.model.loss(batch))
            objective = torch.stack(list(losses.values())).sum()
        if self.optimizer is not None:
            self.optimizer.zero_grad(set_to_none=True)
            objective.backward()
        self.learn(batch, losses)

    def learn(self, batch: Batch, losses: Losses) -> None:
        """The part of a step that comes after the gradients."""
        if self.optimizer is not None:
            self.data.among.add_gradients(p for group in self.optimizer.param_groups for p in group["params"])
            self.model.after_backward()
            self.optimizer.step()
        self.model.after_step(batch)
        totals = self.totals.setdefault(self.model.regime, {})
        for name, value in losses.items():
            if name not in totals:
                totals[name] = torch.zeros((), device=value.device)
            totals[name] += value.detach()

    def means(self) -> dict[str, float]:
        """Of each loss term over the epoch, read from the device at once."""
        totals = self.totals[self.model.regime]
        sums = total(torch.stack(list(totals.values())))
        return dict(zip(totals, (sums / self.data.steps).tolist(), strict=True))

    def tell(self, progress: Progress) -> bool:
        """Ask the callbacks, which other restarts may ask in between, whether to stop."""
        for i, callback in enumerate(self.callbacks):
            swaps = hasattr(callback, "state_dict")
            if swaps and self.kept[i] is not None:
                callback.load_state_dict(self.kept[i])  # type: ignore[attr-defined]
            callback(progress)
            if swaps:
                self.kept[i] = callback.state_dict()  # type: ignore[attr-defined]
        return any(self.data.among.every(progress.stop))

    @torch.no_grad()
    def leave_stack(self) -> None:
        """Tensors of its own for parts of common ones, so that it keeps nobody else's in memory."""
        if self.in_stack:
            for tensor in tensors_of(self.model).values():
                tensor.grad = None
                tensor.data = tensor.clone()
        self.in_stack = False

    # ---- a checkpoint

    def state(self, failures: int) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "memory": self.model.memory(),
            "optimizer": self.optimizer.state_dict() if self.optimizer else None,
            "callbacks": self.kept,
            "history": self.history,
            "failures": failures,
            "random": random_states(self.data.device),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.model.recall(state["memory"])
        if self.optimizer:
            self.optimizer.load_state_dict(state["optimizer"])
            self._keep_counts_on_the_device()
            # files hold plain tensors, and the fused optimisers read moments in the order of the weights
            for weight, moments in self.optimizer.state.items():
                for name, value in moments.items():
                    if isinstance(value, Tensor) and value.shape == weight.shape:
                        moments[name] = torch.empty_like(weight).copy_(value)
        self.kept = (list(state["callbacks"]) + [None] * len(self.callbacks))[: len(self.callbacks)]
        self.history = list(state["history"])
        set_random_states(state["random"], self.data.device)


Training = Generator[Stage, None, list[Record]]


def training(
    model: Trainable,
    data: Data,
    optimizer: Optimizer | None,
    *,
    epochs: int,
    phase: str,
    page: Page | None = None,
    precision: str = "float32",
    callbacks: Sequence[Callback] = (),
    restart: int = 0,
) -> Training:
    """Minimise the sum of the model's losses; one record an epoch. Without an optimiser only the model's own
    closed-form updates act. Where the page knows an earlier state of this phase, go on from there.

    A coroutine: it yields its stage whenever that has an epoch to run, and goes on when it has been run."""
    stage = Stage(phase, model, data, optimizer, callbacks, precision, long=epochs * data.steps >= LONG)
    kept = page.resume(phase) if page else None
    model.train()
    model.epochs = epochs
    if optimizer is not None:
        set_rate(optimizer, 1.0)  # before anything is kept: the rates as they were given
    if kept is None:
        model.before_training(data)
    else:
        stage.restore(kept)
    last_good = LastGood(model, optimizer, failures=kept["failures"] if kept else 0)
    history = stage.history
    try:
        for epoch in range(len(history), 0 if model.finished else epochs):
            model.train()
            if optimizer is not None:
                set_rate(optimizer, model.rate(epoch))
            model.before_epoch(epoch, data)
            yield stage
            means = stage.means()
            history.append({"phase": phase, "epoch": epoch, **means, **model.figures()})
            if not all(map(math.isfinite, means.values())):
                last_good.restore(phase, epoch)
                if last_good.failures > PATIENCE:
                    break
                continue
            model.after_epoch(epoch, data)
            stop = stage.tell(Progress(phase, epoch, epochs, means, model, data, history[-1], restart))
            if stop or model.finished:
                break
            due = page is not None and page.due(epoch)
            if due or epoch % INTERVAL == INTERVAL - 1:
                last_good.keep()
            if page is not None and due:
                page.reached(phase, stage.state(last_good.failures))
    except KeyboardInterrupt:
        if page is None or not data.among.alone:
            raise
        page.ledger.interrupted = True
        model.report("interrupted", f"Stopped by the user in epoch {len(history)} of {epochs} of {phase}.")
    if not last_good.is_finite():
        last_good.restore(phase, len(history))
    stage.leave_stack()
    model.eval()
    if history:
        settle_batch_norm(model, data)
    model.after_training(data)
    return history
