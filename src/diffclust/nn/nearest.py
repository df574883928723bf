"""The two parts of a k-means step: the nearest centre of each row, and the sum of the rows of each centre.

The matrix of rows by centres is never stored: Triton kernels do not write it on a GPU, and elsewhere it is computed for
a few rows at a time, so that it stays in the cache.
"""

import functools
import importlib.util
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from .ops import largest

SCORES_AT_ONCE = 2**19  # scores computed at a time, so that they stay in the cache
# Up to MANY_CENTERS centres, the maximum over centres is computed first, then its position: above FEW_CENTERS by a
# matrix product with the mask of maxima, which is exact for whole numbers up to MANY_CENTERS, in bfloat16 too.
FEW_CENTERS, MANY_CENTERS = 64, 256
ROWS_PER_PROGRAM = 1024  # rows that one GPU program adds up
# Rows and centres of a tile, stages, warps, and WIDE (see the kernel): the fastest of ten on an H200, for 128 columns.
SPLIT_CONFIG, HALF_CONFIG = (128, 128, 2, 8, False), (128, 64, 2, 8, True)
HALVES = (torch.float16, torch.bfloat16)


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def fused(x: Tensor) -> bool:
    """Whether our own kernels can handle these rows."""
    return x.is_cuda and x.dtype in (torch.float32, *HALVES) and x.stride(-1) == 1 and _has_triton()


