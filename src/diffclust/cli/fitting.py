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

from ..saving.folder import check_folder
from .errors import EXIT_WARNINGS, UsageError, say
from .finished import FinishedFit, clusters_of
from .folders import ReadData, Source, beside, read_for, read_source, source_of, words_of
from .options import (
    COMPARISON,
    REPORT,
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
    check_method,
    check_out,
    check_there,
    estimator_of,
    number_of,
    settings_of,
    wishes_of,
)
from .sigterm import Terminated
from .tables import print_labels, print_reading


def fit(
    data: DataArgument,
    k: SomeClusters = "auto",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the model and labels.csv (default: runs/NAME of DATA, numbered if it exists)."),
    ] = None,
    method: Annotated[str, typer.Option(help="See 'diffclust methods'.")] = "tell",
    seed: Seed = 0,
    epochs: Annotated[
        int | None, typer.Option(help="Epochs of clustering; the default depends on the size of the data.")
    ] = None,
    restarts: Annotated[int, typer.Option(help="Number of restarts; a rule without labels keeps one.", min=1)] = 1,
    device: Device = "auto",
    setting: Setting = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Folder for checkpoints, to resume after a crash.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume exactly from the checkpoint.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
    column: ColumnOption = None,
    skip: Skip = None,
    label: Label = None,
    embeddings: Embeddings = None,
    keep: Keep = None,
    as_json: Json = False,
    strict: Annotated[
        bool, typer.Option("--strict", help=f"Exit with {EXIT_WARNINGS} if there are warnings about the clusters.")
    ] = False,
    config: Config = None,
) -> None:
    """Cluster DATA and save the model. For N processes: torchrun --nproc-per-node=N -m diffclust fit ..."""
    if resume and checkpoint is None:
        raise UsageError("--resume needs --checkpoint.")
    wanted = number_of(k)
    check_method(method)
    check_there(data)
    from ..callbacks import TrainingRecord
    from ..engine.checkpoint import keeping_checkpoints
    from ..engine.distributed import distributed
    from ..reading.frames import is_frame

    out = out or _free_folder(data)
    record, wishes = TrainingRecord(), wishes_of(column, skip)
    settings = {
        "random_state": seed,
        "n_init": restarts,
        "device": device,
        "verbose": not quiet and sys.stderr.isatty(),
        "checkpoint": checkpoint,
        "columns": wishes,
        "callbacks": [record],
        **({} if epochs is None else {"epochs": epochs}),
        **settings_of(method, setting or []),
    }
    estimator = estimator_of(method, wanted, settings)
    source = Source(data, label, None if embeddings is None else str(embeddings))
    with distributed() as processes:
        with processes.raising_together():
            if processes.leads:
                _check_places(data, out, checkpoint, resume)
            in_groups = Path(data).suffix == ".parquet" and Path(data).is_file() and not processes.alone
            read = ReadData(Path(data), None, None) if in_groups else read_source(source, features=wishes or ())
            X, y, shown = read[:3]
            if is_frame(X):
                estimator.set_params(columns=wishes or {})  # by name: new rows may have another order
            own = _own_columns(source, shown, keep)
        given = estimator._read(X)  # which checks everything, before the columns are printed
        reading = given.attributes.get("columns_")
        if reading is not None and processes.leads and not as_json:
            print_reading(reading, len(given.rows), data)
        if processes.leads and not as_json:
            print_labels(source, read)
        began = time.perf_counter()
        with keeping_checkpoints(), _warning_later(), _told_how_to_go_on(checkpoint):
            estimator.fit(given)
        seconds = time.perf_counter() - began
    if not processes.leads:
        return
    finished = FinishedFit(estimator, data, out, seconds, y, clusters_of(estimator, given, shown))
    pages = _pages_of_another_model(out)
    with _told_how_to_go_on(checkpoint):
        _save(finished, beside(source, record), own, checkpoint)
    if as_json:
        print(json.dumps(finished.as_json()))
    else:
        finished.print()
        if pages:
            print(
                f"{' and '.join(pages)} in {out} {'is' if len(pages) == 1 else 'are'} about the model that was there."
            )
        if finished.interrupted:
            say(f"stopped: the model in {out} is the state at which training stopped.{_how_to_go_on(checkpoint)}")
    finished.warn()
    raise typer.Exit(finished.exit_code(strict))


