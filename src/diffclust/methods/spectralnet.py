"""SpectralNet: spectral clustering by a network, which can label new rows.

Shaham, Stanton, Li, Basri, Nadler, Kluger: "SpectralNet: Spectral Clustering using Deep Neural Networks", ICLR 2018.

Three networks are trained one after the other. The first is an autoencoder with codes h. The second, a Siamese network
s, learns distances between codes from pairs of neighbours and random pairs, eq. (8)::

    L = |s_i - s_j|²  for neighbours,   max(0, 1 - |s_i - s_j|)²  for others

If the encoder itself learns from the neighbour graph, it does that already, and s is h. The third network, F, maps
codes to k numbers. With `W_ij = exp(-|s_i - s_j|² / 2σ²)` between each row of a batch of m and its nearest neighbours
in the batch, and zero elsewhere, eqs. (3) and (4)::

    min (1/m) Σ_ij W_ij |y_i - y_j|²,   Y = F(h) M,   YᵀY = m I

whose solution are the first eigenvectors of the graph Laplacian. M (k, k), the inverse square root of FᵀF / m, makes Y
orthonormal, and gradients flow through it. The paper uses a triangular M of the previous batch (the objective does not
depend on the rotation by which it differs) and keeps it fixed during the step; most of the step then only shrinks F,
and two concentric rings were not found. k-means on the rows of Y gives the clusters; new rows use the M of the training
rows.

If F has rank below k there is no such M, and the missing directions of Y become zero. If that had no cost, a constant F
would be optimal, and tanh does not recover once it is saturated: a few large steps at the start are enough. So a
missing direction costs as much as a random one, 2 Σ_ij W_ij / m; codes are standardised by their spread; and the
learning rate has a warm-up before it falls.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..engine.data import Batch, Data
from ..engine.model import ClusterModel, Losses, Trainable
from ..engine.pretraining import Pretraining, warm_up_and_decay
from ..estimator.base import PrototypeClusterer
from ..estimator.knobs import knob
from ..estimator.settings import hyperparameters
from ..nn.autoencoders import Autoencoder
from ..nn.cluster import ClusterLayer
from ..nn.neighbours import nearest_neighbours
from ..nn.ops import squared_distances
from .prototypes import PrototypeDecoding

SIAMESE_NEIGHBOURS = 2  # nearest codes of a row that count as neighbours for the Siamese network
MARGIN = 1.0  # smallest distance that other rows should have
NEWTON_STEPS = 25  # for an inverse root: enough for eigenvalues down to 1e-12 of the largest
RIDGE = 1e-6  # added to the eigenvalues of FᵀF / m, as a share of their mean
MAX_FITTED_ROWS = 50_000  # rows from which the last M is found
AUTO_BATCH_SIZE = 1024  # batch_size="auto": rows should have neighbours in their batch
AUTO_STEPS = 800  # epochs="auto": this many steps


def layers(widths: Sequence[int]) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    parts: list[nn.Module] = []
    for i, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
        parts += [nn.ReLU()] if i else []
        parts.append(nn.Linear(fan_in, fan_out))
    return nn.Sequential(*parts)


def inverse_root(gram: Tensor) -> Tensor:
    """G^(-1/2) of a positive definite G (k, k) by products alone (Newton and Schulz), so that a GPU need not wait."""
    scale = gram.diagonal().sum()  # the gradient of trace() makes a GPU wait
    one = torch.eye(len(gram), dtype=torch.float64, device=gram.device)
    y = gram.double() / scale + RIDGE / len(gram) * one
    z = one
    for _ in range(NEWTON_STEPS):
        t = (3 * one - z @ y) / 2
        y, z = y @ t, t @ z
    return (z / scale.sqrt()).to(gram.dtype)


def orthonormalizer(y: Tensor) -> Tensor:
    """M (k, k) of F (m, k). In double precision, because rounding could make the smallest eigenvalues of FᵀF
    negative."""
    exact = y.double()
    return inverse_root(exact.T @ exact / len(y)).to(y.dtype)


class SpectralNetModel(PrototypeDecoding):
    whitening: Tensor  # M (k, k)
    compares: Tensor  # whether the Siamese network has learnt
    codes: Tensor  # h of all rows (n, d)
    places: Tensor  # s of all rows
    scale: Tensor  # σ²

    def __init__(self, autoencoder: Autoencoder, clusters: ClusterLayer, settings: "SpectralNet") -> None:
        super().__init__(autoencoder, clusters)
        d, k = autoencoder.embedding_dim, clusters.n_clusters
        self.n_neighbors = int(settings.n_neighbors)
        hidden = (settings.width, settings.width, math.ceil(settings.width / 2))
        self.map = nn.Sequential(layers([d, *hidden, k]), nn.Tanh())
        self.siamese = layers([d, *hidden, d]) if self.network_learns else nn.Identity()
        self.frozen_parts = ("autoencoder", "siamese")
        clusters.weight.requires_grad_(False)
        self.register_buffer("whitening", torch.eye(k))
        self.register_buffer("compares", torch.zeros((), dtype=torch.bool))
        self.forget_rows()

    def forget_rows(self) -> None:
        """Remove tensors of the training rows, which are not part of the fitted model."""
        for name in ("codes", "places", "scale"):
            self.register_buffer(name, torch.empty(0, device=self.whitening.device), persistent=False)

    def represent(self, x: Tensor) -> Tensor:
        return self.autoencoder.encode(x).float()

    def embed(self, x: Tensor) -> Tensor:
        return self.map(self.represent(x)).float() @ self.whitening

    def before_training(self, data: Data) -> None:
        with self.evaluating(), torch.no_grad():
            self.codes = data.map(self.represent)
            self.places = self.siamese(self.codes) if bool(self.compares) else self.codes
            some = self.places[data.draw(data.batch_size)]
            near = min(self.n_neighbors, len(some) - 1)
            self.scale = nearest_neighbours(some, near).distance[:, -1].median().square().clamp_min(1e-12)
            self.standardise_codes()
            self.make_orthonormal(self.codes[data.draw(data.batch_size)])

    @torch.no_grad()
    def standardise_codes(self) -> None:
        """Standardise the codes within the first layer of the map: tanh would be flat for the outputs of large
        codes."""
        first = next(layer for layer in self.map.modules() if isinstance(layer, nn.Linear))
        first.weight.div_(self.codes.var(0, correction=0).mean().sqrt().clamp_min(1e-12))
        first.bias.sub_(first.weight @ self.codes.mean(0))

    @torch.no_grad()
    def make_orthonormal(self, codes: Tensor) -> None:
        with torch.autocast(codes.device.type, enabled=False):
            y = self.map(codes).float()
            self.whitening.copy_(orthonormalizer(y))

    def weights(self, s: Tensor) -> Tensor:
        """W (m, m) of a batch."""
        distances = squared_distances(s, s)
        itself = torch.eye(len(s), dtype=torch.bool, device=s.device)
        count = min(self.n_neighbors, len(s) - 1)
        nearest = distances.masked_fill(itself, torch.inf).topk(count, largest=False)
        weights = torch.zeros_like(distances).scatter_(
            1, nearest.indices, torch.exp(-nearest.values / (2 * self.scale))
        )
        return (weights + weights.T) / 2

    def lr_factor(self, epoch: int) -> float:
        return warm_up_and_decay(epoch, self.epochs)

    def loss(self, batch: Batch) -> Losses:
        y = self.map(self.codes[batch.index]).float()
        with torch.autocast(y.device.type, enabled=False):
            y = y @ orthonormalizer(y)
            w = self.weights(self.places[batch.index])
            lacking = y.shape[1] - y.square().sum() / len(y)
            return {"clustering": ((w * squared_distances(y, y)).sum() + 2 * w.sum() * lacking) / len(y)}

    @torch.no_grad()
    def after_training(self, data: Data) -> None:
        self.make_orthonormal(self.codes[data.draw(MAX_FITTED_ROWS)])
        self.place_centers(data, "k-means")
        index = data.draw(MAX_FITTED_ROWS)
        with self.evaluating():
            nearest = self.clusters.distances(data.map(self.embed, index)).argmin(0)
        self.prototypes.copy_(self.codes[index[nearest]])
        self.forget_rows()

    def clustering_loss(self, z: Tensor) -> Tensor:
        return self.clusters.distances(z).amin(1)

    def reconstruct(self, x: Tensor) -> Tensor:
        return self.autoencoder.decode(self.represent(x))

    def training_state(self) -> dict[str, Any]:
        rows = {"codes": self.codes, "places": self.places, "scale": self.scale}
        return {**super().training_state(), **rows}

    def load_training_state(self, state: dict[str, Any]) -> None:
        super().load_training_state(state)
        for name in ("codes", "places", "scale"):
            setattr(self, name, state[name].to(self.whitening))


class Siamese(Trainable):
    """A model's Siamese network alone, on the codes of a fixed network."""

    codes: Tensor  # h (n, d)
    near: Tensor  # nearest others of each row (n, 2)

    def __init__(self, model: SpectralNetModel) -> None:
        super().__init__()
        self.model = model
        for name in ("codes", "near"):
            self.register_buffer(name, torch.empty(0), persistent=False)

    def before_training(self, data: Data) -> None:
        with self.evaluating(), torch.no_grad():
            self.codes = data.map(self.model.represent)
            self.near = nearest_neighbours(self.codes, min(SIAMESE_NEIGHBOURS, len(data) - 1)).places

    def lr_factor(self, epoch: int) -> float:
        return warm_up_and_decay(epoch, self.epochs)

    def loss(self, batch: Batch) -> Losses:
        near = self.near[batch.index]
        s = self.model.siamese(self.codes[batch.index]).float()
        neighbours = self.model.siamese(self.codes[near.flatten()]).float().view(*near.shape, -1)
        others = s.roll(1, 0)  # a batch is in random order
        apart = (s - others).square().sum(1).clamp_min(1e-12).sqrt()
        return {
            "neighbours": (s[:, None] - neighbours).square().sum(2).mean(),
            "others": F.relu(MARGIN - apart).square().mean(),
        }

    def after_training(self, data: Data) -> None:
        self.model.compares.fill_(True)
        self.codes = self.near = torch.empty(0, device=data.device)

    def reconstruct(self, x: Tensor) -> Tensor:
        return self.model.reconstruct(x)

    def parameters(self, recurse: bool = True) -> Any:
        return self.model.siamese.parameters(recurse)

    def training_state(self) -> dict[str, Any]:
        return {**super().training_state(), "codes": self.codes, "near": self.near}

    def load_training_state(self, state: dict[str, Any]) -> None:
        super().load_training_state(state)
        device = self.model.whitening.device
        self.codes, self.near = state["codes"].to(device), state["near"].to(device)


