"""Tables on the terminal, and what is to be said of them."""

import sys
from typing import Any


def print_table(header: list[str], rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*header)
    for row in rows:
        table.add_row(*row)
    wide = None if sys.stdout.isatty() else 160  # in a file nothing needs to be folded
    Console(markup=False, highlight=False, width=wide).print(table)


def print_unlabelled(y: Any) -> None:
    """That some rows count for no score, if that is so."""
    from ..metrics import is_labelled

    missing = 0 if y is None else len(y) - int(is_labelled(y).sum())
    if missing:
        print(f"{missing:,} of {len(y):,} rows have no label: the scores against labels are of the others.")
