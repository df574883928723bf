"""Runs as lines of CSV files, one file per table. A run that several tables share is recorded once.

NAME.csv has a line for every run: what was run, its scores, and on which machine. NAME.curves.csv has its scores and
losses over the epochs. Lines are only appended.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .spec import Spec, key

RECORDED_SCORES = (
    *("acc", "nmi", "nmi_geometric", "ari", "ami", "homogeneity", "completeness", "v_measure", "pair_precision"),
    "acc_validation",  # on the samples that the other scores leave out, if there are any
)
LABEL_FREE = ("clustering_loss", "scatter", "reconstruction", "effective_clusters")
PLACE = ("epochs", "seconds", "device", "threads", "precision", "diffclust", "torch", "scikit-learn")
FIELDS = ("data", "method", "settings", "seed", "restart", *RECORDED_SCORES, *LABEL_FREE, *PLACE)
EARLIER = tuple(  # columns of older files, which lack some
    tuple(name for name in FIELDS if name not in late)
    for late in (("acc_validation",), ("acc_validation", "pair_precision"))
)
CURVE = ("run", "epoch", "acc", "nmi", "ari", "reconstruction", "clustering")


@dataclass
class Outcome:
    """One run. `seed` is the random_state of the fit, `restart` its number among the fit's restarts."""

    data: str
    method: str
    settings: str
    seed: int
    restart: int
    figures: dict[str, float]  # scores in percent, label-free figures as they are; missing ones are left out
    place: dict[str, str]
    curve: list[dict[str, float]] = field(default_factory=list)

    @property
    def what(self) -> tuple[str, str, str]:
        return self.data, self.method, self.settings

    @property
    def name(self) -> str:
        """The key of its curve."""
        return f"{key(*self.what)}-{self.seed}-{self.restart}"

    def to_line(self) -> dict[str, Any]:
        exact = {
            name: f"{self.figures[name]:.4f}" if name in RECORDED_SCORES else self.figures[name]
            for name in self.figures
        }
        return {**{name: getattr(self, name) for name in FIELDS[:5]}, **exact, **self.place}

    @classmethod
    def from_line(cls, line: dict[str, str]) -> "Outcome":
        if None in line or None in line.values():
            raise ValueError(f"it does not have {len(FIELDS)} columns")
        figures = {name: float(line[name]) for name in (*RECORDED_SCORES, *LABEL_FREE) if line.get(name)}
        place = {name: line[name] for name in PLACE}
        return cls(
            line["data"], line["method"], line["settings"], int(line["seed"]), int(line["restart"]), figures, place
        )


class Records:
    """All runs of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outcomes: list[Outcome] = []
        for path in sorted(folder.glob("*.csv")):
            if not path.name.endswith(".curves.csv"):
                self._read(path)

    def _read(self, path: Path) -> None:
        fields = _fields(path)
        lines = _lines(path, fields) if fields else None
        if lines is None:
            return  # the file of another benchmark
        curves: dict[str, dict[int, dict[str, float]]] = {}
        beside = path.with_suffix(".curves.csv")
        for line in (_lines(beside, CURVE) or []) if beside.exists() else []:
            point = {name: float(line[name]) for name in CURVE[1:] if line[name]}
            curves.setdefault(line["run"], {})[int(line["epoch"])] = point  # of a repeated run the last counts
        for number, line in enumerate(lines):
            try:
                outcome = Outcome.from_line(line)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{path}, line {number + 2}, is not a run: {error}.") from error
            outcome.curve = list(curves.get(outcome.name, {}).values())
            self.outcomes.append(outcome)

    def of(self, spec: Spec) -> list[Outcome]:
        what = (spec.data, spec.method, spec.text)
        found = {(o.seed, o.restart): o for o in self.outcomes if o.what == what}
        return [found[place] for place in sorted(found)]

    def add(self, file: str, outcomes: Sequence[Outcome]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        points = [{"run": outcome.name, **point} for outcome in outcomes for point in outcome.curve]
        if points:
            _append(self.folder / f"{file}.curves.csv", CURVE, points)
        _append(self.folder / f"{file}.csv", FIELDS, [outcome.to_line() for outcome in outcomes])
        self.outcomes += outcomes


def _fields(path: Path) -> Sequence[str] | None:
    """The columns of a file of runs; None if it is another kind of file."""
    return next((fields for fields in (FIELDS, *EARLIER) if _lines(path, fields) is not None), None)


def _lines(path: Path, fields: Sequence[str]) -> list[dict[str, str]] | None:
    """The lines of a file; None if it has other columns."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        return list(reader) if tuple(reader.fieldnames or ()) == tuple(fields) else None


def _append(path: Path, fields: Sequence[str], lines: Iterable[dict[str, Any]]) -> None:
    """Append with a single write, so that a kill leaves no incomplete line."""
    text = io.StringIO()
    if fields == FIELDS and path.exists():
        fields = _fields(path) or FIELDS
    writer = csv.DictWriter(text, fields, restval="", extrasaction="ignore", lineterminator="\n")
    if not path.exists():
        writer.writeheader()
    elif _lines(path, fields) is None:
        raise ValueError(f"{path} has other columns than {', '.join(fields)}: give another folder.")
    writer.writerows(lines)
    with path.open("a", newline="", encoding="utf-8") as file:
        file.write(text.getvalue())