def nearest(x: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest of the centres (k, d) to each row (n, d), and the squared distance to it: (n,) and (n,). Ties go to
    the first centre.

    Several sets of centres (s, k, d) at once give (s, n); the rows are the same for all sets, or (s, n, d).
    Half-precision input gives float32 distances. There is no gradient.
    """
    sets = centers.detach().reshape(-1, *centers.shape[-2:])
    labels, distances = nearest_from(x.detach(), sets, None)
    return (labels, distances) if centers.ndim == 3 else (labels[0], distances[0])


def nearest_from(
    x: Tensor, centers: Tensor, origin: Tensor | None, with_distances: bool = True
) -> tuple[Tensor, Tensor]:
    """`nearest` for centres relative to `origin` (d,), which is subtracted from the rows: far from zero, distances
    would lose digits. Without `with_distances` the distances are not computed."""
    if not fused(x):
        return _plain_nearest(x, centers, origin)
    with torch.cuda.device_of(x):  # Triton uses the current device
        return _fused_nearest(x, centers, origin, with_distances)


def member_sums(x: Tensor, labels: Tensor, n_clusters: int, origin: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The sum of the rows of each cluster, each minus `origin`, and their number: (k, d) and (k,); or (s, k, d) and (s,
    k) for several sets of labels (s, n). Deterministic: the same input gives the same bits."""
    x, sets = x.detach(), labels.reshape(-1, labels.shape[-1])
    if fused(x):
        with torch.cuda.device_of(x):
            sums, counts = _fused_sums(x, sets, n_clusters, origin)
    else:
        s, n = sets.shape
        rows = torch.arange(n, device=x.device).repeat(s) if x.ndim == 2 and s > 1 else None
        x = x.reshape(-1, x.shape[-1])
        if s > 1:
            sets = sets + n_clusters * torch.arange(s, device=x.device)[:, None]
        keys = sets.reshape(-1)
        if origin is not None or x.dtype in HALVES:
            x = upcast(x) - (0 if origin is None else origin)
        sums, counts = sums_by_key(x, keys, rows, s * n_clusters)
        sums, counts = sums.view(s, n_clusters, -1), counts.view(s, n_clusters)
    return (sums, counts) if labels.ndim == 2 else (sums[0], counts[0])


def upcast(x: Tensor) -> Tensor:
    return x.float() if x.dtype in HALVES else x


def sums_by_key(x: Tensor, keys: Tensor, rows: Tensor | None, n_keys: int) -> tuple[Tensor, Tensor]:
    """The sum of x[rows] (or of x) for each key, and their number."""
    counts = torch.bincount(keys, minlength=n_keys)
    if x.is_cuda:
        order = keys.argsort(stable=True)
    else:  # numpy has a radix sort for short integers
        short = keys.numpy().astype(np.min_scalar_type(n_keys), copy=False)
        order = torch.from_numpy(short.argsort(kind="stable"))
    places = order if rows is None else rows[order]
    bags = torch.nn.functional.embedding_bag(places, x, counts.cumsum(0) - counts, mode="sum")
    return bags, counts


# ---- plain torch


def parts(n: int, scores: int, d: int) -> list[slice]:
    """Split n rows of d numbers, with `scores` each, into parts that fit into the cache."""
    size = max(64, SCORES_AT_ONCE // (scores + d // 4))  # scores are read more often than rows
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


class Scores:
    """Scores of rows against centres (s, k, d): x·c_j - |c_j|²/2 is largest for the nearest centre.

    Scores of a part overwrite those of the part before, because allocating memory would take as long as the arithmetic.
    With few centres the memory layout is centres by rows, with many it is rows by centres.
    """

    def __init__(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device, rows: int) -> None:
        s, k, _ = shape
        places = torch.arange(k, dtype=dtype, device=device)
        self.counting, self.weights = torch.stack([torch.ones_like(places), places]), places.flip(0)[:, None]
        self.one = torch.ones((), dtype=dtype, device=device)
        self.room = torch.empty(s * k * rows, dtype=dtype, device=device)

    def set(self, centers: Tensor) -> None:
        self.centers = centers
        self.offsets = -centers.square().sum(2) / 2

    def best(self, x: Tensor, with_scores: bool = False) -> tuple[Tensor, Tensor]:
        """The nearest centre of each row (m, d) or (s, m, d), and with `with_scores` its score: (s, m) each."""
        s, k, d = self.centers.shape
        m = x.shape[-2]
        if k > MANY_CENTERS and x.ndim == 2:
            score = self.room[: s * k * m].view(m, s * k)
            torch.addmm(self.offsets.view(s * k), x, self.centers.view(s * k, d).T, out=score)
            score = score.view(m, s, k)
            labels = largest(score.view(m * s, k)).view(m, s)
            return labels.T, score.gather(2, labels[:, :, None])[:, :, 0].T if with_scores else score
        score = self.room[: s * k * m].view(s, k, m)
        if x.ndim == 2:
            torch.addmm(self.offsets.view(s * k, 1), self.centers.view(s * k, d), x.T, out=score.view(s * k, m))
        else:
            torch.baddbmm(self.offsets[:, :, None], self.centers, x.mT, out=score)
        best = score.amax(1)
        marked = score.eq_(best[:, None])
        if FEW_CENTERS < k <= MANY_CENTERS:
            counts, places = torch.matmul(self.counting, marked).unbind(1)  # maxima, and the sum of their places
            if torch.equal(counts, self.one.expand_as(counts)):
                return places, best
        return torch.rsub(marked.mul_(self.weights).amax(1), k - 1), best  # the first maximum


def _plain_nearest(x: Tensor, centers: Tensor, origin: Tensor | None) -> tuple[Tensor, Tensor]:
    s, k, d = centers.shape
    n = x.shape[-2]
    centers = centers.to(torch.promote_types(upcast(x[..., :0, :]).dtype, upcast(centers[:0]).dtype))
    labels = torch.empty(s, n, dtype=torch.long, device=x.device)
    distances = torch.empty(s, n, dtype=centers.dtype, device=x.device)
    every = parts(n, s * k, s * d if x.ndim == 3 else d)
    scores = Scores(centers.shape, centers.dtype, x.device, every[0].stop if every else 0)
    scores.set(centers)
    for part in every:
        z = x[..., part, :].to(centers.dtype)
        z = z if origin is None else z - origin
        found, best = scores.best(z, with_scores=True)
        labels[:, part] = found
        distances[:, part] = (z.square().sum(-1) - 2 * best).clamp_min_(0)
    return labels, distances


# ---- on a GPU, by the kernels in `nearest_kernels`


def _next_power(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def _fused_nearest(x: Tensor, centers: Tensor, origin: Tensor | None, with_distances: bool) -> tuple[Tensor, Tensor]:
    from . import nearest_kernels as kernels

    problems, k, d = centers.shape
    n = x.shape[-2]
    split = x.dtype != torch.float16 or origin is not None
    rows, tile, stages, warps, to_the_end = SPLIT_CONFIG if split else HALF_CONFIG
    tile = min(tile, max(16, _next_power(k)))
    deep = max(16, _next_power(d)) if d <= 128 else 64
    padded, columns = -(-k // tile) * tile, -(-d // deep) * deep
    centers = centers.float().contiguous()
    largest = torch.linalg.vector_norm(centers, torch.inf, dim=(1, 2)).clamp_min_(1e-30)
    high, low = x.new_empty(2, problems, padded, columns, dtype=torch.float16)
    offsets = torch.empty(problems, padded, device=x.device)
    kernels.halve[(padded, problems)](centers, largest, high, low, offsets, k, d, columns, DEEP=_next_power(columns))
    origin = largest if origin is None else origin.contiguous()
    labels = torch.empty(problems, n, dtype=torch.long, device=x.device)
    distances = torch.empty(problems, n if with_distances else 0, device=x.device)
    kernels.nearest[(-(-n // rows), problems)](
        x, high, low, offsets, origin, largest, labels, distances, n, d, x.stride(-2),
        x.stride(0) if x.ndim == 3 else 0, padded, DEEP=deep, WHOLE=columns == deep, SPLIT=split,
        SHIFTED=origin is not largest, DISTANCES=with_distances, WIDE=to_the_end, ROWS=rows, CENTERS=tile,
        STAGES=stages, num_warps=warps,
    )  # fmt: skip
    return labels, distances


def _fused_sums(x: Tensor, labels: Tensor, k: int, origin: Tensor | None) -> tuple[Tensor, Tensor]:
    from . import nearest_kernels as kernels

    problems, n = labels.shape
    d = x.shape[-1]
    deep = min(128, max(16, _next_power(d)))
    clusters = problems * k
    if problems > 1:
        labels = labels + torch.arange(0, clusters, k, device=x.device)[:, None]
    short = torch.uint8 if clusters <= 2**8 else torch.int16 if clusters <= 2**15 else torch.int32
    ordered, order = labels.reshape(-1).to(short).sort(stable=True)
    bounds = torch.searchsorted(ordered.int(), torch.arange(clusters + 1, dtype=torch.int32, device=x.device))
    firsts, counts = bounds[:-1], bounds.diff()
    pieces = (counts + (ROWS_PER_PROGRAM - 1)) // ROWS_PER_PROGRAM
    ends = pieces.cumsum(0)
    most = problems * n // ROWS_PER_PROGRAM + clusters
    owner = torch.searchsorted(ends, torch.arange(most, device=x.device), right=True)
    partial = torch.empty(most, d, device=x.device)
    sums = torch.empty(clusters, d, device=x.device)
    across = -(-d // deep)
    kernels.sum_parts[(most, across)](
        x, order, owner, ends, pieces, firsts, counts, ends if origin is None else origin, partial, n, d, x.stride(-2),
        clusters, SHIFTED=origin is not None, SHARED=x.ndim == 2 and problems > 1, PART=ROWS_PER_PROGRAM,
        ROWS=16, DEEP=deep, num_warps=4,
    )  # fmt: skip
    kernels.fold_parts[(clusters, across)](partial, ends, pieces, sums, d, ROWS=16, DEEP=deep)
    return sums.view(problems, k, d), counts.view(problems, k)
