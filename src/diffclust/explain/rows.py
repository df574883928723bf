"""Why is this row in this cluster?"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ..engine.data import Data
from ..engine.rows import SparseRows, TensorRows
from ..engine.runtime import choose_device
from ..reading.inputs import UserInput, read_rows
from . import words
from .evidence import Evidence
from .gradients import Attribution, integrated_gradients
from .logits import Logits
from .pictures import displayable
from .tables import cell_phrase

Baseline = Literal["auto", "runner-up", "zero"] | np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class RowExplanation(Evidence):
    """One row, its cluster, and the contributions to its margin.

    Attributes:
        margin: the logit of its cluster minus that of the runner-up, Σ contributions + bias.
        contributions: see `Evidence`; if exact, they are (W_jd - W_ld) z_d.
        exact: see `Evidence`.
        contribution_error: see `Evidence`.
        attributions: the margin attributed to the input, in the shape of the row, relative to `baseline_margin`, the
            margin of a baseline input. Σ attributions = margin - baseline_margin, up to the share `completeness_error`.
    """

    row: int
    cluster: int
    probability: float
    runner_up: int | None
    runner_up_probability: float
    margin: float
    baseline_margin: float | None
    sample: np.ndarray = field(repr=False)  # the row itself, in the network's layout

    fields_of_dict: ClassVar = (
        "row", "cluster", "probability", "runner_up", "runner_up_probability", "margin", "contributions",
        "contribution_names", "bias", "exact", "contribution_error", "attributions", "baseline_margin",
        "completeness_error", "stopped_early", "sentence",
    )  # fmt: skip

    @property
    def sentence(self) -> str:
        """All of it in words."""
        if self.runner_up is None:
            return f"Row {self.row} is in cluster {self.cluster}: there is no other."
        where = (
            f"Row {self.row} is in cluster {self.cluster} with probability {self.probability:.3f}; "
            f"the runner-up is cluster {self.runner_up} with {self.runner_up_probability:.3f}."
        )
        return " ".join([where, *self.reasons(f"The margin of {self.margin:.4g} between them")])

    def top_in_words(self, n: int) -> list[tuple[str, float]]:
        """ "income 2.1 sd above", where the row is of a table: all that a column counts for. Of texts, words."""
        if self.reading is None or self.attributions is None:
            return self.top(n)
        if self.reading.is_text:
            return [(f"“{word}”", weight) for word, weight in self.top(n)]
        weights = self.reading.by_column(self.attributions[None])[0]
        order = np.argsort(-np.abs(weights), kind="stable")[:n].tolist()
        return [(cell_phrase(self.reading, self.sample, at), float(weights[at])) for at in order if weights[at]]

    def pictures(self) -> list[str]:
        heat = super().pictures()
        if not heat:
            return []
        image = displayable(self.sample[None], float(self.sample.min()), float(self.sample.max()))[0]
        return [words.picture(image, "the row"), *heat]

    def _repr_html_(self) -> str:
        return self.card(f"Row {self.row}: cluster {self.cluster}")


class Explanations(list[RowExplanation]):
    """One explanation per row: a list that notebooks show as HTML."""

    def to_dict(self) -> list[dict[str, Any]]:
        """Each explanation, as plain lists and numbers."""
        return [explanation.to_dict() for explanation in self]

    def _repr_html_(self) -> str:
        shown = "".join(explanation._repr_html_() for explanation in self[:5])
        rest = len(self) - 5
        return shown + (words.paragraph(f"... and {rest} more.") if rest > 0 else "")


def explain_rows(
    estimator: Any, X: Any, *, attributions: bool, baseline: Baseline, feature_names: Sequence[str] | None
) -> Explanations:
    return explain_subject(Subject.of(estimator, X, feature_names), attributions=attributions, baseline=baseline)


def explain_subject(subject: "Subject", *, attributions: bool = True, baseline: Baseline = "auto") -> Explanations:
    data, logits = subject.data, subject.logits
    z, scores, p = logits.measure(data)
    k = scores.shape[1]
    cluster = scores.argmax(1)
    rival = scores.scatter(1, cluster[:, None], -torch.inf).argmax(1) if k > 1 else cluster
    margin = (scores.gather(1, cluster[:, None]) - scores.gather(1, rival[:, None]))[:, 0]
    contributions, bias, error, stopped = contribute(logits, z, cluster, rival, margin)
    found = attribute(subject, z, cluster, rival, margin, baseline) if attributions and k > 1 else None
    stopped = stopped if found is None else stopped | found.stopped
    names = subject.contribution_names(z.shape[1])
    explanations = Explanations()
    for i in range(len(data)):
        explanations.append(
            RowExplanation(
                row=i if subject.rows is None else subject.rows[i],
                cluster=int(cluster[i]),
                probability=float(p[i, cluster[i]]),
                runner_up=int(rival[i]) if k > 1 else None,
                runner_up_probability=float(p[i, rival[i]]) if k > 1 else 0.0,
                margin=float(margin[i]),
                contributions=contributions[i].cpu().numpy(),
                contribution_names=names,
                of_inputs=logits.of_inputs,
                bias=float(bias[i]),
                exact=logits.linear is not None,
                contribution_error=float(error[i]),
                attributions=None if found is None else subject.restore(found.values[i]),
                baseline_margin=None if found is None else float(found.start[i]),
                completeness_error=None if found is None else float(found.error[i]),
                stopped_early=bool(stopped[i]),
                feature_names=subject.feature_names,
                sample=subject.estimator._as_given(data.take(torch.tensor([i], device=data.device)))[0].cpu().numpy(),
                shape=subject.given.shape,
                reading=getattr(subject.estimator, "columns_", None),
            )
        )
    return explanations


@dataclass(frozen=True)
class Subject:
    """A fitted estimator with rows to explain."""

    estimator: Any
    given: UserInput
    data: Data
    logits: Logits
    feature_names: list[str] | None  # None for images
    rows: list[int] | None = None  # their numbers, where they are some of many

    @classmethod
    def of(cls, estimator: Any, X: Any, feature_names: Sequence[str] | None = None) -> "Subject":
        check_is_fitted(estimator)
        given = read_rows(estimator, X, fitting=False)
        data = Data(given.rows, choose_device(estimator.device))
        return cls(estimator, given, data, Logits.of(estimator, data), names_of(estimator, feature_names))

    def at(self, rows: list[int]) -> "Subject":
        """The same, of these rows alone."""
        taken = TensorRows(self.data.rows.take(torch.tensor(rows)), self.data.rows.divisor)
        return replace(self, data=Data(taken, self.data.device), rows=rows)

    def contribution_names(self, width: int) -> list[str]:
        """Of what the logits are sums of: the features, where they are the embedding, else z0, z1, ..."""
        if self.logits.of_inputs and self.feature_names:
            return self.feature_names
        return [f"{'x' if self.logits.of_inputs else 'z'}{d}" for d in range(width)]

    def restore(self, values: Tensor) -> np.ndarray:
        """One sample's values in the layout the user gave."""
        shaped = values.reshape(1, *self.data.row_shape)
        return self.given.shape.restore(shaped)[0].cpu().numpy()

    def baseline(self, wish: Baseline, rival: Tensor) -> Tensor:
        """The inputs that margins are compared with, one for each rival cluster in turn: `(n, *row_shape)`."""
        shape, device = self.data.row_shape, self.data.device
        if isinstance(wish, str):
            if wish not in ("auto", "runner-up", "zero"):
                raise ValueError(f"baseline={wish!r} should be 'auto', 'runner-up', 'zero' or one row as an array.")
            sparse = isinstance(self.given.rows, SparseRows)
            decoded = None if wish == "zero" or (wish == "auto" and sparse) else decoded_centers(self.estimator)
            return self._zero(len(rival)) if decoded is None else decoded.to(device)[rival]
        row = torch.as_tensor(np.asarray(wish, dtype=np.float64), device=device)
        wanted = tuple(self.given.shape.restore(torch.empty(1, *shape)).shape[1:])
        if tuple(row.shape) != wanted:
            raise ValueError(f"baseline has shape {tuple(row.shape)}, expected {wanted}, that of one row of X.")
        if not row.isfinite().all():
            raise ValueError("baseline contains NaN or infinity.")
        arranged = self.given.shape.arrange(row[None]) / self.data.rows.divisor
        return (arranged + self._zero(1)).float().expand(len(rival), *shape)

    def _zero(self, n: int) -> Tensor:
        """n samples of zeros, as the model sees them."""
        zeros = torch.zeros(n, *self.data.row_shape, device=self.data.device)
        origin = self.estimator.origin_
        return zeros if origin is None else (zeros.double() - torch.from_numpy(origin).to(zeros.device)).float()


