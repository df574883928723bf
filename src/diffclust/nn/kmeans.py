"""k-means++ and Lloyd's algorithm on tensors, on their device.

They place the first centres of the neural methods and serve as a baseline. Randomness comes from
`generator`, or from torch's global generator.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from .nearest import Scores, member_sums, nearest_from, parts, sums_by_key, upcast
from .ops import squared_distances

TOLERANCE = 1e-4  # scikit-learn's default
SCORES_AT_ONCE = 2**24  # scores and coordinates in memory, if several starts are computed together
SAME_INERTIA = 1e-6  # relative difference up to which two inertias count as equal
COPIED_AT_ONCE = 2**27  # numbers copied from the host at a time


class KMeansResult(NamedTuple):
    """The result of `kmeans` and `lloyd`: centres (k, d), labels (n,), the sum of squared distances, and the number of
    iterations."""

    centers: Tensor  # (k, d)
    labels: Tensor  # (n,)
    inertia: float
    n_iter: int


def draw_proportional(weights: Tensor, size: int, generator: Generator | None) -> Tensor:
    """Draw `size` indices with probability proportional to `weights`; uniformly if all weights are zero."""
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
    """Alternate nearest-centre assignment and means until the summed squared shift of the centres is at most
    `tolerance` times the mean variance of a feature. An empty cluster restarts at the row farthest from its centre.

    The computation runs on the device of the centres: rows in host memory (pinned if possible) are copied to a GPU in
    parts, each while the previous one is computed. Centres of half-precision rows are float32.
    """
    return _lloyd(x, centers[None], max_iter, tolerance)


def _lloyd(x: Tensor, starts: Tensor, max_iter: int, tolerance: float) -> KMeansResult:
    """`lloyd` from several starts (s, k, d) at once; the smallest inertia wins. With few rows, a step of all takes
    hardly longer than a step of one."""
    rows = CPURows(x, starts.shape) if starts.device.type == "cpu" else GPURows(x, starts.device)
    threshold = tolerance * rows.variance
    centers = starts.to(rows.origin.dtype) - rows.origin  # distances lose digits far from the origin
    moving, n_iter = list(range(len(starts))), [0] * len(starts)
    for _ in range(max_iter):
        every = len(moving) == len(centers)
        now = centers if every else centers[moving]
        sums, counts = rows.sums(now, moving)
        means = torch.where(counts[:, :, None] > 0, sums / counts[:, :, None].clamp_min(1), now).to(now.dtype)
        shift = (means - now).square().sum((1, 2))
        goes_on, has_empty = torch.stack([shift > threshold, (counts == 0).any(1)]).tolist()  # waits for the GPU once
        for i, start in enumerate(moving):
            n_iter[start] += 1
            if has_empty[i]:
                missing = (counts[i] == 0).nonzero()[:, 0]
                distances = rows.nearest(now[i : i + 1])[1][0]
                means[i, missing] = rows.take(distances.topk(len(missing)).indices)
                goes_on[i] = bool((means[i] - now[i]).square().sum() > threshold)
        if every:
            centers = means
        else:
            centers[moving] = means
        moving = [start for start, on in zip(moving, goes_on, strict=True) if on]
        if not moving:
            break
    labels, distances = rows.nearest(centers)
    inertia = distances.double().sum(1).tolist()
    best = _best(inertia)
    return KMeansResult(centers[best] + rows.origin, labels[best], inertia[best], n_iter[best])


def _best(inertia: list[float]) -> int:
    """The start with the smallest inertia. Inertias that differ only by rounding count as equal, and the first one
    wins, so that the choice is the same on every machine. If values overflow, the first start wins."""
    least = min(inertia)
    return next((i for i, value in enumerate(inertia) if value <= least * (1 + SAME_INERTIA)), 0)


class CPURows:
    """Centred rows on a CPU that remember their cluster: a step adds up only the rows that moved."""

    def __init__(self, x: Tensor, shape: Sequence[int]) -> None:
        x = upcast(x.detach())
        self.origin = x.mean(0)
        self.x = x - self.origin
        self.variance = torch.linalg.vector_norm(self.x).square() / self.x.numel()
        s, k, d = shape
        self.parts = parts(len(x), s * k, d)
        self.scores = Scores(shape, x.dtype, x.device, self.parts[0].stop)
        self.starts = list(range(s))
        self.labels: np.ndarray | None = None  # (s, n), None before the first step
        self.totals = torch.zeros(s, k, d, dtype=torch.float64)
        self.counts = torch.zeros(s, k, dtype=torch.long)

    def sums(self, centers: Tensor, starts: list[int]) -> tuple[Tensor, Tensor]:
        """Sums (s, k, d) and numbers (s, k) of the rows nearest to each centre (s, k, d) of these starts."""
        before = self.labels
        if before is not None and starts != self.starts:  # some starts have converged
            kept = [self.starts.index(start) for start in starts]
            before, self.totals, self.counts = before[kept], self.totals[kept], self.counts[kept]
            self.starts = starts
        s, k, d = centers.shape
        n = self.x.shape[0]
        self.scores.set(centers)
        self.labels = labels = np.empty((s, n), np.min_scalar_type(k))
        for part in self.parts:
            labels[:, part] = self.scores.best(self.x[part])[0].numpy()
        if before is None:
            sums, counts = member_sums(self.x, torch.from_numpy(labels.astype(np.int64)), k)
            self.totals += sums
            self.counts += counts
            return self.totals, self.counts
        moved = np.flatnonzero(labels != before)
        if len(moved):
            start, row = np.divmod(moved, n) if s > 1 else (0, moved)
            first = k * start
            came_to, left_from = (of.ravel()[moved].astype(np.int64) for of in (labels, before))
            keys = np.concatenate([first + came_to, s * k + first + left_from])
            rows = torch.from_numpy(np.concatenate([row, row]))
            sums, counts = sums_by_key(self.x, torch.from_numpy(keys), rows, 2 * s * k)
            (came, left), (more, fewer) = sums.view(2, s, k, d), counts.view(2, s, k)
            self.totals.add_(came).sub_(left)
            self.counts.add_(more).sub_(fewer)
        return self.totals, self.counts

    def nearest(self, centers: Tensor) -> tuple[Tensor, Tensor]:
        return nearest_from(self.x, centers, None)

    def take(self, index: Tensor) -> Tensor:
        return self.x[index]


class GPURows:
    """Rows that stay on their device, for a GPU."""

    def __init__(self, x: Tensor, device: torch.device) -> None:
        self.x, self.device = x.detach(), device
        count, mean, variance = 0, torch.zeros((), device=device), torch.zeros((), device=device)
        for part in self.parts():
            of_part, other = torch.var_mean(upcast(part), 0, correction=0)
            count += len(part)
            share = len(part) / count
            variance = variance + share * (of_part - variance + (1 - share) * (other - mean).square())
            mean = mean + share * (other - mean)
        self.origin, self.variance = mean, variance.mean()

    def parts(self) -> Iterator[Tensor]:
        return iter([self.x]) if self.x.device == self.device else copied_in_parts(self.x, self.device)

    def sums(self, centers: Tensor, starts: list[int]) -> tuple[Tensor, Tensor]:
        s, k, d = centers.shape
        totals, numbers = centers.new_zeros(s, k, d), torch.zeros(s, k, dtype=torch.long, device=self.device)
        for part in self.parts():
            labels, _ = nearest_from(part, centers, self.origin, with_distances=False)
            sums, counts = member_sums(part, labels, k, self.origin)
            totals += sums
            numbers += counts
        return totals, numbers

    def nearest(self, centers: Tensor) -> tuple[Tensor, Tensor]:
        answers = [nearest_from(part, centers, self.origin) for part in self.parts()]
        labels, distances = zip(*answers, strict=True)
        return torch.cat(labels, 1), torch.cat(distances, 1)

    def take(self, index: Tensor) -> Tensor:
        return upcast(self.x[index.to(self.x.device)]).to(self.device) - self.origin


def copied_in_parts(x: Tensor, device: torch.device) -> Iterator[Tensor]:
    """Copy rows from the host to the device, one part at a time, each while the previous one is computed. A part is
    freed when the second one after it is requested."""
    size = max(1, COPIED_AT_ONCE // x.shape[1])
    ways = [(x.new_empty(min(size, len(x)), x.shape[1], device=device), torch.cuda.Event()) for _ in range(2)]
    courier = torch.cuda.Stream(device)
    courier.wait_stream(torch.cuda.current_stream(device))
    waiting: list[tuple[Tensor, torch.cuda.Event, torch.cuda.Event]] = []
    for i, part in enumerate(x.split(size)):
        room, done = ways[i % 2]
        with torch.cuda.stream(courier):
            courier.wait_event(done)
            here = room[: len(part)].copy_(part, non_blocking=True)
            came = torch.cuda.Event()
            came.record(courier)
        waiting.append((here, came, done))
        if i:
            yield from _handed(waiting.pop(0), device)
    for last in waiting:
        yield from _handed(last, device)


def _handed(part: tuple[Tensor, torch.cuda.Event, torch.cuda.Event], device: torch.device) -> Iterator[Tensor]:
    here, came, done = part
    worker = torch.cuda.current_stream(device)
    worker.wait_event(came)
    yield here
    done.record(worker)


def kmeans(
    x: Tensor, n_clusters: int, *, n_init: int = 10, max_iter: int = 300, generator: Generator | None = None
) -> KMeansResult:
    """Lloyd from `n_init` k-means++ starts; the smallest inertia wins."""
    if len(x) < n_clusters:
        raise ValueError(f"{len(x)} rows are too few for n_clusters={n_clusters} clusters.")
    starts = torch.stack([kmeans_plus_plus(x, n_clusters, generator) for _ in range(n_init)])
    at_once = max(1, SCORES_AT_ONCE // (len(x) * (int(n_clusters) + x.shape[1])))  # n_clusters may be a numpy integer
    results = [_lloyd(x, some, max_iter, TOLERANCE) for some in starts.split(at_once)]
    return results[_best([result.inertia for result in results])]
