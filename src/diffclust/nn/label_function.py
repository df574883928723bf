"""Labels of many batches from one cluster layer.

Labels are argmax_j W_j·z + b_j in float64, because the last bits of narrow float32 products depend on a row's place in
the batch. On a CPU logits are computed in float32 first, and in float64 where rounding could change a label.
"""

import functools
import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .ops import largest

if TYPE_CHECKING:
    from .cluster import ClusterLayer

FLOAT32_FROM = 256  # rows in a batch, from which trying float32 first is faster
COUNT_BY_MATMUL_UP_TO = 256  # clusters: whole numbers up to here are exact in matrix products, in bfloat16 too


class LabelFunction:
    """Labels (b,) of normalised rows (b, d); -1 if a logit is NaN. What depends on the weights is computed once.

    Args:
        linear: the logits are the layer's own linear ones, so that float32 logits can be bounded.
    """

    def __init__(self, clusters: "ClusterLayer", *, linear: bool) -> None:
        self.clusters, weight = clusters, clusters.weight
        self.try_float32 = linear and weight.dtype == torch.float32 and weight.device.type == "cpu"
        self.batch_size = 0  # of the buffers

    @torch.no_grad()
    def __call__(self, z: Tensor) -> Tensor:
        if not self.try_float32 or z.shape[0] < FLOAT32_FROM or z.dtype != torch.float32:
            return self._in_float64(z)
        labels, certain = self._in_float32(z)
        if certain is not None:
            doubtful = (~certain).nonzero()[:, 0]
            labels[doubtful] = self._in_float64(z[doubtful])
        return labels

    def _in_float64(self, z: Tensor) -> Tensor:
        logits = self.clusters.logits(z.double())
        labels = largest(logits)
        if logits.device.type == "cpu" and math.isfinite(logits.sum().item()):  # then all logits are finite
            return labels
        return labels.where(logits.gather(1, labels[:, None])[:, 0].isfinite(), -1)

    def _in_float32(self, z: Tensor) -> tuple[Tensor, Tensor | None]:
        """The label of each row by float32 logits, and whether rounding cannot change it; None if all are certain."""
        rows, d = z.shape
        if self.batch_size != rows:
            self._prepare(rows)
        logits = torch.addmm(self.bias, self.weight, z.T, out=self.logits)  # (k, b); from here on memory bound
        farthest = max(-z.amin().item(), z.amax().item())  # twice as fast as torch.aminmax
        # Σ_d |W_jd z_id| + |b_j| at most; each of two logits is off by (d + 2) / 2 times eps of it
        rounding = (d + 4) * torch.finfo(z.dtype).eps * (self.max_weight * farthest + self.max_bias)
        candidates = logits.ge_(logits.amax(0).sub_(rounding))  # 1 for each logit that may be the largest
        if self.counts is not None:
            torch.mm(self.counting, candidates, out=self.counts)
            count, labels = self.counts[0], self.counts[1]
        else:
            count, labels = candidates.sum(0), candidates.mul_(self.counting[1][:, None]).amax(0)
        return labels.long(), None if torch.equal(count, self.ones) else count == 1

    def _prepare(self, rows: int) -> None:
        clusters, self.batch_size = self.clusters, rows
        self.weight, k = clusters.weight.detach(), clusters.weight.shape[0]
        bias = torch.full((k,), -clusters.alpha) if clusters.sphere else clusters.bias
        if bias is None:
            bias = (-self.weight.double().square().sum(1) / (4 * clusters.alpha)).float()
        self.bias = bias.detach()[:, None]
        self.max_weight, self.max_bias = self.weight.abs().sum(1).max().item(), self.bias.abs().max().item()
        self.counting, self.ones = _counting(k), _ones(rows)
        self.logits = torch.empty(k, rows)  # fresh memory for every batch would cost as much as the arithmetic
        self.counts = torch.empty(2, rows) if k <= COUNT_BY_MATMUL_UP_TO else None


@functools.lru_cache(16)
def _counting(k: int) -> Tensor:
    """(2, k): ones, and 0 to k - 1. Times a mask (k, b) it counts the marked entries of a column, and adds up their
    indices: of a single one, that is its index."""
    numbers = torch.arange(k, dtype=torch.float32, device="cpu")
    return torch.stack([torch.ones_like(numbers), numbers])


@functools.lru_cache(16)
def _ones(n: int) -> Tensor:
    return torch.ones(n, dtype=torch.float32, device="cpu")
