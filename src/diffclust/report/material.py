"""What a report is made from: the model, its rows, and what the caller says of them.

Of many rows a sample is drawn: every row that a card names, and evenly spaced others.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..callbacks import TrainingRecord
from ..engine.rows import SparseRows
from ..explain.clusters import Census
from ..explain.rows import Explanations, explain_subject
from ..explain.tables import blank_cells, some_rows
from ..reading.frames import is_frame
from .layout import Layout
from .names import Names

CARDS = 100  # clusters with a card of their own
NAMED = 6  # typical and doubtful rows on a card
DOUBTFUL = 24  # rows listed as most doubtful of all

SampleKind = Literal["image", "text", "table"]


@dataclass(frozen=True, kw_only=True, eq=False)
class ReportOptions:
    """What the caller says of the rows and of the page; `ExplanationMixin.report` explains each."""

    record: TrainingRecord | None = None
    captions: Sequence[str] | None = None
    texts: Sequence[str] | None = None
    thumbnails: Any = None
    names: Names | Mapping[int, str] | str | os.PathLike[str] | None = None
    feature_names: Sequence[str] | None = None
    title: str | None = None
    sample: int = 2000
    layout: Layout = "t-SNE"

    def __post_init__(self) -> None:
        for name in ("captions", "texts"):  # by position, also of a Series
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, list(given))

    def check(self, n: int, y: Any) -> None:
        """That there is one of each for n rows."""
        for name in ("captions", "texts", "thumbnails"):
            given = getattr(self, name)
            if given is not None and len(given) != n:
                raise ValueError(f"{name} has {len(given)} entries for {n} rows.")
        if y is not None and len(y) != n:
            raise ValueError(f"y has {len(y)} labels for {n} rows.")


@dataclass(frozen=True)
class Material:
    """What a report is made from, measured once."""

    estimator: Any
    census: Census
    rows: list[int]  # the sample, as row numbers of X
    explanations: Explanations  # of the sample
    kind: SampleKind
    captions: Sequence[str] | None
    texts: Sequence[str] | None = None  # that the words of a cluster are looked for in
    thumbnails: Any = None
    blank: np.ndarray | None = None  # (n, columns), which cells of the sample were blank

    @property
    def place(self) -> dict[int, int]:
        """Row number -> position in the sample."""
        return {row: i for i, row in enumerate(self.rows)}


def gather(census: Census, rows: list[int], X: Any, options: ReportOptions) -> Material:
    """What the page can show of the rows: pictures, texts, or the columns of a table. A table that has a text or names
    says itself what to call its rows."""
    subject, estimator = census.subject, census.subject.estimator
    captions, reading = options.captions, getattr(estimator, "columns_", None)
    if captions is None and options.texts is not None:
        captions = options.texts
    if captions is None and reading is not None and is_frame(X):
        captions = reading.captions(X)
    sparse, images = isinstance(subject.given.rows, SparseRows), len(subject.data.row_shape) == 3
    is_text = options.texts is not None or (sparse and captions is not None)
    kind: SampleKind = "image" if images else "text" if is_text else "table"
    texts = options.texts if options.texts is not None else captions if is_text else None
    blank = None if reading is None or not is_frame(X) else blank_cells(reading, some_rows(X, rows))
    explanations = explain_subject(subject.at(rows))
    return Material(estimator, census, rows, explanations, kind, captions, texts, options.thumbnails, blank)


def fingerprint(census: Census) -> str:
    """By which a browser knows again whose names it keeps: of the labels and the centres."""
    centers = np.ascontiguousarray(census.subject.estimator.cluster_centers_, dtype=np.float64)
    return hashlib.sha256(census.labels.astype(np.int64).tobytes() + centers.tobytes()).hexdigest()[:16]


def choose_rows(census: Census, sample: int, also: Sequence[int] = ()) -> list[int]:
    """Every row that a card names, and `also` these, then evenly spaced others, in order."""
    n, shown = len(census.labels), shown_clusters(census)
    each = max(1, min(NAMED, sample // (4 * len(shown))))
    named = {i for j in shown for i in (*census.typical(j, each), *census.doubtful(each, j))}
    named |= {*census.doubtful(DOUBTFUL), *also}
    others = np.linspace(0, n - 1, min(n, sample)).astype(int)
    others = others[~np.isin(others, list(named))]
    keep = max(0, sample - len(named))
    spread = others[np.linspace(0, len(others) - 1, keep).astype(int)] if keep < len(others) else others
    return sorted(named | set(spread.tolist()))


def shown_clusters(census: Census) -> list[int]:
    """All clusters, or the largest where there are very many; in their order."""
    sizes = np.bincount(census.labels, minlength=len(census.means))
    return sorted(np.argsort(-sizes, kind="stable")[:CARDS].tolist())


def number(value: float) -> float:
    return float(f"{value:.4g}")


def numbers(values: Any) -> list[float]:
    return [number(v) for v in np.asarray(values, dtype=float).ravel().tolist()]
