"""diffclust explain, diffclust report."""

import dataclasses
import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..saving.folder import SETTINGS, check_folder
from .errors import UsageError
from .folders import ReadData, Source, captions_of, read_for, record_of, source_of, words_of
from .options import COMPARISON, REPORT, Config, Device, Embeddings, Model, check_ending, check_out, check_there
from .tables import print_table, print_unlabelled

if TYPE_CHECKING:
    from ..reading.tables import Columns
    from ..saving.load import SavedModel

RowsArgument = Annotated[
    str | None, typer.Argument(help="Rows, as for fit; by default the data the model was fitted on.")
]
PAGE = (".html", ".htm")
LISTED = 12  # rows in a table of features or contributions


def explain(
    model: Model,
    data: RowsArgument = None,
    row: Annotated[int | None, typer.Option(help="Explain why this row (counted from 0) is in its cluster.")] = None,
    pair: Annotated[
        int | None, typer.Option("--with", help="Explain why --row and this row share a cluster or not.")
    ] = None,
    cluster: Annotated[int | None, typer.Option(help="Describe this cluster.")] = None,
    embeddings: Embeddings = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
    device: Device = "auto",
) -> None:
    """Explain a row, a pair of rows, a cluster or the model."""
    if row is not None and cluster is not None:
        raise UsageError("Give either --row or --cluster, not both.")
    if pair is not None and row is None:
        raise UsageError("--with needs --row.")
    check_folder(model)
    if data is not None:
        check_there(data)
    from ..explain.clusters import cluster_facts
    from ..reading.frames import is_frame
    from ..saving.load import open_model

    saved = open_model(model)
    estimator = saved.estimator(device=device)
    X: Any = None
    shown: Any = None
    names: list[str] | None = None
    called: list[str] | None = None
    if row is not None or cluster is not None:
        X, shown, called = _rows(saved, estimator, data, embeddings, needed=row is not None)
        terms = _terms(saved, estimator)
        names = terms if terms is None or as_json else [f"“{term}”" for term in terms]
    if row is not None and pair is not None:
        said = estimator.explain_pair(_row(X, row), _row(X, pair), feature_names=names)
    elif row is not None:
        said = dataclasses.replace(estimator.explain(_row(X, row), feature_names=names)[0], row=row)
    elif cluster is not None:
        said = estimator.explain_cluster(cluster, X, feature_names=names)
        if is_frame(shown) and said.columns is None:  # a table or texts, of which X are the embeddings
            facts = cluster_facts(estimator, X, shown, estimator.predict(X))
            said = dataclasses.replace(said, columns=None if facts is None else facts[cluster])
    else:
        said = estimator.explain_model()
    if as_json:
        print(json.dumps(said.to_dict()))
        return
    asked = [i for i in (row, pair) if i is not None]
    if called is not None:
        for i in asked:
            print(f"Row {i}: {textwrap.shorten(called[i], 100, placeholder=' …')}")
    print(textwrap.fill(said.sentence, 100))
    if asked:
        _print_inputs(said, estimator, X, asked, sparse=names is not None)
        _print_sum(said, said.margin if pair is None else said.evidence)
        if said.feature_names is None:
            print(f"For heat maps of the pixels, write a report: 'diffclust report {model}'.")


def report(
    model: Model,
    data: Annotated[
        str | None, typer.Argument(help="Rows (default: the training rows), or a second model to compare with.")
    ] = None,
    rows: Annotated[str | None, typer.Argument(help="Rows to compare two models on.")] = None,
    new: Annotated[
        str | None, typer.Option(help="Later rows: report what changed since the training rows, or since DATA.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Output file (default: report.html or comparison.html in the model's folder).")
    ] = None,
    sample: Annotated[
        int | None, typer.Option(help="Number of rows in the report of one model (default: 2000).", min=10)
    ] = None,
    layout: Annotated[
        str | None, typer.Option(help="Layout of the map in the report of one model: t-SNE (the default) or PCA.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Of the page.")] = None,
    names: Annotated[
        Path | None, typer.Option(help="Names of clusters and rows, as a report saves them (.json, .csv).")
    ] = None,
    embeddings: Embeddings = None,
    device: Device = "auto",
    config: Config = None,
) -> None:
    """Write one offline HTML page about a fitted model, or about two models and what changed."""
    check_folder(model)
    for place in (data, rows, new):
        if place is not None:
            check_there(place)
    other = Path(data) if data is not None and _is_model(data) else None
    if rows is not None and other is None:
        raise UsageError(f"{data} is not the folder of a model: to compare two, diffclust report A B [DATA].")
    if other is not None or new is not None:
        for option, given in (("--sample", sample), ("--layout", layout), ("--embeddings", embeddings)):
            if given is not None:
                raise UsageError(f"{option} is for the report of one model: a comparison has no such thing.")
    from ..report.names import load_names
    from ..saving.load import open_model

    saved = open_model(model)
    estimator = saved.estimator(device=device)
    source = source_of(saved, "report", rows if other is not None else data, embeddings)
    if other is not None or new is not None:
        if names is not None:
            estimator.names_ = load_names(names).clusters
        path = _compared(saved, estimator, source, other, new, out=out, title=title, device=device)
        print(_done(path))
        return
    out = out or model / REPORT
    check_out(out, folder=False, reads=source.data)
    check_ending(out, *PAGE)
    X, y, shown, _ = read_for(saved, estimator, source)
    path = estimator.report(
        out,
        X,
        y,
        record=record_of(saved),
        captions=captions_of(estimator, source, shown),
        feature_names=_terms(saved, estimator),
        title=title or f"{type(estimator).__name__} on {Path(source.data).name}",
        sample=sample or 2000,
        layout=layout or "t-SNE",
        names=names,
        **_beside(source, shown),
    )
    print_unlabelled(y)
    print(_done(path))


