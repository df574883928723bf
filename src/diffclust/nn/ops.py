"""Pure tensor functions: distances, assignments, and divergences between assignments."""

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Assignment = Callable[[Tensor], Tensor]  # logits (b, k) -> assignments (b, k), rows sum to 1
Distance = Callable[[Tensor, Tensor], Tensor]  # rows (b, d), centres (k, d) -> (b, k)
Divergence = Callable[[Tensor, Tensor], Tensor]  # two assignments (b, k) -> (b,)

CLIP = 1e-7  # lower bound of probabilities in logarithms, as in Keras


def without_autocast(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """A context without autocast. If autocast is off, it does nothing, because switching takes longer than the product
    of a few rows."""
    on = torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if on else contextlib.nullcontext()


def squared_distances(x: Tensor, centers: Tensor) -> Tensor:
    """`|x_i - Ω_j|² = |x_i|² - (2 Ω_j·x_i - |Ω_j|²)`, never below zero: (b, d), (k, d) -> (b, k)."""
    logits = torch.addmm(-centers.square().sum(1), x, 2 * centers.T)
    return (x.square().sum(1, keepdim=True) - logits).clamp_min(0)


def largest(logits: Tensor) -> Tensor:
    """The index of each row's largest entry, (b, k) -> (b,). On a CPU numpy finds it five times as fast."""
    logits = logits.detach()
    fast = logits.device.type == "cpu" and logits.dtype != torch.bfloat16  # numpy has no bfloat16
    if fast and not torch.compiler.is_compiling():  # and numpy cannot be compiled or exported
        return torch.from_numpy(logits.numpy().argmax(1))
    return logits.argmax(1)


def euclidean(x: Tensor, centers: Tensor) -> Tensor:
    """`|x_i - Ω_j|`, from the differences: exact for near rows, and without a gradient if it is zero."""
    return torch.cdist(x, centers, compute_mode="donot_use_mm_for_euclid_dist")


def cityblock(x: Tensor, centers: Tensor) -> Tensor:
    """`Σ_d |x_id - Ω_jd|`."""
    return torch.cdist(x, centers, p=1)


def cosine(x: Tensor, centers: Tensor) -> Tensor:
    """1 - cos(x_i, Ω_j), from 0 to 2. A zero row has distance 1 to everything."""
    return 1 - _directions(x, 0.0) @ _directions(centers, 0.0).T


def correlation(x: Tensor, centers: Tensor) -> Tensor:
    """1 - corr(x_i, Ω_j), each centred by its mean over coordinates. A constant row has correlation zero."""
    return 1 - _correlated(x) @ _correlated(centers).T


def _correlated(x: Tensor) -> Tensor:
    rounding = 4 * torch.finfo(x.dtype).eps * x.detach().abs().amax(1, keepdim=True) * x.shape[1] ** 0.5
    return _directions(x - x.mean(1, keepdim=True), rounding)


def _directions(x: Tensor, least: float | Tensor) -> Tensor:
    """Rows scaled to unit length; rows of length `least` or less become zero and have no gradient."""
    length = x.norm(dim=1, keepdim=True)
    there = length > least
    return torch.where(there, x / torch.where(there, length, 1), 0)


METRICS: dict[str, Distance] = {
    "euclidean": euclidean,
    "cosine": cosine,
    "correlation": correlation,
    "cityblock": cityblock,
}


def hard(logits: Tensor) -> Tensor:
    """One on the largest logit of a row, zero elsewhere. Piecewise constant: it has no gradient."""
    return one_hot(logits.argmax(1), logits.shape[1], logits.dtype)


def one_hot(owner: Tensor, n_clusters: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """One-hot assignment: (b,) -> (b, k)."""
    none = torch.zeros(owner.shape[0], n_clusters, dtype=dtype, device=owner.device)
    return none.scatter_(1, owner[:, None], 1.0)


def softmax(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """exp(s_ij / T) / Σ_l exp(s_il / T): (b, k) -> (b, k)."""
    return torch.softmax(logits / temperature, dim=1)


def log_student_t(distances: Tensor) -> Tensor:
    """log q of squared distances (b, k): q_ij = (1 + d_ij)^-1 / Σ_j (1 + d_ij)^-1, heavy-tailed (DEC, eq. 1)."""
    return torch.log_softmax(-torch.log1p(distances.clamp_min(0)), dim=1)


def sparse_closeness(distances: Tensor) -> Tensor:
    """q_ij = max(0, u_i - d_ij), u_i = mean_j d_ij: how much nearer a centre is than the average centre."""
    return (distances.mean(1, keepdim=True) - distances).clamp_min(0)


def log_balance(q: Tensor, frequency: Tensor, power: float | Tensor = 2.0) -> Tensor:
    """log p of p_ij = (q_ij^r / f_j) / Σ_j (q_ij^r / f_j): near clusters get more weight, frequent ones less.

    The scale of f does not matter. If q is zero, so is p, up to rounding; for a row of zeros p is proportional to 1 /
    f. Neither has a gradient.
    """
    tiny = torch.finfo(q.dtype).tiny
    f = frequency.clamp_min(tiny)
    f = torch.maximum(f, 1e-7 * f.mean())  # a cluster without rows near it gets none
    return torch.log_softmax(power * q.clamp_min(tiny).log() - f.log(), dim=1)


def slowed(x: Tensor, pace: Tensor) -> Tensor:
    """x itself, with its gradient multiplied by `pace`."""
    still = x.detach()
    return still + pace.to(x.dtype) * (x - still)


def entropy(log_p: Tensor) -> Tensor:
    """The entropy -Σ_j p_j log p_j of each row, from log p."""
    return -(log_p.exp() * log_p.clamp_min(torch.finfo(log_p.dtype).min)).sum(1)


def kl_divergence(p: Tensor, q: Tensor) -> Tensor:
    """KL(p ‖ q) = Σ_j p_j log(p_j / q_j) of each row; probabilities are clipped from below as in Keras, because q may
    have zeros."""
    p, q = p.clamp_min(CLIP), q.clamp_min(CLIP)
    return (p * (p.log() - q.log())).sum(1)


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """(KL(p ‖ m) + KL(q ‖ m)) / 2, m = (p + q) / 2: at most log 2."""
    p, q = p.clamp_min(CLIP), q.clamp_min(CLIP)
    m = (p + q) / 2
    return (kl_divergence(p, m) + kl_divergence(q, m)) / 2


def squared_hellinger(p: Tensor, q: Tensor) -> Tensor:
    """Σ_j (√p_j - √q_j)² / 2: at most 1."""
    return (p.clamp_min(CLIP).sqrt() - q.clamp_min(CLIP).sqrt()).square().sum(1) / 2


DIVERGENCES: dict[str, Divergence] = {
    "kl": kl_divergence,
    "jensen-shannon": jensen_shannon,
    "hellinger": squared_hellinger,
}


def sharpen(q: Tensor, frequency: Tensor) -> Tensor:
    """DEC's target (eq. 3): p_ij = (q_ij² / f_j) / Σ_j (q_ij² / f_j), f_j = Σ_i q_ij over all rows, on any scale."""
    weight = q.square() / frequency.clamp_min(torch.finfo(q.dtype).tiny)
    return weight / weight.sum(1, keepdim=True)


def sparsemax(logits: Tensor) -> Tensor:
    """Euclidean projection of each row onto the simplex (Martins & Astudillo 2016): soft, with exact zeros."""
    logits = logits - logits.amax(1, keepdim=True)  # the result is the same, and large logits lose no digits
    ordered = logits.sort(dim=1, descending=True).values
    rank = torch.arange(1, logits.shape[1] + 1, device=logits.device, dtype=logits.dtype)
    excess = ordered.cumsum(1) - 1
    support = (rank * ordered > excess).sum(1, keepdim=True)  # how many entries stay above the threshold
    threshold = excess.gather(1, support - 1) / support
    return (logits - threshold).clamp_min(0)


ASSIGNMENTS: dict[str, Assignment] = {"hard": hard, "softmax": softmax, "sparsemax": sparsemax}
