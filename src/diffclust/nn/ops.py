"""Pure tensor functions: distances and assignments."""

from collections.abc import Callable

import torch
from torch import Tensor

Assignment = Callable[[Tensor], Tensor]  # logits (b, k) -> assignments (b, k), rows sum to 1


def squared_distances(x: Tensor, centers: Tensor) -> Tensor:
    """|x_i - Ω_j|² = |x_i|² - (2 Ω_j·x_i - |Ω_j|²), never below zero: (b, d), (k, d) -> (b, k)."""
    logits = torch.addmm(-centers.square().sum(1), x, 2 * centers.T)
    return (x.square().sum(1, keepdim=True) - logits).clamp_min(0)


def hard(logits: Tensor) -> Tensor:
    """All of a row's weight on its largest logit. Piecewise constant: it carries no gradient."""
    return torch.zeros_like(logits).scatter_(1, logits.argmax(1, keepdim=True), 1.0)


def softmax(logits: Tensor, temperature: float = 1.0) -> Tensor:
    return torch.softmax(logits / temperature, dim=1)


def log_student_t(distances: Tensor) -> Tensor:
    """log q of squared distances (b, k): q_ij = (1 + d_ij)^-1 / Σ_j (1 + d_ij)^-1, heavy-tailed (DEC, eq. 1)."""
    return torch.log_softmax(-torch.log1p(distances.clamp_min(0)), dim=1)


def sharpen(q: Tensor, frequency: Tensor) -> Tensor:
    """DEC's target (eq. 3): p_ij = (q_ij² / f_j) / Σ_j (q_ij² / f_j), f_j = Σ_i q_ij over all rows, on any scale."""
    weight = q.square() / frequency.clamp_min(torch.finfo(q.dtype).tiny)
    return weight / weight.sum(1, keepdim=True)


def sparsemax(logits: Tensor) -> Tensor:
    """Euclidean projection of each row onto the simplex (Martins & Astudillo 2016): soft, with exact zeros."""
    logits = logits - logits.amax(1, keepdim=True)  # the answer is the same, and no 1 is lost beside a 1e8
    ordered = logits.sort(dim=1, descending=True).values
    rank = torch.arange(1, logits.shape[1] + 1, device=logits.device, dtype=logits.dtype)
    excess = ordered.cumsum(1) - 1
    support = (rank * ordered > excess).sum(1, keepdim=True)  # how many entries stay above the threshold
    threshold = excess.gather(1, support - 1) / support
    return (logits - threshold).clamp_min(0)


ASSIGNMENTS: dict[str, Assignment] = {"hard": hard, "softmax": softmax, "sparsemax": sparsemax}
