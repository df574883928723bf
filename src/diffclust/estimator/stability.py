"""Stability: whether other runs, or runs on other rows, find the same clusters.

The best match of a cluster C_j among the clusters D_l of another run has the Jaccard index `max_l |C_j ∩ D_l| / |C_j ∪
D_l|` (Hennig: "Cluster-wise assessment of cluster stability", 2007). The stability of a cluster is its mean over the
other runs; the stability of a row is the share of the other runs in which it lies in the match of its cluster.

The probability of a row's cluster does not say whether other fits find this cluster. So the confidence in row i of
cluster j is its probability times the stability of its cluster, `p_ij s_j`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ..engine.data import Data
from ..engine.distributed import alone
from ..engine.loop import train
from ..engine.model import ClusterModel
from ..engine.rows import TensorRows
from ..engine.runtime import choose_device, learning, restart_seeds
from ..reading.inputs import read_rows
from .restarts import build_restarts
from .selection import best_run
from .state import snapshot


class Stability(NamedTuple):
    """Stability of clusters and rows, from 0 to 1."""

    clusters: NDArray[np.float64]  # (k,)
    rows: NDArray[np.float64]  # (n,)


class Resampled(NamedTuple):
    """Stability under resampling, and how sure the cluster of each row is, from 0 to 1."""

    clusters: NDArray[np.float64]  # (k,)
    rows: NDArray[np.float64]  # (n,)
    confidence: NDArray[np.float64]  # (n,)


def compared(labels: NDArray[Any], others: Sequence[NDArray[Any]], k: int) -> Stability:
    """The stability of k clusters, given the labels that other runs assign to the same rows. An empty cluster has no
    match."""
    clusters, rows = np.zeros(k), np.zeros(len(labels))
    sizes = np.bincount(labels, minlength=k)
    for other in others:
        both = np.zeros((k, int(other.max()) + 1))
        np.add.at(both, (labels, other), 1)
        either = sizes[:, None] + both.sum(0) - both
        jaccard = both / np.maximum(either, 1)
        clusters += jaccard.max(1)
        rows += other == jaccard.argmax(1)[labels]
    return Stability(clusters / len(others), rows / len(others))


def _labels(model: ClusterModel, data: Data) -> NDArray[np.int64]:
    return data.map(lambda x: model.answer(x).label).cpu().numpy()


class StabilityMixin:
    """`stability_` and `row_stability_` from the restarts of a fit, and `stability` from fits on other rows."""

    if TYPE_CHECKING:
        device: str
        deterministic: bool
        labels_: np.ndarray
        diagnostics_: dict[str, Any]
        seed_: int
        runs_: list[dict[str, Any]]
        _fitted_with: dict[str, Any]

        @property
        def n_clusters_(self) -> int: ...

        def predict(self, X: Any) -> Any: ...

        def predict_proba(self, X: Any) -> Any: ...

    @property
    def stability_(self) -> NDArray[np.float64]:
        """The stability of each cluster (k,) among the restarts; needs n_init > 1."""
        return self._among_restarts().clusters

    @property
    def row_stability_(self) -> NDArray[np.float64]:
        """The stability of each row (n,) among the restarts; needs n_init > 1."""
        return self._among_restarts().rows

    def _among_restarts(self) -> Stability:
        others = [run["labels"] for run in self.runs_ if run["seed"] != self.seed_]
        if "stream" in self.diagnostics_:
            raise AttributeError("stability_ compares the restarts of a fit, before partial_fit: call stability(X).")
        if not others:
            raise AttributeError("stability_ compares the restarts of a fit: set n_init > 1, or call stability(X).")
        return compared(self.labels_, others, self.n_clusters_)

    def stability(self, X: Any, n: int = 5, random_state: int = 0) -> Resampled:
        """Stability under resampling: fit the same settings n times to a random half of X, and compare the labels of
        all of X.

        Returns the stability of `clusters` (k,) and `rows` (n,), and the `confidence` (n,) in the cluster of each row:
        its probability times the stability of its cluster.

        Args:
            X: the training rows, or similar ones.
            n: number of fits.
            random_state: seed of the halves and of the fits.
        """
        fitted = snapshot(self)
        check_is_fitted(fitted)
        if n < 1:
            raise ValueError(f"n={n} should be >= 1.")
        given = read_rows(fitted, X, fitting=False)
        data, device = Data(given.rows, choose_device(self.device)), choose_device(self.device)
        if len(data) < 2 * fitted.n_clusters_ or len(data) < 4:
            raise ValueError(f"X has {len(data)} rows: too few to fit {fitted.n_clusters_} clusters to half of them.")
        changes = {"n_init": 1, "callbacks": (), "checkpoint": None, "verbose": False}
        with learning(self.deterministic), alone():
            fits = []
            for seed in restart_seeds(random_state, n):
                order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
                half = order[: len(data) // 2].sort().values.to(device)
                part = replace(given, rows=TensorRows(data.map(lambda rows: rows, half)))
                estimator: Any = type(fitted)(**{**fitted._fitted_with, **changes, "random_state": seed})
                fits.append((estimator, build_restarts(estimator, part, quiet=True)))
            train([restart for _, restarts in fits for restart in restarts])
            others = [_labels(best_run(estimator, restarts).model, data) for estimator, restarts in fits]
        labels = np.asarray(fitted.predict(given))
        found = compared(labels, others, fitted.n_clusters_)
        probability = np.asarray(fitted.predict_proba(given)).max(1)
        return Resampled(*found, confidence=probability * found.clusters[labels])
