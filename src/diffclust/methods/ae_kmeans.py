"""AE + k-means: an autoencoder, then k-means on its embedding.

The baseline every deep method has to beat (Hinton and Salakhutdinov, "Reducing the Dimensionality of Data with
Neural Networks", Science 2006, for the network; Lloyd for the rest). First train the autoencoder f, g alone::

    min  mean_i |x_i - g(f(x_i))|²

then, with the network fixed, find centres Ω in the embedding z_i = f(x_i)::

    min  mean_i min_j |z_i - Ω_j|²
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from ..engine.data import Batch, Data
from ..engine.model import ClusterModel, Losses
from ..estimator.settings import hyperparameters
from ..nn.autoencoders import Autoencoder
from ..nn.cluster import ClusterLayer
from ..nn.ops import hard
from .autoencoder import AutoencoderClusterer, paper_settings

ROWS_AT_ONCE = 4096  # rows embedded at a time
LLOYD_PASSES = 10  # epochs="auto", because k-means has placed the centres already


class AEKMeansModel(ClusterModel):
    def __init__(self, autoencoder: Autoencoder, clusters: ClusterLayer, settings: "AEKMeans") -> None:
        super().__init__(autoencoder, clusters)
        self.start = settings.first_centers(clusters.embedding_dim)
        clusters.weight.requires_grad_(False)

    def before_training(self, data: Data) -> None:
        self.place_centers(data, self.start)

    def loss(self, batch: Batch) -> Losses:
        with torch.no_grad():
            return {"clustering": self.clustering_loss(self.embed(batch.x)).mean()}

    def after_epoch(self, epoch: int, data: Data) -> None:
        """One pass of Lloyd's algorithm, one block of rows at a time: without a network rows may be wide and sparse."""
        centers = self.clusters.centers.detach()
        sums = torch.zeros_like(centers, dtype=torch.float64)
        counts = sums.new_zeros(len(centers), 1)
        for block in torch.arange(data.own.start, data.own.stop, device=data.device).split(ROWS_AT_ONCE):
            z = torch.cat(list(data.parts(self.embed, block)))
            member = hard(self.clusters.logits(z)).double()
            sums += member.T @ z.double()
            counts += member.sum(0)[:, None]
        sums, counts = data.total(sums, counts)
        self.clusters.set_centers(torch.where(counts > 0, sums / counts.clamp_min(1), centers))
        self.revive(counts[:, 0] == 0, data)

    def clustering_loss(self, z: Tensor) -> Tensor:
        return self.clusters.distances(z).amin(1)


@hyperparameters
class AEKMeans(AutoencoderClusterer):
    """An autoencoder, then k-means on its embedding: the baseline of the autoencoder family.

    Shared parameters: see `PrototypeClusterer`. An epoch of clustering is one pass of Lloyd's algorithm over all rows,
    starting from centres that k-means found on at most 50,000 rows.
    """

    papers: ClassVar[dict[str, dict[str, Any]]] = {
        name: paper_settings(k, pretrain_epochs=50, epochs=20)
        for name, k in (("mnist", 10), ("usps", 10), ("20newsgroups", 20), ("rcv1", 4))
    }

    def build_model(self, autoencoder: Autoencoder, n_samples: int) -> AEKMeansModel:
        return AEKMeansModel(autoencoder, self.build_clusters(autoencoder), self)

    def auto_epochs(self, phase: int, steps: int) -> int:
        return super().auto_epochs(0, steps) if phase == 0 else LLOYD_PASSES

    def is_joint(self) -> bool:
        return False

    def why_not_online(self) -> str:
        return ""
