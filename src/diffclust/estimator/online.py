"""Online learning with `partial_fit`, one batch at a time; cluster numbers keep their meaning."""

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np
import torch
from sklearn.utils.metaestimators import available_if
from torch import Tensor
from torch.optim import Optimizer

from ..engine.accelerate.capture import StepRunner
from ..engine.data import Data
from ..engine.distributed import alone
from ..engine.model import ClusterModel, Trainable
from ..engine.phase import Phase
from ..engine.pretraining import NetworkAlone
from ..engine.rows import TensorRows
from ..engine.run import temperature_of
from ..engine.runtime import Randomness, choose_device, choose_precision, learning
from ..engine.threads import threads_for
from ..nn.autoencoders import ScaledRows
from ..nn.nearest import member_sums
from ..nn.ops import largest
from ..nn.regrouping import RegroupedLayer
from ..reading.inputs import UserInput, read_rows, stream_batches
from .state import set_attributes, write_lock

M = TypeVar("M", bound=torch.nn.Module)
SAVED_FIELDS = ("origin", "counts", "last_seen", "last_row")
OF_LAST_BATCH: tuple[str, ...] = ("labels_", "inertia_", "clustering_loss_")
FIRST_ROWS = 1_000  # first rows of a stream that the temperature is estimated from


class OnlineBatch(NamedTuple):
    """A batch as an online rule sees it, with the centres before the step."""

    z: Tensor  # (b, d) its embedding
    pull: Tensor  # (k, d) sum of each cluster's rows
    mass: Tensor  # (k,) their number
    counts: Tensor  # (k,) how many rows each cluster has had before


@dataclass(eq=False)
class Stream:
    """What an estimator remembers about the batches since its fit."""

    origin: Tensor  # (k, d) the centres of the fit
    counts: Tensor  # (k,) rows each cluster has had, in float64, those of the fit included
    last_seen: Tensor  # (k,) when it last had one: seconds since 1970
    last_row: Tensor  # (k,) the same as a position in the stream; 0: not since the fit
    rows: int = 0
    batches: int = 0
    optimizer: Optimizer | None = None  # of the learner
    learner: ClusterModel | None = None  # a copy of the model, which is trained with learn_network=True
    last: Tensor | None = None  # embedding of the last batch
    first: list[Tensor] | None = None  # embeddings of the first rows, if the stream started with few

    def count(self, rows: int, mass: Tensor) -> None:
        self.rows += rows
        self.batches += 1
        self.counts = self.counts + mass
        none = mass == 0
        self.last_seen = self.last_seen.where(none, time.time())
        self.last_row = self.last_row.where(none, float(self.rows))

    def diagnostics(self, centers: Tensor) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "batches": self.batches,
            "counts": self.counts.long().tolist(),
            "drift": torch.linalg.vector_norm(centers - self.origin, dim=1).tolist(),
            "last_seen": self.last_seen.tolist(),
            "rows_since": (self.rows - self.last_row).long().tolist(),
        }


@dataclass(frozen=True)
class CollectedRows:
    """The distinct rows of a stream that has fewer of them than clusters, so it cannot start yet."""

    rows: Tensor
    attributes: dict[str, Any]  # of the first batch


