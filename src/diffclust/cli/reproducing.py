"""diffclust reproduce."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .errors import UsageError
from .options import Device, check_out
from .tables import print_table

if TYPE_CHECKING:
    from ..reproduce.record import Records
    from ..reproduce.spec import PaperTable


def reproduce(
    table: Annotated[str, typer.Argument(help="PAPER/TABLE, as --list names them.", show_default=False)] = "",
    show_all: Annotated[bool, typer.Option("--list", help="List the tables and their recorded runs.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Print recorded results; run nothing.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A small version, in a minute.")] = False,
    seeds: Annotated[int | None, typer.Option(help="Runs per row (default: the table's, 5 or 10).", min=1)] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help='Only rows that contain this text ("mnist: TELL"); may be repeated.'),
    ] = None,
    search: Annotated[
        bool, typer.Option("--search", help="Also choose λ by validation labels where the paper does.")
    ] = False,
    minutes: Annotated[
        float | None, typer.Option(help="Stop after so many minutes; run again to continue.", min=0.0)
    ] = None,
    device: Device = "auto",
    results: Annotated[Path | None, typer.Option(help="Folder of the CSV files (default: benchmarks/results).")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder for unfinished runs (default: runs/reproduce).")
    ] = None,
) -> None:
    """Reproduce a table of a paper, and print it next to the published figures."""
    from ..reproduce.record import Records
    from ..reproduce.tables import TABLES, find

    folder = results or Path("runs/reproduce-quick" if quick else "benchmarks/results")
    check_out(folder, folder=True, option="--results")
    nothing = f"There are no recorded runs in {folder}: ours are in benchmarks/results of the repository (--results)."
    if show_all or not table:
        _list_tables(list(TABLES.values()), Records(folder))
        if not Records(folder).outcomes:
            print(nothing)
        return
    wanted = find(table)
    wanted = wanted.only(only) if only else wanted
    wanted = wanted.quick() if quick else wanted
    if search and not any(row.weights for row in wanted.rows):
        raise ValueError(f"--search: no row of {wanted.name} that was selected has a λ to choose by labels.")
    count = seeds or (2 if quick else wanted.seeds)
    records = Records(folder)
    whole = True
    if show and not records.outcomes:
        raise UsageError(nothing)
    if not show:
        from ..reproduce.run import Runner

        runner = Runner(
            records,
            checkpoint or Path("runs/reproduce-quick/checkpoints" if quick else "runs/reproduce"),
            device,
            float("inf") if minutes is None else minutes,
            verbose=sys.stderr.isatty(),
            say=lambda line: print(line, flush=True),
        )
        whole = runner.run(wanted, count, search)
    _print_reproduced(wanted, records, count, None if show else folder)
    if whole and not show and not any(records.of(row.spec) for row in wanted.rows if row.spec):
        raise UsageError(f"{wanted.name}: nothing of it could be run.")
    if quick:
        print("This is a small version: it only shows that everything runs.")
    if not whole:
        print(f"Stopped after {minutes:g} minutes: run the same command again to continue.")


def _list_tables(tables: "list[PaperTable]", records: "Records") -> None:
    rows = []
    for table in tables:
        wanted = {row.spec.key: (row.spec, row.wanted(table.seeds)) for row in table.rows if row.spec}
        done = sum(min(len(records.of(spec)), runs) for spec, runs in wanted.values())
        rows.append([table.name, table.title, f"{done} of {sum(runs for _, runs in wanted.values())}"])
    print_table(["table", "", "runs"], rows)


def _print_reproduced(table: "PaperTable", records: "Records", seeds: int, folder: Path | None) -> None:
    """Print the table, and draw its figure if there is a folder for it."""
    from ..reproduce.curves import draw
    from ..reproduce.report import printed

    shown = printed(table, records, seeds)
    print(f"{table.name}: {table.title}")
    print_table(shown.header, shown.lines)
    for note in shown.notes:
        print(note)
    if folder is None:
        return
    picture = folder / f"{table.file}.png"
    if table.figure and draw(table, records, picture):
        print(f"Drawn: {picture}")
