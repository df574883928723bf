"""One phase of a restart: a model that learns from data, epoch by epoch."""

import itertools
import math
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from ..nn.autoencoders import Autoencoder, Identity
from ..nn.parallel import shared_norms, total
from .accelerate.layers import Fusion
from .data import Batch, Data
from .feed import Feed, shuffled
from .last_finite import LastFinite
from .model import ClusterModel, Losses, Trainable
from .rows import TensorRows
from .runtime import Randomness, autocast, random_states, set_random_states
from .threads import has_short_steps

Record = dict[str, Any]  # {"phase": ..., "epoch": ..., and a number for each loss term}
CaptureKey = tuple[int, Hashable, tuple[float, ...]]  # of a step: its phase, the model's step_key, the learning rates

NUMBER = (bool, int, float, Tensor)
FINITE_CHECK_ROWS = 64  # rows whose embedding must be finite when a phase ends
SNAPSHOT_EVERY, SNAPSHOT_STEPS = 10, 50  # epochs between states that can be restored, but at least so many steps
NORM_BATCHES = 50  # batches for the final statistics of batch norm


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
    first: bool = False  # first call in this phase; not always epoch 0, whose loss may not be finite
    whole: Trainable | None = None  # the model with its network, if `model` is trained on embeddings


Callback = Callable[[Progress], None]


def set_rate(optimizer: Optimizer, factor: float) -> None:
    """lr = base_lr · factor. `base_lr` is the rate as it was given, or as `LastFinite` halved it since."""
    for group in optimizer.param_groups:
        group["lr"] = group.setdefault("base_lr", group["lr"]) * factor


