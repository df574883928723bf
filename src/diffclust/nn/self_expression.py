"""Sparse self-expression: every row as a combination of few others. The solution is exact, also for many rows.

For unit-length rows x_i and a weight λ_i::

    c_i = argmin_c ½ |x_i - Σ_j c_j x_j|² + λ_i |c|_1,   c_ii = 0

is solved on a small set of candidates by coordinate descent. Then rows that violate the optimality condition `|x_j · r|
<= λ_i`, r the residual, are added to the candidates, and this is repeated until there are none (You, Li, Robinson,
Vidal: Oracle Based Active Set Algorithm for Scalable Elastic Net Subspace Clustering, 2016). Blocks of rows are solved
together on the device; memory is O(block · n), never O(n²).
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

NEW_CANDIDATES = 48  # candidates that are added per round
MAX_ROUNDS = 20  # largest number of rounds; two to five are usual
MAX_SWEEPS = 100  # largest number of passes over the candidates per round
MAX_BLOCK_VALUES = 2**26  # values a block of rows may hold: correlations, candidates, their products


class SelfExpression(NamedTuple):
    """The nonzero entries of C, and the number of rows that were not solved exactly."""

    rows: Tensor  # (nnz,) i
    columns: Tensor  # (nnz,) j
    values: Tensor  # (nnz,) c_ij
    unfinished: int  # rows that violated the optimality condition after the last round


@torch.no_grad()
def self_expression(x: Tensor, alpha: float, tolerance: float = 1e-2) -> SelfExpression:
    """The coefficients of all rows of x (n, d), which have length one or zero.

    `λ_i = max_{j≠i} |x_i · x_j| / α`: with α <= 1 every coefficient is zero, and the larger it is, the closer the fit
    (Elhamifar and Vidal, 2013). A row that is orthogonal to all others, or zero, has no coefficients.
    """
    if not alpha > 1:
        raise ValueError(f"alpha={alpha} should be > 1: otherwise no row has any coefficient.")
    n, d = x.shape
    width = min(n - 1, 4 * NEW_CANDIDATES)
    size = max(1, min(n, MAX_BLOCK_VALUES // max(n, width * max(d, width))))
    parts = [_solve_block(x, block, alpha, tolerance) for block in torch.arange(n, device=x.device).split(size)]
    rows, columns, values, unfinished = zip(*parts, strict=True)
    return SelfExpression(torch.cat(rows), torch.cat(columns), torch.cat(values), sum(unfinished))


def _solve_block(x: Tensor, block: Tensor, alpha: float, tolerance: float) -> SelfExpression:
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    target = x[block]
    correlation = _correlations(x, target, block)
    weight = correlation.amax(1, keepdim=True) / alpha  # λ_i
    candidates, c = block[:, None][:, :0], target[:, :0]  # none yet
    for _ in range(MAX_ROUNDS):
        candidates, c = _join(correlation, candidates, c)
        atoms = x[candidates]  # (b, m, d)
        c = _coordinate_descent(atoms @ atoms.mT, (atoms @ target[..., None])[..., 0], weight, c, tolerance)
        correlation = _correlations(x, target - (c[:, None] @ atoms)[:, 0], block)
        broken = correlation.amax(1) > (1 + tolerance) * weight[:, 0] + torch.finfo(x.dtype).eps
        found.append(_entries(block[~broken], candidates[~broken], c[~broken]))
        block, target, weight, candidates, c = (v[broken] for v in (block, target, weight, candidates, c))
        if len(block) == 0:
            break
        correlation = correlation[broken]
    found.append(_entries(block, candidates, c))
    rows, columns, values = (torch.cat(part) for part in zip(*found, strict=True))
    return SelfExpression(rows, columns, values, len(block))


def _correlations(x: Tensor, residual: Tensor, block: Tensor) -> Tensor:
    """`|x_j · r_i|`, (b, n), with a negative value for the row itself."""
    return (residual @ x.T).abs_().scatter_(1, block[:, None], -1.0)


def _join(correlation: Tensor, candidates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The candidates in use, the rows that correlate most with the residual, and the coefficients of all of them."""
    used = int((c != 0).sum(1).amax()) if c.numel() else 0
    wanted = min(used + NEW_CANDIDATES, correlation.shape[1] - 1)
    largest = correlation.amax(1, keepdim=True)
    score = correlation.scatter_add(1, candidates, (c != 0) * (2 * largest + 1))  # candidates in use come first
    chosen = score.topk(wanted, dim=1).indices
    known = torch.zeros_like(correlation).scatter_(1, candidates, c)
    return chosen, known.gather(1, chosen)


def _coordinate_descent(gram: Tensor, q: Tensor, weight: Tensor, c: Tensor, tolerance: float) -> Tensor:
    """argmin ½ cᵀGc - qᵀc + λ|c|_1 for a batch: G (b, m, m) with ones on its diagonal, q, c (b, m), λ (b, 1). A sweep
    over all coordinates alternates with many sweeps over those that are not zero, which are few."""
    scale = torch.where(weight > 0, weight, 1.0)  # in units of λ, which is then one; if λ is zero, so is q
    q, c = q / scale, c / scale
    for _ in range(MAX_SWEEPS):
        c, settled = _sweep(gram, q, c, 0.1 * tolerance, times=1)
        if settled:
            break
        few = int((c != 0).sum(1).amax())
        support = (c != 0).to(c.dtype).topk(few, dim=1).indices
        wide = support[..., None].expand(-1, -1, gram.shape[2])
        inner = gram.gather(1, wide).gather(2, support[:, None].expand(-1, few, -1))
        part, _ = _sweep(inner, q.gather(1, support), c.gather(1, support), 0.1 * tolerance, times=MAX_SWEEPS)
        c = c.scatter(1, support, part)
    return c * scale


def _sweep(gram: Tensor, q: Tensor, c: Tensor, limit: float, times: int) -> tuple[Tensor, bool]:
    """Sweeps over all coordinates with λ = 1, and whether none of them changed by more than `limit`."""
    slope = (q - (gram @ c[..., None])[..., 0]).T.contiguous()  # negative gradient of the smooth part: (m, b)
    c = c.T.contiguous()
    parts = list(zip(slope, c, gram.permute(1, 2, 0).contiguous(), strict=True))
    settled = False
    for _ in range(times):
        before = c.clone()
        for downhill, own, column in parts:
            change = F.softshrink(downhill + own, 1.0).sub_(own)
            own.add_(change)
            slope.addcmul_(column, change, value=-1)
        settled = bool(((c - before).abs() <= limit).all())
        if settled:
            break
    return c.T.contiguous(), settled


def _entries(rows: Tensor, candidates: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    used = c != 0
    return rows[:, None].expand_as(c)[used], candidates[used], c[used]
