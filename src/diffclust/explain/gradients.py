"""Integrated gradients (Sundararajan, Taly, Yan, 2017): from what a network says back to its input::

    a_i = (x_i - x⁰_i) ∫₀¹ ∂F/∂x_i (x⁰ + t (x - x⁰)) dt,      Σ_i a_i = F(x) - F(x⁰)

The integral is a Gauss-Legendre sum over panels. In each of them the slopes must add up to what F gains from one end to
the other. Where they do not, as F bends or jumps there, the panel is halved, as long as the whole equation is off by
more than a tolerance and halving pays: where many panels miss no less than a quarter as many did, F is all rounding,
and none of them is halved again. A row has at most MAX_POINTS points, of which at most half of those left are spent at
a time, on the panels that miss most. What is missing in the equation at last is the completeness error.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

PANEL_POINTS = 16  # points of a panel
HALVINGS = 8  # of the whole way, at most
ENOUGH_PANELS = 32  # of a row, to say whether halving pays: with a kink or two it depends on where they lie
MAX_POINTS = 4096  # of a row
TOLERANCE = 0.005  # completeness error with which a row is done
CHUNK = 2048  # samples the network sees at a time

Target = Callable[[Tensor, Tensor], Tensor]  # samples (b, ...) and their row numbers (b,) -> F (b,)


class Attribution(NamedTuple):
    values: Tensor  # a, shaped like the samples
    start: Tensor  # F(x⁰), (n,)
    end: Tensor  # F(x), (n,)
    error: Tensor  # |Σ a - (F(x) - F(x⁰))| / |F(x) - F(x⁰)|, (n,)
    stopped: Tensor  # the points ran short before the row was within the tolerance, (n,)


def integrated_gradients(target: Target, x: Tensor, baseline: Tensor, tolerance: float = TOLERANCE) -> Attribution:
    """Attributions of `target` at each row of x against its row of `baseline`."""
    row = torch.arange(len(x), device=x.device)
    with torch.no_grad():
        start, end = target(baseline, row).double(), target(x, row).double()
    allowed = tolerance * (end - start).abs().clamp_min(1e-12)
    values = torch.zeros_like(x, dtype=torch.float64)
    settled = torch.zeros_like(start)  # what is missing in the panels that are done with
    stopped = torch.zeros_like(row, dtype=torch.bool)
    panels_left = torch.full_like(row, MAX_POINTS // PANEL_POINTS - 1)  # that a row may still have
    off: list[Tensor] = []  # what is missing in all panels of a row, without signs, after each halving
    edges = torch.stack([torch.zeros_like(start), torch.ones_like(start), start, end])  # of panels: 0 <= t <= 1, and F
    for halvings in range(HALVINGS + 1):
        found = _integrate(target, x, baseline, row, edges[0], edges[1])
        missing = found.flatten(1).sum(1) - (edges[3] - edges[2])
        whole = settled.index_add(0, row, missing)
        fine = (whole.abs() <= allowed)[row] | (missing.abs() <= allowed[row] * (edges[1] - edges[0]))
        off.append(torch.zeros_like(start).index_add(0, row, missing.abs()))
        vain = (off[-1] >= off[-3:][0]) & (torch.bincount(row, minlength=len(x)) >= ENOUGH_PANELS)
        fine |= vain[row] | (halvings == HALVINGS)
        beyond = ~fine & (_rank(row, torch.where(fine, 0.0, missing.abs())) >= panels_left[row] // 4)  # half makes two
        stopped[row[beyond]] = True
        fine |= beyond
        values.index_add_(0, row[fine], found[fine])
        settled.index_add_(0, row[fine], missing[fine])
        row, edges = row[~fine], edges[:, ~fine]
        panels_left -= 2 * torch.bincount(row, minlength=len(x))
        if len(row) == 0:
            break
        left, right, low, high = edges
        middle = (left + right) / 2
        between = _values(target, x, baseline, row, middle)
        edges = torch.cat(
            [torch.stack([left, middle, low, between]), torch.stack([middle, right, between, high])], dim=1
        )
        row = row.repeat(2)
    stopped &= settled.abs() > allowed
    return Attribution(values, start, end, settled.abs() / (end - start).abs().clamp_min(1e-12), stopped)


def _rank(row: Tensor, missing: Tensor) -> Tensor:
    """How many panels of the same row miss more, for each panel: (b,)."""
    order = missing.argsort(descending=True, stable=True)
    order = order[row[order].argsort(stable=True)]  # row by row, the worst panel first
    counts = torch.bincount(row)
    first = counts.cumsum(0) - counts
    rank = torch.empty_like(row)
    rank[order] = torch.arange(len(row), device=row.device) - first[row[order]]
    return rank


def _along(x: Tensor, baseline: Tensor, t: Tensor) -> Tensor:
    """Samples on the ways of (b, ...) rows, at t (b, points): (b * points, ...)."""
    t = t.to(x.dtype).reshape(*t.shape, *(1,) * (x.ndim - 1))
    return (baseline[:, None] + t * (x - baseline)[:, None]).flatten(0, 1)


@torch.no_grad()
def _values(target: Target, x: Tensor, baseline: Tensor, row: Tensor, t: Tensor) -> Tensor:
    """F of rows at one place each: (b,)."""
    parts = zip(row.split(CHUNK), t.split(CHUNK), strict=True)
    return torch.cat([target(_along(x[i], baseline[i], at[:, None]), i).double() for i, at in parts])


def _integrate(target: Target, x: Tensor, baseline: Tensor, row: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Of each panel, of which row it is and where it begins and ends: its part of the row's attributions, (b, ...)."""
    nodes, weights = (torch.as_tensor(each, device=x.device) for each in np.polynomial.legendre.leggauss(PANEL_POINTS))
    results = []
    for i, a, b in zip(*(each.split(max(1, CHUNK // PANEL_POINTS)) for each in (row, left, right)), strict=True):
        t = a[:, None] + (b - a)[:, None] * (nodes + 1) / 2
        samples = _along(x[i], baseline[i], t).detach().requires_grad_()
        (slope,) = torch.autograd.grad(target(samples, i.repeat_interleave(PANEL_POINTS)).sum(), samples)
        slope = slope.reshape(len(i), PANEL_POINTS, *x.shape[1:]).double()
        share = (b - a)[:, None] * weights / 2
        total = (slope * share.reshape(*share.shape, *(1,) * (x.ndim - 1))).sum(1)
        results.append(total * (x[i] - baseline[i]))
    return torch.cat(results)
