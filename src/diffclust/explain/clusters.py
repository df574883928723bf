"""What is this cluster?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ..engine.data import CHUNK, Data
from ..engine.rows import SparseRows
from ..reading.frames import is_frame
from ..reading.tables import Columns
from . import words
from .rows import Subject, decoded_centers, input_scale, names_of
from .tables import ColumnFact, column_facts


@dataclass(frozen=True, eq=False)
class ClusterExplanation:
    """A cluster: its size, tightness, nearest clusters, appearance and members.

    Attributes:
        tightness: mean squared distance of the members to the centre; `relative_tightness` is relative to the mean over
            all rows.
        neighbours: other clusters with the distance between centres, nearest first.
        decoded: the centre as a sample of the shape that `fit` was given.
        typical: row numbers of X, nearest to the centre first.
        doubtful: row numbers of X, smallest margin first.
        features: distinctive features, as (name, difference). With X, the mean of the members minus that of the others,
            in standard deviations of the feature; without, the decoded centre minus the mean of the other decoded
            centres, in the units of the network. None for images: see `difference`, that difference as an image.
        columns: for a table, with X: each column against the whole table, most distinctive first.
        doubt: share of all rows that have a larger margin than the most doubtful row of the cluster.
    """

    cluster: int
    size: int
    share: float
    tightness: float | None
    relative_tightness: float | None
    neighbours: list[tuple[int, float]]
    center: np.ndarray
    decoded: np.ndarray | None
    difference: np.ndarray | None
    typical: list[int] | None
    doubtful: list[tuple[int, float, int]] | None  # row, margin, runner-up
    features: list[tuple[str, float]] | None
    columns: list[ColumnFact] | None = None
    doubt: float | None = None

    @property
    def sentence(self) -> str:
        """The explanation in words."""
        near = words.listing(f"{j} (at {distance:.3g})" for j, distance in self.neighbours[:2])
        parts = [f"Cluster {self.cluster} has {self.size:,} rows, {100 * self.share:.1f} % of all."]
        if self.size and self.neighbours and self.relative_tightness is not None:
            how = "tighter" if self.relative_tightness < 1 else "looser"
            parts.append(f"It is {how} than the average: {self.relative_tightness:.2f} of the mean squared distance.")
        if near:
            parts.append(f"Its nearest {'cluster is' if len(self.neighbours) == 1 else 'clusters are'} {near}.")
        if self.columns:
            parts.append(f"It stands out by {self.said}.")
        elif self.columns is not None and self.size:
            parts.append("No column stands out.")
        elif self.features:
            parts.append(f"It stands out by {words.weighted(self.features[:5])}.")
        if self.typical:
            parts.append(f"Most typical are rows {words.listing(map(str, self.typical[:3]))}.")
        if self.doubtful:
            row, margin, rival = self.doubtful[0]
            beside = "" if self.doubt is None else f", smaller than that of {100 * self.doubt:.0f} % of all rows"
            parts.append(f"Most doubtful is row {row}: its margin to cluster {rival} is {margin:.3g}{beside}.")
        if self.typical is None:
            parts.append("Pass rows X to see which rows are in the cluster.")
        return " ".join(parts)

    @property
    def said(self) -> str:
        """The distinctive columns in words, with the table's names; empty if there is no table."""
        return words.listing(fact.sentence for fact in (self.columns or [])[:4])

    def __str__(self) -> str:
        return self.sentence

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain lists and numbers."""
        columns = None if self.columns is None else [fact.to_dict() for fact in self.columns]
        names = (
            "cluster", "size", "share", "tightness", "relative_tightness", "neighbours", "center", "decoded",
            "difference", "typical", "doubtful", "doubt", "features", "sentence",
        )  # fmt: skip
        return {**{name: words.plain(getattr(self, name)) for name in names}, "columns": columns}

    def _repr_html_(self) -> str:
        parts = [words.paragraph(self.sentence)]
        if self.features:
            parts.append(words.bars(self.features))
        elif self.decoded is not None and self.difference is not None:
            image = self.decoded if self.decoded.shape[-1] in (1, 3) or self.decoded.ndim == 2 else self.decoded[0]
            apart = self.difference if image is self.decoded else self.difference[0]
            low, high = float(image.min()), float(image.max())
            shown = (image - low) / ((high - low) or 1.0)
            parts.append(
                words.picture(shown, "decoded centre")
                + words.picture(apart, "more (green) or less (red) than the others", signed=True)
            )
        return words.card(f"Cluster {self.cluster}", *parts)


@dataclass(frozen=True)
class Census:
    """All rows of X, measured once: enough to describe every cluster."""

    subject: Subject
    z: Tensor  # (n, d)
    labels: np.ndarray
    runner_up: np.ndarray
    margin: np.ndarray
    probability: np.ndarray
    distance: np.ndarray  # squared, to the own centre
    means: np.ndarray  # of the features in each cluster, (k, f)
    spread: np.ndarray  # standard deviation of each feature over all rows, (f,)

    @classmethod
    def of(cls, subject: Subject) -> "Census":
        data, logits = subject.data, subject.logits
        z, scores, p = logits.measure(data)
        k = scores.shape[1]
        best = scores.topk(min(2, k), dim=1)
        centers = torch.as_tensor(subject.estimator.cluster_centers_, dtype=z.dtype, device=z.device)
        labels = scores.argmax(1)
        distance = (z - centers[labels]).square().sum(1) if centers.shape[1] == z.shape[1] else -best.values[:, 0]
        means, spread = group_means(subject, labels, k)
        return cls(
            subject=subject,
            z=z,
            labels=labels.cpu().numpy(),
            runner_up=best.indices[:, -1].cpu().numpy(),
            margin=(best.values[:, 0] - best.values[:, -1]).cpu().numpy(),
            probability=p.gather(1, labels[:, None])[:, 0].cpu().numpy(),
            distance=distance.cpu().numpy(),
            means=means,
            spread=spread,
        )

    def typical(self, j: int, n: int) -> list[int]:
        members = np.flatnonzero(self.labels == j)
        return members[np.argsort(self.distance[members], kind="stable")[:n]].tolist()

    def doubtful(self, n: int, j: int | None = None) -> list[int]:
        rows = np.arange(len(self.labels)) if j is None else np.flatnonzero(self.labels == j)
        return rows[np.argsort(self.margin[rows], kind="stable")[:n]].tolist()

    def facts(self, j: int) -> list[ColumnFact] | None:
        """Of a table, cluster j column by column."""
        reading = getattr(self.subject.estimator, "columns_", None)
        sizes = np.bincount(self.labels, minlength=len(self.means))
        return column_facts(reading, self.means, self.spread, sizes, j) if reading is not None and sizes[j] else None

    def contrast(self, j: int) -> np.ndarray:
        """The members' mean less the others', in standard deviations: (f,)"""
        sizes = np.bincount(self.labels, minlength=len(self.means))
        others = np.delete(np.arange(len(self.means)), j)
        if sizes[j] == 0 or sizes[others].sum() == 0:
            return np.zeros_like(self.spread)
        rest = np.average(self.means[others], axis=0, weights=sizes[others])
        return (self.means[j] - rest) / np.where(self.spread > 0, self.spread, np.inf)


def group_means(subject: Subject, groups: Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean of every feature in each of k groups of rows, in the user's numbers, and its deviation over all rows."""
    means, spread = _moments(subject.data, groups, k)
    as_given = subject.estimator._as_given(torch.from_numpy(means).reshape(k, *subject.data.row_shape))
    return as_given.flatten(1).numpy(), spread


