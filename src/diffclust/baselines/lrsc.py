"""LRSC: low rank subspace clustering, in closed form.

Vidal, Favaro: "Low Rank Subspace Clustering", Pattern Recognition Letters 2014, for noisy data (their problem P3).
With the rows of X as columns::

    min |C|_* + τ/2 |X - X C|²,   W = |C| + |C|ᵀ
    C = U max(0, 1 - 1/(τ S²)) Uᵀ,   X = U S Vᵀ with rows in U

so directions whose squared singular value is below 1/τ are dropped, and the others shrink.
"""

from typing import ClassVar

import torch
from torch import Tensor

from .clusterer import AffinityClusterer, hyperparameters, knob


@hyperparameters
class LRSC(AffinityClusterer):
    """Low rank subspace clustering.

    Args:
        tau: τ, the weight of the fit, for rows of unit length. A larger value keeps more directions.
    """

    squares: ClassVar[float] = 3

    tau: float = knob(1.0, above=0)

    def coefficients(self, x: Tensor) -> Tensor:
        """C (n, n) of the rows x (n, d)."""
        u, s, _ = torch.linalg.svd(x, full_matrices=False)
        kept = s**2 * self.tau > 1
        u, s = u[:, kept], s[kept]
        return (u * (1 - 1 / (self.tau * s**2))) @ u.T

    def affinity(self, x: Tensor) -> Tensor:
        """`|C| + |C|ᵀ = 2 |C|`, because C is symmetric."""
        return 2 * self.coefficients(x).abs_()
