"""The networks of the papers: dense, two convolutional ones, and none at all.

An autoencoder takes values as the user has them. Its first act is `(x - shift) / scale`, its last the
reverse, so that training sees well-scaled numbers whatever the units; both are buffers, one number each
or one a feature, and travel with the weights.
"""

import itertools
from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .chain import Chain

Output = Literal["sigmoid", "linear"]
DropoutAt = Literal["inputs", "hidden", "outputs"]

FEW_COLUMNS = 4  # of which rows may have so many that their lengths count as much as their directions
SAME = 1e-5  # a cosine this close to one is the same row


class Autoencoder(nn.Module):
    """`encode`: `(b, *input_shape)` -> (b, embedding_dim); `decode` goes back.

    `config` holds the constructor's arguments: with `set_units`, enough to build a saved network again.
    """

    shift: Tensor
    scale: Tensor
    encoder: nn.Module
    decoder: nn.Module
    variational: bool = False  # the encoder gives means, then as many log-variances

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

    def set_units(self, shift: Tensor, scale: Tensor) -> None:
        """From now on a sample x is (x - shift) / scale in the network's own units."""
        self.shift, self.scale = shift, scale

    def activate(self, y: Tensor) -> Tensor:
        """The output of the last layer, squashed where the network's `output` is "sigmoid"."""
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
        return self.moments(x)[0] if self.variational else self.analyse(self.normalize(x))

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of the embedding, each (b, embedding_dim); of a variational network only."""
        mean, log_variance = self.encoder(self.normalize(x)).chunk(2, dim=1)
        return mean, log_variance

    @torch.no_grad()
    def reset_spread(self, log_variance: float) -> None:
        """The same log-variance for every sample, as a start."""
        last = [layer for layer in self.encoder.modules() if isinstance(layer, nn.Linear)][-1]
        last.weight[self.embedding_dim :] = 0
        last.bias[self.embedding_dim :] = log_variance

    def layers(self) -> list[tuple[nn.Module, nn.Module]]:
        """Encoder layers from the outside in, each with the decoder layer that mirrors it."""
        raise ValueError(f"{type(self).__name__} cannot be trained layer by layer: only the dense network can.")

    def decode(self, z: Tensor) -> Tensor:
        """Embeddings to samples, in the units that these came in."""
        return self.synthesise(z) * self.scale + self.shift

    def reconstruction_loss(self, x: Tensor, z: Tensor) -> Tensor:
        """Mean squared error per value, in the network's own units."""
        target = (x - self.shift) / self.scale
        return F.mse_loss(self.activate(self.decoder(z)).reshape(target.shape), target)

    def negative_log_likelihood(self, x: Tensor, z: Tensor) -> Tensor:
        """-log p(x | z), summed over a sample's values, mean over samples, in the network's own units: Bernoulli with a
        sigmoid output, else Gaussian of unit variance, without its constant."""
        target, y = (x - self.shift) / self.scale, self.decoder(z)
        if self.output == "sigmoid":
            return self.n_values * F.binary_cross_entropy_with_logits(y.reshape(target.shape).float(), target)
        return self.n_values * F.mse_loss(y.reshape(target.shape), target) / 2

    @torch.no_grad()
    def magnify(self, factor: float) -> bool:
        """Make embeddings `factor` times as large, and decode them as before. False: there is no linear bottleneck."""
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
        """How many values a sample has, which turns a loss per value into one per sample."""
        return int(torch.Size(self.input_shape).numel())


def _chain(widths: Sequence[int]) -> list[nn.Module]:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for i, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
        layers += [nn.ReLU()] if i else []
        layers.append(nn.Linear(fan_in, fan_out))
    return layers


def _dropped(layers: Sequence[nn.Module], share: float, at: DropoutAt) -> list[nn.Module]:
    """Layers in a row, with dropout where an encoder is to have it."""
    if not share:
        return list(layers)
    inside = [
        part for layer in layers for part in ([layer, nn.Dropout(share)] if isinstance(layer, nn.ReLU) else [layer])
    ]
    before: list[nn.Module] = [nn.Dropout(share)] if at == "inputs" else []
    after: list[nn.Module] = [nn.Dropout(share)] if at == "outputs" else []
    return [*before, *inside, *after]


def _draw_glorot(network: nn.Module) -> None:
    """First weights as Glorot and Bengio draw them, biases zero: Keras' way."""
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


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
        dropout: the share that an encoder layer loses.
        dropout_at: of the "inputs" of every encoder layer (the TELL code), of their "outputs", the embedding's included
            (k-meansNet, section 4.1), or between them alone ("hidden").
        bottleneck: "linear" (TELL) or "sigmoid" (k-meansNet).
        glorot: first weights as Glorot and Bengio draw them, biases zero (Deep k-Means).
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
            _draw_glorot(self)

    def layers(self) -> list[tuple[nn.Module, nn.Module]]:
        return list(zip(_segments(self.encoder), reversed(_segments(self.decoder)), strict=True))


