"""Integrated gradients (Sundararajan, Taly, Yan, 2017): from what a network says back to its input.

    a_i = (x_i - x⁰_i) ∫₀¹ ∂F/∂x_i (x⁰ + t (x - x⁰)) dt,      Σ_i a_i = F(x) - F(x⁰)

The integral is a Gauss-Legendre sum over equal panels. What is missing in the last equation is the completeness
error; rows where it is large are done again with more panels, as long as that helps. It does not where F jumps.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

PANEL = 32  # points of a panel
PANELS = (1, 2, 4, 8, 16, 32, 64, 128)  # tried in turn
TOLERANCE = 0.005  # completeness error with which a row is done
STALLED = 0.8  # of the error before: what is left of it where twice the panels were no help
PATIENCE = 3  # how often that may be, one time after the other
CHUNK = 2048  # samples the network sees at a time

Target = Callable[[Tensor, Tensor], Tensor]  # samples (b, ...) and their row numbers (b,) -> F (b,)


class Attribution(NamedTuple):
    values: Tensor  # a, shaped like the samples
    start: Tensor  # F(x⁰), (n,)
    end: Tensor  # F(x), (n,)
    error: Tensor  # |Σ a - (F(x) - F(x⁰))| / |F(x) - F(x⁰)|, (n,)


def integrated_gradients(target: Target, x: Tensor, baseline: Tensor, tolerance: float = TOLERANCE) -> Attribution:
    """Attributions of `target` at each row of x against its row of `baseline`."""
    rows = torch.arange(len(x), device=x.device)
    with torch.no_grad():
        start, end = target(baseline, rows).double(), target(x, rows).double()
    values = torch.zeros_like(x, dtype=torch.float64)
    error = torch.full((len(x),), float("inf"), dtype=torch.float64, device=x.device)
    stalls = torch.zeros_like(rows)
    for panels in PANELS:
        todo = rows[(error > tolerance) & (stalls < PATIENCE)]
        if len(todo) == 0:
            break
        for part in todo.split(max(1, CHUNK // (PANEL * panels))):
            values[part] = _integrate(target, x[part], baseline[part], part, panels)
        gap = values[todo].flatten(1).sum(1) - (end - start)[todo]
        new = gap.abs() / (end - start)[todo].abs().clamp_min(1e-12)
        stalls[todo] = torch.where(new > STALLED * error[todo], stalls[todo] + 1, 0)
        error[todo] = new
    return Attribution(values, start, end, error)


def _integrate(target: Target, x: Tensor, baseline: Tensor, rows: Tensor, panels: int) -> Tensor:
    nodes, weights = np.polynomial.legendre.leggauss(PANEL)
    t = torch.as_tensor((np.arange(panels)[:, None] + (nodes + 1) / 2).ravel() / panels, dtype=x.dtype, device=x.device)
    w = torch.as_tensor(np.tile(weights / 2 / panels, panels), dtype=torch.float64, device=x.device)
    way = x - baseline
    ones = (1,) * way[0].ndim
    path = baseline[:, None] + t.reshape(1, -1, *ones) * way[:, None]  # (b, points, ...)
    total = torch.zeros_like(way, dtype=torch.float64)
    for piece, share in zip(path.split(CHUNK, dim=1), w.split(CHUNK), strict=True):
        samples = piece.flatten(0, 1).detach().requires_grad_()
        repeated = rows.repeat_interleave(piece.shape[1])
        (slope,) = torch.autograd.grad(target(samples, repeated).sum(), samples)
        slope = slope.reshape(piece.shape).double()
        total += (slope * share.reshape(1, -1, *ones)).sum(1)
    return total * way
