"""The graph of nearest neighbours with UMAP's weights, and the loss that keeps it in an embedding.

McInnes, Healy, Melville: "UMAP: Uniform Manifold Approximation and Projection", 2018; a network in place of free
coordinates as in Sainburg, McInnes, Gentner: "Parametric UMAP Embeddings for Representation and Semisupervised
Learning", Neural Computation 2021.

For row i with its k nearest others at distances d_i1 <= ... <= d_ik, with ρ_i = d_i1::

    w_ij = exp(-max(0, d_ij - ρ_i) / σ_i),   σ_i such that Σ_j w_ij = log2 k

In the embedding, two rows at distance d are neighbours with probability q = 1 / (1 + a d^2b). The loss is -log q for
neighbours, which attracts them, and -log(1 - q) for other rows, which repels them.
"""

from typing import Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from .kmeans import kmeans_plus_plus, lloyd

Metric = Literal["euclidean", "cosine"]

A, B = 1.9328, 0.7905  # a and b of q, for UMAP's min_dist = 0: neighbours may coincide
ALL_PAIRS_UP_TO = {"cpu": 1e11, "cuda": 2e14}  # n² d up to which all pairs are compared, in some seconds
PROBED_CELLS = 16  # number of nearest cells, of about √n, in which neighbours are searched
DISTANCES_AT_ONCE = {"cpu": 2**22, "cuda": 2**28}  # distances computed at a time
GROUP = 32  # size of the groups whose minima are computed first
MAX_PRODUCTS = 2e9  # products of nonzero values, or pairs of rows, up to which a search takes some seconds
DISTANCE_FLOOR = 1e-4  # added to squared distances before taking logarithms
NEIGHBOURS = 15  # UMAP's default
REPELLED = 5.0  # rows drawn at random for each neighbour: UMAP's default


class Nearest(NamedTuple):
    """The nearest other rows of each row, nearest first."""

    places: Tensor  # (n, k)
    distance: Tensor  # (n, k)


@torch.no_grad()
def nearest_neighbours(
    x: Tensor, n_neighbors: int, metric: Metric = "euclidean", *, exact: bool | None = None
) -> Nearest:
    """The `n_neighbors` nearest other rows of each row of x (n, d); equal rows are neighbours at distance zero.

    Args:
        metric: "cosine" is 1 - cos, with distance one between a row of zeros and any other row.
        exact: compare every pair of rows; otherwise k-means divides the rows into about √n cells, and neighbours are
            searched in the `PROBED_CELLS` nearest cells. None: exact if that takes at most some seconds.
    """
    n = len(x)
    if not 1 <= n_neighbors < n:
        raise ValueError(f"n_neighbors={n_neighbors} should be from 1 to {n - 1}, one less than the {n} rows.")
    if metric not in ("euclidean", "cosine"):
        raise ValueError(f"metric={metric!r} should be 'euclidean' or 'cosine'.")
    if metric == "cosine":
        x, squares = F.normalize(x, dim=1), x.new_ones(n)  # also of zero rows: their distance is one
    else:
        x = x - x.mean(0)  # far from zero, distances would lose digits
        squares = x.square().sum(1)
    if exact is None:
        exact = n * n * x.shape[1] <= ALL_PAIRS_UP_TO.get(x.device.type, ALL_PAIRS_UP_TO["cpu"])
    index, squared = (_compare_all if exact else _compare_cells)(x, squares, n_neighbors)
    return Nearest(index, squared / 2 if metric == "cosine" else squared.sqrt())


