"""The command. Everything heavy is imported when a command runs, so that --help answers at once."""

import dataclasses
import json
import os
import sys
import textwrap
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from . import __version__
from .methods import METHODS, TRANSDUCTIVE

if TYPE_CHECKING:
    import numpy as np

    from .files import Words
    from .reproduce.record import Records
    from .reproduce.spec import Table

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Differentiable clustering: k-means as a neural layer, on your data.",
)

Data = Annotated[
    str,
    typer.Argument(help="A .npy, .npz, .csv, .parquet or .jsonl (text) file, a folder of images, or a data-set name."),
]
Clusters = Annotated[int, typer.Option("-k", "--clusters", help="How many clusters.")]
Setting = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any other setting of the method.")
]
Seed = Annotated[int, typer.Option(help="Same seed, same answer.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]

WORDS = "words.json"  # beside a model that was fitted on texts
RECORD, SOURCE = "record.safetensors", "source.json"  # of its training, and where its data were
ASKED_WRONGLY = (
    ValueError,
    TypeError,
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)


class Wrong(ValueError):
    """You asked wrongly."""


def _version(wanted: bool) -> None:
    if wanted:
        print(f"diffclust {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    if context.invoked_subcommand != "fit" and int(os.environ.get("LOCAL_WORLD_SIZE", 1)) > 1:  # torchrun's
        raise Wrong(f"{context.invoked_subcommand}: only 'fit' is for several processes.")


@app.command()
def methods() -> None:
    """What there is, with paper and file."""
    for method in (*METHODS, *TRANSDUCTIVE):
        print(f"{method.name}  (diffclust.{method.estimator})")
        for text in (method.title, method.paper, f"diffclust/methods/{method.module}.py"):
            print(textwrap.fill(text, 80, initial_indent="    ", subsequent_indent="      "))


@app.command()
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
    from .callbacks import TrainingRecord
    from .engine.distributed import distributed, times_restarted
    from .files import Table, read

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
    estimator = _estimator(method, k, {**settings, **_settings(method, setting or []), "callbacks": [record]})
    with distributed() as processes:
        with processes.together():
            if processes.leads:
                _check_out(out, folder=True)
                if checkpoint is not None and any(checkpoint.glob("*.ckpt")) and not (resume or times_restarted()):
                    raise Wrong(f"{checkpoint} holds a checkpoint: add --resume to go on from it, or remove it.")
            in_groups = Path(data).suffix == ".parquet" and Path(data).is_file() and not processes.alone
            X, y, words = Table(Path(data)) if in_groups else read(data)
        began = time.perf_counter()
        estimator.fit(X)
        seconds = time.perf_counter() - began
    if not processes.leads:
        return
    estimator.save(out)
    _save_words(out, words)
    record.save(out / RECORD)
    _save_source(out, data)
    _write_labels(out / "labels.csv", estimator.labels_)
    rows = [
        ["rows", f"{len(estimator.labels_):,}"],
        ["clusters", " ".join(str(size) for size in estimator.diagnostics_["sizes"])],
        ["clustering loss", f"{estimator.clustering_loss_:.6g}"],
        ["seconds", f"{seconds:.1f}"],
    ]
    if y is not None:
        from .metrics import scores

        rows += [[name, f"{100 * value:.2f}"] for name, value in scores(y, estimator.labels_).items()]
    _table(["", f"{type(estimator).__name__} on {data}"], rows)
    print(f"Saved to {out}: 'diffclust predict {out} NEW --out labels.csv' labels new rows.")
    print(f"'diffclust report {out}' makes a page of it, 'diffclust explain {out} DATA --row 0' says why.")


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="Folder of a fitted model.")],
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
    _check_out(out, folder=False)
    from .inputs import read as read_rows
    from .persistence import load
    from .writers import write

    estimator = load(model, device=device)
    in_groups = Path(data).suffix == ".parquet" and Path(data).is_file() and _load_words(model) is None
    X = Path(data) if in_groups else _read_for(model, estimator, data)[0]
    given = read_rows(estimator, X, fitting=False)
    write(out, estimator.predict_in_parts(given), len(given.rows), proba=proba)
    print(f"{len(given.rows):,} labels in {out}")


@app.command()
def explain(
    model: Annotated[Path, typer.Argument(help="Folder of a fitted model.")],
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
    from .persistence import load

    estimator = load(model, device=device)
    X, names = None, None
    if data is not None:
        X, _, words = _read_for(model, estimator, data)
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
        _table(["contribution", ""], [*lines, ["bias", f"{said.bias:+.5g}"], ["sum", f"{total:+.5g}"]])


@app.command()
def report(
    model: Annotated[Path, typer.Argument(help="Folder of a fitted model.")],
    data: Annotated[str | None, typer.Argument(help="Its rows; by default the data it was fitted on.")] = None,
    out: Annotated[Path | None, typer.Option(help="The page; by default report.html in the model's folder.")] = None,
    sample: Annotated[int, typer.Option(help="How many rows the page shows.", min=10)] = 2000,
    layout: Annotated[str, typer.Option(help="Of the map: t-SNE or PCA.")] = "t-SNE",
    title: Annotated[str | None, typer.Option(help="Of the page.")] = None,
    device: Device = "auto",
) -> None:
    """Write one HTML page about a fitted model, which opens offline."""
    from .callbacks import TrainingRecord
    from .files import captions
    from .persistence import load

    out = out or model / "report.html"
    estimator = load(model, device=device)
    _check_out(out, folder=False)
    source = data or _load_source(model)
    X, y, words = _read_for(model, estimator, source)
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


@app.command()
def compare(
    data: Data,
    k: Clusters,
    methods: Annotated[
        str, typer.Option(help="Ours and classical ones, with commas between.")
    ] = "tell,kmeansnet,kmeans",
    seeds: Annotated[int, typer.Option(help="How many seeds each.", min=1)] = 3,
    device: Device = "auto",
    out: Annotated[Path | None, typer.Option(help="Also write every run to this .csv file.")] = None,
) -> None:
    """Run several methods over seeds and print the scores: mean and standard deviation."""
    from .baselines import BASELINES
    from .files import read

    if out is not None:
        _check_out(out, folder=False)
    ours = {method.name for method in METHODS}
    names = list(dict.fromkeys(name.strip() for name in methods.split(",") if name.strip()))
    unknown = [name for name in names if name not in ours and name not in BASELINES]
    if unknown or not names:
        raise Wrong(f"Unknown method {', '.join(unknown)!r}: choose from {', '.join([*sorted(ours), *BASELINES])}.")
    X, y, _ = read(data)
    rows = None if y is not None and ours.issuperset(names) else _flat(X)
    runs = []
    for name in sorted(names, key=lambda name: name in ours):  # the classical are quick: what is wrong shows at once
        for seed in range(seeds):
            began = time.perf_counter()
            if name in ours:
                labels = _estimator(name, k, {"random_state": seed, "device": device}).fit_predict(X)
            else:
                labels = BASELINES[name](rows, k, seed)
            seconds = time.perf_counter() - began
            runs.append({"method": name, "seed": seed, "seconds": seconds, **_scores(rows, y, labels)})
    _print_runs(runs, names)
    if out is not None:
        import csv

        with out.open("w", newline="") as file:
            writer = csv.DictWriter(file, runs[0])
            writer.writeheader()
            writer.writerows(runs)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for picture, model and report.")] = Path("diffclust-demo"),
    seed: Seed = 0,
) -> None:
    """Cluster scikit-learn's handwritten digits, beside k-means, draw the centres, and write a report."""
    from .baselines import BASELINES
    from .callbacks import TrainingRecord
    from .datasets import load
    from .pictures import cluster_sheet, write_png

    _check_out(out, folder=True)
    images, y = load("digits")
    print(f"{len(images)} images of {images.shape[1]}x{images.shape[2]} pixels; the labels are used for scoring only.")
    rows = []

    def entry(name: str, labels: "np.ndarray", seconds: float) -> None:
        values = _scores(None, y, labels).values()
        rows.append([name, *(f"{100 * value:.1f}" for value in values), f"{seconds:.1f}"])

    began = time.perf_counter()
    entry("k-means", BASELINES["kmeans"](_flat(images), 10, seed), time.perf_counter() - began)
    record = TrainingRecord(frames=5)
    settings = {"random_state": seed, "verbose": sys.stderr.isatty(), "callbacks": [record]}
    estimator = _estimator("tell", 10, settings)
    began = time.perf_counter()
    estimator.fit(images)
    entry("TELL", estimator.labels_, time.perf_counter() - began)
    _table(["", "ACC", "NMI", "ARI", "seconds"], rows)
    out.mkdir(parents=True, exist_ok=True)
    picture = out / "centres.png"
    centers = estimator.inverse_transform(estimator.cluster_centers_)
    sureness = estimator.predict_proba(images).max(1)
    write_png(picture, cluster_sheet(images, estimator.labels_, sureness, centers))
    estimator.save(out / "model")
    record.save(out / "model" / RECORD)
    _save_source(out / "model", "digits")
    print(f"{picture}: a row a cluster, its decoded centre first, then its surest members.")
    print(f"{out / 'model'}: the model; try 'diffclust explain {out / 'model'} digits --row 7'.")
    try:
        page = estimator.report(out / "report.html", images, y, title="TELL on handwritten digits")
    except ImportError as error:
        print(f"No report: {error}")
    else:
        print(f"{page.resolve()}: the report; open it in a browser.")


@app.command()
def reproduce(
    table: Annotated[str, typer.Argument(help="PAPER/TABLE, as --list names them.", show_default=False)] = "",
    show_all: Annotated[bool, typer.Option("--list", help="Which tables there are, with their runs.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Print what is there; run nothing.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A small version, in a minute.")] = False,
    seeds: Annotated[int | None, typer.Option(help="Runs of each row; the default is the table's, 5.", min=1)] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help='Rows with this in them ("mnist: TELL"); may be repeated.'),
    ] = None,
    together: Annotated[bool, typer.Option("--together", help="The runs of a row as restarts of one fit.")] = False,
    minutes: Annotated[float | None, typer.Option(help="Stop after so long; call again to go on.", min=0.0)] = None,
    device: Device = "auto",
    results: Annotated[Path | None, typer.Option(help="Folder of the CSV files; else benchmarks/results.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Folder for what is begun; else runs/reproduce.")] = None,
) -> None:
    """Run a paper's table again, and print it beside the published figures."""
    from .reproduce.record import Records
    from .reproduce.tables import TABLES, find

    folder = results or Path("runs/reproduce-quick" if quick else "benchmarks/results")
    _check_out(folder, folder=True, option="--results")
    if show_all or not table:
        return _list_tables(list(TABLES.values()), Records(folder))
    wanted = find(table)
    wanted = wanted.only(only) if only else wanted
    wanted = wanted.quick() if quick else wanted
    count = seeds or (2 if quick else wanted.seeds)
    records = Records(folder)
    whole = True
    if not show:
        from .reproduce.run import Runner

        runner = Runner(
            records,
            checkpoint or Path("runs/reproduce-quick/checkpoints" if quick else "runs/reproduce"),
            device,
            float("inf") if minutes is None else minutes,
            together,
            verbose=sys.stderr.isatty(),
            say=lambda line: print(line, flush=True),
        )
        whole = runner.run(wanted, count)
    _print_reproduced(wanted, records, count, folder)
    if quick:
        print("A small version: its figures say only that everything runs.")
    if not whole:
        print(f"Stopped after {minutes:g} minutes: the same command goes on from here.")


