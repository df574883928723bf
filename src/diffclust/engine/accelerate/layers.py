"""Choose the kernels that run the layers of a network during training."""

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

COMPILE_FROM = 20_000  # steps from which on the fused convolutions save more time than compiling them takes


@contextlib.contextmanager
def fused_arithmetic(device: torch.device) -> Iterator[None]:
    """A context in which the arithmetic of centres on the sphere and the reconstruction error use fused kernels on a
    GPU."""
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
    """A context in which chains that train in bf16 on a GPU use fused kernels for linear layers, and with
    `convolutions` also for convolutions."""

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
    """The kernels that the steps of a phase use.

    A long phase uses kernels for convolutions that take some ten seconds to compile, once per machine; its first step
    waits for them. Starting without them and capturing the step again later left steps a quarter slower.

    Args:
        steps: largest number of steps of the phase.
        alone: whether no other process shares the fit.
    """

    def __init__(self, device: torch.device, precision: str, steps: int, alone: bool = True) -> None:
        self.device = device
        self.mixed = device.type == "cuda" and precision == "bf16" and has_triton()
        self.long = self.mixed and steps >= COMPILE_FROM and alone
        self.compiled = not self.long  # the few kernels of a short phase are compiled at their first launch

    def cast_weights(self, model: nn.Module) -> CastWeights | None:
        """Cast the weights of linear layers, at the beginning of a step."""
        return CastWeights(model, self.device) if self.mixed else None

    def rehearse(self, model: nn.Module, x: Tensor) -> None:
        """Compile the kernels if that was not done: called with the batch of the first step, under the autocast of the
        training."""
        if not self.compiled:
            rehearse(model, x)
            self.compiled = True

    @contextlib.contextmanager
    def layers(self, model: nn.Module, cast_weights: CastWeights | None) -> Iterator[None]:
        """The context in which the model's losses are computed."""
        deferred = DeferredGradients(model, self.device) if self.long else None
        with fused_layers(self.long, cast_weights, deferred), self.arithmetic():
            yield

    def arithmetic(self) -> contextlib.AbstractContextManager[None]:
        return fused_arithmetic(self.device)


def rehearse(model: nn.Module, x: Tensor) -> None:
    """Compile the kernels that are needed to train the model's network on batches like x."""
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
