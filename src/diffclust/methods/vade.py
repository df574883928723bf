"""VaDE: a variational autoencoder whose prior is a mixture of Gaussians.

Jiang, Zheng, Tan, Tang, Zhou: "Variational Deep Embedding: An Unsupervised and Generative Approach to Clustering",
IJCAI 2017.

A row is made by drawing a cluster c ~ π, an embedding z ~ N(μ_c, σ_c²) and a sample x ~ p(x | z), the decoder's. The
encoder gives N(μ̃, σ̃²) for z, and γ_c = p(c | z) = softmax_c(log π_c + log N(z; μ_c, σ_c²)), eq. (16). Minus the
evidence lower bound of eq. (12), for one drawn z::

    L = -log p(x | z)
        + ½ Σ_c γ_c Σ_d (log σ_c² + σ̃² / σ_c² + (μ̃ - μ_c)² / σ_c²)
        + Σ_c γ_c log(γ_c / π_c) - ½ Σ_d (1 + log σ̃²)

The autoencoder is trained first, without drawing, and a mixture is fitted to its embeddings. From there training may
still let components die, one after the other: then it goes back to the last sound epoch and stops.
"""

from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..engine.data import Batch, Data
from ..engine.guard import Guard
from ..engine.model import ClusterModel, Losses
from ..estimator.knobs import knob
from ..estimator.settings import hyperparameters
from ..nn.autoencoders import Autoencoder
from ..nn.cluster import Start
from ..nn.mixture import GaussianMixture
from ..nn.ops import hard
from .autoencoder import AutoencoderClusterer, paper_settings

FIRST_SPREAD = 0.1  # σ̃² at the start, as a share of the components' variance: our choice, the paper draws its weights
DECAY_EVERY, LEAST_RATE = 10, 0.1  # epochs between decays of the learning rate, and where these end: the authors'
LEAST_LOG_GAMMA = -23  # the authors' floor of γ, 1e-10
COUNTED = 10_000  # rows the components' sizes are taken on


class VaDEModel(ClusterModel):
    clusters: GaussianMixture

    def __init__(self, autoencoder: Autoencoder, clusters: GaussianMixture, settings: "VaDE") -> None:
        super().__init__(autoencoder, clusters)
        self.start, self.decay = settings.first_centers(clusters.embedding_dim), settings.decay
        self.guard = Guard(self) if settings.repair else None
        # σ̃ of a network that gives none: one a coordinate, for all rows
        self.log_spread = nn.Parameter(torch.zeros(clusters.embedding_dim), requires_grad=self.network_learns)

    def before_training(self, data: Data) -> None:
        self.place_centers(data, self.start)
        with torch.no_grad():
            log_variance = (FIRST_SPREAD * self.clusters.log_variances.exp().mean()).log().item()
            self.log_spread.fill_(log_variance)
            if self.autoencoder.variational:
                self.autoencoder.reset_spread(log_variance)
        if self.guard:
            self.guard.look(self.sizes(data))

    def place_centers(self, data: Data, start: Start | Tensor) -> Tensor | None:
        laid_out = super().place_centers(data, start)
        if isinstance(start, Tensor) or data.knowledge is not None or start == "neighbours":
            self.clusters.fit_(self.sample_embedding(data))
        return laid_out

    def rate(self, epoch: int) -> float:
        return max(self.decay ** (epoch // DECAY_EVERY), LEAST_RATE)

    def loss(self, batch: Batch) -> Losses:
        if not self.network_learns:
            return {"clustering": self.clustering_loss(self.embed(batch.x)).mean()}
        if self.autoencoder.variational:
            mean, log_variance = (moment.float() for moment in self.autoencoder.moments(batch.x))
        else:
            mean = self.embed(batch.x)
            log_variance = self.log_spread.expand_as(mean)
        z = mean + (log_variance / 2).exp() * torch.randn_like(mean)
        return {
            "reconstruction": self.autoencoder.negative_log_likelihood(batch.x, z),
            "clustering": self.divergence(z, mean, log_variance).mean(),
        }

    def divergence(self, z: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
        """All of L but its first line, of each row: (b,)."""
        mixture = self.clusters
        log_gamma = torch.log_softmax(mixture.logits(z), dim=1).clamp_min(LEAST_LOG_GAMMA)
        gamma = log_gamma.exp()
        spread = log_variance.exp()[:, None] + (mean[:, None] - mixture.centers).square()  # (b, k, d)
        prior = (mixture.log_variances + spread * (-mixture.log_variances).exp()).sum(2) / 2
        categories = log_gamma - mixture.log_weights
        return (gamma * (prior + categories)).sum(1) - (1 + log_variance).sum(1) / 2

    def clustering_loss(self, z: Tensor) -> Tensor:
        """-log p(z): of the embedding under the mixture."""
        return -self.clusters.logits(z).logsumexp(1)

    def after_epoch(self, epoch: int, data: Data) -> None:
        if self.guard and not self.guard.look(self.sizes(data)):
            self.guard.go_back(epoch)

    @torch.no_grad()
    def sizes(self, data: Data) -> Tensor:
        return hard(self.clusters.logits(self.sample_embedding(data, COUNTED))).sum(0)


@hyperparameters
class VaDE(AutoencoderClusterer):
    """A variational autoencoder with a mixture of Gaussians for its prior; probabilities are the mixture's own.

    Shared parameters: see `PrototypeClusterer`. `transform` gives the means μ̃ and `clustering_loss_` is minus the
    log-likelihood of these under the mixture. Images are Bernoulli, rows Gaussian. A network that gives
    no variances ("identity", "conv-pool", your own) gets one a coordinate. `VaDE.paper("mnist")` has the authors'
    settings, after an end-to-end pretraining that they do not describe.

    Args:
        decay: factor on the learning rate after every ten epochs, down to a tenth of it.
        repair: go back to the last sound epoch when components begin to die, and stop. False: go on regardless.
    """

    decay: float = knob(0.9, above=0, high=1)
    repair: bool = True

    papers: ClassVar[dict[str, dict[str, Any]]] = {
        "mnist": paper_settings(
            10,
            rescale=True,  # a sigmoid output, and Bernoulli pixels
            pretrain_epochs=50,
            epochs=3000,
            batch_size=100,
            optimizer=partial(torch.optim.Adam, lr=0.002, eps=1e-4),
            decay=0.9,
            repair=False,
        )
    }

    def build_model(self, autoencoder: Autoencoder, n_samples: int) -> VaDEModel:
        return VaDEModel(autoencoder, GaussianMixture(self.n_clusters, autoencoder.embedding_dim), self)

    def offline(self) -> str:
        return "weights and variances of the mixture would stay behind its means"

    def network_options(self) -> dict[str, dict[str, Any]]:
        own = {"dense": {"glorot": True, "variational": True}, "conv": {"variational": True}}
        own |= {"rows": {"variational": True}}
        return {**super().network_options(), **own}
