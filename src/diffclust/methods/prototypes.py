"""What SSCNet and SpectralNet share: embeddings that no network decodes, so that rows of the data stand for them."""

import torch
from torch import Tensor

from ..engine.model import ClusterModel
from ..nn.autoencoders import Autoencoder
from ..nn.cluster import ClusterLayer


class PrototypeDecoding(ClusterModel):
    """Codes of the autoencoder are embedded by a map without a way back."""

    prototypes: Tensor  # codes of the row nearest to each centre (k, d); set after training

    def __init__(self, autoencoder: Autoencoder, clusters: ClusterLayer) -> None:
        super().__init__(autoencoder, clusters)
        self.register_buffer("prototypes", torch.zeros(clusters.n_clusters, autoencoder.embedding_dim))

    def decode(self, z: Tensor) -> Tensor:
        """By way of codes: those of the rows nearest to the centres, mixed as the assignment is in doubt."""
        doubt = torch.softmax(self.clusters.original.logits(z), dim=1).to(self.prototypes)
        return self.autoencoder.decode(doubt @ self.prototypes)
