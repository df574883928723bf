"""diffclust fit, diffclust predict, diffclust describe."""

import json
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from .errors import UNSOUND, Wrong, say
from .folders import Source, beside, read_for, read_source, source_of, words_of
from .options import (
    ColumnOption,
    Config,
    DataArgument,
    Device,
    Embeddings,
    Json,
    Keep,
    Label,
    Model,
    Seed,
    Setting,
    Skip,
    SomeClusters,
    check_out,
    estimator_of,
    number_of,
    settings_of,
    wishes_of,
)
from .tables import print_number, print_reading, print_table, print_unlabelled


def fit(
    data: DataArgument,
    k: SomeClusters = "auto",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the model and labels.csv; else runs/NAME of DATA, numbered where that is there."),
    ] = None,
    method: Annotated[str, typer.Option(help="See 'diffclust methods'.")] = "tell",
    seed: Seed = 0,
    epochs: Annotated[int | None, typer.Option(help="Of clustering; the default follows the data.")] = None,
    restarts: Annotated[int, typer.Option(help="Whole runs, of which the best is kept by a label-free rule.")] = 1,
    device: Device = "auto",
    setting: Setting = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Folder to keep the state in, to survive a kill.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint, exactly.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
    column: ColumnOption = None,
    skip: Skip = None,
    label: Label = None,
    embeddings: Embeddings = None,
    keep: Keep = None,
    as_json: Json = False,
    strict: Annotated[
        bool, typer.Option("--strict", help=f"Exit with {UNSOUND} if there are warnings about the clusters.")
    ] = False,
    config: Config = None,
) -> None:
    """Cluster DATA and save the model; with torchrun --nproc-per-node=N -m diffclust fit ..., in N processes."""
    from ..callbacks import TrainingRecord
    from ..engine.checkpoint import keeping_checkpoints
    from ..engine.distributed import distributed, times_restarted
    from ..saving.answers import as_csv
    from ..saving.folder import CLUSTERS, LABELS, SETTINGS
    from ..saving.save import save

    if resume and checkpoint is None:
        raise Wrong("--resume needs --checkpoint: where is the state?")
    out = out or _free_folder(data)
    settings = {
        "random_state": seed,
        "n_init": restarts,
        "device": device,
        "verbose": not quiet and sys.stderr.isatty(),
        "checkpoint": checkpoint,
    }
    if epochs is not None:
        settings["epochs"] = epochs
    settings["columns"] = wishes_of(column, skip)
    source = Source(data, label, None if embeddings is None else str(embeddings))
    record = TrainingRecord()
    settings |= {**settings_of(method, setting or []), "callbacks": [record]}
    estimator = estimator_of(method, number_of(k), settings)
    with distributed() as processes:
        with processes.together():
            if processes.leads:
                check_out(out, folder=True)
                if out.is_dir():
                    check_out(out / LABELS, folder=False, reads=data)
                if _is_begun(checkpoint) and not (resume or times_restarted()):
                    raise Wrong(f"{checkpoint} holds a checkpoint: add --resume to go on from it, or remove it.")
            in_groups = Path(data).suffix == ".parquet" and Path(data).is_file() and not processes.alone
            X, y, shown = (Path(data), None, None) if in_groups else read_source(source)
            own = _own_columns(source, shown, keep)
        given = estimator._read(X)  # and everything checked, before the reading is shown
        reading = given.attributes.get("columns_")
        if reading is not None and processes.leads and not as_json:
            print_reading(reading, len(given.rows), data)
        began = time.perf_counter()
        with keeping_checkpoints(), _warning_later():
            estimator.fit(given)
        seconds = time.perf_counter() - began
    if not processes.leads:
        return
    stopped = any(kind == "interrupted" for run in estimator.runs_ for kind, _ in run["diagnostics"]["events"])
    go_on = f" Add --resume to go on from {checkpoint}." if _is_begun(checkpoint) else ""
    if stopped and (out / SETTINGS).exists():
        say(f"stopped: this model is not saved, and the one in {out} is left as it was.{go_on}")
        raise typer.Exit(1)
    labels, told = estimator.labels_, _told_clusters(estimator, given, shown)
    try:
        files = {**beside(source, record), LABELS: as_csv(labels, own)}
        save(estimator, out, {**files, CLUSTERS: _clusters_csv(told)} if told else files)
    except OSError:
        if _is_begun(checkpoint):
            say(f"not saved, but the training is in {checkpoint}: add --resume to save it once there is room.")
        raise
    if checkpoint is not None and not stopped:
        _clear(checkpoint)
    found = {} if y is None else _scores(y, labels)
    if as_json:
        answer = {
            "data": data,
            "out": str(out),
            "method": type(estimator).__name__,
            "rows": len(labels),
            "sizes": list(estimator.diagnostics_["sizes"]),
            "names": estimator.names_,
            "number": estimator.diagnostics_.get("number"),
            "clustering_loss": estimator.clustering_loss_,
            "seconds": seconds,
            "scores": found,
            "columns": None if reading is None else {each.name: each.told for each in reading.columns},
            "clusters": told,
            "soundness": estimator.diagnostics_["soundness"],
            "warnings": estimator.diagnostics_["warnings"],
        }
        print(json.dumps(answer))
        raise typer.Exit(_last_words(estimator, strict, stopped))
    rows = [
        ["rows", f"{len(labels):,}"],
        ["cluster sizes", " ".join(str(size) for size in estimator.diagnostics_["sizes"])],
        ["clustering loss", f"{estimator.clustering_loss_:.6g}"],
        ["seconds", f"{seconds:.1f}"],
        *([name, f"{100 * value:.2f}"] for name, value in found.items()),
    ]
    print_table(["", f"{type(estimator).__name__} on {data}"], rows)
    print_number(estimator.diagnostics_.get("number"))
    if told:
        named = zip(estimator.names_, told, strict=True)
        lines = [[str(j), name, *line] for j, (name, line) in enumerate(named)]
        print_table(["cluster", "name", "rows", "set apart by"], lines)
    print_unlabelled(y)
    print(f"Saved to {out}: the cluster of every row is in labels.csv there.")
    print(f"Next: 'diffclust report {out}' writes a page about it, 'diffclust explain {out} --row 0' says why a row is")
    print(f"in its cluster, 'diffclust predict {out} NEW --out labels.csv' labels the rows of another file.")
    if stopped:
        say(f"stopped: the model in {out} is as far as training had come.{go_on}")
    raise typer.Exit(_last_words(estimator, strict, stopped))


