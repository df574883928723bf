"""Spectral clustering of a graph, the last step of many methods.

Ng, Jordan, Weiss: "On Spectral Clustering: Analysis and an Algorithm", NeurIPS 2001. With degrees D = diag(W 1)::

    Y = the k smallest eigenvectors of I - D^-½ W D^-½,   its rows scaled to length one,   then k-means

The eigenvectors of a large W are found by descent (`nn.eigenvectors`), which only needs products with W, so that W may
be sparse. Eigenvalues may be equal, as they are if the graph has several components.
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
    """Labels (n,) of k clusters of the graph with the symmetric weights W (n, n), dense or sparse."""
    return group(F.normalize(spectral_embedding(weights, k, seed), dim=1), k, seed)


def group(z: Tensor, k: int, seed: int) -> NDArray[np.int64]:
    """Labels by k-means, the best of ten starts."""
    generator = torch.Generator(z.device).manual_seed(seed)
    return kmeans(z, k, generator=generator).labels.cpu().numpy()


def spectral_embedding(weights: Tensor, k: int, seed: int) -> Tensor:
    """Y (n, k), before its rows are scaled. A row without neighbours is zero."""
    scale = inverse_root(degrees(weights))
    times = product(weights)
    vectors = smallest(lambda y: y - scale * times(scale * y), len(weights), k, seed, like=weights)
    return torch.where(scale > 0, vectors, 0.0)


def product(weights: Tensor) -> Operator:
    """The function Y -> W Y. Sparse weights on a CPU are multiplied by scipy, which is many times faster there."""
    if not weights.is_sparse or weights.device.type != "cpu":
        return lambda y: weights @ y
    matrix = sp.csr_array((weights.values().numpy(), weights.indices().numpy()), shape=weights.shape)
    return lambda y: torch.from_numpy(matrix @ y.numpy())


def degrees(weights: Tensor) -> Tensor:
    """W 1, (n, 1)."""
    return weights @ torch.ones(len(weights), 1, dtype=weights.dtype, device=weights.device)


def inverse_root(degree: Tensor) -> Tensor:
    """d^-½, or 0 if d is 0."""
    return torch.where(degree > 0, degree, torch.inf).rsqrt()


def smallest(apply: Operator, n: int, k: int, seed: int, *, like: Tensor) -> Tensor:
    """The eigenvectors (n, k) of the k smallest eigenvalues of a symmetric matrix. `apply` multiplies with the matrix,
    in the dtype and on the device of `like`."""
    like = torch.empty(0, dtype=like.dtype, device=like.device)
    if n <= max(DENSE_UP_TO, 2 * (k + EXTRA_VECTORS)):
        matrix = apply(torch.eye(n, dtype=like.dtype, device=like.device))
        return torch.linalg.eigh((matrix + matrix.T) / 2).eigenvectors[:, :k]
    start = random_orthonormal(n, k + EXTRA_VECTORS, like=like, seed=seed)
    return smallest_eigenvectors(apply, start=start, max_iter=MAX_ITER, tolerance=1e-4)[1][:, :k]


def neighbour_graph(x: Tensor, n_neighbors: int, seed: int) -> Tensor:
    """W = (A + Aᵀ)/2, sparse: A_ij = 1 if row j is one of the n_neighbors nearest of row i."""
    n = len(x)
    with seeded(seed, x.device):  # with many rows the search uses k-means, which draws random numbers
        near = nearest_neighbours(x, min(n_neighbors, n - 1)).places
    here = torch.arange(n, device=x.device)[:, None].expand_as(near)
    there = torch.stack([torch.cat([here, near]), torch.cat([near, here])]).flatten(1)
    halves = torch.full((there.shape[1],), 0.5, dtype=x.dtype, device=x.device)
    return torch.sparse_coo_tensor(there, halves, (n, n), check_invariants=False).coalesce()
