"""The intrinsic dimension of rows.

Levina, Bickel: "Maximum Likelihood Estimation of Intrinsic Dimension", NeurIPS 2004, averaged as MacKay and Ghahramani
proposed (2005). If rows fill a space of m dimensions, the number of rows within a distance r of one grows as r^m.
For the k nearest neighbours of row i, at distances d_i1 <= ... <= d_ik, this gives::

    1 / m = mean_i  1 / (k - 1) Σ_j<k log(d_ik / d_ij)
"""

import torch
from torch import Tensor

OVERSAMPLING = 4  # times as many candidates as neighbours: matrix products order them only up to rounding


@torch.no_grad()
def local_dimension(x: Tensor, some: Tensor, n_neighbors: int = 5) -> float:
    """The estimate of m from the rows at the positions `some` among all rows x (n, d). Duplicates are skipped; infinity
    if no row has `n_neighbors` neighbours at different positions."""
    if len(x) <= n_neighbors:
        return torch.inf
    x = x - x.mean(0)  # far from zero, distances lose digits
    near = torch.addmm(x.square().sum(1), x[some], x.T, alpha=-2)
    near = near.topk(min(OVERSAMPLING * n_neighbors, len(x)), largest=False).indices
    squared = (x[near] - x[some, None]).square().sum(2)
    squared = squared.where(squared > 0, torch.inf)  # the row itself, too
    nearest = squared.topk(n_neighbors, largest=False).values
    nearest = nearest[nearest[:, -1].isfinite()]
    ratio = (nearest[:, -1:] / nearest[:, :-1]).log().double() / 2
    return 1 / ratio.mean().item() if ratio.numel() and bool((ratio > 0).any()) else torch.inf
