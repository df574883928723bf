"""The pipelines of the SSCNet paper: codes, their graph, eigenvector layers, and a classifier on their output.

(a) Every block of L-ADMM has its own pair (A, A'); all pairs have the same initial values::

        L1 = Σ_i w_i |E_i|_2 + λ |Z|_1,   w_i = 1 - q_i / Σq,   q_i = 1 / (1 + min(|E_i|, τ))             eq. 12, 13

(b) W_ij = exp(-|z_i - z_j|² / σ_i) for the nearest neighbours, L = D - W; layers descend from a fixed Y(0) to Y::

        L_e = tr(YᵀLY)                                                                                     eq. 15

(c) G, three dense layers from k to k, maps the Y of all batches into one space. Pseudo-labels are k-means clusters of
    the rows of G(Y), computed over all rows once per epoch and aligned with the previous ones; two layers learn them::

        L_K = Σ_i cross-entropy(classifier(G(y_i)), pseudo-label)

"paper" is this to the letter: the graph is that of the batch, and E is the errors of the last block. It has three
flaws. If the threshold B2 grows, E costs nothing; if A grows, |Z|_1 costs nothing: the loss is smallest without codes.
And y is only determined up to a rotation, which differs between batches and which no fixed G can undo. "references"
repairs these: L1 is that of the default (`sscnet_codes`), losses are means, and the rows of a batch have edges to a
fixed set of reference rows, whose graph passes through the layers from the same Y(0) in every step.

In both, labels are computed with the references: the y of a row is the weighted mean of those of its nearest
references, which minimises L_e for a row that is added to their graph without moving them. So the label of a row does
not depend on other rows. In the paper a row is labelled together with its batch.
"""

import copy
import math
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..engine.data import Batch, Data
from ..engine.model import Losses
from ..nn.autoencoders import Autoencoder, RowDictionary
from ..nn.cluster import ClusterLayer
from ..nn.eigenvectors import random_orthonormal
from ..nn.graph import affinity, attach, laplacian
from ..nn.kmeans import kmeans
from ..nn.ladmm import LADMMBlock
from ..nn.ops import squared_distances
from .sscnet_codes import CORNER_LENGTH, HIDDEN, MAX_ROWS, Codes, CodesModel

if TYPE_CHECKING:
    from .sscnet import SSCNet

THRESHOLD = 0.15  # initial value of B1, and of B2, for which the paper gives no number


