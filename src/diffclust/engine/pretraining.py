"""Training tasks for the network of a model, before clustering or next to it."""

import itertools
from collections.abc import Hashable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..nn.autoencoders import RowAutoencoder
from .data import Batch
from .model import ClusterModel, Losses, Trainable

WARM_UP = 0.1  # share of the epochs in which a rate rises


def warm_up_and_decay(epoch: int, epochs: int) -> float:
    """A factor on the learning rate: it rises to about one, then falls to zero."""
    done = (epoch + 0.5) / max(1, epochs)
    return min(1.0, done / WARM_UP) * (1 - done)


class Pretraining(Trainable):
    """Train a model's autoencoder on reconstruction. `noise`: share of the input values that are masked. `summed`: the
    loss is a sum over the values of a row, not a mean."""

    def __init__(self, model: ClusterModel, noise: float = 0.0, summed: bool = False) -> None:
        super().__init__()
        self.model = model
        self.noise = noise
        self.values = model.autoencoder.n_values if summed else 1

    def prepare(self, batch: Batch) -> Batch:
        x = batch.x
        if not self.noise:
            return Batch(x, x, batch.index)
        seen = torch.rand_like(x) >= self.noise
        return Batch(
            torch.where(seen, x, self.model.autoencoder.shift), x, batch.index
        )  # masked: zero in network units

    def loss(self, batch: Batch) -> Losses:
        z = self.model.represent(batch.x)
        return {"reconstruction": self.values * self.model.autoencoder.reconstruction_loss(batch.clean, z)}

    def stack_key(self) -> Hashable | None:
        network = self.model.network_stack_key()
        return network and (network, type(self.model), self.model.clusters.sphere, self.values)

    def reconstruct(self, x: Tensor) -> Tensor:
        return self.model.reconstruct(x)

    def parameters(self, recurse: bool = True) -> Any:
        return self.model.autoencoder.parameters(recurse)


class NeighbourPretraining(Trainable):
    """Train a model's encoder so that neighbours stay neighbours, and the decoder to reconstruct, without an effect on
    the encoder. The learning rate warms up, then decays to zero."""

    fast, slow = 2e-2, 5e-3  # best learning rates of Adam for this loss: for the network of rows, and for others
    decoded = 256  # rows per step that train the decoder

    def __init__(self, model: ClusterModel) -> None:
        super().__init__()
        self.model = model
        self.lr = self.fast if isinstance(model.autoencoder, RowAutoencoder) else self.slow

    def loss(self, batch: Batch) -> Losses:
        with self.model.embedding_once(batch):
            neighbours, z = self.model.neighbour_loss(batch)
        some = slice(self.decoded)
        reconstruction = self.model.autoencoder.reconstruction_loss(batch.clean[some], z[some].detach())
        return {"neighbours": neighbours, "reconstruction": reconstruction}

    def stack_key(self) -> Hashable | None:
        network = self.model.network_stack_key()
        return network and (network, type(self.model), self.model.clusters.sphere)

    def lr_factor(self, epoch: int) -> float:
        return warm_up_and_decay(epoch, self.epochs)

    def reconstruct(self, x: Tensor) -> Tensor:
        return self.model.reconstruct(x)

    def parameters(self, recurse: bool = True) -> Any:
        return self.model.autoencoder.parameters(recurse)


class NetworkAlone(Trainable):
    """A model's network on the method's own loss, with fixed centres."""

    def __init__(self, model: ClusterModel) -> None:
        super().__init__()
        self.model = model
        self.frozen_parts = ("model.clusters",)

    def loss(self, batch: Batch) -> Losses:
        self.model.freeze_centers()
        return self.model.loss(batch)

    def parameters(self, recurse: bool = True) -> Any:
        return self.model.autoencoder.parameters(recurse)


class LayerPretraining(Trainable):
    """Greedy layer-wise pretraining: train one layer of the encoder with its mirror image in the decoder as a denoising
    autoencoder of the outer layers' output. `noise` is the dropout of its input and of its code."""

    def __init__(self, model: ClusterModel, depth: int, noise: float = 0.2) -> None:
        super().__init__()
        self.model, self.depth, self.noise = model, depth, noise
        layers = model.autoencoder.layers()
        self.pair = layers[depth]  # a tuple, so that the weights are registered once, with the model
        self.outside = tuple(encoder for encoder, _ in layers[:depth])
        self.width = next(m.in_features for m in self.pair[1].modules() if isinstance(m, nn.Linear))

    def loss(self, batch: Batch) -> Losses:
        network = self.model.autoencoder
        with torch.no_grad():
            h = ((batch.x - network.shift) / network.scale).flatten(1)
            for encoder in self.outside:
                h = encoder(h)
        encoder, decoder = self.pair
        code = encoder(F.dropout(h, self.noise))[:, : self.width]  # a variational code has more than its means
        back = decoder(F.dropout(code, self.noise))
        return {"reconstruction": F.mse_loss(network.activate(back) if self.depth == 0 else back, h)}

    def reconstruct(self, x: Tensor) -> Tensor:
        return self.model.reconstruct(x)

    def parameters(self, recurse: bool = True) -> Any:
        return itertools.chain.from_iterable(part.parameters(recurse) for part in self.pair)
