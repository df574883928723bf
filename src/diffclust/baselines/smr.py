"""SMR: smooth representation, in which rows near each other get similar coefficients.

Hu, Lin, Feng, Zhou: "Smooth Representation Clustering", CVPR 2014. With the rows of X as columns, and the Laplacian L
of the graph of nearest rows, L~ = L + εI::

    min α |X - X Z|² + tr(Z L~ Zᵀ)     that is     α K Z + Z L~ = α K,   K = XᵀX

A Sylvester equation; with K = U Λ Uᵀ and L~ = V Σ Vᵀ::

    Z = U [ α Λ_i (UᵀV)_ij / (α Λ_i + Σ_j) ] Vᵀ,     W_ij = |cos(z_i, z_j)|^γ   for columns z of Z
"""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from .clusterer import AffinityClusterer, hyperparameters, knob
from .cut import degrees, neighbour_graph

EPSILON = 0.01  # ε, as in the authors' code


@hyperparameters
class SMR(AffinityClusterer):
    """Smooth representation clustering.

    Args:
        alpha: α, the weight of the fit, for rows of unit length.
        n_neighbors: number of neighbours in the graph.
        power: γ.
    """

    squares: ClassVar[float] = 5

    alpha: float = knob(20.0, above=0)
    n_neighbors: int = knob(4, low=1)
    power: float = knob(1.0, above=0)

    def laplacian(self, x: Tensor) -> Tensor:
        """L~ (n, n)."""
        w = neighbour_graph(x, self.n_neighbors, 0).to_dense()
        return torch.diag(degrees(w)[:, 0] + EPSILON) - w

    def coefficients(self, x: Tensor) -> Tensor:
        """Z (n, n) of the rows x (n, d)."""
        u, s, _ = torch.linalg.svd(x, full_matrices=False)
        sigma, v = torch.linalg.eigh(self.laplacian(x))
        fit = self.alpha * s[:, None] ** 2
        return u @ ((u.T @ v) * (fit / (fit + sigma))) @ v.T

    def affinity(self, x: Tensor) -> Tensor:
        """`|cos(z_i, z_j)|^γ`."""
        z = F.normalize(self.coefficients(x), dim=0)
        return (z.T @ z).abs_().pow_(self.power)
