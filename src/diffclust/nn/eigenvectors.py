"""Eigenvectors by descent on orthonormal matrices: differentiable, also for equal eigenvalues.

The k smallest eigenvectors of a symmetric L span the minimum of f(Y) = tr(YᵀLY) over YᵀY = I (n, k). With the gradient
G = 2 L Y, the skew matrix P = G Yᵀ - Y Gᵀ gives a direction of descent: Y moves along the Cayley transform of -tP. A
polynomial::

    Y(t) = Σ_i c_i (-tP)^i Y,    c = 1, 1, 1/2 (r = 2);  1, 1, 1/2, 1/8 (r = 3)

approximates it, and YᵀY stays I up to t^2r. P is never formed: it has rank 2k, and a product with it costs O(n k²). The
gradient of `eigh` divides by differences of eigenvalues; this one does not. (SSCNet, with its formulas corrected.)
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

Operator = Callable[[Tensor], Tensor]  # Y (..., n, k) -> L Y

SKEWED = 1e-2  # largest difference of YᵀY from the identity: beyond it, steps leave the manifold
CAP = 0.8  # up to this |tP| a step of order 2 stays near the manifold (SSCNet, proposition 2)
CHECK = 8  # iterations between checks of the residual, each of which waits for the device


def cayley_coefficients(order: int) -> list[float]:
    """c_0 ... c_r with p(x) p(-x) = 1 + O(x^2r), p(x) = Σ c_i x^i.

    These are Butterworth's polynomials, scaled to slope one. For r = 2 and 3 they are the paper's 2^(-i(i-1)/2), which
    stay at order 4 from r = 4 on.
    """
    if order < 1:
        raise ValueError(f"order={order} should be >= 1.")
    product = [1.0]
    for i in range(order // 2):  # (s² + 2 sin((2i+1)π / 2r) s + 1), constant first
        middle = 2 * math.sin((2 * i + 1) * math.pi / (2 * order))
        product = _times(product, [1.0, middle, 1.0])
    if order % 2:
        product = _times(product, [1.0, 1.0])
    return [a / product[1] ** i for i, a in enumerate(product)]


def _times(a: list[float], b: list[float]) -> list[float]:
    out = [0.0] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            out[i + j] += x * y
    return out


class Skew(NamedTuple):
    """P = H Yᵀ - Y Hᵀ + Y S Yᵀ without its n² entries; skew for any H and any skew S."""

    y: Tensor
    h: Tensor
    s: Tensor | None = None

    def __matmul__(self, v: Tensor) -> Tensor:
        inside = self.y.mT @ v
        out = self.h @ inside - self.y @ (self.h.mT @ v)
        return out if self.s is None else out + self.y @ (self.s @ inside)


def cayley_curve(p: Skew, t: Tensor | float, coefficients: list[float]) -> Tensor:
    """Σ_i c_i (-tP)^i Y, by Horner's rule."""
    out = coefficients[-1] * p.y
    for c in reversed(coefficients[:-1]):
        out = c * p.y - t * (p @ out)
    return out


def polish(y: Tensor) -> Tensor:
    """A step towards the nearest orthonormal matrix, by products only: an error ε of YᵀY becomes 3/4 ε²."""
    return 1.5 * y - 0.5 * y @ (y.mT @ y)


@torch.no_grad()
def step_length(apply: Operator, p: Skew, ly: Tensor, cap: float | None) -> Tensor:
    """min(t~, cap), (..., 1, 1), with Newton's step t~ = tr(YᵀLPY) / [tr(YᵀLP²Y) - tr(YᵀPLPY)] along the curve; the cap
    if the curvature in brackets is not positive. The cap is `0.8 / |PY|` by default."""
    d = p @ p.y
    slope = _trace(ly, d)
    curvature = _trace(ly, p @ d) + _trace(d, apply(d))  # Pᵀ = -P
    tiny = torch.finfo(d.dtype).tiny
    most = torch.full_like(slope, cap) if cap is not None else CAP / _length(d).clamp_min(tiny)
    newton = torch.where(curvature > 0, slope / curvature.clamp_min(tiny), most)
    return torch.minimum(newton.clamp_min(0), most)