def _check_places(data: str, out: Path, checkpoint: Path | None, resume: bool) -> None:
    """Check the output folders before the fit, not after it."""
    from ..engine.distributed import times_restarted
    from ..saving.folder import LABELS

    check_out(out, folder=True)
    if out.is_dir():
        check_out(out / LABELS, folder=False, reads=data)
    if checkpoint is not None:
        check_out(checkpoint, folder=True, option="--checkpoint")
    if _is_begun(checkpoint) and not (resume or times_restarted()):
        raise UsageError(f"{checkpoint} holds a checkpoint: add --resume to continue from it, or remove it.")


def _save(finished: FinishedFit, files: dict[str, bytes], own: dict[str, list[Any]], checkpoint: Path | None) -> None:
    """Save the model, the labels and `files`, and remove the checkpoint. After an interrupted fit the checkpoint stays,
    and an existing model is not overwritten."""
    from ..saving.folder import CLUSTERS, LABELS, SETTINGS
    from ..saving.labels_file import as_csv
    from ..saving.save import save

    out, estimator = finished.out, finished.estimator
    if finished.interrupted and (out / SETTINGS).exists():
        say(f"stopped: this model is not saved, and the one in {out} is left as it was.{_how_to_go_on(checkpoint)}")
        raise typer.Exit(1)
    files = {**files, LABELS: as_csv(estimator.labels_, own)}
    if finished.clusters:
        files[CLUSTERS] = finished.clusters_csv()
    try:
        save(estimator, out, files)
    except OSError:
        if _is_begun(checkpoint):
            say(f"not saved, but the training is in {checkpoint}: add --resume to save it once there is room.")
        raise
    if checkpoint is not None and not finished.interrupted:
        _clear(checkpoint)


def _pages_of_another_model(out: Path) -> list[str]:
    """The pages that `diffclust report` wrote about the model that a save replaces."""
    from ..saving.folder import SETTINGS

    return [page for page in (REPORT, COMPARISON) if (out / SETTINGS).exists() and (out / page).exists()]


def _how_to_go_on(checkpoint: Path | None) -> str:
    return f" Add --resume to continue from {checkpoint}." if _is_begun(checkpoint) else ""


@contextmanager
def _told_how_to_go_on(checkpoint: Path | None) -> Iterator[None]:
    """A context in which the message of SIGTERM says how to continue."""
    try:
        yield
    except Terminated:
        raise Terminated(_how_to_go_on(checkpoint)) from None


