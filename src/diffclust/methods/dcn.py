"""DCN: a k-means-friendly space, by alternating optimisation.

Yang, Fu, Sidiropoulos, Hong: "Towards K-means-friendly Spaces: Simultaneous Deep Learning and Clustering", ICML 2017.

With embeddings f(x), reconstructions g(f(x)), centres M and assignments s, eq. (6)::

    min  Σ_i |x_i - g(f(x_i))|² + (λ/2) |f(x_i) - M s_i|²

by alternating optimisation (algorithm 1). For each batch, the network takes a gradient step with M and s fixed; then,
with the network fixed, each row goes to its nearest centre (eq. 8), and each centre is updated by its rows (eq. 10)::

    m_k <- m_k + (1 / c_k) (f(x_i) - m_k),   c_k <- c_k + 1

where c_k counts the rows of centre k so far, so the centre is a running mean. The centres have no gradient.
"""

from collections.abc import Hashable
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..engine.data import Batch, Data
from ..engine.model import ClusterModel, Losses
from ..estimator.knobs import knob
from ..estimator.online import OnlineBatch
from ..estimator.settings import hyperparameters
from ..nn.autoencoders import Autoencoder
from ..nn.cluster import ClusterLayer
from ..nn.ops import hard
from .autoencoder import AutoencoderClusterer, paper_settings


class DCNModel(ClusterModel):
    weight: Tensor
    counts: Tensor  # c (k, 1)
    members: Tensor  # rows of each centre in this epoch

    def __init__(self, autoencoder: Autoencoder, clusters: ClusterLayer, settings: "DCN") -> None:
        super().__init__(autoencoder, clusters)
        self.start, self.repair = settings.first_centers(clusters.embedding_dim), settings.repair
        self.register_buffer("weight", torch.tensor(float(settings.weight)), persistent=False)
        clusters.weight.requires_grad_(False)
        self.register_buffer("counts", torch.full((clusters.n_clusters, 1), float(settings.first_count)))
        self.register_buffer("members", torch.zeros(clusters.n_clusters))

    def before_training(self, data: Data) -> None:
        self.place_centers(data, self.start)

    def before_epoch(self, epoch: int, data: Data) -> None:
        self.members.zero_()

    def loss(self, batch: Batch) -> Losses:
        z = self.embed(batch.x)
        losses = {"clustering": self.weight / 2 * self.clustering_loss(z).mean()}
        if self.network_learns:
            losses["reconstruction"] = self.autoencoder.n_values * self.autoencoder.reconstruction_loss(batch.x, z)
        return losses

    def stack_key(self) -> Hashable | None:
        return self.network_stack_key()

    def clustering_loss(self, z: Tensor) -> Tensor:
        return self.clusters.distances(z).amin(1)  # |f(x) - M s|² with s the nearest centre

    @torch.no_grad()
    def after_step(self, batch: Batch) -> None:
        self.update_centers(self.embed(batch.x), batch)

    def update_centers(self, z: Tensor, batch: Batch) -> None:
        """Eq. (10) for every row at once: the order inside a batch does not matter to a running mean."""
        member = hard(self.clusters.logits(z))  # s, eq. (8)
        pull, mass = batch.total(member.T @ z, member.sum(0))
        total = self.counts * self.clusters.centers + pull
        self.counts += mass[:, None]
        self.clusters.set_centers(total / self.counts)
        self.members += mass

    def after_epoch(self, epoch: int, data: Data) -> None:
        if self.repair:
            self.revive(self.members == 0, data)


@hyperparameters
class DCN(AutoencoderClusterer):
    """A k-means-friendly embedding: gradient steps of the network alternate with running means of the centres.

    Shared parameters: see `PrototypeClusterer`. `DCN.paper("mnist")` has the authors' settings, except for Adam instead
    of their momentum.

    Args:
        weight: λ, the weight of the distance to the own centre relative to the reconstruction; both are sums over
            coordinates.
        first_count: initial c_k: how many rows the initial centres count for.
        repair: move a centre without rows in an epoch to a row far from its own centre. False: the literal paper.
    """

    weight: float = knob(0.1, low=0)
    first_count: float = knob(100.0, low=1)
    repair: bool = True

    papers: ClassVar[dict[str, dict[str, Any]]] = {
        "mnist": paper_settings(
            10, layer_epochs=250, pretrain_epochs=250, epochs=50, lr=1e-4, weight=1.0, repair=False
        ),
        **{  # as Deep k-Means compares it: its network and epochs
            f"{name}-dkm": paper_settings(k, pretrain_epochs=50, epochs=100, weight=1.0, repair=False)
            for name, k in (("mnist", 10), ("usps", 10), ("20newsgroups", 20), ("rcv1", 4))
        },
    }

    def why_not_online(self) -> str:
        return ""

    def online_step(self, model: Any, batch: OnlineBatch) -> None:
        """Eq. (10), continuing with the counts at the end of training."""
        model.clusters.average_(batch.pull, batch.mass, model.counts[:, 0])
        model.counts += batch.mass[:, None]

    def build_model(self, autoencoder: Autoencoder, n_samples: int) -> DCNModel:
        return DCNModel(autoencoder, self.build_clusters(autoencoder), self)
