"""LSR: least squares regression. Each row is reconstructed from all others, with small squared coefficients.

Lu, Min, Zhao, Zhu, Huang, Yan: "Robust and Efficient Subspace Segmentation via Least Squares Regression", ECCV 2012.
With the rows of X as columns, K = XᵀX::

    min |X - X C|² + λ |C|²,   W = |C| + |C|ᵀ

    LSR2, diag(C) free:   C = (K + λI)^-1 K =: G
    LSR1, diag(C) = 0:    C_ij = G_ij / (1 - G_jj),   since (K + λI)^-1 = (I - G) / λ

From X = U S Vᵀ, rows in U (n, r): G = U S²/(S² + λ) Uᵀ, and no n x n system is solved.
"""

from typing import ClassVar

import torch
from torch import Tensor

from .clusterer import AffinityClusterer, hyperparameters, knob


@hyperparameters
class LSR(AffinityClusterer):
    """Least squares regression for rows near subspaces through the origin.

    Args:
        weight: λ, for rows of unit length.
        zero_diagonal: a row may not be used for itself (LSR1); otherwise it may (LSR2).
    """

    squares: ClassVar[float] = 3

    weight: float = knob(0.01, above=0)
    zero_diagonal: bool = knob(True)

    def coefficients(self, x: Tensor) -> Tensor:
        """C (n, n) of the rows x (n, d)."""
        u, s, _ = torch.linalg.svd(x, full_matrices=False)
        g = (u * (s**2 / (s**2 + self.weight))) @ u.T
        if self.zero_diagonal:
            g /= 1 - g.diagonal()
            g.fill_diagonal_(0)
        return g

    def affinity(self, x: Tensor) -> Tensor:
        """`|C| + |C|ᵀ`."""
        c = self.coefficients(x).abs_()
        return c + c.T