def _load_optimizer(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Load the state. Unlike torch, raise if a numeric setting is no number in it, or if the weights of a group have
    different moments."""
    before = [{name: isinstance(value, NUMBER) for name, value in group.items()} for group in optimizer.param_groups]
    optimizer.load_state_dict(state)
    for were_numbers, group in zip(before, optimizer.param_groups, strict=True):
        wrong = [n for n, was in were_numbers.items() if n not in group or (was and not isinstance(group[n], NUMBER))]
        if wrong:
            raise ValueError(f"the optimiser's {', '.join(wrong)} missing or not a number")
        moments = {frozenset(optimizer.state[weight]) for weight in group["params"] if optimizer.state.get(weight)}
        if len(moments) > 1:
            raise ValueError("the optimiser's moments differ from weight to weight")


@torch.no_grad()
def settle_batch_norm(model: Trainable, data: Data) -> None:
    """Recompute the batch-norm statistics as means over rows without augmentation. The running ones of training lag by
    some ten steps and come from augmented rows: after few steps they are far off."""
    model.train()  # except for the parts that do not learn
    norms = [
        module
        for module in model.modules()
        if isinstance(module, _BatchNorm)
        and module.training
        and module.track_running_stats
        and (module.weight is None or module.weight.requires_grad)
    ]
    model.eval()
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a cumulative mean
        norm.train()
    with shared_norms():
        for batch in itertools.islice(shuffled(data), NORM_BATCHES):
            model.reconstruct(batch.clean)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers, by name."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


class Phase:
    """`model` learns from `data` for at most `epochs` epochs: start, then begin_epoch, a step a batch and end_epoch,
    until it is over; then finish. Without an optimiser only the model's own closed-form updates act.

    Args:
        restart: the number of the restart that the phase is part of, for callbacks.
    """

    places_centers = False  # whether it places centres for the next phase, so that it must run even with 0 epochs

    def __init__(
        self,
        name: str,
        model: Trainable,
        data: Data,
        optimizer: Optimizer | None,
        epochs: int,
        *,
        precision: str = "float32",
        callbacks: Sequence[Callback] = (),
        restart: int = 0,
    ) -> None:
        self.name, self.model, self.data, self.optimizer, self.epochs = name, model, data, optimizer, epochs
        self.whole = model
        self.precision, self.callbacks, self.restart = precision, callbacks, restart
        self.history: list[Record] = []
        self.terms: list[str] = []  # of the loss, by name
        self.over = False
        self.steps_taken = 0
        self.in_stack = False  # whether the model's tensors are parts of common ones: see `accelerate.stack`
        self.totals: dict[Hashable, dict[str, Tensor]] = {}  # by step_key: sums of the loss terms over an epoch
        self.callback_states: list[Any] = []
        self.called_back = False  # whether callbacks were called in this phase

    # ---- from start to finish

    def start(self, saved: dict[str, Any] | None = None) -> None:
        """Prepare for the first epoch, or continue from a checkpoint."""
        self.set_up()
        self.model.train()
        self.model.epochs = self.epochs
        if self.optimizer is not None:
            set_rate(self.optimizer, 1.0)  # stores the given rates before any state is kept
        if saved is None:
            self.model.before_training(self.data)
        else:
            self.load_state(saved)
        self.last_finite = LastFinite(self.model, self.optimizer, failures=saved["failures"] if saved else 0)
        self.over = self.model.finished or self.epoch >= self.epochs

    def set_up(self) -> None:
        """Build what steps need."""
        data = self.data
        self.feed = Feed(data)
        self.short_steps = data.device.type == "cpu" and has_short_steps(self.model, data.row_shape, data.batch_size)
        self.fusion = Fusion(self.model, data.device, self.precision, self.epochs * data.steps, data.processes.alone)
        self.callback_states = [None] * len(self.callbacks)
        self._keep_counts_on_the_device()

    @property
    def epoch(self) -> int:
        return len(self.history)

    def begin_epoch(self) -> None:
        self.model.train()
        if self.optimizer is not None:
            set_rate(self.optimizer, self.model.lr_factor(self.epoch))
        self.model.before_epoch(self.epoch, self.data)
        self.begin_steps()

    def begin_steps(self) -> None:
        """Shuffle the rows, and reset the sums of losses."""
        self.data.processes.align(self.model)
        self.feed.begin_epoch()
        self.steps_taken = self.epoch * self.data.steps  # so that a resumed phase counts on
        for amount in self.totals.get(self.model.step_key, {}).values():
            amount.zero_()

    def begin_step(self, step: int, randomness: Randomness) -> None:
        """The part of a step that cannot be captured: work over all rows, and copying rows from the host."""
        if self.model.interval is not None and self.steps_taken % self.model.interval == 0:
            with randomness.borrowed():
                self.model.refresh(self.data)
        self.feed.load(step)
        self.steps_taken += 1

    def step(self) -> None:
        device = self.data.device
        cast_weights = self.fusion.cast_weights(self.model)
        batch = self.model.prepare(self.feed.batch())
        with autocast(device, self.precision):
            self.fusion.rehearse(self.model, batch.x, self.optimizer)
            with self.fusion.layers(self.model, cast_weights), shared_norms():
                losses = self.data.weighted_by_share(self.model.losses(batch))
        if self.optimizer is not None:
            for group in self.optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None
            differentiable = [value for value in losses.values() if value.requires_grad]
            if differentiable:
                torch.autograd.backward(differentiable)  # of their sum
            else:
                self.check_that_a_part_is_frozen()
        with self.fusion.arithmetic():
            self.apply_gradients(batch, losses)

    def check_that_a_part_is_frozen(self) -> None:
        """Raise if it is not: a loss without a gradient would train nothing."""
        if not self.model.frozen_parts:
            raise ValueError(
                f"no term of `loss` has a gradient: {type(self.model).__name__} has nothing to learn in epoch "
                f"{self.epoch} of {self.name}. If the network does not learn (see `network_learns`), the centres must "
                "learn in every epoch; a part that rests is named in `frozen_parts`."
            )

    def apply_gradients(self, batch: Batch, losses: Losses) -> None:
        """The part of a step after the backward pass."""
        if self.optimizer is not None:
            for parameter in self.model.frozen_parameters():
                parameter.grad = None  # not zero, so that neither momentum nor weight decay moves it
            self.data.processes.add_gradients(p for group in self.optimizer.param_groups for p in group["params"])
            self.model.after_backward()
            self.optimizer.step()
        self.model.after_step(batch)
        totals = self.totals.setdefault(self.model.step_key, {})
        self._check_terms(totals, losses)
        for name, value in losses.items():
            if name not in totals:
                totals[name] = torch.zeros((), device=value.device)
        if losses:
            torch._foreach_add_([totals[name] for name in losses], [value.detach() for value in losses.values()])

    def end_epoch(self) -> None:
        epoch, losses = self.epoch, self.means()
        self._check_terms(self.terms, losses)
        self.terms = list(losses)
        self.history.append({"phase": self.name, "epoch": epoch, **losses, **self.model.extra_metrics()})
        if all(map(math.isfinite, losses.values())):
            self.model.after_epoch(epoch, self.data)
            stopped = self._run_callbacks(epoch, losses)
            if stopped and self.name == "clustering" and self.epoch < self.epochs:
                self.model.note("stopped", f"A callback ended training after {self.epoch} of {self.epochs} epochs.")
            self.over = stopped or self.model.finished
            every = max(SNAPSHOT_EVERY, math.ceil(SNAPSHOT_STEPS / self.data.steps))
            if epoch % every == every - 1 and not self.over:
                self.last_finite.keep()
        else:
            self.last_finite.restore(self.name, epoch)
            self.over = self.last_finite.gave_up
        self.over |= self.epoch >= self.epochs

    def means(self) -> dict[str, float]:
        """The mean of each loss term over the epoch, read from the device at once."""
        totals = self.totals[self.model.step_key]
        sums = total(torch.stack(list(totals.values())))
        return dict(zip(totals, (sums / self.data.steps).tolist(), strict=True))

    def _check_terms(self, before: Collection[str], now: Collection[str]) -> None:
        """Raise if the loss has other terms than `before`, where there are any, apart from the engine's own for
        neighbours, which rests with the network."""
        expected, returned = (sorted(set(each) - {"neighbours"}) for each in (before, now))
        if before and returned != expected:
            raise ValueError(
                f"`loss` must return the same names in every epoch, one of them 'clustering': in epoch {self.epoch} of "
                f"{self.name}, {type(self.model).__name__} returned {', '.join(returned)}, before that "
                f"{', '.join(expected)}. A term that rests is detached: `.detach()`."
            )

    def _run_callbacks(self, epoch: int, losses: dict[str, float]) -> bool:
        """Run the callbacks, and return whether one asked to stop. Restarts that run side by side share them, so one
        that keeps a state is first given the state it had in this restart."""
        record = self.history[-1]
        progress = Progress(self.name, epoch, self.epochs, losses, self.model, self.data, record, self.restart)
        progress.first, progress.whole, self.called_back = not self.called_back, self.whole, True
        for i, callback in enumerate(self.callbacks):
            has_state = hasattr(callback, "state_dict")
            if has_state and self.callback_states[i] is not None:
                callback.load_state_dict(self.callback_states[i])  # type: ignore[attr-defined]
            callback(progress)
            if has_state:
                self.callback_states[i] = callback.state_dict()  # type: ignore[attr-defined]
        return any(self.data.processes.all_gather(progress.stop))

    def interrupt(self) -> None:
        """Ctrl-C: run no more epochs."""
        self.model.note("interrupted", f"Stopped by the user in epoch {self.epoch} of {self.epochs} of {self.name}.")
        self.over = True

    def finish(self) -> None:
        self.feed.cancel_prefetch()
        if not self.last_finite.is_finite() or not self._embedding_is_finite():
            self.last_finite.restore(self.name, self.epoch, "embedding")
        self.leave_stack()
        self.model.eval()
        if self.history:
            settle_batch_norm(self.model, self.data)
        self.model.after_training(self.data)

    def _embedding_is_finite(self) -> bool:
        """Checked on a few rows: an embedding can overflow although all weights are finite."""
        embed = getattr(getattr(self.model, "model", self.model), "embed", None)
        if embed is None or not self.history:
            return True
        with self.model.evaluating():
            return bool(self.data.map(embed, self.data.spaced(FINITE_CHECK_ROWS)).isfinite().all())

    # ---- what acceleration needs to know

    @property
    def capture_key(self) -> CaptureKey:
        """Steps with the same key do the same work, so one CUDA graph serves them."""
        rates = tuple(float(group["lr"]) for group in self.optimizer.param_groups) if self.optimizer else ()
        return id(self), self.model.step_key, rates

    def _keep_counts_on_the_device(self) -> None:
        """Let the optimiser count its steps on the device, otherwise it could not be captured."""
        if self.optimizer is not None and self.data.device.type == "cuda":
            for group in self.optimizer.param_groups:
                if "capturable" in group:
                    group["capturable"] = True

    @torch.no_grad()
    def leave_stack(self) -> None:
        """Give the model its own tensors again: views into the stack would keep the other models in memory."""
        if self.in_stack:
            for tensor in tensors_of(self.model).values():
                tensor.grad = None
                tensor.data = tensor.clone()
        self.in_stack = False

    # ---- a checkpoint

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "training": self.model.training_state(),
            "optimizer": self.optimizer.state_dict() if self.optimizer else None,
            "callbacks": self.callback_states,
            "history": self.history,
            "failures": self.last_finite.failures,
            "random": random_states(self.data.device),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.model.load_training_state(state["training"])
        if self.optimizer:
            _load_optimizer(self.optimizer, state["optimizer"])
            self._keep_counts_on_the_device()
            # files hold plain tensors, and the fused optimisers read moments in the order of the weights
            for weight, moments in self.optimizer.state.items():
                for name, value in moments.items():
                    if isinstance(value, Tensor) and value.shape == weight.shape:
                        moments[name] = torch.empty_like(weight).copy_(value)
        self.callback_states = (list(state["callbacks"]) + [None] * len(self.callbacks))[: len(self.callbacks)]
        self.history = list(state["history"])
        self.called_back = True
        set_random_states(state["random"], self.data.device)


class EmbeddedPhase(Phase):
    """Clustering with a frozen network: the rows are embedded once, and the same method without a network learns
    from the embeddings; its centres are then the model's."""

    whole: ClusterModel

    def __init__(
        self,
        name: str,
        model: ClusterModel,
        data: Data,
        build_model: Callable[[Autoencoder, int], ClusterModel],
        build_optimizer: Callable[[Trainable], Optimizer | None],
        epochs: int,
        **options: Any,
    ) -> None:
        super().__init__(name, model, data, None, epochs, **options)
        self.build_model, self.build_optimizer = build_model, build_optimizer

    def start(self, saved: dict[str, Any] | None = None) -> None:
        embedded = TensorRows(self.data.map(self.whole.eval().embed))
        embedded.is_embedding = True
        self.model = self.build_model(Identity(embedded.row_shape), len(embedded)).to(self.data.device)
        self.model.clusters.sphere = self.whole.clusters.sphere
        known, device = self.data.knowledge, self.data.device
        self.data = Data(embedded, device, self.data.batch_size, processes=self.data.processes)
        self.data.knowledge = known
        self.optimizer = self.build_optimizer(self.model)
        super().start(saved)

    def finish(self) -> None:
        super().finish()
        assert isinstance(self.model, ClusterModel)
        self.whole.clusters = self.model.clusters
