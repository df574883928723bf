"""Sequences of 3x3 convolutions, batch norms and ReLUs in a few Triton kernels, for training in bf16 on a GPU."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...nn.chain import Chain
from .launch import launch
from .side_stream import SideStream, runs_alone

ROWS, WARPS = 128, 4  # pixels per program, and its warps: the best of eight choices on an H200
FULL_GPU = 132  # programs that fill a GPU: with fewer, each gets half of the pixels
CHUNKS = 88  # parts of a weight gradient's sum over pixels; each has three programs, one per row of the 3x3 kernel


@dataclass(frozen=True, eq=False)
class Layer:
    """A convolution that the kernels support, with the batch norm before its ReLU if there are these."""

    convolution: nn.Conv2d | nn.ConvTranspose2d
    norm: nn.BatchNorm2d | None

    @property
    def transposed(self) -> bool:
        return isinstance(self.convolution, nn.ConvTranspose2d)

    @property
    def stride(self) -> int:
        return int(self.convolution.stride[0])

    def size(self, length: int, dim: int) -> int:
        if not self.transposed:
            return (length - 1) // self.stride + 1
        return (length - 1) * self.stride + 1 + int(self.convolution.output_padding[dim])


def known(module: nn.Module) -> bool:
    """Whether the kernels can run this convolution."""
    return (
        isinstance(module, (nn.Conv2d, nn.ConvTranspose2d))
        and tuple(module.kernel_size) == (3, 3)
        and module.padding == (1, 1)
        and module.stride in ((1, 1), (2, 2))
        and module.dilation == (1, 1)
        and module.groups == 1
        and module.padding_mode == "zeros"
        and module.bias is not None
        and max(module.in_channels, module.out_channels) <= 64
    )


def group(modules: Iterable[nn.Module]) -> Iterator[nn.Module | list[Layer]]:
    """Group consecutive supported convolutions into lists of layers; yield all other modules unchanged."""
    modules, run = list(modules), []
    while modules:
        module = modules.pop(0)
        norm = modules[0] if len(modules) > 1 and isinstance(modules[1], nn.ReLU) else None
        plain = not modules or not isinstance(modules[0], (nn.BatchNorm2d, nn.ReLU))
        usual = isinstance(norm, nn.BatchNorm2d) and norm.affine and norm.track_running_stats and norm.momentum
        if known(module) and (plain or usual):
            run.append(Layer(module, None if plain else norm))  # type: ignore[arg-type]
            modules = modules[0 if plain else 2 :]
            if not plain:
                continue
        elif not run:
            yield module
            continue
        else:
            modules.insert(0, module)
        yield run
        run = []
    if run:
        yield run


def _parameters(layers: list[Layer]) -> list[Tensor]:
    found: list[Tensor] = []
    for layer in layers:
        found += [layer.convolution.weight, layer.convolution.bias]  # type: ignore[list-item]
        found += [layer.norm.weight, layer.norm.bias] if layer.norm else []
    return found


class DeferredGradients:
    """The parameters of a model's convolutions for one step. Their gradients are computed on a side stream during the
    backward pass and waited for at its end: autograd visits nodes in reverse order of creation, and this node is
    created before those of the layers."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        chains = [module for module in model.modules() if isinstance(module, Chain)]
        runs = [part for chain in chains for part in group(chain) if isinstance(part, list)]
        parameters = [p for run in runs for p in _parameters(run) if p.requires_grad]
        self.side = SideStream(device, wanted=runs_alone(), long=True)
        self.known = (
            dict(zip(parameters, _DeferredGradients.apply(self.side, *parameters), strict=True)) if parameters else {}
        )

    def take(self, parameters: list[Tensor]) -> list[Tensor] | None:
        """The parameters, each only once: autograd would add up gradients of two uses before they are computed."""
        if not all(p in self.known for p in parameters):
            return None
        return [self.known.pop(p) for p in parameters]


class _DeferredGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, side: SideStream, *parameters: Tensor) -> tuple[Tensor, ...]:
        ctx.side = side
        ctx.set_materialize_grads(False)
        return tuple(p.view_as(p) for p in parameters)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        ctx.side.join()
        return None, *gradients


def convolve(x: Tensor, layers: list[Layer], deferred: DeferredGradients | None = None) -> Tensor:
    """The layers on images (b, c, h, w), differentiable."""
    parameters = _parameters(layers)
    taken = deferred.take(parameters) if deferred is not None else None
    if deferred is None or taken is None:
        return _Convolutions.apply(x, layers, None, *parameters)
    return _Convolutions.apply(x, layers, deferred.side, *taken)


