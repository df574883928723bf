"""DCN: a k-means-friendly space, by turns.

Yang, Fu, Sidiropoulos, Hong: "Towards K-means-friendly Spaces: Simultaneous Deep Learning and Clustering", ICML 2017.

With embeddings f(x), reconstructions g(f(x)), centres M and assignments s, eq. (6)::

    min  Σ_i |x_i - g(f(x_i))|² + (λ/2) |f(x_i) - M s_i|²

by alternating (algorithm 1). For each batch: the network takes a gradient step with M and s fixed; then, with the
network fixed, each row goes to its nearest centre (eq. 8), and each centre takes in its rows one by one (eq. 10)::

    m_k <- m_k + (1 / c_k) (f(x_i) - m_k),   c_k <- c_k + 1

where c_k counts the rows that centre k has had: a running mean. The centres carry no gradient.
"""

from collections.abc import Hashable
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..engine.data import Batch, Data
from ..engine.model import ClusterModel, Losses
from ..estimator.knobs import knob
from ..estimator.settings import hyperparameters
from ..estimator.streams import Arrived
from ..nn.autoencoders import Autoencoder
from ..nn.cluster import ClusterLayer
from ..nn.ops import hard
from .autoencoder import AutoencoderClusterer, paper_settings


class DCNModel(ClusterModel):
    weight: Tensor
    counts: Tensor  # c (k, 1)
    members: Tensor  # rows each centre won in this epoch

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
        self.take_in(self.embed(batch.x), batch)

    def take_in(self, z: Tensor, batch: Batch) -> None:
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
    """A k-means-friendly embedding: gradient steps of the network and running means of the centres, by turns.

    Shared parameters: see `PrototypeClusterer`. `DCN.paper("mnist")` has the authors' settings, but for Adam in place
    of their momentum.

    Args:
        weight: λ, of the distance to the own centre against the reconstruction; both are sums over coordinates.
        first_count: c_k at the start: how many rows the first centres are worth.
        repair: move a centre that wins no row in an epoch to a badly served row. False: the literal paper.
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

    def offline(self) -> str:
        return ""

    def online_step(self, model: Any, arrived: Arrived) -> None:
        """Eq. (10), going on with the counts that training ended with."""
        model.clusters.average_(arrived.pull, arrived.mass, model.counts[:, 0])
        model.counts += arrived.mass[:, None]

    def build_model(self, autoencoder: Autoencoder, n_samples: int) -> DCNModel:
        return DCNModel(autoencoder, self.build_clusters(autoencoder), self)
