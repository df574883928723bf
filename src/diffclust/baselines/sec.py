"""SEC: spectral embedded clustering, whose spectral coordinates are nearly a linear function of the rows.

Nie, Zeng, Tsang, Xu, Zhang: "Spectral Embedded Clustering: A Framework for In-Sample and Out-of-Sample Spectral
Clustering", TNN 2011. With rows X, the normalised Laplacian L of the graph of nearest rows, and FᵀF = I::

    min_{F, V, b} tr(FᵀLF) + μ ( |X V + 1bᵀ - F|² + γ |V|² )

V and b have a closed form, and with the centred rows Xc and the centring H, F has the k smallest eigenvectors of::

    L + μ ( H - Xc (XcᵀXc + γI)^-1 Xcᵀ )

Only products with it are needed, so memory grows linearly with n. The rows of F, scaled to length one, are clustered by
k-means.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..engine.runtime import choose_device
from .clusterer import ClassicalClusterer, Labels, Rows, check_device, hyperparameters, knob
from .cut import degrees, group, inverse_root, neighbour_graph, product, smallest


@hyperparameters
class SEC(ClassicalClusterer):
    """Spectral embedded clustering.

    Args:
        weight: μ, the weight of the linear part; 0 is spectral clustering.
        ridge: γ, times the mean squared length of a centred row.
        n_neighbors: number of neighbours in the graph.
        device: device of the computation: "auto", "cpu", "cuda", ...
    """

    weight: float = knob(1.0, low=0)
    ridge: float = knob(1.0, above=0)
    n_neighbors: int = knob(10, low=1)
    device: str = knob("auto", check=check_device)

    def label(self, X: Rows, seed: int) -> Labels:
        x = torch.from_numpy(X).to(choose_device(self.device))
        return group(F.normalize(self.coordinates(x, seed), dim=1), self.n_clusters, seed)

    def coordinates(self, x: Tensor, seed: int) -> Tensor:
        """F (n, k) of the rows x (n, d)."""
        x = x / x.abs().amax().clamp_min(torch.finfo(x.dtype).tiny)  # so that squares stay finite
        graph = neighbour_graph(x, self.n_neighbors, seed)
        times, scale = product(graph), inverse_root(degrees(graph))
        xc = x - x.mean(0)
        unit = xc.square().sum(1).mean().clamp_min(torch.finfo(x.dtype).tiny)
        gram = xc.T @ xc + self.ridge * unit * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        root = torch.linalg.cholesky(gram)

        def apply(f: Tensor) -> Tensor:
            linear = xc @ torch.cholesky_solve(xc.T @ f, root)
            return f - scale * times(scale * f) + self.weight * (f - f.mean(0) - linear)

        return smallest(apply, len(x), self.n_clusters, seed, like=x)