class OnlineMixin:
    """`partial_fit`, for every method that has an online rule."""

    if TYPE_CHECKING:
        n_clusters: int
        device: str
        precision: str
        deterministic: bool
        model_: ClusterModel
        seed_: int
        diagnostics_: dict[str, Any]
        cluster_centers_: np.ndarray
        temperature_: float
        fit: Callable[[Any], Any]
        is_joint: Callable[[], bool]
        pretraining: Callable[[ClusterModel], Trainable]
        build_optimizer: Callable[[Trainable], Optimizer | None]
        _check_settings: Callable[[], None]
        _augmentation: Callable[..., Any]

    # ---- what a method says

    def why_not_online(self) -> str:
        """Why the method cannot learn online with its settings; "" if it can."""
        return "it has no rule for single batches"

    def online_step(self, model: Any, batch: OnlineBatch) -> None:
        """Move the centres."""
        raise NotImplementedError

    def online_learner(self, model: ClusterModel) -> Trainable:
        """The loss that a step of the network minimises with `learn_network=True`."""
        return NetworkAlone(model) if self.is_joint() else self.pretraining(model)

    # ---- learning

    @available_if(lambda self: not self.why_not_online())
    def partial_fit(self, X: Any, y: Any = None, *, learn_network: bool = False) -> Self:
        """Update the model with a new batch: the centres move, and cluster 3 stays cluster 3.

        Without a fit before it, rows are collected until there are `n_clusters` distinct ones, and the model is fitted
        on these. A DataLoader or an IterableDataset is a whole stream: the model learns from each of its batches in
        turn.

        `labels_`, `inertia_` and `clustering_loss_` become those of this batch. For each cluster,
        `diagnostics_["stream"]` has the number of rows it has received, the distance of its centre from its place after
        the fit, the time of its last row, and the number of rows since then. The rows of an initial fit are included
        only in the counts. An invalid batch raises an error and changes nothing; batches before it in a DataLoader have
        been learnt from.

        Args:
            X: the batch, or a stream of batches.
            y: ignored.
            learn_network: also train the network for one step on the method's own loss, with fixed centres; otherwise
                the network does not change.
        """
        with learning(self.deterministic):
            for batch in stream_batches(X):
                with write_lock(self):
                    if hasattr(self, "model_"):
                        self._update(batch, learn_network)
                    else:
                        self._collect(batch)
        return self

    def _collect(self, X: Any) -> None:
        """Collect rows, and fit as soon as there are enough."""
        self._check_settings()
        if isinstance(self.n_clusters, str):
            raise ValueError('n_clusters="auto" cannot start with partial_fit: call fit first.')
        waiting: CollectedRows | None = vars(self).get("_waiting")
        if waiting is None:
            given = read_rows(self, X, fitting=True)
        else:
            judge = copy.copy(self)  # with the attributes of the first batch, to check this one
            vars(judge).update(waiting.attributes)
            given = read_rows(judge, X, fitting=False)
        data = Data(given.rows, torch.device("cpu"))
        known = waiting.rows if waiting else data.block(0, 1)[:0]
        distinct = _distinct(known, data, max(2, self.n_clusters))
        if len(distinct) < max(2, self.n_clusters):
            self._waiting = CollectedRows(distinct, waiting.attributes if waiting else given.attributes)
            return
        start = given
        if waiting is not None:
            rows = torch.cat([known, data.map(lambda x: x)])
            start = replace(given, rows=TensorRows(rows), attributes=waiting.attributes)
        with alone():
            self.fit(start)
        data = Data(given.rows, choose_device(self.device))
        stream = self._copy_of_stream(data.device)
        stream.last = data.map(self.model_.embed)
        if len(start.rows) < FIRST_ROWS:
            stream.first = [Data(start.rows, data.device).map(self.model_.embed)]
        self._publish(stream, self.model_)

    def _update(self, X: Any, learn_network: bool) -> None:
        """Change copies of the model and the stream, because other threads may be reading them; then replace both at
        once."""
        if isinstance(self.model_.clusters, RegroupedLayer):
            raise ValueError(
                "partial_fit cannot move clusters that were merged or split, as they have no centres: fit again."
            )
        given = read_rows(self, X, fitting=False)
        data = Data(given.rows, choose_device(self.device))
        if self.model_.training or self.model_.clusters.weight.device != data.device:
            self.model_.to(data.device).eval()
        stream = self._copy_of_stream(data.device)
        z = data.map(self.model_.embed)
        if learn_network:
            model = self._after_network_step(given, data, stream)
            z = data.map(model.embed)
        else:  # the network does not change, and is shared
            model = _with_centers_of_its_own(self.model_)
        clusters = model.clusters
        with torch.no_grad():
            pull, count = member_sums(z, clusters.owners(z).clamp_min_(0), len(clusters.weight))
            mass = count.to(z.dtype)
            if not math.isfinite(pull.sum().item()) and not bool(pull.isfinite().all()):
                raise ValueError("Input X holds values so large that their sum is not finite in float32.")
            self.online_step(model, OnlineBatch(z, pull, mass, stream.counts))
            stream.count(len(z), mass)
            stream.last = z
            if stream.first is not None:
                stream.first = [*stream.first, z]
            self._publish(stream, model, cluster_centers_=clusters.centers.float().cpu().numpy().copy())

    @torch.no_grad()
    def _publish(self, stream: Stream, model: ClusterModel, **fitted: Any) -> None:
        """Set the fitted attributes to those of the stream's last batch."""
        diagnostics = stream.diagnostics(model.clusters.centers)
        fitted |= {"diagnostics_": {**self.diagnostics_, "stream": diagnostics, "sizes": diagnostics["counts"]}}
        gone = OF_LAST_BATCH
        if stream.first is not None:
            gone = (*gone, "temperature_")
            if sum(map(len, stream.first)) >= FIRST_ROWS:
                fitted["temperature_"] = self._temperature_of(model, stream.first)
                stream.first = None
        set_attributes(self, {**fitted, "model_": model, "_stream": stream}, without=gone)

    @staticmethod
    def _temperature_of(model: ClusterModel, rows: list[Tensor]) -> float:
        """The temperature from the first rows of a stream: of the rows it started with, each cluster may have only
        one."""
        return temperature_of(model.clusters, torch.cat([part.to(model.clusters.weight.device) for part in rows]))

    def _after_network_step(self, given: UserInput, data: Data, stream: Stream) -> ClusterModel:
        """A copy of the model whose network has taken one step on the whole batch. Raises, without a step, if the loss
        is not finite."""
        model = self.model_
        if len(data) < 2:
            raise ValueError("learn_network=True needs batches of at least 2 rows, this one has 1.")
        if stream.learner is None:
            stream.learner = copy.deepcopy(model)
        twin = stream.learner.to(data.device)
        twin.load_state_dict(model.state_dict())
        learner = self.online_learner(twin)
        optimizer = stream.optimizer or self.build_optimizer(learner)
        if optimizer is None:
            raise ValueError("learn_network=True, but this network has nothing to learn.")
        before = copy.deepcopy(optimizer.state_dict())
        augmentation = self._augmentation(data.row_shape, isinstance(model.autoencoder, ScaledRows))
        whole = Data(given.rows, data.device, len(data), augmentation)
        precision = choose_precision(self.precision, data.device)
        phase = Phase("online", learner, whole, optimizer, epochs=1, precision=precision)
        randomness = Randomness(self.seed_ + stream.batches, data.device)
        phase.set_up()
        twin.train()
        with threads_for(phase.short_steps):
            with randomness.borrowed():
                phase.begin_steps()
            StepRunner(data.device).run_epoch([(phase, randomness)])
        if not all(map(math.isfinite, phase.means().values())):
            optimizer.load_state_dict(before)
            raise ValueError("The loss of this batch is not finite: its values are too far from those of the fit.")
        stream.optimizer = optimizer
        stepped = copy.deepcopy(model)
        stepped.load_state_dict(twin.state_dict())
        return stepped

    def _copy_of_stream(self, device: torch.device) -> Stream:
        """A copy of the stream's state, on the device; of a new stream, its initial state."""
        stream: Stream | None = vars(self).get("_stream")
        if stream is not None:
            return replace(stream, **{name: getattr(stream, name).to(device) for name in SAVED_FIELDS})
        counts = torch.tensor(self.diagnostics_["sizes"], dtype=torch.float64, device=device)
        now = torch.full_like(counts, time.time())
        origin = self.model_.clusters.centers.detach().clone()
        return Stream(origin, counts, now, torch.zeros_like(counts))

    def stream_state(self) -> dict[str, Tensor]:
        """The state that must be saved to continue the stream later, without the moments of the optimiser."""
        stream: Stream | None = vars(self).get("_stream")
        return {name: getattr(stream, name) for name in SAVED_FIELDS} if stream else {}

    def resume_stream(self, state: dict[str, Tensor]) -> None:
        """Continue from the result of `stream_state`."""
        if state:
            so_far = self.diagnostics_["stream"]
            origin, counts, last_seen, last_row = (state[name] for name in SAVED_FIELDS)
            self._stream = Stream(origin, counts, last_seen, last_row, so_far["rows"], so_far["batches"])

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            now = vars(self)  # once, because other threads may replace the attributes
            stream = now.get("_stream")
            if name in OF_LAST_BATCH and getattr(stream, "last", None) is not None:
                now[name] = self._of_last_batch(name, now["model_"], stream.last)
                return now[name]
            if name == "temperature_" and (first := getattr(stream, "first", None)):
                now[name] = self._temperature_of(now["model_"], first)
                return now[name]
            if name == "partial_fit":
                raise AttributeError(f"{type(self).__name__} does not learn online: {self.why_not_online()}.")
            return object.__getattribute__(self, name)  # raises the error of a property, or the usual one

    @staticmethod
    @torch.no_grad()
    def _of_last_batch(name: str, model: ClusterModel, last: Tensor) -> Any:
        """Computed only when it is read, because most batches of a stream need none of it."""
        clusters = model.clusters
        z = last.to(clusters.weight.device).double()
        if name == "clustering_loss_":
            return model.clustering_loss(z).mean().item()
        owner = largest(clusters.logits(z))
        if name == "labels_":
            return owner.cpu().numpy()
        return (z - clusters.centers.double()[owner]).square().sum().item()


def _with_centers_of_its_own(model: ClusterModel) -> ClusterModel:
    """A copy of the model that shares all modules except the cluster layer."""
    twin = _shallow(model)
    twin._modules["clusters"] = _shallow(model.clusters)
    return twin


def _shallow(module: M) -> M:
    """A copy with own parameters and buffers and shared submodules: `copy.deepcopy` takes longer than a batch."""
    twin = object.__new__(type(module))
    vars(twin).update(vars(module))
    vars(twin).update((name, vars(module)[name].copy()) for name in ("_parameters", "_buffers", "_modules"))
    for name, parameter in module._parameters.items():
        if parameter is not None:
            twin._parameters[name] = torch.nn.Parameter(parameter.detach().clone(), parameter.requires_grad)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            twin._buffers[name] = buffer.clone()
    return twin


def _distinct(known: Tensor, data: Data, enough: int) -> Tensor:
    """Distinct rows of `known` and `data`; stops as soon as there are `enough`."""
    for start in range(0, len(data), max(enough, 1024)):
        block = data.block(start, min(start + max(enough, 1024), len(data)))
        known = torch.unique(torch.cat([known, block]), dim=0)
        if len(known) >= enough:
            break
    return known
