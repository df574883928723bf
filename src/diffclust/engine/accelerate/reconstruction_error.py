"""The mean squared error of a reconstruction, with the sigmoid before it, by few kernels."""

from typing import Any

import torch
from torch import Tensor

from ...nn.autoencoders import base
from .launch import launch, takes_kernels

BLOCK = 1024  # values per program of the kernel


def squared_error(y: Tensor, target: Tensor, sigmoid: bool) -> Tensor:
    """`nn.autoencoders.base.squared_error`, differentiable by y."""
    fits = y.is_contiguous() and target.is_contiguous() and target.dtype == torch.float32 and y.numel() > 0
    if not fits or target.requires_grad or not takes_kernels(y):
        return base.squared_error(y, target, sigmoid)
    return _SquaredError.apply(y, target, sigmoid)


class _SquaredError(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, target: Tensor, sigmoid: bool) -> Tensor:
        from . import small_kernels as kernels

        programs = -(-y.numel() // BLOCK)
        partial, out = target.new_empty(programs), target.new_empty(())
        launch(kernels.squared_error, (programs,), y, target, partial, y.numel(), SIGMOID=sigmoid, BLOCK=BLOCK)
        launch(kernels.fold_mean, (1,), partial, out, programs, y.numel(), BLOCK=BLOCK)
        ctx.sigmoid = sigmoid
        ctx.save_for_backward(y, target)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        from . import small_kernels as kernels

        y, target = ctx.saved_tensors
        out = torch.empty_like(y)
        launch(
            kernels.squared_error_gradient, (-(-y.numel() // BLOCK),),
            y, target, gradients[0], out, y.numel(), SIGMOID=ctx.sigmoid, BLOCK=BLOCK,
        )  # fmt: skip
        return out, None, None