@contextmanager
def _warning_later() -> Iterator[None]:
    """Inside, what speaks against a fit is not said: `_last_words` says it."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def _last_words(estimator: Any, strict: bool, stopped: bool) -> int:
    """What speaks against the clusters, as the command's last lines; the exit code."""
    from sklearn.exceptions import ConvergenceWarning

    found = estimator.diagnostics_
    for message in found["warnings"]:
        warnings.warn(message, ConvergenceWarning, stacklevel=2)
    return 1 if stopped else UNSOUND if strict and found["warnings"] else 0


def _free_folder(data: str) -> Path:
    """runs/customers for customers.csv.gz; where that is there, runs/customers-2, and so on."""
    name = Path(data).expanduser().resolve().name.split(".")[0] or "data"
    names = (name if i == 1 else f"{name}-{i}" for i in count(1))
    return next(folder for folder in (Path("runs", each) for each in names) if not folder.exists())


def _scores(y: Any, labels: Any) -> dict[str, float]:
    from ..metrics import is_labelled, scores

    known = is_labelled(y)
    return scores(y[known], labels[known])


def _told_clusters(estimator: Any, given: Any, shown: Any) -> list[list[str]]:
    """Of a table or of texts: the size of each cluster, and what sets it apart."""
    from ..explain.clusters import cluster_sentences

    told = cluster_sentences(estimator, given, shown)
    return [[str(size), text] for size, text in zip(estimator.diagnostics_["sizes"], told, strict=False)]


def _clusters_csv(told: list[list[str]]) -> bytes:
    import csv
    import io

    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["cluster", "rows", "set apart by"])
    writer.writerows([j, *line] for j, line in enumerate(told))
    return text.getvalue().encode("utf-8", "surrogateescape")


