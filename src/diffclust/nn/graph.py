"""Graphs of samples: Gaussian affinities with scales found from the data, and their Laplacians. Differentiable."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from .ops import squared_distances

Graph = Literal["knn", "full"]

MEDIAN_OF = 256  # number of distances that a median is computed from, about


def affinity(z: Tensor, n_neighbors: int = 5, graph: Graph = "knn") -> Tensor:
    """`W_ij = exp(-|z_i - z_j|² / σ_i)`, symmetrised, zero on the diagonal: (..., n, d) -> (..., n, n).

    σ_i is the median of row i's positive squared distances, so the scale of z does not matter. "knn" keeps the
    `n_neighbors` nearest neighbours of each row: the choice of neighbours is a constant for gradients, their weights
    are not; if they are at most half of the rows, a kept weight is at least 1/(2e). "full" keeps every pair. Rows that
    are all equal have weight one among themselves.
    """
    n = z.shape[-2]
    if graph not in ("knn", "full"):
        raise ValueError(f"graph={graph!r} should be 'knn' or 'full'.")
    if graph == "knn" and not 1 <= n_neighbors < n:
        raise ValueError(f"n_neighbors={n_neighbors} should be from 1 to {n - 1}, one less than the {n} rows.")
    distances = _distances(z, z)
    itself = torch.eye(n, dtype=torch.bool, device=z.device)
    weights = torch.exp(-distances / scales(distances.masked_fill(itself, 0.0)))
    if graph == "knn":
        with torch.no_grad():
            nearest = distances.masked_fill(itself, torch.inf).topk(n_neighbors, largest=False).indices
            kept = torch.zeros_like(distances).scatter_(-1, nearest, 1.0)
        weights = weights * kept
    weights = weights.masked_fill(itself, 0.0)
    return (weights + weights.mT) / 2


class Edges(NamedTuple):
    """Edges from new rows to their nearest known rows: see `attach`."""

    weights: Tensor  # (b, n_neighbors)
    ends: Tensor  # (b, n_neighbors) which known rows

    def extend(self, values: Tensor) -> Tensor:
        """Extend values (m, c) of the known rows to new rows: their weighted mean, which minimises `Σ_j W_j |y -
        y_j|²`. The result for a row does not depend on the other new rows."""
        share = self.weights / self.weights.sum(1, keepdim=True)
        return (share[..., None] * values[self.ends]).sum(1)

    def energy(self, y: Tensor, values: Tensor) -> Tensor:
        """`Σ_j W_j |y_i - y_j|²` of each new row (b,): what it adds to tr(YᵀLY)."""
        return (self.weights * (y[:, None] - values[self.ends]).square().sum(2)).sum(1)


def attach(z: Tensor, known: Tensor, n_neighbors: int = 5) -> Edges:
    """`W_ij = exp(-|z_i - z_j|² / σ_i)` from each new row (b, d) to its nearest known rows (m, d); σ_i is the median of
    its positive squared distances to all known rows."""
    distances = _distances(z, known)
    nearest = distances.topk(min(n_neighbors, len(known)), largest=False)
    return Edges(torch.exp(-nearest.values / scales(distances)), nearest.indices)


def _distances(z: Tensor, known: Tensor) -> Tensor:
    """Squared distances (..., b, m), after subtracting the mean of the known rows: far from zero they would lose
    digits."""
    if z.ndim > 2:
        return torch.vmap(_distances)(z, known)
    middle = known.detach().mean(0)
    return squared_distances(z - middle, known - middle)


def scales(distances: Tensor) -> Tensor:
    """The median of each row's positive entries, (..., n, m) -> (..., n, 1); one if there are none. With more than
    twice 256 entries, the median of about 256 evenly spaced ones."""
    distances = distances[..., :: max(1, distances.shape[-1] // MEDIAN_OF)]
    positive = distances > 0
    ordered = distances.masked_fill(~positive, torch.inf).sort(-1).values  # `median` has no fixed order on a GPU
    middle = ordered.gather(-1, (positive.sum(-1, keepdim=True) - 1).clamp_min(0) // 2)
    return middle.masked_fill(middle.isinf(), 1.0)


def laplacian(weights: Tensor, normalized: bool = False) -> Tensor:
    """D - W, or I - D^-½ W D^-½, for symmetric weights (..., n, n); a row without neighbours has zeros."""
    degree = weights.sum(-1)
    if not normalized:
        return torch.diag_embed(degree) - weights
    connected = degree > 0
    scale = torch.where(connected, degree.clamp_min(torch.finfo(degree.dtype).tiny), 1.0).rsqrt()
    scaled = scale[..., :, None] * weights * scale[..., None, :]
    return torch.diag_embed(connected.to(weights.dtype)) - scaled
