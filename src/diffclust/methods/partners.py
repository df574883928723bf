"""Shared by IIC and IMSAT: a soft classifier, and for each sample a partner that belongs to the same cluster."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..engine.data import Batch, Data
from ..engine.model import ClusterModel, Losses
from ..estimator.base import PrototypeClusterer
from ..estimator.settings import hyperparameters
from ..nn.autoencoders import Autoencoder, ScaledRows
from ..nn.cluster import ClusterLayer
from ..nn.ops import entropy

ON_SPHERE, IN_PLANE = (5.0, 0.5)  # α of the softmax: it limits how certain assignments are


class Classified(NamedTuple):
    """A batch and the partners of its samples."""

    z: Tensor  # (b, d) embedded samples
    p: Tensor  # (b, k) shares of the clusters in each sample, rows sum to 1
    q: Tensor  # (b, k) the same for its partner


class PartnerModel(ClusterModel):
    """Φ(x) = softmax_j(-α |z - Ω_j|²), by a cluster layer whose centres are trained with the network."""

    def __init__(self, autoencoder: Autoencoder, clusters: ClusterLayer, settings: PrototypeClusterer) -> None:
        super().__init__(autoencoder, clusters)
        self.start = settings.first_centers(clusters.embedding_dim)

    def before_training(self, data: Data) -> None:
        self.place_centers(data, self.start)

    def shares(self, z: Tensor) -> Tensor:
        return torch.softmax(self.clusters.logits(z), dim=1)

    def classify(self, batch: Batch) -> Classified:
        """Classify a batch and its partners. The partner of a sample is a neighbour if there is a neighbour graph, the
        original sample if there is augmentation, and otherwise the sample itself."""
        if batch.near is not None:
            z = self.embed(batch.x)
            p = self.shares(z)
            return Classified(z, p, p[batch.near].mean(1))
        partner = batch.clean if batch.neighbour is None else batch.neighbour
        if partner is batch.x:
            z = self.embed(batch.x)
            p = self.shares(z)
            return Classified(z, p, p)
        z, other = self.embed(torch.cat([batch.x, partner])).chunk(2)
        return Classified(z, self.shares(z), self.shares(other))

    def decoding_loss(self, batch: Batch, z: Tensor) -> Losses:
        """Train the decoder beside the classifier, without an effect on it, so that centres can be decoded."""
        if not self.network_learns:
            return {}
        return {"reconstruction": self.autoencoder.reconstruction_loss(batch.x, z.detach())}

    def after_step(self, batch: Batch) -> None:
        self.clusters.bound_()

    def clustering_loss(self, z: Tensor) -> Tensor:
        """The entropy of each assignment, -Σ_j Φ_j log Φ_j."""
        return entropy(torch.log_softmax(self.clusters.logits(z), dim=1))


@hyperparameters
class PartnerClusterer(PrototypeClusterer):
    """What IIC and IMSAT share besides the model."""

    init: str | object = "neighbours"

    def build_clusters(self, autoencoder: Autoencoder) -> ClusterLayer:
        """On the sphere if the network learns by reconstruction, as in TELL; otherwise Euclidean."""
        sphere = self.network != "identity" and not isinstance(autoencoder, ScaledRows)
        alpha = ON_SPHERE if sphere else IN_PLANE
        return ClusterLayer(
            self.n_clusters, autoencoder.embedding_dim, assignment="softmax", alpha=alpha, sphere=sphere
        )

    def why_not_online(self) -> str:
        return "its loss needs many rows at once"