def _own_columns(source: Source, shown: Any, keep: list[str] | None) -> dict[str, list[Any]]:
    """What stands beside the labels: the file of each image or text, and the columns to keep."""
    from ..reading.files import captions
    from ..reading.frames import columns_of, is_frame
    from ..reading.parts import TextTable

    files = captions(source.data) if Path(source.data).expanduser().is_dir() else None
    own: dict[str, list[Any]] = {"file": list(files)} if files else {}
    if not keep:
        return own
    if not is_frame(shown):
        why = "is read in parts" if isinstance(shown, TextTable) else "has no columns with names"
        raise Wrong(f"--keep {keep[0]}: {source.data} {why}.")
    names = [str(name) for name in shown.columns]
    wanted = names if keep == ["all"] else keep
    for name in wanted:
        if name not in names:
            raise Wrong(f"--keep {name}: there is no such column; there are {', '.join(names[:10])}.")
        if name in ("row", "file", "label"):
            raise Wrong(f"--keep {name}: the labels' file has a column of that name.")
    cells = columns_of(shown, wanted)
    return own | {name: ["" if value is None or value != value else value for value in cells[name]] for name in cells}


def describe(
    data: DataArgument,
    column: ColumnOption = None,
    skip: Skip = None,
    label: Label = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """How DATA would be read: a line a column. Nothing is trained or written."""
    from ..reading.frames import is_frame
    from ..reading.parts import TextTable
    from ..reading.tables import Columns

    X, y, _ = read_source(Source(data, label))
    looked_at = X.sample if isinstance(X, TextTable) else X
    reading = Columns.fit(looked_at, wishes_of(column, skip)) if is_frame(looked_at) else None  # type: ignore[arg-type]
    classes = None if y is None else len({str(value) for value in y if value is not None})
    if as_json:
        read = () if reading is None else reading.columns
        columns = [{"told": each.told, **each.to_dict(), "words": None} for each in read]
        print(json.dumps({"data": data, "shape": list(X.shape), "columns": columns, "classes": classes}))
        return
    if reading is None:
        print(f"{data}: {X.shape[0]:,} rows of shape {tuple(X.shape[1:])}, numbers of type {X.dtype}.")
    else:
        print_reading(reading, X.shape[0], data)
    if classes is not None:
        print(f"Labels of {classes} classes are there: for scores alone.")


def _is_begun(checkpoint: Path | None) -> bool:
    return checkpoint is not None and any(checkpoint.glob("diffclust-*.ckpt"))


def _clear(checkpoint: Path) -> None:
    """What is saved needs no checkpoint; where another fit is at work in the folder, that one clears it."""
    from contextlib import suppress

    from ..engine.checkpoint import CheckpointFolder

    folder = CheckpointFolder(checkpoint)
    with suppress(ValueError), folder.reserved():
        folder.clear()


def predict(
    model: Model,
    data: DataArgument,
    out: Annotated[Path, typer.Option(help="A .csv, .parquet or .npy file, written as the rows are read.")],
    proba: Annotated[bool, typer.Option("--proba", help="The probabilities too.")] = False,
    names: Annotated[bool, typer.Option("--names", help="The name of each row's cluster too.")] = False,
    embeddings: Embeddings = None,
    keep: Keep = None,
    device: Device = "auto",
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Label the rows of DATA with a fitted model."""
    if out.suffix not in (".csv", ".npy", ".parquet"):
        raise Wrong(f"--out {out} should end in .csv, .parquet or .npy.")
    for wish, option in ((proba, "--proba"), (names, "--names")):
        if wish and out.suffix == ".npy":
            raise Wrong(f"{option} needs a .csv or .parquet file.")
    check_out(out, folder=False, reads=data)
    from ..reading.inputs import read_rows
    from ..saving.answers import More, write
    from ..saving.load import opened

    saved = opened(model)
    estimator = saved.estimator(device=device)
    in_groups = Path(data).suffix == ".parquet" and Path(data).is_file() and not (keep or embeddings)
    source = source_of(saved, "predict", data, embeddings)
    in_groups = in_groups and words_of(saved) is None and source.label is None
    X, _, shown = (Path(data), None, None) if in_groups else read_for(saved, estimator, source)
    own = _own_columns(source, shown, keep)
    given = read_rows(estimator, X, fitting=False)
    more = More(proba, own, estimator.names_ if names else ())
    write(out, estimator.predict_in_parts(given), len(given.rows), more)
    if as_json:
        print(json.dumps({"out": str(out), "rows": len(given.rows)}))
    else:
        print(f"{len(given.rows):,} labels in {out}")
