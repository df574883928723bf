"""k-meansNet: k-means as a differentiable layer with soft assignment.

Peng, Tsang, Zhou, Zhu: "k-meansNet: When k-means Meets Differentiable Programming".

With unit-length embeddings z, a scale α, W_j = 2α Ω_j and `b_j = -α |Ω_j|²`::

    I_ij = softmax_j(W_j·z_i + b_j)
    L    = (1/α) mean_i Σ_j I_ij (α |z_i|² - b_j - W_j·z_i)  =  mean_i Σ_j I_ij |z_i - Ω_j|²

The paper then makes W and b independent parameters of the optimiser (`decoupled=True`). That loss has no lower bound:
Σ_j ∂L/∂b_j = -1/α in every state, so b grows for ever, and with a small α the softmax is uniform and every W_j gets the
same gradient. The default keeps W and b tied and the centres on the unit sphere, moves them in closed form, and goes
back to the best partition if the clusters begin to dissolve.

The paper's figures depend neither on α nor on the initial centres, which soft assignment on fixed features cannot
achieve. So there are settings for other readings of the paper: hard assignment (`assignment="hard"`); `|W_j| = 2α` and
`b_j = -α` after each step of the optimiser, with a gradient of length 0.2 α or the plain gradient (`center_update`);
network and centres in alternation (`alternate`) on the sum of both losses (`joint`, `summed`); rows of any length
(`sphere=False`); W and b in the ball `|W_j| <= 2α`, `-α <= b_j <= 0` (`ball`).
"""

from collections.abc import Hashable
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..engine.data import Batch, Data
from ..engine.guard import Guard
from ..engine.model import ClusterModel, Losses
from ..engine.pretraining import Pretraining
from ..estimator.base import PrototypeClusterer
from ..estimator.knobs import knob
from ..estimator.online import OnlineBatch
from ..estimator.settings import hyperparameters
from ..nn.autoencoders import Autoencoder, DropoutAt
from ..nn.cluster import ClusterLayer
from ..nn.ops import hard
from .moving import CenterUpdate, MovingCenters

KEEP_FROM = 0.95  # a state is kept only with at least this share of the initial effective number of clusters


class KMeansNetModel(MovingCenters):
    sums: Tensor  # of the rows of each cluster in this epoch
    members: Tensor  # their number
    squares: Tensor  # sum of |z|² over all rows

    def __init__(self, autoencoder: Autoencoder, clusters: ClusterLayer, settings: "KMeansNet") -> None:
        start = settings.first_centers(clusters.embedding_dim)
        super().__init__(autoencoder, clusters, settings.free_update(), start, settings.alternate)
        self.weight, self.step = settings.weight, settings.center_step
        self.unit_length = settings.sphere
        self.values = autoencoder.n_values if settings.summed else 1
        if settings.repair:
            advice = f"A larger alpha than {clusters.alpha:g} keeps them apart."
            self.guard = Guard(self, keep_from=KEEP_FROM, advice=advice)
        # in double precision, since within and total scatter are differences of these
        k, d = clusters.n_clusters, clusters.embedding_dim
        self.register_buffer("sums", torch.zeros(k, d, dtype=torch.float64))
        self.register_buffer("members", torch.zeros(k, dtype=torch.float64))
        self.register_buffer("squares", torch.zeros((), dtype=torch.float64))

    def embed(self, x: Tensor) -> Tensor:
        z = self.autoencoder.encode(x).float()
        return F.normalize(z, dim=1) if self.unit_length else z

    def network_stack_key(self) -> Hashable | None:
        network = super().network_stack_key()
        return network and (network, self.unit_length)

    def before_training(self, data: Data) -> None:
        super().before_training(data)
        self.reset_counters()
        self.count(self.sample_embedding(data))
        self.check_partition(data)

    def before_epoch(self, epoch: int, data: Data) -> None:
        super().before_epoch(epoch, data)
        self.reset_counters()

    def reset_counters(self) -> None:
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
        clustering = self.clustering_loss(self.pulled(z)).mean()
        if not self.network_learns:
            return {"clustering": clustering}
        reconstruction = self.values * self.autoencoder.reconstruction_loss(batch.x, z)
        return {"reconstruction": reconstruction, "clustering": self.weight * clustering}

    def after_step(self, batch: Batch) -> None:
        self.move_centers()
        if self.guard:
            self.count(self.z)

    def after_epoch(self, epoch: int, data: Data) -> None:
        if self.guard and not self.check_partition(data):
            self.guard.restore(epoch)

    @torch.no_grad()
    def check_partition(self, data: Data) -> bool:
        """Let the guard check the sizes and the scatter (share of the variance within clusters) of the hard partition.
        Both are relative, so it does not matter that before training every process has counted all rows."""
        if not self.guard:
            return True
        sums, members, squares = data.total(self.sums, self.members, self.squares)
        within = squares - (sums.square().sum(1) / members.clamp_min(1)).sum()
        whole = squares - sums.sum(0).square().sum() / members.sum()
        return self.guard.check(members, (within / whole.clamp_min(1e-12)).item())

    def clustering_loss(self, z: Tensor) -> Tensor:
        return self.clusters.losses(z)


