"""The graph of nearest neighbours with UMAP's weights, and the loss that keeps it in an embedding.

McInnes, Healy, Melville: "UMAP: Uniform Manifold Approximation and Projection", 2018; a network in place of free
coordinates as in Sainburg, McInnes, Gentner: "Parametric UMAP Embeddings for Representation and Semisupervised
Learning", Neural Computation 2021.

For row i with its k nearest others at distances d_i1 <= ... <= d_ik, with ρ_i = d_i1,

    w_ij = exp(-max(0, d_ij - ρ_i) / σ_i),   σ_i such that Σ_j w_ij = log2 k

In the embedding, two rows at distance d are neighbours with probability q = 1 / (1 + a d^2b). Neighbours attract one
another by -log q, rows that are none repel one another by -log(1 - q).
"""

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .kmeans import kmeans_plus_plus, lloyd

Metric = Literal["euclidean", "cosine"]

A, B = 1.9328, 0.7905  # of q, for UMAP's min_dist = 0: neighbours may lie on one another
EXACT_UP_TO = {"cpu": 20_000, "cuda": 200_000}  # rows: beyond, neighbours are looked for in the nearest cells alone
PROBED = 12  # cells a row's neighbours are looked for in, of about √n
BLOCK = 2**24  # distances held at a time
GROUP = 32  # entries whose minimum is looked at first
NEAR = 1e-6  # added to squared distances, whose logarithm is taken


class Neighbours(NamedTuple):
    """Of each row its nearest others, nearest first."""

    index: Tensor  # (n, k)
    distance: Tensor  # (n, k)


@torch.no_grad()
def nearest_neighbours(
    x: Tensor, n_neighbors: int, metric: Metric = "euclidean", *, exact: bool | None = None
) -> Neighbours:
    """The `n_neighbors` nearest other rows of each row of x (n, d); equal rows are neighbours at distance zero.

    metric: "cosine" is 1 - cos, in which a row of zeros is at distance one from everything.
    exact: compare every pair of rows; otherwise rows are sorted into about √n cells by k-means, and neighbours looked
        for in the `PROBED` nearest cells. None: exact where there are few rows.
    """
    n = len(x)
    if not 1 <= n_neighbors < n:
        raise ValueError(f"n_neighbors={n_neighbors} should be from 1 to {n - 1}, one less than the {n} rows.")
    if metric not in ("euclidean", "cosine"):
        raise ValueError(f"metric={metric!r} should be 'euclidean' or 'cosine'.")
    x = F.normalize(x, dim=1) if metric == "cosine" else x - x.mean(0)  # far from zero, distances lose digits
    if exact is None:
        exact = n <= EXACT_UP_TO.get(x.device.type, EXACT_UP_TO["cpu"])
    index, squared = _compare_all(x, n_neighbors) if exact else _compare_cells(x, n_neighbors)
    return Neighbours(index, squared / 2 if metric == "cosine" else squared.sqrt())


def _compare_all(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    n, everyone = len(x), torch.arange(len(x), device=x.device)
    parts = [_nearest_among(x, rows, everyone, k) for rows in everyone.split(max(1, BLOCK // n))]
    index, squared = (torch.cat(part) for part in zip(*parts, strict=True))
    return index, squared


def _compare_cells(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Rows of one cell have the same candidates: those of the cells nearest to it."""
    n = len(x)
    n_cells = max(1, round(n**0.5))
    sample = x[torch.randperm(n, device=x.device)[: 40 * n_cells]]
    centers = lloyd(sample, kmeans_plus_plus(sample, n_cells), max_iter=10).centers
    squares = centers.square().sum(1)
    cell = torch.cat([(squares - 2 * rows @ centers.T).argmin(1) for rows in x.split(max(1, BLOCK // n_cells))])
    order = cell.argsort(stable=True)
    members = order.split(torch.bincount(cell, minlength=n_cells).tolist())
    closest = torch.cdist(centers, centers).argsort(1).tolist()
    index = torch.empty(n, k, dtype=torch.long, device=x.device)
    squared = torch.empty(n, k, dtype=x.dtype, device=x.device)
    for j, rows in enumerate(members):
        if len(rows) == 0:
            continue
        probed = PROBED
        while (candidates := torch.cat([members[c] for c in closest[j][:probed]])).numel() <= k:
            probed *= 2
        for part in rows.split(max(1, BLOCK // len(candidates))):
            index[part], squared[part] = _nearest_among(x, part, candidates, k)
    return index, squared


def _nearest_among(x: Tensor, rows: Tensor, candidates: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Positions and squared distances of the nearest k of `candidates` to each of `rows`, itself excepted."""
    there = x if len(candidates) == len(x) else x[candidates]
    here = x[rows]
    squared = torch.addmm(there.square().sum(1), here, there.T, alpha=-2)  # less the row's own square
    squared.masked_fill_(rows[:, None] == candidates, torch.inf)
    values, places = _smallest(squared, k)
    return candidates[places], (values + here.square().sum(1, keepdim=True)).clamp_min(0)


def _smallest(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """`values.topk(k, largest=False)` of each row. The k smallest entries lie in the k groups of smallest minimum, and
    minima of groups are found far faster than places in a long row."""
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
    """w (n, k) from the distances of `nearest_neighbours`; σ_i is found by `steps` halvings of an interval. Where more
    than log2 k neighbours are as near as the nearest, their weights are one and σ_i is as small as it can be."""
    beyond = distance - distance[:, :1]  # d_ij - ρ_i
    wanted = torch.log2(torch.tensor(float(distance.shape[1])))
    scale = beyond.mean(1, keepdim=True)
    low, high = torch.zeros_like(scale), torch.full_like(scale, 2.0**12)  # σ_i in units of the mean
    for _ in range(steps):
        middle = (low + high) / 2
        heavy = torch.exp(-beyond / (middle * scale).clamp_min(1e-30)).sum(1, keepdim=True) > wanted
        low, high = torch.where(heavy, low, middle), torch.where(heavy, middle, high)
    return torch.exp(-beyond / (high * scale).clamp_min(1e-30))


def attraction(squared: Tensor) -> Tensor:
    """-log q = log(1 + a d^2b), from squared distances in the embedding."""
    return torch.log1p(A * (squared + NEAR).pow(B))


def repulsion(squared: Tensor) -> Tensor:
    """-log(1 - q) = log(1 + a d^2b) - log(a d^2b)."""
    odds = A * (squared + NEAR).pow(B)
    return torch.log1p(odds) - torch.log(odds)
