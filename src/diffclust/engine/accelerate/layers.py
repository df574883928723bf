"""Which kernels the layers of a network run by while it trains."""

import contextlib
import functools
import importlib.util
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ...nn.chain import Chain
from .convolutions import convolve, group
from .dense import Dense, connect, group_dense


@functools.cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


@contextlib.contextmanager
def fused_layers(convolutions: bool) -> Iterator[None]:
    """Inside, chains that train in bf16 on a GPU run their linear layers by few kernels, and with `convolutions` their
    convolutions too. The kernels of those take some twenty seconds to compile, once a machine: not for short work."""

    def run(chain: Chain, x: Tensor) -> Tensor:
        mixed = x.is_cuda and torch.is_autocast_enabled("cuda")
        if not (mixed and chain.training and torch.is_grad_enabled()):
            return nn.Sequential.forward(chain, x)
        for part in group_dense(group(chain) if convolutions else chain):
            if isinstance(part, nn.Module):
                x = part(x)
            elif isinstance(part[0], Dense):
                x = connect(x.to(torch.get_autocast_dtype("cuda")), part)
            else:
                x = convolve(x.to(torch.get_autocast_dtype("cuda")), part)
        return x

    before, Chain.runner = Chain.runner, run if has_triton() else None
    try:
        yield
    finally:
        Chain.runner = before