# ---- helpers


def _list_tables(tables: "list[Table]", records: "Records") -> None:
    rows = []
    for table in tables:
        specs = {row.spec.key: row.spec for row in table.rows if row.spec}
        done = sum(min(len(records.of(spec)), table.seeds) for spec in specs.values())
        rows.append([table.name, table.title, f"{done} of {table.seeds * len(specs)}"])
    _table(["table", "", "runs"], rows)


def _print_reproduced(table: "Table", records: "Records", seeds: int, folder: Path) -> None:
    from .reproduce.curves import draw
    from .reproduce.report import printed

    shown = printed(table, records, seeds)
    print(f"{table.name}: {table.title}")
    _table(shown.header, shown.lines)
    for note in shown.notes:
        print(note)
    picture = folder / f"{table.file}.png"
    if table.figure and draw(table, records, picture):
        print(f"Drawn: {picture}")


def _estimator(name: str, k: int, settings: dict[str, Any]) -> Any:
    method = next((m for m in METHODS if m.name == name), None)
    if method is None:
        raise Wrong(f"Unknown method {name!r}: choose from {', '.join(m.name for m in METHODS)}.")
    return method.load()(k, **settings)


def _settings(name: str, given: list[str]) -> dict[str, Any]:
    """NAME=VALUE pairs as Python would read the values; what it cannot read is a string."""
    from ast import literal_eval
    from dataclasses import fields
    from typing import get_args

    known = {knob.name: knob.type for knob in fields(_estimator(name, 2, {}))}
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


