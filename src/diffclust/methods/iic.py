"""IIC: a classifier trained for maximal mutual information between its outputs for two versions of a sample.

Ji, Henriques, Vedaldi: "Invariant Information Clustering for Unsupervised Image Classification and Segmentation",
ICCV 2019.

Φ(x) is the soft assignment of a sample x to k clusters, and x' is its partner: the image before augmentation, or, for
rows, a neighbour. Over a batch of n, eqs. (2) and (3)::

    P = (1/n) Σ_i Φ(x_i) Φ(x'_i)ᵀ,   made symmetric: (P + Pᵀ) / 2
    max I(P) = Σ_cc' P_cc' (log P_cc' - λ log P_c - λ log P_c'),   P_c = Σ_c' P_cc'

The mutual information is largest if partners always agree, every assignment is certain, and clusters are of equal size.
The paper starts from random weights and takes the best of five heads. Here, as in the other methods, training starts
from a pretrained encoder and k-means, and there is one head: the cluster layer.
"""

import torch
from torch import Tensor

from ..engine.data import Batch
from ..engine.model import Losses
from ..estimator.knobs import knob
from ..estimator.settings import hyperparameters
from ..nn.autoencoders import Autoencoder
from ..nn.cluster import ClusterLayer
from .partners import PartnerClusterer, PartnerModel

MIN_PROBABILITY = 1e-8  # lower bound of the entries of P


def mutual_information(joint: Tensor, weight: float = 1.0) -> Tensor:
    """I(P) of a table P (k, k) of positive numbers, which are normalised to sum to one; λ is `weight`."""
    table = (joint + joint.T) / 2
    table = (table / table.sum()).clamp_min(MIN_PROBABILITY)
    return (table * (table.log() - weight * (table.sum(1, keepdim=True).log() + table.sum(0).log()))).sum()


class IICModel(PartnerModel):
    def __init__(self, autoencoder: Autoencoder, clusters: ClusterLayer, settings: "IIC") -> None:
        super().__init__(autoencoder, clusters, settings)
        self.balance = settings.balance

    def loss(self, batch: Batch) -> Losses:
        z, p, q = self.classify(batch)
        with torch.autocast(p.device.type, enabled=False):
            (joint,) = batch.total(p.T @ q)
            information = mutual_information(joint, self.balance)
        return {"clustering": -information, **self.decoding_loss(batch, z)}


@hyperparameters
class IIC(PartnerClusterer):
    """Invariant information clustering: maximise the mutual information between the clusters of two versions of a
    sample.

    Shared parameters: see `PrototypeClusterer`. For clusters of similar size. A batch should hold many rows of every
    cluster. For rows, the second version of a sample is one of its neighbours.

    Args:
        balance: λ, the weight of the two marginal entropies: a larger value gives more even cluster sizes.
        init: initial centres: "neighbours", "k-means", "k-means++", "random", or an array (n_clusters, embedding_dim).
    """

    balance: float = knob(1.0, low=0)

    def build_model(self, autoencoder: Autoencoder, n_samples: int) -> IICModel:
        return IICModel(autoencoder, self.build_clusters(autoencoder), self)
