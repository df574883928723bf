"""LRR: low rank representation, robust against outliers.

Liu, Lin, Yan, Sun, Yu, Ma: "Robust Recovery of Subspace Structures by Low-Rank Representation", TPAMI 2013. With the
rows of X as columns::

    min |Z|_* + λ |E|_{2,1}   such that   X = X Z + E

by the inexact method of augmented Lagrange multipliers. With X = P S Qᵀ the solution is Z = Q Z~, and in the
coordinates P the problem has r x n instead of n x n unknowns::

    min |Z~|_* + λ |E|_{2,1}   such that   S Qᵀ = S Z~ + E

    J  <- singular values of Z~ + Y2/μ, less 1/μ
    Z~ <- (I + S²)^-1 (S (S Qᵀ - E) + J + (S Y1 - Y2)/μ)
    E  <- columns of S Qᵀ - S Z~ + Y1/μ, shorter by λ/μ
    Y1 += μ (S Qᵀ - S Z~ - E),   Y2 += μ (Z~ - J),   μ *= ρ

From Z = U Σ Vᵀ, M = U Σ^½ with rows of unit length: W_ij = (M Mᵀ)_ij².
"""

import warnings
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from .clusterer import AffinityClusterer, hyperparameters, knob

FIRST, LAST, FACTOR = 1e-2, 1e6, 1.05  # of μ: its first and its largest value, and ρ


class Solution(NamedTuple):
    """Z = Q Z~ by its factors, and what is needed to check that it is optimal."""

    q: Tensor  # (n, r)
    z: Tensor  # Z~ (r, n)
    e: Tensor  # E (r, n), in the coordinates P
    y: Tensor  # Y1 (r, n), the multiplier of the constraint
    s: Tensor  # (r,)
    n_iter: int
    gap: float  # the largest absolute value of the residuals of the constraints


@hyperparameters
class LRR(AffinityClusterer):
    """Low rank representation.

    Args:
        weight: λ, the weight of the errors, for rows of unit length. A smaller value treats more rows as outliers.
        max_iter: maximal number of iterations.
        tol: stop when all constraints hold up to this error.
    """

    squares: ClassVar[float] = 2

    weight: float = knob(0.3, above=0)
    max_iter: int = knob(500, low=1)
    tol: float = knob(1e-6, above=0)

    def affinity(self, x: Tensor) -> Tensor:
        """W_ij = (M Mᵀ)_ij²."""
        found = low_rank_representation(x, self.weight, self.max_iter, self.tol)
        self.n_iter_ = found.n_iter
        if found.gap > self.tol:
            warnings.warn(
                f"LRR did not converge in max_iter={self.max_iter}: it misses its constraints by {found.gap:.2g}, "
                f"tol={self.tol:g}.",
                ConvergenceWarning,
                stacklevel=2,
            )
        u, s, _ = torch.linalg.svd(found.z, full_matrices=False)
        m = F.normalize((found.q @ u) * s.sqrt(), dim=1)
        return (m @ m.T).square_()


def low_rank_representation(x: Tensor, weight: float, max_iter: int = 500, tol: float = 1e-6) -> Solution:
    """The solution for the rows x (n, d)."""
    q, s, _ = torch.linalg.svd(x, full_matrices=False)
    kept = s > 1e-10 * s[0].clamp_min(torch.finfo(s.dtype).tiny)
    q, s = q[:, kept], s[kept]
    data, a = s[:, None] * q.T, s[:, None]
    z = e = y1 = y2 = torch.zeros_like(data)
    mu, gap, n_iter = FIRST, float("inf"), 0
    while n_iter < max_iter and gap > tol:
        j = shrink_spectrum(z + y2 / mu, 1 / mu)
        z = (a * (data - e) + j + (a * y1 - y2) / mu) / (1 + a**2)
        e = shrink_columns(data - a * z + y1 / mu, weight / mu)
        missed, split = data - a * z - e, z - j
        y1, y2 = y1 + mu * missed, y2 + mu * split
        gap = max(missed.abs().max().item(), split.abs().max().item()) if data.numel() else 0.0
        mu, n_iter = min(mu * FACTOR, LAST), n_iter + 1
    return Solution(q, z, e, y1, s, n_iter, gap)


def shrink_spectrum(m: Tensor, by: float) -> Tensor:
    """A matrix (r, n) with few rows, its singular values s replaced by max(0, s - by)."""
    squared, u = torch.linalg.eigh(m @ m.T)
    s = squared.clamp_min(torch.finfo(m.dtype).tiny).sqrt()
    return (u * (1 - by / s).clamp_min(0)) @ (u.T @ m)


def shrink_columns(m: Tensor, by: float) -> Tensor:
    """The columns, their lengths l replaced by max(0, l - by)."""
    length = m.norm(dim=0).clamp_min(torch.finfo(m.dtype).tiny)
    return m * (1 - by / length).clamp_min(0)
