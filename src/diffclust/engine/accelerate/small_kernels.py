"""Triton kernels for the operations around the layers, each of which replaces several kernels of PyTorch."""

import triton
import triton.language as tl

from .kernels import begin, total


@triton.jit
def adadelta(
    parameter,
    gradient,
    square,
    travelled,
    count,
    lr,
    rho,
    eps,
    MOVES: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    """Update both moments, with each number read and written once. MOVES: also update the parameter; otherwise the step
    overwrites the gradient."""
    begin(PDL)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = i < count
    g = tl.load(gradient + i, mask=here, other=0.0)
    s = tl.load(square + i, mask=here, other=0.0) * rho + (1 - rho) * g * g
    t = tl.load(travelled + i, mask=here, other=0.0)
    delta = tl.sqrt((t + eps) / (s + eps)) * g
    tl.store(square + i, s, mask=here)
    tl.store(travelled + i, t * rho + (1 - rho) * delta * delta, mask=here)
    if MOVES:
        tl.store(parameter + i, tl.load(parameter + i, mask=here, other=0.0) - lr * delta, mask=here)
    else:
        tl.store(gradient + i, delta, mask=here)


@triton.jit
def rectified_gradient(
    gradient,
    y,
    out,
    sums,
    rows,
    columns,
    scale,
    RELU: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PDL: tl.constexpr,
):
    """out = scale · gradient if y > 0, otherwise 0, and its sums over the rows. Without RELU only the sums of the
    gradient."""
    begin(PDL)
    c = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    summed = tl.zeros((ROWS, COLUMNS), tl.float32)
    start = 0
    while start < rows:
        r = start + tl.arange(0, ROWS)
        at = r[:, None] * columns + c[None, :]
        here = (r < rows)[:, None] & (c < columns)[None, :]
        g = tl.load(gradient + at, mask=here, other=0.0).to(tl.float32)
        if RELU:
            g = tl.where(tl.load(y + at, mask=here, other=0.0) > 0, scale * g, 0.0)
            tl.store(out + at, g, mask=here)
        summed += g
        start += ROWS
    tl.store(sums + c, tl.sum(summed, 0), mask=c < columns)


@triton.jit
def unit_rows(x, out, inverse, rows, columns, eps, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PDL: tl.constexpr):
    """out = x / max(|x|, eps) for each row, and that factor."""
    begin(PDL)
    r, c = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    at, here = r[:, None] * columns + c[None, :], (r < rows)[:, None] & (c < columns)[None, :]
    value = tl.load(x + at, mask=here, other=0.0)
    factor = 1.0 / tl.maximum(tl.sqrt(tl.sum(value * value, 1)), eps)
    tl.store(inverse + r, factor, mask=r < rows)
    tl.store(out + at, value * factor[:, None], mask=here)


@triton.jit
def unit_rows_gradient(
    g, y, inverse, out, rows, columns, eps, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PDL: tl.constexpr
):
    """(g - y (y·g)) / |x|, where y = x / |x|; g / eps if |x| <= eps."""
    begin(PDL)
    r, c = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    at, here = r[:, None] * columns + c[None, :], (r < rows)[:, None] & (c < columns)[None, :]
    gradient, unit = tl.load(g + at, mask=here, other=0.0), tl.load(y + at, mask=here, other=0.0)
    factor = tl.load(inverse + r, mask=r < rows, other=0.0)
    along = tl.where(factor * eps < 1.0, tl.sum(gradient * unit, 1), 0.0)
    tl.store(out + at, (gradient - unit * along[:, None]) * factor[:, None], mask=here)


@triton.jit
def sphere_step(
    weight, pull, mass, step, rows, columns, length, eps, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PDL: tl.constexpr
):
    """Move each row of the weights by a step of constant length towards its pull, and project it onto the sphere."""
    begin(PDL)
    r, c = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    at, here = r[:, None] * columns + c[None, :], (r < rows)[:, None] & (c < columns)[None, :]
    towards = tl.load(pull + at, mask=here, other=0.0)
    towards /= tl.maximum(tl.sqrt(tl.sum(towards * towards, 1)), eps)[:, None]
    far = length * tl.load(step) * tl.minimum(tl.load(mass + r, mask=r < rows, other=0.0), 1.0)
    moved = tl.load(weight + at, mask=here, other=0.0) + far[:, None] * towards
    moved *= (length / tl.maximum(tl.sqrt(tl.sum(moved * moved, 1)), eps))[:, None]
    tl.store(weight + at, moved, mask=here)


@triton.jit
def nearest(
    z, weight, owner, out, rows, columns, centers, inverse_alpha, factor, constant,
    ROWS: tl.constexpr, CENTERS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """owner = argmax_j W_j·z of each row, and out = the mean of factor · (|z|² - W_owner·z / α) + constant."""
    begin(PDL)
    j = tl.arange(0, CENTERS)
    sums = tl.zeros((ROWS,), tl.float32)
    start = 0
    while start < rows:
        r = start + tl.arange(0, ROWS)
        here = r < rows
        products = tl.zeros((ROWS, CENTERS), tl.float32)
        length = tl.zeros((ROWS,), tl.float32)
        c = 0
        while c < columns:
            value = tl.load(z + r * columns + c, mask=here, other=0.0)
            products += value[:, None] * tl.load(weight + j * columns + c, mask=j < centers, other=0.0)[None, :]
            length += value * value
            c += 1
        products = tl.where((j < centers)[None, :], products, float("-inf"))
        tl.store(owner + r, tl.minimum(tl.argmax(products, 1), centers - 1).to(tl.int64), mask=here)
        sums += tl.where(here, length - tl.max(products, 1) * inverse_alpha, 0.0)
        start += ROWS
    tl.store(out, factor * tl.sum(sums, 0) / rows + constant)


@triton.jit
def nearest_gradient(
    g, z, weight, owner, out, rows, columns, inverse_alpha, factor,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The gradient with respect to z: g · factor / rows · (2 z - W_owner / α)."""
    begin(PDL)
    r, c = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    at, here = r[:, None] * columns + c[None, :], (r < rows)[:, None] & (c < columns)[None, :]
    own = tl.load(owner + r, mask=r < rows, other=0)[:, None] * columns + c[None, :]
    difference = 2 * tl.load(z + at, mask=here, other=0.0) - tl.load(weight + own, mask=here, other=0.0) * inverse_alpha
    tl.store(out + at, tl.load(g) * factor / rows * difference, mask=here)


@triton.jit
def member_sums(
    z, owner, pull, mass, rows, columns, centers,
    ROWS: tl.constexpr, CENTERS: tl.constexpr, COLUMNS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """pull = the sum of the rows that each centre owns, and mass their number."""
    begin(PDL)
    j, c = tl.arange(0, CENTERS), tl.arange(0, COLUMNS)
    sums = tl.zeros((CENTERS, COLUMNS), tl.float32)
    counts = tl.zeros((CENTERS,), tl.float32)
    start = 0
    while start < rows:
        r = start + tl.arange(0, ROWS)
        member = (tl.load(owner + r, mask=r < rows, other=-1)[None, :] == j[:, None]).to(tl.float32)
        here = (r < rows)[:, None] & (c < columns)[None, :]
        value = tl.load(z + r[:, None] * columns + c[None, :], mask=here, other=0.0)
        sums = tl.dot(member, value, sums, input_precision="ieee")
        counts += tl.sum(member, 1)
        start += ROWS
    tl.store(pull + j[:, None] * columns + c[None, :], sums, mask=(j < centers)[:, None] & (c < columns)[None, :])
    tl.store(mass + j, counts, mask=j < centers)


@triton.jit
def squared_error(y, target, partial, count, SIGMOID: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr):
    """Partial sums of (activate(y) - target)²."""
    begin(PDL)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(y + i, mask=i < count, other=0.0).to(tl.float32)
    if SIGMOID:
        value = tl.sigmoid(value)
    error = tl.where(i < count, value - tl.load(target + i, mask=i < count, other=0.0), 0.0)
    tl.store(partial + tl.program_id(0), tl.sum(error * error, 0))


@triton.jit
def fold_mean(partial, out, programs, count, BLOCK: tl.constexpr, PDL: tl.constexpr):
    """The sum of all partial sums, divided by the count."""
    begin(PDL)
    tl.store(out, total(partial, programs, BLOCK) / count)


@triton.jit
def squared_error_gradient(y, target, g, out, count, SIGMOID: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr):
    """The gradient of the mean squared error, times g."""
    begin(PDL)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(y + i, mask=i < count, other=0.0).to(tl.float32)
    slope = tl.load(g) * 2.0 / count
    if SIGMOID:
        value = tl.sigmoid(value)
        slope = slope * value * (1.0 - value)
    error = value - tl.load(target + i, mask=i < count, other=0.0)
    tl.store(out + i, (slope * error).to(out.dtype.element_ty), mask=i < count)
