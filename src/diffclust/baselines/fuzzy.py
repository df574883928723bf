"""FCM: fuzzy c-means, k-means with soft memberships u_ij instead of assignments.

Bezdek: "Pattern Recognition with Fuzzy Objective Function Algorithms", 1981. Memberships and centres are updated in
alternation::

    minimise Σ_ij u_ij^m |x_i - c_j|^2,   Σ_j u_ij = 1
    u_ij = 1 / Σ_l (|x_i - c_j| / |x_i - c_l|)^(2 / (m - 1))
    c_j  = Σ_i u_ij^m x_i / Σ_i u_ij^m
"""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.special import log_softmax, softmax
from sklearn.cluster import kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from .clusterer import ClassicalClusterer, Labels, Rows, hyperparameters, knob

TINY = float(np.finfo(np.float64).tiny)


def _reach(X: Rows) -> float:
    """The largest absolute value. Rows are divided by it, because their squares could overflow; memberships do not
    depend on the scale."""
    return max(float(np.abs(X).max()), TINY)


@hyperparameters
class FuzzyCMeans(ClassicalClusterer):
    """Fuzzy c-means from a k-means++ start; each row is labelled by its largest membership.

    Args:
        m: fuzziness above 1; near 1 the method is k-means, and with a large m all centres move to the mean.
        max_iter: maximal number of iterations.
        tol: stop when no membership changes by more than this.
    """

    m: float = knob(2.0, above=1)
    max_iter: int = knob(300, low=1)
    tol: float = knob(1e-5, low=0)

    def label(self, X: Rows, seed: int) -> Labels:
        unit = _reach(X)
        X = X / unit
        centers, _ = kmeans_plusplus(X, self.n_clusters, random_state=seed)
        log_u = self._log_memberships(X, centers)
        change, n_iter = np.inf, 0
        while change >= self.tol and n_iter < self.max_iter:
            centers = self._centers(X, log_u)
            before, log_u = log_u, self._log_memberships(X, centers)
            change, n_iter = float(np.abs(np.exp(log_u) - np.exp(before)).max()), n_iter + 1
        if change >= self.tol:
            warnings.warn(
                f"Fuzzy c-means did not converge in max_iter={self.max_iter} iterations: the memberships "
                f"changed by {change:.2g}, tol={self.tol:g}.",
                ConvergenceWarning,
                stacklevel=3,
            )
        u = np.exp(log_u)
        self.cluster_centers_ = unit * centers
        self.u_ = u  # (n, k), of these centres
        self.objective_ = float((u**self.m * cdist(X, centers, "sqeuclidean")).sum()) * unit * unit
        self.n_iter_ = n_iter
        return u.argmax(1)

    def predict(self, X: object) -> Labels:
        """The cluster with the largest membership, for each row."""
        return np.asarray(self.predict_proba(X).argmax(1), dtype=np.int64)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The memberships u of each row."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.exp(self._log_memberships(X, self.cluster_centers_))

    def _log_memberships(self, X: Rows, centers: Rows) -> NDArray[np.float64]:
        # a softmax of -log |x - c|² / (m - 1): a row that is equal to a centre needs no special case
        unit = max(_reach(X), _reach(centers))
        distances = np.maximum(cdist(X / unit, centers / unit, "sqeuclidean"), TINY)  # (n, k)
        return log_softmax(-np.log(distances) / (self.m - 1), axis=1)

    def _centers(self, X: Rows, log_u: NDArray[np.float64]) -> NDArray[np.float64]:
        # u^m / Σ u^m as a softmax over rows: a centre far from all rows does not become 0 / 0
        return softmax(self.m * log_u, axis=0).T @ X
