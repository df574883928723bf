"""The classical methods to compare with: one call each, rows in, labels out::

    BASELINES["kmeans"](X, k, seed) -> labels (n,)

X is (n, d) in floating point; flatten images first. Only k-means takes sparse rows.
"""

import numbers
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import cdist
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans, SpectralClustering, kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from .estimator.knobs import check_knobs, check_seed, knob

__all__ = [
    "BASELINES",
    "FuzzyCMeans",
    "agglomerative_average",
    "agglomerative_weighted",
    "fuzzy",
    "gmm",
    "kmeans",
    "spectral",
    "ssc",
]

Labels = NDArray[np.int64]
Baseline = Callable[[Any, int, int], Labels]

MOST_ROWS = 20_000  # of the methods that compare all pairs: 1.6 GB of distances
NEIGHBORS = 10

parameters = dataclass(eq=False, repr=False)


def kmeans(X: Any, k: int, seed: int) -> Labels:
    """k-means, the best of ten starts by inertia."""
    X = _rows(X, k, accept_sparse="csr")
    return _labels(KMeans(k, n_init=10, random_state=seed).fit_predict(X))


def gmm(X: Any, k: int, seed: int) -> Labels:
    """Mixture of Gaussians with diagonal covariances, started from k-means."""
    X = _rows(X, k).astype(np.float64)
    # A share of the data's own variance: pixels that are always black have none, at any scale of X.
    floor = max(1e-3 * float(X.var(axis=0).mean()), 1e-12)
    mixture = GaussianMixture(k, covariance_type="diag", reg_covar=floor, max_iter=300, random_state=seed)
    return _labels(mixture.fit_predict(X))


def spectral(X: Any, k: int, seed: int) -> Labels:
    """Normalised cuts of the graph of ten nearest neighbours. At most 20,000 rows."""
    X = _rows(X, k, most=MOST_ROWS)
    method = SpectralClustering(k, affinity="nearest_neighbors", n_neighbors=min(NEIGHBORS, len(X)), random_state=seed)
    with warnings.catch_warnings():
        # Well separated clusters are not connected: that is what one hopes for.
        warnings.filterwarnings("ignore", message="Graph is not fully connected", category=UserWarning)
        return _labels(method.fit_predict(X))


def agglomerative_average(X: Any, k: int, seed: int) -> Labels:
    """Merging by the mean distance between clusters (UPGMA). No randomness. At most 20,000 rows."""
    return _agglomerative(X, k, "average")


def agglomerative_weighted(X: Any, k: int, seed: int) -> Labels:
    """Merging by the mean of the two parts' distances (WPGMA). No randomness. At most 20,000 rows."""
    return _agglomerative(X, k, "weighted")


def fuzzy(X: Any, k: int, seed: int) -> Labels:
    """Fuzzy c-means with m = 2, each row to its largest membership."""
    return _labels(FuzzyCMeans(k, random_state=seed).fit_predict(_rows(X, k)))


def ssc(X: Any, k: int, seed: int) -> Labels:
    """Sparse subspace clustering, on one processor: see `diffclust.SSC`."""
    from .methods.ssc import SSC

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of graphs in pieces
        return _labels(SSC(k, device="cpu", random_state=seed).fit_predict(_rows(X, k)))


#: Every method here by its name.
#:
#: :meta hide-value:
BASELINES: dict[str, Baseline] = {
    "kmeans": kmeans,
    "gmm": gmm,
    "spectral": spectral,
    "agglomerative-average": agglomerative_average,
    "agglomerative-weighted": agglomerative_weighted,
    "fuzzy": fuzzy,
    "ssc": ssc,
}