def _padded(channels: int) -> int:
    """Round up to a size that tensor cores support."""
    return max(16, 1 << (channels - 1).bit_length())


@dataclass(eq=False)
class Normed:
    """A layer's output before batch norm and ReLU, (b, h, w, c), with the numbers to apply them."""

    y: Tensor
    numbers: Tensor | None = None  # (4, c): scale, shift, mean, 1 / standard deviation

    def row(self, i: int) -> Tensor:
        return self.y if self.numbers is None else self.numbers[i]  # any pointer: it is not read


def _gather(
    x: Normed, weight: Tensor, shape: tuple[int, int, int], *,
    stride: int, backward: bool, across: tuple[int, int], bias: Tensor | None = None,
    sums: bool = False, below: Normed | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Launch `convolve`: the output `(b, *shape)` and the partial sums of its epilogue. `across`: which dimensions of
    the weight are input and output channels."""
    from . import kernels

    b, x_height, x_width, c_in = x.y.shape
    y_height, y_width, c_out = shape
    y = x.y.new_empty(b, *shape)
    if c_out == 1 and stride == 1 and not sums and below is None:
        pairs = b * ((y_height + 1) // 2) * y_width
        launch(
            kernels.convolve_to_one, (-(-pairs // (ROWS // 2)),),
            x.y, weight, weight if bias is None else bias, y, x.row(0), x.row(1), b, y_height, y_width,
            weight.stride(across[0]), weight.stride(3), C_IN=c_in, PAD_IN=_padded(c_in),
            BACKWARD=backward, NORMED=x.numbers is not None, BIASED=bias is not None, ROWS=ROWS // 2, num_warps=WARPS,
        )  # fmt: skip
        return y, None
    split = backward and stride == 2
    pixels = b * ((y_height + 1) // 2) * ((y_width + 1) // 2) if split else b * y_height * y_width
    at_once = split and c_in > 1 and pixels > FULL_GPU * ROWS
    rows = ROWS if (4 if split else 1) * pixels > FULL_GPU * ROWS else ROWS // 2
    grid = (-(-pixels // rows), 4 if split and not at_once else 1)
    programs = grid[0] * (4 if split else 1)
    partial = y.new_empty(2, c_out, programs, dtype=torch.float32) if sums or below else None
    under = below or Normed(y)
    kind = {} if at_once else {"STRIDE": stride, "BACKWARD": backward}
    launch(
        kernels.convolve_spread if at_once else kernels.convolve, grid,
        x.y, weight, weight if bias is None else bias, y, x.row(0), x.row(1),
        under.y, under.row(0), under.row(1), under.row(2), under.row(3), y if partial is None else partial,
        b, x_height, x_width, y_height, y_width,
        weight.stride(across[0]), weight.stride(across[1]), weight.stride(3), programs,
        C_IN=c_in, C_OUT=c_out, PAD_IN=_padded(c_in), PAD_OUT=_padded(c_out),
        NORMED=x.numbers is not None, BIASED=bias is not None,
        EPILOGUE="masked" if below else "sums" if sums else "none", ROWS=rows, num_warps=WARPS, **kind,
    )  # fmt: skip
    return y, partial


class _Convolutions(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layers: list[Layer], side: SideStream | None, *parameters: Tensor) -> Tensor:
        from . import kernels

        inputs = [Normed(x.permute(0, 2, 3, 1).contiguous())]
        for layer in layers:
            source, convolution, norm = inputs[-1], layer.convolution, layer.norm
            shape = (layer.size(source.y.shape[1], 0), layer.size(source.y.shape[2], 1), convolution.out_channels)
            y, partial = _gather(
                source, convolution.weight, shape, stride=layer.stride, backward=layer.transposed,
                across=(0, 1) if layer.transposed else (1, 0), bias=convolution.bias, sums=norm is not None,
            )  # fmt: skip
            inputs.append(Normed(y))
            if norm is not None and partial is not None:
                numbers = partial.new_empty(4, shape[2])
                launch(
                    kernels.fold_statistics, (shape[2],),
                    partial, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.num_batches_tracked,
                    *numbers, y.numel() // shape[2], norm.momentum, norm.eps, partial.shape[2],
                    C=shape[2], BLOCK=2048,
                )  # fmt: skip
                inputs[-1] = Normed(y, numbers)
        ctx.inputs, ctx.layers, ctx.side = inputs, layers, side
        last = inputs[-1]
        if last.numbers is None:
            return last.y.permute(0, 3, 1, 2)
        b, height, width, c = last.y.shape
        out = last.y.new_empty(b, c, height, width)
        launch(
            kernels.activate, (-(-out.numel() // 1024),),
            last.y, out, last.numbers[0], last.numbers[1], out.numel(), height * width, C=c, BLOCK=1024,
        )  # fmt: skip
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        from . import kernels

        inputs, layers = ctx.inputs, ctx.layers
        top = inputs[-1]
        g, partial = gradients[0].to(top.y.dtype), None
        if top.numbers is None:
            g = g.permute(0, 2, 3, 1).contiguous()
        else:
            b, height, width, c = top.y.shape
            pixels, masked = b * height * width, torch.empty_like(top.y)
            partial = g.new_empty(2, c, -(-pixels // ROWS), dtype=torch.float32)
            launch(
                kernels.masked_sums, (partial.shape[2],),
                g.contiguous(), top.y, masked, *top.numbers, partial, pixels, height * width, partial.shape[2],
                C=c, PAD=_padded(c), ROWS=ROWS,
            )  # fmt: skip
            g = masked
        found: list[Tensor | None] = []
        side = ctx.side or SideStream(g.device, wanted=runs_alone())
        for layer, source, result in reversed(list(zip(layers, inputs[:-1], inputs[1:], strict=True))):
            c = g.shape[3]
            of_norm: list[Tensor | None] = []
            if layer.norm is not None and partial is not None:
                numbers = partial.new_empty(5, c)
                launch(
                    kernels.fold_gradient, (c,),
                    partial, layer.norm.weight, result.numbers[2], result.numbers[3], *numbers,
                    g.numel() // c, partial.shape[2], C=c, BLOCK=2048,
                )  # fmt: skip
                launch(
                    kernels.affine, (-(-g.numel() // 4096),),
                    g, result.y, *numbers[:3], g.numel(), C=c, BLOCK=4096,
                )  # fmt: skip
                of_norm = [numbers[3], numbers[4]]
            with side.overlap(g, source.y, source.row(0)):
                # before a batch norm a bias has no effect
                of_bias = None if of_norm else g.sum((0, 1, 2), dtype=torch.float32)
                found = [_weight_gradient(layer, source, g), of_bias, *of_norm, *found]
            if source is inputs[0] and not ctx.needs_input_grad[0]:
                break
            g, partial = _gather(
                Normed(g), layer.convolution.weight, tuple(source.y.shape[1:]), stride=layer.stride,
                backward=not layer.transposed, across=(1, 0) if layer.transposed else (0, 1),
                below=source if source.numbers is not None else None,
            )  # fmt: skip
        if ctx.side is None:
            side.join()
        return g.permute(0, 3, 1, 2) if ctx.needs_input_grad[0] else None, None, None, *found


def _weight_gradient(layer: Layer, source: Normed, g: Tensor) -> Tensor:
    """The gradient of the weight: a convolution slides over its input, a transposed one over the output's gradient."""
    from . import kernels

    fixed, moved = (source.y, g) if layer.transposed else (g, source.y)
    b, height, width, c_fixed = fixed.shape
    c_moved = moved.shape[3]
    pixels = b * height * width
    rows_of_taps = 1 if c_moved == 1 else 3
    blocks = -(-pixels // (ROWS * CHUNKS * 3 // rows_of_taps))
    chunks = -(-pixels // (ROWS * blocks))
    partial = g.new_empty(chunks, 9, c_fixed, c_moved, dtype=torch.float32)
    weight = layer.convolution.weight
    launch(
        kernels.weight_gradient, (chunks, rows_of_taps),
        fixed, moved, source.row(0), source.row(1), partial, b, height, width, moved.shape[1], moved.shape[2], blocks,
        C_FIXED=c_fixed, C_MOVED=c_moved, PAD_FIXED=_padded(c_fixed), PAD_MOVED=_padded(c_moved),
        NORMED="none" if source.numbers is None else "fixed" if layer.transposed else "moved",
        STRIDE=layer.stride, ROWS=ROWS, num_warps=WARPS,
    )  # fmt: skip
    out = torch.empty_like(weight)
    count = 9 * c_fixed * c_moved
    launch(
        kernels.fold_weights, (-(-count // 64),),
        partial, out, chunks, count, weight.stride(0), weight.stride(1), weight.stride(3),
        C_FIXED=c_fixed, C_MOVED=c_moved, BLOCK=64, DEEP=64,
    )  # fmt: skip
    return out
