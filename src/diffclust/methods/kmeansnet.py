"""k-meansNet: k-means as a differentiable layer with soft assignment.

Peng, Zhou, Zhu, Lv et al.: "k-meansNet: When k-means Meets Differentiable Programming".

With unit-length embeddings z, a scale α, W_j = 2α Ω_j and `b_j = -α |Ω_j|²`::

    I_ij = softmax_j(W_j·z_i + b_j)
    L    = (1/α) mean_i Σ_j I_ij (α |z_i|² - b_j - W_j·z_i)  =  mean_i Σ_j I_ij |z_i - Ω_j|²

The paper then lets W and b go their own ways, each a parameter of the optimiser (`decoupled=True`). That loss
has no lower bound: Σ_j ∂L/∂b_j = -1/α whatever the state, so b grows for ever, and with a small α the softmax
is uniform and every W_j gets the same push. The default keeps the centres on the unit sphere with W and b
tied, moves them in closed form, and goes back to the best partition if it starts to dissolve.
"""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ..engine.data import Batch, Data
from ..engine.guard import Guard
from ..engine.model import ClusterModel, Losses, Pretraining
from ..estimator.base import PrototypeClusterer, hyperparameters
from ..estimator.knobs import knob
from ..estimator.streams import Arrived
from ..nn.autoencoders import Autoencoder
from ..nn.cluster import ClusterLayer
from ..nn.ops import hard

KEEP_FROM = 0.95  # of the effective clusters at the start: a state with fewer is not kept, however small its scatter
ALPHA_GRID = tuple(m * 10.0**p for p in range(-5, 1) for m in (1, 5))


class KMeansNetModel(ClusterModel):
    sums: Tensor  # of the rows of each cluster in this epoch
    members: Tensor  # their number
    squares: Tensor  # sum of |z|² over all rows

    def __init__(self, autoencoder: Autoencoder, clusters: ClusterLayer, settings: "KMeansNet") -> None:
        super().__init__(autoencoder, clusters)
        self.weight, self.center_step = settings.weight, settings.center_step
        self.start = settings.first_centers(clusters.embedding_dim)
        self.closed_form = clusters.tied
        clusters.weight.requires_grad_(not self.closed_form)
        if settings.repair:
            advice = f"A larger alpha than {clusters.alpha:g} keeps them apart."
            self.guard = Guard(self, keep_from=KEEP_FROM, advice=advice)
        # in double precision, since within and total scatter are differences of these
        k, d = clusters.n_clusters, clusters.embedding_dim
        self.register_buffer("sums", torch.zeros(k, d, dtype=torch.float64))
        self.register_buffer("members", torch.zeros(k, dtype=torch.float64))
        self.register_buffer("squares", torch.zeros((), dtype=torch.float64))

    def embed(self, x: Tensor) -> Tensor:
        return torch.nn.functional.normalize(self.autoencoder.encode(x).float(), dim=1)

    def before_training(self, data: Data) -> None:
        self.place_centers(data, self.start)
        self.forget()
        self.count(self.sample_embedding(data))
        self.is_sound(data)

    def before_epoch(self, epoch: int, data: Data) -> None:
        self.forget()

    def forget(self) -> None:
        for counter in (self.sums, self.members, self.squares):
            counter.zero_()

    def count(self, z: Tensor) -> None:
        z = z.double()
        member = hard(self.clusters.logits(z))
        self.sums += member.T @ z
        self.members += member.sum(0)
        self.squares += z.square().sum()

    def loss(self, batch: Batch) -> Losses:
        z = self.embed(batch.x)
        self.z = z.detach()
        clustering = self.clustering_loss(z).mean()
        if not self.network_learns:
            return {"clustering": clustering}
        reconstruction = self.autoencoder.reconstruction_loss(batch.x, z)
        return {"reconstruction": reconstruction, "clustering": self.weight * clustering}

    def after_step(self, batch: Batch) -> None:
        if self.closed_form:
            self.clusters.move_(self.z, self.center_step)
        if self.guard:
            self.count(self.z)

    def after_epoch(self, epoch: int, data: Data) -> None:
        if self.guard and not self.is_sound(data):
            self.guard.go_back(epoch)

    @torch.no_grad()
    def is_sound(self, data: Data) -> bool:
        """Whether the guard is content with the hard partition: its sizes, and its scatter, the share of the
        embedding's variance left inside clusters. Both are shares, so that it does not matter that before training
        every process has counted every row."""
        if not self.guard:
            return True
        sums, members, squares = data.total(self.sums, self.members, self.squares)
        within = squares - (sums.square().sum(1) / members.clamp_min(1)).sum()
        whole = squares - sums.sum(0).square().sum() / members.sum()
        return self.guard.look(members, (within / whole.clamp_min(1e-12)).item())

    def clustering_loss(self, z: Tensor) -> Tensor:
        return self.clusters.losses(z)