def decoded_centers(estimator: Any) -> Tensor | None:
    """What each cluster looks like, as the model sees samples, `(k, *row_shape)`; None for one that cannot say."""
    if not hasattr(getattr(estimator.model_, "autoencoder", None), "decode"):
        return None
    return estimator._decoded(torch.from_numpy(estimator.cluster_centers_)).cpu()


def input_scale(estimator: Any) -> np.ndarray:
    """What the network divides each feature by, (f,): a unit in which features can be compared."""
    scale = estimator.model_.autoencoder.scale.detach().double().cpu()
    return np.asarray(scale.expand(estimator.shape_.row).flatten().numpy())


def names_of(estimator: Any, given: Sequence[str] | None) -> list[str] | None:
    """Names of the input features: the caller's, the data frame's, or x0, x1, ...; images have none."""
    if len(estimator.shape_.row) == 3:
        return None
    width, reading = int(np.prod(estimator.shape_.row)), getattr(estimator, "columns_", None)
    known = getattr(estimator, "feature_names_in_", None) if reading is None else reading.features
    names = known if given is None else given
    if names is None:
        return [f"x{i}" for i in range(width)]
    if len(names) != width:
        raise ValueError(f"feature_names has {len(names)} names for {width} features.")
    return [str(name) for name in names]


