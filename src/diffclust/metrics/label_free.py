"""Scores without known labels: how compact, how well separated and how even in size clusters are."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from .labels import encoded, entropy_of_sizes

SILHOUETTE_ROWS = 5000  # rows the silhouette is measured on: its cost grows with their square


def silhouette(Z: Any, labels: ArrayLike, sample: int = SILHOUETTE_ROWS, random_state: int = 0) -> float:
    """Mean of (b - a) / max(a, b), a the mean distance to the own cluster, b to the nearest other; -1 to 1.

    Measured on at most `sample` rows, drawn by `random_state`. nan with fewer than two clusters among them,
    or if every row is a cluster.
    """
    Z, codes = _check(Z, labels)
    if sample < 2:
        raise ValueError(f"sample={sample} should be at least 2.")
    if len(codes) > sample:
        rows = np.sort(np.random.default_rng(random_state).choice(len(codes), sample, replace=False))
        Z, codes = Z[rows], codes[rows]
    if not 2 <= len(np.unique(codes)) < len(codes):
        return float("nan")
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(Z, codes))


def davies_bouldin(Z: Any, labels: ArrayLike) -> float:
    """Mean over clusters i of `max_j (s_i + s_j) / |c_i - c_j|`, s the mean distance to the centre c.

    Smaller is better. nan with one cluster, infinite if two clusters have the same centre and are not points.
    """
    return _davies_bouldin(*_check(Z, labels))


def calinski_harabasz(Z: Any, labels: ArrayLike) -> float:
    """Between over within scatter, each per degree of freedom: (B / (k - 1)) / (W / (n - k)).

    Larger is better. nan with one cluster or if every row is a cluster, infinite if all rows are equal to their centre.
    """
    return _calinski_harabasz(*_check(Z, labels))


def scatter(Z: Any, labels: ArrayLike) -> float:
    """Within over total variance, W / (W + B): 0 to 1, smaller is better, free of scale.

    1 with one cluster, nan if all rows are equal.
    """
    within, between = _within_between(*_check(Z, labels))
    return within / (within + between) if within + between > 0 else float("nan")


def effective_clusters(labels: ArrayLike) -> float:
    """exp(-Σ p_j log p_j), p_j the share of rows in cluster j: k for k even clusters, 1 when collapsed."""
    codes, _ = encoded(labels, "labels")
    return effective_number(np.bincount(codes))


def effective_number(sizes: NDArray[np.int64]) -> float:
    """`effective_clusters` from the number of rows in each."""
    return float(np.exp(entropy_of_sizes(sizes[sizes > 0])))


def label_free_scores(Z: Any, labels: ArrayLike) -> dict[str, float]:
    """Every score that needs no known labels, by name.

    Args:
        Z: rows (n, d), as given or embedded, dense or sparse.
        labels: the cluster of each row.
    """
    return {
        "silhouette": silhouette(Z, labels),
        "davies_bouldin": davies_bouldin(Z, labels),
        "calinski_harabasz": calinski_harabasz(Z, labels),
        "scatter": scatter(Z, labels),
        "effective_clusters": effective_clusters(labels),
    }


def _check(Z: Any, labels: ArrayLike) -> tuple[Any, NDArray[np.int64]]:
    """Z as a float array or CSR of rows, labels as 0 .. k-1."""
    codes, _ = encoded(labels, "labels")
    if sp.issparse(Z):
        Z = sp.csr_array(Z)
        values = Z.data
    else:
        Z = values = np.asarray(Z)
    if Z.ndim != 2:
        raise ValueError(f"Z should be rows, (n, d); it has shape {Z.shape}. Flatten images first.")
    if Z.shape[0] != len(codes):
        raise ValueError(f"Z has {Z.shape[0]} rows but there are {len(codes)} labels.")
    if values.dtype.kind not in "biuf":
        raise ValueError(f"Z should hold real numbers; its dtype is {values.dtype}.")
    bad = 0 if np.isfinite(values).all() else int((~np.isfinite(values)).sum())
    if bad:
        raise ValueError(f"Z has {bad} values that are NaN or infinite among {values.size}.")
    return (Z if values.dtype.kind == "f" else Z.astype(np.float32)), codes


def _clusters(Z: Any, codes: NDArray[np.int64]) -> Iterator[NDArray[np.float64]]:
    """The rows of each cluster, one cluster at a time, so that Z is never in memory as a dense float64 array."""
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.cumsum(np.bincount(codes))[:-1]):
        part = Z[rows]
        yield (part.toarray() if sp.issparse(part) else part).astype(np.float64)


def _within_between(Z: Any, codes: NDArray[np.int64]) -> tuple[float, float]:
    """`W = Σ_j Σ_{z in j} |z - c_j|^2` and `B = Σ_j n_j |c_j - c|^2`, so that the total scatter is W + B."""
    sizes = np.bincount(codes)
    centers, within = [], 0.0
    for z in _clusters(Z, codes):
        centers.append(z.mean(0))
        within += float(((z - centers[-1]) ** 2).sum())
    c = np.stack(centers)
    between = float(sizes @ ((c - np.average(c, axis=0, weights=sizes)) ** 2).sum(1))
    return within, between


def _davies_bouldin(Z: Any, codes: NDArray[np.int64]) -> float:
    centers, widths = [], []
    for z in _clusters(Z, codes):
        centers.append(z.mean(0))
        widths.append(float(np.sqrt(((z - centers[-1]) ** 2).sum(1)).mean()))
    if len(centers) < 2:
        return float("nan")
    from scipy.spatial.distance import cdist

    s = np.array(widths)
    apart, wide = cdist(centers, centers), s[:, None] + s
    ratios = np.where(wide > 0, np.inf, 0.0)  # if the centres are equal
    np.divide(wide, apart, out=ratios, where=apart > 0)
    np.fill_diagonal(ratios, 0.0)
    return float(ratios.max(axis=1).mean())


def _calinski_harabasz(Z: Any, codes: NDArray[np.int64]) -> float:
    n, k = len(codes), int(codes.max()) + 1
    if not 2 <= k < n:
        return float("nan")
    within, between = _within_between(Z, codes)
    if within == 0:
        return float("inf") if between > 0 else float("nan")
    return (between / (k - 1)) / (within / (n - k))
