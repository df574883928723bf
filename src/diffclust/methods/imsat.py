"""IMSAT: informative clusters that do not change under the worst small perturbation of a sample.

Hu, Miyato, Tokui, Matsumoto, Sugiyama: "Learning Discrete Representations via Information Maximizing Self-Augmented
Training", ICML 2017.

With the soft assignment `p(y|x)` of a sample to k clusters and its mean p(y) over a batch::

    L = R(x) + λ (H(Y|X) - μ H(Y)),   H(Y|X) = -mean Σ_y p(y|x) log p(y|x),   H(Y) = -Σ_y p(y) log p(y)

R is Miyato's virtual adversarial loss: the change of `p(y|x)` when x moves by ε(x) in the direction in which it changes
most, found by one step of the power method::

    R(x) = KL(p(·|x) ‖ p(·|x + r)),   r = ε g / |g|,   g = ∇_d KL(p(·|x) ‖ p(·|x + ξ d)) at a random d of length one

ε(x) is `reach` times the distance to the tenth neighbour, in the units of the network. λ = 0.1, μ = 4 and a reach of
0.25 are the authors' values. With augmentation, x + r is the perturbed augmented sample, and `p(·|x)` belongs to the
original sample: both of the paper's perturbations at once.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..engine.data import Batch, Data
from ..engine.model import Losses
from ..estimator.knobs import knob
from ..estimator.settings import hyperparameters
from ..nn.autoencoders import Autoencoder
from ..nn.cluster import ClusterLayer
from ..nn.neighbours import nearest_neighbours
from ..nn.ops import entropy
from .partners import PartnerClusterer, PartnerModel

RADIUS_NEIGHBOUR = 10  # ε(x) is proportional to the distance of the tenth neighbour
XI = 0.1  # length of the step d, as a share of ε


def divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p ‖ q) of each row, from logarithms."""
    return (log_p.exp() * (log_p - log_q)).sum(1)


class IMSATModel(PartnerModel):
    radius: Tensor  # ε of each row of the data

    def __init__(self, autoencoder: Autoencoder, clusters: ClusterLayer, settings: "IMSAT") -> None:
        super().__init__(autoencoder, clusters, settings)
        self.weight, self.balance, self.reach = settings.weight, settings.balance, settings.reach
        self.register_buffer("radius", torch.empty(0), persistent=False)

    def before_training(self, data: Data) -> None:
        super().before_training(data)
        units = data.map(lambda x: self.autoencoder.normalize(x).flatten(1).float())
        distances = nearest_neighbours(units, min(RADIUS_NEIGHBOUR, len(units) - 1)).distance
        self.radius = self.reach * distances[:, -1]

    def log_shares(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Embedded samples in the network's units, and the logarithms of their shares."""
        z = self.clusters.normalize(self.autoencoder.analyse(x)[:, : self.clusters.embedding_dim].float())
        return z, torch.log_softmax(self.clusters.logits(z), dim=1)

    def moved(self, x: Tensor, log_p: Tensor, radius: Tensor) -> Tensor:
        """x + r, in the network's units."""
        radius = radius.view(-1, *[1] * (x.ndim - 1))
        d = F.normalize(torch.randn_like(x).flatten(1), dim=1).view_as(x)
        step = (XI * radius * d).detach().requires_grad_(True)
        with torch.enable_grad():
            (g,) = torch.autograd.grad(divergence(log_p, self.log_shares(x + step)[1]).sum(), step)
        return x + radius * F.normalize(g.flatten(1), dim=1, eps=1e-30).view_as(x)

    def loss(self, batch: Batch) -> Losses:
        normalize = self.autoencoder.normalize
        z, log_p = self.log_shares(normalize(batch.clean))
        x = normalize(batch.x)
        target = log_p.detach()
        _, log_q = self.log_shares(self.moved(x, target, self.radius[batch.index]))
        p = batch.mean(log_p.exp()).clamp_min(torch.finfo(log_p.dtype).tiny)
        undecided = entropy(log_p).mean()
        return {
            "stability": divergence(target, log_q).mean(),
            "clustering": self.weight * (undecided + self.balance * (p * p.log()).sum()),
            **self.decoding_loss(batch, z),
        }

    def after_training(self, data: Data) -> None:
        super().after_training(data)
        self.radius = self.radius.new_empty(0)

    def training_state(self) -> dict[str, object]:
        return {**super().training_state(), "radius": self.radius}

    def load_training_state(self, state: dict[str, object]) -> None:
        super().load_training_state(state)
        radius = state["radius"]
        assert isinstance(radius, Tensor)
        self.radius = radius.to(self.clusters.weight)


@hyperparameters
class IMSAT(PartnerClusterer):
    """Information maximising self-augmented training: confident, even clusters that do not change under small
    perturbations.

    Shared parameters: see `PrototypeClusterer`. For clusters of similar size. The paper starts from random weights and
    has no decoder; here training starts from a pretrained encoder and k-means, as in the other methods.

    Args:
        weight: λ, the weight of the information term relative to the stability under perturbations.
        balance: μ, the weight of the entropy of the cluster sizes: a larger value gives more even sizes.
        reach: size of a perturbation, relative to the distance of a sample to its tenth neighbour.
        init: initial centres: "neighbours", "k-means", "k-means++", "random", or an array (n_clusters, embedding_dim).
    """

    weight: float = knob(0.1, low=0)
    balance: float = knob(4.0, low=0)
    reach: float = knob(0.25, low=0)

    def build_model(self, autoencoder: Autoencoder, n_samples: int) -> IMSATModel:
        return IMSATModel(autoencoder, self.build_clusters(autoencoder), self)
