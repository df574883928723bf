"""Which kernels the layers of a network run by while it trains."""

import contextlib
import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ...nn.autoencoders import Autoencoder
from ...nn.chain import Chain
from ...nn.cluster import ClusterLayer
from .convolutions import DeferredGradients, convolve, group
from .dense import CastWeights, Dense, connect, group_dense
from .launch import can_rehearse, has_triton, rehearsal
from .reconstruction_error import squared_error
from .sphere import FusedSphere

COMPILE_FROM = 20_000  # steps: from here on the fused convolutions win back what compiling them costs


@contextlib.contextmanager
def fused_arithmetic(device: torch.device) -> Iterator[None]:
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
def fused_layers(
    convolutions: bool, cast_weights: CastWeights | None = None, deferred: DeferredGradients | None = None
) -> Iterator[None]:
    """Inside, chains that train in bf16 on a GPU run their linear layers by few kernels, and with `convolutions` their
    convolutions too."""

    def run(chain: Chain, x: Tensor) -> Tensor:
        mixed = x.is_cuda and torch.is_autocast_enabled("cuda")
        if not (mixed and chain.training and torch.is_grad_enabled()):
            return nn.Sequential.forward(chain, x)
        for part in group_dense(group(chain) if convolutions else chain):
            if isinstance(part, nn.Module):
                x = part(x)
            elif isinstance(part[0], Dense):
                x = connect(x.to(torch.get_autocast_dtype("cuda")), part, cast_weights)
            else:
                x = convolve(x.to(torch.get_autocast_dtype("cuda")), part, deferred)
        return x

    before, Chain.runner = Chain.runner, run if has_triton() else None
    try:
        yield
        if cast_weights is not None:
            cast_weights.side.join()
    finally:
        Chain.runner = before


class Fusion:
    """Which kernels the steps of a phase run by.

    A long phase uses kernels for its convolutions that take some ten seconds to compile, once a machine; its first step
    waits for them. Starting without them and recording the step again later left steps a quarter slower.

    Args:
        steps: how many the phase has at most.
        alone: whether this process trains without others.
    """

    def __init__(self, device: torch.device, precision: str, steps: int, alone: bool = True) -> None:
        self.device = device
        self.mixed = device.type == "cuda" and precision == "bf16" and has_triton()
        self.long = self.mixed and steps >= COMPILE_FROM and alone
        self.compiled = not self.long  # the kernels of a short phase are few

    def cast_weights(self, model: nn.Module) -> CastWeights | None:
        """At the beginning of a step: what its linear layers use."""
        return CastWeights(model, self.device) if self.mixed else None

    def rehearse(self, model: nn.Module, x: Tensor) -> None:
        """With the batch of the first step, under the autocast of the training: compile the kernels, unless they were
        before."""
        if not self.compiled:
            rehearse(model, x)
            self.compiled = True

    @contextlib.contextmanager
    def layers(self, model: nn.Module, cast_weights: CastWeights | None) -> Iterator[None]:
        """Inside, the model's losses are to be computed."""
        deferred = DeferredGradients(model, self.device) if self.long else None
        with fused_layers(self.long, cast_weights, deferred), self.arithmetic():
            yield

    def arithmetic(self) -> contextlib.AbstractContextManager[None]:
        return fused_arithmetic(self.device)


def rehearse(model: nn.Module, x: Tensor) -> None:
    """Compile the kernels that training the model's network on such a batch takes."""
    networks = [module for module in model.modules() if isinstance(module, Autoencoder)]
    if not networks or not isinstance(networks[0].encoder, Chain) or not can_rehearse():
        return
    twin = copy.deepcopy(networks[0])
    with rehearsal(), fused_layers(True), fused_arithmetic(x.device), torch.random.fork_rng([x.device]):
        z = ClusterLayer.arithmetic.unit_rows(twin.encode(x).float())
        loss = twin.reconstruction_loss(x, z)
        for clusters in model.modules():
            if isinstance(clusters, ClusterLayer) and clusters.sphere:
                owner, mean = ClusterLayer.arithmetic.nearest(z, clusters.weight.detach(), 1.0, 1.0, 1.0)
                ClusterLayer.arithmetic.sums(z.detach(), owner, len(clusters.weight))
                loss = loss + mean
        torch.autograd.grad(loss, list(twin.parameters()), allow_unused=True)