def _image_shape(input_shape: Sequence[int], smallest: int, network: str) -> tuple[int, int, int]:
    if len(input_shape) != 3:
        raise ValueError(f"The {network} network needs images (channels, height, width), not rows of {input_shape}.")
    c, h, w = input_shape
    if min(h, w) < smallest:
        raise ValueError(f"Images of {h}x{w} are too small for the {network} network: it needs {smallest}x{smallest}.")
    return c, h, w


class ConvAutoencoder(Autoencoder):
    """TELL's network: 3x3 convolutions 16-32-32-16, two of them with stride 2, batch norm and ReLU after each,
    then 256-embedding; mirrored. Any size from 4x4, odd ones included."""

    def __init__(
        self,
        input_shape: Sequence[int],
        embedding_dim: int = 10,
        output: Output = "linear",
        hidden: int = 256,
        variational: bool = False,
    ) -> None:
        super().__init__(input_shape, embedding_dim, output)
        self.config |= {"hidden": hidden, "variational": variational}
        self.variational = variational
        inside = embedding_dim * (1 + variational)
        c, h, w = _image_shape(self.input_shape, 4, "conv")
        h2, w2 = (h + 1) // 2, (w + 1) // 2  # after each stride of 2
        h4, w4 = (h2 + 1) // 2, (w2 + 1) // 2

        def down(fan_in: int, fan_out: int, stride: int) -> list[nn.Module]:
            return [nn.Conv2d(fan_in, fan_out, 3, stride, 1), nn.BatchNorm2d(fan_out), nn.ReLU()]

        def up(fan_in: int, fan_out: int, stride: int, extra: tuple[int, int]) -> nn.Module:
            return nn.ConvTranspose2d(fan_in, fan_out, 3, stride, 1, output_padding=extra)

        def even(height: int, width: int) -> tuple[int, int]:
            return 1 - height % 2, 1 - width % 2  # what a stride of 2 lost to rounding

        self.encoder = Chain(
            *down(c, 16, 1), *down(16, 32, 2), *down(32, 32, 1), *down(32, 16, 2),
            nn.Flatten(), nn.Linear(16 * h4 * w4, hidden), nn.ReLU(), nn.Linear(hidden, inside),
        )  # fmt: skip
        self.decoder = Chain(
            nn.Linear(embedding_dim, hidden), nn.ReLU(),
            nn.Linear(hidden, 16 * h4 * w4), nn.Unflatten(1, (16, h4, w4)),
            up(16, 32, 2, even(h2, w2)), nn.BatchNorm2d(32), nn.ReLU(),
            up(32, 32, 1, (0, 0)), nn.BatchNorm2d(32), nn.ReLU(),
            up(32, 16, 2, even(h, w)), nn.BatchNorm2d(16), nn.ReLU(),
            up(16, c, 1, (0, 0)),
        )  # fmt: skip
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


