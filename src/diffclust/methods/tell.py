"""TELL: a cluster layer whose weights are k-means centres.

Peng, Li, Tsang, Zhu, Lv, Zhou: "XAI Beyond Classification: Interpretable Neural Clustering", JMLR 2022.

An autoencoder f, g gives unit-length embeddings `h = f(x) / |f(x)|`; the K centres Ω_j have unit length too.
With W_j = 2 Ω_j, the squared distance of h to a centre is 2 - W_j·h, and each row belongs to the centre
a = argmax_j W_j·h. The loss, on the scale of the authors' code (pixels and clusters are averaged over), is::

    L = mean (x - g(h))²  +  λ (2 - W_a·h / K)

Epochs alternate. In even epochs the centres move, each by a step of constant length towards its rows, and the network
is trained on reconstruction alone. In odd epochs the centres are fixed, and the network is also pulled towards them.
"""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ..engine.data import Batch, Data
from ..engine.model import Losses
from ..estimator.base import PrototypeClusterer
from ..estimator.knobs import knob
from ..estimator.online import OnlineBatch
from ..estimator.settings import hyperparameters
from ..nn.autoencoders import Autoencoder, ScaledRows
from ..nn.cluster import ClusterLayer
from ..nn.ops import largest
from .moving import CenterUpdate, MovingCenters

LAMBDA = 0.01  # the authors' weight; `clustering_loss` is always reported with it
HOLD_SHARE = 0.5  # share of the epochs in which rows keep their initial clusters from the layout
ALPHA = 1e-3  # length of the authors' W is 2α: only there does Adadelta act as a plain step (section 2.2.3)


class TELLModel(MovingCenters):
    members: Tensor  # number of rows of each centre in this epoch
    step: Tensor
    initial_labels: Tensor | None = None  # (n,) the initial cluster of each row while it is held there, or -1
    all_labelled = False  # whether no entry is -1

    def __init__(self, autoencoder: Autoencoder, clusters: ClusterLayer, settings: "TELL") -> None:
        start = settings.first_centers(clusters.embedding_dim)
        super().__init__(autoencoder, clusters, settings.center_update, start)
        self.weight, self.repair = settings.weight, settings.repair
        self.center_step, self.center_decay = settings.center_step, settings.center_decay
        self.register_buffer("members", torch.zeros(clusters.n_clusters))
        self.register_buffer("step", torch.tensor(self.center_step))

    def before_training(self, data: Data) -> None:
        self.initial_labels = self.place_centers(data, self.start)

    def before_epoch(self, epoch: int, data: Data) -> None:
        super().before_epoch(epoch, data)
        if epoch >= HOLD_SHARE * self.epochs:
            self.initial_labels = None
        self.all_labelled = self.initial_labels is not None and bool((self.initial_labels >= 0).all())
        self.graph_key = self.moving_centers, self.initial_labels is not None
        turn = epoch // 2 if self.in_turns else epoch
        self.step.fill_(self.center_step / (1 + self.center_decay * turn))
        self.members.zero_()

    def loss(self, batch: Batch) -> Losses:
        z = self.embed(batch.x)
        self.z = z.detach()
        pulled = self.pulled(z)
        clustering = self.pull(batch, pulled)
        if not self.network_learns:
            return {"clustering": clustering}
        return {"reconstruction": self.autoencoder.reconstruction_loss(batch.x, z), "clustering": clustering}

    def pull(self, batch: Batch, z: Tensor) -> Tensor:
        """λ times the mean of `spread` over normalised rows; also stores `owner`, the centre of each row."""
        clean = batch.x is batch.clean or self.moving_centers
        if self.clusters.sphere and self.initial_labels is None and clean:
            factor = 1 / self.clusters.n_clusters
            self.owner, mean = self.clusters.nearest(z, self.weight * factor, self.weight * 2 * (1 - factor))
            return mean
        logits = self.clusters.logits(z)
        self.owner = self.choose(batch, logits)
        own = self.clusters.read_distances(z, logits).gather(1, self.owner[:, None])[:, 0]
        return self.weight * self.spread(own).mean()

    def spread(self, own: Tensor) -> Tensor:
        """2 - W_a·h / K for each row, from the squared distance `|h - Ω_a|²`. Off the sphere that distance / K, which
        has the same gradient on it."""
        own = own / self.clusters.n_clusters
        return own + 2 * (1 - 1 / self.clusters.n_clusters) if self.clusters.sphere else own

    def choose(self, batch: Batch, logits: Tensor) -> Tensor:
        """a = argmax_j W_j·h, or the initial cluster of the row while that is held. With augmentation the original
        sample decides, so that all its versions are pulled to the same centre."""
        if self.initial_labels is not None and self.all_labelled:
            return self.initial_labels[batch.index]
        if batch.x is not batch.clean and not self.moving_centers:
            with torch.no_grad(), self.evaluating():
                logits = self.clusters.logits(self.embed(batch.clean))
        nearest = largest(logits)
        if self.initial_labels is None:
            return nearest
        initial_labels = self.initial_labels[batch.index]
        return torch.where(initial_labels >= 0, initial_labels, nearest)

    def after_step(self, batch: Batch) -> None:
        sums = self.clusters.sums(self.z, self.owner) if self.moving_centers else None
        if sums is not None:
            self.members += sums[1]
        self.move_centers(sums)

    def after_epoch(self, epoch: int, data: Data) -> None:
        if self.repair and self.moving_centers:
            (members,) = data.total(self.members)
            self.revive(members == 0, data)

    def after_training(self, data: Data) -> None:
        super().after_training(data)
        self.initial_labels = None

    def training_state(self) -> dict[str, Any]:
        return {**super().training_state(), "begun": self.initial_labels}

    def load_training_state(self, state: dict[str, Any]) -> None:
        super().load_training_state(state)
        initial_labels = state.get("begun")  # missing in checkpoints of older versions
        self.initial_labels = None if initial_labels is None else initial_labels.to(self.members.device)

    def clustering_loss(self, z: Tensor) -> Tensor:
        return self.loss_of_members(z, self.clusters.distances(z).amin(1))

    def loss_of_members(self, z: Tensor, own: Tensor) -> Tensor:
        return LAMBDA * self.spread(own)


