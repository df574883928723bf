"""L-ADMM unrolled into layers: sparse codes for samples that may carry gross errors::

    minimise  |Z|_1 + λ |E|   subject to  X = A Z + E

One iteration of the linearised alternating direction method, with a multiplier M and a penalty β, is one block::

    T = A(Z) + E - X
    Z ← shrink(Z - A'(M + β T), B1)             affinity
    E ← shrink(X - A(Z) - W1 M, B2)             de-noising
    M ← M + β (A(Z) + E - X)                    multiplier

A takes codes to data and A' data to codes. With A' = α Aᵀ, B1 = α, W1 = 1/β, B2 = λ/β and `α < 1 / (β |AᵀA|)`, K blocks
are K iterations and converge to the solution. Learnt (Xie et al., Differentiable Linearized ADMM, 2019; SSCNet), a few
blocks suffice. Samples are rows, (b, d), or images, (b, c, h, w); β, B1, W1 and B2 have one value per feature
or channel, so the number of samples is free.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Norm = Literal["elements", "samples"]


def shrink(x: Tensor, threshold: Tensor | float) -> Tensor:
    """Every value towards zero by `threshold`, the proximal step of `|x|_1`: relu(x - b) - relu(-x - b), b >= 0."""
    return F.relu(x - threshold) - F.relu(-x - threshold)


def shrink_samples(x: Tensor, threshold: Tensor | float) -> Tensor:
    """Every sample's length by `threshold`, the proximal step of `Σ_i |x_i|_2`: the columns of the papers' X."""
    flat = x.flatten(1)
    length = torch.linalg.vector_norm(flat, dim=1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
    return (flat * F.relu(1 - threshold / length)).view_as(x)


class LADMMState(NamedTuple):
    """The state of the iteration: codes z, errors e, multipliers m, and the reconstruction fit = A(z)."""

    z: Tensor  # codes
    e: Tensor  # errors, shaped as the samples
    m: Tensor  # multipliers, shaped as the samples
    fit: Tensor  # A(z)


class LADMMBlock(nn.Module):
    """One iteration, learnable.

    Args:
        synthesis: A, a module or function from codes to data. Blocks may share it.
        analysis: A', from data to codes. Blocks may share it too.
        code_shape: shape of the codes of one sample: (m,) or (maps, h, w).
        data_shape: shape of one sample: (d,) or (c, h, w).
        norm: `|E|` is the sum of its "elements" (sparse noise) or of the lengths of its "samples" (outlying rows); in
            the latter case B2 is one number.
        threshold: initial value of B1.
        penalty: initial value of β.
        damping: initial value of W1.
        error_threshold: initial value of B2.
        shared: the previous block has the same A, so its A(Z) can be reused. False computes it again.
    """

    def __init__(
        self,
        synthesis: Callable[[Tensor], Tensor],
        analysis: Callable[[Tensor], Tensor],
        code_shape: Sequence[int],
        data_shape: Sequence[int],
        *,
        norm: Norm = "elements",
        threshold: float = 0.15,
        penalty: float = 1.0,
        damping: float = 1.0,
        error_threshold: float = 0.15,
        shared: bool = True,
    ) -> None:
        super().__init__()
        if norm not in ("elements", "samples"):
            raise ValueError(f"norm={norm!r} should be 'elements' or 'samples'.")
        self.synthesis, self.analysis, self.norm, self.shared = synthesis, analysis, norm, shared
        codes, data = _per_feature(code_shape), _per_feature(data_shape)
        self.threshold = nn.Parameter(torch.full(codes, threshold))  # B1
        self.penalty = nn.Parameter(torch.full(data, penalty))  # β
        self.damping = nn.Parameter(torch.full(data, damping))  # W1
        self.error_threshold = nn.Parameter(torch.full(data if norm == "elements" else (), error_threshold))  # B2

    @classmethod
    def classical(cls, dictionary: Tensor, *, lam: float, penalty: float = 1.0, norm: Norm = "samples") -> Self:
        """The block that is one iteration of the classical algorithm, for a dictionary A (d, m)."""
        d, m = dictionary.shape
        step = 0.99 / (penalty * torch.linalg.matrix_norm(dictionary, 2).item() ** 2)
        synthesis, analysis = nn.Linear(m, d, bias=False), nn.Linear(d, m, bias=False)
        synthesis.weight = nn.Parameter(dictionary.clone())
        analysis.weight = nn.Parameter(step * dictionary.T)
        starts = {"threshold": step, "penalty": penalty, "damping": 1 / penalty, "error_threshold": lam / penalty}
        return cls(synthesis, analysis, (m,), (d,), norm=norm, **starts).to(dictionary)

    def forward(self, x: Tensor, state: LADMMState | None = None, allowed: Tensor | None = None) -> LADMMState:
        """The next state from samples and the last state; the first state has Z = E = M = 0, and A(0) is taken as zero.

        Args:
            allowed: one for the codes that a sample may use and zero for the others, in the shape of the codes: a
                sample that is itself an atom of the dictionary must not represent itself.
        """
        if state is None:
            z = self.analysis(self.penalty * x)
            e = m = torch.zeros_like(x)
        else:
            z, e, m, fit = state
            residual = (fit if self.shared else self.synthesis(z)) + e - x
            # the sign inside, so that a network in the place of A' sees samples and not their negatives
            z = z + self.analysis(-(m + self.penalty * residual))
        z = shrink(z, self.threshold.abs())
        z = z if allowed is None else z * allowed
        fit = self.synthesis(z)
        narrow = shrink if self.norm == "elements" else shrink_samples
        e = narrow(x - fit - self.damping * m, self.error_threshold.abs())
        return LADMMState(z, e, m + self.penalty * (fit + e - x), fit)

    def extra_repr(self) -> str:
        return f"norm={self.norm!r}"


def _per_feature(shape: Sequence[int]) -> tuple[int, ...]:
    """One value a feature, or one a channel."""
    return (shape[0], *(1 for _ in shape[1:]))