def _check_out(path: Path, *, folder: bool, option: str = "--out") -> None:
    """Complain before the work, not after it."""
    if path.exists() and path.is_dir() != folder:
        raise Wrong(f"{option} {path} is {'a file, not a folder' if folder else 'a folder, not a file'}.")
    home = path if folder else path.parent
    while folder and not home.exists():
        home = home.parent
    if not home.is_dir():
        raise Wrong(f"{option} {path}: {home} is not a folder.")
    if not os.access(home, os.W_OK):
        raise Wrong(f"{option} {path}: {home} cannot be written to.")


def _save_words(folder: Path, words: "Words | None") -> None:
    if words is None:
        (folder / WORDS).unlink(missing_ok=True)  # of an earlier model in the same folder
    else:
        (folder / WORDS).write_text(words.to_json(), encoding="utf-8")


def _load_words(folder: Path) -> "Words | None":
    from .files import Words

    path = folder / WORDS
    if not path.exists():
        return None
    try:
        return Words.from_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Wrong(f"{path} is damaged: {error}") from error


def _read_for(folder: Path, estimator: Any, data: str) -> Any:
    """DATA as the model in `folder` wants it: images of its size, texts in its words."""
    from .files import read

    known, sample = _load_words(folder), estimator.shape_.row
    table = read(data, image_shape=sample if len(sample) == 3 else None, words=known)
    if known is None and table.words is not None:
        raise Wrong(f"{data} holds texts, but {folder} was not fitted on a file of texts.")
    if known is not None and table.words is None:
        raise Wrong(f"{folder} was fitted on texts: give it a .jsonl file, not {data}.")
    return table


