"""A sequence of layers that the engine can run by faster kernels."""

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor, nn


class Chain(nn.Sequential):
    """An `nn.Sequential`. While `runner` is set, it runs the layers of every chain, with the same result."""

    runner: ClassVar[Callable[["Chain", Tensor], Tensor] | None] = None

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if Chain.runner is None else Chain.runner(self, x)
