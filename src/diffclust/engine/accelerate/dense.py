"""Linear layers with ReLU and dropout in a few kernels, for training in bf16 on a GPU.

These layers are small, so the time of a step depends on its number of kernels. Autocast needs a kernel to cast each
weight to bf16 and one to cast each gradient back. Here all weights are cast at once, matrix products return float32
gradients, and one kernel computes the gradient through dropout and ReLU together with the bias gradient.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ...nn.chain import Chain
from .launch import launch
from .side_stream import SideStream, runs_alone

ROWS, COLUMNS = 256, 16  # of the tile that a program computes
OVERLAP_UP_TO = 2**18  # numbers of a weight, up to which its gradient leaves room on the GPU for other work

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Dense:
    """A linear layer, and what follows it."""

    linear: nn.Linear
    relu: bool
    dropout: float  # a share; only after ReLU


def group_dense(parts: Iterable[nn.Module | T]) -> Iterator[nn.Module | T | list[Dense]]:
    """Group consecutive linear layers into lists; yield everything else unchanged."""
    waiting = list(parts)
    run: list[Dense] = []
    while waiting:
        part = waiting.pop(0)
        if type(part) is not nn.Linear or part.bias is None:
            if run:
                yield run
                run = []
            yield part
            continue
        relu = bool(waiting) and isinstance(waiting[0], nn.ReLU)
        if relu:
            waiting.pop(0)
        dropout = waiting[0] if relu and waiting else None
        if isinstance(dropout, nn.Dropout) and dropout.p < 1:
            waiting.pop(0)
            run.append(Dense(part, relu, dropout.p))
        else:
            run.append(Dense(part, relu, 0.0))
    if run:
        yield run


class CastWeights:
    """The weights of a model's linear layers, cast to bf16 by one kernel on a side stream."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        chains = [module for module in model.modules() if isinstance(module, Chain)]
        weights = [p for chain in chains for layer in chain if type(layer) is nn.Linear for p in layer.parameters()]
        self.side = SideStream(device, wanted=runs_alone())
        self.known: dict[Tensor, Tensor] = {}
        if weights:
            with self.side.overlap():
                self.known = dict(zip(weights, _cast(weights, torch.bfloat16), strict=True))

    def take(self, weights: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
        self.side.join()
        if dtype == torch.bfloat16 and all(weight in self.known for weight in weights):
            return [self.known[weight] for weight in weights]
        return _cast(weights, dtype)


@torch.no_grad()
def _cast(weights: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    used = [torch.empty_like(weight, dtype=dtype) for weight in weights]
    torch._foreach_copy_(used, list(weights))
    return used


def connect(x: Tensor, layers: list[Dense], cast_weights: CastWeights | None = None) -> Tensor:
    """Apply the layers to rows (b, d), differentiably, in the precision of the rows."""
    parameters = [p for layer in layers for p in (layer.linear.weight, layer.linear.bias)]
    used = _cast(parameters, x.dtype) if cast_weights is None else cast_weights.take(parameters, x.dtype)
    return _Connections.apply(x, layers, used, *parameters)


class _Connections(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layers: list[Dense], used: list[Tensor], *parameters: Tensor) -> Tensor:
        values = [x]
        for layer, weight, bias in zip(layers, used[::2], used[1::2], strict=True):
            product = torch._addmm_activation if layer.relu else torch.addmm
            y = product(bias, values[-1], weight.T)
            values.append(torch.native_dropout(y, layer.dropout, True)[0] if layer.dropout else y)
        ctx.layers = layers
        ctx.save_for_backward(*values, *used[::2])
        return values[-1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        layers, saved = ctx.layers, ctx.saved_tensors
        values, weights = saved[: len(layers) + 1], saved[len(layers) + 1 :]
        g = gradients[0].to(values[0].dtype).contiguous()
        found: list[Tensor | None] = []
        side = SideStream(g.device, wanted=runs_alone() and max(weight.numel() for weight in weights) <= OVERLAP_UP_TO)
        for i, layer in reversed(list(enumerate(layers))):
            g, of_bias = _through(g, values[i + 1], layer)
            with side.overlap(g):
                of_weight = _product(g.T, values[i]) if ctx.needs_input_grad[3 + 2 * i] else None
            found = [of_weight, of_bias, *found]
            if not any(ctx.needs_input_grad[: 3 + 2 * i]):
                side.join()
                return None, None, None, *[None] * (2 * i), *found
            g = g @ weights[i]
        side.join()
        return g, None, None, *found


def _product(a: Tensor, b: Tensor) -> Tensor:
    """The matrix product, in float32."""
    return a @ b if a.dtype == torch.float32 else torch.mm(a, b, out_dtype=torch.float32)


def _through(g: Tensor, y: Tensor, layer: Dense) -> tuple[Tensor, Tensor]:
    """The gradient before ReLU and dropout, which is zero unless their output y is positive, and its sum over rows."""
    from . import small_kernels as kernels

    rows, columns = g.shape
    out = torch.empty_like(g) if layer.relu else g
    sums = g.new_empty(columns, dtype=torch.float32)
    launch(
        kernels.rectified_gradient, (-(-columns // COLUMNS),),
        g, y, out, sums, rows, columns, 1 / (1 - layer.dropout), RELU=layer.relu, ROWS=ROWS, COLUMNS=COLUMNS,
    )  # fmt: skip
    return out, sums
