"""The dense network of most papers."""

import itertools
from collections.abc import Sequence
from typing import Literal

from torch import nn

from ..chain import Chain
from .base import Autoencoder, Output, draw_glorot

DropoutAt = Literal["inputs", "hidden", "outputs"]


def _chain(widths: Sequence[int]) -> list[nn.Module]:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for i, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
        layers += [nn.ReLU()] if i else []
        layers.append(nn.Linear(fan_in, fan_out))
    return layers


def _dropped(layers: Sequence[nn.Module], share: float, at: DropoutAt) -> list[nn.Module]:
    """A chain of layers, with dropout at the places given by `dropout_at`."""
    if not share:
        return list(layers)
    inside = [
        part for layer in layers for part in ([layer, nn.Dropout(share)] if isinstance(layer, nn.ReLU) else [layer])
    ]
    before: list[nn.Module] = [nn.Dropout(share)] if at == "inputs" else []
    after: list[nn.Module] = [nn.Dropout(share)] if at == "outputs" else []
    return [*before, *inside, *after]


def _segments(chain: nn.Module) -> list[nn.Module]:
    """A chain cut after each ReLU."""
    parts: list[list[nn.Module]] = [[]]
    for module in chain.children():
        parts[-1].append(module)
        if isinstance(module, nn.ReLU):
            parts.append([])
    return [nn.Sequential(*part) for part in parts]


class DenseAutoencoder(Autoencoder):
    """d-500-500-2000-embedding, mirrored.

    Args:
        dropout: dropout probability in the encoder.
        dropout_at: dropout of the "inputs" of every encoder layer (the TELL code), of their "outputs" including the
            embedding (k-meansNet, section 4.1), or only between layers ("hidden").
        bottleneck: "linear" (TELL) or "sigmoid" (k-meansNet).
        glorot: initial weights as in Glorot and Bengio, and biases zero (Deep k-Means).
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        embedding_dim: int = 10,
        output: Output = "linear",
        hidden: Sequence[int] = (500, 500, 2000),
        dropout: float = 0.0,
        bottleneck: Output = "linear",
        glorot: bool = False,
        variational: bool = False,
        dropout_at: DropoutAt = "inputs",
    ) -> None:
        super().__init__(input_shape, embedding_dim, output)
        self.config |= {"hidden": list(hidden), "dropout": dropout, "bottleneck": bottleneck}
        self.config |= {"glorot": glorot, "variational": variational, "dropout_at": dropout_at}
        self.variational = variational
        inside = embedding_dim * (1 + variational)
        squash: list[nn.Module] = [nn.Sigmoid()] if bottleneck == "sigmoid" else []
        layers = [*_chain([self.n_values, *hidden, inside]), *squash]
        self.encoder = Chain(nn.Flatten(), *_dropped(layers, dropout, dropout_at))
        self.decoder = Chain(*_chain([embedding_dim, *reversed(hidden), self.n_values]))
        if glorot:
            draw_glorot(self)

    def layers(self) -> list[tuple[nn.Module, nn.Module]]:
        return list(zip(_segments(self.encoder), reversed(_segments(self.decoder)), strict=True))
