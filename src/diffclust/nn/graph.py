"""Graphs of samples: Gaussian affinities with scales found from the data, and their Laplacians. Differentiable."""

from typing import Literal

import torch
from torch import Tensor

from .ops import squared_distances

Graph = Literal["knn", "full"]


def affinity(z: Tensor, n_neighbors: int = 5, graph: Graph = "knn") -> Tensor:
    """`W_ij = exp(-|z_i - z_j|² / σ_i)`, symmetrised, zero on the diagonal: (n, d) -> (n, n).

    σ_i is the median of row i's positive squared distances, so that no unit matters. "knn" keeps the `n_neighbors`
    nearest of each row: who is kept is a constant for gradients, the kept weights are not; where they are no more than
    half of the rows, a kept weight is at least 1/(2e). "full" keeps every pair. Rows that are all equal have weight one
    among themselves.
    """
    n = len(z)
    if graph not in ("knn", "full"):
        raise ValueError(f"graph={graph!r} should be 'knn' or 'full'.")
    if graph == "knn" and not 1 <= n_neighbors < n:
        raise ValueError(f"n_neighbors={n_neighbors} should be from 1 to {n - 1}, one less than the {n} rows.")
    z = z - z.detach().mean(0)  # far from the origin distances lose digits
    distances = squared_distances(z, z)
    itself = torch.eye(n, dtype=torch.bool, device=z.device)
    weights = torch.exp(-distances / scales(distances.masked_fill(itself, 0.0)))
    if graph == "knn":
        with torch.no_grad():
            nearest = distances.masked_fill(itself, torch.inf).topk(n_neighbors, largest=False).indices
            kept = torch.zeros_like(distances).scatter_(1, nearest, 1.0)
        weights = weights * kept
    weights = weights.masked_fill(itself, 0.0)
    return (weights + weights.T) / 2


def scales(distances: Tensor) -> Tensor:
    """The median of each row's positive entries, (n, m) -> (n, 1); one where there are none."""
    positive = distances.masked_fill(distances <= 0, torch.nan)
    return torch.nan_to_num(positive.nanmedian(1, keepdim=True).values, nan=1.0)


def laplacian(weights: Tensor, normalized: bool = False) -> Tensor:
    """D - W, or I - D^-½ W D^-½, for symmetric weights (..., n, n); a row without neighbours has zeros."""
    degree = weights.sum(-1)
    if not normalized:
        return torch.diag_embed(degree) - weights
    connected = degree > 0
    scale = torch.where(connected, degree.clamp_min(torch.finfo(degree.dtype).tiny), 1.0).rsqrt()
    scaled = scale[..., :, None] * weights * scale[..., None, :]
    return torch.diag_embed(connected.to(weights.dtype)) - scaled
