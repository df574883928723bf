"""Editing the clusters of a fitted model: merge two, split one, name them."""

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from ..engine.data import Data
from ..engine.model import ClusterModel
from ..engine.runtime import choose_device, seeded, without_caller_modes
from ..explain.clusters import check_cluster
from ..explain.names import cluster_names
from ..metrics import effective_number
from ..nn.kmeans import kmeans
from ..nn.regrouping import MAX_LAYERS, MergedClusters, RegroupedLayer, SplitCluster, renumbered
from ..reading.inputs import read_rows
from .state import set_attributes, write_lock


class RegroupingMixin:
    """`merge`, `split` and `names_`."""

    if TYPE_CHECKING:
        device: str
        model_: ClusterModel
        seed_: int
        labels_: np.ndarray
        cluster_centers_: np.ndarray
        diagnostics_: dict[str, Any]
        runs_: list[dict[str, Any]]

        def predict(self, X: Any) -> Any: ...

    @without_caller_modes()
    def merge(self, i: int, j: int) -> Self:
        """Merge clusters i and j without training. All other rows keep their cluster.

        The merged cluster gets the smaller of the two numbers, and the last cluster gets the larger one; all others
        keep theirs. Its centre, for display only, is the mean of both, and `inertia_` and other losses stay those of
        the fit. `partial_fit` and `outlier_score` do not work after a merge.
        """
        with write_lock(self):
            check_is_fitted(self)
            for each in (i, j):
                check_cluster(self, each)
            if i == j:
                raise ValueError(f"Cluster {i} cannot be merged with itself.")
            i, j = sorted((int(i), int(j)))
            model = self._model_to_regroup()
            joined = MergedClusters(model.clusters, i, j)
            sizes, k = np.asarray(self.diagnostics_["sizes"]), len(self.cluster_centers_)
            kept = renumbered(k, j)
            weight = sizes[[i, j]] / max(sizes[[i, j]].sum(), 1) if sizes[[i, j]].sum() else np.array([0.5, 0.5])
            centers = self.cluster_centers_[kept].copy()
            centers[i] = weight @ self.cluster_centers_[[i, j]]
            number = np.empty(k, np.int64)
            number[kept] = np.arange(k - 1)
            number[j] = i
            names = {int(number[old]): name for old, name in vars(self)["_names"].items() if old != j}
            self._regroup(model, joined, ["merge", i, j], number[self.labels_], centers, names)
        return self

    @without_caller_modes()
    def split(self, i: int, X: Any) -> Self:
        """Split cluster i in two without training, by k-means on its rows in the embedding. The larger part keeps the
        number, the other becomes a new last cluster. All other rows keep their cluster.

        Args:
            i: the cluster.
            X: the training rows.
        """
        with write_lock(self):
            check_is_fitted(self)
            check_cluster(self, i)
            given = read_rows(self, X, fitting=False)
            if not np.array_equal(np.asarray(self.predict(given)), self.labels_):
                raise ValueError("split needs the rows of the fit: those of X are not in the clusters of labels_.")
            model = self._model_to_regroup()
            data = Data(given.rows, choose_device(self.device))
            model.to(data.device).eval()
            z = data.map(model.embed, torch.from_numpy(np.flatnonzero(self.labels_ == i)).to(data.device))
            if len(torch.unique(z, dim=0)) < 2:
                raise ValueError(f"Cluster {i} has {len(z)} rows, all in one place: there is nothing to split.")
            with seeded(self.seed_, data.device):
                found = kmeans(z, 2)
            order = torch.bincount(found.labels, minlength=2).argsort(descending=True, stable=True)
            parted = SplitCluster(model.clusters, int(i)).to(data.device)
            parted.parts.copy_(found.centers[order])
            centers = np.concatenate([self.cluster_centers_, self.cluster_centers_[:1]])
            centers[[i, -1]] = found.centers[order].cpu().numpy()
            model.clusters = parted
            labels = data.map(lambda x: model.answer(x).label).cpu().numpy()
            names = {j: name for j, name in vars(self)["_names"].items() if j != i}
            self._regroup(model, parted, ["split", int(i)], labels, centers, names)
        return self

    def _model_to_regroup(self) -> ClusterModel:
        """A copy, since other threads may be reading it; the network is shared."""
        if len(self.diagnostics_.get("regrouped", [])) >= MAX_LAYERS:
            raise ValueError(
                f"The clusters were merged and split {MAX_LAYERS} times: fit again, with known= for their classes."
            )
        return copy.deepcopy(self.model_, {id(self.model_.autoencoder): self.model_.autoencoder})

    def _regroup(
        self,
        model: ClusterModel,
        clusters: RegroupedLayer,
        step: list[Any],
        labels: np.ndarray,
        centers: np.ndarray,
        names: dict[int, str],
    ) -> None:
        clusters.show(torch.from_numpy(centers).to(clusters.weight))
        model.clusters = clusters.eval()
        sizes = np.bincount(labels, minlength=len(centers))
        diagnostics = {name: value for name, value in self.diagnostics_.items() if name != "stream"}
        diagnostics |= {
            "sizes": sizes.tolist(),
            "effective_clusters": effective_number(sizes),
            "empty_clusters": np.flatnonzero(sizes == 0).tolist(),
            "regrouped": [*self.diagnostics_.get("regrouped", []), step],
        }
        kept = next(run for run in self.runs_ if run["seed"] == self.seed_)
        fitted = {name: getattr(self, name) for name in ("inertia_", "clustering_loss_", "temperature_")}
        fitted |= {
            "model_": model,
            "labels_": labels,
            "cluster_centers_": centers,
            "diagnostics_": diagnostics,
            "runs_": [{**kept, "labels": labels}],  # of the others, clusters have other numbers
            "_names": names,
        }
        set_attributes(self, fitted, without=("_stream", "_outlier_statistics"))

    @property
    def names_(self) -> list[str]:
        """A name for each cluster: its known class, the name you gave it, or its distinctive features. Set some of them
        with `model.names_ = {2: "late payers"}`, or all with a list; they are saved with the model."""
        given = vars(self).get("_names", {})
        found = cluster_names(self) if len(given) < len(self.cluster_centers_) else []
        return [given.get(j) or found[j] for j in range(len(self.cluster_centers_))]

    @names_.setter
    def names_(self, names: Mapping[int, str] | Sequence[str]) -> None:
        with write_lock(self):
            check_is_fitted(self)
            k = len(self.cluster_centers_)
            if not isinstance(names, Mapping):
                if isinstance(names, str) or len(names) != k:
                    raise ValueError(f"names_ should be {k} names, one for each cluster, or a dict of some.")
                names = dict(enumerate(names))
            for j, name in names.items():
                check_cluster(self, j)
                if not isinstance(name, str) or not name.strip():
                    raise ValueError(f"names_: cluster {j} is to be called {name!r:.50}, which is no name.")
            set_attributes(
                self, {"_names": {**vars(self).get("_names", {}), **{int(j): name for j, name in names.items()}}}
            )

    @property
    def given_names_(self) -> dict[int, str]:
        """The names that were set by the user, by cluster."""
        return dict(vars(self).get("_names", {}))
