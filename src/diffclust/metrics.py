"""How good is a clustering? Scores against known labels, and scores that need none.

With labels, everything is read from the contingency table n_ij: how many rows of class i fell into
cluster j. Labels may be integers, strings, or anything else hashable; clusters may be more or fewer than
classes; the names of the clusters never matter.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

# scipy.optimize and scikit-learn are imported where they are used: they take most of a second, and much of
# this module does without.

__all__ = [
    "accuracy",
    "ami",
    "ari",
    "calinski_harabasz",
    "completeness",
    "confusion",
    "davies_bouldin",
    "effective_clusters",
    "homogeneity",
    "label_free_scores",
    "match",
    "nmi",
    "pair_precision",
    "purity",
    "scatter",
    "scores",
    "silhouette",
    "v_measure",
]

SAMPLE = 5000  # rows the silhouette is measured on: its cost grows with their square


@dataclass(frozen=True)
class _Table:
    """n_ij, with the names of its rows (classes) and columns (clusters)."""

    counts: sp.csr_array  # (classes, clusters), int64
    classes: list[Any]
    clusters: list[Any]

    @classmethod
    def of(cls, y_true: ArrayLike, y_pred: ArrayLike) -> "_Table":
        i, classes = _encode(y_true, "y_true")
        j, clusters = _encode(y_pred, "y_pred")
        if len(i) != len(j):
            raise ValueError(f"y_true has {len(i)} labels but y_pred has {len(j)}.")
        counts = sp.coo_array((np.ones(len(i), np.int64), (i, j)), shape=(len(classes), len(clusters)))
        return cls(counts.tocsr(), classes, clusters)

    @property
    def n(self) -> int:
        return int(self.counts.sum())

    @property
    def class_sizes(self) -> NDArray[np.int64]:
        return self.counts.sum(axis=1)

    @property
    def cluster_sizes(self) -> NDArray[np.int64]:
        return self.counts.sum(axis=0)

    @property
    def identical(self) -> bool:
        """Both sides cut the rows in the same way."""
        return bool(self.counts.nnz == len(self.classes) == len(self.clusters))

    def matched(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        from scipy.optimize import linear_sum_assignment

        return linear_sum_assignment(self.counts.toarray(), maximize=True)

    def accuracy(self) -> float:
        i, j = self.matched()
        return float(self.counts.toarray()[i, j].sum() / self.n)

    def purity(self) -> float:
        return float(self.counts.max(axis=0).sum() / self.n)

    def mutual_information(self) -> float:
        n, cells = self.n, self.counts.tocoo()
        i, j = cells.coords
        # The logarithm of a product of sizes as a sum: the product may not fit into an integer.
        log_expected = np.log(self.class_sizes)[i] + np.log(self.cluster_sizes)[j] - np.log(n)
        information = float((cells.data / n * (np.log(cells.data) - log_expected)).sum())
        return max(information, 0.0)

    def nmi(self, average: Literal["arithmetic", "geometric"]) -> float:
        if self.identical:
            return 1.0
        h_class, h_cluster = _entropy(self.class_sizes), _entropy(self.cluster_sizes)
        mean = np.sqrt(h_class * h_cluster) if average == "geometric" else (h_class + h_cluster) / 2
        return _share(self.mutual_information(), float(mean), otherwise=0.0)

    def ari(self) -> float:
        # Python's integers: products of numbers of pairs pass 64 bits already for n = 100,000.
        both, a, b, total = (
            _pairs(sizes) for sizes in (self.counts.data, self.class_sizes, self.cluster_sizes, self.n)
        )
        above, span = 2 * (both * total - a * b), (a + b) * total - 2 * a * b
        return above / span if span else 1.0

    def ami(self) -> float:
        from sklearn.metrics.cluster import expected_mutual_information

        if self.identical:
            return 1.0
        expected = expected_mutual_information(self.counts, self.n)
        span = (_entropy(self.class_sizes) + _entropy(self.cluster_sizes)) / 2 - expected
        above = self.mutual_information() - expected
        return float(min(above / span, 1.0)) if span > 1e-12 else 0.0

    def homogeneity(self) -> float:
        return _share(self.mutual_information(), _entropy(self.class_sizes), otherwise=1.0)

    def completeness(self) -> float:
        return _share(self.mutual_information(), _entropy(self.cluster_sizes), otherwise=1.0)

    def v_measure(self) -> float:
        h, c = self.homogeneity(), self.completeness()
        return _share(2 * h * c, h + c, otherwise=0.0)

    def pair_precision(self) -> float:
        together = _pairs(self.cluster_sizes)
        return _pairs(self.counts.data) / together if together else 1.0


def accuracy(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Share of rows that are right under the best one-to-one naming of clusters by classes.

    max_π Σ_j n_{π(j), j} / n, by the Hungarian method. Rows of clusters or classes left over are wrong.
    """
    return _Table.of(y_true, y_pred).accuracy()


