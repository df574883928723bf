"""diffclust explain, diffclust report."""

import dataclasses
import json
import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer

from .errors import Wrong
from .folders import RECORD, load_source, read_for
from .options import Device, Model, check_out
from .tables import print_table


def explain(
    model: Model,
    data: Annotated[str | None, typer.Argument(help="Rows, as for fit; the model and its centres need none.")] = None,
    row: Annotated[int | None, typer.Option(help="Why is this row where it is? Counted from 0.")] = None,
    pair: Annotated[
        int | None, typer.Option("--with", help="Why is --row together with, or apart from, this one?")
    ] = None,
    cluster: Annotated[int | None, typer.Option(help="What is this cluster?")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
    device: Device = "auto",
) -> None:
    """Say why: a row, a pair of rows, a cluster, or else the model."""
    if row is not None and cluster is not None:
        raise Wrong("--row and --cluster are two questions: ask one.")
    if pair is not None and row is None:
        raise Wrong("--with needs --row: which two rows?")
    if row is not None and data is None:
        raise Wrong("--row needs DATA: the row of which file?")
    from ..persistence import load

    estimator = load(model, device=device)
    X, names = None, None
    if data is not None:
        X, _, words = read_for(model, estimator, data)
        names = words.terms if words is not None else None
    if row is not None and pair is not None:
        said = estimator.explain_pair(_row(X, row), _row(X, pair), feature_names=names)
    elif row is not None:
        said = dataclasses.replace(estimator.explain(_row(X, row), feature_names=names)[0], row=row)
    elif cluster is not None:
        said = estimator.explain_cluster(cluster, X, feature_names=names)
    else:
        said = estimator.explain_model()
    if as_json:
        print(json.dumps(said.to_dict()))
        return
    print(textwrap.fill(said.sentence, 100))
    if row is not None:
        pairs = zip(said.contribution_names, said.contributions.tolist(), strict=True)
        heaviest = sorted(pairs, key=lambda part: -abs(part[1]))
        rest = sum(value for _, value in heaviest[12:])
        lines = [[name, f"{value:+.5g}"] for name, value in heaviest[:12]]
        lines += [[f"{len(heaviest) - 12} others", f"{rest:+.5g}"]] if len(heaviest) > 12 else []
        total = said.evidence if pair is not None else said.margin
        print_table(["contribution", ""], [*lines, ["bias", f"{said.bias:+.5g}"], ["sum", f"{total:+.5g}"]])


def report(
    model: Model,
    data: Annotated[str | None, typer.Argument(help="Its rows; by default the data it was fitted on.")] = None,
    out: Annotated[Path | None, typer.Option(help="The page; by default report.html in the model's folder.")] = None,
    sample: Annotated[int, typer.Option(help="How many rows the page shows.", min=10)] = 2000,
    layout: Annotated[str, typer.Option(help="Of the map: t-SNE or PCA.")] = "t-SNE",
    title: Annotated[str | None, typer.Option(help="Of the page.")] = None,
    device: Device = "auto",
) -> None:
    """Write one HTML page about a fitted model, which opens offline."""
    from ..callbacks import TrainingRecord
    from ..files import captions
    from ..persistence import load

    out = out or model / "report.html"
    estimator = load(model, device=device)
    check_out(out, folder=False)
    source = data or load_source(model)
    X, y, words = read_for(model, estimator, source)
    record = model / RECORD
    path = estimator.report(
        out,
        X,
        y,
        record=TrainingRecord.load(record) if record.exists() else None,
        captions=captions(source),
        feature_names=words.terms if words is not None else None,
        title=title or f"{type(estimator).__name__} on {Path(source).name}",
        sample=sample,
        layout=layout,
    )
    print(f"{path}: open it in any browser; it needs no network.")


def _row(X: Any, i: int) -> Any:
    """One row of X, as an X of its own."""
    if not 0 <= i < X.shape[0]:
        raise Wrong(f"row {i} should be from 0 to {X.shape[0] - 1}: there are {X.shape[0]} rows.")
    return X.iloc[[i]] if hasattr(X, "iloc") else X[[i]]
