"""A table of a paper as data: which rows it has, and what is run for each. Nothing heavy is imported here."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from hashlib import sha256
from itertools import chain, count, islice
from typing import Any, Literal

from ..methods import METHODS

NOT_SETTINGS = ("n_init", "select")  # how many runs there are and which is kept is the table's business
QUICK_ROWS, QUICK_EPOCHS = 400, 2


def key(data: str, method: str, text: str) -> str:
    """A short name for files of what is run."""
    return f"{data}-{method}-{sha256(json.dumps([data, method, text]).encode()).hexdigest()[:10]}"


def written(value: Any) -> str:
    """A setting that is code, such as an optimiser with its rate, as one would write it."""
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
        paper: begin with the paper's own settings of this name.
        changes: settings on top of them.
        features: cluster what this one's network makes of the samples instead, trained with the same seed. Methods and
            starts that are compared on one embedding then share it.
        unit_length: each sample is brought to length one first.
        rows: so many samples, drawn by a fixed seed; 0 for all.
        start: samples of the fit that a stream begins with, none of them among those that arrive.
        arriving: a stream of the first so many samples, in the seed's order; the method is scored by the labels that
            samples are given on arrival. 0: all at once.
        begins: begin with the trained network and the centres of this one, of the same seed.
        shared: others begin with it or read it, so it stays in the checkpoint folder once it is trained.
        reads: nothing is trained; this one's model, of the same seed, answers by the settings in which the two differ.
        validation: this share of the samples, the same for all runs, is trained on but not scored: its accuracy stands
            apart, for a search by labels. 0: all are scored.
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
        """What its scores can be compared on."""
        return f"{self.data}, online" if self.arriving else self.data

    @property
    def is_ours(self) -> bool:
        return any(method.name == self.method for method in METHODS)

    def estimator(self) -> Any:
        """The class, for one of our methods."""
        return next(method for method in METHODS if method.name == self.method).load()

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All that is set explicitly, in the paper's settings or here."""
        start = self.estimator().papers[self.paper] if self.paper else {}
        return {name: value for name, value in {**start, **self.changes}.items() if name not in NOT_SETTINGS}

    def describe(self) -> dict[str, Any]:
        """Everything that makes the run what it is, but data and method."""
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
            start = replace(self.begins, validation=0.0)  # it is the same, whatever is scored of it
            kept["begins"] = {"method": start.method, **start.describe()}
        if self.validation:
            kept["validation"] = self.validation
        return kept

    @cached_property
    def text(self) -> str:
        """`describe` as one line of JSON: what the results file keeps, and what runs are found by."""
        return json.dumps(self.describe(), sort_keys=True, default=written)

    @cached_property
    def key(self) -> str:
        return key(self.data, self.method, self.text)

    def with_weight(self, weight: float) -> "Spec":
        """With another weight of the clustering loss: λ, in most papers."""
        return replace(self, changes={**self.changes, "weight": weight})

    def quick(self) -> "Spec":
        """A small version: few samples, hardly any training."""
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
    """A line of a table: what is run, and whose published figures stand beside it.

    Args:
        label: ours.
        published: data set, method and variant of the published line, as in published.csv.
        rule: the label-free rule that keeps one of the runs.
        reason: shown where there are no runs.
        group: rows of one group differ in the start alone; the spread of their means is given.
        x: place on the axis of a sweep.
        seeds: at most so many runs; 0 for as many as the other rows have.
        weights: the values of `weight` (λ) that a search by validation labels chooses from: see `search.py`.
        by_labels: labels chose its settings, so it is not ranked among the others.
        part: what it has of the paper's samples or epochs, where that is too little for a verdict against the paper.
        shorter: what it has of the paper's epochs; its recorded curve says whether that is enough for a verdict.
        other: what it is, where it is a network of ours and no reading of the paper.
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
        """How many runs, where the table has so many."""
        return min(seeds, self.seeds or seeds)


SCORES: dict[str, str] = {"ACC": "acc", "NMI": "nmi", "ARI": "ari"}


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper.

    Args:
        name: PAPER/TABLE on the command line.
        source: paper and table in published.csv; its lines that no row re-runs are shown too, and marked.
        metrics: name in print -> column of the results file.
        layout: "scores" (a line a row), "runs" (every run with its clustering loss) or "sets" (a column a data set).
        figure: "curves" over epochs, or a "sweep" of a setting (named by `axis`).
        whole: False leaves out the published lines that no row re-runs.
        random_states: the authors' own seeds, in their order; else 0, 1, 2 and so on.
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
        """The first so many seeds."""
        return list(islice(chain(self.random_states, count()), seeds))

    def only(self, wanted: Sequence[str]) -> "PaperTable":
        """The rows that one of the texts is part of, as in "mnist: TELL, CNN"; without the other published lines. Where
        a text is a row's whole name, that row alone."""
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
