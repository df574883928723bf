"""The base class of all networks, and the two without layers of their own."""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Output = Literal["sigmoid", "linear"]


def squared_error(y: Tensor, target: Tensor, sigmoid: bool) -> Tensor:
    """The mean over all values of (y - target)², y after a sigmoid if `sigmoid` is set."""
    return F.mse_loss(torch.sigmoid(y) if sigmoid else y, target)


class Autoencoder(nn.Module):
    """`encode`: `(b, *input_shape)` -> (b, embedding_dim); `decode` goes back.

    `config` holds the constructor's arguments: with `set_units`, enough to build a saved network again.
    """

    shift: Tensor
    scale: Tensor
    encoder: nn.Module
    decoder: nn.Module
    squared_error: ClassVar[Callable[[Tensor, Tensor, bool], Tensor]] = squared_error  # the engine may set a faster one
    variational: bool = False  # whether the encoder returns means, followed by log-variances
    _encoded: list[tuple[Tensor, Tensor]] | None = None  # inside `once`: samples and their embeddings

    def __init__(self, input_shape: Sequence[int], embedding_dim: int, output: Output) -> None:
        super().__init__()
        self.input_shape = tuple(input_shape)
        self.embedding_dim = embedding_dim
        self.output = output
        self.config: dict[str, Any] = {
            "input_shape": list(self.input_shape),
            "embedding_dim": embedding_dim,
            "output": output,
        }
        self.register_buffer("shift", torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))

    @functools.cached_property
    def widest(self) -> int:
        """The largest number of values that a layer has for a row. Of convolutions the first counts, which sees the
        image in full size."""
        widths = [layer.out_features for layer in self.modules() if isinstance(layer, nn.Linear)]
        channels = [layer.out_channels for layer in self.modules() if isinstance(layer, nn.Conv2d)]
        return max([self.n_values, *widths, *(self.seen_pixels * count for count in channels[:1])])

    @property
    def seen_pixels(self) -> int:
        """The number of pixels that convolutions see."""
        return math.prod(self.input_shape[1:])

    def set_units(self, shift: Tensor, scale: Tensor) -> None:
        """Set the network's units: a sample x becomes (x - shift) / scale."""
        self.shift, self.scale = shift, scale

    def activate(self, y: Tensor) -> Tensor:
        """The output of the network from that of the last layer: its sigmoid, if `output` is "sigmoid"."""
        return torch.sigmoid(y) if self.output == "sigmoid" else y

    def normalize(self, x: Tensor) -> Tensor:
        """Samples in the network's own units."""
        return (x - self.shift) / self.scale

    def analyse(self, x: Tensor) -> Tensor:
        """Samples in the network's units, `(b, *input_shape)`, to codes."""
        return self.encoder(x)

    def synthesise(self, z: Tensor) -> Tensor:
        """Codes to samples in the network's units."""
        return self.activate(self.decoder(z)).reshape(z.shape[0], *self.input_shape)

    def encode(self, x: Tensor) -> Tensor:
        """Samples to embeddings; of a variational network, their means."""
        remembers = self._encoded is not None and self.training and torch.is_grad_enabled()
        for samples, codes in self._encoded or () if remembers else ():
            if samples is x:
                return codes
        z = self.moments(x)[0] if self.variational else self.analyse(self.normalize(x))
        if remembers:
            self._encoded.append((x, z))  # type: ignore[union-attr]
        return z

    @contextlib.contextmanager
    def once(self, *together: Tensor) -> Iterator[None]:
        """A context in which the same samples are encoded only once during training, and the samples given here
        together as one batch."""
        self._encoded = []
        try:
            if together and self.training and torch.is_grad_enabled():
                codes = self.encode(torch.cat(together)).split([x.shape[0] for x in together])
                self._encoded = list(zip(together, codes, strict=True))
            yield
        finally:
            self._encoded = None

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of the embedding, each (b, embedding_dim); of a variational network only."""
        mean, log_variance = self.encoder(self.normalize(x)).chunk(2, dim=1)
        return mean, log_variance

    @torch.no_grad()
    def reset_spread(self, log_variance: float) -> None:
        """Give every sample the same log-variance, before training."""
        last = [layer for layer in self.encoder.modules() if isinstance(layer, nn.Linear)][-1]
        last.weight[self.embedding_dim :] = 0
        last.bias[self.embedding_dim :] = log_variance

    def layers(self) -> list[tuple[nn.Module, nn.Module]]:
        """Encoder layers from the outside in, each with the decoder layer that mirrors it."""
        raise ValueError(
            f"{type(self).__name__} cannot be trained layer by layer (layer_epochs): only the dense network can."
        )

    def decode(self, z: Tensor) -> Tensor:
        """Embeddings to samples, in the user's units."""
        return self.synthesise(z) * self.scale + self.shift

    def reconstruction_loss(self, x: Tensor, z: Tensor) -> Tensor:
        """Mean squared error per value, in the network's own units."""
        target = (x - self.shift) / self.scale
        return Autoencoder.squared_error(self.decoder(z).reshape(target.shape), target, self.output == "sigmoid")

    def negative_log_likelihood(self, x: Tensor, z: Tensor) -> Tensor:
        """-log p(x | z), summed over a sample's values, mean over samples, in the network's own units: Bernoulli with a
        sigmoid output, otherwise Gaussian with unit variance, without the constant."""
        target, y = (x - self.shift) / self.scale, self.decoder(z)
        if self.output == "sigmoid":
            return self.n_values * F.binary_cross_entropy_with_logits(y.reshape(target.shape).float(), target)
        return self.n_values * F.mse_loss(y.reshape(target.shape), target) / 2

    @torch.no_grad()
    def magnify(self, factor: float) -> bool:
        """Multiply embeddings by `factor` without changing the decoded samples. Returns False, and does nothing, if the
        bottleneck is not linear."""
        layers = [*[*self.encoder.children()][-1:], *[*self.decoder.children()][:1]]
        if self.variational or [type(layer) for layer in layers] != [nn.Linear, nn.Linear]:
            return False
        last, first = layers
        for values in last.parameters():
            values.mul_(factor)
        first.weight.div_(factor)  # type: ignore[operator]
        return True

    @property
    def n_values(self) -> int:
        """The number of values of a sample: the factor from a loss per value to a loss per sample."""
        return int(torch.Size(self.input_shape).numel())


