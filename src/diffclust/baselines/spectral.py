"""Spectral clustering, of all pairs and of nearest neighbours.

`NJW`: Ng, Jordan, Weiss: "On Spectral Clustering: Analysis and an Algorithm", NeurIPS 2001, with Gaussian weights::

    W_ij = exp(-|x_i - x_j|² / 2σ²),   W_ii = 0

`Spectral`: Shi, Malik: "Normalized Cuts and Image Segmentation", TPAMI 2000, on the graph of nearest neighbours::

    W = (A + Aᵀ)/2,   A_ij = 1 if row j is one of the nearest of row i

which is sparse, so that memory and the time of a step grow linearly with n. Both are cut as in `cut.py`.
"""

from typing import ClassVar

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from ..engine.runtime import choose_device
from ..nn.ops import squared_distances
from .clusterer import AffinityClusterer, ClassicalClusterer, Labels, Rows, check_device, hyperparameters, knob
from .cut import cut, neighbour_graph

FLOAT32_FROM = 20_000  # rows from which the eigenvectors are computed in single precision
MIN_SHARE = 0.1  # of the mean cluster size: a smaller component of the graph is no cluster


@hyperparameters
class NJW(AffinityClusterer):
    """Spectral clustering with Gaussian weights of all pairs.

    Args:
        scale: σ, as a share of the median distance between rows.
    """

    squares: ClassVar[float] = 3
    unit_rows: ClassVar[bool] = False

    scale: float = knob(0.5, above=0)

    def affinity(self, x: Tensor) -> Tensor:
        """`exp(-|x_i - x_j|² / 2σ²)`, zero on the diagonal."""
        x = x - x.mean(0)  # far from the origin distances lose digits
        squared = squared_distances(x, x).fill_diagonal_(0)
        median = squared.flatten()[:: max(1, squared.numel() // 10**6)].median()
        width = torch.where(median > 0, median, squared.max().clamp_min(torch.finfo(x.dtype).tiny))
        return squared.div_(-2 * self.scale**2 * width).exp_().fill_diagonal_(0)


@hyperparameters
class Spectral(ClassicalClusterer):
    """Spectral clustering of the graph of nearest neighbours, for many rows.

    Components of the graph with less than a tenth of the mean cluster size do not form clusters: their rows get the
    label of the nearest row of another component.

    Args:
        n_neighbors: number of neighbours in the graph.
        device: device of the computation: "auto", "cpu", "cuda", ...
    """

    n_neighbors: int = knob(10, low=1)
    device: str = knob("auto", check=check_device)

    def label(self, X: Rows, seed: int) -> Labels:
        x = torch.from_numpy(X).to(choose_device(self.device))
        if len(X) > FLOAT32_FROM:
            x = x.float()
        graph = neighbour_graph(x, self.n_neighbors, seed)
        kept = large_pieces(graph, self.n_clusters)
        if kept.all():
            return cut(graph, self.n_clusters, seed)
        labels = np.empty(len(X), dtype=np.int64)
        here, stray = (torch.from_numpy(np.flatnonzero(part)).to(x.device) for part in (kept, ~kept))
        labels[kept] = cut(graph.index_select(0, here).index_select(1, here).coalesce(), self.n_clusters, seed)
        nearest = torch.cat([torch.cdist(part, x[here]).argmin(1) for part in x[stray].split(256)])
        labels[~kept] = labels[kept][nearest.cpu().numpy()]
        return labels


def large_pieces(graph: Tensor, k: int) -> np.ndarray:
    """Which rows are in a component of the graph that is large enough for a cluster, (n,); all rows, if fewer than
    k rows are."""
    n = len(graph)
    rows, columns = graph.indices().cpu().numpy()
    piece = connected_components(coo_array((np.ones(len(rows)), (rows, columns)), shape=(n, n)), directed=False)[1]
    kept = np.bincount(piece)[piece] >= MIN_SHARE * n / k
    return kept if kept.sum() >= k else np.ones(n, dtype=bool)
