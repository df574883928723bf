"""Triton kernels of k-means: the nearest centre of each row, and the sum of each centre's rows.

The nearest centre has the largest score x·c_j - |c_j|²/2. The matrix of scores is never in memory: a program keeps some
rows, goes through all centres a tile at a time, and keeps the best.

Tensor cores multiply float16 numbers (halves). A float32 number v is the sum of two halves up to 22 bits, v ≈ h + l
with h = half(v) and l = half(v - h). Of the four products of two such sums the last is below the precision of float32::

    x·c ≈ h_x·h_c + h_x·l_c + l_x·h_c

The largest half is 65,504, so each row is first divided by its largest value, and all centres by theirs: values below a
millionth of the largest of any centre lose digits.
"""

import triton
import triton.language as tl


@triton.jit
def halve(centers, largest, high, low, offsets, k, d, columns, DEEP: tl.constexpr):
    """A centre as two halves, after division by the largest value of all centres and multiplication by 32,768, and half
    its square in these units; infinity for a centre that only fills a tile."""
    j, problem = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i = tl.arange(0, DEEP)
    scale = 32768.0 / tl.load(largest + problem)
    c = tl.load(centers + (problem * k + j) * d + i, mask=(i < d) & (j < k), other=0.0) * scale
    h = c.to(tl.float16)
    at = (problem * tl.num_programs(0) + j) * columns + i
    tl.store(high + at, h, mask=i < columns)
    tl.store(low + at, (c - h.to(tl.float32)).to(tl.float16), mask=i < columns)
    half = tl.where(j < k, tl.sum(c * c, 0) / (2 * scale), float("inf"))
    tl.store(offsets + problem * tl.num_programs(0) + j, half)


@triton.jit
def rows_of(x, origin, r, i, n, d, row_stride, SHIFTED: tl.constexpr):
    """Columns i of rows r minus `origin`, in float32; zero beyond the last column."""
    there = (r < n)[:, None] & (i < d)[None, :]
    v = tl.load(x + r[:, None] * row_stride + i[None, :], mask=there, other=0.0).to(tl.float32)
    if SHIFTED:
        v = tl.where(there, v - tl.load(origin + i, mask=i < d, other=0.0)[None, :], 0.0)
    return v


