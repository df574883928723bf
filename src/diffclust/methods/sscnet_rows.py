"""SSCNet for rows that are not near subspaces: an encoder that keeps neighbours near replaces the graph and its layers.

Minimising tr(YᵀLY) brings rows of Y close together if the graph has an edge between them. Here an encoder learns such a
Y from the neighbour graph of all rows (`nn.neighbours`), also for new rows. Self-labelling is that of the paper:
k-means clusters of the rows of Y are pseudo-labels, which a classifier learns from Y::

    L = L_neighbours + |u - g(y)|² + c2 cross-entropy(classifier(y), pseudo-label)

u is the scaled row and g the decoder. The classifier is the identity at first, and its centres are those of k-means, so
a network without parameters, such as `scaled`, gives the labels of k-means.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..engine.data import Batch, Data
from ..engine.model import Losses
from ..nn.kmeans import lloyd
from ..nn.ops import squared_distances
from .sscnet_codes import MAX_ROWS, Classifier, CodesModel


class NeighbourModel(CodesModel):
    """For `ScaledRows` and its subclasses. `basis` holds the centres of the pseudo-labels in Y."""

    def build_classifier(self) -> nn.Module:
        classifier = Classifier(self.autoencoder.embedding_dim, self.clusters.embedding_dim)
        nn.init.eye_(classifier.linear.weight)
        nn.init.zeros_(classifier.linear.bias)
        return classifier

    def represent(self, x: Tensor) -> Tensor:
        return self.autoencoder.encode(x).float()

    def before_training(self, data: Data) -> None:
        self.place_centers(data, "k-means")
        self.basis = self.clusters.centers.detach().clone()
        with self.evaluating():
            self.pseudo = self.label(data)

    @torch.no_grad()
    def label(self, data: Data) -> Tensor:
        """k-means clusters of Y, starting from the previous centres; in eval mode."""
        y = data.map(self.represent)
        self.basis = lloyd(y[data.draw(MAX_ROWS)], self.basis).centers
        return squared_distances(y, self.basis).argmin(1)

    def loss(self, batch: Batch) -> Losses:
        y = self.represent(batch.x)
        logits = self.clusters.logits(self.classifier(y).float())
        clustering = {"clustering": self.weight * F.cross_entropy(logits, self.pseudo[batch.index])}
        if not self.network_learns:
            return clustering
        return {"reconstruction": self.autoencoder.reconstruction_loss(batch.x, y), **clustering}

    def decode(self, z: Tensor) -> Tensor:
        return super().decode(z) if self.network_learns else self.autoencoder.decode(z)
