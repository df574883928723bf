"""Convolutional networks: those of TELL and k-meansNet, and a deeper one."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ..chain import Chain
from .base import Autoencoder, Output, draw_glorot


def image_shape(input_shape: Sequence[int], smallest: int, network: str) -> tuple[int, int, int]:
    """Channels, height and width of images that are large enough for the network."""
    if len(input_shape) != 3:
        raise ValueError(f"The {network} network needs images (channels, height, width), not rows of {input_shape}.")
    c, h, w = input_shape
    if min(h, w) < smallest:
        raise ValueError(f"Images of {h}x{w} are too small for the {network} network: it needs {smallest}x{smallest}.")
    return c, h, w


class Convolutional(Autoencoder):
    """Convolutions see the mean of each square of `shrink` x `shrink` pixels, and decoded images are enlarged to the
    original size: on large images, convolutions would take most of the time for details that clusters do not need."""

    name: str

    def __init__(
        self, input_shape: Sequence[int], embedding_dim: int, output: Output, shrink: int, **config: Any
    ) -> None:
        super().__init__(input_shape, embedding_dim, output)
        self.config |= {**config, "shrink": shrink}
        c, h, w = image_shape(self.input_shape, 4 * shrink, self.name)
        self.seen = c, -(-h // shrink), -(-w // shrink)  # the shape that convolutions see

    @property
    def seen_pixels(self) -> int:
        return self.seen[1] * self.seen[2]

    def shrinking(self) -> list[nn.Module]:
        """The first layers of the encoder."""
        shrink = self.config["shrink"]
        return [nn.AvgPool2d(shrink, ceil_mode=True, count_include_pad=False)] if shrink > 1 else []

    def enlarging(self) -> list[nn.Module]:
        """The last layers of the decoder."""
        return [nn.Upsample(self.input_shape[1:], mode="bilinear")] if self.config["shrink"] > 1 else []


class ConvAutoencoder(Convolutional):
    """TELL's network: 3x3 convolutions 16-32-32-16, two of them with stride 2, batch norm and ReLU after each,
    then 256-embedding; mirrored. Any size from 4x4, odd ones included.

    Args:
        shrink: factor by which images are reduced before the convolutions.
    """

    name = "conv"

    def __init__(
        self,
        input_shape: Sequence[int],
        embedding_dim: int = 10,
        output: Output = "linear",
        hidden: int = 256,
        variational: bool = False,
        shrink: int = 1,
    ) -> None:
        super().__init__(input_shape, embedding_dim, output, shrink, hidden=hidden, variational=variational)
        self.variational = variational
        inside = embedding_dim * (1 + variational)
        c, h, w = self.seen
        h2, w2 = (h + 1) // 2, (w + 1) // 2  # after each stride of 2
        h4, w4 = (h2 + 1) // 2, (w2 + 1) // 2

        def down(fan_in: int, fan_out: int, stride: int) -> list[nn.Module]:
            return [nn.Conv2d(fan_in, fan_out, 3, stride, 1), nn.BatchNorm2d(fan_out), nn.ReLU(inplace=True)]

        def up(fan_in: int, fan_out: int, stride: int, extra: tuple[int, int]) -> nn.Module:
            return nn.ConvTranspose2d(fan_in, fan_out, 3, stride, 1, output_padding=extra)

        def even(height: int, width: int) -> tuple[int, int]:
            return 1 - height % 2, 1 - width % 2  # what rounding lost at a stride of 2

        self.encoder = Chain(
            *self.shrinking(), *down(c, 16, 1), *down(16, 32, 2), *down(32, 32, 1), *down(32, 16, 2),
            nn.Flatten(), nn.Linear(16 * h4 * w4, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, inside),
        )  # fmt: skip
        self.decoder = Chain(
            nn.Linear(embedding_dim, hidden), nn.ReLU(inplace=True),
            nn.Linear(hidden, 16 * h4 * w4), nn.Unflatten(1, (16, h4, w4)),
            up(16, 32, 2, even(h2, w2)), nn.BatchNorm2d(32), nn.ReLU(inplace=True),
            up(32, 32, 1, (0, 0)), nn.BatchNorm2d(32), nn.ReLU(inplace=True),
            up(32, 16, 2, even(h, w)), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
            up(16, c, 1, (0, 0)), *self.enlarging(),
        )  # fmt: skip
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


class PoolingAutoencoder(Convolutional):
    """k-meansNet's network: 5x5 convolutions 64 and 32, each followed by 2x2 pooling, then 1024-embedding with
    a sigmoid at the bottleneck; mirrored, with up-sampling where the encoder pools.

    Args:
        glorot: initial weights as in Glorot and Bengio, and biases zero. With torch's initial weights the network may
            keep decoding the mean image, with the same embedding for all.
        shrink: factor by which images are reduced before the convolutions.
    """

    name = "conv-pool"

    def __init__(
        self,
        input_shape: Sequence[int],
        embedding_dim: int = 10,
        output: Output = "linear",
        hidden: int = 1024,
        bottleneck: Output = "sigmoid",
        glorot: bool = False,
        shrink: int = 1,
    ) -> None:
        super().__init__(
            input_shape, embedding_dim, output, shrink, hidden=hidden, bottleneck=bottleneck, glorot=glorot
        )
        c, h, w = self.seen
        h2, w2 = (h + 1) // 2, (w + 1) // 2
        h4, w4 = (h2 + 1) // 2, (w2 + 1) // 2
        squash: list[nn.Module] = [nn.Sigmoid()] if bottleneck == "sigmoid" else []
        self.encoder = nn.Sequential(
            *self.shrinking(), nn.Conv2d(c, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True),
            nn.Conv2d(64, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True),
            nn.Flatten(), nn.Linear(32 * h4 * w4, hidden), nn.ReLU(), nn.Linear(hidden, embedding_dim), *squash,
        )  # fmt: skip
        self.decoder = nn.Sequential(
            nn.Linear(embedding_dim, hidden), nn.ReLU(),
            nn.Linear(hidden, 32 * h4 * w4), nn.ReLU(), nn.Unflatten(1, (32, h4, w4)),
            nn.Upsample((h2, w2)), nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(),
            nn.Upsample((h, w)), nn.Conv2d(64, c, 5, padding=2), *self.enlarging(),
        )  # fmt: skip
        if glorot:
            draw_glorot(self)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


class ResidualAutoencoder(Convolutional):
    """For photographs: 3x3 convolutions of 64, 128 and 256 maps with batch norm, the latter two of stride 2 and each
    followed by a residual block of two more; the mean over the image, then linear (after He et al., 2016, with eight
    layers). The decoder is a small one.

    Args:
        shrink: factor by which images are reduced before the convolutions.
    """

    name = "residual"

    def __init__(
        self,
        input_shape: Sequence[int],
        embedding_dim: int = 10,
        output: Output = "linear",
        maps: Sequence[int] = (64, 128, 256),
        shrink: int = 1,
    ) -> None:
        super().__init__(input_shape, embedding_dim, output, shrink, maps=list(maps))
        c, h, w = self.seen
        first, second, third = maps
        h4, w4 = -(-h // 4), -(-w // 4)
        self.encoder = nn.Sequential(
            *self.shrinking(), *_normed(c, first), *_normed(first, second, 2), Residual(second),
            *_normed(second, third, 2), Residual(third), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(third, embedding_dim),
        )  # fmt: skip
        self.decoder = nn.Sequential(
            nn.Linear(embedding_dim, first * h4 * w4), nn.Unflatten(1, (first, h4, w4)), nn.BatchNorm2d(first),
            nn.ReLU(), nn.Upsample((-(-h // 2), -(-w // 2))), *_normed(first, first // 2), nn.Upsample((h, w)),
            nn.Conv2d(first // 2, c, 3, padding=1), *self.enlarging(),
        )  # fmt: skip
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _normed(fan_in: int, fan_out: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(fan_in, fan_out, 3, stride, 1, bias=False), nn.BatchNorm2d(fan_out), nn.ReLU()]


class Residual(nn.Module):
    """x + two convolutions of x."""

    def __init__(self, maps: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*_normed(maps, maps), *_normed(maps, maps))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)
