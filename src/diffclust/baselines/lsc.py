"""LSC: spectral clustering with landmarks.

Chen, Cai: "Large Scale Spectral Clustering with Landmark-Based Representation", AAAI 2011. Each row is a combination of
its r nearest of p landmarks u, which are rows drawn at random (LSC-R) or the centres of a short k-means (LSC-K)::

    z_ij = K(x_i, u_j) / Σ_l K(x_i, u_l),   over the r nearest,   K(x, u) = exp(-|x - u|² / 2h²)
    Z^ = Z D^-½,   D = diag(Zᵀ1)

The graph of rows is W = Z^ Z^ᵀ, whose degrees are one: its eigenvectors are the left singular vectors of Z^ (n, p),
found from a p x p matrix. The rows of the first k, scaled to length one, are clustered by k-means. Time and
memory grow with n p.
"""

from typing import Literal

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from ..engine.runtime import choose_device
from ..nn.kmeans import lloyd
from .clusterer import ClassicalClusterer, Labels, Rows, check_device, hyperparameters, knob
from .cut import group

DISTANCES_AT_ONCE = 2**24  # distances computed at a time
KMEANS_STEPS = 5  # of the k-means that finds landmarks, as in the authors' code


@hyperparameters
class LSC(ClassicalClusterer):
    """Landmark-based spectral clustering.

    Args:
        landmarks: "kmeans" centres (LSC-K) or "random" rows (LSC-R).
        n_landmarks: p; at most the number of rows.
        n_neighbors: r.
        device: device of the computation: "auto", "cpu", "cuda", ...
    """

    landmarks: Literal["kmeans", "random"] = knob("kmeans")
    n_landmarks: int = knob(1000, low=1)
    n_neighbors: int = knob(5, low=1)
    device: str = knob("auto", check=check_device)

    def needs(self, n: int) -> float:
        """Bytes for rows and landmarks."""
        p = min(n, self.n_landmarks)
        return 16 * p**2 + 16 * n * min(p, self.n_neighbors)

    def label(self, X: Rows, seed: int) -> Labels:
        # distances to landmarks are only compared, so single precision is enough
        X = X / max(np.abs(X).max(), np.finfo(X.dtype).tiny)  # no overflow in float32
        x = torch.from_numpy(np.asarray(X - X.mean(0), np.float32)).to(choose_device(self.device))
        landmarks = self.choose(x, seed)
        z = codes(x, landmarks, min(self.n_neighbors, len(landmarks)))
        vectors = torch.from_numpy(left_singular_vectors(z, min(self.n_clusters, len(landmarks))))
        return group(F.normalize(vectors, dim=1), self.n_clusters, seed)

    def choose(self, x: Tensor, seed: int) -> Tensor:
        """The landmarks (p, d) of the rows x (n, d)."""
        p = min(self.n_landmarks, len(x))
        drawn = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:p].to(x.device)]
        return drawn if self.landmarks == "random" else lloyd(x, drawn, max_iter=KMEANS_STEPS).centers


def codes(x: Tensor, landmarks: Tensor, r: int) -> sp.csr_array:
    """Z (n, p), with r nonzero entries per row; h is the mean distance to the r nearest landmarks."""
    near = [
        torch.cdist(part, landmarks).topk(r, largest=False)
        for part in x.split(max(1, DISTANCES_AT_ONCE // len(landmarks)))
    ]
    distance = torch.cat([each.values for each in near]).double()
    places = torch.cat([each.indices for each in near]).cpu().numpy()
    width = distance.mean().clamp_min(torch.finfo(x.dtype).tiny)
    values = torch.softmax(-(distance**2) / (2 * width**2), dim=1).cpu().numpy()
    starts = np.arange(0, len(x) * r + 1, r)
    return sp.csr_array((values.ravel(), places.ravel(), starts), shape=(len(x), len(landmarks)))


def left_singular_vectors(z: sp.csr_array, k: int) -> np.ndarray:
    """The first k left singular vectors of Z D^-½, (n, k)."""
    degree = np.asarray(z.sum(0)).ravel()
    scaled = z @ sp.diags_array(1 / np.sqrt(np.where(degree > 0, degree, np.inf)))
    values, right = np.linalg.eigh((scaled.T @ scaled).toarray())
    largest = np.maximum(values[::-1][:k], np.finfo(float).tiny)
    return scaled @ right[:, ::-1][:, :k] / np.sqrt(largest)