class PoolingAutoencoder(Autoencoder):
    """k-meansNet's network: 5x5 convolutions 64 and 32, each followed by 2x2 pooling, then 1024-embedding with
    a sigmoid at the bottleneck; mirrored, with up-sampling where the encoder pools.

    Args:
        glorot: first weights as Glorot and Bengio draw them, biases zero. From torch's own the network may stay at the
            mean image, with one embedding for all.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        embedding_dim: int = 10,
        output: Output = "linear",
        hidden: int = 1024,
        bottleneck: Output = "sigmoid",
        glorot: bool = False,
    ) -> None:
        super().__init__(input_shape, embedding_dim, output)
        self.config |= {"hidden": hidden, "bottleneck": bottleneck, "glorot": glorot}
        c, h, w = _image_shape(self.input_shape, 4, "conv-pool")
        h2, w2 = (h + 1) // 2, (w + 1) // 2
        h4, w4 = (h2 + 1) // 2, (w2 + 1) // 2
        squash: list[nn.Module] = [nn.Sigmoid()] if bottleneck == "sigmoid" else []
        self.encoder = nn.Sequential(
            nn.Conv2d(c, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True),
            nn.Conv2d(64, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True),
            nn.Flatten(), nn.Linear(32 * h4 * w4, hidden), nn.ReLU(), nn.Linear(hidden, embedding_dim), *squash,
        )  # fmt: skip
        self.decoder = nn.Sequential(
            nn.Linear(embedding_dim, hidden), nn.ReLU(),
            nn.Linear(hidden, 32 * h4 * w4), nn.ReLU(), nn.Unflatten(1, (32, h4, w4)),
            nn.Upsample((h2, w2)), nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(),
            nn.Upsample((h, w)), nn.Conv2d(64, c, 5, padding=2),
        )  # fmt: skip
        if glorot:
            _draw_glorot(self)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


class ScaledRows(Autoencoder):
    """No network but units: rows as directions from the middle of the data, each of length √(p + 1)::

        u = P (x - shift) / scale,   z = √(p + 1) (u, ℓ) / |(u, ℓ)|,   ℓ = min(1, 4 / p)² mean |u| / √p

    ℓ is one more coordinate. In rows of few columns it is of the size that the others have, so that their lengths
    count, too; in those of many it is next to nothing, and directions alone count.

    Args:
        components: p, the number of principal components in P; 0: P is the identity, and p the number of columns.
    """

    basis: Tensor  # P (p, d), or nothing
    length: Tensor  # ℓ

    def __init__(
        self, input_shape: Sequence[int], embedding_dim: int = 0, output: Output = "linear", components: int = 0
    ) -> None:
        d = int(torch.Size(tuple(input_shape)).numel())
        self.components = components or d
        super().__init__(input_shape, self.components + 1, "linear")
        self.config |= {"components": components}
        self.register_buffer("basis", torch.zeros(components, d))
        self.register_buffer("length", torch.ones(()))
        self.encoder, self.decoder = nn.Flatten(), nn.Identity()

    def scaled(self, x: Tensor) -> Tensor:
        """u, (b, p), of samples, or of u itself: P makes wide rows narrow, and training does that once for all."""
        if len(self.basis) and x.shape[1:] == (len(self.basis),):
            return x
        u = ((x - self.shift) / self.scale).flatten(1)
        return u @ self.basis.T if len(self.basis) else u

    def normalize(self, x: Tensor) -> Tensor:
        u = self.scaled(x)
        z = torch.cat([u, self.length.to(u.dtype).expand(u.shape[0], 1)], dim=1)
        return (self.components + 1) ** 0.5 * F.normalize(z, dim=1)

    def decoded(self, z: Tensor) -> Tensor:
        """Codes to u, by the inverse of `normalize`."""
        return self.length * z[:, :-1] / z[:, -1:].clamp_min(1e-6)

    def synthesise(self, z: Tensor) -> Tensor:
        u = self.decoded(z)
        return (u @ self.basis if len(self.basis) else u).reshape(len(z), *self.input_shape)

    def reconstruction_loss(self, x: Tensor, z: Tensor) -> Tensor:
        return F.mse_loss(self.decoded(z), self.scaled(x))

    def negative_log_likelihood(self, x: Tensor, z: Tensor) -> Tensor:
        return self.components * self.reconstruction_loss(x, z) / 2

    @torch.no_grad()
    def take_units(self, other: "ScaledRows") -> None:
        """The units of another network of the same input."""
        self.set_units(other.shift.clone(), other.scale.clone())
        self.basis.copy_(other.basis)
        self.length.copy_(other.length)

    @torch.no_grad()
    def set_rows(self, shift: Tensor, scale: Tensor, rows: Tensor) -> None:
        """Units, principal components and the mean length, the last two of a sample of rows."""
        self.set_units(shift, scale)
        if len(self.basis):
            u = ((rows - shift) / scale).flatten(1)
            self.basis.copy_(principal_directions(u, len(self.basis)))
        length = self.scaled(rows).norm(dim=1).mean().item() / self.components**0.5
        self.length.fill_(min(1.0, FEW_COLUMNS / self.components) ** 2 * length or 1.0)


class RowAutoencoder(ScaledRows):
    """For measurements, counts, words, embeddings: scaled rows, then p-128-128-embedding with batch norm; mirrored."""

    def __init__(
        self,
        input_shape: Sequence[int],
        embedding_dim: int = 10,
        output: Output = "linear",
        components: int = 0,
        hidden: Sequence[int] = (128, 128),
        variational: bool = False,
    ) -> None:
        super().__init__(input_shape, embedding_dim, output, components)
        self.embedding_dim = embedding_dim
        self.config |= {"embedding_dim": embedding_dim, "hidden": list(hidden), "variational": variational}
        self.variational = variational
        self.encoder = Chain(*_normed_chain([self.components + 1, *hidden, embedding_dim * (1 + variational)]))
        self.decoder = Chain(*_normed_chain([embedding_dim, *reversed(hidden), self.components]))

    def decoded(self, z: Tensor) -> Tensor:
        return self.decoder(z)


@torch.no_grad()
def principal_directions(u: Tensor, k: int) -> Tensor:
    """The k directions in which rows u (n, d) vary most, (k, d); where there are fewer, zeros for the rest."""
    u = u - u.mean(0)
    n, d = u.shape
    found = min(k, n, d)
    if min(n, d) <= 500:  # one small matrix of products is cheaper than iterations, and exact
        products = u.T @ u if d <= n else u @ u.T
        vectors = torch.linalg.eigh(products.double()).eigenvectors[:, -found:].flip(1).to(u.dtype)
        directions = vectors.T if d <= n else F.normalize(vectors.T @ u, dim=1)
    else:
        directions = torch.svd_lowrank(u, q=found + 10, niter=4)[2][:, :found].T
    return torch.cat([directions, directions.new_zeros(k - found, d)])


def _normed_chain(widths: Sequence[int]) -> list[nn.Module]:
    """Linear layers with batch norm and ReLU between them."""
    layers: list[nn.Module] = []
    for i, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
        layers += [nn.BatchNorm1d(fan_in), nn.ReLU()] if i else []
        layers.append(nn.Linear(fan_in, fan_out))
    return layers


class RowDictionary(Autoencoder):
    """Samples as combinations of samples: a linear dictionary of `embedding_dim` atoms which starts as rows of the
    data (`set_atoms`), so that sparse codes say who writes whom, as in subspace clustering. Lengths do not count."""

    atoms: Tensor  # the rows the dictionary started from

    def __init__(self, input_shape: Sequence[int], embedding_dim: int = 512, output: Output = "linear") -> None:
        super().__init__(input_shape, embedding_dim, "linear")
        d = int(torch.Size(self.input_shape).numel())
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(d, embedding_dim, bias=False))
        self.decoder = nn.Linear(embedding_dim, d, bias=False).requires_grad_(False)
        self.register_buffer("atoms", torch.zeros(embedding_dim, d))

    @torch.no_grad()
    def set_atoms(self, x: Tensor) -> float:
        """Rows in the network's units. Gives the length of A', which is as long a step as L-ADMM allows."""
        atoms = F.normalize(x.flatten(1), dim=1)
        step = 0.99 / torch.linalg.matrix_norm(atoms.double(), 2).clamp_min(1e-6).square().item()
        self.atoms.copy_(atoms)
        self.decoder.weight.copy_(atoms.T)  # type: ignore[operator]
        self.encoder[1].weight.copy_(step * atoms)  # type: ignore[index]
        return step

    def others(self, x: Tensor) -> Tensor:
        """One for the atoms a sample of length one may use, zero for those that it is itself: (b, atoms)."""
        with torch.autocast(x.device.type, enabled=False):  # in bf16 a row would not always know itself
            return ((x.flatten(1) @ self.atoms.T).abs() < 1 - SAME).to(x.dtype)


class ConvDictionary(Autoencoder):
    """SSCNet's dictionary for images: 3x3 convolutions of stride 2 with 32, 64 and 128 maps, mirrored, nothing but
    ReLU between them; the codes are the last maps."""

    def __init__(self, input_shape: Sequence[int], embedding_dim: int = 0, output: Output = "linear") -> None:
        c, h, w = _image_shape(tuple(input_shape), 4, "conv-dictionary")
        sizes = [(h, w)]
        for _ in range(3):
            sizes.append(((sizes[-1][0] + 1) // 2, (sizes[-1][1] + 1) // 2))
        maps = (c, 32, 64, 128)
        super().__init__(input_shape, maps[-1] * sizes[-1][0] * sizes[-1][1], "linear")
        down: list[nn.Module] = []
        up: list[nn.Module] = []
        for i in range(3):
            down += [nn.ReLU()] if i else []
            down.append(nn.Conv2d(maps[i], maps[i + 1], 3, 2, 1))
            extra = (1 - sizes[i][0] % 2, 1 - sizes[i][1] % 2)  # what a stride of 2 lost to rounding
            up = [nn.ConvTranspose2d(maps[i + 1], maps[i], 3, 2, 1, output_padding=extra), *up]
            up = [nn.ReLU(), *up] if i < 2 else up
        self.encoder = nn.Sequential(*down, nn.Flatten())
        self.decoder = nn.Sequential(nn.Unflatten(1, (maps[-1], *sizes[-1])), *up)


class Identity(Autoencoder):
    """No network: the features are the embedding, in the units they came in."""

    def __init__(self, input_shape: Sequence[int], embedding_dim: int = 0, output: Output = "linear") -> None:
        super().__init__(input_shape, int(torch.Size(tuple(input_shape)).numel()), output)
        self.encoder, self.decoder = nn.Flatten(), nn.Identity()


class Wrapped(Autoencoder):
    """A user's own module with `encode` and `decode`, which sees the values as they are."""

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


NETWORKS: dict[str, type[Autoencoder]] = {
    "dense": DenseAutoencoder,
    "dictionary": RowDictionary,
    "conv": ConvAutoencoder,
    "conv-dictionary": ConvDictionary,
    "conv-pool": PoolingAutoencoder,
    "identity": Identity,
    "rows": RowAutoencoder,
    "scaled": ScaledRows,
}