class PaperModel(CodesModel):
    """`n_references` rows are kept for predictions: as many as a batch has."""

    known: Tensor  # codes of the references
    spectrum: Tensor  # their Y
    company: Tensor  # the reference rows

    def __init__(self, autoencoder: Autoencoder, clusters: ClusterLayer, settings: "SSCNet", n_references: int) -> None:
        super().__init__(autoencoder, clusters, settings)
        k = clusters.n_clusters
        self.truncation = math.inf if settings.truncation is None else settings.truncation
        self.beside_references = settings.pipeline == "references"
        dense = [nn.Linear(k, k) for _ in range(3)]
        for layer in dense:
            nn.init.orthogonal_(layer.weight)  # so that G loses nothing of Y at first
        self.common = nn.Sequential(dense[0], nn.Tanh(), dense[1], nn.Tanh(), dense[2])  # G
        corners = torch.eye(k, clusters.embedding_dim)
        clusters.set_centers(
            CORNER_LENGTH * (corners if k <= clusters.embedding_dim else F.normalize(clusters.centers, dim=1))
        )
        self.register_buffer("known", torch.zeros(n_references, autoencoder.embedding_dim))
        self.register_buffer("spectrum", torch.zeros(n_references, k))
        self.register_buffer("company", torch.empty(0), persistent=False)

    def build_blocks(self, n_blocks: int) -> list[LADMMBlock]:
        """Blocks of which the last uses the network itself as its pair, and the others copies."""
        network = self.autoencoder
        if isinstance(network, RowDictionary):
            network.decoder.requires_grad_(True)
        self.earlier = nn.ModuleList(copy.deepcopy(network) for _ in range(n_blocks - 1))
        pairs = [*self.earlier, network][:n_blocks]
        starts: dict[str, Any] = {"threshold": THRESHOLD, "error_threshold": THRESHOLD, "shared": False}
        shapes = (network.embedding_dim,), network.input_shape
        return [LADMMBlock(pair.synthesise, pair.analyse, *shapes, **starts) for pair in pairs]

    def build_classifier(self) -> nn.Module:
        k = self.clusters.n_clusters
        return nn.Sequential(nn.Linear(k, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, self.clusters.embedding_dim))

    def place_atoms(self, data: Data) -> None:
        super().place_atoms(data)
        for pair in self.earlier:
            pair.load_state_dict(self.autoencoder.state_dict())

    # ---- (a)

    def features(self, z: Tensor) -> Tensor:
        return super().features(z) if self.beside_references else z

    def coding_losses(self, codes: Codes) -> Losses:
        if self.beside_references:
            return super().coding_losses(codes)
        size = codes.e.flatten(1).float().square().sum(1).clamp_min(1e-12).sqrt()
        weight = torch.ones_like(size)
        if self.sample_weights:
            q = 1 / (1 + size.detach().clamp_max(self.truncation))
            weight = 1 - q / q.sum()
        return {"reconstruction": (weight * size).sum(), "sparsity": self.sparsity * codes.z.abs().sum()}

    # ---- (b)

    def descend(self, z: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        """Y of the features of codes (..., n, m), starting from Y(0) (n, k), and tr(YᵀLY)."""
        with torch.autocast(z.device.type, enabled=False):
            operator = laplacian(affinity(z, min(self.n_neighbors, z.shape[-2] - 1), self.graph))
            y = start.expand(*z.shape[:-2], *start.shape)
            for layer in self.layers:
                y = layer(operator, y)
            return y, (y * (operator @ y)).sum((-2, -1))

    def in_common(self, y: Tensor, n: int) -> Tensor:
        """G(√n Y), for rows of a Y that has n rows: with √n the entries are about one."""
        missing = self.clusters.n_clusters - y.shape[-1]  # a batch of fewer than k rows has fewer columns
        return self.common(F.pad(math.sqrt(n) * y, (0, missing)))

    # ---- (c)

    def embed(self, x: Tensor) -> Tensor:
        return self.classifier(self.located(x)).float()

    def located(self, x: Tensor) -> Tensor:
        """G(y) of rows, computed with the references."""
        with torch.autocast(x.device.type, enabled=False):
            y = attach(self.represent(x), self.known, self.n_neighbors).extend(self.spectrum)
            return self.in_common(y, len(self.spectrum))

    @torch.no_grad()
    def remember(self, data: Data) -> None:
        """Compute the codes and the Y of the references with the current network, for predictions; in eval mode."""
        self.known.copy_(data.map(self.represent, self.reference))
        y = self.descend(self.known, self.start)[0]
        self.spectrum.copy_(F.pad(y, (0, self.clusters.n_clusters - y.shape[1])))

    def located_in_batches(self, data: Data) -> Tensor:
        """G(y) of all rows, each computed within a random batch."""
        n, size = len(data), len(self.start)
        order = torch.randperm(n, device=data.device)
        order = torch.cat([order, order[: -n % size]])  # fill the last batch with rows of the first
        found = self.start.new_empty(n, self.clusters.n_clusters)
        for part in order.split(size * max(1, data.chunk // size)):
            z = data.map(self.represent, part).view(-1, size, self.autoencoder.embedding_dim)
            found[part] = self.in_common(self.descend(z, self.start)[0], size).flatten(0, 1)
        return found

    @torch.no_grad()
    def label(self, data: Data) -> Tensor:
        """k-means clusters of the rows of G(Y), over all rows; in eval mode."""
        self.remember(data)
        located = data.map(self.located) if self.beside_references else self.located_in_batches(data)
        centers = kmeans(located[data.draw(MAX_ROWS)], self.clusters.n_clusters).centers
        return squared_distances(located, centers).argmin(1)

    def before_training(self, data: Data) -> None:
        self.place_atoms(data)
        size, k = len(self.known), self.clusters.n_clusters
        self.start = random_orthonormal(size, min(k, size), like=self.turn)
        self.reference = data.draw(size)
        self.company = data.take_checked(self.reference)
        with self.evaluating():
            self.pseudo = self.label(data)

    def loss(self, batch: Batch) -> Losses:
        codes = self.codes(batch.x)
        z = self.features(codes.z)
        if self.beside_references:
            y, trace = self.beside(z)
        else:
            y, trace = self.descend(z, self.start)
        logits = self.clusters.logits(self.classifier(self.in_common(y, len(self.start))).float())
        reduction = "mean" if self.beside_references else "sum"
        clustering = F.cross_entropy(logits, self.pseudo[batch.index], reduction=reduction)
        second, third = (self.turn >= 1).float(), (self.turn >= 2).float()
        return {
            **self.coding_losses(codes),
            "spectral": self.spectral_weight * second * trace,
            "clustering": self.weight * third * clustering,
        }

    def beside(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """y of rows, from the current references, and the mean of what the rows add to tr(YᵀLY)."""
        known = self.represent(self.company)
        spectrum, trace = self.descend(known, self.start)
        with torch.autocast(z.device.type, enabled=False):
            edges = attach(z, known, self.n_neighbors)
            y = edges.extend(spectrum)
            return y, trace / y.shape[1] + len(known) * edges.energy(y, spectrum).mean() / y.shape[1]

    def after_epoch(self, epoch: int, data: Data) -> None:
        super().after_epoch(epoch, data)
        with self.evaluating():
            self.remember(data)

    def training_state(self) -> dict[str, Any]:
        state = super().training_state()
        return {**state, "own": {**state["own"], "company": self.company}}
