"""The papers' figures: scores and losses over the epochs, or over a setting."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from .record import Outcome, Records
from .spec import PaperTable, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOSSES = ("reconstruction", "clustering")


def draw(table: PaperTable, records: Records, path: Path) -> bool:
    """Write the figure of a table as PNG. Returns False if no runs are recorded yet."""
    rows = [(row, records.of(row.spec)) for row in table.rows if row.spec]
    rows = [(row, outcomes) for row, outcomes in rows if outcomes]
    if table.figure == "curves":
        rows = [(row, kept) for row, outcomes in rows if (kept := [o for o in outcomes if o.curve])]
    if not rows:
        return False
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(f'Figures need matplotlib: pip install "diffclust[report]" ({error})') from error
    if table.figure == "curves":
        figure = Figure(figsize=(4.2 * len(rows), 5.6), layout="constrained")
        axes: Any = figure.subplots(2, len(rows), sharex="col", squeeze=False)
        for column, (row, outcomes) in enumerate(rows):
            _scores_over_epochs(axes[0, column], row, outcomes)
            _losses_over_epochs(axes[1, column], outcomes)
    else:
        groups = list(dict.fromkeys(row.group for row, _ in rows))
        figure = Figure(figsize=(4.2 * len(groups), 3.6), layout="constrained")
        axes = figure.subplots(1, len(groups), sharey=True, squeeze=False)
        for axis, group in zip(axes[0], groups, strict=True):
            _sweep(axis, table, group, [pair for pair in rows if pair[0].group == group])
    figure.suptitle(table.title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return True


def _scores_over_epochs(axis: "Axes", row: Row, outcomes: Sequence[Outcome]) -> None:
    """Every run as a thin line, their mean as a thick one."""
    for color, name in zip(("C0", "C1", "C2"), ("acc", "nmi", "ari"), strict=True):
        for outcome in outcomes:
            axis.plot(*_points(outcome, name), color=color, linewidth=0.6, alpha=0.5)
        axis.plot(*_mean(outcomes, name), color=color, linewidth=2, label=name.upper())
    _percent(axis, f"{row.label} ({len(outcomes)} runs)")


def _percent(axis: "Axes", title: str) -> None:
    axis.set_title(title, fontsize=10)
    axis.set_ylabel("%")
    axis.set_ylim(0, 100)
    axis.grid(alpha=0.3)
    axis.legend(loc="best", fontsize=8)


def _losses_over_epochs(axis: "Axes", outcomes: Sequence[Outcome]) -> None:
    """Each loss on an axis of its own."""
    names = [name for name in LOSSES if any(name in point for outcome in outcomes for point in outcome.curve)]
    for color, name in zip(("C3", "C4"), names, strict=False):
        own = axis if name == names[0] else axis.twinx()
        for outcome in outcomes:
            own.plot(*_points(outcome, name), color=color, linewidth=0.8, alpha=0.6)
        own.set_ylabel(f"{name} loss", color=color)
        own.tick_params(axis="y", colors=color)
    axis.set_xlabel("epoch")
    axis.grid(alpha=0.3)


def _points(outcome: Outcome, name: str) -> tuple[list[float], list[float]]:
    points = [point for point in outcome.curve if name in point]
    return [point["epoch"] for point in points], [point[name] for point in points]


def _mean(outcomes: Sequence[Outcome], name: str) -> tuple[list[float], list[float]]:
    """The mean over runs, at the epochs that every run has."""
    curves = [dict(zip(*_points(outcome, name), strict=True)) for outcome in outcomes]
    epochs = sorted(set.intersection(*(set(curve) for curve in curves)))
    return epochs, [mean(curve[epoch] for curve in curves) for epoch in epochs]


def _sweep(axis: "Axes", table: PaperTable, group: str, rows: Sequence[tuple[Row, list[Outcome]]]) -> None:
    places = [row.x for row, _ in rows]
    for color, (name, column) in zip(("C0", "C1", "C2"), table.metrics.items(), strict=False):
        values = [[outcome.figures[column] for outcome in outcomes] for _, outcomes in rows]
        bars = [stdev(runs) if len(runs) > 1 else 0.0 for runs in values]
        axis.errorbar(places, [mean(runs) for runs in values], bars, color=color, marker="o", capsize=2, label=name)
    axis.set_xscale("log" if min(places) > 0 else "linear")
    axis.set_xlabel(table.axis)
    _percent(axis, f"{group} ({min(len(outcomes) for _, outcomes in rows)} runs each)")
