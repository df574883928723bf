"""Tables in the terminal, and messages about the data."""

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..reading.columns import Column
    from .folders import ReadData, Source

MAX_LINES = 40  # lines of a table in the terminal


def print_table(header: list[str], rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*header)
    for row in rows:
        table.add_row(*row)
    wide = None if sys.stdout.isatty() else 160  # lines in a file need not be wrapped
    Console(markup=False, highlight=False, width=wide).print(table)


def print_number(choice: dict[str, Any] | None) -> None:
    """Print how the number of clusters was estimated, if it was: its score and those of the next best numbers."""
    if choice is None:
        return
    if choice["n_clusters"] == 1:
        print("1 cluster: networks trained on different halves of the rows do not agree on any clusters.")
        return
    by_score = sorted(zip(choice["scores"], choice["candidates"], strict=True), reverse=True)[:3]
    at = choice["candidates"].index(choice["n_clusters"])
    print(
        f"{choice['n_clusters']} clusters: networks trained on different halves of the rows agree on "
        f"{100 * choice['agreements'][at]:.0f} % of them (silhouette {choice['silhouettes'][at]:.2f}). "
        f"Best scores: {', '.join(f'{k} clusters {score:.3f}' for score, k in by_score)}"
        f"{'' if by_score[0][1] == choice['n_clusters'] else '; of those next to the best, the fewest'}."
    )


def print_reading(reading: Any, rows: int, data: str) -> None:
    """Print how each column of a table is read; if there are many columns of numbers, only their count."""
    columns = list(reading.columns)
    plain = [column for column in columns if column.description == "number"]
    if len(columns) > MAX_LINES and len(plain) > MAX_LINES // 2:
        columns = [column for column in columns if column.description != "number"]
    lines = [[column.name, column.description + _way_to_use(column)] for column in columns[:MAX_LINES]]
    if len(columns) > MAX_LINES:
        lines.append([f"{len(columns) - MAX_LINES} more", ""])
    if len(columns) < len(reading.columns):
        lines.append([f"{len(plain)} others", "number"])
    print_table([f"{rows:,} rows of {data}", "is read as"], lines)


def _way_to_use(column: "Column") -> str:
    """A hint for a column of numbers that was taken as codes or row numbers."""
    return f"; --column {column.name}=number to use it" if column.why in ("code", "count") else ""


def print_labels(source: "Source", read: "ReadData") -> None:
    """Print which column was taken as labels because of its name."""
    if read.label is not None and source.label is None:
        kind = "number" if read.y is not None and read.y.dtype.kind in "iu" else "category"
        print(
            f"Column {read.label!r} is taken as labels, not clustered by (--column {read.label}={kind} to use it, "
            f"--label {read.label} if they are)."
        )


def print_unlabelled(y: Any) -> None:
    """Print how many rows have no label, if there are any."""
    from ..metrics import is_labelled

    missing = 0 if y is None else len(y) - int(is_labelled(y).sum())
    if missing:
        print(f"{missing:,} of {len(y):,} rows have no label: the scores against labels leave them out.")
