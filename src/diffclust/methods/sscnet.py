"""SSCNet: sparse subspace clustering, learnt, so that it trains in batches and answers for new rows.

"SSCNet: learning-based subspace clustering": unrolled L-ADMM, eigenvectors by descent on the Stiefel manifold and
self-labelling. The misprints of its formulas are mended here.

(a) Sparse codes. A few blocks of L-ADMM (`nn.LADMMBlock`) write a sample by a dictionary: X ≈ A(Z), with::

        L1 = mean_i w_i |E_i| + λ |Z|_1,   E = X - A(Z),   w_i = 1 - q_i / Σq,   q_i = 1 / (1 + |E_i|)

    so that rows which are written badly count a little more (the weights are near one: they hardly matter). That is
    L1 of rows; where A learns, as for images, codes count by their direction and both terms are divided by the square
    root of the number of values.

(b) A graph of the codes, `W_ij = exp(-|z_i - z_j|² / σ_i)` for the nearest neighbours, its normalised Laplacian L, and
    a stack of eigenvector layers (`nn.EigenvectorLayer`) that descend to orthonormal Y from a fixed start::

        L_e = tr(YᵀLY) / k

(c) Self-labelling. Spectral clustering of a reference set, extended to all rows by their nearest references, gives
    pseudo-labels once an epoch, aligned to those before; a classifier learns them::

        L_K = cross-entropy(classifier(z), pseudo-label)

Steps take turns, by their count modulo 3: L1;  L1 + c1 L_e;  L1 + c1 L_e + c2 L_K. The end is when the pseudo-labels
rest. Where the paper's classifier reads rows of a batch's Y, which are only given up to a rotation and depend on the
company, this one reads the codes: a single row has an answer, and always the same.

For rows the dictionary is linear and its atoms are rows of the data, which stay: to write a row by others of its
subspace is what SSC is about, and a free dictionary forgets the subspaces. L-ADMM's A' and thresholds are learnt.
"""

import math
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from ..engine.data import Batch, Data
from ..engine.model import ClusterModel, Losses, Trainable
from ..estimator import networks
from ..estimator.base import PrototypeClusterer
from ..estimator.knobs import knob
from ..estimator.settings import hyperparameters
from ..estimator.streams import Arrived
from ..nn.autoencoders import Autoencoder, ConvDictionary, RowDictionary
from ..nn.cluster import ClusterLayer
from ..nn.eigenvectors import EigenvectorLayer, random_orthonormal, smallest_eigenvectors
from ..nn.graph import Graph, affinity, laplacian, scales
from ..nn.kmeans import kmeans
from ..nn.ladmm import LADMMBlock
from ..nn.ops import squared_distances

HIDDEN = 256  # width of the classifier
APART = 3.0  # distance scale of the classifier's centres at the start
RIDGE = 0.1  # of the classifier's start, as a share of the mean feature
SAMPLE = 20_000  # rows the classifier's start is fitted on
ONLINE = 0.1  # share of the way a centre goes to its rows of an arriving batch of 256; less for a smaller one
CALM = 5  # epochs the pseudo-labels must rest before training stops


class Classifier(nn.Module):
    """Features (b, w) -> (b, embedding_dim): a linear map, and two layers that start as nothing beside it."""

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


