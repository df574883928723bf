"""diffclust fit, diffclust predict."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from .errors import Wrong, say
from .folders import beside, read_for, words_of
from .options import Clusters, Data, Device, Model, Seed, Setting, check_out, estimator_of, settings_of
from .tables import print_table, print_unlabelled


def fit(
    data: Data,
    k: Clusters,
    out: Annotated[Path, typer.Option(help="Folder for the model and labels.csv.")],
    method: Annotated[str, typer.Option(help="See 'diffclust methods'.")] = "tell",
    seed: Seed = 0,
    epochs: Annotated[int | None, typer.Option(help="Of clustering; the default follows the data.")] = None,
    restarts: Annotated[int, typer.Option(help="Whole runs, of which the best is kept by a label-free rule.")] = 1,
    device: Device = "auto",
    setting: Setting = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Folder to keep the state in, to survive a kill.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint, exactly.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Cluster DATA and save the model; with torchrun --nproc-per-node=N -m diffclust fit ..., in N processes."""
    from ..callbacks import TrainingRecord
    from ..engine.checkpoint import keeping_checkpoints
    from ..engine.distributed import distributed, times_restarted
    from ..reading.files import Table, read
    from ..saving.answers import as_csv
    from ..saving.folder import LABELS, SETTINGS
    from ..saving.save import save

    if resume and checkpoint is None:
        raise Wrong("--resume needs --checkpoint: where is the state?")
    settings = {
        "random_state": seed,
        "n_init": restarts,
        "device": device,
        "verbose": not quiet and sys.stderr.isatty(),
        "checkpoint": checkpoint,
    }
    if epochs is not None:
        settings["epochs"] = epochs
    record = TrainingRecord()
    estimator = estimator_of(method, k, {**settings, **settings_of(method, setting or []), "callbacks": [record]})
    with distributed() as processes:
        with processes.together():
            if processes.leads:
                check_out(out, folder=True)
                if out.is_dir():
                    check_out(out / LABELS, folder=False, reads=data)
                if _is_begun(checkpoint) and not (resume or times_restarted()):
                    raise Wrong(f"{checkpoint} holds a checkpoint: add --resume to go on from it, or remove it.")
            in_groups = Path(data).suffix == ".parquet" and Path(data).is_file() and not processes.alone
            X, y, words = Table(Path(data)) if in_groups else read(data)
        began = time.perf_counter()
        with keeping_checkpoints():
            estimator.fit(X)
        seconds = time.perf_counter() - began
    if not processes.leads:
        return
    stopped = any(kind == "interrupted" for run in estimator.runs_ for kind, _ in run["diagnostics"]["events"])
    go_on = f" Add --resume to go on from {checkpoint}." if _is_begun(checkpoint) else ""
    if stopped and (out / SETTINGS).exists():
        say(f"stopped: this model is not saved, and the one in {out} is left as it was.{go_on}")
        raise typer.Exit(1)
    try:
        files = {**beside(data, words, record), LABELS: as_csv(estimator.labels_, _files(data))}
        save(estimator, out, files)
    except OSError:
        if _is_begun(checkpoint):
            say(f"not saved, but the training is in {checkpoint}: add --resume to save it once there is room.")
        raise
    if checkpoint is not None and not stopped:
        _clear(checkpoint)
    rows = [
        ["rows", f"{len(estimator.labels_):,}"],
        ["clusters", " ".join(str(size) for size in estimator.diagnostics_["sizes"])],
        ["clustering loss", f"{estimator.clustering_loss_:.6g}"],
        ["seconds", f"{seconds:.1f}"],
    ]
    if y is not None:
        from ..metrics import is_labelled, scores

        known = is_labelled(y)
        rows += [[name, f"{100 * value:.2f}"] for name, value in scores(y[known], estimator.labels_[known]).items()]
    print_table(["", f"{type(estimator).__name__} on {data}"], rows)
    print_unlabelled(y)
    print(f"Saved to {out}: 'diffclust predict {out} NEW --out labels.csv' labels new rows.")
    print(f"'diffclust report {out}' makes a page of it, 'diffclust explain {out} --row 0' says why.")
    if stopped:
        say(f"stopped: the model in {out} is as far as training had come.{go_on}")
        raise typer.Exit(1)


def _is_begun(checkpoint: Path | None) -> bool:
    return checkpoint is not None and any(checkpoint.glob("diffclust-*.ckpt"))


def _clear(checkpoint: Path) -> None:
    """What is saved needs no checkpoint; one who is at work in the folder meanwhile clears it himself."""
    from contextlib import suppress

    from ..engine.checkpoint import CheckpointFolder

    folder = CheckpointFolder(checkpoint)
    with suppress(ValueError), folder.reserved():
        folder.clear()


def predict(
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option(help="A .csv, .parquet or .npy file, written as the rows are read.")],
    proba: Annotated[bool, typer.Option("--proba", help="The probabilities too.")] = False,
    device: Device = "auto",
) -> None:
    """Label the rows of DATA with a fitted model."""
    if out.suffix not in (".csv", ".npy", ".parquet"):
        raise Wrong(f"--out {out} should end in .csv, .parquet or .npy.")
    if proba and out.suffix == ".npy":
        raise Wrong("--proba needs a .csv or .parquet file.")
    check_out(out, folder=False, reads=data)
    from ..reading.inputs import read as read_rows
    from ..saving.answers import write
    from ..saving.load import opened

    saved = opened(model)
    estimator = saved.estimator(device=device)
    in_groups = Path(data).suffix == ".parquet" and Path(data).is_file() and words_of(saved) is None
    X = Path(data) if in_groups else read_for(saved, estimator, data)[0]
    given = read_rows(estimator, X, fitting=False)
    write(out, estimator.predict_in_parts(given), len(given.rows), proba=proba, files=_files(data))
    print(f"{len(given.rows):,} labels in {out}")


def _files(data: str) -> list[str] | None:
    """The files of a folder, one a row."""
    from ..reading.files import captions

    return captions(data) if Path(data).expanduser().is_dir() else None
