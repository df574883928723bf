"""A table of a paper as data: its rows, and what is run for each. This module has no slow imports."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from hashlib import sha256
from itertools import chain, count, islice
from typing import Any, Literal

from ..methods import METHODS

NOT_SETTINGS = ("n_init", "select")  # the table decides how many runs there are and which one is kept
QUICK_ROWS, QUICK_EPOCHS = 400, 2


def key(data: str, method: str, text: str) -> str:
    """A short name for the files of a run."""
    return f"{data}-{method}-{sha256(json.dumps([data, method, text]).encode()).hexdigest()[:10]}"


def written(value: Any) -> str:
    """A setting that is code, such as an optimiser with its rate, as text."""
    if isinstance(value, partial):
        options = [f"{name}={option}" for name, option in sorted(value.keywords.items())]
        return f"{value.func.__name__}({', '.join([*map(str, value.args), *options])})"
    raise TypeError(f"{value!r} cannot be a setting of a row: it has no text that stays the same")


@dataclass(frozen=True)
class Spec:
    """What is run: a method with its settings on a data set.

    Args:
        data: a name for `datasets.load`.
        method: a name of `METHODS`, or a classical one of `baselines.BASELINES`.
        paper: name of the paper's own settings to start from.
        changes: settings on top of them.
        features: cluster the embedding by the network of this run, trained with the same seed, instead of the samples.
            Rows that are compared on one embedding share it.
        unit_length: scale each sample to length one first.
        rows: number of samples, drawn by a fixed seed; 0: all.
        start: number of samples that a model is fitted on before a stream; they are not part of the stream.
        arriving: the first so many samples arrive as a stream, in an order drawn by the seed, and the labels that they
            get at arrival are scored. 0: no stream.
        begins: start from the trained network and the centres of this run, with the same seed.
        shared: other runs start from it or read it, so its model stays in the checkpoint folder.
        reads: train nothing, but use the model of this run, of the same seed, with the settings in which the two
        differ.
        validation: share of the samples, the same for all runs, that is used for training but not scored. Its accuracy
            is recorded separately, for a search by labels. 0: all are scored.
    """

    data: str
    method: str
    paper: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    features: "Spec | None" = None
    unit_length: bool = False
    rows: int = 0
    start: int = 0
    arriving: int = 0
    begins: "Spec | None" = None
    shared: bool = False
    reads: "Spec | None" = None
    validation: float = 0.0

    @property
    def where(self) -> str:
        """The data on which its scores can be compared with others."""
        return f"{self.data}, online" if self.arriving else self.data

    @property
    def is_ours(self) -> bool:
        return any(method.name == self.method for method in METHODS)

    def estimator(self) -> Any:
        """The class of one of our methods."""
        return next(method for method in METHODS if method.name == self.method).load()

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All explicit settings, those of the paper and `changes`."""
        start = self.estimator().papers[self.paper] if self.paper else {}
        return {name: value for name, value in {**start, **self.changes}.items() if name not in NOT_SETTINGS}

    def describe(self) -> dict[str, Any]:
        """Everything that defines the run, except data and method."""
        kept: dict[str, Any] = dict(self.settings)
        if self.features is not None:
            kept["features"] = {"method": self.features.method, **self.features.describe()}
        if self.unit_length:
            kept["unit_length"] = True
        if self.rows:
            kept["rows"] = self.rows
        if self.arriving:
            kept["stream"] = [self.start, self.arriving]
        if self.begins is not None:
            start = replace(self.begins, validation=0.0)  # which samples are scored does not change it
            kept["begins"] = {"method": start.method, **start.describe()}
        if self.validation:
            kept["validation"] = self.validation
        return kept

    @cached_property
    def text(self) -> str:
        """`describe` as one line of JSON, by which runs are found in the results file."""
        return json.dumps(self.describe(), sort_keys=True, default=written)

    @cached_property
    def key(self) -> str:
        return key(self.data, self.method, self.text)

    def with_weight(self, weight: float) -> "Spec":
        """The same run with another weight of the clustering loss, λ in most papers."""
        return replace(self, changes={**self.changes, "weight": weight})

    def quick(self) -> "Spec":
        """A small version for tests: few samples and epochs."""
        changes = dict(self.changes)
        if self.is_ours:
            known = self.settings
            for name in ("epochs", "pretrain_epochs"):
                wish = known.get(name, QUICK_EPOCHS)
                changes[name] = QUICK_EPOCHS if isinstance(wish, str) else min(wish, QUICK_EPOCHS)
        start, arriving = (QUICK_ROWS // 4, QUICK_ROWS // 2) if self.arriving else (0, 0)
        return replace(
            self,
            changes=changes,
            features=self.features.quick() if self.features is not None else None,
            begins=self.begins.quick() if self.begins is not None else None,
            reads=self.reads.quick() if self.reads is not None else None,
            rows=QUICK_ROWS,
            start=start,
            arriving=arriving,
        )


@dataclass(frozen=True)
class Row:
    """A line of a table: what is run, and the published line that it is compared with.

    Args:
        label: its name in the table.
        published: data set, method and variant of the published line, as in published.csv.
        rule: the label-free rule that keeps one of the runs.
        reason: shown if there are no runs.
        group: rows of one group differ only in their start; the standard deviation of their means is shown.
        x: its place on the axis of a sweep.
        seeds: the largest number of runs; 0: that of the table.
        weights: the values of `weight` (λ) that a search by validation labels chooses from: see `search.py`.
        by_labels: labels chose its settings, so it is not ranked among the others.
        part: the part of the paper's samples or epochs that it has, if that is too little for a verdict against the
        paper.
        shorter: the part of the paper's epochs that it has; its recorded curve shows whether a verdict is possible.
        other: what it is, if it is a network of ours and no reading of the paper.
    """

    label: str
    spec: Spec | None = None
    published: tuple[str, str, str] | None = None
    rule: Literal["loss", "scatter"] | None = None
    reason: str = "not run yet"
    group: str = ""
    x: float = 0.0
    seeds: int = 0
    weights: tuple[float, ...] = ()
    by_labels: bool = False
    part: str = ""
    shorter: str = ""
    other: str = ""

    def wanted(self, seeds: int) -> int:
        """The number of runs, if the table has `seeds`."""
        return min(seeds, self.seeds or seeds)


SCORES: dict[str, str] = {"ACC": "acc", "NMI": "nmi", "ARI": "ari"}


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper.

    Args:
        name: PAPER/TABLE on the command line.
        source: paper and table in published.csv. Its lines without a row of ours are shown too, and marked.
        metrics: printed name -> column of the results file.
        layout: "scores" (a line per row), "runs" (every run with its clustering loss) or "sets" (a column per data
        set).
        figure: "curves" over epochs, or a "sweep" of a setting (named by `axis`).
        whole: False leaves out the published lines without a row of ours.
        random_states: the authors' seeds in their order; by default 0, 1, 2 and so on.
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    source: tuple[str, str] | None = None
    metrics: Mapping[str, str] = field(default_factory=lambda: SCORES)
    layout: Literal["scores", "runs", "sets"] = "scores"
    figure: Literal["", "curves", "sweep"] = ""
    axis: str = ""
    notes: str = ""
    seeds: int = 5
    whole: bool = True
    random_states: tuple[int, ...] = ()

    @property
    def file(self) -> str:
        return self.name.replace("/", "-")

    def numbers(self, seeds: int) -> list[int]:
        """The first `seeds` random states."""
        return list(islice(chain(self.random_states, count()), seeds))

    def only(self, wanted: Sequence[str]) -> "PaperTable":
        """The rows whose name, such as "mnist: TELL, CNN", contains one of the texts, without the other published
        lines. A text that is the whole name of a row chooses only that row."""
        names = [f"{row.spec.where}: {row.label}" if row.spec else row.label for row in self.rows]
        known, texts = {name.lower() for name in names}, [text.lower() for text in wanted]
        kept = tuple(
            row
            for row, name in zip(self.rows, map(str.lower, names), strict=True)
            if any(text == name if text in known else text in name for text in texts)
        )
        if not kept:
            said = ", ".join(map(repr, wanted))
            raise ValueError(f"No row of {self.name} has {said} in it. There are: {'; '.join(dict.fromkeys(names))}.")
        return replace(self, rows=kept, whole=False)

    def quick(self) -> "PaperTable":
        return replace(self, rows=tuple(replace(r, spec=r.spec.quick() if r.spec else None) for r in self.rows))
