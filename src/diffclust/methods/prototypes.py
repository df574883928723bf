"""Shared by SSCNet and SpectralNet: embeddings without a decoder, which are decoded by rows of the data."""

import torch
from torch import Tensor

from ..engine.model import ClusterModel
from ..nn.autoencoders import Autoencoder
from ..nn.cluster import ClusterLayer


class PrototypeDecoding(ClusterModel):
    """Models that map the codes of an autoencoder to embeddings by a function without an inverse."""

    prototypes: Tensor  # codes of the row nearest to each centre (k, d); set after training

    def __init__(self, autoencoder: Autoencoder, clusters: ClusterLayer) -> None:
        super().__init__(autoencoder, clusters)
        self.register_buffer("prototypes", torch.zeros(clusters.n_clusters, autoencoder.embedding_dim))

    def decode(self, z: Tensor) -> Tensor:
        """Decode a mixture of the prototypes' codes, weighted by the probabilities of the clusters."""
        doubt = torch.softmax(self.clusters.original.logits(z), dim=1).to(self.prototypes)
        return self.autoencoder.decode(doubt @ self.prototypes)
