"""The scikit-learn estimator that all methods share."""

import contextlib
import os
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import ClusterMixin
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor
from torch.optim import Optimizer

from ..engine.checkpoint import CheckpointFolder
from ..engine.data import Data
from ..engine.distributed import Processes, current_processes
from ..engine.loop import train
from ..engine.model import ClusterModel, Trainable
from ..engine.optimizers import make_optimizer
from ..engine.pretraining import NeighbourPretraining, Pretraining
from ..engine.restart import Restart
from ..engine.run import Run
from ..engine.runtime import choose_device, learning
from ..nn.autoencoders import Autoencoder
from ..nn.cluster import Start
from ..nn.n_clusters import Choice
from ..reading.inputs import UserInput, read_rows
from ..saving.onnx import ExportMixin
from ..saving.save import save
from . import networks
from .explainable import ExplanationMixin
from .hierarchy import HierarchyMixin
from .knowledge import NOTHING_KNOWN, UserKnowledge, read_knowledge
from .n_clusters import with_n_clusters
from .online import OnlineMixin
from .outliers import measure_outliers
from .prediction import PredictionMixin
from .regrouping import RegroupingMixin
from .restarts import build_restarts
from .result_checks import check_result
from .selection import choose_run
from .settings import SharedSettings, hyperparameters
from .stability import StabilityMixin
from .state import fitted_names, set_attributes, snapshot, write_lock

# processes check that they were given the same data, on at most so many rows: of rows in memory, and of others
ALL_VALUES, SOME_VALUES = 200_000, 2_000
# attributes that are others by another assignment of the same model
OF_ASSIGNMENT = ("model_", "labels_", "inertia_", "clustering_loss_", "diagnostics_", "_outlier_statistics")