def _moments(data: Data, labels: Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean of every feature in each cluster and its deviation over all rows, in one pass."""
    width = int(np.prod(data.row_shape))
    sums = torch.zeros(k, width, dtype=torch.float64, device=data.device)
    squares = torch.zeros(width, dtype=torch.float64, device=data.device)
    for index in torch.arange(len(data), device=data.device).split(CHUNK):
        x = data.take(index).flatten(1).double()
        sums.index_add_(0, labels[index], x)
        squares += x.square().sum(0)
    sizes = torch.bincount(labels, minlength=k).clamp_min(1)[:, None]
    mean = sums.sum(0) / len(data)
    spread = (squares / len(data) - mean.square()).clamp_min(0).sqrt()
    return (sums / sizes).cpu().numpy(), spread.cpu().numpy()


def explain_cluster(
    estimator: Any, j: int, X: Any = None, *, feature_names: Sequence[str] | None, n: int
) -> ClusterExplanation:
    check_is_fitted(estimator)
    check_cluster(estimator, j)
    if X is None:
        return describe_cluster(estimator, j, None, names_of(estimator, feature_names), n)
    subject = Subject.of(estimator, X, feature_names)
    return describe_cluster(estimator, j, Census.of(subject), subject.feature_names, n)


def cluster_facts(
    estimator: Any, X: Any, shown: Any = None, labels: np.ndarray | None = None
) -> list[list[ColumnFact]] | None:
    """What sets each cluster of the rows X apart, by the columns of their table, or of what is `shown`, a table or
    texts; None where there is none. `labels` are those of the rows shown: by default of the fitted ones."""
    reading = getattr(estimator, "columns_", None)
    k = len(estimator.cluster_centers_)
    if reading is not None:
        census = Census.of(Subject.of(estimator, X))
        return [census.facts(j) or [] for j in range(k)]
    if is_frame(shown):
        reading = Columns.fit(shown)
        rows = Data(SparseRows(sp.csr_matrix(reading.transform(shown))), torch.device("cpu"))
        labels = estimator.labels_ if labels is None else labels
        means, spread = _moments(rows, torch.from_numpy(labels), k)
        sizes = np.bincount(labels, minlength=k)
        return [column_facts(reading, means, spread, sizes, j) if sizes[j] else [] for j in range(k)]
    return None


def check_cluster(estimator: Any, j: Any) -> None:
    k = len(estimator.cluster_centers_)
    if isinstance(j, bool) or not isinstance(j, (int, np.integer)):
        raise TypeError(f"cluster={j!r} should be an integer.")
    if not 0 <= j < k:
        raise ValueError(f"cluster={j} should be from 0 to {k - 1}: there are {k} clusters.")


def describe_cluster(
    estimator: Any, j: int, census: Census | None, names: list[str] | None, n: int
) -> ClusterExplanation:
    """One cluster; `census` is of the rows at hand, if any."""
    centers = np.asarray(estimator.cluster_centers_, dtype=np.float64)
    away = np.sqrt(((centers - centers[j]) ** 2).sum(1))
    order = [i for i in np.argsort(away, kind="stable").tolist() if i != j]
    pictures = decoded_centers(estimator)
    decoded = None if pictures is None else estimator.shape_.restore(estimator._as_given(pictures)).numpy()
    difference = None
    if decoded is not None:
        others = np.delete(decoded, j, axis=0)
        difference = decoded[j] - (others.mean(0) if len(others) else decoded[j])
    labels = estimator.labels_ if census is None else census.labels
    size = int((labels == j).sum())
    features = None
    if names is not None and census is not None:
        features = words.heaviest(names, census.contrast(j), n)
    elif names is not None and difference is not None:
        features = words.heaviest(names, difference.ravel() / input_scale(estimator), n)
    tightness = relative = typical = doubtful = None
    if census is not None:
        typical = census.typical(j, n)
        unsure = census.doubtful(n, j) if order else []  # with no other cluster there is no doubt
        doubtful = [(i, float(census.margin[i]), int(census.runner_up[i])) for i in unsure]
        if size:
            tightness = float(census.distance[labels == j].mean())
            relative = tightness / max(float(census.distance.mean()), 1e-300)
    return ClusterExplanation(
        cluster=int(j),
        size=size,
        share=size / len(labels),
        tightness=tightness,
        relative_tightness=relative,
        neighbours=[(i, float(away[i])) for i in order],
        center=np.asarray(estimator.cluster_centers_[j]),
        decoded=None if decoded is None else decoded[j],
        difference=difference,
        typical=typical,
        doubtful=doubtful,
        features=features,
        columns=None if census is None else census.facts(j),
        doubt=None if census is None or not doubtful else float((census.margin > doubtful[0][1]).mean()),
    )
