"""Tables on the terminal."""

import sys


def print_table(header: list[str], rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*header)
    for row in rows:
        table.add_row(*row)
    wide = None if sys.stdout.isatty() else 160  # in a file nothing needs to be folded
    Console(markup=False, highlight=False, width=wide).print(table)
