"""Why do two rows share a cluster, or not?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from .evidence import Evidence
from .gradients import integrated_gradients
from .rows import Baseline, Subject, attribute, contribute


@dataclass(frozen=True, eq=False, kw_only=True)
class PairExplanation(Evidence):
    """Two rows, a and b.

    Attributes:
        together: whether they are in one cluster.
        together_probability: Σ_j p_j(a) p_j(b), the probability that independent draws put them into one cluster.
        distance: `|z_a - z_b|²` in the embedding.
        distance_parts: the share of each dimension of the embedding in the distance.
        versus: the two clusters compared. If the rows are apart: those of a and b. If together: theirs, and the closest
            rival for the pair.
        evidence: Σ contributions + bias (see `Evidence`). If apart, how much more a prefers its cluster over b's than b
            does: (s_j - s_l)(a) - (s_j - s_l)(b). If together, the sum of both margins.
        attributions: the evidence attributed to the input; `completeness_error` is the share they miss.
    """

    clusters: tuple[int, int]
    together: bool
    together_probability: float
    distance: float
    distance_parts: np.ndarray
    versus: tuple[int, int] | None
    evidence: float

    fields_of_dict: ClassVar = (
        "clusters", "together", "together_probability", "distance", "distance_parts", "versus", "evidence",
        "contributions", "contribution_names", "bias", "exact", "contribution_error", "attributions",
        "completeness_error", "stopped_early", "sentence",
    )  # fmt: skip

    @property
    def sentence(self) -> str:
        """All of it in words."""
        a, b = self.clusters
        start = f"Both rows are in cluster {a}" if self.together else f"The rows are in different clusters, {a} and {b}"
        start += (
            f" (probability of sharing a cluster {self.together_probability:.3f}, "
            f"squared distance {self.distance:.3g})."
        )
        if self.versus is None:
            return start
        what = "keeps them together, against cluster {1}," if self.together else "separates clusters {0} and {1}"
        figure = f"The evidence of {self.evidence:.4g} that {what.format(*self.versus)}"
        return " ".join([start, *self.reasons(figure)])

    def _repr_html_(self) -> str:
        return self.card("Together" if self.together else "Apart")


def explain_pair(
    estimator: Any, a: Any, b: Any, *, attributions: bool, baseline: Baseline, feature_names: Sequence[str] | None
) -> PairExplanation:
    subject = Subject.of(estimator, _stack(a, b), feature_names)
    data, logits = subject.data, subject.logits
    if len(data) != 2:
        raise ValueError(f"a and b should be one row each; together they have {len(data)}.")
    z, scores, p = logits.measure(data)
    first, second = scores.argmax(1).tolist()
    together, k = first == second, scores.shape[1]
    if k == 1:
        versus = None
        rival = first
    elif together:
        sums = scores.sum(0)
        sums[first] = -torch.inf
        rival = int(sums.argmax())
        versus = (first, rival)
    else:
        rival = second
        versus = (first, rival)
    cluster = torch.full((2,), first, device=z.device)
    other = torch.full((2,), rival, device=z.device)
    margin = logits.margin(z, cluster, other).detach()
    parts, bias, missed, stopped = contribute(logits, z, cluster, other, margin)
    sign = torch.tensor([1.0, 1.0 if together else -1.0], dtype=z.dtype, device=z.device)
    values = error = None
    stopped_early = bool(stopped.any())
    if attributions and versus is not None:
        values, error, stopped_too = _carry_back(subject, z, cluster, other, margin, baseline, together)
        stopped_early |= stopped_too
    return PairExplanation(
        clusters=(first, second),
        together=together,
        together_probability=float((p[0] * p[1]).sum()),
        distance=float((z[0] - z[1]).square().sum()),
        distance_parts=(z[0] - z[1]).square().cpu().numpy(),
        versus=versus,
        evidence=float(sign @ margin),
        contributions=(sign @ parts).cpu().numpy(),
        contribution_names=subject.contribution_names(z.shape[1]),
        of_inputs=logits.of_inputs,
        bias=float(sign @ bias),
        exact=logits.linear is not None,
        contribution_error=float(missed.max()),
        attributions=None if values is None else subject.restore(values),
        completeness_error=error,
        stopped_early=stopped_early,
        feature_names=subject.feature_names,
        shape=subject.given.shape,
    )


def _stack(a: Any, b: Any) -> Any:
    """Two rows as one X of two: each given alone or as an X of one row."""
    if sp.issparse(a) and sp.issparse(b):
        return sp.vstack([a, b], format="csr")
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return torch.cat([row if len(row) == 1 and row.ndim > 1 else row[None] for row in (a, b)])
    if hasattr(a, "iloc") and hasattr(b, "iloc"):
        import pandas

        return pandas.concat([row.to_frame().T if row.ndim == 1 else row for row in (a, b)]).infer_objects()
    rows = [np.asarray(row) for row in (a, b)]
    if rows[0].shape != rows[1].shape:
        raise ValueError(f"a has shape {rows[0].shape} but b has shape {rows[1].shape}.")
    return np.concatenate([row if row.ndim > 1 and len(row) == 1 else row[None] for row in rows])


def _carry_back(
    subject: Subject,
    z: Tensor,
    cluster: Tensor,
    rival: Tensor,
    margin: Tensor,
    baseline: Baseline,
    together: bool,
) -> tuple[Tensor, float, bool]:
    """Together: what carries both margins. Apart: what changes on the straight way from b to a."""
    logits = subject.logits
    if together:
        both = attribute(subject, z, cluster, rival, margin, baseline)
        return both.values.sum(0), float(both.error.max()), bool(both.stopped.any())
    if logits.of_inputs and logits.linear is not None:
        weight, _ = logits.linear
        return (weight[cluster[0]] - weight[rival[0]]) * (z[0] - z[1]), 0.0, False
    x = subject.data.take_checked(torch.arange(2, device=z.device))
    found = integrated_gradients(
        lambda samples, i: logits.margin(logits.embed(samples), cluster[i], rival[i]), x[:1], x[1:]
    )
    return found.values[0], float(found.error[0]), bool(found.stopped[0])