@hyperparameters
class KMeansNet(PrototypeClusterer):
    """k-means as a differentiable layer with soft assignment.

    Shared parameters: see `PrototypeClusterer`. Embeddings, and features with network="identity", are first scaled to
    unit length, as in the paper: only directions count. `KMeansNet.paper("mnist")` has the paper's settings, with these
    differences: the paper also scales each input to unit length, stops when the loss changes by less than 1e-3
    (`diffclust.callbacks.StopWhenLossSettles`), puts dropout after each encoder layer (`dropout_at="outputs"`; here
    before, as in the TELL code), and does not say which Adadelta it uses (here: Keras').

    Args:
        alpha: the scale α of the softmax: smaller is softer. The paper's grid is 1e-5 to 5.
        assignment: "softmax" (the paper), or "hard": the whole row to the centre with the largest W_j·z + b_j.
        weight: when joint, the weight of the clustering loss relative to the reconstruction loss, per value or
            `summed`.
        summed: the reconstruction loss of a row is the sum over its values, as in pretraining.
        decoupled: W and b are free parameters of the optimiser (the literal paper; it may collapse).
        ball: if decoupled, project W and b after each step to those of centres in the unit ball.
        sphere: scale embeddings, and centres that are not decoupled, to unit length. False: leave them unscaled.
        center_update: for centres that are not decoupled: "normalized" takes a step in closed form, "optimizer" uses
            the optimiser with a rescaled gradient, "unnormalized" uses it without rescaling.
        center_step: length of that step, relative to the centre's length; without the sphere, the fraction of the way
            to the mean of its rows.
        init: initial centres: "k-means++" (the paper), "k-means", "random", or an array (n_clusters, embedding_dim).
        joint: train the network and the centres together. False, the paper's text, trains the network first; soft
            assignment merges clusters when joint, unless alpha is large.
        alternate: when joint, move the centres in even epochs, and pull the network towards them in odd epochs.
        noise: share of the input values that are masked while the autoencoder is pretrained.
        dropout: dropout in the encoder of the dense network.
        dropout_at: place of dropout: each layer's "inputs", its "outputs" (the paper), or only between layers
            ("hidden").
        bottleneck: "linear" or "sigmoid" (the paper), for the dense and the conv-pool network.
        repair: go back to the best partition when clusters begin to dissolve, and stop. False: continue.
    """

    alpha: float = knob(20.0, low=1e-12)  # the loss is divided by it
    assignment: Literal["softmax", "hard"] = "softmax"
    weight: float = knob(0.05, low=0)
    summed: bool = False
    decoupled: bool = False
    ball: bool = False
    sphere: bool = True
    center_update: CenterUpdate = "normalized"
    center_step: float = knob(0.1, low=0, high=1)
    init: str | Any = "k-means"
    joint: bool = False
    alternate: bool = False
    noise: float = knob(0.0, low=0, high=1)
    dropout: float = knob(0.2, low=0, high=1)
    dropout_at: DropoutAt = "inputs"
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
        if not self.sphere and (self.ball or self.center_update == "optimizer"):
            wish = "ball=True" if self.ball else "center_update='optimizer'"
            raise ValueError(f"{wish} needs sphere=True: it uses the length of the centres.")
        clusters = ClusterLayer(
            self.n_clusters,
            autoencoder.embedding_dim,
            assignment=self.assignment,
            alpha=self.alpha,
            tied=not self.decoupled,
            sphere=self.sphere and not self.decoupled,
            ball=self.ball and self.decoupled,
        )
        return KMeansNetModel(autoencoder, clusters, self)

    def free_update(self) -> CenterUpdate:
        """Decoupled weights have no step in closed form."""
        return "unnormalized" if self.decoupled else self.center_update

    def network_options(self) -> dict[str, dict[str, Any]]:
        return {
            "dense": {"dropout": self.dropout, "dropout_at": self.dropout_at, "bottleneck": self.bottleneck},
            "conv-pool": {"bottleneck": self.bottleneck},
        }

    def pretraining(self, model: ClusterModel) -> Pretraining:
        # summed, as |x - g(h)|² says: Adadelta hardly moves on the small gradients of a mean over a row's values
        return Pretraining(model, noise=self.noise, summed=True)

    def is_joint(self) -> bool:
        return self.joint

    def why_not_online(self) -> str:
        return "decoupled weights have no centres to move; use decoupled=False" if self.decoupled else ""

    def online_step(self, model: Any, batch: OnlineBatch) -> None:
        """The centres move as in training, by the soft assignment."""
        member = model.clusters.assignment(model.clusters.logits(batch.z))
        model.clusters.step_(member.T @ batch.z, member.sum(0), model.step)
