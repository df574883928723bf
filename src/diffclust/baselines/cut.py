"""Spectral clustering of a graph, the last step of many methods.

Ng, Jordan, Weiss: "On Spectral Clustering: Analysis and an Algorithm", NeurIPS 2001. With degrees D = diag(W 1)::

    Y = the k smallest eigenvectors of I - D^-½ W D^-½,   its rows brought to unit length,   then k-means

The eigenvectors are found by descent (`nn.eigenvectors`), which only multiplies with W: dense or sparse, on any device,
and eigenvalues may be equal, as they are where the graph falls apart.
"""

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..engine.runtime import seeded
from ..nn.eigenvectors import Operator, random_orthonormal, smallest_eigenvectors
from ..nn.kmeans import kmeans
from ..nn.neighbours import nearest_neighbours

DENSE_UP_TO = 800  # rows up to which all eigenvectors are computed, by a dense solver
EXTRA_VECTORS = 4  # vectors iterated beside the k, so that these converge sooner
MAX_ITER = 600  # of the iteration for the smallest eigenvectors


def cut(weights: Tensor, k: int, seed: int) -> NDArray[np.int64]:
    """k clusters of the graph of symmetric weights (n, n), dense or sparse."""
    return group(F.normalize(spectral_embedding(weights, k, seed), dim=1), k, seed)


def group(z: Tensor, k: int, seed: int) -> NDArray[np.int64]:
    """k-means, the best of ten starts."""
    generator = torch.Generator(z.device).manual_seed(seed)
    return kmeans(z, k, generator=generator).labels.cpu().numpy()


def spectral_embedding(weights: Tensor, k: int, seed: int) -> Tensor:
    """Y (n, k). A row without neighbours has zeros."""
    scale = inverse_root(degrees(weights))
    times = product(weights)
    vectors = smallest(lambda y: y - scale * times(scale * y), len(weights), k, seed, like=weights)
    return torch.where(scale > 0, vectors, 0.0)


def product(weights: Tensor) -> Operator:
    """Y -> W Y. Of sparse weights on a CPU by scipy, which is many times faster there."""
    if not weights.is_sparse or weights.device.type != "cpu":
        return lambda y: weights @ y
    matrix = sp.csr_array((weights.values().numpy(), weights.indices().numpy()), shape=weights.shape)
    return lambda y: torch.from_numpy(matrix @ y.numpy())


def degrees(weights: Tensor) -> Tensor:
    """W 1, (n, 1)."""
    return weights @ torch.ones(len(weights), 1, dtype=weights.dtype, device=weights.device)


def inverse_root(degree: Tensor) -> Tensor:
    """d^-½, and 0 of 0."""
    return torch.where(degree > 0, degree, torch.inf).rsqrt()


def smallest(apply: Operator, n: int, k: int, seed: int, *, like: Tensor) -> Tensor:
    """The k smallest eigenvectors (n, k) of a symmetric matrix, given by its products with tensors of like's kind."""
    like = torch.empty(0, dtype=like.dtype, device=like.device)
    if n <= max(DENSE_UP_TO, 2 * (k + EXTRA_VECTORS)):
        matrix = apply(torch.eye(n, dtype=like.dtype, device=like.device))
        return torch.linalg.eigh((matrix + matrix.T) / 2).eigenvectors[:, :k]
    start = random_orthonormal(n, k + EXTRA_VECTORS, like=like, seed=seed)
    return smallest_eigenvectors(apply, start=start, max_iter=MAX_ITER, tolerance=1e-4)[1][:, :k]


def neighbour_graph(x: Tensor, n_neighbors: int, seed: int) -> Tensor:
    """W = (A + Aᵀ)/2, sparse, with A_ij = 1 where row j is among the nearest of row i; all the others, where there are
    fewer."""
    n = len(x)
    with seeded(seed, x.device):  # rows of large data are sorted into cells by k-means
        near = nearest_neighbours(x, min(n_neighbors, n - 1)).places
    here = torch.arange(n, device=x.device)[:, None].expand_as(near)
    there = torch.stack([torch.cat([here, near]), torch.cat([near, here])]).flatten(1)
    halves = torch.full((there.shape[1],), 0.5, dtype=x.dtype, device=x.device)
    return torch.sparse_coo_tensor(there, halves, (n, n), check_invariants=False).coalesce()
