"""Choose the kernels that run the layers of a network during training."""

import contextlib
import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ...nn.autoencoders import Autoencoder
from ...nn.chain import Chain
from ...nn.cluster import ClusterLayer
from .adadelta import FusedAdadelta
from .convolutions import DeferredGradients, convolve, group
from .dense import CastWeights, Dense, connect, group_dense
from .launch import can_rehearse, has_triton, prepare_to_compile, rehearsal
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

    A long phase uses kernels for convolutions that take a few seconds to compile, once per machine; its first step
    waits for them. Starting without them and capturing the step again later left steps a quarter slower.

    Args:
        steps: largest number of steps of the phase.
        alone: whether no other process shares the fit.
    """

    def __init__(self, model: nn.Module, device: torch.device, precision: str, steps: int, alone: bool = True) -> None:
        self.device = device
        self.mixed = device.type == "cuda" and precision == "bf16" and has_triton()
        self.long = self.mixed and steps >= COMPILE_FROM and alone
        # the few kernels of a short phase are compiled at their first launch
        self.compiled = not (self.long and can_rehearse() and _network(model))
        if not self.compiled:
            prepare_to_compile()

    def cast_weights(self, model: nn.Module) -> CastWeights | None:
        """Cast the weights of linear layers, at the beginning of a step."""
        return CastWeights(model, self.device) if self.mixed else None

    def rehearse(self, model: nn.Module, x: Tensor, optimizer: Optimizer | None) -> None:
        """Compile the kernels if that was not done: called with the batch of the first step, under the autocast of the
        training."""
        if not self.compiled:
            rehearse(model, x, optimizer)
            self.compiled = True

    @contextlib.contextmanager
    def layers(self, model: nn.Module, cast_weights: CastWeights | None) -> Iterator[None]:
        """The context in which the model's losses are computed."""
        deferred = DeferredGradients(model, self.device) if self.long else None
        with fused_layers(self.long, cast_weights, deferred), self.arithmetic():
            yield

    def arithmetic(self) -> contextlib.AbstractContextManager[None]:
        return fused_arithmetic(self.device)


def _network(model: nn.Module) -> Autoencoder | None:
    """The model's network, if it is one of ours."""
    found = next((module for module in model.modules() if isinstance(module, Autoencoder)), None)
    return found if found is not None and isinstance(found.encoder, Chain) else None


def rehearse(model: nn.Module, x: Tensor, optimizer: Optimizer | None) -> None:
    """Compile the kernels that are needed to train the model's network on batches like x."""
    twin = copy.deepcopy(_network(model))
    assert twin is not None
    with rehearsal(), fused_layers(True), fused_arithmetic(x.device), torch.random.fork_rng([x.device]):
        sphere = ClusterLayer.arithmetic
        z = sphere.unit_rows(twin.encode(x).float())
        loss = twin.reconstruction_loss(x, z)
        for clusters in model.modules():
            if isinstance(clusters, ClusterLayer) and clusters.sphere:
                weight = clusters.weight.detach().clone()
                owner, mean = sphere.nearest(z, weight, 1.0, 1.0, 1.0)
                sphere.step(weight, *sphere.sums(z.detach(), owner, len(weight)), mean.detach(), 1.0)
                loss = loss + mean
        parameters = list(twin.parameters())
        for parameter, gradient in zip(
            parameters, torch.autograd.grad(loss, parameters, allow_unused=True), strict=True
        ):
            parameter.grad = gradient
        if isinstance(optimizer, FusedAdadelta):
            type(optimizer)(parameters, **optimizer.defaults).step()