def neighbours_by_words(rows: sp.csr_matrix, n_neighbors: int = NEIGHBOURS) -> Nearest | None:
    """The nearest other rows of each row of a sparse matrix by cosine distance, or None if that would take too long
    (see `MAX_PRODUCTS`)."""
    n = rows.shape[0]
    k = min(n_neighbors, n - 1)
    common = np.bincount(rows.indices, minlength=rows.shape[1]).astype(np.float64)  # rows with a value
    if common @ common > MAX_PRODUCTS or n * n > MAX_PRODUCTS:
        return None
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(1)).ravel())
    unit = sp.csr_matrix(sp.diags(1 / np.where(lengths > 0, lengths, 1.0)) @ rows, dtype=np.float32)
    columns = sp.csr_matrix(unit.T)
    places, distances = [], []
    block = max(1, DISTANCES_AT_ONCE["cpu"] // n)
    for start in range(0, n, block):
        part = 1 - torch.from_numpy((unit[start : start + block] @ columns).toarray())
        own = torch.arange(start, start + len(part))
        values, nearest = _smallest(part.scatter_(1, own[:, None], torch.inf), k)
        places.append(nearest)
        distances.append(values.clamp_min(0))
    return Nearest(torch.cat(places), torch.cat(distances))


def _block(x: Tensor, n_others: int) -> int:
    """The number of rows that can be compared with this many others at a time."""
    return max(1, DISTANCES_AT_ONCE.get(x.device.type, DISTANCES_AT_ONCE["cpu"]) // n_others)


def _compare_all(x: Tensor, squares: Tensor, k: int) -> tuple[Tensor, Tensor]:
    everyone = torch.arange(len(x), device=x.device)
    parts = [_nearest_among(x, squares, rows, everyone, rows, k) for rows in everyone.split(_block(x, len(x)))]
    index, squared = (torch.cat(part) for part in zip(*parts, strict=True))
    return index, squared


def _compare_cells(x: Tensor, squares: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Search in cells: the candidates of a row are the rows of the cells nearest to its own."""
    n = len(x)
    n_cells = max(1, round(n**0.5))
    sample = x[torch.randperm(n, device=x.device)[: 40 * n_cells]]
    centers = lloyd(sample, kmeans_plus_plus(sample, n_cells), max_iter=10).centers
    of_centers = centers.square().sum(1)
    cell = torch.cat([(of_centers - 2 * rows @ centers.T).argmin(1) for rows in x.split(_block(x, n_cells))])
    order = cell.argsort(stable=True)
    members = order.split(torch.bincount(cell, minlength=n_cells).tolist())
    closest = torch.cdist(centers, centers).argsort(1).tolist()
    index = torch.empty(n, k, dtype=torch.long, device=x.device)
    squared = torch.empty(n, k, dtype=x.dtype, device=x.device)
    place = torch.empty(n, dtype=torch.long, device=x.device)
    for j, rows in enumerate(members):
        if len(rows) == 0:
            continue
        probed = PROBED_CELLS
        while (candidates := torch.cat([members[c] for c in closest[j][:probed]])).numel() <= k:
            probed *= 2
        place[candidates] = torch.arange(len(candidates), device=x.device)
        for part in rows.split(_block(x, len(candidates))):
            index[part], squared[part] = _nearest_among(x, squares, part, candidates, place[part], k)
    return index, squared


def _nearest_among(
    x: Tensor, squares: Tensor, rows: Tensor, candidates: Tensor, own: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """Positions and squared distances of the k nearest of `candidates` for each of `rows`, without the row itself,
    which is candidate number `own`. `squares` are the squared lengths of all rows."""
    everyone = len(candidates) == len(x)
    there, lengths = (x, squares) if everyone else (x[candidates], squares[candidates])
    squared = torch.addmm(lengths, x[rows], there.T, alpha=-2)  # without the square of the row itself
    squared.scatter_(1, own[:, None], torch.inf)
    values, places = _smallest(squared, k)
    return candidates[places], (values + squares[rows, None]).clamp_min(0)


def _smallest(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """`values.topk(k, largest=False)` of each row. The k smallest entries lie in the k groups with the smallest
    minima, and minima of groups are computed much faster than `topk` of a long row."""
    n, m = values.shape
    n_groups = m // GROUP
    if n_groups <= 2 * k:
        smallest = values.topk(k, largest=False)
        return smallest.values, smallest.indices
    grouped = values[:, : n_groups * GROUP].view(n, n_groups, GROUP)
    groups = grouped.amin(2).topk(k, largest=False, sorted=False).indices  # (n, k)
    within = groups[:, :, None] * GROUP + torch.arange(GROUP, device=values.device)
    rest = torch.arange(n_groups * GROUP, m, device=values.device).expand(n, -1)
    places = torch.cat([within.flatten(1), rest], dim=1)
    smallest = values.gather(1, places).topk(k, largest=False)
    return smallest.values, places.gather(1, smallest.indices)


@torch.no_grad()
def fuzzy_weights(distance: Tensor, steps: int = 40) -> Tensor:
    """w (n, k) from the distances of `nearest_neighbours`; σ_i is found by bisection. If more than log2 k
    neighbours are as near as the nearest, their weights are one and σ_i is the lower end of the interval."""
    beyond = (distance - distance[:, :1]).clamp_min(0)  # max(0, d_ij - ρ_i); by rounding it may be slightly negative
    wanted = torch.log2(torch.tensor(float(distance.shape[1])))
    scale = beyond.mean(1, keepdim=True)
    low, high = torch.zeros_like(scale), torch.full_like(scale, 2.0**12)  # σ_i in units of the mean
    for _ in range(steps):
        middle = (low + high) / 2
        heavy = torch.exp(-beyond / (middle * scale).clamp_min(1e-30)).sum(1, keepdim=True) > wanted
        low, high = torch.where(heavy, low, middle), torch.where(heavy, middle, high)
    return torch.exp(-beyond / (high * scale).clamp_min(1e-30))


class NeighbourGraph:
    """A k-nearest-neighbour graph: the neighbours of each row (n, k), sampled in proportion to their weights."""

    def __init__(self, index: Tensor, weight: Tensor) -> None:
        self.index, self.weight = index, weight
        self.cumulative = (weight / weight.sum(1, keepdim=True)).cumsum(1)[:, :-1].contiguous()

    @classmethod
    def of(cls, x: Tensor, n_neighbors: int = NEIGHBOURS, metric: Metric = "cosine") -> "NeighbourGraph":
        """The graph of the rows x (n, d), with `n_neighbors` per row, or all other rows if there are fewer."""
        return cls.weighted(nearest_neighbours(x, min(n_neighbors, len(x) - 1), metric))

    @classmethod
    def weighted(cls, near: Nearest) -> "NeighbourGraph":
        """The graph of known neighbours."""
        return cls(near.places, fuzzy_weights(near.distance))

    def to(self, device: torch.device) -> "NeighbourGraph":
        return NeighbourGraph(self.index.to(device), self.weight.to(device))

    def draw(self, rows: Tensor, uniform: Tensor) -> Tensor:
        """Neighbours of `rows` (...), one for each of the uniform numbers (..., m) in [0, 1)."""
        place = (self.cumulative[rows][..., None, :] <= uniform[..., None]).sum(-1)
        return self.index[rows].gather(-1, place)

    def cut(self, labels: Tensor, n_clusters: int) -> float:
        """The share of a cluster's edge weight that leaves it, mean over clusters: the normalised cut, from 0 to 1. An
        edge counts for both of its ends; the share of an empty cluster is 1."""
        tails = labels[self.index]
        leaving = self.weight * (tails != labels[:, None])

        def by_cluster(weight: Tensor) -> Tensor:
            sums = weight.new_zeros(n_clusters).index_add_(0, labels, weight.sum(1))
            return sums.index_add_(0, tails.flatten(), weight.flatten())

        volume = by_cluster(self.weight)
        return torch.where(volume > 0, by_cluster(leaving) / volume.clamp_min(1e-30), 1.0).mean().item()


def neighbour_loss(z: Tensor, near: Tensor, far: Tensor) -> Tensor:
    """Mean of -log q over neighbours `near` (b, m, d) of the rows z (b, d), and `REPELLED` times the mean of
    -log(1 - q) over `far` (b, s, d), which are rows drawn at random."""
    pull = attraction((z[:, None] - near).square().sum(-1)).mean()
    push = repulsion((z[:, None] - far).square().sum(-1)).mean()
    return pull + REPELLED * push


def attraction(squared: Tensor) -> Tensor:
    """-log q = log(1 + a d^2b), from squared distances in the embedding."""
    return torch.log1p(A * (squared + DISTANCE_FLOOR).pow(B))


def repulsion(squared: Tensor) -> Tensor:
    """-log(1 - q) = log(1 + a d^2b) - log(a d^2b)."""
    odds = A * (squared + DISTANCE_FLOOR).pow(B)
    return torch.log1p(odds) - torch.log(odds)