@triton.jit
def nearest(
    x, high, low, offsets, origin, largest, labels, distances, n, d, row_stride, problem_stride, k,
    DEEP: tl.constexpr, WHOLE: tl.constexpr, SPLIT: tl.constexpr, SHIFTED: tl.constexpr, DISTANCES: tl.constexpr,
    WIDE: tl.constexpr, ROWS: tl.constexpr, CENTERS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The index of the nearest centre of each row, and with DISTANCES the squared distance to it.

    `high`, `low` and `offsets` are the results of `halve`. SPLIT: split rows into two halves; otherwise they are halves
    already. WHOLE: all columns fit into one tile. WIDE: keep the best centre at each position of a tile, and find the
    best of these at the end."""
    problem = tl.program_id(1).to(tl.int64)
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    i, j = tl.arange(0, DEEP), tl.arange(0, CENTERS)
    x += problem * problem_stride
    columns = tl.cdiv(d, DEEP) * DEEP
    high += problem * k * columns
    low += problem * k * columns
    offsets += problem * k
    most = tl.load(largest + problem)
    squares = tl.zeros((ROWS,), tl.float32)
    peak = tl.zeros((ROWS,), tl.float32) + 1e-6 * most
    if SPLIT or DISTANCES:
        for start in range(0, d, DEEP):
            v = rows_of(x, origin, r, start + i, n, d, row_stride, SHIFTED)
            peak = tl.maximum(peak, tl.max(tl.abs(v), 1))
            squares += tl.sum(v * v, 1)
    scale = tl.zeros((ROWS,), tl.float32) + 1.0
    if SPLIT:
        scale = 32768.0 / peak
    if WHOLE:
        if SPLIT:
            v = rows_of(x, origin, r, i, n, d, row_stride, SHIFTED) * scale[:, None]
            x_high = v.to(tl.float16)
            x_low = (v - x_high.to(tl.float32)).to(tl.float16)
        else:
            there = (r < n)[:, None] & (i < d)[None, :]
            x_high = tl.load(x + r[:, None] * row_stride + i[None, :], mask=there, other=0.0)
    if WIDE:
        best = tl.zeros((ROWS, CENTERS), tl.float32) - float("inf")
        place = tl.zeros((ROWS, CENTERS), tl.int32)
    else:
        best = tl.zeros((ROWS,), tl.float32) - float("inf")
        place = tl.zeros((ROWS,), tl.int32)
    for first in tl.range(0, k, CENTERS, num_stages=STAGES):
        score = tl.zeros((ROWS, CENTERS), tl.float32)
        if WHOLE:
            at = (first + j)[None, :] * DEEP + i[:, None]
            c = tl.load(high + at)
            score = tl.dot(x_high, c, score)
            if SPLIT:
                score = tl.dot(x_low, c, score)
            score = tl.dot(x_high, tl.load(low + at), score)
        else:
            for start in range(0, d, DEEP):
                at = (first + j)[None, :] * columns + start + i[:, None]
                c = tl.load(high + at)
                if SPLIT:
                    v = rows_of(x, origin, r, start + i, n, d, row_stride, SHIFTED) * scale[:, None]
                    x_high = v.to(tl.float16)
                    score = tl.dot((v - x_high.to(tl.float32)).to(tl.float16), c, score)
                else:
                    there = (r < n)[:, None] & (start + i < d)[None, :]
                    x_high = tl.load(x + r[:, None] * row_stride + start + i[None, :], mask=there, other=0.0)
                score = tl.dot(x_high, c, score)
                score = tl.dot(x_high, tl.load(low + at), score)
        score -= tl.load(offsets + first + j)[None, :] * scale[:, None]
        if WIDE:
            better = score > best
            best = tl.where(better, score, best)
            place = tl.where(better, first, place)
        else:
            top = tl.max(score, 1)
            spot = tl.min(tl.where(score == top[:, None], first + j[None, :], k - 1), 1)
            place = tl.where(top > best, spot, place)
            best = tl.maximum(top, best)
    if WIDE:
        top = tl.max(best, 1)
        place = tl.min(tl.where(best == top[:, None], place + j[None, :], k - 1), 1)
        best = top
    tl.store(labels + problem * n + r, place, mask=r < n)
    if DISTANCES:
        tl.store(distances + problem * n + r, tl.maximum(squares - best * most / (16384.0 * scale), 0.0), mask=r < n)


@triton.jit
def sum_parts(
    x, order, owner, ends, parts, firsts, counts, origin, partial, n, d, row_stride, clusters,
    SHIFTED: tl.constexpr, SHARED: tl.constexpr, PART: tl.constexpr, ROWS: tl.constexpr, DEEP: tl.constexpr,
):  # fmt: skip
    """The sum of up to PART rows of one cluster, minus `origin`: program p computes part p of all parts, and `order`
    has the rows sorted by cluster."""
    p = tl.program_id(0)
    cluster = tl.load(owner + p)
    if cluster < clusters:
        first = tl.load(firsts + cluster)
        start = first + (p - tl.load(ends + cluster) + tl.load(parts + cluster)) * PART
        stop = tl.minimum(start + PART, first + tl.load(counts + cluster))
        i = tl.program_id(1) * DEEP + tl.arange(0, DEEP)
        sums = tl.zeros((ROWS, DEEP), tl.float32)
        for at in range(start, stop, ROWS):
            place = at + tl.arange(0, ROWS)
            r = tl.load(order + place, mask=place < stop, other=0)
            if SHARED:
                r = r % n
            v = rows_of(x, origin, r, i, r + 1, d, row_stride, SHIFTED)
            sums += tl.where((place < stop)[:, None], v, 0.0)
        tl.store(partial + p.to(tl.int64) * d + i, tl.sum(sums, 0), mask=i < d)


@triton.jit
def fold_parts(partial, ends, parts, sums, d, ROWS: tl.constexpr, DEEP: tl.constexpr):
    """The sum of each cluster's parts, always in the same order."""
    cluster = tl.program_id(0).to(tl.int64)
    stop = tl.load(ends + cluster)
    i = tl.program_id(1) * DEEP + tl.arange(0, DEEP)
    total = tl.zeros((ROWS, DEEP), tl.float32)
    for at in range(stop - tl.load(parts + cluster), stop, ROWS):
        p = at + tl.arange(0, ROWS)
        there = (p < stop)[:, None] & (i < d)[None, :]
        total += tl.load(partial + p[:, None].to(tl.int64) * d + i[None, :], mask=there, other=0.0)
    tl.store(sums + cluster * d + i, tl.sum(total, 0), mask=i < d)
