"""The logits of a fitted model, and what can be read off them exactly.

A row belongs to the cluster with the largest logit. Where logits are linear in the embedding,
s_j(z) = W_j·z + b_j, the margin between two clusters comes apart without remainder::

    s_j(z) - s_l(z) = Σ_d (W_jd - W_ld) z_d + (b_j - b_l)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..engine.data import Data

LINEAR = 1e-9  # how far, relative to the largest logit, W z + b may be from the logits of z


@dataclass(frozen=True)
class Logits:
    """The way from samples to logits.

    Args:
        embed: samples -> z (b, d) in float64.
        score: z -> logits (b, k).
        linear: W (k, d) and b (k,), if they exist.
    """

    embed: Callable[[Tensor], Tensor]
    score: Callable[[Tensor], Tensor]
    probabilities: Callable[[Tensor], Tensor]
    linear: tuple[Tensor, Tensor] | None
    of_inputs: bool  # z is the input itself, feature by feature, perhaps brought to unit length

    @classmethod
    def of(cls, estimator: Any, data: Data) -> "Logits":
        """Of a fitted estimator. What it is like is tried on the data, not taken on trust."""
        model = estimator.model_.to(data.device).eval()
        clusters: Any = getattr(model, "clusters", None)
        if hasattr(clusters, "logits"):

            def embed(x: Tensor) -> Tensor:
                return model.embed(x).double()

            x, z = data.map(lambda x: x.double().flatten(1), _some(data)), data.map(embed, _some(data))
            linear = _read_linear(clusters.logits, z)
            return cls(embed, clusters.logits, estimator._probabilities, linear, _is_input(x, z))
        # No logits of an embedding: the log-probabilities of the samples themselves stand for them.
        shape = data.row_shape

        def log_probabilities(z: Tensor) -> Tensor:
            p = model.assign(z.float().reshape(len(z), *shape))
            return p.clamp_min(torch.finfo(p.dtype).tiny).log().double()

        return cls(
            embed=lambda x: x.double().flatten(1),
            score=log_probabilities,
            probabilities=lambda z: log_probabilities(z).exp().float(),
            linear=None,
            of_inputs=True,
        )

    def measure(self, data: Data) -> tuple[Tensor, Tensor, Tensor]:
        """z (n, d), logits (n, k) and probabilities (n, k) of all rows, in one pass and in float64."""
        widths: list[int] = []

        def everything(x: Tensor) -> Tensor:
            z = self.embed(x)
            parts = [z, self.score(z), self.probabilities(z).double()]
            widths[:] = [part.shape[1] for part in parts]
            return torch.cat(parts, dim=1)

        together = data.map(everything)
        z, scores, p = together.split(widths, dim=1)
        return z, scores, p

    def margin(self, z: Tensor, cluster: Tensor, rival: Tensor) -> Tensor:
        """s_j - s_l for each row: (b, d) -> (b,)"""
        scores = self.score(z)
        return (scores.gather(1, cluster[:, None]) - scores.gather(1, rival[:, None]))[:, 0]


def _some(data: Data, most: int = 64) -> Tensor:
    """A few rows, evenly spaced: no randomness, so that nobody's generator moves."""
    n = min(len(data), most)
    return torch.linspace(0, len(data) - 1, n, dtype=torch.float64, device=data.device).long()


@torch.no_grad()
def _read_linear(score: Callable[[Tensor], Tensor], z: Tensor) -> tuple[Tensor, Tensor] | None:
    """W and b from the logits of 0 and of the unit vectors; None if they do not give the logits of z."""
    d = z.shape[1]
    bias = score(z.new_zeros(1, d))[0]
    weight = (score(torch.eye(d, dtype=z.dtype, device=z.device)) - bias).T.contiguous()
    there = score(z)
    off = (z @ weight.T + bias - there).abs().max()
    return (weight, bias) if bool(off <= LINEAR * (1 + there.abs().max())) else None


def _is_input(x: Tensor, z: Tensor) -> bool:
    """Whether each z is its x, or `x / |x|`."""
    if x.shape != z.shape:
        return False
    lengths = x.norm(dim=1, keepdim=True), z.norm(dim=1, keepdim=True)
    off = (x * lengths[1] - z * lengths[0]).abs().max()
    return bool(off <= 1e-5 * (lengths[0] * lengths[1]).max())