class Identity(Autoencoder):
    """No network: the embedding is the features, in the units that are set."""

    def __init__(self, input_shape: Sequence[int], embedding_dim: int = 0, output: Output = "linear") -> None:
        super().__init__(input_shape, int(torch.Size(tuple(input_shape)).numel()), output)
        self.encoder, self.decoder = nn.Flatten(), nn.Identity()

    def normalize(self, x: Tensor) -> Tensor:
        shift, scale = self.shift, self.scale
        numbers = shift.ndim == scale.ndim == 0 and shift.device.type == "cpu"
        if numbers and not torch.compiler.is_compiling() and shift.item() == 0 and scale.item() == 1:
            return x  # without a copy
        return super().normalize(x)


class Wrapped(Autoencoder):
    """A user's own module with `encode` and `decode`, which gets values in the user's units."""

    def __init__(self, module: nn.Module, input_shape: Sequence[int], embedding_dim: int) -> None:
        super().__init__(input_shape, embedding_dim, "linear")
        self.module = module

    def analyse(self, x: Tensor) -> Tensor:
        return self.module.encode(x)  # type: ignore[operator]

    def synthesise(self, z: Tensor) -> Tensor:
        return self.module.decode(z)  # type: ignore[operator]

    def magnify(self, factor: float) -> bool:
        return False

    def reconstruction_loss(self, x: Tensor, z: Tensor) -> Tensor:
        return F.mse_loss(self.decode(z), x)

    def negative_log_likelihood(self, x: Tensor, z: Tensor) -> Tensor:
        return self.n_values * self.reconstruction_loss(x, z) / 2


def draw_glorot(network: nn.Module) -> None:
    """Initialise weights as Glorot and Bengio do, and biases with zero, as in Keras."""
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
