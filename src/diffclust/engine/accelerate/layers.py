"""Which kernels the layers of a network run by while it trains."""

import contextlib
import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ...nn.autoencoders import Autoencoder
from ...nn.chain import Chain
from ...nn.cluster import ClusterLayer
from .convolutions import convolve, group
from .dense import Copies, Dense, connect, group_dense
from .errors import squared_error
from .launch import can_rehearse, has_triton, rehearsal
from .sphere import FusedSphere


@contextlib.contextmanager
def fused_ends(device: torch.device) -> Iterator[None]:
    """Inside, what comes after the layers runs by few kernels on a GPU: the arithmetic of centres on the sphere, and
    the error of a reconstruction."""
    if device.type != "cuda" or not has_triton():
        yield
        return
    before = ClusterLayer.arithmetic, Autoencoder.squared_error
    ClusterLayer.arithmetic, Autoencoder.squared_error = FusedSphere(), squared_error
    try:
        yield
    finally:
        ClusterLayer.arithmetic, Autoencoder.squared_error = before


@contextlib.contextmanager
def fused_layers(convolutions: bool, copies: Copies | None = None) -> Iterator[None]:
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
                x = connect(x.to(torch.get_autocast_dtype("cuda")), part, copies)
            else:
                x = convolve(x.to(torch.get_autocast_dtype("cuda")), part)
        return x

    before, Chain.runner = Chain.runner, run if has_triton() else None
    try:
        yield
        if copies is not None:
            copies.aside.join()
    finally:
        Chain.runner = before


def rehearse(model: nn.Module, x: Tensor) -> None:
    """Compile the kernels that training the model's network on such a batch takes, unless that was done before; under
    the autocast of the training."""
    networks = [module for module in model.modules() if isinstance(module, Autoencoder)]
    if not networks or not isinstance(networks[0].encoder, Chain) or not can_rehearse():
        return
    twin = copy.deepcopy(networks[0])
    with rehearsal(), fused_layers(True), fused_ends(x.device), torch.random.fork_rng([x.device]):
        z = ClusterLayer.arithmetic.unit_rows(twin.encode(x).float())
        torch.autograd.grad(twin.reconstruction_loss(x, z), list(twin.parameters()), allow_unused=True)
