"""Merge clusters that have no density valley between them, small ones first.

Joining clusters i and j costs `Δ_ij / v_ij`. Δ_ij is what it adds to the sum of squared distances (Ward: see
`nn.hierarchy`), and v_ij the density of rows half way between them as a share of that at their means (see `valley`):
parts of one cluster touch, so that v is about one, and two clusters have a valley between them. Ward's rule alone joins
two clusters that are near before it joins two parts of a long one; density alone follows chains.
"""

import torch
from torch import Tensor

from .n_clusters import valley
from .ops import one_hot, squared_distances


@torch.no_grad()
def merge_clusters(z: Tensor, labels: Tensor, n_clusters: int, wanted: int) -> Tensor:
    """The labels (n,) of rows z (n, d) after merging `n_clusters` clusters into `wanted`, always the cheapest two;
    empty ones first. Merged clusters are numbered in order of their first one."""
    number = torch.arange(n_clusters, device=z.device)  # the current number of each original cluster
    for k in range(n_clusters, wanted, -1):
        member = one_hot(number[labels], k).to(z)
        size = member.sum(0)
        means = member.T @ z / size.clamp_min(1)[:, None]
        ward = size[:, None] * size / (size[:, None] + size).clamp_min(1) * squared_distances(means, means)
        cost = ward / valley(z, number[labels], k).clamp_min(torch.finfo(z.dtype).tiny)
        i, j = sorted(divmod(int(cost.fill_diagonal_(torch.inf).argmin()), k))
        number = torch.where(number == j, i, number)
        number = torch.where(number > j, number - 1, number)
    return number[labels]
