"""The default pipeline of SSCNet: a classifier on the codes.

Its parts are those of the paper (see `sscnet`), combined in another way. The codes of a row come from L-ADMM with a
dictionary, or from an encoder. The graph of a batch's codes and the eigenvector layers only add the loss tr(YᵀLY). Once
per epoch, spectral clustering of reference rows, extended to all rows by their nearest references, gives pseudo-labels
with the numbers of the previous ones. A classifier learns them from the codes, so the label of a row does not depend on
other rows.

If A is trained, as for images, only the direction of the codes counts, and both terms of L1 are divided by the square
root of the number of values. The atoms of a linear dictionary are rows of the data and stay fixed: SSC reconstructs a
row from other rows of its subspace, and a trained dictionary would forget the subspaces.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from ..engine.data import Batch, Data
from ..engine.model import Losses, Trainable
from ..nn.autoencoders import Autoencoder, ConvDictionary, RowDictionary, ScaledRows
from ..nn.cluster import ClusterLayer
from ..nn.contrastive import contrastive_loss
from ..nn.eigenvectors import EigenvectorLayer, random_orthonormal, smallest_eigenvectors
from ..nn.graph import affinity, attach, laplacian
from ..nn.kmeans import kmeans
from ..nn.ladmm import LADMMBlock
from ..nn.ops import squared_distances
from .prototypes import PrototypeDecoding

if TYPE_CHECKING:
    from .sscnet import SSCNet

HIDDEN = 256  # width of the classifier
CORNER_LENGTH = 3.0  # length of the classifier's initial centres
RIDGE = 0.1  # penalty of the regression that initialises the classifier, relative to the mean square of a feature
MAX_ROWS = 20_000  # largest number of rows of that regression
CALM_UPDATES = 5  # training stops after this many updates in which the pseudo-labels hardly changed
MIN_UPDATE_STEPS = 4  # smallest number of steps between updates of the pseudo-labels
GRAPH_ROWS = 256  # rows of a batch that are used for its graph


class Codes(NamedTuple):
    """The codes of samples, in the units of the network."""

    z: Tensor  # codes
    x: Tensor  # the samples; for a linear dictionary scaled to length one
    fit: Tensor  # A(z)
    e: Tensor  # errors; those of L-ADMM, if there are blocks


class Classifier(nn.Module):
    """Features (b, w) -> (b, embedding_dim): a linear map plus two layers whose output is zero at first."""

    def __init__(self, width: int, embedding_dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, embedding_dim)
        self.hidden, self.out = nn.Linear(width, HIDDEN), nn.Linear(HIDDEN, embedding_dim)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(features) + self.out(F.relu(self.hidden(features)))

    @torch.no_grad()
    def start(self, features: Tensor, targets: Tensor) -> None:
        """The linear map by ridge regression of the targets (n, embedding_dim) on the features."""
        one = features.new_ones(len(features), 1)
        design = torch.cat([features, one], dim=1).double()
        gram = design.T @ design
        floor = RIDGE * gram.diagonal()[:-1].mean() + 1e-6
        solution = torch.linalg.solve(
            gram + floor * torch.eye(len(gram), device=gram.device), design.T @ targets.double()
        )
        self.linear.weight.copy_(solution[:-1].T)
        self.linear.bias.copy_(solution[-1])


class CodesModel(PrototypeDecoding):
    placed: Tensor  # whether the dictionary has its atoms
    turn: Tensor  # steps modulo 3
    pseudo: Tensor  # pseudo-label of each row of the data
    reference: Tensor  # positions of the reference set
    basis: Tensor  # its spectral coordinates, from which the next update starts
    start: Tensor  # Y at the first eigenvector layer

    def __init__(self, autoencoder: Autoencoder, clusters: ClusterLayer, settings: "SSCNet") -> None:
        super().__init__(autoencoder, clusters)
        self.sparsity, self.sample_weights = settings.sparsity, settings.sample_weights
        self.spectral_weight, self.weight = settings.spectral_weight, settings.weight
        self.n_neighbors, self.graph = int(settings.n_neighbors), settings.graph
        self.reference_size, self.tolerance = int(settings.reference_size), settings.tolerance
        self.views = settings.views
        self.change: Callable[[Tensor], Tensor] | None = None  # the data's augmentation, if views need it
        self.calm = 0  # consecutive updates in which the pseudo-labels hardly changed
        self.homogeneous = isinstance(autoencoder, RowDictionary)
        n_blocks = settings.n_blocks
        if n_blocks == "auto":  # other networks have batch norm, whose statistics are not those of residuals
            n_blocks = 4 if isinstance(autoencoder, (RowDictionary, ConvDictionary)) else 1
        # the network for rows returns other units than it takes, so residuals are not defined
        learns = self.network_learns and not isinstance(autoencoder, ScaledRows)
        self.blocks = nn.ModuleList(self.build_blocks(n_blocks if learns else 0))
        self.layers = nn.ModuleList(
            EigenvectorLayer(clusters.n_clusters, cap=settings.cap) for _ in range(int(settings.n_layers))
        )
        self.classifier = self.build_classifier()
        self.register_buffer("placed", torch.zeros((), dtype=torch.bool))
        self.register_buffer("turn", torch.zeros(()))
        for name in ("pseudo", "reference", "basis", "start"):  # belong to the training data, not to the model
            self.register_buffer(name, torch.empty(0), persistent=False)

    def build_blocks(self, n_blocks: int) -> list[LADMMBlock]:
        """Blocks that share A and A'."""
        starts: dict[str, Any] = {"norm": "elements", "threshold": 0.01}
        if self.homogeneous:  # those of the algorithm for λ|Z|_1 + |E|; `place_atoms` sets the threshold
            starts = {"norm": "samples", "error_threshold": 1.0}
        network = self.autoencoder
        shapes = (network.embedding_dim,), network.input_shape
        return [LADMMBlock(network.synthesise, network.analyse, *shapes, **starts) for _ in range(n_blocks)]

    def build_classifier(self) -> nn.Module:
        return Classifier(self.autoencoder.embedding_dim, self.clusters.embedding_dim)

    # ---- (a) sparse codes

    def codes(self, x: Tensor) -> Codes:
        network = self.autoencoder
        t = network.normalize(x)
        if isinstance(network, ScaledRows):
            z = network.analyse(t).float()
            target, fit = network.scaled(x), network.decoded(z)
            return Codes(z, target, fit, target - fit)
        allowed = None
        if isinstance(network, RowDictionary):
            t = F.normalize(t.flatten(1), dim=1).view_as(t)
            allowed = network.others(t)
        if len(self.blocks) == 0:
            z = network.analyse(t).float()
            z = z if allowed is None else z * allowed
            fit = network.synthesise(z)
            return Codes(z, t, fit, t - fit)
        state = None
        for block in self.blocks:
            state = block(t, state, allowed)
        assert state is not None
        return Codes(state.z.float(), t, state.fit, state.e)

    def features(self, z: Tensor) -> Tensor:
        """The input of graph and classifier: the direction of the codes, or the codes themselves if they were learnt
        from neighbours. For a linear dictionary signs are dropped, because x and -x lie in one subspace."""
        if isinstance(self.autoencoder, ScaledRows):
            return z
        return F.normalize(z.abs() if self.homogeneous else z, dim=1)

    def represent(self, x: Tensor) -> Tensor:
        return self.features(self.codes(x).z)

    def coding_losses(self, codes: Codes) -> Losses:
        """L1. The atoms of a linear dictionary are fixed, and L1 is the problem that L-ADMM solves. If A is trained
        too, only the direction of the codes counts, because A could grow to make them small, and both terms are divided
        by the square root of the number of values."""
        z, x, fit, _ = codes
        size = (x - fit).flatten(1).float().square().sum(1).clamp_min(1e-12).sqrt()
        spread = z.abs().sum(1)
        if not self.homogeneous:
            values = math.sqrt(x[0].numel())
            size = size / values
            spread = spread / (z.shape[1] * z.square().sum(1)).clamp_min(1e-12).sqrt() / values
        if self.sample_weights:
            q = 1 / (1 + size.detach())
            size = size * (1 - q / q.sum())
        return {"reconstruction": size.mean(), "sparsity": self.sparsity * spread.mean()}

    def prepare(self, batch: Batch) -> Batch:
        return replace(batch, neighbour=self.change(batch.clean)) if self.change else batch

    def learn_codes(self, batch: Batch) -> tuple[Tensor, Losses]:
        """The features of a batch, with the losses of coding and of the views."""
        codes = self.codes(batch.x)
        features = self.features(codes.z)
        losses = self.coding_losses(codes) if self.network_learns else {}
        if self.change and batch.neighbour is not None:
            losses["views"] = self.views * contrastive_loss(features, self.represent(batch.neighbour))
        return features, losses

    def place_atoms(self, data: Data) -> None:
        """Initialise a linear dictionary with rows of the data, and the blocks as iterations of L-ADMM."""
        if not isinstance(self.autoencoder, RowDictionary) or bool(self.placed):
            return
        rows = data.map(self.autoencoder.normalize, data.draw(self.autoencoder.embedding_dim))
        step = self.autoencoder.set_atoms(rows)
        for block in self.blocks:
            nn.init.constant_(block.threshold, self.sparsity * step)  # type: ignore[arg-type]
        self.placed.fill_(True)

    # ---- (b) the graph of a batch

    def spectral_loss(self, features: Tensor) -> Tensor:
        features = features[: len(self.start)]
        with torch.autocast(features.device.type, enabled=False):
            weights = affinity(features, min(self.n_neighbors, len(features) - 1), self.graph)
            operator = laplacian(weights, normalized=True)
            y = self.start
            for layer in self.layers:
                y = layer(operator, y)
            return (y * (operator @ y)).sum() / y.shape[1]

    # ---- (c) self-labelling

    def embed(self, x: Tensor) -> Tensor:
        return self.classifier(self.represent(x)).float()

    @torch.no_grad()
    def label(self, data: Data) -> Tensor:
        """Spectral clusters of the reference set, extended to every row by its nearest references; in eval mode."""
        known = data.map(self.represent, self.reference)
        near = min(self.n_neighbors, len(known) - 1)
        operator = laplacian(affinity(known, near, self.graph), normalized=True)
        operator = operator.to_sparse() if self.graph == "knn" else operator
        vectors = smallest_eigenvectors(operator, start=self.basis, tolerance=1e-4)[1]
        self.basis = vectors.contiguous()  # as after loading a checkpoint
        rows = F.normalize(self.basis, dim=1)
        centers = kmeans(rows, self.clusters.n_clusters).centers

        def vote(x: Tensor) -> Tensor:
            y = F.normalize(attach(self.represent(x), known, near).extend(rows), dim=1)
            return squared_distances(y, centers).argmin(1)

        return data.map(vote)

    def align(self, labels: Tensor) -> Tensor:
        """Give the new clusters the numbers of the old ones they share most rows with."""
        k = self.clusters.n_clusters
        shared = torch.bincount(labels * k + self.pseudo, minlength=k * k).view(k, k)
        new, old = linear_sum_assignment(shared.cpu().numpy(), maximize=True)
        number = torch.empty(k, dtype=torch.long)
        number[torch.from_numpy(new)] = torch.from_numpy(old)
        return number.to(labels.device)[labels]

    def before_training(self, data: Data) -> None:
        self.place_atoms(data)
        k = self.clusters.n_clusters
        size = min(data.batch_size, GRAPH_ROWS)
        self.start = random_orthonormal(size, min(k, size), like=self.turn)
        self.reference = data.draw(max(self.reference_size, k))
        # a few more than k: the k-th eigenvalue and the next are often nearly equal, and either vector may be needed
        vectors = min(len(self.reference), k + math.ceil(k / 5))
        self.basis = random_orthonormal(len(self.reference), vectors, like=self.turn)
        with self.evaluating():
            self.pseudo = self.label(data)
            self.start_classifier(data)

    @torch.no_grad()
    def start_classifier(self, data: Data) -> None:
        """Initialise the classifier by ridge regression of the pseudo-labels, with one corner per cluster; in eval
        mode."""
        index = data.draw(MAX_ROWS)
        labels = self.pseudo[index]
        k, dim = self.clusters.n_clusters, self.clusters.embedding_dim
        corners = torch.eye(k, dim) if k <= dim else F.normalize(torch.randn(k, dim), dim=1)
        corners = CORNER_LENGTH * corners.to(self.turn)
        self.classifier.start(data.map(self.represent, index), corners[labels])  # type: ignore[operator]
        u = data.map(self.embed, index)
        member = F.one_hot(labels, k).to(u)
        count = member.sum(0)[:, None]
        self.clusters.set_centers(torch.where(count > 0, member.T @ u / count.clamp_min(1), corners))

    def before_epoch(self, epoch: int, data: Data) -> None:
        self.change = data.augment if self.views else None
        if epoch == 0 or epoch % math.ceil(MIN_UPDATE_STEPS / data.steps):
            return
        with self.evaluating():
            labels = self.align(self.label(data))
        moved = (labels != self.pseudo).double().mean().item()
        self.pseudo.copy_(labels)
        self.calm = self.calm + 1 if moved <= self.tolerance else 0

    def loss(self, batch: Batch) -> Losses:
        features, losses = self.learn_codes(batch)
        logits = self.clusters.logits(self.classifier(features).float())
        clustering = F.cross_entropy(logits, self.pseudo[batch.index])
        # factors instead of branches, so that one captured step serves all turns
        second, third = (self.turn >= 1).float(), (self.turn >= 2).float()
        if self.network_learns:
            losses["spectral"] = self.spectral_weight * second * self.spectral_loss(features)
            clustering = third * clustering
        return {**losses, "clustering": self.weight * clustering}

    def after_step(self, batch: Batch) -> None:
        self.turn.add_(1).remainder_(3)

    def after_epoch(self, epoch: int, data: Data) -> None:
        self.finished = self.calm >= CALM_UPDATES

    @torch.no_grad()
    def after_training(self, data: Data) -> None:
        self.change = None
        self.note_if_settled(f"{CALM_UPDATES} calm epochs, by tolerance={self.tolerance:g}")
        index = data.draw(MAX_ROWS)
        nearest = self.clusters.distances(data.map(self.embed, index)).argmin(0)
        self.prototypes.copy_(data.map(lambda x: self.codes(x).z, index[nearest]))

    def clustering_loss(self, z: Tensor) -> Tensor:
        return -F.log_softmax(self.clusters.logits(z), dim=1).amax(1)

    def reconstruct(self, x: Tensor) -> Tensor:
        return self.codes(x).fit

    def training_state(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("pseudo", "reference", "basis", "start", "calm")}
        return {**super().training_state(), "own": own}

    def load_training_state(self, state: dict[str, Any]) -> None:
        super().load_training_state(state)
        for name, value in state["own"].items():
            setattr(self, name, value.to(self.turn.device) if isinstance(value, Tensor) else value)


class SparseCoding(Trainable):
    """The pretraining of SSCNet: module (a) alone, on L1 and the loss of the views."""

    def __init__(self, model: CodesModel) -> None:
        super().__init__()
        self.model = model

    def before_training(self, data: Data) -> None:
        self.model.place_atoms(data)

    def before_epoch(self, epoch: int, data: Data) -> None:
        self.model.change = data.augment if self.model.views else None

    def prepare(self, batch: Batch) -> Batch:
        return self.model.prepare(batch)

    def loss(self, batch: Batch) -> Losses:
        return self.model.learn_codes(batch)[1]

    def reconstruct(self, x: Tensor) -> Tensor:
        return self.model.reconstruct(x)

    def parameters(self, recurse: bool = True) -> Any:
        yield from self.model.autoencoder.parameters(recurse)
        yield from self.model.blocks.parameters(recurse)