def contribute(
    logits: Logits, z: Tensor, cluster: Tensor, rival: Tensor, margin: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Contributions (n, d), bias (n,), what the contributions miss (n,), in float64, and whether they stopped early."""
    if logits.linear is not None:
        weight, b = logits.linear
        values, bias = (weight[cluster] - weight[rival]) * z, b[cluster] - b[rival]
        return values, bias, torch.zeros_like(margin), torch.zeros_like(cluster, dtype=torch.bool)
    found = integrated_gradients(
        lambda part, rows: logits.margin(part, cluster[rows], rival[rows]), z, torch.zeros_like(z)
    )
    error = torch.where(cluster == rival, 0.0, found.error)
    return found.values, margin - found.values.sum(1), error, found.stopped


def attribute(
    subject: Subject,
    z: Tensor,
    cluster: Tensor,
    rival: Tensor,
    margin: Tensor,
    baseline: Baseline,
) -> Attribution:
    """The margins, carried back to the input.

    Without a network the input is the embedding, and against the point halfway between the two centres every
    feature has its exact share, `α (|z_d - Ω_ld|² - |z_d - Ω_jd|²)`. With one, integrated gradients.
    """
    data, logits = subject.data, subject.logits
    if logits.of_inputs and logits.linear is not None:
        weight, _ = logits.linear
        centers = torch.as_tensor(subject.estimator.cluster_centers_, dtype=z.dtype, device=z.device)
        middle = (centers[cluster] + centers[rival]) / 2
        values = (weight[cluster] - weight[rival]) * (z - middle)
        start = margin - values.sum(1)
        return Attribution(values, start, margin, torch.zeros_like(margin), torch.zeros_like(margin, dtype=torch.bool))
    x = data.take_checked(torch.arange(len(data), device=data.device))

    def target(samples: Tensor, index: Tensor) -> Tensor:
        return logits.margin(logits.embed(samples), cluster[index], rival[index])

    return integrated_gradients(target, x, subject.baseline(baseline, rival))