@contextmanager
def _warning_later() -> Iterator[None]:
    """A context without warnings about the fit; `FinishedFit.warn` prints them."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def _free_folder(data: str) -> Path:
    """runs/customers for customers.csv.gz; if it exists, runs/customers-2, and so on."""
    name = Path(data).expanduser().resolve().name.split(".")[0] or "data"
    names = (name if i == 1 else f"{name}-{i}" for i in count(1))
    return next(folder for folder in (Path("runs", each) for each in names) if not folder.exists())


def _own_columns(source: Source, shown: Any, keep: list[str] | None) -> dict[str, list[Any]]:
    """The columns written next to the labels: the file of each image or text, and those given by --keep."""
    from ..reading.columns import did_you_mean
    from ..reading.files import captions
    from ..reading.formats import as_written
    from ..reading.frames import is_frame
    from ..reading.large_tables import TextTable

    files = captions(source.data) if Path(source.data).expanduser().is_dir() else None
    own: dict[str, list[Any]] = {"file": list(files)} if files else {}
    if not keep:
        return own
    if not is_frame(shown):
        why = "is read in parts" if isinstance(shown, TextTable) else "has no columns with names"
        raise UsageError(f"--keep {keep[0]}: {source.data} {why}.")
    names = [str(name) for name in shown.columns]
    wanted = names if keep == ["all"] else keep
    for name in wanted:
        if name not in names:
            close = did_you_mean(name, names)
            raise UsageError(f"--keep {name}: there is no such column{close}; there are {', '.join(names[:10])}.")
        if name in ("row", "file", "label"):
            raise UsageError(f"--keep {name}: the file of labels already has a column of that name.")
    cells = as_written(Path(source.data).expanduser(), wanted, shown)
    return own | {name: ["" if value is None or value != value else value for value in cells[name]] for name in cells}


def describe(
    data: DataArgument,
    column: ColumnOption = None,
    skip: Skip = None,
    label: Label = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Show how each column of DATA is read. Nothing is trained or written."""
    from ..reading.formats import has_no_header
    from ..reading.frames import is_frame
    from ..reading.large_tables import TextTable
    from ..reading.tables import Columns

    source, wishes = Source(data, label), wishes_of(column, skip)
    read = read_source(source, features=wishes or ())
    X, y = read[:2]
    looked_at = X.sample if isinstance(X, TextTable) else X
    reading = Columns.fit(looked_at, wishes) if is_frame(looked_at) else None  # type: ignore[arg-type]
    classes = None if y is None else len({str(value) for value in y if value is not None})
    if as_json:
        looked_at = () if reading is None else reading.columns
        columns = [{"told": each.description, **each.to_dict(), "words": None} for each in looked_at]
        told = {"data": data, "shape": list(X.shape), "columns": columns, "classes": classes, "label": read.label}
        print(json.dumps(told))
        return
    if reading is None:
        print(f"{data}: {X.shape[0]:,} rows of shape {tuple(X.shape[1:])}, numbers of type {X.dtype}.")
    else:
        print_reading(reading, X.shape[0], data)
    if has_no_header(data, X):
        print("No header line was found: the first line is read as data.")
    print_labels(source, read)
    if classes is not None:
        print(f"Labels of {classes} classes were found; they are used only for scores.")


def _is_begun(checkpoint: Path | None) -> bool:
    return checkpoint is not None and any(checkpoint.glob("diffclust-*.ckpt"))


def _clear(checkpoint: Path) -> None:
    """Remove the checkpoint of a saved model. If another fit uses the folder, that fit will do it."""
    from ..engine.checkpoint import CheckpointFolder
    from ..engine.disk import FolderBusy

    try:
        folder = CheckpointFolder(checkpoint)
        with folder.reserved():
            folder.clear()
    except FolderBusy:
        pass
    except OSError as error:
        say(f"warning: the model is saved, but its checkpoint in {checkpoint} was not removed: {error.strerror}")


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
        raise UsageError(f"--out {out} should end in .csv, .parquet or .npy.")
    for wish, option in ((proba, "--proba"), (names, "--names")):
        if wish and out.suffix == ".npy":
            raise UsageError(f"{option} needs a .csv or .parquet file.")
    check_out(out, folder=False, reads=data)
    check_folder(model)
    check_there(data)
    from ..reading.inputs import read_rows
    from ..saving.labels_file import LabelColumns, write
    from ..saving.load import open_model

    saved = open_model(model)
    estimator = saved.estimator(device=device)
    in_groups = Path(data).suffix == ".parquet" and Path(data).is_file() and not (keep or embeddings)
    source = source_of(saved, "predict", data, embeddings)
    in_groups = in_groups and words_of(saved) is None and source.label is None
    X, _, shown, _ = ReadData(Path(data), None, None) if in_groups else read_for(saved, estimator, source)
    own = _own_columns(source, shown, keep)
    given = read_rows(estimator, X, fitting=False)
    more = LabelColumns(proba, own, estimator.names_ if names else ())
    write(out, estimator.predict_in_parts(given), len(given.rows), more)
    if as_json:
        print(json.dumps({"out": str(out), "rows": len(given.rows)}))
    else:
        print(f"{len(given.rows):,} labels in {out}")
