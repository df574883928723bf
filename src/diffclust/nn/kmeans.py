"""k-means++ and Lloyd's algorithm on tensors, on whatever device they live.

They place the first centres of the neural methods and serve as a baseline. Randomness comes from
`generator`, or from torch's global generator.
"""

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from .ops import largest, squared_distances


class KMeansResult(NamedTuple):
    centers: Tensor  # (k, d)
    labels: Tensor  # (n,)
    inertia: float
    n_iter: int


def draw_proportional(weights: Tensor, size: int, generator: Generator | None) -> Tensor:
    """`size` indices with probability proportional to `weights`; uniform where every weight is zero."""
    cumulative = weights.double().clamp_min(0).cumsum(0)
    if cumulative[-1] <= 0:
        return torch.randint(len(weights), (size,), device=weights.device, generator=generator)
    u = torch.rand(size, device=weights.device, dtype=torch.float64, generator=generator) * cumulative[-1]
    return torch.searchsorted(cumulative, u, right=True).clamp_max(len(weights) - 1)


def kmeans_plus_plus(x: Tensor, n_clusters: int, generator: Generator | None = None) -> Tensor:
    """Greedy k-means++ (Arthur & Vassilvitskii 2007): of a few candidates drawn with probability
    proportional to the squared distance from the centres so far, keep the one that lowers the total most."""
    centred = x - x.mean(0)  # the distances lose digits far from the origin
    squares = centred.square().sum(1)
    n_candidates = 2 + int(math.log(n_clusters))
    chosen = torch.randint(len(x), (1,), device=x.device, generator=generator)
    nearest = squared_distances(centred, centred[chosen])[:, 0]
    for _ in range(1, n_clusters):
        candidates = draw_proportional(nearest, n_candidates, generator)
        nearness = torch.addmm(-squares[candidates, None], 2 * centred[candidates], centred.T)  # |x|² - |x - c|²
        remaining = torch.minimum(nearest, (squares - nearness).clamp_min(0))  # (candidates, n)
        best = remaining.sum(1).argmin()
        nearest = remaining[best]
        chosen = torch.cat([chosen, candidates[best, None]])
    return x[chosen]


def cluster_means(x: Tensor, labels: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of each cluster's rows (an empty cluster keeps its centre), and the counts (k,)."""
    sums = torch.zeros_like(centers).index_add_(0, labels, x)
    counts = torch.bincount(labels, minlength=len(centers)).to(x.dtype)
    means = torch.where(counts[:, None] > 0, sums / counts.clamp_min(1)[:, None], centers)
    return means, counts


def lloyd(x: Tensor, centers: Tensor, *, max_iter: int = 300, tolerance: float = 1e-4) -> KMeansResult:
    """Alternate nearest-centre assignment and means until the centres' squared shift, summed, is at most
    `tolerance` times the mean variance of a feature. An empty cluster restarts at the row farthest from its centre."""
    threshold = tolerance * x.var(dim=0, correction=0).mean()
    origin = x.mean(0)
    x, centers = x - origin, centers - origin  # the distances lose digits far from the origin
    n_iter = 0
    for n_iter in range(1, max_iter + 1):  # noqa: B007
        labels = largest(torch.addmm(-centers.square().sum(1) / 2, x, centers.T))
        means, counts = cluster_means(x, labels, centers)
        empty = (counts == 0).nonzero()[:, 0]
        if len(empty):
            means[empty] = x[(x - centers[labels]).square().sum(1).topk(len(empty)).indices]
        shift = (means - centers).square().sum()
        centers = means
        if shift <= threshold:
            break
    nearest, labels = squared_distances(x, centers).min(1)
    return KMeansResult(centers + origin, labels, nearest.double().sum().item(), n_iter)


def kmeans(
    x: Tensor, n_clusters: int, *, n_init: int = 10, max_iter: int = 300, generator: Generator | None = None
) -> KMeansResult:
    """Lloyd from `n_init` k-means++ starts; the smallest inertia wins."""
    if len(x) < n_clusters:
        raise ValueError(f"{len(x)} rows cannot make n_clusters={n_clusters} clusters.")
    starts = (kmeans_plus_plus(x, n_clusters, generator) for _ in range(n_init))
    return min((lloyd(x, start, max_iter=max_iter) for start in starts), key=lambda result: result.inertia)