@hyperparameters
class PrototypeClusterer(
    OnlineMixin,
    ExportMixin,
    ExplanationMixin,
    PredictionMixin,
    HierarchyMixin,
    RegroupingMixin,
    StabilityMixin,
    CallbackSupportMixin,
    ClusterMixin,
    SharedSettings,
):
    """A network with centres in its embedding, trained by gradients, which can label new rows. Its parameters are those
    of `SharedSettings`.

    Attributes:
        labels_: the cluster of each training row (n,).
        cluster_centers_: (n_clusters, embedding_dim); `inverse_transform` decodes them.
        inertia_: sum of squared distances to the own centre, in the embedding.
        clustering_loss_: the method's own loss over all of X, on the paper's scale.
        temperature_: the width of the clusters in `predict_proba`, estimated without labels.
        history_: a dict per epoch: phase, epoch, and every term of the loss.
        n_iter_: the number of clustering epochs.
        runs_: a dict per restart: labels, history, losses, seed.
        seed_: the seed of the restart that was kept.
        diagnostics_: cluster sizes, repairs, reasons to doubt the result ("warnings"), what was not checked
            ("unchecked"), and how the number of clusters was found.
        model_: the `nn.Module`, usable on its own.
        n_features_in_: number of columns of X.
        feature_names_in_: names of the columns, if X had names.
        columns_: how a table was read; absent for rows of numbers.
        shape_: the shape of one row or image, as `fit` saw it.
        image_divisor_: the number that images are divided by; None if they are used unchanged.
        origin_: offset that is subtracted in float64 from columns far from zero, such as timestamps, before everything
            else; zero for other columns, None if there is no such column. `model_` expects rows with the offset
            removed.
    """

    function_knobs: ClassVar[tuple[str, ...]] = ()  # knobs that may be functions; a model with one cannot be saved
    init_choices: ClassVar[tuple[str, ...]] = ("k-means", "k-means++", "neighbours", "random")
    by_distance: ClassVar[bool] = True  # whether near rows share a cluster, so that k-means may stand beside it
    can_fall_back: ClassVar[bool] = True  # whether without a network it is k-means, which may then be kept instead
    why_not_shared: ClassVar[str] = ""  # why several processes cannot share a fit, where they cannot
    starts_from_centers: ClassVar[bool] = (
        True  # whether clusters begin with centres, so that known classes can place them
    )
    why_not_overclustered: ClassVar[str] = ""  # why `overcluster` cannot begin with more clusters, where it cannot

    # ---- what a method says

    def build_model(self, autoencoder: Autoencoder, n_samples: int) -> ClusterModel:
        """The network with the method's cluster layer and loss."""
        raise NotImplementedError(f"{type(self).__name__} has no build_model: a method says there what is trained.")

    def network_options(self) -> dict[str, dict[str, Any]]:
        """Constructor arguments for each kind of network that differ from the defaults for this method."""
        return {}

    def pretraining(self, model: ClusterModel) -> Trainable:
        """The pretraining task of the network."""
        return Pretraining(model)

    def pretraining_plan(self, model: ClusterModel, epochs: int) -> list[tuple[str, Trainable, int]]:
        """The pretraining phases by name, with their epochs."""
        return [("pretraining", self.pretraining(model), epochs)]

    def is_joint(self) -> bool:
        """Whether the network is trained together with the centres."""
        return True

    def build_autoencoder(self, data: Data) -> Autoencoder:
        """The network that the settings describe, for these data."""
        by_neighbours = data.graph is not None
        return networks.build(self.network, data, self.embedding_dim, self.network_options(), neighbours=by_neighbours)

    def build_optimizer(self, model: Trainable) -> Optimizer | None:
        """The optimiser of a model; None if it has nothing to train by gradients."""
        if isinstance(model, NeighbourPretraining):
            return make_optimizer(model, "adam", model.lr if self.lr is None else self.lr)
        return make_optimizer(model, self.optimizer, self.lr)

    def first_centers(self, embedding_dim: int) -> Start | Tensor:
        """The checked value of `init`: a name, or centres as a tensor."""
        init: Any = getattr(self, "init", "k-means")
        if isinstance(init, str):
            if init not in self.init_choices:
                raise ValueError(f"init={init!r} should be one of {', '.join(self.init_choices)}, or an array.")
            return init  # type: ignore[return-value]
        try:
            values = np.array(init.detach().cpu().numpy() if isinstance(init, Tensor) else init, np.float32)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(
                f"init={init!r:.50} should be one of {', '.join(self.init_choices)}, or an array: {error}."
            ) from None
        centers = torch.from_numpy(values)
        if centers.shape != (self.n_clusters, embedding_dim):
            raise ValueError(
                f"init has shape {tuple(centers.shape)}, expected "
                f"(n_clusters, embedding_dim) = ({self.n_clusters}, {embedding_dim})."
            )
        if not centers.isfinite().all():
            raise ValueError("init contains NaN or infinity.")
        return centers

    @property
    def _has_given_centers(self) -> bool:
        """Whether `init` is an array of centres."""
        return not isinstance(getattr(self, "init", "k-means"), str)

    # ---- learning

    @with_callbacks
    def fit(self, X: Any, y: Any = None, *, known: Any = None, must_link: Any = None, cannot_link: Any = None) -> Self:
        """Train the network and the centres on the rows X, with optional knowledge about some rows.

        Args:
            X: the rows.
            y: ignored, as in every scikit-learn clusterer. Labels that a pipeline or a grid search passes along for
                scoring are never used for training.
            known: (n,) known classes of some rows, as numbers or names; -1, None or NaN for all others. The first
                clusters are these classes, in sorted order.
            must_link: (m, 2) positions of two rows that belong to the same cluster.
            cannot_link: (m, 2) positions of two rows that belong to different clusters.
        """
        with learning(self.deterministic):
            given = self._read(X)
            knowledge = self._read_knowledge(given, known, must_link, cannot_link)
            with self._reserved(), current_processes().sharing():
                settled, choice = with_n_clusters(self, given, least=max(1, len(knowledge.classes)))
                restarts = build_restarts(settled, given, knowledge=knowledge.facts, choice=choice)
                train(restarts)
                run = choose_run(settled, restarts)
            self._adopt(restarts, run, choice, knowledge)
        self._warn(stacklevel=3)  # the caller of fit, past scikit-learn's wrapper
        return self

    def _read_knowledge(self, given: UserInput, known: Any, must_link: Any, cannot_link: Any) -> UserKnowledge:
        """The checked knowledge about some rows."""
        processes = current_processes()
        with processes.raising_together():
            knowledge = read_knowledge(len(given.rows), known, must_link, cannot_link)
            if not self._n_clusters_is_auto and len(knowledge.classes) > self.n_clusters:
                raise ValueError(f"known has {len(knowledge.classes)} classes, more than n_clusters={self.n_clusters}.")
            if knowledge.classes and not self.starts_from_centers:
                raise ValueError(f"{type(self).__name__} cannot use known classes: it does not start from centres.")
            if knowledge.classes and self.overcluster != 1:
                raise ValueError(f"overcluster={self.overcluster:g}: known classes set the centres, so it should be 1.")
            if knowledge.classes and self._has_given_centers:
                raise ValueError(
                    "init is an array of centres, but known classes also set centres: give only one of them."
                )
        processes.check_same({"what is known": "" if knowledge.facts is None else knowledge.facts.digest()})
        return knowledge

    def _read(self, X: Any) -> UserInput:
        """The checked settings and data; errors are raised before any training."""
        processes = current_processes()
        with processes.raising_together():
            self._check_settings()
            given = read_rows(self, X, fitting=True)
            self._check_size(given)
            self._check_overcluster()
            self._augmentation(given.rows.row_shape)
            self._check_origin(given)
            self._check_sharing(processes, choose_device(self.device))
        processes.check_same({"data": f"{len(given.rows)} rows of {given.rows.row_shape}", **self._result_settings()})
        if not processes.alone:
            with processes.raising_together():
                most = ALL_VALUES if given.rows.resident else SOME_VALUES
                values = Data(given.rows, choose_device(self.device)).fingerprint(most)
            processes.check_same({"the values of the data": values})
        return given

    @contextlib.contextmanager
    def _reserved(self) -> Iterator[None]:
        """A context in which no other fit can use the checkpoint folder."""
        processes = current_processes()
        with contextlib.ExitStack() as held:
            with processes.raising_together():
                if self.checkpoint is not None:
                    folder = CheckpointFolder(self.checkpoint)
                    if processes.leads:
                        folder.check_writable()
                        held.enter_context(folder.reserved())
            yield

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save the fitted estimator to a folder, for `diffclust.load`: safetensors and JSON, no pickle."""
        save(snapshot(self), folder)

    # ---- bookkeeping

    def _adopt(
        self, restarts: list[Restart], best: Run, choice: Choice | None = None, knowledge: UserKnowledge = NOTHING_KNOWN
    ) -> None:
        """Set the fitted attributes from the chosen run; nothing of an earlier fit remains."""
        runs = [restart.result for restart in restarts if restart.result is not None]
        context = runs, restarts[0].data, choice, knowledge
        result = self._attributes_of(best, *context)
        fitted = {
            **restarts[0].context.attributes,
            **result,
            "runs_": [run.to_dict() for run in runs],
            "_fitted_with": {**self.get_params(deep=False), "n_clusters": len(best.centers)},
            "_names": {j: str(each) for j, each in enumerate(knowledge.classes)},
        }
        if best.other is not None:
            other = self._attributes_of(best.other, *context)
            fitted["_other_assignment"] = {name: other[name] for name in OF_ASSIGNMENT}
        with write_lock(self):
            set_attributes(self, fitted, without=(*fitted_names(self), "_stream", "_waiting", "_other_assignment"))

    def _attributes_of(
        self, run: Run, runs: list[Run], data: Data, choice: Choice | None, knowledge: UserKnowledge
    ) -> dict[str, Any]:
        """The fitted attributes that depend on the run, with warnings about it and how far the given knowledge
        holds."""
        checks = check_result(run, runs, data, by_distance=self.by_distance)
        diagnostics = {**run.diagnostics(), **checks._asdict()}
        if choice is not None:
            diagnostics["number"] = choice._asdict()
        if knowledge.facts is not None:
            diagnostics["known"] = knowledge.describe(run.labels)
        return {
            "diagnostics_": diagnostics,
            "model_": run.model,
            "seed_": run.seed,
            "labels_": run.labels,
            "cluster_centers_": run.centers,
            "inertia_": run.inertia,
            "clustering_loss_": run.clustering_loss,
            "temperature_": run.temperature,
            "history_": run.history,
            "n_iter_": sum(record["phase"] == "clustering" for record in run.history),
            "_outlier_statistics": measure_outliers(run.model, data, run.seed),
        }

    def _warn(self, stacklevel: int) -> None:
        for message in self.diagnostics_["warnings"] if current_processes().leads else []:
            warnings.warn(message, ConvergenceWarning, stacklevel=stacklevel + 1)

    def _check_size(self, given: UserInput) -> None:
        n, shape = len(given.rows), given.rows.row_shape
        if 0 in shape:
            raise ValueError(f"Found samples of shape {shape}, with 0 feature(s), while a minimum of 1 is required.")
        if n < 2:
            raise ValueError(
                f"Found array with {n} sample(s) while a minimum of 2 is required by {type(self).__name__}."
            )
        if self._n_clusters_is_auto:
            if self._has_given_centers:
                raise ValueError('init is an array of centres: give their number as n_clusters, not "auto".')
        elif n < self.n_clusters:
            raise ValueError(f"n_samples={n} should be >= n_clusters={self.n_clusters}.")

    def _check_overcluster(self) -> None:
        if self.overcluster == 1:
            return
        if self.why_not_overclustered or not self.is_joint():
            why = self.why_not_overclustered or "its network and centres are not trained together"
            raise ValueError(f"overcluster={self.overcluster:g}: {type(self).__name__} cannot merge clusters: {why}.")
        if self._has_given_centers:
            raise ValueError(f"overcluster={self.overcluster:g}: init is an array of centres, which are not merged.")

    def _check_origin(self, given: UserInput) -> None:
        """Without a network, `init` is in the user's units, but the model sees rows with `origin_` subtracted."""
        no_network = isinstance(self.network, str) and self.network == "identity"
        if self._has_given_centers and no_network and given.attributes.get("origin_") is not None:
            raise ValueError("init: the rows are far from zero: subtract their mean from them and from init first.")

    def _check_sharing(self, processes: Processes, device: torch.device) -> None:
        if processes.alone:
            return
        if self.why_not_shared:
            raise ValueError(
                f"{type(self).__name__} cannot be shared by {processes.size} processes: {self.why_not_shared}."
            )
        if device.type == "cuda" and processes.local >= torch.cuda.device_count():
            raise ValueError(
                f"There are {torch.cuda.device_count()} GPUs here, fewer than processes: start as many processes "
                "as GPUs, or set device."
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags
