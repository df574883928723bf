"""k-means as a linear layer whose weights are the centres (k-meansNet; TELL, section 2).

With W_j = 2α Ω_j and `b_j = -α |Ω_j|²`::

    α |x - Ω_j|² = α |x|² - (W_j·x + b_j)

so the largest logit W_j·x + b_j belongs to the nearest centre, and an assignment function over the logits turns the
layer into attention over centres.
"""

import math
from typing import ClassVar, Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .kmeans import draw_proportional, kmeans, kmeans_plus_plus
from .label_function import LabelFunction
from .ops import ASSIGNMENTS, Assignment, Distance, largest, one_hot, squared_distances, without_autocast
from .parallel import totals

Start = Literal["random", "k-means++", "k-means", "neighbours", "kept"]


class Sphere(Protocol):
    """The arithmetic of the unit sphere, which the engine can replace by faster kernels."""

    def unit_rows(self, x: Tensor) -> Tensor:
        """Rows of length one, differentiable."""
        ...

    def step(self, weight: Tensor, pull: Tensor, mass: Tensor, step: float | Tensor, length: float) -> None:
        """Move each row of `weight`, which has this length, by step · length towards its row of `pull`, and project it
        back onto the sphere. With a mass below one the step is smaller by that factor."""
        ...

    def nearest(self, z: Tensor, weight: Tensor, alpha: float, factor: float, constant: float) -> tuple[Tensor, Tensor]:
        """The index j of the largest W_j·z_i for each row, (b,), and the mean over rows of `factor · (|z_i|² - W_j·z_i
        / α) + constant` with that j, differentiable."""
        ...

    def sums(self, z: Tensor, owner: Tensor, n_clusters: int) -> tuple[Tensor, Tensor]:
        """The sum of the rows of each cluster, (k, d), and their number, (k,)."""
        ...


class PlainSphere:
    def unit_rows(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=1)

    def step(self, weight: Tensor, pull: Tensor, mass: Tensor, step: float | Tensor, length: float) -> None:
        weight.add_(length * step * mass[:, None].clamp_max(1) * F.normalize(pull, dim=1))
        weight.copy_(length * F.normalize(weight, dim=1))

    def nearest(self, z: Tensor, weight: Tensor, alpha: float, factor: float, constant: float) -> tuple[Tensor, Tensor]:
        products = F.linear(z, weight)
        owner = largest(products)
        own = z.square().sum(1) - products.gather(1, owner[:, None])[:, 0] / alpha
        return owner, factor * own.mean() + constant

    def sums(self, z: Tensor, owner: Tensor, n_clusters: int) -> tuple[Tensor, Tensor]:
        member = one_hot(owner, n_clusters, z.dtype)
        return member.T @ z, member.sum(0)


class ClusterLayer(nn.Module):
    """Rows (b, d) -> assignments (b, k).

    Args:
        assignment: "hard", "softmax", "sparsemax", or any callable from logits to assignments whose rows sum to one.
        alpha: the scale α of the logits, which the softmax sees. `centers` and `distances` do not depend on it.
        tied: b is computed from W, as in k-means. False makes b a separate parameter (k-meansNet), and then the loss
            has no lower bound: see `loss`.
        sphere: rows and centres have length one (TELL). Then every b_j is -α.
        ball: `bound_` keeps centres within length one, and an untied b within the range of such centres.
    """

    weight: nn.Parameter  # W (k, d)
    arithmetic: ClassVar[Sphere] = PlainSphere()
    temperature: float | None = None  # of probabilities, if the layer defines it

    def __init__(
        self,
        n_clusters: int,
        embedding_dim: int,
        *,
        assignment: str | Assignment = "hard",
        alpha: float = 1.0,
        tied: bool = True,
        sphere: bool = False,
        ball: bool = False,
    ) -> None:
        super().__init__()
        if sphere and not tied:
            raise ValueError("sphere=True fixes every bias at -alpha: tied=False has no effect.")
        if alpha <= 0:
            raise ValueError(f"alpha={alpha} should be > 0.")
        if isinstance(assignment, str) and assignment not in ASSIGNMENTS:
            raise ValueError(f"assignment={assignment!r} should be one of {sorted(ASSIGNMENTS)} or a callable.")
        self.n_clusters, self.embedding_dim = n_clusters, embedding_dim
        self.alpha, self.tied, self.sphere, self.ball = alpha, tied, sphere, ball
        self.assignment: Assignment = ASSIGNMENTS[assignment] if isinstance(assignment, str) else assignment
        self.weight = nn.Parameter(torch.empty(n_clusters, embedding_dim))
        self.bias = None if tied else nn.Parameter(torch.empty(n_clusters))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Random centres, as small as the weights of a linear layer."""
        bound = 1 / math.sqrt(self.embedding_dim)
        self.set_centers(torch.empty_like(self.weight).uniform_(-bound, bound))

    # ---- reading and writing the centres

    @property
    def centers(self) -> Tensor:
        """Ω (k, d), as a function of W, so gradients flow through it."""
        return self.weight / (2 * self.alpha)

    @torch.no_grad()
    def set_centers(self, centers: Tensor) -> None:
        """Write centres (k, d) into the weights; an untied bias is set to match."""
        if centers.shape != self.weight.shape:
            said, wanted = tuple(centers.shape), tuple(self.weight.shape)
            raise ValueError(f"The centres have shape {said}: expected {wanted}, one row for each of the clusters.")
        self.weight.copy_(2 * self.alpha * centers)
        if self.bias is not None:
            self.bias.copy_(-self.alpha * centers.square().sum(1))
        if self.sphere:
            self.project_()

    @torch.no_grad()
    def place(self, z: Tensor, how: Start = "k-means") -> None:
        """Find centres in the rows z. "random": random directions on the sphere, otherwise random rows; "kept": keep
        the current centres."""
        if not bool(z.isfinite().all()):
            raise ValueError("The rows contain NaN or infinity: no centres can be placed on them.")
        z = self.normalize(z)
        if len(z) < self.n_clusters:
            raise ValueError(f"{len(z)} rows are too few for n_clusters={self.n_clusters} clusters.")
        if how == "k-means":
            # training does not repair poor initial centres, and thirty tries on few rows cost next to nothing
            self.set_centers(kmeans(z, self.n_clusters, n_init=30 if len(z) <= 10_000 else 10).centers)
        elif how == "k-means++":
            self.set_centers(kmeans_plus_plus(z, self.n_clusters))
        elif how not in ("random", "kept"):
            raise ValueError(f"how={how!r} should be 'k-means', 'k-means++', 'random' or 'kept'.")
        elif how == "kept":
            pass
        elif self.sphere:
            self.reset_parameters()
        else:
            self.set_centers(z[torch.randperm(len(z), device=z.device)[: self.n_clusters]])

    @property
    def original(self) -> "ClusterLayer":
        """The layer as it was trained, before clusters were merged or split."""
        return self

    # ---- from rows to answers

    def normalize(self, x: Tensor) -> Tensor:
        """Scale rows to the unit sphere if the layer is on the sphere; otherwise return them unchanged."""
        return self.arithmetic.unit_rows(x) if self.sphere else x

    def logits(self, z: Tensor) -> Tensor:
        """W_j·z_i + b_j for normalised rows: (b, d) -> (b, k), in the precision of the rows or better."""
        dtype = torch.promote_types(z.dtype, self.weight.dtype)
        z, weight = z.to(dtype), self.weight.to(dtype)
        with without_autocast(z.device):  # distances are differences, for which bf16 is too coarse
            if self.sphere:
                return F.linear(z, weight) - self.alpha
            bias = -weight.square().sum(1) / (4 * self.alpha) if self.bias is None else self.bias.to(dtype)
            return F.linear(z, weight, bias)

    def owners(self, z: Tensor) -> Tensor:
        """The cluster of each normalised row, (b, d) -> (b,): the largest logit in float64, or -1 if it is NaN."""
        return self.label_function()(z)

    def label_function(self) -> LabelFunction:
        """`owners` for many batches: what it needs from the weights is computed once."""
        return LabelFunction(self, linear=type(self).logits is ClusterLayer.logits)

    def distances(self, z: Tensor) -> Tensor:
        """`|z_i - Ω_j|²` by the identity above; a true distance only with tied weights."""
        return self.read_distances(z, self.logits(z))

    def read_distances(self, z: Tensor, logits: Tensor) -> Tensor:
        """`distances` from known logits."""
        return torch.sub(z.to(logits.dtype).square().sum(1, keepdim=True), logits, alpha=1 / self.alpha)

    def nearest(self, z: Tensor, factor: float = 1.0, constant: float = 0.0) -> tuple[Tensor, Tensor]:
        """For normalised rows on the sphere: the nearest centre of each, (b,), and the mean over rows of `factor · |z_i
        - Ω_j|² + constant` with that centre."""
        dtype = torch.promote_types(z.dtype, self.weight.dtype)
        with without_autocast(z.device):
            return self.arithmetic.nearest(z.to(dtype), self.weight.to(dtype), self.alpha, factor, constant + factor)

    def probabilities(self, z: Tensor, temperature: float) -> Tensor:
        """`softmax_j(-|z_i - Ω_j|² / temperature)`: (b, d) -> (b, k), soft even if the assignment is hard."""
        return torch.softmax(self.logits(z) / (self.alpha * temperature), dim=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.assignment(self.logits(self.normalize(x)))

    def loss(self, x: Tensor) -> Tensor:
        """`mean_i Σ_j I_ij |x_i - Ω_j|²`, I = forward(x): the k-means objective with the layer's assignment.

        With untied b it has no lower bound: Σ_j ∂L/∂b_j is the same negative number everywhere.
        """
        return self.losses(self.normalize(x)).mean()

    def losses(self, z: Tensor) -> Tensor:
        """`loss` of each normalised row: (b, d) -> (b,)."""
        logits = self.logits(z)
        return (self.assignment(logits) * self.read_distances(z, logits)).sum(1)

    # ---- moving the centres

    @torch.no_grad()
    def move_(self, z: Tensor, step: float | Tensor = 0.1, member: Tensor | None = None) -> None:
        """Move each centre towards its rows in z, in closed form; I_ij is `member` (b, k), by default the layer's own
        assignment.

        On the sphere, TELL's normalised-gradient step of constant length (section 2.2.3)::

            Ω_j <- normalise(Ω_j + step · m_j / |m_j|),   m_j = Σ_i I_ij z_i

        Otherwise a fraction `step` of the way to the mean: Ω_j <- Ω_j + step · (m_j / Σ_i I_ij - Ω_j). A centre without
        rows does not move, and one with a total membership below one moves by that fraction of the step.
        """
        if not self.tied:
            raise ValueError("move_ needs tied weights: with a free bias the centres do not decide the members.")
        z = self.normalize(z.to(self.weight.dtype))
        member = self.assignment(self.logits(z)) if member is None else member
        with without_autocast(z.device):
            pull = member.T @ z
        self.step_together_(pull, member.sum(0), step)

    @torch.no_grad()
    def sums(self, z: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
        """The arguments of `step_`, from normalised rows and their clusters."""
        with without_autocast(z.device):
            return self.arithmetic.sums(z.to(self.weight.dtype), owner, self.n_clusters)

    def step_together_(self, pull: Tensor, mass: Tensor, step: float | Tensor = 0.1) -> None:
        """`step_` with the sums of all processes that share a batch."""
        pull, mass = totals(pull, mass)
        self.step_(pull, mass, step)

    @torch.no_grad()
    def step_(self, pull: Tensor, mass: Tensor, step: float | Tensor = 0.1) -> None:
        """`move_` with known sums m_j (k, d) of each centre's rows and their number (k,)."""
        if self.sphere:
            self.arithmetic.step(self.weight, pull, mass, step, 2 * self.alpha)
        else:
            mass = mass[:, None]
            mean = pull / mass.clamp_min(torch.finfo(pull.dtype).tiny)
            self.weight.add_(step * mass.clamp_max(1) * (2 * self.alpha * mean - self.weight))

    @torch.no_grad()
    def average_(self, pull: Tensor, mass: Tensor, counts: Tensor) -> None:
        """Each centre becomes the mean of its c_j previous rows and its new rows, whose sum and number are given::

            Ω_j <- Ω_j + (m_j - n_j Ω_j) / (c_j + n_j)

        On the sphere, the direction of that mean. A centre without new rows does not move.
        """
        total = (counts + mass).clamp_min(1).to(pull.dtype)[:, None]
        self.weight.add_((2 * self.alpha * pull - mass[:, None] * self.weight) / total)
        if self.sphere:
            self.project_()

    @torch.no_grad()
    def project_(self) -> None:
        """Scale every row of W to length 2α, so that every centre has length one."""
        self.weight.copy_(2 * self.alpha * F.normalize(self.weight, dim=1))

    @torch.no_grad()
    def bound_(self) -> None:
        """Project the weights back after an unconstrained step: `project_` on the sphere, `|W_j| <= 2α` and `-α <= b_j
        <= 0` in the ball, nothing otherwise."""
        if self.sphere:
            self.project_()
        elif self.ball:
            length = self.weight.norm(dim=1, keepdim=True)
            self.weight.mul_((2 * self.alpha / length.clamp_min(torch.finfo(length.dtype).tiny)).clamp_max(1))
            if self.bias is not None:
                self.bias.clamp_(-self.alpha, 0)

    @torch.no_grad()
    def normalize_gradient_(self, share: float | Tensor = 0.1) -> None:
        """Scale the gradient of every row of W to the length `share · |W_j|`. In the released TELL code, Adadelta with
        rate 1 then moves W. Equal to `move_` as long as 2α · share is far below Adadelta's √eps."""
        if self.weight.grad is not None:
            self.weight.grad.copy_(share * self.weight.norm(dim=1, keepdim=True) * F.normalize(self.weight.grad, dim=1))

    @torch.no_grad()
    def revive_(self, dead: Tensor, z: Tensor) -> None:
        """Move the centres marked in `dead` (k,) to rows of z, drawn as in k-means++: the farther a row is from the
        other centres, the more likely. The other centres do not change."""
        z = self.normalize(z.to(self.weight.dtype))
        alive = self.centers.detach()[~dead]
        nearest = squared_distances(z, alive).amin(1) if len(alive) else z.new_ones(len(z))
        for j in dead.nonzero()[:, 0].tolist():
            center = z[draw_proportional(nearest, 1, None)]  # (1, d)
            nearest = torch.minimum(nearest, squared_distances(z, center)[:, 0])
            self.weight[j] = 2 * self.alpha * center[0]
            if self.bias is not None:
                self.bias[j] = -self.alpha * center.square().sum()

    def extra_repr(self) -> str:
        kind = "sphere" if self.sphere else "tied" if self.tied else "untied"
        kind += ", ball" if self.ball else ""
        name = getattr(self.assignment, "__name__", type(self.assignment).__name__)
        return f"{self.n_clusters} centres in {self.embedding_dim} dimensions, {name}, {kind}, alpha={self.alpha:g}"


class DistanceLayer(ClusterLayer):
    """Centres under a distance that you supply: f(rows (b, d), centres (k, d)) -> (b, k). Logits are -α f."""

    def __init__(self, n_clusters: int, embedding_dim: int, f: Distance, *, alpha: float = 1.0) -> None:
        super().__init__(n_clusters, embedding_dim, alpha=alpha)
        self.f = f

    def logits(self, z: Tensor) -> Tensor:
        dtype = torch.promote_types(z.dtype, self.weight.dtype)
        with without_autocast(z.device):
            return -self.alpha * self.f(z.to(dtype), self.centers.to(dtype))

    def read_distances(self, z: Tensor, logits: Tensor) -> Tensor:
        return -logits / self.alpha
