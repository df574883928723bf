"""NMF: non-negative matrix factorisation, and NMF-LP, in which rows near each other get similar codes.

`NMF`: Xu, Liu, Gong: "Document Clustering Based on Non-negative Matrix Factorization", SIGIR 2003. Of rows X >= 0::

    min |X - V H|²,   V >= 0 (n, k),  H >= 0 (k, d);     label = argmax_j V_ij |h_j|

`NMFLP`: Cai, He, Han: "Locally Consistent Concept Factorization for Document Clustering", TKDE 2011. The parts are sums
of rows, H = WᵀX, and L = D - S is the Laplacian of the graph S of nearest rows. With K = X Xᵀ::

    min |X - V WᵀX|² + λ tr(VᵀLV)
    W <- W * (K V) / (K W VᵀV),     V <- V * (K W + λ S V) / (V WᵀK W + λ D V)

Neither update increases the objective. Only products with K are needed, so memory grows linearly with n.
"""

import warnings
from typing import ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from sklearn import decomposition
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from ..engine.runtime import choose_device
from ..methods.ssc import unit_length
from .clusterer import ClassicalClusterer, Labels, Rows, check_device, hyperparameters, knob
from .cut import degrees, group, neighbour_graph

SOFTENING = 0.2  # added to the k-means memberships at the start: an entry that is zero would stay zero


@hyperparameters
class NMF(ClassicalClusterer):
    """Non-negative matrix factorisation.

    Args:
        max_iter: maximal number of iterations.
    """

    signed: ClassVar[bool] = False

    max_iter: int = knob(500, low=1)

    def label(self, X: Rows, seed: int) -> Labels:
        scale = X.max() or 1.0
        factors = decomposition.NMF(self.n_clusters, max_iter=self.max_iter, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the labels stop changing long before the factors do
            v = factors.fit_transform(X / scale)
        self.n_iter_ = factors.n_iter_
        self.components_ = scale * factors.components_
        return (v * np.linalg.norm(factors.components_, axis=1)).argmax(1)


class Factors(NamedTuple):
    w: Tensor  # (n, k)
    v: Tensor  # (n, k)


@hyperparameters
class NMFLP(ClassicalClusterer):
    """Locally consistent concept factorisation, of rows scaled to length one, from a k-means start.

    Args:
        weight: λ, the weight of the graph.
        n_neighbors: number of neighbours in the graph.
        max_iter: number of iterations.
        device: device of the computation: "auto", "cpu", "cuda", ...
    """

    signed: ClassVar[bool] = False

    weight: float = knob(100.0, low=0)
    n_neighbors: int = knob(5, low=1)
    max_iter: int = knob(200, low=1)
    device: str = knob("auto", check=check_device)

    def label(self, X: Rows, seed: int) -> Labels:
        x = unit_length(torch.from_numpy(X).to(choose_device(self.device)))
        graph = neighbour_graph(x, self.n_neighbors, seed)
        factors = self.start(x, seed)
        for _ in range(self.max_iter):
            factors = step(x, graph, factors, self.weight)
        self.n_iter_ = self.max_iter
        w, v = factors
        length = (x.T @ w).norm(dim=0)  # of the parts: scaling w up and v down would not change the product
        return (v * length).argmax(1).cpu().numpy()

    def start(self, x: Tensor, seed: int) -> Factors:
        """W and V from k-means: W gives the means of the clusters, V the softened memberships."""
        member = (
            F.one_hot(torch.from_numpy(group(x, self.n_clusters, seed)).to(x.device), self.n_clusters).to(x) + SOFTENING
        )
        return Factors(member / member.sum(0), member)


def step(x: Tensor, graph: Tensor, factors: Factors, weight: float) -> Factors:
    """Both updates, with 0 / 0 = 0."""
    w, v = factors
    tiny = torch.finfo(x.dtype).tiny
    w = w * (x @ (x.T @ v)) / (x @ (x.T @ w) @ (v.T @ v)).clamp_min(tiny)
    kw = x @ (x.T @ w)
    up, down = kw + weight * (graph @ v), v @ (w.T @ kw) + weight * degrees(graph) * v
    return Factors(w, v * up / down.clamp_min(tiny))


def objective(x: Tensor, graph: Tensor, factors: Factors, weight: float) -> float:
    """|X - V WᵀX|² + λ tr(VᵀLV)."""
    w, v = factors
    rough = (v * (degrees(graph) * v - graph @ v)).sum()
    return ((x - v @ (w.T @ x)).square().sum() + weight * rough).item()