def _save_source(folder: Path, data: str) -> None:
    place = Path(data).expanduser()
    named = {"data": str(place.resolve()) if place.exists() else data}
    (folder / SOURCE).write_text(json.dumps(named), encoding="utf-8")


def _load_source(folder: Path) -> str:
    path = folder / SOURCE
    if not path.exists():
        raise Wrong(f"{folder} does not say which data it was fitted on: diffclust report {folder} DATA")
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["data"])
    except (ValueError, KeyError, TypeError) as error:
        raise Wrong(f"{path} is damaged ({error!r}): name the data, diffclust report {folder} DATA") from error


def _row(X: Any, i: int) -> Any:
    """One row of X, as an X of its own."""
    if not 0 <= i < X.shape[0]:
        raise Wrong(f"row {i} should be from 0 to {X.shape[0] - 1}: there are {X.shape[0]} rows.")
    return X.iloc[[i]] if hasattr(X, "iloc") else X[[i]]


def _flat(X: Any) -> Any:
    """Rows for the classical methods: images flattened and scaled as ours are, sparse rows made dense."""
    import numpy as np

    if hasattr(X, "toarray"):
        return X.toarray()
    X = np.asarray(X)
    if X.ndim > 2 and X.dtype.kind in "iu":
        X = X.astype(np.float32) / 255
    return X.reshape(len(X), -1)


def _scores(rows: Any, y: Any, labels: Any) -> dict[str, float]:
    """Against y if it is known, else of the rows themselves."""
    from .metrics import accuracy, ari, nmi, silhouette

    if y is None:
        return {"silhouette": silhouette(rows, labels)}
    return {"ACC": accuracy(y, labels), "NMI": nmi(y, labels), "ARI": ari(y, labels)}


def _print_runs(runs: list[dict[str, Any]], names: list[str]) -> None:
    from statistics import mean, stdev

    columns = [key for key in runs[0] if key not in ("method", "seed", "seconds")]
    rows = []
    for name in names:
        own = [run for run in runs if run["method"] == name]
        cells = []
        for column in columns:
            values = [100 * run[column] for run in own]
            cells.append(f"{mean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else ""))
        rows.append([name, *cells, f"{mean(run['seconds'] for run in own):.1f}"])
    _table(["", *columns, "seconds"], rows)


def _write_labels(path: Path, labels: "np.ndarray") -> None:
    with path.open("w") as file:
        file.write("row,label\n")
        file.writelines(f"{i},{label}\n" for i, label in enumerate(labels))


def _table(header: list[str], rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*header)
    for row in rows:
        table.add_row(*row)
    wide = None if sys.stdout.isatty() else 160  # in a file nothing needs to be folded
    Console(markup=False, highlight=False, width=wide).print(table)


def _say(text: str) -> None:
    print(f"diffclust: {' '.join(text.split())}", file=sys.stderr)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    _say(f"warning: {message}")


def _complaint(error: Exception) -> tuple[str, int]:
    """What to say of an error, and the exit code."""
    if hasattr(error, "format_message"):  # typer's own
        return error.format_message(), 2
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    return text, 2 if isinstance(error, ASKED_WRONGLY) else 1


def main() -> None:
    """Exit codes: 0, 1 (it failed), 2 (you asked wrongly). One line an error; DIFFCLUST_TRACEBACK=1 shows more."""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            code = app(sys.argv[1:] or ["--help"], prog_name="diffclust", standalone_mode=False)
        except (KeyboardInterrupt, typer.Abort):
            code = 130
        except Exception as error:
            if os.environ.get("DIFFCLUST_TRACEBACK"):
                raise
            text, code = _complaint(error)
            _say(text)
    if code == 130:  # typer's number for a Ctrl-C
        _say("stopped")
        code = 1
    sys.exit(code or 0)


if __name__ == "__main__":
    main()
