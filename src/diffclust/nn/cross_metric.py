"""A cluster layer that assigns rows by several distances; its loss is the divergence between the assignments."""

from collections.abc import Sequence
from itertools import combinations
from typing import Literal

import torch
from torch import Tensor

from .cluster import ClusterLayer
from .ops import (
    DIVERGENCES,
    METRICS,
    entropy,
    euclidean,
    log_balance,
    log_student_t,
    slowed,
    sparse_closeness,
    squared_distances,
)
from .parallel import totals

HARD_ENTROPY = 1e-3  # below this mean entropy an assignment is hard
RESCALE_FROM = 2.0  # embeddings that must be scaled by more than this are too small for the usual learning rates

Side = Literal["prediction", "target"]


class CrossMetricLayer(ClusterLayer):
    """Rows (b, d) -> P₁ or P₂ (b, k).

    Every assignment is a closeness Q, sharpened and balanced by the frequencies of the clusters::

        P_ij = (Q_ij^r / f_j) / Σ_j' (Q_ij'^r / f_j'),   f_j = Σ_i Q_ij

    The prediction P₁ is sparse, Q_ij = max(0, mean_j' z_ij' - z_ij) with Euclidean distances z. The targets P₂, ...,
    one for each of `metrics`, are dense: Q_ij ∝ 1 / (1 + z_ij²).

    "cosine" and "correlation" measure angles from `origin`, which is zero until `look_from` moves it. A target that is
    less certain than the prediction makes the prediction uncertain. Two methods prevent that. P₁ does not depend on the
    scale of the rows, but 1 / (1 + z²) does, and is nearly flat for small z: `stretch_to` multiplies such distances.
    `match_powers` gives each target the power r at which it is as certain as P₁. Gradient steps are larger relative to
    small rows, so a learning rate for large rows makes the centres of small ones jump and merge. `stretch_to` also
    scales the steps of the centres accordingly. The loss uses the frequencies of the rows it is given. Predictions use
    the frequencies from the last call of `count`, so a row's assignment does not depend on other rows.

    Args:
        metrics: one or more of "euclidean", "cosine", "correlation", "cityblock".
        power: the r of P.
        divergence: D, "kl", "jensen-shannon" or "hellinger" (squared). The loss of a row is the sum of D(P_t ‖ P_s)
            over all pairs s < t.
        detach: "none", or the side of every pair without gradients: "target" (P_t) or "prediction" (P_s).
        answer: the assignment that the layer returns: the "prediction" or the first "target".
    """

    frequencies: Tensor  # mean_i Q_ij of each assignment over all rows (1 + metrics, k)
    origin: Tensor  # (d,)
    stretch: Tensor  # factor on the distances of each target (metrics,)
    pace: Tensor  # factor on the loss's gradient by the centres ()
    powers: Tensor  # r of each assignment (1 + metrics,)
    temperature = 1.0

    def __init__(
        self,
        n_clusters: int,
        embedding_dim: int,
        metrics: str | Sequence[str] = ("euclidean",),
        *,
        power: float = 2.0,
        divergence: str = "kl",
        detach: Literal["none"] | Side = "none",
        answer: Side = "prediction",
    ) -> None:
        # with α = 1/2 the weights W = 2αΩ are the centres themselves
        super().__init__(n_clusters, embedding_dim, alpha=0.5)
        metrics = (metrics,) if isinstance(metrics, str) else tuple(metrics)
        sides = ("prediction", "target")
        for name, values, known in (
            ("metrics", metrics, tuple(METRICS)),
            ("divergence", (divergence,), tuple(DIVERGENCES)),
            ("detach", (detach,), ("none", *sides)),
            ("answer", (answer,), sides),
        ):
            if not values or not set(values) <= set(known):
                raise ValueError(f"{name}={', '.join(map(str, values))} should be of {', '.join(known)}.")
        if "correlation" in metrics and embedding_dim < 3:
            raise ValueError(
                f"embedding_dim={embedding_dim}: metric='correlation' needs 3 or more: with two it is always 1 or -1."
            )
        self.metrics, self.detach, self.answer = metrics, detach, answer
        self.divergence = DIVERGENCES[divergence]
        self.register_buffer("frequencies", torch.ones(1 + len(self.metrics), n_clusters))
        self.register_buffer("origin", torch.zeros(embedding_dim))
        self.register_buffer("stretch", torch.ones(len(self.metrics)))
        self.register_buffer("pace", torch.ones(()))
        self.register_buffer("powers", torch.full((1 + len(self.metrics),), float(power)))

    # ---- the assignments

    def closeness(self, z: Tensor, centers: Tensor | None = None) -> list[Tensor]:
        """Q of the prediction, then of each target: (b, d) -> (b, k) each."""
        centers = self.centers if centers is None else centers
        dtype = torch.promote_types(z.dtype, centers.dtype)
        z, centers = z.to(dtype), centers.to(dtype)
        with torch.autocast(z.device.type, enabled=False):  # distances are differences: no room for bf16
            z, centers = z - self.origin, centers - self.origin
            plain = euclidean(z, centers)
            distances = [plain if metric == "euclidean" else METRICS[metric](z, centers) for metric in self.metrics]
            stretched = [factor * each for factor, each in zip(self.stretch, distances, strict=True)]
            return [sparse_closeness(plain), *(log_student_t(each.square()).exp() for each in stretched)]

    def assignments(self, z: Tensor, frequencies: Tensor | None = None) -> list[Tensor]:
        """P₁, P₂, ...; with the frequencies of these rows and scaled steps of the centres, unless frequencies are
        given."""
        if frequencies is None:
            closeness = self.closeness(z, slowed(self.centers, self.pace))
            each = totals(*(q.sum(0) for q in closeness))
        else:
            closeness = self.closeness(z)
            each = frequencies.to(closeness[0].dtype).unbind()
        return [log_balance(q, f, r).exp() for q, f, r in zip(closeness, each, self.powers, strict=True)]

    @torch.no_grad()
    def count(self, closeness: Tensor) -> None:
        """Keep the frequencies of all rows, from their Q: (n, 1 + metrics, k)."""
        self.frequencies.copy_(closeness.double().mean(0))

    @torch.no_grad()
    def look_from(self, z: Tensor) -> None:
        """Measure angles from the mean of these rows."""
        self.origin.copy_(z.mean(0))

    @torch.no_grad()
    def stretch_to(self, z: Tensor, least: float) -> None:
        """Multiply the distances of each target so that their mean over these rows is at least `least`; never by less
        than 1. If the Euclidean distances are less than half of it, the steps of the centres are scaled as if they
        were not."""
        size, *stretch = self.factors(z, least, ("euclidean", *self.metrics))
        self.stretch.copy_(torch.stack(stretch))
        # gradients are `size` times as large as in those units, and centres so much nearer
        self.pace.copy_(torch.where(size > RESCALE_FROM, size**-2, 1))

    @torch.no_grad()
    def factors(self, z: Tensor, least: float, metrics: Sequence[str] = ("euclidean",)) -> Tensor:
        """The factors that raise the mean distance between these rows and the centres to `least`, for each metric;
        never below 1."""
        z, centers = z.double() - self.origin, self.centers.double() - self.origin
        means = torch.stack([METRICS[metric](z, centers).mean() for metric in metrics])
        rounding = [1e-6 if metric in ("cosine", "correlation") else 1e-30 for metric in metrics]
        there = means > means.new_tensor(rounding)  # otherwise all rows and centres are equal
        return torch.where(there, least / torch.where(there, means, 1), 1).clamp_min(1)

    @torch.no_grad()
    def match_powers(self, z: Tensor, most: float = 8.0) -> None:
        """Give each target the power, between that of P₁ and `most`, at which its mean entropy over these rows equals
        that of P₁. If P₁ is 0 or 1, as with two clusters, nothing changes."""
        prediction, *targets = (q.double() for q in self.closeness(z))
        least = self.powers[0].double()
        wanted = entropy(log_balance(prediction, prediction.sum(0), least)).mean()
        if wanted < HARD_ENTROPY:
            return
        for place, q in enumerate(targets, 1):
            low, high = least, least.clamp_min(most)
            for _ in range(40):
                r = (low + high) / 2
                flat = entropy(log_balance(q, q.sum(0), r)).mean() > wanted
                low, high = torch.where(flat, r, low), torch.where(flat, high, r)
            self.powers[place] = low

    # ---- answers

    def forward(self, x: Tensor) -> Tensor:
        return self.assignments(x, self.frequencies)[self.answer == "target"]

    def probabilities(self, z: Tensor, temperature: float) -> Tensor:
        """P itself."""
        return self(z)

    def logits(self, z: Tensor) -> Tensor:
        """In the same order as P. For P₁: (mean_j' z_ij' - z_ij) / f_j^(1/r), which also orders clusters where P₁ is
        zero."""
        if self.answer == "target":
            return log_balance(self.closeness(z)[1], self.frequencies[1].to(z.dtype), self.powers[1])
        dtype = torch.promote_types(z.dtype, self.weight.dtype)
        distances = euclidean(z.to(dtype), self.centers.to(dtype))
        f = self.frequencies[0].to(dtype)
        f = (f / f.mean().clamp_min(torch.finfo(dtype).tiny)).clamp_min(1e-7)
        return (distances.mean(1, keepdim=True) - distances) / f ** (1 / self.powers[0])

    def distances(self, z: Tensor) -> Tensor:
        """`|z_i - Ω_j|²`, whatever the metrics."""
        dtype = torch.promote_types(z.dtype, self.weight.dtype)
        return squared_distances(z.to(dtype), self.centers.to(dtype))

    # ---- the loss

    def losses(self, z: Tensor) -> Tensor:
        """The loss of each row, with the stored frequencies: (b, d) -> (b,)."""
        return self.discrepancy(self.assignments(z, self.frequencies))

    def loss(self, x: Tensor) -> Tensor:
        """The mean loss of the rows, with their own frequencies."""
        return self.discrepancy(self.assignments(x)).mean()

    def discrepancy(self, assignments: Sequence[Tensor]) -> Tensor:
        """Σ_s<t D(P_t ‖ P_s) of each row: (b,)."""
        terms = []
        for prediction, target in combinations(assignments, 2):
            if self.detach == "target":
                target = target.detach()
            elif self.detach == "prediction":
                prediction = prediction.detach()
            terms.append(self.divergence(target, prediction))
        return torch.stack(terms).sum(0)