@hyperparameters
class SpectralNet(PrototypeClusterer):
    """Spectral clustering learnt by a network, for connected clusters of any shape.

    Shared parameters: see `PrototypeClusterer`. The embedding approximates the eigenvectors of the neighbour graph,
    `n_clusters` numbers per row; `embedding_dim` is the dimension of the codes before it. The codes of all rows are
    kept on the device. `SpectralNet.paper("mnist")` has the authors' settings for codes, except for the learning rate,
    which has a warm-up and a decay here; they lower it when the loss of held-out rows stops falling. Their codes are
    those of VaDE's autoencoder. Without a network (`network="identity"`) distances are those of the rows.

    Args:
        n_neighbors: number of neighbours of a row within its batch.
        width: width of the Siamese network and of the map, which have two layers of this width and one half as wide.
        siamese_epochs: epochs of the Siamese network; "auto": as many as the autoencoder's. 0: use distances of the
            codes.
    """

    n_neighbors: int = knob(10, low=1)
    width: int = knob(512, low=1)
    siamese_epochs: int | Literal["auto"] = knob("auto", low=0)

    can_fall_back: ClassVar[bool] = False  # without a network it cuts a graph, and is not k-means
    why_not_shared: ClassVar[str] = "its graph needs all rows of a batch"
    why_not_overclustered: ClassVar[str] = "its embedding has one coordinate per cluster"
    papers: ClassVar[dict[str, dict[str, Any]]] = {
        "mnist": {
            "n_clusters": 10,
            "network": "dense",
            "embedding_dim": 10,
            "width": 1024,
            "n_neighbors": 3,
            "batch_size": 1024,
            "optimizer": "rmsprop",
            "lr": 1e-3,
            "pretrain_epochs": 30,
            "siamese_epochs": 50,
            "epochs": 100,
            "augment": None,
        }
    }

    def _batch_size(self, n: int, neighbours: bool = False) -> int:
        return (
            min(n, AUTO_BATCH_SIZE)
            if self.batch_size == "auto" and not neighbours
            else super()._batch_size(n, neighbours)
        )

    def _epochs(self, wish: int | str, data: Data, phase: int) -> int:
        return (
            math.ceil(AUTO_STEPS / data.steps) if wish == "auto" and phase == 1 else super()._epochs(wish, data, phase)
        )

    def pretraining_plan(self, model: ClusterModel, epochs: int) -> list[tuple[str, Trainable, int]]:
        assert isinstance(model, SpectralNetModel)
        wish = self.siamese_epochs
        siamese = [] if wish == 0 else [("siamese", Siamese(model), epochs if wish == "auto" else int(wish))]
        return [("pretraining", Pretraining(model), epochs), *siamese]

    def why_not_online(self) -> str:
        return "its map depends on the graph of all rows"

    def build_model(self, autoencoder: Autoencoder, n_samples: int) -> SpectralNetModel:
        return SpectralNetModel(autoencoder, ClusterLayer(self.n_clusters, self.n_clusters), self)
