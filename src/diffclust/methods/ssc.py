"""SSC: sparse subspace clustering.

Elhamifar, Vidal: "Sparse Subspace Clustering: Algorithm, Theory, and Applications", TPAMI 2013.

For data near a few subspaces through the origin (planes rather than balls). Each row, scaled to unit length, is
reconstructed from a few other rows, which then belong to its own subspace::

    min |C|_1 + λ/2 |X - X C|²,   diag(C) = 0
    W = |C| + |C|ᵀ,  each row's coefficients first divided by the largest

Spectral clustering then cuts the graph W: k-means on the rows, scaled to unit length, of the k largest eigenvectors of
D^-½ W D^-½.

The method is transductive: it labels only the rows it is fitted on. `SSCNet` learns to label new rows.
"""

import warnings
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackNoConvergence, eigsh
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from ..engine.data import Data
from ..engine.runtime import choose_device, restart_seeds
from ..estimator.knobs import check_seed, knob
from ..estimator.settings import check_device, hyperparameters
from ..nn.self_expression import self_expression
from .transductive import TransductiveClusterer

MIN_SHARE = 0.1  # a component of the graph with a smaller share of the mean cluster size is no cluster
DENSE_UP_TO = 2500  # rows up to which all eigenvectors are computed: four seconds


