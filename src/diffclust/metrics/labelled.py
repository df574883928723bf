"""Scores against known labels.

Everything is computed from the contingency table n_ij, the number of rows of class i in cluster j. Labels may be
integers, strings, or anything else hashable. There may be more or fewer clusters than classes, and names do not matter.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from .labels import encoded, entropy_of_sizes

# scipy.optimize and scikit-learn are imported in functions, because that takes most of a second.


@dataclass(frozen=True)
class Contingency:
    """n_ij, with the names of its rows (classes) and columns (clusters)."""

    counts: sp.csr_array  # (classes, clusters), int64
    classes: list[Any]
    clusters: list[Any]

    @classmethod
    def of(cls, y_true: ArrayLike, y_pred: ArrayLike) -> "Contingency":
        i, classes = encoded(y_true, "y_true")
        j, clusters = encoded(y_pred, "y_pred")
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
        """Whether both sides are the same partition of the rows."""
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
        # the logarithm of a product of sizes as a sum, because the product may overflow
        log_expected = np.log(self.class_sizes)[i] + np.log(self.cluster_sizes)[j] - np.log(n)
        information = float((cells.data / n * (np.log(cells.data) - log_expected)).sum())
        return max(information, 0.0)

    def nmi(self, average: Literal["arithmetic", "geometric"]) -> float:
        if self.identical:
            return 1.0
        h_class, h_cluster = entropy_of_sizes(self.class_sizes), entropy_of_sizes(self.cluster_sizes)
        mean = np.sqrt(h_class * h_cluster) if average == "geometric" else (h_class + h_cluster) / 2
        return _share(self.mutual_information(), float(mean), otherwise=0.0)

    def ari(self) -> float:
        # Python's integers, because products of numbers of pairs overflow 64 bits for n = 100,000
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
        span = (entropy_of_sizes(self.class_sizes) + entropy_of_sizes(self.cluster_sizes)) / 2 - expected
        above = self.mutual_information() - expected
        return float(min(above / span, 1.0)) if span > 1e-12 else 0.0

    def homogeneity(self) -> float:
        return _share(self.mutual_information(), entropy_of_sizes(self.class_sizes), otherwise=1.0)

    def completeness(self) -> float:
        return _share(self.mutual_information(), entropy_of_sizes(self.cluster_sizes), otherwise=1.0)

    def v_measure(self) -> float:
        h, c = self.homogeneity(), self.completeness()
        return _share(2 * h * c, h + c, otherwise=0.0)

    def pair_precision(self) -> float:
        together = _pairs(self.cluster_sizes)
        return _pairs(self.counts.data) / together if together else 1.0


def accuracy(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Share of rows that are right under the best one-to-one matching of clusters and classes.

    max_π Σ_j n_{π(j), j} / n, by the Hungarian method. Rows of clusters or classes without a partner are wrong.
    """
    return Contingency.of(y_true, y_pred).accuracy()


def match(y_true: ArrayLike, y_pred: ArrayLike) -> dict[Any, Any]:
    """The matching used by `accuracy`: cluster -> class.

    One-to-one: with more clusters than classes some clusters have no entry. A pair may have no row in common.
    """
    table = Contingency.of(y_true, y_pred)
    return {table.clusters[j]: table.classes[i] for i, j in zip(*table.matched(), strict=True)}


def confusion(y_true: ArrayLike, y_pred: ArrayLike) -> tuple[list[Any], list[Any], NDArray[np.int64]]:
    """Classes, clusters, and how many rows of each class each cluster has: (classes, clusters). Clusters stand in the
    order of the classes that `match` names them by, those without a class last."""
    table = Contingency.of(y_true, y_pred)
    named = {int(j): int(i) for i, j in zip(*table.matched(), strict=True)}
    order = sorted(range(len(table.clusters)), key=lambda j: (j not in named, named.get(j, 0), j))
    return table.classes, [table.clusters[j] for j in order], table.counts.toarray()[:, order]


def purity(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Σ_j max_i n_ij / n: every cluster is named after its commonest class. Grows with the number of clusters."""
    return Contingency.of(y_true, y_pred).purity()


def nmi(y_true: ArrayLike, y_pred: ArrayLike, average: Literal["arithmetic", "geometric"] = "arithmetic") -> float:
    """Normalised mutual information: 2 I / (H(class) + H(cluster)), or I / sqrt(H(class) H(cluster)).

    The arithmetic mean is scikit-learn's default since 0.22 and gives the V-measure; earlier papers mostly report the
    geometric one. They differ if cluster sizes are uneven.
    """
    if average not in ("arithmetic", "geometric"):
        raise ValueError(f"average={average!r} should be 'arithmetic' or 'geometric'.")
    return Contingency.of(y_true, y_pred).nmi(average)


def ari(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Adjusted Rand index: (pairs - expected) / (max - expected). 0 by chance, so it may be negative."""
    return Contingency.of(y_true, y_pred).ari()


def ami(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Adjusted mutual information: (I - E[I]) / ((H(class) + H(cluster)) / 2 - E[I]). May be negative."""
    return Contingency.of(y_true, y_pred).ami()


def homogeneity(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """I / H(class): 1 when every cluster holds one class only."""
    return Contingency.of(y_true, y_pred).homogeneity()


def completeness(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """I / H(cluster): 1 when every class lies in one cluster."""
    return Contingency.of(y_true, y_pred).completeness()


def v_measure(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """2 h c / (h + c), the harmonic mean of homogeneity and completeness."""
    return Contingency.of(y_true, y_pred).v_measure()


def pair_precision(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Of the pairs of rows put into one cluster, the share of one class: TP / (TP + FP).

    1 when no two rows share a cluster: no pair is wrong.
    """
    return Contingency.of(y_true, y_pred).pair_precision()


def scores(y_true: ArrayLike, y_pred: ArrayLike) -> dict[str, float]:
    """Every score against known labels, from one table."""
    table = Contingency.of(y_true, y_pred)
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


def _pairs(sizes: NDArray[np.int64] | int) -> int:
    """Σ s (s - 1) / 2"""
    sizes = np.asarray(sizes, np.int64)
    return int((sizes * (sizes - 1) // 2).sum())


def _share(part: float, whole: float, *, otherwise: float) -> float:
    return min(part / whole, 1.0) if whole > 0 else otherwise
