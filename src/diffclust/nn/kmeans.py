"""k-means++ and Lloyd's algorithm on tensors, on whatever device they live.

They place the first centres of the neural methods and serve as a baseline. Randomness comes from
`generator`, or from torch's global generator.
"""

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from .ops import largest, squared_distances

TOLERANCE = 1e-4  # scikit-learn's
AT_ONCE = 2**24  # numbers that starts which move together may hold


class KMeansResult(NamedTuple):
    """What `kmeans` and `lloyd` give: centres (k, d), labels (n,), the sum of squared distances, and iterations."""

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


def lloyd(x: Tensor, centers: Tensor, *, max_iter: int = 300, tolerance: float = TOLERANCE) -> KMeansResult:
    """Alternate nearest-centre assignment and means until the centres' squared shift, summed, is at most
    `tolerance` times the mean variance of a feature. An empty cluster restarts at the row farthest from its centre."""
    return _lloyd(x, centers[None], max_iter, tolerance)


def _lloyd(x: Tensor, starts: Tensor, max_iter: int, tolerance: float) -> KMeansResult:
    """`lloyd` from several starts (s, k, d) at once: on few rows a step of all takes hardly longer than a step of one.
    The smallest inertia wins."""
    threshold = tolerance * x.var(dim=0, correction=0).mean()
    origin = x.mean(0)
    x, centers = x - origin, starts - origin  # the distances lose digits far from the origin
    moving = torch.arange(len(starts), device=x.device)
    n_iter = torch.zeros(len(starts), dtype=torch.long, device=x.device)
    for _ in range(max_iter):
        means = _mean_of_members(x, centers[moving])
        shift = (means - centers[moving]).square().sum((1, 2))
        centers[moving] = means
        n_iter[moving] += 1
        moving = moving[shift > threshold]
        if len(moving) == 0:
            break
    inertia = torch.stack([squared_distances(x, each).amin(1).double().sum() for each in centers])
    best = int(inertia.argmin())
    labels = squared_distances(x, centers[best]).argmin(1)
    return KMeansResult(centers[best] + origin, labels, inertia[best].item(), int(n_iter[best]))


def _mean_of_members(x: Tensor, centers: Tensor) -> Tensor:
    """The mean of the rows nearest to each centre, (s, k, d); where there are none, a row that is far from its own."""
    s, k, d = centers.shape
    stacked = centers.reshape(s * k, d)
    nearness = torch.addmm(-stacked.square().sum(1) / 2, x, stacked.T)
    labels = largest(nearness.view(-1, k)).view(-1, s)
    member = nearness.zero_().scatter_(1, labels + k * torch.arange(s, device=x.device), 1.0)  # in the same memory
    counts = member.sum(0).view(s, k, 1)
    means = torch.where(counts > 0, (member.T @ x).view(s, k, d) / counts.clamp_min(1), centers)
    empty = counts[:, :, 0] == 0
    for start in empty.any(1).nonzero()[:, 0].tolist():
        missing = empty[start].nonzero()[:, 0]
        distance = (x - centers[start][labels[:, start]]).square().sum(1)
        means[start, missing] = x[distance.topk(len(missing)).indices]
    return means


def kmeans(
    x: Tensor, n_clusters: int, *, n_init: int = 10, max_iter: int = 300, generator: Generator | None = None
) -> KMeansResult:
    """Lloyd from `n_init` k-means++ starts; the smallest inertia wins."""
    if len(x) < n_clusters:
        raise ValueError(f"{len(x)} rows cannot make n_clusters={n_clusters} clusters.")
    starts = torch.stack([kmeans_plus_plus(x, n_clusters, generator) for _ in range(n_init)])
    at_once = max(1, AT_ONCE // (len(x) * (int(n_clusters) + x.shape[1])))
    results = (_lloyd(x, some, max_iter, TOLERANCE) for some in starts.split(at_once))
    return min(results, key=lambda result: result.inertia)