@hyperparameters
class SSC(TransductiveClusterer):
    """Sparse subspace clustering at scale: exact sparse coefficients by an active-set solver on blocks of rows, a
    sparse graph, ARPACK. Memory grows with the number of rows, not with its square.

    The method is transductive: `fit_predict` labels the rows it is given, and there is no `predict`. Rows are scaled to
    unit length; centre them first if the subspaces do not pass through the origin. Duplicate rows count once and share
    their label. Rows without neighbours (zero, or orthogonal to all others), and components of the graph with less than
    a tenth of the mean cluster size, do not form clusters: they get the label of the row with which they correlate
    most.

    Args:
        n_clusters: number of clusters.
        alpha: how closely a row is reconstructed, above 1: `λ = alpha / max_j |x_i · x_j|`. A larger value gives more
            neighbours and takes longer.
        device: device of the sparse coding: "auto", "cpu", "cuda", ...
        random_state: an int for reproducible results.

    Attributes:
        labels_: the cluster of each row of X (n,).
        affinity_matrix_: W, sparse (n, n).
        diagnostics_: cluster sizes and warnings.
    """

    n_clusters: int = knob(8, low=1, kw_only=False)
    alpha: float = knob(5.0, above=1)
    device: str = knob("auto", check=check_device)
    random_state: int | np.random.RandomState | None = knob(None, check=check_seed)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Label the rows X; y is ignored."""
        given = self._read(X)
        data = Data(given.rows, choose_device(self.device))
        (seed,) = restart_seeds(self.random_state, 1)
        x = data.map(unit_length)
        distinct, twin = torch.unique(x, dim=0, return_inverse=True)
        affinity, unfinished = self_affinity(distinct, self.alpha)
        labels, found = spectral_labels(affinity, self.n_clusters, seed)
        labels = join_strays(distinct, labels)
        twins = twin.cpu().numpy()
        self._adopt(
            given,
            labels[twins],
            self._doubts(found, unfinished),
            {"components": found["components"], "isolated": found["isolated"], "repeated": len(twins) - len(distinct)},
            affinity_matrix_=affinity[twins][:, twins] if len(distinct) < len(twins) else affinity,
        )
        return self

    def _doubts(self, found: dict[str, Any], unfinished: int) -> list[str]:
        messages = []
        if found["isolated"]:
            messages.append(f"{found['isolated']} rows have no neighbour (zero, or orthogonal to all others).")
        if found["components"] > self.n_clusters:
            messages.append(
                f"The graph falls into {found['components']} components, more than n_clusters={self.n_clusters}: the "
                "largest make the clusters. A larger alpha connects more."
            )
        if not found["converged"]:
            messages.append("ARPACK did not converge: the last eigenvectors are used.")
        if unfinished:
            messages.append(f"The coefficients of {unfinished} rows are not exact: a smaller alpha is easier to solve.")
        return messages


def unit_length(rows: torch.Tensor) -> torch.Tensor:
    """Flattened rows scaled to length one; zero rows stay zero. Divides by the largest value first, because squares of
    tiny numbers would underflow."""
    tiny = torch.finfo(rows.dtype).tiny
    return F.normalize(F.normalize(rows.flatten(1), p=torch.inf, dim=1, eps=tiny), dim=1)


def join_strays(x: torch.Tensor, labels: np.ndarray) -> np.ndarray:
    """Give rows labelled -1 the label of the row with which they correlate most; all zeros if no row has a label."""
    stray = labels < 0
    if stray.all():
        return np.zeros_like(labels)
    if stray.any():
        others = x[torch.from_numpy(~stray).to(x.device)]
        nearest = [(part @ others.T).abs().argmax(1) for part in x[torch.from_numpy(stray).to(x.device)].split(1024)]
        labels[stray] = labels[~stray][torch.cat(nearest).cpu().numpy()]
    return labels


def self_affinity(x: torch.Tensor, alpha: float) -> tuple[sp.csr_array, int]:
    """`W = |C| + |C|ᵀ`, each row of C divided by its largest entry; and the number of rows that were not solved
    exactly."""
    n = len(x)
    if n == 1:
        return sp.csr_array((1, 1), dtype=np.float32), 0
    found = self_expression(x, alpha)
    values, rows, columns = (t.cpu().numpy() for t in (found.values.abs(), found.rows, found.columns))
    largest = np.zeros(n, values.dtype)
    np.maximum.at(largest, rows, values)
    c = sp.csr_array((values / largest[rows], (rows, columns)), shape=(n, n))
    return sp.csr_array(c + c.T), found.unfinished


def spectral_labels(affinity: sp.csr_array, k: int, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Normalised spectral clustering of a sparse symmetric graph (Ng, Jordan, Weiss 2001), and a dict of diagnostics.
    Rows of small components get -1. If more than k components are left, the k - 1 largest are clusters and the
    others form the last."""
    n = affinity.shape[0]
    labels = np.full(n, -1, dtype=np.int64)
    degree = np.asarray(affinity.sum(axis=1)).ravel().astype(np.float64)
    piece = connected_components(affinity, directed=False)[1]
    sizes = np.bincount(piece)
    found = {"isolated": int((degree == 0).sum()), "components": int((sizes > 1).sum()), "converged": True}
    large = np.flatnonzero((sizes > 1) & (sizes >= MIN_SHARE * n / k))
    kept = np.flatnonzero(np.isin(piece, large))
    if len(large) > k:
        rank = np.argsort(np.argsort(-sizes[large], kind="stable"))
        labels[kept] = np.minimum(rank, k - 1)[np.searchsorted(large, piece[kept])]
    elif len(kept):
        scale = sp.diags_array(1 / np.sqrt(degree[kept]))
        normal = scale @ affinity[kept][:, kept].astype(np.float64) @ scale
        clusters = min(k, len(kept))
        vectors, found["converged"] = _largest_eigenvectors(normal, clusters, seed)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # of too few distinct points: clusters are empty
            labels[kept] = KMeans(clusters, n_init=20, random_state=seed).fit_predict(vectors)
    return labels, found


def _largest_eigenvectors(normal: sp.csr_array, k: int, seed: int) -> tuple[np.ndarray, bool]:
    n = normal.shape[0]
    if n <= max(DENSE_UP_TO, 2 * k):
        return np.linalg.eigh(normal.toarray())[1][:, -k:], True
    start = check_random_state(seed).uniform(-1, 1, n)
    try:
        return eigsh(normal, k, which="LA", v0=start, ncv=min(n - 1, max(4 * k, 40)), tol=1e-5)[1], True
    except ArpackNoConvergence as error:
        missing = k - error.eigenvectors.shape[1]
        return np.pad(error.eigenvectors, ((0, 0), (0, missing))), False
