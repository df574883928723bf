"""SLRR: low rank representation of a sample, and the rest by collaborative coding.

Peng, Tang, Zhang, Yi, Xiao: "A Unified Framework for Representation-Based Subspace Clustering of Out-of-Sample and
Large-Scale Data", TNNLS 2016. A sample D of the rows is clustered by LRR. Any other row x is coded by the sample, and
goes to the cluster whose part of the code reconstructs it best::

    c = (D Dᵀ + γI)^-1 D x,   label = argmin_j |x - Dᵀ δ_j(c)| / |δ_j(c)|

where δ_j keeps the entries of cluster j.
"""

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from ..engine.runtime import choose_device
from ..methods.ssc import unit_length
from .clusterer import ClassicalClusterer, Labels, Rows, check_device, hyperparameters, knob
from .lrr import LRR

ROWS_AT_ONCE = 4096  # rows classified at a time


@hyperparameters
class SLRR(ClassicalClusterer):
    """Scalable low rank representation: for many rows, and for new ones.

    Args:
        n_samples: number of rows that LRR clusters; at most the number of rows.
        weight: LRR's λ.
        ridge: γ, of the codes.
        device: device of the computation: "auto", "cpu", "cuda", ...
    """

    n_samples: int = knob(1000, low=2)
    weight: float = knob(0.3, above=0)
    ridge: float = knob(1e-3, above=0)
    device: str = knob("auto", check=check_device)

    def needs(self, n: int) -> float:
        """Bytes for the sample."""
        return LRR(device=self.device).needs(min(n, self.n_samples))

    def label(self, X: Rows, seed: int) -> Labels:
        size = max(self.n_clusters, min(len(X), self.n_samples))
        chosen = check_random_state(seed).permutation(len(X))[:size]
        base = LRR(self.n_clusters, weight=self.weight, device=self.device, random_state=seed)
        self.sample_ = X[chosen]
        self.sample_labels_ = base.fit_predict(self.sample_)
        labels = self._classify(X)
        labels[chosen] = self.sample_labels_
        return labels

    def predict(self, X: object) -> Labels:
        """The cluster of each new row; for a row of the sample it may differ from that of LRR."""
        check_is_fitted(self)
        return self._classify(validate_data(self, X, dtype=np.float64, reset=False))

    def _classify(self, X: NDArray[np.float64]) -> Labels:
        device = choose_device(self.device)
        sample = unit_length(torch.from_numpy(self.sample_)).to(device)
        member = F.one_hot(torch.from_numpy(self.sample_labels_).to(device), self.n_clusters).to(sample)
        parts = [residuals(unit_length(part.to(device)), sample, member, self.ridge).argmin(1).cpu()
                 for part in torch.from_numpy(X).split(ROWS_AT_ONCE)]  # fmt: skip
        return torch.cat(parts).numpy()


def residuals(x: Tensor, sample: Tensor, member: Tensor, ridge: float) -> Tensor:
    """|x - Dᵀ δ_j(c)| / |δ_j(c)|, (b, k); infinite if δ_j(c) = 0."""
    # (D Dᵀ + γI)^-1 D = D (DᵀD + γI)^-1: the smaller of the two systems, d x d
    d = sample.shape[1]
    gram = sample.T @ sample + ridge * torch.eye(d, dtype=x.dtype, device=x.device)
    codes = torch.linalg.solve(gram, x.T).T @ sample.T  # (b, p)
    out = []
    for column in member.T:
        own = codes * column
        length = own.norm(dim=1)
        out.append(torch.where(length > 0, (x - own @ sample).norm(dim=1) / length, torch.inf))
    return torch.stack(out, dim=1)
