"""Arguments and options that several commands share, and how they are checked."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from ..methods import METHODS, TRANSDUCTIVE
from .errors import Wrong

Data = Annotated[
    str,
    typer.Argument(help="A .npy, .npz, .csv, .parquet or .jsonl (text) file, a folder of images, or a data-set name."),
]
Model = Annotated[Path, typer.Argument(help="Folder of a fitted model.")]
Clusters = Annotated[int, typer.Option("-k", "--clusters", help="How many clusters.")]
Setting = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any other setting of the method.")
]
Seed = Annotated[int, typer.Option(help="Same seed, same answer.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


def estimator_of(name: str, k: int, settings: dict[str, Any]) -> Any:
    method = next((m for m in METHODS if m.name == name), None)
    if method is None:
        known = ", ".join(m.name for m in METHODS)
        if any(m.name == name for m in TRANSDUCTIVE):
            raise Wrong(
                f"{name} labels only the rows it is given, so there is no model to keep: see compare, or {known}."
            )
        raise Wrong(f"Unknown method {name!r}: choose from {known}.")
    return method.load()(k, **settings)


def settings_of(name: str, given: list[str]) -> dict[str, Any]:
    """NAME=VALUE pairs as Python would read the values; what it cannot read is a string."""
    from ast import literal_eval
    from dataclasses import fields
    from typing import get_args

    known = {knob.name: knob.type for knob in fields(estimator_of(name, 2, {}))}
    del known["n_clusters"], known["callbacks"]  # -k, and code
    settings = {}
    for pair in given:
        key, equals, text = pair.partition("=")
        if not equals or key not in known:
            raise Wrong(f"--set {pair}: expected NAME=VALUE with NAME one of {', '.join(sorted(known))}.")
        try:
            value = literal_eval(text)
        except (ValueError, SyntaxError):
            value = text
        wanted = known[key]
        kinds = set(get_args(wanted) or [wanted])
        number = {int} if float in kinds else set()
        if kinds <= {bool, int, float, type(None)} and type(value) not in kinds | number:
            raise Wrong(f"--set {pair}: expected {getattr(wanted, '__name__', wanted)}.")
        settings[key] = value
    return settings


def check_out(path: Path, *, folder: bool, option: str = "--out", reads: str | None = None) -> None:
    """Complain before the work, not after it.

    Args:
        reads: the data, which are not to be written over.
    """
    if path.exists() and path.is_dir() != folder:
        raise Wrong(f"{option} {path} is {'a file, not a folder' if folder else 'a folder, not a file'}.")
    home = path if folder else path.parent
    while folder and not home.exists():
        home = home.parent
    if not home.is_dir():
        raise Wrong(f"{option} {path}: {home} is not a folder.")
    if not os.access(home, os.W_OK):
        raise Wrong(f"{option} {path}: {home} cannot be written to.")
    given = None if reads is None else Path(reads).expanduser()
    if given is not None and path.exists() and given.exists() and path.samefile(given):
        raise Wrong(f"{option} {path} is the file the data are read from: it would be written over.")
