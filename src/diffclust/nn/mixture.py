"""A cluster layer whose clusters have their own variances and weights: a mixture of diagonal Gaussians."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cluster import ClusterLayer, Start
from .ops import hard, softmax, squared_distances

MIN_VARIANCE = 1e-3  # smallest variance of a component, as a share of the rows' mean variance


class GaussianMixture(ClusterLayer):
    """Rows (b, d) -> p(c | z) (b, k).

    Logits are log π_c + log N(z; μ_c, σ_c²), so that the assignment is their softmax. With α = 1/2 the logits for σ = 1
    are those of `ClusterLayer`, and the weights W are the means μ.
    """

    temperature = 2.0  # 2σ², in units of the components' own variances

    def __init__(self, n_clusters: int, embedding_dim: int) -> None:
        super().__init__(n_clusters, embedding_dim, assignment=softmax, alpha=0.5)
        self.log_variances = nn.Parameter(torch.zeros(n_clusters, embedding_dim))
        self.shares = nn.Parameter(torch.zeros(n_clusters))  # π = softmax(shares), so they always sum to one

    @property
    def log_weights(self) -> Tensor:
        """log π (k,)."""
        return F.log_softmax(self.shares, dim=0)

    def logits(self, z: Tensor) -> Tensor:
        dtype = torch.promote_types(z.dtype, self.weight.dtype)
        z, log_variances = z.to(dtype), self.log_variances.to(dtype)
        apart = (z[:, None] - self.centers.to(dtype)).square() * (-log_variances).exp()  # (b, k, d)
        return self.log_weights.to(dtype) - (apart + log_variances + math.log(2 * math.pi)).sum(2) / 2

    def distances(self, z: Tensor) -> Tensor:
        """`|z_i - μ_j|²`, without the variances."""
        dtype = torch.promote_types(z.dtype, self.weight.dtype)
        return squared_distances(z.to(dtype), self.centers.to(dtype))

    def read_distances(self, z: Tensor, logits: Tensor) -> Tensor:
        return self.distances(z)  # not from the logits, which contain the variances

    @torch.no_grad()
    def place(self, z: Tensor, how: Start = "k-means") -> None:
        super().place(z, how)
        self.fit_(z)

    @torch.no_grad()
    def fit_(self, z: Tensor, *, max_iter: int = 100, tolerance: float = 1e-4) -> None:
        """Expectation-maximisation from the current means; at first each row belongs to the nearest mean."""
        z = z.double()
        floor = MIN_VARIANCE * z.var(0, correction=0).mean().clamp_min(1e-12)
        member, last = hard(-self.distances(z)), -math.inf
        for _ in range(max_iter):
            mass = member.sum(0)[:, None].clamp_min(1e-8)  # (k, 1)
            means = torch.where(mass > 1e-6, member.T @ z / mass, self.centers.double())
            variances = member.T @ z.square() / mass - (member.T @ z / mass).square()
            self.weight.copy_(means)
            self.log_variances.copy_(variances.clamp_min(floor).log())
            self.shares.copy_(mass[:, 0].log())
            logits = self.logits(z)
            member = torch.softmax(logits, dim=1)
            likelihood = logits.logsumexp(1).mean().item()
            if likelihood - last < tolerance:
                break
            last = likelihood