@parameters
class FuzzyCMeans(ClusterMixin, BaseEstimator):
    """Fuzzy c-means (Bezdek 1981): k-means with memberships u_ij in place of assignments.

    Memberships and centres take turns::

        minimise Σ_ij u_ij^m |x_i - c_j|^2,   Σ_j u_ij = 1
        u_ij = 1 / Σ_l (|x_i - c_j| / |x_i - c_l|)^(2 / (m - 1))
        c_j  = Σ_i u_ij^m x_i / Σ_i u_ij^m

    Args:
        n_clusters: how many.
        m: fuzziness above 1; near 1 it is k-means, and large m draws all centres to the mean.
        max_iter: iterations at most.
        tol: stop when no membership changes by more.
        random_state: an int for the same answer every time.
    """

    n_clusters: int = knob(8, low=1, kw_only=False)
    m: float = knob(2.0, above=1, kw_only=False)
    max_iter: int = knob(300, low=1, kw_only=False)
    tol: float = knob(1e-5, low=0, kw_only=False)
    random_state: int | np.random.RandomState | None = knob(None, check=check_seed, kw_only=False)

    def fit(self, X: Any, y: object = None) -> Self:
        """Memberships and centres by turns, from a k-means++ start; y is ignored."""
        check_knobs(self)
        X = validate_data(self, X, dtype=np.float64)
        if self.n_clusters > len(X):
            raise ValueError(f"n_clusters={self.n_clusters} should be from 1 to n_samples={len(X)}.")
        centers, _ = kmeans_plusplus(X, self.n_clusters, random_state=check_random_state(self.random_state))
        log_u = self._log_memberships(X, centers)
        change, n_iter = np.inf, 0
        while change >= self.tol and n_iter < self.max_iter:
            centers = self._centers(X, log_u)
            before, log_u = log_u, self._log_memberships(X, centers)
            change, n_iter = float(np.abs(np.exp(log_u) - np.exp(before)).max()), n_iter + 1
        if change >= self.tol:
            warnings.warn(
                f"Fuzzy c-means still moves after max_iter={self.max_iter} iterations: the memberships "
                f"changed by {change:.2g}, tol={self.tol:g}.",
                ConvergenceWarning,
                stacklevel=2,
            )
        u = np.exp(log_u)
        self.cluster_centers_ = centers
        self.u_ = u  # (n, k), of these centres
        self.labels_ = u.argmax(1)
        self.objective_ = float((u**self.m * cdist(X, centers, "sqeuclidean")).sum())
        self.n_iter_ = n_iter
        return self

    def predict(self, X: Any) -> Labels:
        """The cluster in which each row is a member most."""
        return _labels(self.predict_proba(X).argmax(1))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The memberships u of each row."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.exp(self._log_memberships(X, self.cluster_centers_))

    def _log_memberships(self, X: NDArray[np.float64], centers: NDArray[np.float64]) -> NDArray[np.float64]:
        # As a softmax of -log |x - c|^2 / (m - 1), a row that sits on a centre needs no case of its own.
        distances = np.maximum(cdist(X, centers, "sqeuclidean"), np.finfo(np.float64).tiny)  # (n, k)
        return log_softmax(-np.log(distances) / (self.m - 1), axis=1)

    def _centers(self, X: NDArray[np.float64], log_u: NDArray[np.float64]) -> NDArray[np.float64]:
        # u^m over its sum as a softmax over rows: a centre far from every row does not become 0 / 0.
        return softmax(self.m * log_u, axis=0).T @ X


def _agglomerative(X: Any, k: int, how: Literal["average", "weighted"]) -> Labels:
    X = _rows(X, k, most=MOST_ROWS)
    tree = linkage(X, method=how)
    # Where merges tie, no cut gives k clusters exactly and there are fewer.
    return _labels(fcluster(tree, k, criterion="maxclust")) - 1


def _rows(X: Any, k: int, *, most: int | None = None, accept_sparse: str | bool = False) -> Any:
    X = check_array(X, dtype=[np.float64, np.float32], accept_sparse=accept_sparse, ensure_min_samples=2)
    n = X.shape[0]
    if isinstance(k, bool) or not isinstance(k, numbers.Integral):
        raise TypeError(f"k={k!r:.50} should be an integer.")
    if not 1 <= k <= n:
        raise ValueError(f"k={k} should be from 1 to the number of rows, {n}.")
    if most is not None and n > most:
        raise ValueError(
            f"{n} rows are too many: this method compares all pairs and is limited to {most}. Give fewer rows."
        )
    return X


def _labels(labels: Any) -> Labels:
    return np.asarray(labels, dtype=np.int64)
