"""Arguments and options that several commands share, and how they are checked."""

import os
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from ..methods import METHODS, TRANSDUCTIVE
from .errors import UsageError

COLUMN_KINDS = ("number", "category", "date", "text", "skip")
REPORT, COMPARISON = "report.html", "comparison.html"  # in the folder of a model


def read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Options from a file, which those on the command line override."""
    if path is None or context.resilient_parsing:
        return path
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text ({error}).") from error
    known = {
        spelling.lstrip("-").replace("-", "_"): parameter
        for parameter in context.command.params
        for spelling in (parameter.name or "", *parameter.opts)
    }
    found: dict[str, Any] = {}
    for name, value in given.items():
        parameter = known.get(name.replace("-", "_"))
        if parameter is None or parameter.name == "config":
            choices = ", ".join(sorted({str(parameter.name) for parameter in known.values()} - {"config", "help"}))
            raise UsageError(f"{path}: unknown option {name!r}; there are {choices}.")
        pairs = [f"{key}={entry}" for key, entry in value.items()] if isinstance(value, dict) else value
        found[str(parameter.name)] = [pairs] if parameter.multiple and not isinstance(pairs, list) else pairs
    context.default_map = {**(context.default_map or {}), **found}
    return path


DataArgument = Annotated[
    str,
    typer.Argument(
        help="A .csv, .tsv, .jsonl (also .gz, .zst), .parquet, .feather, .npy or .npz file, a folder of images or "
        "of .txt files, or a data-set name."
    ),
]
Model = Annotated[Path, typer.Argument(help="Folder of a fitted model.")]
Clusters = Annotated[int, typer.Option("-k", "--clusters", help="Number of clusters.", min=1)]
SomeClusters = Annotated[
    str, typer.Option("-k", "--clusters", metavar="NUMBER|auto", help="Number of clusters; auto: estimate it.")
]
Setting = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any other setting of the method.")
]
ColumnOption = Annotated[
    list[str] | None,
    typer.Option("--column", metavar="NAME=KIND", help="Type of a column: number, category, date, text or skip."),
]
Skip = Annotated[list[str] | None, typer.Option("--skip", metavar="NAME", help="Leave this column out.")]
Label = Annotated[
    str | None,
    typer.Option("--label", metavar="NAME", help="Column of true labels, for scores only, never for the fit."),
]
Embeddings = Annotated[
    Path | None, typer.Option(help="A .npy file with one embedding per row of DATA: cluster these, and show DATA.")
]
Keep = Annotated[
    list[str] | None,
    typer.Option("--keep", metavar="NAME", help="Also write this column of DATA to the labels; 'all': every column."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for scripts.")]
Config = Annotated[
    Path | None,
    typer.Option("--config", is_eager=True, callback=read_config, help="A .toml file with any of these options."),
]
Seed = Annotated[int, typer.Option(help="Random seed.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


def number_of(k: str) -> int | str:
    """The value of -k: a number, or auto."""
    if k == "auto":
        return k
    try:
        number = int(k)
    except ValueError:
        raise UsageError(f"-k {k}: expected a number or auto.") from None
    if number < 1:
        raise UsageError(f"-k {k}: expected at least one cluster, or auto.")
    return number


def estimator_of(name: str, k: int | str, settings: dict[str, Any]) -> Any:
    check_method(name)
    return next(m for m in METHODS if m.name == name).load()(k, **settings)


def check_method(name: str) -> None:
    """Check that `fit` knows this method, before slow imports."""
    known = [m.name for m in METHODS]
    if name in known:
        return
    from ..baselines import BASELINES

    if any(m.name == name for m in TRANSDUCTIVE):
        raise UsageError(
            f"{name} cannot label new rows, so there is no model to save: use compare, or {', '.join(known)}."
        )
    if name in BASELINES:
        raise UsageError(
            f"{name} is a classical method, for 'diffclust compare'. 'diffclust fit' clusters without a network by "
            "--set network=identity."
        )
    raise UsageError(f"Unknown method {name!r}{guess(name, known)}: choose from {', '.join(known)}.")


def guess(name: str, known: list[str]) -> str:
    """The known name that is most similar to an unknown one, as a question."""
    close = get_close_matches(name.lower(), known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def wishes_of(column: list[str] | None, skip: list[str] | None) -> dict[str, str] | None:
    """Kinds of columns by name, from --column and --skip."""
    wishes = {}
    for pair in column or []:
        name, equals, kind = pair.rpartition("=")
        if not equals or kind not in COLUMN_KINDS:
            raise UsageError(f"--column {pair}: expected NAME=KIND with KIND one of {', '.join(COLUMN_KINDS)}.")
        wishes[name] = kind
    return {**wishes, **dict.fromkeys(skip or [], "skip")} or None


def settings_of(name: str, given: list[str]) -> dict[str, Any]:
    """Settings from NAME=VALUE pairs. A value is a Python literal, or else a string."""
    from ast import literal_eval
    from dataclasses import fields
    from typing import get_args

    known = {knob.name: knob.type for knob in fields(estimator_of(name, 2, {}))}
    del known["n_clusters"], known["callbacks"], known["columns"]  # -k, Python code, --column
    settings = {}
    for pair in given:
        key, equals, text = pair.partition("=")
        if not equals or key not in known:
            raise UsageError(f"--set {pair}: expected NAME=VALUE with NAME one of {', '.join(sorted(known))}.")
        try:
            value = literal_eval(text)
        except (ValueError, SyntaxError):
            value = text
        wanted = known[key]
        kinds = set(get_args(wanted) or [wanted])
        number = {int} if float in kinds else set()
        if kinds <= {bool, int, float, type(None)} and type(value) not in kinds | number:
            raise UsageError(f"--set {pair}: expected {getattr(wanted, '__name__', wanted)}.")
        settings[key] = value
    return settings


def check_out(path: Path, *, folder: bool, option: str = "--out", reads: str | None = None) -> None:
    """Check that the output can be written, before the work starts.

    Args:
        reads: the data, which must not be overwritten.
    """
    if path.exists() and path.is_dir() != folder:
        raise UsageError(f"{option} {path} is {'a file, not a folder' if folder else 'a folder, not a file'}.")
    if folder and path.is_symlink() and not path.exists():
        raise UsageError(f"{option} {path} is a link to what is not there.")
    home = path if folder else path.parent
    while folder and not home.exists():
        home = home.parent
    if not home.is_dir():
        raise UsageError(f"{option} {path}: {home} is not a folder.")
    if not os.access(home, os.W_OK | os.X_OK):
        raise UsageError(f"{option} {path}: {home} cannot be written to.")
    given = None if reads is None else Path(reads).expanduser()
    if given is not None and path.exists() and given.exists() and path.samefile(given):
        raise UsageError(f"{option} {path} is the file the data are read from: it would be written over.")


def check_ending(path: Path, *endings: str, option: str = "--out") -> None:
    if path.suffix.lower() not in endings:
        raise UsageError(f"{option} {path} should end in {' or '.join(endings)}.")


def check_there(data: str) -> None:
    """Check that DATA is a file, a folder or the name of a data set, before slow imports."""
    if not Path(data).expanduser().exists():
        from .. import datasets

        if data not in datasets.names():
            raise FileNotFoundError(datasets.not_there(data))
