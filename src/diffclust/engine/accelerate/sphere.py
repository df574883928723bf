"""Rows and moving centres on the unit sphere, in one kernel per operation."""

from typing import Any

import torch
from torch import Tensor

from ...nn.cluster import PlainSphere
from .launch import launch, takes_kernels

ROWS = 16  # rows per program
WIDEST = 1024  # columns that the kernels support: one program holds whole rows
EPS = 1e-12  # that of `F.normalize`
ONE_PROGRAM_UP_TO = 2**10, 64, 64  # rows, columns and centres that one program is enough for


class _UnitRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        from . import small_kernels as kernels

        x = x.contiguous()
        out, inverse = torch.empty_like(x), x.new_empty(len(x))
        launch(kernels.unit_rows, _grid(x), x, out, inverse, *x.shape, EPS, ROWS=ROWS, COLUMNS=_padded(x))
        ctx.save_for_backward(out, inverse)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        from . import small_kernels as kernels

        y, inverse = ctx.saved_tensors
        g, out = gradients[0].contiguous(), torch.empty_like(y)
        launch(kernels.unit_rows_gradient, _grid(y), g, y, inverse, out, *y.shape, EPS, ROWS=ROWS, COLUMNS=_padded(y))
        return out


class _Nearest(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, weight: Tensor, alpha: float, factor: float, constant: float
    ) -> tuple[Tensor, Tensor]:
        from . import small_kernels as kernels

        owner, out = torch.empty(len(z), dtype=torch.long, device=z.device), z.new_empty(())
        launch(
            kernels.nearest, (1,),
            z, weight, owner, out, *z.shape, len(weight), 1 / alpha, factor, constant,
            ROWS=256, CENTERS=max(2, _padded(weight.T)), num_warps=8,
        )  # fmt: skip
        ctx.mark_non_differentiable(owner)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(z, weight, owner)
        ctx.alpha, ctx.factor = alpha, factor
        return owner, out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        from . import small_kernels as kernels

        z, weight, owner = ctx.saved_tensors
        out = torch.empty_like(z)
        launch(
            kernels.nearest_gradient, _grid(z),
            gradients[1], z, weight, owner, out, *z.shape, 1 / ctx.alpha, ctx.factor, ROWS=ROWS, COLUMNS=_padded(z),
        )  # fmt: skip
        return out, None, None, None, None


class FusedSphere(PlainSphere):
    def nearest(self, z: Tensor, weight: Tensor, alpha: float, factor: float, constant: float) -> tuple[Tensor, Tensor]:
        ready = _small(z, len(weight)) and _fits(weight) and weight.is_contiguous()
        if not ready or weight.requires_grad:
            return super().nearest(z, weight, alpha, factor, constant)
        return _Nearest.apply(z, weight, alpha, factor, constant)

    def sums(self, z: Tensor, owner: Tensor, n_clusters: int) -> tuple[Tensor, Tensor]:
        from . import small_kernels as kernels

        if not _small(z, n_clusters):
            return super().sums(z, owner, n_clusters)
        pull, mass = z.new_empty(n_clusters, z.shape[1]), z.new_empty(n_clusters)
        launch(
            kernels.member_sums, (1,),
            z, owner, pull, mass, *z.shape, n_clusters,
            ROWS=256, CENTERS=max(16, _padded(pull.T)), COLUMNS=max(16, _padded(z)), num_warps=8,
        )  # fmt: skip
        return pull, mass

    def unit_rows(self, x: Tensor) -> Tensor:
        return _UnitRows.apply(x) if _fits(x) else super().unit_rows(x)

    def step(self, weight: Tensor, pull: Tensor, mass: Tensor, step: float | Tensor, length: float) -> None:
        from . import small_kernels as kernels

        if not (_fits(weight) and weight.is_contiguous() and isinstance(step, Tensor)):
            return super().step(weight, pull, mass, step, length)
        launch(
            kernels.sphere_step, _grid(weight),
            weight, pull.contiguous(), mass.contiguous(), step, *weight.shape, length, EPS,
            ROWS=ROWS, COLUMNS=_padded(weight),
        )  # fmt: skip


def _fits(x: Tensor) -> bool:
    """Whether the kernels take such rows."""
    rows = x.ndim == 2 and x.dtype == torch.float32 and 0 < x.shape[1] <= WIDEST and len(x) > 0
    return rows and takes_kernels(x)  # another thread may use a model on the CPU at the same time


def _small(z: Tensor, centers: int) -> bool:
    sizes = zip((*z.shape, centers), ONE_PROGRAM_UP_TO, strict=False)
    return _fits(z) and z.is_contiguous() and all(size <= most for size, most in sizes)


def _grid(x: Tensor) -> tuple[int]:
    return (-(-len(x) // ROWS),)


def _padded(x: Tensor) -> int:
    return 1 << (x.shape[1] - 1).bit_length()
