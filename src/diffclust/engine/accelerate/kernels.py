"""Triton kernels: chains of small 3x3 convolutions with batch norm and ReLU, images stored (b, h, w, c).

With few channels the time of such a layer is that of its memory traffic. So batch norm and ReLU are applied to a
layer's input while it is read, and the sums that they need are computed while its output is written: each layer is read
and written once.

One kernel computes all four kinds of convolution. With stride s, output pixel o and tap k, it reads the input at

    s·o - 1 + k       a convolution, or the gradient of a transposed one          ("forward" gather)
    (o + 1 - k) / s   a transposed convolution, or the gradient of a convolution  ("backward" gather; only whole
    numbers)

Partial sums are stored separately and added in a fixed order, so that the same input gives the same bits.
"""

import triton
import triton.language as tl


@triton.jit
def begin(PDL: tl.constexpr):
    """With programmatic dependent launch (PDL), programs start while the last ones of the previous kernel still run,
    and wait here for its results."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()


@triton.jit
def finish(
    out, bias, y, below, below_scale, below_shift, below_mean, below_rstd, partial, b, oy, ox, here, slot,
    y_height, y_width, programs, C_OUT: tl.constexpr, PAD_OUT: tl.constexpr, BIASED: tl.constexpr,
    EPILOGUE: tl.constexpr,
):  # fmt: skip
    """Write a tile of outputs, and its sums for the EPILOGUE: see `convolve`."""
    co = tl.arange(0, PAD_OUT)
    if BIASED:
        out += tl.load(bias + co, mask=co < C_OUT, other=0.0)[None, :]
    at = ((b * y_height + oy) * y_width + ox)[:, None] * C_OUT + co[None, :]
    there = here[:, None] & (co < C_OUT)[None, :]
    if EPILOGUE == "masked":
        under = tl.load(below + at, mask=there, other=0.0).to(tl.float32)
        alive = tl.load(below_scale + co, mask=co < C_OUT, other=0.0)[None, :] * under
        alive += tl.load(below_shift + co, mask=co < C_OUT, other=0.0)[None, :]
        out = tl.where(alive > 0, out, 0.0)
        under -= tl.load(below_mean + co, mask=co < C_OUT, other=0.0)[None, :]
        second = out * under * tl.load(below_rstd + co, mask=co < C_OUT, other=0.0)[None, :]
    else:
        second = out * out
    tl.store(y + at, out.to(y.dtype.element_ty), mask=there)
    if EPILOGUE != "none":
        tl.store(partial + co * programs + slot, tl.sum(tl.where(there, out, 0.0), 0), mask=co < C_OUT)
        second = tl.sum(tl.where(there, second, 0.0), 0)
        tl.store(partial + (C_OUT + co) * programs + slot, second, mask=co < C_OUT)


@triton.jit
def convolve(
    x, weight, bias, y, scale, shift, below, below_scale, below_shift, below_mean, below_rstd, partial,
    batch, x_height, x_width, y_height, y_width, stride_in, stride_out, stride_tap, programs,
    C_IN: tl.constexpr, C_OUT: tl.constexpr, PAD_IN: tl.constexpr, PAD_OUT: tl.constexpr,
    STRIDE: tl.constexpr, BACKWARD: tl.constexpr, NORMED: tl.constexpr, BIASED: tl.constexpr,
    EPILOGUE: tl.constexpr, ROWS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """y = the gather of x with `weight`. NORMED: x is read through relu(scale·x + shift). EPILOGUE "sums": Σ y and Σ y²
    of each channel, for batch norm; "masked": y is a gradient, stopped where relu(bn(below)) is zero, and the sums
    are those of batch norm's gradient, Σ y and Σ y·(below - mean)·rstd."""
    begin(PDL)
    program = tl.program_id(0)
    m = program * ROWS + tl.arange(0, ROWS)
    parity_y, parity_x = 0, 0
    if BACKWARD and STRIDE == 2:  # pixels of the same parity need the same taps
        parity_y, parity_x = tl.program_id(1) // 2, tl.program_id(1) % 2
        high, wide = (y_height + 1) // 2, (y_width + 1) // 2
        b, rest = m // (high * wide), m % (high * wide)
        oy, ox = 2 * (rest // wide) + parity_y, 2 * (rest % wide) + parity_x
        slot = tl.program_id(1) * tl.num_programs(0) + program
    else:
        b, rest = m // (y_height * y_width), m % (y_height * y_width)
        oy, ox = rest // y_width, rest % y_width
        slot = program
    here = (b < batch) & (oy < y_height) & (ox < y_width)
    ci, co = tl.arange(0, PAD_IN), tl.arange(0, PAD_OUT)
    out = tl.zeros((ROWS, PAD_OUT), dtype=tl.float32)
    if C_IN == 1:  # all taps at once, as if they were channels
        tap = tl.arange(0, PAD_IN)
        if BACKWARD:
            ty, tx = oy[:, None] + 1 - tap[None, :] // 3, ox[:, None] + 1 - tap[None, :] % 3
        else:
            ty, tx = oy[:, None] * STRIDE - 1 + tap[None, :] // 3, ox[:, None] * STRIDE - 1 + tap[None, :] % 3
        there = here[:, None] & (tap < 9)[None, :] & (ty >= 0) & (tx >= 0)
        if BACKWARD and STRIDE == 2:
            there &= (ty % 2 == 0) & (tx % 2 == 0)
            ty, tx = ty // 2, tx // 2
        there &= (ty < x_height) & (tx < x_width)
        value = tl.load(x + (b[:, None] * x_height + ty) * x_width + tx, mask=there, other=0.0)
        if NORMED:
            value = tl.where(there, tl.maximum(value.to(tl.float32) * tl.load(scale) + tl.load(shift), 0.0), 0.0)
            value = value.to(x.dtype.element_ty)
        tile = weight + tap[:, None] * stride_tap + co[None, :] * stride_out
        w = tl.load(tile, mask=(tap < 9)[:, None] & (co < C_OUT)[None, :], other=0.0).to(x.dtype.element_ty)
        out = tl.dot(value, w, out, input_precision="ieee")
    else:
        if NORMED:
            factor = tl.load(scale + ci, mask=ci < C_IN, other=0.0)[None, :]
            offset = tl.load(shift + ci, mask=ci < C_IN, other=0.0)[None, :]
        for tap in tl.static_range(9):  # unrolled, so that loads run ahead
            ky, kx = tap // 3, tap % 3
            wanted = True
            if BACKWARD:
                ty, tx = oy + 1 - ky, ox + 1 - kx
                if STRIDE == 2:
                    wanted = ((parity_y + 1 + ky) % 2 == 0) & ((parity_x + 1 + kx) % 2 == 0)
                    ty, tx = ty // 2, tx // 2
            else:
                ty, tx = oy * STRIDE - 1 + ky, ox * STRIDE - 1 + kx
            if wanted:
                inside = here & (ty >= 0) & (ty < x_height) & (tx >= 0) & (tx < x_width)
                pixel = (b * x_height + ty) * x_width + tx
                at = pixel[:, None] * C_IN + ci[None, :]
                there = inside[:, None] & (ci < C_IN)[None, :]
                value = tl.load(x + at, mask=there, other=0.0)
                if NORMED:
                    value = tl.where(there, tl.maximum(value.to(tl.float32) * factor + offset, 0.0), 0.0)
                    value = value.to(x.dtype.element_ty)
                tile = weight + ci[:, None] * stride_in + co[None, :] * stride_out + tap * stride_tap
                w = tl.load(tile, mask=(ci < C_IN)[:, None] & (co < C_OUT)[None, :], other=0.0)
                w = w.to(x.dtype.element_ty)
                out = tl.dot(value, w, out, input_precision="ieee")
    finish(
        out, bias, y, below, below_scale, below_shift, below_mean, below_rstd, partial, b, oy, ox, here, slot,
        y_height, y_width, programs, C_OUT, PAD_OUT, BIASED, EPILOGUE,
    )  # fmt: skip


@triton.jit
def neighbour(
    x, b, ty, tx, here, scale, shift, x_height, x_width,
    C_IN: tl.constexpr, PAD_IN: tl.constexpr, NORMED: tl.constexpr,
):  # fmt: skip
    """The inputs at (ty, tx), through relu(scale·x + shift) if NORMED; zero outside of the image."""
    ci = tl.arange(0, PAD_IN)
    inside = here & (ty >= 0) & (ty < x_height) & (tx >= 0) & (tx < x_width)
    there = inside[:, None] & (ci < C_IN)[None, :]
    value = tl.load(x + ((b * x_height + ty) * x_width + tx)[:, None] * C_IN + ci[None, :], mask=there, other=0.0)
    if NORMED:
        factor = tl.load(scale + ci, mask=ci < C_IN, other=0.0)[None, :]
        offset = tl.load(shift + ci, mask=ci < C_IN, other=0.0)[None, :]
        value = tl.where(there, tl.maximum(value.to(tl.float32) * factor + offset, 0.0), 0.0).to(value.dtype)
    return value


@triton.jit
def tap_of(
    weight, ky: tl.constexpr, kx: tl.constexpr, stride_in, stride_out, stride_tap, dtype: tl.constexpr,
    C_IN: tl.constexpr, C_OUT: tl.constexpr, PAD_IN: tl.constexpr, PAD_OUT: tl.constexpr,
):  # fmt: skip
    ci, co = tl.arange(0, PAD_IN), tl.arange(0, PAD_OUT)
    tile = weight + ci[:, None] * stride_in + co[None, :] * stride_out + (3 * ky + kx) * stride_tap
    return tl.load(tile, mask=(ci < C_IN)[:, None] & (co < C_OUT)[None, :], other=0.0).to(dtype)


@triton.jit
def convolve_spread(
    x, weight, bias, y, scale, shift, below, below_scale, below_shift, below_mean, below_rstd, partial,
    batch, x_height, x_width, y_height, y_width, stride_in, stride_out, stride_tap, programs,
    C_IN: tl.constexpr, C_OUT: tl.constexpr, PAD_IN: tl.constexpr, PAD_OUT: tl.constexpr,
    NORMED: tl.constexpr, BIASED: tl.constexpr, EPILOGUE: tl.constexpr, ROWS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The "backward" gather of stride 2: the outputs (2i, 2j) to (2i + 1, 2j + 1) need the inputs (i, j) to
    (i + 1, j + 1), which are read once."""
    begin(PDL)
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    high, wide = (y_height + 1) // 2, (y_width + 1) // 2
    b, i, j = m // (high * wide), m % (high * wide) // wide, m % wide
    here = b < batch
    dtype: tl.constexpr = x.dtype.element_ty
    near = neighbour(x, b, i, j, here, scale, shift, x_height, x_width, C_IN, PAD_IN, NORMED)
    right = neighbour(x, b, i, j + 1, here, scale, shift, x_height, x_width, C_IN, PAD_IN, NORMED)
    low = neighbour(x, b, i + 1, j, here, scale, shift, x_height, x_width, C_IN, PAD_IN, NORMED)
    across = neighbour(x, b, i + 1, j + 1, here, scale, shift, x_height, x_width, C_IN, PAD_IN, NORMED)
    for parity in tl.static_range(4):
        down, aside = parity // 2, parity % 2
        w = tap_of(weight, 1 + down, 1 + aside, stride_in, stride_out, stride_tap, dtype, C_IN, C_OUT, PAD_IN, PAD_OUT)
        out = tl.dot(near, w, input_precision="ieee")
        if aside == 1:
            w = tap_of(weight, 1 + down, 0, stride_in, stride_out, stride_tap, dtype, C_IN, C_OUT, PAD_IN, PAD_OUT)
            out = tl.dot(right, w, out, input_precision="ieee")
        if down == 1:
            w = tap_of(weight, 0, 1 + aside, stride_in, stride_out, stride_tap, dtype, C_IN, C_OUT, PAD_IN, PAD_OUT)
            out = tl.dot(low, w, out, input_precision="ieee")
        if parity == 3:
            w = tap_of(weight, 0, 0, stride_in, stride_out, stride_tap, dtype, C_IN, C_OUT, PAD_IN, PAD_OUT)
            out = tl.dot(across, w, out, input_precision="ieee")
        oy, ox = 2 * i + down, 2 * j + aside
        finish(
            out, bias, y, below, below_scale, below_shift, below_mean, below_rstd, partial,
            b, oy, ox, here & (oy < y_height) & (ox < y_width), parity * tl.num_programs(0) + tl.program_id(0),
            y_height, y_width, programs, C_OUT, PAD_OUT, BIASED, EPILOGUE,
        )  # fmt: skip


@triton.jit
def convolve_to_one(
    x, weight, bias, y, scale, shift, batch, height, width, stride_in, stride_tap,
    C_IN: tl.constexpr, PAD_IN: tl.constexpr, BACKWARD: tl.constexpr, NORMED: tl.constexpr, BIASED: tl.constexpr,
    ROWS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """A gather of stride 1 with one channel of output, by plain multiply-adds: tensor cores would work on 16. Two
    pixels, one below the other, share what they read."""
    begin(PDL)
    m, ci = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, PAD_IN)
    high = (height + 1) // 2
    b, oy, ox = m // (high * width), m % (high * width) // width * 2, m % width
    first = tl.zeros((ROWS, PAD_IN), dtype=tl.float32)
    second = tl.zeros((ROWS, PAD_IN), dtype=tl.float32)
    for r in tl.static_range(4):
        for c in tl.static_range(3):
            value = neighbour(
                x, b, oy - 1 + r, ox - 1 + c, b < batch, scale, shift, height, width, C_IN, PAD_IN, NORMED
            ).to(tl.float32)
            if r < 3:
                tap = 8 - 3 * r - c if BACKWARD else 3 * r + c
                w = tl.load(weight + ci * stride_in + tap * stride_tap, mask=ci < C_IN, other=0.0)
                first += value * w[None, :]
            if r > 0:
                tap = 11 - 3 * r - c if BACKWARD else 3 * r - 3 + c
                w = tl.load(weight + ci * stride_in + tap * stride_tap, mask=ci < C_IN, other=0.0)
                second += value * w[None, :]
    add = tl.load(bias) if BIASED else 0.0
    at = y + (b * height + oy) * width + ox
    tl.store(at, (tl.sum(first, 1) + add).to(y.dtype.element_ty), mask=b < batch)
    tl.store(at + width, (tl.sum(second, 1) + add).to(y.dtype.element_ty), mask=(b < batch) & (oy + 1 < height))


@triton.jit
def masked_sums(
    g, y, out, scale, shift, mean, rstd, partial, pixels, plane, programs,
    C: tl.constexpr, PAD: tl.constexpr, ROWS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Only the "masked" epilogue, for a gradient computed by other kernels, stored (b, c, h, w). `plane`: h·w."""
    begin(PDL)
    m, c = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, PAD)
    theirs = (m // plane * C * plane + m % plane)[:, None] + c[None, :] * plane
    at, there = m[:, None] * C + c[None, :], (m < pixels)[:, None] & (c < C)[None, :]
    value = tl.load(y + at, mask=there, other=0.0).to(tl.float32)
    alive = value * tl.load(scale + c, mask=c < C, other=0.0)[None, :]
    alive += tl.load(shift + c, mask=c < C, other=0.0)[None, :]
    gradient = tl.where(alive > 0, tl.load(g + theirs, mask=there, other=0.0).to(tl.float32), 0.0)
    value = (value - tl.load(mean + c, mask=c < C, other=0.0)[None, :]) * tl.load(rstd + c, mask=c < C, other=0.0)[
        None, :
    ]
    tl.store(out + at, gradient.to(out.dtype.element_ty), mask=there)
    tl.store(partial + c * programs + tl.program_id(0), tl.sum(gradient, 0), mask=c < C)
    tl.store(partial + (C + c) * programs + tl.program_id(0), tl.sum(gradient * value, 0), mask=c < C)


@triton.jit
def total(row, length, BLOCK: tl.constexpr):
    """The sum of `length` numbers, always in the same order."""
    i, start = tl.arange(0, BLOCK), 0
    sums = tl.zeros((BLOCK,), tl.float32)
    while start < length:
        sums += tl.load(row + start + i, mask=start + i < length, other=0.0)
        start += BLOCK
    return tl.sum(sums, 0)


@triton.jit
def totals(first, second, length, BLOCK: tl.constexpr):
    """`total` of two rows at once."""
    i, start = tl.arange(0, BLOCK), 0
    a, b = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    while start < length:
        a += tl.load(first + start + i, mask=start + i < length, other=0.0)
        b += tl.load(second + start + i, mask=start + i < length, other=0.0)
        start += BLOCK
    return tl.sum(a, 0), tl.sum(b, 0)


@triton.jit
def fold_statistics(
    partial, gamma, beta, running_mean, running_var, batches, scale, shift, mean, rstd, pixels, momentum, eps, programs,
    C: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Batch norm's statistics from the partial sums, one program a channel: relu(bn(y)) = relu(scale·y + shift)."""
    begin(PDL)
    c = tl.program_id(0)
    g, shifted = tl.load(gamma + c), tl.load(beta + c)  # loaded before the sums, to hide the latency
    old_mean, old_var, count = tl.load(running_mean + c), tl.load(running_var + c), tl.load(batches)
    first, second = totals(partial + c * programs, partial + (C + c) * programs, programs, BLOCK)
    average = first / pixels
    variance = tl.maximum(second / pixels - average * average, 0.0)
    inverse = 1.0 / tl.sqrt(variance + eps)
    factor = g * inverse
    tl.store(mean + c, average)
    tl.store(rstd + c, inverse)
    tl.store(scale + c, factor)
    tl.store(shift + c, shifted - average * factor)
    tl.store(running_mean + c, (1 - momentum) * old_mean + momentum * average)
    unbiased = variance * pixels / tl.maximum(pixels - 1, 1)
    tl.store(running_var + c, (1 - momentum) * old_var + momentum * unbiased)
    if c == 0:
        tl.store(batches, count + 1)


@triton.jit
def fold_gradient(
    partial, gamma, mean, rstd, by_gradient, by_value, constant, gamma_gradient, beta_gradient, pixels, programs,
    C: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Batch norm's gradient from the partial sums: dL/dy = by_gradient·g + by_value·y + constant."""
    begin(PDL)
    c = tl.program_id(0)
    inverse, average = tl.load(rstd + c), tl.load(mean + c)
    factor = tl.load(gamma + c) * inverse
    first, second = totals(partial + c * programs, partial + (C + c) * programs, programs, BLOCK)
    slope = -factor * inverse * second / pixels
    tl.store(by_gradient + c, factor)
    tl.store(by_value + c, slope)
    tl.store(constant + c, -factor * first / pixels - slope * average)
    tl.store(gamma_gradient + c, second)
    tl.store(beta_gradient + c, first)


@triton.jit
def affine(
    g, y, by_gradient, by_value, constant, count, C: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr
):  # fmt: skip
    """g becomes by_gradient·g + by_value·y + constant, per channel."""
    begin(PDL)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = i % C
    value = tl.load(y + i, mask=i < count, other=0.0).to(tl.float32) * tl.load(by_value + c) + tl.load(constant + c)
    value += tl.load(g + i, mask=i < count, other=0.0).to(tl.float32) * tl.load(by_gradient + c)
    tl.store(g + i, value.to(g.dtype.element_ty), mask=i < count)


@triton.jit
def activate(
    y, out, scale, shift, count, plane, C: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr
):  # fmt: skip
    """out = relu(scale·y + shift), stored (b, c, h, w), as layers that are not ours expect. `plane`: h·w."""
    begin(PDL)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c, pixel = i // plane % C, i // (C * plane) * plane + i % plane
    value = tl.load(y + pixel * C + c, mask=i < count, other=0.0).to(tl.float32)
    value = value * tl.load(scale + c) + tl.load(shift + c)
    tl.store(out + i, tl.maximum(value, 0.0).to(out.dtype.element_ty), mask=i < count)


@triton.jit
def weight_gradient(
    fixed, moved, scale, shift, partial, batch, height, width, moved_height, moved_width, blocks,
    C_FIXED: tl.constexpr, C_MOVED: tl.constexpr, PAD_FIXED: tl.constexpr, PAD_MOVED: tl.constexpr,
    STRIDE: tl.constexpr, NORMED: tl.constexpr, ROWS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """partial[chunk, tap, i, j] = Σ over the chunk's pixels p of fixed[p, i] · moved[s·p - 1 + tap, j]. NORMED: "fixed"
    or "moved" is read through relu(scale·x + shift), whichever is the layer's input."""
    begin(PDL)
    chunk, ky = tl.program_id(0), tl.program_id(1)
    cf, cm = tl.arange(0, PAD_FIXED), tl.arange(0, PAD_MOVED)
    if NORMED == "fixed":
        factor = tl.load(scale + cf, mask=cf < C_FIXED, other=0.0)[None, :]
        offset = tl.load(shift + cf, mask=cf < C_FIXED, other=0.0)[None, :]
    if NORMED == "moved":
        of_moved = cm if C_MOVED > 1 else cm * 0
        factor = tl.load(scale + of_moved, mask=of_moved < C_MOVED, other=0.0)[None, :]
        offset = tl.load(shift + of_moved, mask=of_moved < C_MOVED, other=0.0)[None, :]
    left = tl.zeros((PAD_FIXED, PAD_MOVED), dtype=tl.float32)
    middle = tl.zeros((PAD_FIXED, PAD_MOVED), dtype=tl.float32)
    right = tl.zeros((PAD_FIXED, PAD_MOVED), dtype=tl.float32)
    block = chunk * blocks
    while block < (chunk + 1) * blocks:
        m = block * ROWS + tl.arange(0, ROWS)
        b, rest = m // (height * width), m % (height * width)
        py, px = rest // width, rest % width
        there = (b < batch)[:, None] & (cf < C_FIXED)[None, :]
        f = tl.load(fixed + m[:, None] * C_FIXED + cf[None, :], mask=there, other=0.0)
        if NORMED == "fixed":
            f = tl.where(there, tl.maximum(f.to(tl.float32) * factor + offset, 0.0), 0.0).to(fixed.dtype.element_ty)
        f = tl.trans(f)
        if C_MOVED == 1:  # all taps at once, as if they were channels
            ty, tx = (py * STRIDE - 1)[:, None] + cm[None, :] // 3, (px * STRIDE - 1)[:, None] + cm[None, :] % 3
            seen = (b < batch)[:, None] & (cm < 9)[None, :]
            seen &= (ty >= 0) & (ty < moved_height) & (tx >= 0) & (tx < moved_width)
            v = tl.load(moved + (b[:, None] * moved_height + ty) * moved_width + tx, mask=seen, other=0.0)
            if NORMED == "moved":
                v = tl.where(seen, tl.maximum(v.to(tl.float32) * factor + offset, 0.0), 0.0).to(moved.dtype.element_ty)
            left = tl.dot(f, v, left, input_precision="ieee")
        else:
            ty = py * STRIDE - 1 + ky
            for kx in tl.static_range(3):
                tx = px * STRIDE - 1 + kx
                inside = (b < batch) & (ty >= 0) & (ty < moved_height) & (tx >= 0) & (tx < moved_width)
                seen = inside[:, None] & (cm < C_MOVED)[None, :]
                at = ((b * moved_height + ty) * moved_width + tx)[:, None] * C_MOVED + cm[None, :]
                v = tl.load(moved + at, mask=seen, other=0.0)
                if NORMED == "moved":
                    v = tl.where(seen, tl.maximum(v.to(tl.float32) * factor + offset, 0.0), 0.0)
                    v = v.to(moved.dtype.element_ty)
                if kx == 0:
                    left = tl.dot(f, v, left, input_precision="ieee")
                elif kx == 1:
                    middle = tl.dot(f, v, middle, input_precision="ieee")
                else:
                    right = tl.dot(f, v, right, input_precision="ieee")
        block += 1
    if C_MOVED == 1:
        out = partial + (chunk * 9 + cm[None, :]) * C_FIXED + cf[:, None]
        tl.store(out, left, mask=(cf < C_FIXED)[:, None] & (cm < 9)[None, :])
    else:
        tile = cf[:, None] * C_MOVED + cm[None, :]
        there = (cf < C_FIXED)[:, None] & (cm < C_MOVED)[None, :]
        out = partial + (chunk * 9 + ky * 3) * C_FIXED * C_MOVED + tile
        tl.store(out, left, mask=there)
        tl.store(out + C_FIXED * C_MOVED, middle, mask=there)
        tl.store(out + 2 * C_FIXED * C_MOVED, right, mask=there)


@triton.jit
def fold_weights(
    partial, gradient, chunks, count, stride_fixed, stride_moved, stride_tap,
    C_FIXED: tl.constexpr, C_MOVED: tl.constexpr, BLOCK: tl.constexpr, DEEP: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Add up the chunks of `weight_gradient`, in the memory order of the weight."""
    begin(PDL)
    i, j = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, DEEP)
    sums = tl.zeros((DEEP, BLOCK), tl.float32)
    start = 0
    while start < chunks:
        there = (start + j < chunks)[:, None] & (i < count)[None, :]
        sums += tl.load(partial + (start + j)[:, None] * count + i[None, :], mask=there, other=0.0)
        start += DEEP
    tap, cf, cm = i // (C_FIXED * C_MOVED), i // C_MOVED % C_FIXED, i % C_MOVED
    at = cf * stride_fixed + cm * stride_moved + tap * stride_tap
    tl.store(gradient + at, tl.sum(sums, 0), mask=i < count)