def _done(path: Path) -> str:
    size = path.stat().st_size
    said = f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.0f} kB"  # of a comparison
    return f"{path}: {said}; open it in any browser, it works offline."


def _beside(source: Source, shown: Any) -> dict[str, Any]:
    """The texts or pictures that embeddings are shown with, as arguments of the report."""
    from ..reading.frames import is_frame
    from ..reading.tables import Columns

    if source.embeddings is None:
        return {}
    if is_frame(shown):
        reading = Columns.fit(shown)
        return {"texts": reading.captions(shown)} if any(each.kind == "text" for each in reading.used) else {}
    return {"thumbnails": shown} if getattr(shown, "ndim", 0) in (3, 4) else {}


def _is_model(place: str) -> bool:
    return (Path(place) / SETTINGS).is_file()


def _compared(
    saved: "SavedModel",
    estimator: Any,
    source: Source,
    other: Path | None,
    new: str | None,
    *,
    out: Path | None,
    title: str | None,
    device: str,
) -> Path:
    """Write the page that compares two models, or two data sets under one model."""
    from .. import compare_models
    from ..saving.load import open_model

    if source.embeddings is not None:
        raise UsageError("Models of embeddings cannot be compared by the command: use diffclust.compare_models.")
    out = out or saved.folder / COMPARISON
    later = source if new is None else source._replace(data=new)
    for read in {source.data, later.data}:
        check_out(out, folder=False, reads=read)
    check_ending(out, *PAGE)
    second = estimator if other is None else open_model(other).estimator(device=device)
    earlier = read_for(saved, estimator, source)
    compared: ReadData = earlier if new is None else read_for(saved, estimator, later)
    names = (saved.folder.name, other.name) if other is not None else (Path(source.data).stem, Path(later.data).stem)
    names = names if names[0] != names[1] else (f"{names[0]} (A)", f"{names[1]} (B)")
    found = compare_models(estimator, second, earlier.X, None if new is None else compared.X, names=names)
    print(textwrap.fill(found.sentence, 100))
    return found.report(out, captions=captions_of(estimator, later, compared.shown), title=title)


def _terms(saved: "SavedModel", estimator: Any) -> list[str] | None:
    """The words that are the features, if the model was fitted on texts."""
    words, reading = words_of(saved), getattr(estimator, "columns_", None)
    if words is not None:
        return words.terms
    return reading.features if reading is not None and reading.is_text else None


def _rows(
    saved: "SavedModel", estimator: Any, data: str | None, embeddings: Path | None, *, needed: bool
) -> tuple[Any, Any, list[str] | None]:
    """X, what it is shown as, and the captions of its rows, from DATA or from the data of the fit. None, if these
    cannot be read and are not needed."""
    try:
        source = source_of(saved, "explain", data, embeddings)
        read = read_for(saved, estimator, source)
    except (FileNotFoundError, UsageError):
        if needed or data is not None:
            raise
        return None, None, None
    return read.X, read.shown, captions_of(estimator, source, read.shown)


def _row(X: Any, i: int) -> Any:
    """One row of X, with the dimensions of X."""
    from ..explain.tables import some_rows

    if not 0 <= i < X.shape[0]:
        raise UsageError(f"row {i} should be from 0 to {X.shape[0] - 1}: there are {X.shape[0]} rows.")
    return some_rows(X, [i])


def _print_inputs(said: Any, estimator: Any, X: Any, asked: list[int], *, sparse: bool) -> None:
    """Print the most important features, or columns of a table, with their values in the rows asked about."""
    import numpy as np

    from ..explain.tables import blank_cells, shown_cell

    if said.attributions is None or said.feature_names is None:
        return
    reading: Columns | None = getattr(estimator, "columns_", None)
    rows = [_row(X, i) if reading is None else reading.transform(_row(X, i)) for i in asked]
    values = [row.toarray()[0] if hasattr(row, "toarray") else np.asarray(row)[0] for row in rows]
    weights, names = said.attributions.ravel(), said.feature_names
    cells = [[f"{value:.5g}" for value in row] for row in values]
    what = "word" if sparse else "feature"
    if reading is not None and not reading.is_text:
        what, weights, names = "column", reading.by_column(weights[None])[0], [column.name for column in reading.used]
        blank = [blank_cells(reading, _row(X, i)) for i in asked]
        blank = [None if each is None else each[0] for each in blank]
        places = range(len(names))
        cells = [[shown_cell(reading, v, at, b) for at in places] for v, b in zip(values, blank, strict=True)]
    order = [i for i in np.argsort(-np.abs(weights), kind="stable")[:LISTED].tolist() if weights[i]]
    heads = [f"row {i}" for i in asked]
    lines = [[names[i], *(row[i] for row in cells), f"{weights[i]:+.5g}"] for i in order]
    print_table([what, *heads, "counts"], lines)


def _print_sum(said: Any, total: float) -> None:
    heaviest = said.heaviest(len(said.contributions))
    rest = sum(value for _, value in heaviest[LISTED:])
    lines = [[name, f"{value:+.5g}"] for name, value in heaviest[:LISTED]]
    lines += [[f"{len(heaviest) - LISTED} others", f"{rest:+.5g}"]] if len(heaviest) > LISTED else []
    print_table(["contribution", ""], [*lines, ["bias", f"{said.bias:+.5g}"], ["sum", f"{total:+.5g}"]])