def _trace(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum((-2, -1), keepdim=True)


def _length(a: Tensor) -> Tensor:
    a = a.detach()
    return _trace(a, a).sqrt()


def random_orthonormal(n: int, k: int, *, like: Tensor | None = None, seed: int = 0) -> Tensor:
    """(n, k) with orthonormal columns, the same for a seed on every device. Global generators are not used."""
    draw = torch.randn(n, k, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    q = torch.linalg.qr(draw).Q.contiguous()
    return q.float() if like is None else q.to(like)


class EigenvectorLayer(nn.Module):
    """One step towards the smallest eigenvectors: from L (..., n, n) and Y (..., n, k) to the next Y. A stack of 8 to
    16 layers, from a random orthonormal start, comes close.

    The learnable S = B - Bᵀ turns Y within its span. The step's length counts as a constant for gradients.

    Args:
        n_vectors: k, of Y.
        order: r of the polynomial; 2 and 3 are the paper's, from 4 on Butterworth's.
        cap: the longest step; None is `0.8 / |PY|`, the paper's 0.01 needs hundreds of layers.
    """

    def __init__(self, n_vectors: int, *, order: int = 2, cap: float | None = None) -> None:
        super().__init__()
        if cap is not None and not cap > 0:
            raise ValueError(f"cap={cap} should be None or > 0.")
        self.coefficients, self.order, self.cap = cayley_coefficients(order), order, cap
        self.turn = nn.Parameter(torch.zeros(n_vectors, n_vectors))  # B

    def forward(self, laplacian: Tensor | Operator, y: Tensor) -> Tensor:
        apply = operator(laplacian)
        ly = apply(y)
        k = y.shape[-1]  # may be fewer than n_vectors
        p = Skew(y, 2 * ly, (self.turn - self.turn.T)[:k, :k].to(y.dtype))
        t = step_length(apply, p, ly, self.cap)
        return cayley_curve(p, t, self.coefficients)

    def extra_repr(self) -> str:
        return f"n_vectors={len(self.turn)}, order={self.order}, cap={self.cap}"


def operator(matrix: Tensor | Operator) -> Operator:
    """The function Y -> L Y of a dense or sparse matrix, or of an operator."""
    if not isinstance(matrix, Tensor):
        return matrix
    if matrix.shape[-1] != matrix.shape[-2]:
        raise ValueError(f"The matrix has shape {tuple(matrix.shape)}: expected (..., n, n).")
    return lambda y: matrix @ y


def smallest_eigenvectors(
    laplacian: Tensor | Operator,
    k: int | None = None,
    *,
    start: Tensor | None = None,
    max_iter: int = 300,
    tolerance: float = 1e-5,
    order: int = 3,
) -> tuple[Tensor, Tensor]:
    """The k smallest eigenvalues, ascending (..., k), and eigenvectors (..., n, k) of a symmetric matrix (..., n, n).

    Takes steps of the `EigenvectorLayer` along conjugate directions, from `start` (n, k) or a fixed random start, until
    `|LY - Y(YᵀLY)|` is at most `tolerance` times the initial `|LY|`. The matrix may be dense and batched, sparse, or an
    operator Y -> LY (which needs a start). Gradients are those of the unrolled steps: finite for all eigenvalues, and
    exact in the limit for functions of the span of the vectors, such as YYᵀ. The rotation within the span, to single
    eigenvectors, is treated as a constant: with equal eigenvalues it has no derivative.
    """
    apply = operator(laplacian)
    if start is None:
        if not isinstance(laplacian, Tensor) or k is None:
            raise ValueError("Give k and a matrix, or a start (n, k).")
        n = laplacian.shape[-1]
        if not 1 <= k <= n:
            raise ValueError(f"k={k} should be from 1 to n={n}.")
        start = random_orthonormal(n, k, like=torch.empty(0, dtype=laplacian.dtype, device=laplacian.device))
        start = start.expand(*laplacian.shape[:-2], n, k)
    elif k is not None and start.shape[-1] != k:
        raise ValueError(f"start has {start.shape[-1]} columns, expected k={k}.")
    else:
        off = start.mT @ start - torch.eye(start.shape[-1], dtype=start.dtype, device=start.device)
        if not bool(off.abs().max() < SKEWED):
            raise ValueError("start should have orthonormal columns, and finite numbers: use torch.linalg.qr(start).Q.")
    y = _descend(apply, start, max_iter, tolerance, cayley_coefficients(order))
    with torch.no_grad():
        inner = y.mT @ apply(y)
        turn = torch.linalg.eigh((inner + inner.mT) / 2).eigenvectors
    y = y @ turn
    return (y * apply(y)).sum(-2), y


def _descend(apply: Operator, y: Tensor, max_iter: int, tolerance: float, coefficients: list[float]) -> Tensor:
    h = last = y.new_zeros(())  # direction and gradient of the previous step
    ly = apply(y)
    scale = _length(ly)
    if not bool(scale.isfinite().all()):
        raise ValueError("The matrix contains NaN or infinity.")
    for i in range(max_iter):
        gradient = 2 * (ly - y @ (y.mT @ ly))  # on the manifold
        if i % CHECK == 0 and bool((_length(gradient) <= 2 * tolerance * scale).all()):
            break
        h = gradient + _conjugate(gradient.detach(), last, h, y) if i else gradient
        p = Skew(y, h)
        y = polish(cayley_curve(p, step_length(apply, p, ly, None), coefficients))
        ly, last = apply(y), gradient.detach()
    return polish(polish(y))


def _conjugate(gradient: Tensor, last: Tensor, h: Tensor, y: Tensor) -> Tensor:
    """β h with Polak and Ribière's β >= 0 and h projected to the current tangent space; 0 if the sum is no descent
    direction."""
    tiny = torch.finfo(y.dtype).tiny
    beta = _trace(gradient, gradient - last) / _trace(last, last).clamp_min(tiny)
    h = h - y @ (y.mT @ h)
    downhill = _trace(gradient, gradient + beta * h.detach()) > 0
    return torch.where(downhill, beta.clamp_min(0), 0.0) * h


def top_singular_vectors(
    x: Tensor, k: int, *, max_iter: int = 300, tolerance: float = 1e-5, order: int = 3
) -> tuple[Tensor, Tensor, Tensor]:
    """The k largest singular triplets of (..., n, d): U (..., n, k), descending S (..., k), V (..., d, k), X ≈ U S Vᵀ.

    Eigenvectors of -XᵀX or -XXᵀ, whichever is smaller, by products with X alone; gradients as those of
    `smallest_eigenvectors`. Singular values below √eps times the largest are inaccurate.
    """
    n, d = x.shape[-2:]
    if not 1 <= k <= min(n, d):
        raise ValueError(f"k={k} should be from 1 to {min(n, d)}, the smaller side of {tuple(x.shape)}.")
    if n < d:
        v, s, u = top_singular_vectors(x.mT, k, max_iter=max_iter, tolerance=tolerance, order=order)
        return u, s, v
    start = random_orthonormal(d, k, like=x).expand(*x.shape[:-2], d, k)
    _, v = smallest_eigenvectors(
        lambda y: -(x.mT @ (x @ y)), start=start, max_iter=max_iter, tolerance=tolerance, order=order
    )
    images = x @ v
    s = images.square().sum(-2).clamp_min(torch.finfo(x.dtype).tiny).sqrt()
    return images / s[..., None, :], s, v