@hyperparameters
class KMeansNet(PrototypeClusterer):
    """k-means as a differentiable layer with soft assignment.

    Shared parameters: see `PrototypeClusterer`. Embeddings, and features under network="identity", are brought to
    unit length first, as in the paper: directions count. `KMeansNet.paper("mnist")` has the paper's own settings,
    except that the paper also brings each input to unit length, stops when the loss changes by less than 1e-3
    (`diffclust.callbacks.StopWhenLossSettles`), and says neither where dropout sits (here: as in the TELL code) nor
    which Adadelta it has (here: Keras').

    Args:
        alpha: the scale α of the softmax: how soft the assignment is. The paper's grid is 1e-5 to 5.
        weight: of the clustering loss against the reconstruction loss per value, when joint.
        decoupled: W and b free parameters of the optimiser (the literal paper; it may collapse).
        center_step: length of a centre's step on the sphere, where W and b are not decoupled.
        init: first centres: "k-means++" (the paper), "k-means", "random", or an array (n_clusters, embedding_dim).
        joint: train network and centres together. False, the paper's text, learns the network first; soft pulls on the
            network merge clusters unless alpha is large.
        noise: share of the input values hidden while the autoencoder is pretrained.
        dropout: before each encoder layer of the dense network.
        bottleneck: "linear" or "sigmoid" (the paper), of the dense and the conv-pool network.
        repair: go back to the best partition when clusters begin to dissolve, and stop. False: go on regardless.
    """

    alpha: float = knob(20.0, low=1e-12)  # the loss is divided by it
    weight: float = knob(0.05, low=0)
    decoupled: bool = False
    center_step: float = knob(0.1, low=0, high=1)
    init: str | Any = "k-means"
    joint: bool = False
    noise: float = knob(0.0, low=0, high=1)
    dropout: float = knob(0.2, low=0, high=1)
    bottleneck: Literal["linear", "sigmoid"] = "linear"
    repair: bool = True

    papers: ClassVar[dict[str, dict[str, Any]]] = {
        name: {
            "n_clusters": 10,
            "network": network,
            "epochs": 3000,
            "pretrain_epochs": 300,
            # with torch's, whose eps is ten times as large, the autoencoder may never leave the mean image
            "optimizer": "adadelta-keras",
            "augment": None,
            "batch_size": 256,
            "alpha": alpha,
            "decoupled": True,
            "init": "k-means++",
            "joint": False,
            "noise": 0.2,
            "dropout": 0.2,
            "bottleneck": "sigmoid",
            "repair": False,
        }
        for name, network, alpha in (
            ("mnist", "dense", 1e-3),
            ("mnist-cnn", "conv-pool", 1e-2),
            ("cifar10", "dense", 0.5),
        )
    }

    def build_model(self, autoencoder: Autoencoder, n_samples: int) -> KMeansNetModel:
        clusters = ClusterLayer(
            self.n_clusters,
            autoencoder.embedding_dim,
            assignment="softmax",
            alpha=self.alpha,
            tied=not self.decoupled,
            sphere=not self.decoupled,
        )
        return KMeansNetModel(autoencoder, clusters, self)

    def network_options(self) -> dict[str, dict[str, Any]]:
        return {
            "dense": {"dropout": self.dropout, "bottleneck": self.bottleneck},
            "conv-pool": {"bottleneck": self.bottleneck},
        }

    def pretraining(self, model: ClusterModel) -> Pretraining:
        # summed, as |x - g(h)|² says: Adadelta hardly moves on the small gradients of a mean over a row's values
        return Pretraining(model, noise=self.noise, summed=True)

    def is_joint(self) -> bool:
        return self.joint

    def offline(self) -> str:
        return "decoupled weights have no centres to move; use decoupled=False" if self.decoupled else ""

    def online_step(self, model: Any, arrived: Arrived) -> None:
        """The centres move as in training, by the soft assignment."""
        member = model.clusters.assignment(arrived.logits)
        model.clusters.step_(member.T @ arrived.z, member.sum(0), model.center_step)
