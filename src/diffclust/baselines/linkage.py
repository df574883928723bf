"""ACAL and ACWL: the two nearest clusters merge until k are left.

Jain, Murty, Flynn: "Data Clustering: A Review", ACM Computing Surveys 1999. The distance of a merged cluster a ∪ b from
another is a weighted or a plain mean::

    average:   d(a ∪ b, c) = (|a| d(a, c) + |b| d(b, c)) / (|a| + |b|)
    weighted:  d(a ∪ b, c) = (d(a, c) + d(b, c)) / 2
"""

from typing import ClassVar, Literal

from scipy.cluster.hierarchy import fcluster, linkage

from .clusterer import ClassicalClusterer, Labels, Rows, hyperparameters, knob


@hyperparameters
class Linkage(ClassicalClusterer):
    """Agglomerative clustering. If merges tie, no cut gives exactly k clusters and there are fewer.

    Args:
        linkage: "average" (ACAL) or "weighted" (ACWL).
    """

    squares: ClassVar[float] = 1  # distances of pairs, and scipy's copy of them

    linkage: Literal["average", "weighted"] = knob("average")

    def label(self, X: Rows, seed: int) -> Labels:
        return fcluster(linkage(X, method=self.linkage), self.n_clusters, criterion="maxclust") - 1
