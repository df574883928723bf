"""Layers one after the other, which an engine may run in a faster way."""

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor, nn


class Chain(nn.Sequential):
    """An `nn.Sequential`. While `runner` is set, that runs the layers of every chain, to the same result."""

    runner: ClassVar[Callable[["Chain", Tensor], Tensor] | None] = None

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if Chain.runner is None else Chain.runner(self, x)