@hyperparameters
class TELL(PrototypeClusterer):
    """Interpretable neural clustering: k-means on a learnt sphere, with centres that you can read and decode.

    Shared parameters: see `PrototypeClusterer`. The defaults are meant for use: the network is pretrained, and k-means
    places the centres. `TELL.paper("mnist")` has the paper's settings.

    Args:
        weight: λ, the weight of the clustering loss relative to the reconstruction loss per value.
        center_step: length of one centre update, relative to the centre's length.
        center_decay: in its t-th epoch of updates, the step is center_step / (1 + center_decay · t). 0: constant, as in
            the paper.
        center_update: "normalized" takes the step in closed form; "optimizer" uses the optimiser with a rescaled
            gradient (the authors' code); "unnormalized" uses it without rescaling (the paper's ablation).
        init: initial centres: "neighbours", "k-means", "k-means++", "random" (the paper), or an array (n_clusters,
            embedding_dim). "neighbours": k-means in a layout of the neighbour graph of the embeddings, and rows keep
            these clusters for half of the epochs; plain k-means if the network has learnt from the neighbour graph
            itself, as for rows.
        joint: train the network and the centres together; False trains the network first and then only the centres.
        sphere: scale embeddings and centres to unit length, so that only directions count; False clusters in plain
            Euclidean space. "auto": True for a network that learns by reconstruction, False for one that learns from
            neighbours and for "identity".
        dropout: dropout before each encoder layer of the dense network.
        repair: move a centre without rows in an epoch to a row far from its own centre. False: the literal paper.
    """

    weight: float = knob(0.5, low=0)
    center_step: float = knob(0.1, low=0, high=1)
    center_decay: float = knob(0.0, low=0)
    center_update: CenterUpdate = "normalized"
    init: str | Any = "neighbours"
    joint: bool = True
    sphere: bool | Literal["auto"] = "auto"
    dropout: float = knob(0.2, low=0, high=1)
    repair: bool = True

    papers: ClassVar[dict[str, dict[str, Any]]] = {
        name: {
            "n_clusters": 10,
            "n_init": 5,
            "select": "loss",
            "network": network,
            "pretrain_epochs": 0,
            "epochs": 3000,
            "optimizer": "adadelta",
            "augment": None,
            "batch_size": 256,
            "weight": LAMBDA,
            "center_decay": 0.0,
            "init": "random",
            "sphere": True,
            "dropout": dropout,
            "repair": False,
        }
        for name, network, dropout in (
            ("mnist", "conv", 0.0),
            ("mnist-dense", "dense", 0.2),
            ("cifar10", "conv", 0.0),
        )
    }

    def build_model(self, autoencoder: Autoencoder, n_samples: int) -> TELLModel:
        has_sphere = self.network != "identity" and not isinstance(autoencoder, ScaledRows)
        sphere = has_sphere if self.sphere == "auto" else self.sphere
        if not sphere and self.center_update != "normalized":
            raise ValueError(f"center_update={self.center_update!r} needs sphere=True.")
        alpha = 1.0 if self.center_update == "normalized" else ALPHA
        clusters = ClusterLayer(self.n_clusters, autoencoder.embedding_dim, alpha=alpha, sphere=sphere)
        return TELLModel(autoencoder, clusters, self)

    def network_options(self) -> dict[str, dict[str, Any]]:
        return {"dense": {"dropout": self.dropout}}

    def is_joint(self) -> bool:
        return self.joint

    def why_not_online(self) -> str:
        return ""

    def online_step(self, model: Any, batch: OnlineBatch) -> None:
        """The paper's online rule: the centres move as in an even epoch."""
        model.clusters.step_(batch.pull, batch.mass, model.center_step)