def match(y_true: ArrayLike, y_pred: ArrayLike) -> dict[Any, Any]:
    """The naming used by `accuracy`: cluster -> class.

    One-to-one: with more clusters than classes some clusters have no entry. A pair may share no row at all.
    """
    table = _Table.of(y_true, y_pred)
    return {table.clusters[j]: table.classes[i] for i, j in zip(*table.matched(), strict=True)}


def confusion(y_true: ArrayLike, y_pred: ArrayLike) -> tuple[list[Any], list[Any], NDArray[np.int64]]:
    """Classes, clusters, and how many rows of each class each cluster has: (classes, clusters). Clusters stand in the
    order of the classes that `match` names them by, those without a class last."""
    table = _Table.of(y_true, y_pred)
    named = {int(j): int(i) for i, j in zip(*table.matched(), strict=True)}
    order = sorted(range(len(table.clusters)), key=lambda j: (j not in named, named.get(j, 0), j))
    return table.classes, [table.clusters[j] for j in order], table.counts.toarray()[:, order]


def purity(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Σ_j max_i n_ij / n: every cluster named by its commonest class. Grows with the number of clusters."""
    return _Table.of(y_true, y_pred).purity()


def nmi(y_true: ArrayLike, y_pred: ArrayLike, average: Literal["arithmetic", "geometric"] = "arithmetic") -> float:
    """Normalised mutual information: 2 I / (H(class) + H(cluster)), or I / sqrt(H(class) H(cluster)).

    The arithmetic one is the V-measure and scikit-learn's default since 0.22; papers before mostly report
    the geometric one. They differ when cluster sizes are uneven.
    """
    if average not in ("arithmetic", "geometric"):
        raise ValueError(f"average={average!r} should be 'arithmetic' or 'geometric'.")
    return _Table.of(y_true, y_pred).nmi(average)


def ari(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Adjusted Rand index: (pairs - expected) / (max - expected). 0 by chance, so it may be negative."""
    return _Table.of(y_true, y_pred).ari()


def ami(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Adjusted mutual information: (I - E[I]) / ((H(class) + H(cluster)) / 2 - E[I]). May be negative."""
    return _Table.of(y_true, y_pred).ami()


def homogeneity(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """I / H(class): 1 when every cluster holds one class only."""
    return _Table.of(y_true, y_pred).homogeneity()


def completeness(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """I / H(cluster): 1 when every class lies in one cluster."""
    return _Table.of(y_true, y_pred).completeness()


def v_measure(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """2 h c / (h + c), the harmonic mean of homogeneity and completeness."""
    return _Table.of(y_true, y_pred).v_measure()


def pair_precision(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Of the pairs of rows put into one cluster, the share of one class: TP / (TP + FP).

    1 when no two rows share a cluster: no pair is wrong.
    """
    return _Table.of(y_true, y_pred).pair_precision()


def scores(y_true: ArrayLike, y_pred: ArrayLike) -> dict[str, float]:
    """Every score against known labels, from one table."""
    table = _Table.of(y_true, y_pred)
    return {
        "acc": table.accuracy(),
        "nmi": table.nmi("arithmetic"),
        "nmi_geometric": table.nmi("geometric"),
        "ari": table.ari(),
        "ami": table.ami(),
        "purity": table.purity(),
        "homogeneity": table.homogeneity(),
        "completeness": table.completeness(),
        "v_measure": table.v_measure(),
        "pair_precision": table.pair_precision(),
    }


def silhouette(Z: Any, labels: ArrayLike, sample: int = SAMPLE, random_state: int = 0) -> float:
    """Mean of (b - a) / max(a, b), a the mean distance to the own cluster, b to the nearest other; -1 to 1.

    Measured on at most `sample` rows, drawn by `random_state`. nan with fewer than two clusters among them,
    or with every row its own.
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

    Smaller is better. nan with one cluster, infinite where two clusters of some width share a centre.
    """
    return _davies_bouldin(*_check(Z, labels))


def calinski_harabasz(Z: Any, labels: ArrayLike) -> float:
    """Between over within scatter, each per degree of freedom: (B / (k - 1)) / (W / (n - k)).

    Larger is better. nan with one cluster or with every row its own, infinite where clusters have no width.
    """
    return _calinski_harabasz(*_check(Z, labels))


def scatter(Z: Any, labels: ArrayLike) -> float:
    """Within over total variance, W / (W + B): 0 to 1, smaller is better, free of scale.

    1 with one cluster, nan where all rows are the same point.
    """
    within, between = _within_between(*_check(Z, labels))
    return within / (within + between) if within + between > 0 else float("nan")


def effective_clusters(labels: ArrayLike) -> float:
    """exp(-Σ p_j log p_j), p_j the share of rows in cluster j: k for k even clusters, 1 when collapsed."""
    codes, _ = _encode(labels, "labels")
    return effective_number(np.bincount(codes))


def effective_number(sizes: NDArray[np.int64]) -> float:
    """`effective_clusters` from the number of rows in each."""
    return float(np.exp(_entropy(sizes[sizes > 0])))


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


def _encode(labels: ArrayLike, name: str) -> tuple[NDArray[np.int64], list[Any]]:
    """Labels as 0 .. k-1, and what each number stands for."""
    array = np.asarray(labels)
    if array.dtype.kind in "US" and not isinstance(labels, np.ndarray):
        # numpy made strings of everything: 1 and "1" would become one label, and a NaN a word.
        array = np.asarray(labels, dtype=object)
    if array.ndim != 1:
        raise ValueError(f"{name} should be one label a row, (n,); it has shape {array.shape}.")
    if len(array) == 0:
        raise ValueError(f"{name} is empty: 0 labels.")
    missing = len(array) - int(is_labelled(array).sum())
    if missing:
        raise ValueError(f"{name} has {missing} missing (NaN) labels among {len(array)}.")
    if array.dtype.kind != "O":
        names, codes = np.unique(array, return_inverse=True)
        return codes.astype(np.int64), names.tolist()
    # Labels of several types have no order of their own; this one does not depend on the order of rows.
    order = sorted(set(array), key=lambda label: (type(label).__name__, repr(label)))
    number = {label: i for i, label in enumerate(order)}
    return np.fromiter((number[label] for label in array), np.int64, len(array)), order


def is_labelled(y: ArrayLike) -> NDArray[np.bool_]:
    """Which rows have a label: one that is neither None nor NaN. (n,)"""
    array = np.asarray(y) if isinstance(y, np.ndarray) else np.asarray(y, dtype=object)
    if array.dtype.kind == "O":
        return np.array([not _is_missing(label) for label in array], bool)
    return ~np.isnan(array) if array.dtype.kind in "fcmM" else np.ones(len(array), bool)


def _is_missing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)
    except TypeError:  # pandas.NA is neither true nor false
        return True


def _entropy(sizes: NDArray[np.int64]) -> float:
    p = sizes[sizes > 0] / sizes.sum()
    return max(float(-(p * np.log(p)).sum()), 0.0)


def _pairs(sizes: NDArray[np.int64] | int) -> int:
    """Σ s (s - 1) / 2"""
    sizes = np.asarray(sizes, np.int64)
    return int((sizes * (sizes - 1) // 2).sum())


def _share(part: float, whole: float, *, otherwise: float) -> float:
    return min(part / whole, 1.0) if whole > 0 else otherwise


def _check(Z: Any, labels: ArrayLike) -> tuple[Any, NDArray[np.int64]]:
    """Z as a float array or CSR of rows, labels as 0 .. k-1."""
    codes, _ = _encode(labels, "labels")
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
    """The rows of each cluster, one cluster at a time: never all of Z in double precision or dense."""
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
    likeness = np.where(wide > 0, np.inf, 0.0)  # where the centres coincide
    np.divide(wide, apart, out=likeness, where=apart > 0)
    np.fill_diagonal(likeness, 0.0)
    return float(likeness.max(axis=1).mean())


def _calinski_harabasz(Z: Any, codes: NDArray[np.int64]) -> float:
    n, k = len(codes), int(codes.max()) + 1
    if not 2 <= k < n:
        return float("nan")
    within, between = _within_between(Z, codes)
    if within == 0:
        return float("inf") if between > 0 else float("nan")
    return (between / (k - 1)) / (within / (n - k))