class SSCNetModel(ClusterModel):
    placed: Tensor  # whether the dictionary has its atoms
    turn: Tensor  # steps modulo 3
    prototypes: Tensor  # codes of the row nearest to each centre
    pseudo: Tensor  # pseudo-label of each row of the data
    reference: Tensor  # positions of the reference set
    basis: Tensor  # its spectral coordinates, the start of the next look
    start: Tensor  # Y at the first eigenvector layer

    def __init__(self, autoencoder: Autoencoder, clusters: ClusterLayer, settings: "SSCNet") -> None:
        super().__init__(autoencoder, clusters)
        self.sparsity, self.sample_weights = settings.sparsity, settings.sample_weights
        self.spectral_weight, self.weight = settings.spectral_weight, settings.weight
        self.n_neighbors, self.graph = int(settings.n_neighbors), settings.graph
        self.reference_size, self.tolerance = int(settings.reference_size), settings.tolerance
        self.calm = 0  # epochs for which the pseudo-labels have rested
        self.homogeneous = isinstance(autoencoder, RowDictionary)
        width, shape = autoencoder.embedding_dim, autoencoder.input_shape
        n_blocks = settings.n_blocks
        if n_blocks == "auto":  # other networks have batch norm, whose statistics are of samples and not of residuals
            n_blocks = 4 if isinstance(autoencoder, (RowDictionary, ConvDictionary)) else 1
        starts: dict[str, Any] = {"norm": "elements", "threshold": 0.01}
        if self.homogeneous:  # the algorithm's own for λ|Z|_1 + |E|; the first threshold comes with the atoms
            starts = {"norm": "samples", "error_threshold": 1.0}
        self.blocks = nn.ModuleList(
            LADMMBlock(autoencoder.synthesise, autoencoder.analyse, (width,), shape, **starts)
            for _ in range(n_blocks if self.network_learns else 0)
        )
        k = clusters.n_clusters
        self.layers = nn.ModuleList(EigenvectorLayer(k) for _ in range(int(settings.n_layers)))
        self.classifier = Classifier(width, clusters.embedding_dim)
        self.register_buffer("placed", torch.zeros((), dtype=torch.bool))
        self.register_buffer("turn", torch.zeros(()))
        self.register_buffer("prototypes", torch.zeros(k, width))
        for name in ("pseudo", "reference", "basis", "start"):  # of the data at hand: not part of the model
            self.register_buffer(name, torch.empty(0), persistent=False)

    # ---- (a) sparse codes

    def codes(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Codes z, and the sample as it is and as A(z), both in the network's units; a linear dictionary's samples
        have length one there."""
        t = self.autoencoder.normalize(x)
        allowed = None
        if isinstance(self.autoencoder, RowDictionary):
            t = F.normalize(t.flatten(1), dim=1).view_as(t)
            allowed = self.autoencoder.others(t)
        if len(self.blocks) == 0:
            z = self.autoencoder.analyse(t).float()
            z = z if allowed is None else z * allowed
            return z, t, self.autoencoder.synthesise(z)
        state = None
        for block in self.blocks:
            state = block(t, state, allowed)
        assert state is not None
        return state.z.float(), t, state.fit

    def features(self, z: Tensor) -> Tensor:
        """What graph and classifier see of codes: their direction. x and -x lie in one subspace, so that the signs of
        a linear dictionary's codes do not count."""
        return F.normalize(z.abs() if self.homogeneous else z, dim=1)

    def coding_losses(self, z: Tensor, t: Tensor, fit: Tensor) -> Losses:
        """L1. The atoms of a linear dictionary stay as they are, and L1 is the problem that L-ADMM solves. Where A
        learns too, codes count by their direction, or A would grow to make them small, and both terms are divided by
        the square root of the number of values."""
        size = (t - fit).flatten(1).float().square().sum(1).clamp_min(1e-12).sqrt()
        spread = z.abs().sum(1)
        if not self.homogeneous:
            values = math.sqrt(t[0].numel())
            size = size / values
            spread = spread / (z.shape[1] * z.square().sum(1)).clamp_min(1e-12).sqrt() / values
        if self.sample_weights:
            q = 1 / (1 + size.detach())
            size = size * (1 - q / q.sum())
        return {"reconstruction": size.mean(), "sparsity": self.sparsity * spread.mean()}

    def place_atoms(self, data: Data) -> None:
        """A linear dictionary starts as rows of the data, and the blocks as the algorithm itself."""
        if not isinstance(self.autoencoder, RowDictionary) or bool(self.placed):
            return
        rows = data.map(self.autoencoder.normalize, data.draw(self.autoencoder.embedding_dim))
        step = self.autoencoder.set_atoms(rows)
        for block in self.blocks:
            nn.init.constant_(block.threshold, self.sparsity * step)  # type: ignore[arg-type]
        self.placed.fill_(True)

    # ---- (b) the graph of a batch

    def spectral_loss(self, features: Tensor) -> Tensor:
        with torch.autocast(features.device.type, enabled=False):
            weights = affinity(features, min(self.n_neighbors, len(features) - 1), self.graph)
            operator = laplacian(weights, normalized=True)
            y = self.start
            for layer in self.layers:
                y = layer(operator, y)
            return (y * (operator @ y)).sum() / y.shape[1]

    # ---- (c) self-labelling

    def embed(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(self.codes(x)[0])).float()

    @torch.no_grad()
    def label(self, data: Data) -> Tensor:
        """Spectral clusters of the reference set, extended to every row by its nearest references; in eval mode."""
        known = data.map(lambda x: self.features(self.codes(x)[0]), self.reference)
        near = min(self.n_neighbors, len(known) - 1)
        operator = laplacian(affinity(known, near, self.graph), normalized=True)
        operator = operator.to_sparse() if self.graph == "knn" else operator
        vectors = smallest_eigenvectors(operator, start=self.basis, tolerance=1e-4)[1]
        self.basis = vectors.contiguous()  # as a checkpoint would give it back
        rows = F.normalize(self.basis, dim=1)
        centers = kmeans(rows, self.clusters.n_clusters).centers

        def vote(x: Tensor) -> Tensor:
            distances = squared_distances(self.features(self.codes(x)[0]), known)
            nearest = distances.topk(near, largest=False)
            weight = torch.exp(-nearest.values / scales(distances))
            y = F.normalize((weight[..., None] * rows[nearest.indices]).sum(1), dim=1)
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
        size = data.batch_size
        self.start = random_orthonormal(size, min(k, size), like=self.turn)
        self.reference = data.draw(max(self.reference_size, k))
        # a few more than k: the k-th and the next are often nearly equal, and either may be the one that matters
        vectors = min(len(self.reference), k + math.ceil(k / 5))
        self.basis = random_orthonormal(len(self.reference), vectors, like=self.turn)
        with self.evaluating():
            self.pseudo = self.label(data)
            self.start_classifier(data)

    @torch.no_grad()
    def start_classifier(self, data: Data) -> None:
        """Ridge regression of the pseudo-labels, each cluster to a corner of its own; in eval mode."""
        index = data.draw(SAMPLE)
        labels = self.pseudo[index]
        k, dim = self.clusters.n_clusters, self.clusters.embedding_dim
        corners = torch.eye(k, dim) if k <= dim else F.normalize(torch.randn(k, dim), dim=1)
        corners = APART * corners.to(self.turn)
        self.classifier.start(data.map(lambda x: self.features(self.codes(x)[0]), index), corners[labels])
        u = data.map(self.embed, index)
        member = F.one_hot(labels, k).to(u)
        count = member.sum(0)[:, None]
        self.clusters.set_centers(torch.where(count > 0, member.T @ u / count.clamp_min(1), corners))

    def before_epoch(self, epoch: int, data: Data) -> None:
        if epoch == 0:
            return
        with self.evaluating():
            labels = self.align(self.label(data))
        moved = (labels != self.pseudo).double().mean().item()
        self.pseudo.copy_(labels)
        self.calm = self.calm + 1 if moved <= self.tolerance else 0

    def loss(self, batch: Batch) -> Losses:
        z, t, fit = self.codes(batch.x)
        features = self.features(z)
        losses = self.coding_losses(z, t, fit) if self.network_learns else {}
        logits = self.clusters.logits(self.classifier(features).float())
        clustering = F.cross_entropy(logits, self.pseudo[batch.index])
        # numbers, not branches: one and the same step is replayed
        second, third = (self.turn >= 1).float(), (self.turn >= 2).float()
        if self.network_learns:
            losses["spectral"] = self.spectral_weight * second * self.spectral_loss(features)
            clustering = third * clustering
        return {**losses, "clustering": self.weight * clustering}

    def after_step(self, batch: Batch) -> None:
        self.turn.add_(1).remainder_(3)

    def after_epoch(self, epoch: int, data: Data) -> None:
        self.finished = self.calm >= CALM

    @torch.no_grad()
    def after_training(self, data: Data) -> None:
        self.note_if_settled(f"{CALM} calm epochs, by tolerance={self.tolerance:g}")
        index = data.draw(SAMPLE)
        nearest = self.clusters.distances(data.map(self.embed, index)).argmin(0)
        self.prototypes.copy_(data.map(lambda x: self.codes(x)[0], index[nearest]))

    def clustering_loss(self, z: Tensor) -> Tensor:
        return -F.log_softmax(self.clusters.logits(z), dim=1).amax(1)

    def decode(self, z: Tensor) -> Tensor:
        """By way of codes: those of the rows nearest to the centres, mixed as the classifier is in doubt."""
        doubt = torch.softmax(self.clusters.logits(z), dim=1).to(self.prototypes)
        return self.autoencoder.decode(doubt @ self.prototypes)

    def reconstruct(self, x: Tensor) -> Tensor:
        return self.codes(x)[2]

    def training_state(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("pseudo", "reference", "basis", "start", "calm")}
        return {**super().training_state(), "own": own}

    def load_training_state(self, state: dict[str, Any]) -> None:
        super().load_training_state(state)
        for name, value in state["own"].items():
            setattr(self, name, value.to(self.turn.device) if isinstance(value, Tensor) else value)


class SparseCoding(Trainable):
    """Module (a) alone, on L1: what SSCNet is pretrained with."""

    def __init__(self, model: SSCNetModel) -> None:
        super().__init__()
        self.model = model

    def before_training(self, data: Data) -> None:
        self.model.place_atoms(data)

    def loss(self, batch: Batch) -> Losses:
        return self.model.coding_losses(*self.model.codes(batch.x))

    def reconstruct(self, x: Tensor) -> Tensor:
        return self.model.reconstruct(x)

    def parameters(self, recurse: bool = True) -> Any:
        yield from self.model.autoencoder.parameters(recurse)
        yield from self.model.blocks.parameters(recurse)


@hyperparameters
class SSCNet(PrototypeClusterer):
    """Learnt sparse subspace clustering: for data that lie on planes rather than in balls, in batches, and with an
    answer for new rows.

    Shared parameters: see `PrototypeClusterer`. network="auto" takes rows of the data as a dictionary for rows, and a
    convolutional network for images; embedding_dim is the width of the classifier's last layer, and of the codes of a
    network. network="conv-dictionary" is the paper's own for images, with four blocks; `SSCNet.paper("usps")` has its
    settings as far as they are printed, which epochs, layers and classifier are not. Decoding goes by way of the rows
    nearest to the centres. With fewer rows in a batch than `n_neighbors` or `n_clusters`, as many as there are count.

    Args:
        n_blocks: L-ADMM blocks; 0 leaves the network's own codes. "auto": 4 for dictionaries, 1 around other networks.
        n_atoms: of the dictionary of rows; no more than there are rows.
        n_neighbors: of a row in the graph.
        graph: "knn" (that many neighbours), or "full" (all pairs, the paper's dense form).
        n_layers: eigenvector layers.
        sparsity: λ, of `|Z|_1` in L1; the dictionary of rows starts as L-ADMM with this weight.
        spectral_weight: c1, of the trace tr(YᵀLY).
        weight: c2, of the classifier's cross-entropy.
        sample_weights: weigh rows by w; False counts them all alike.
        reference_size: rows whose graph is cut for the pseudo-labels. Memory grows with its square, never with that of
            n.
        tolerance: share of pseudo-labels that may change in a calm epoch; five such end the training.
    """

    n_blocks: int | Literal["auto"] = knob("auto", low=0)
    n_atoms: int = knob(512, low=1)
    n_neighbors: int = knob(10, low=1)
    graph: Graph = "knn"
    n_layers: int = knob(10, low=0)
    sparsity: float = knob(0.15, low=0)
    spectral_weight: float = knob(0.15, low=0)
    weight: float = knob(0.15, low=0)
    sample_weights: bool = True
    reference_size: int = knob(2000, low=2)
    tolerance: float = knob(1e-3, low=0, high=1)

    indivisible: ClassVar[str] = "its graph is of all rows of a batch"
    papers: ClassVar[dict[str, dict[str, Any]]] = {
        name: {
            "n_clusters": 10,
            "network": "conv-dictionary",
            "n_blocks": 4,
            "n_neighbors": 5,
            "embedding_dim": 10,
            "optimizer": "sgd",
            "lr": 3e-4,
            "batch_size": 256,
            "pretrain_epochs": 0,
            "epochs": 100,
            "augment": None,
        }
        for name in ("mnist", "usps", "cifar10")
    }

    learns_by_neighbours: ClassVar[bool] = False  # its dictionary has a graph of its own

    def build_autoencoder(self, data: Data) -> Autoencoder:
        kind = self.network
        if kind == "auto":
            kind = "conv" if len(data.row_shape) == 3 else "dictionary"
        width = min(int(self.n_atoms), len(data)) if kind == "dictionary" else self.embedding_dim
        return networks.build(kind, data, width, {})

    def pretraining(self, model: Any) -> SparseCoding:
        return SparseCoding(model)

    def offline(self) -> str:
        return ""

    def online_step(self, model: Any, arrived: Arrived) -> None:
        """The centres of the classifier follow the new rows; codes and classifier rest."""
        model.clusters.move_(arrived.z, ONLINE * min(1.0, len(arrived.z) / 256))

    def online_learner(self, model: ClusterModel) -> Trainable:
        raise ValueError("learn_network=True: the pseudo-labels that SSCNet's network learns are those of all rows.")

    def build_model(self, autoencoder: Autoencoder, n_samples: int) -> SSCNetModel:
        clusters = ClusterLayer(self.n_clusters, self.embedding_dim, assignment="softmax")
        return SSCNetModel(autoencoder, clusters, self)
