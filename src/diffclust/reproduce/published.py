"""The papers' own figures, as printed: published.csv, one figure a line with the table it stands in.

SAIP is "Deep Clustering With Sample-Assignment Invariance Prior", an earlier paper of the authors.
"""

import csv
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files


@dataclass
class Line:
    """One line of a published table. Figures are text, because some are ranges. `spreads` has the standard deviations
    that are printed."""

    dataset: str
    method: str
    variant: str
    figures: dict[str, str] = field(default_factory=dict)
    spreads: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> tuple[str, str, str]:
        return self.dataset, self.method, self.variant

    @property
    def label(self) -> str:
        return ", ".join(filter(None, [self.method, self.variant]))

    def cell(self, metric: str) -> str:
        """The figure with its standard deviation, or the range that is printed instead."""
        figure = self.figures.get(metric, self.figures.get(f"{metric}_range", ""))
        return f"{figure} ± {self.spreads[metric]}" if metric in self.spreads else figure


@cache
def _all() -> dict[tuple[str, str], list[Line]]:
    tables: dict[tuple[str, str], dict[tuple[str, str, str], Line]] = {}
    text = files(__package__).joinpath("published.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        name = row["dataset"], row["method"], row["variant"]
        line = tables.setdefault((row["paper"], row["table"]), {}).setdefault(name, Line(*name))
        line.figures[row["metric"]] = row["value"]
        if row["std"]:
            line.spreads[row["metric"]] = row["std"]
        if row["note"] and row["note"] not in line.notes:
            line.notes.append(row["note"])
    return {table: list(lines.values()) for table, lines in tables.items()}


def published(paper: str, table: str) -> list[Line]:
    """The lines of a table, in the printed order."""
    return _all()[paper, table]
