"""Do rows lie near subspaces, as sparse subspace clustering assumes, or in balls?"""

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.neighbors import kneighbors_graph

from ..engine.data import Data
from ..engine.rows import Rows, TensorRows
from ..estimator import networks
from .ssc import self_affinity, spectral_labels, unit_length

SAMPLE_ROWS = 400  # largest sample of rows
SSC_ALPHA = 5.0  # `alpha` of SSC: how closely a row is reconstructed by the others
N_NEIGHBOURS = 10
CLEARLY_LESS = 0.7  # rows lie near subspaces if the cut is below this share of the neighbour graph's


def lie_near_subspaces(rows: Rows, k: int) -> bool:
    """Whether the self-expression graph falls into k parts more clearly than the neighbour graph: its cut, the mean
    share of weight that leaves a part, must be less than 0.7 of the other. Uses a sample of the rows, as directions,
    scaled by their values."""
    index = torch.linspace(0, len(rows) - 1, min(len(rows), SAMPLE_ROWS), dtype=torch.float64).long()
    x = rows.take(index).cpu().float() / rows.divisor
    if not bool(x.isfinite().all()):
        return False  # refused later, with the row's own number
    some = Data(TensorRows(x), torch.device("cpu"))
    x = unit_length(some.map(networks.build("scaled", some, 0, {}).encode)).unique(dim=0)
    if len(x) < 3 * k:
        return False
    near = kneighbors_graph(x.numpy(), min(N_NEIGHBOURS, len(x) - 1))
    written, _ = self_affinity(x, SSC_ALPHA)
    return cut(written, k) < CLEARLY_LESS * cut(sp.csr_array(near + near.T), k)


def cut(affinity: sp.csr_array, k: int) -> float:
    """The mean share of a cluster's weight that goes to other clusters, for the k spectral clusters of a graph."""
    labels, _ = spectral_labels(affinity, k, 0)
    member = sp.csr_array(np.eye(k)[np.maximum(labels, 0)] * (labels >= 0)[:, None])
    inside = (member.T @ affinity @ member).toarray()
    whole = np.asarray(member.T @ affinity.sum(axis=1)).ravel()
    return float(np.mean(1 - np.diagonal(inside) / np.maximum(whole, np.finfo(float).tiny)))
