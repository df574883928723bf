"""diffclust methods, diffclust compare, diffclust demo."""

import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..extras import extra
from ..methods import METHODS, TRANSDUCTIVE
from .errors import UsageError, say
from .folders import Source, beside
from .options import (
    Clusters,
    ColumnOption,
    Config,
    DataArgument,
    Device,
    Label,
    Seed,
    Skip,
    check_ending,
    check_out,
    check_there,
    estimator_of,
    guess,
    wishes_of,
)
from .tables import print_table, print_unlabelled

if TYPE_CHECKING:
    import numpy as np

    from .workers import RunResult, Task

UNITS = """Columns have different units: the classical methods and the silhouette see each in its own unit,
as TELL does, so that none outweighs the others."""
COSTS = (("seconds", 1), ("gigabytes", 2))  # and the number of digits shown


def methods() -> None:
    """List the methods, with paper and source file."""
    from ..baselines import BASELINES

    for method in (*METHODS, *TRANSDUCTIVE):
        only = ": only for compare, because it cannot label new rows" if method in TRANSDUCTIVE else ""
        print(f"{method.name}  (diffclust.{method.estimator}){only}")
        for text in (method.title, method.paper, f"diffclust/methods/{method.module}.py"):
            print(textwrap.fill(text, 80, initial_indent="    ", subsequent_indent="      "))
    print("\nClassical methods, for compare:\n")
    for baseline in BASELINES.values():
        print(f"{baseline.name}  (diffclust.baselines.{baseline.estimator})")
        for text in (baseline.title, baseline.paper):
            print(textwrap.fill(text, 80, initial_indent="    ", subsequent_indent="      "))


def compare(
    data: DataArgument,
    k: Clusters,
    methods: Annotated[
        str,
        typer.Option(help="Names from `diffclust methods`, with commas; 'all': every method that can handle the data."),
    ] = "tell,kmeansnet,kmeans",
    seeds: Annotated[int, typer.Option(help="Number of seeds per method.", min=1)] = 3,
    jobs: Annotated[
        int | None, typer.Option(help="Parallel processes; 0: run in this process, without a time limit.", min=0)
    ] = None,
    time_limit: Annotated[float, typer.Option(help="Time limit of a run, in seconds.", min=1)] = 600,
    device: Device = "auto",
    out: Annotated[Path | None, typer.Option(help="Also write every run to this .csv file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Also plot the runs to this .html file.")] = None,
    column: ColumnOption = None,
    skip: Skip = None,
    label: Label = None,
    config: Config = None,
) -> None:
    """Run several methods with several seeds and print mean and standard deviation of the scores."""
    names = names_of(methods)
    for path, option, ending in ((out, "--out", ".csv"), (plot, "--plot", ".html")):
        if path is not None:
            check_out(path, folder=False, option=option, reads=data)
            check_ending(path, ending, option=option)
    if plot is not None:
        extra("plotly.graph_objects", "report", "--plot", package="plotly")
    check_there(data)
    wishes = wishes_of(column, skip)
    from ..reading.files import read
    from .workers import RunInputs, Task, run_all

    X, y = sampled(*read(data, label=label)[:2])
    rows, scaled = rows_for_all(X, wishes)
    check_rows(rows, k)
    if methods.strip() == "all":
        names = fitting(names, rows, k)
    tasks = [Task(name, seed) for name in names for seed in range(seeds)]
    inputs = RunInputs(X, rows, k, device, wishes)
    finished = dict(run_all(inputs, tasks, default_jobs(device) if jobs is None else jobs, time_limit))
    runs = [run_of(task, finished[task], rows, y) for task in tasks]
    say_failures(runs)
    stability = {name: agreement([finished[Task(name, seed)].labels for seed in range(seeds)]) for name in names}
    print_runs(runs, stability)
    if scaled:
        print(UNITS)
    print_unlabelled(y)
    if out is not None:
        write_runs(out, runs)
    if plot is not None:
        from ..plot import comparison

        comparison(runs).write_html(plot, include_plotlyjs=True)


def sampled(X: Any, y: Any) -> tuple[Any, Any]:
    """The rows and their labels. Of a file too large to be read whole, the sample that was kept, with a message."""
    from ..reading.large_tables import TextTable

    if not isinstance(X, TextTable):
        return X, y
    n, kept = X.shape[0], len(X.sample)
    step = 1
    while len(range(0, n, step)) > kept:
        step *= 2
    say(f"{X.path} is too large to be read whole: the methods are compared on every {step}th row, {kept:,} of {n:,}.")
    return X.sample, None if y is None else y[::step]


def names_of(methods: str) -> list[str]:
    """The names of the methods to compare, the classical ones first: they are fast, so errors show early."""
    from ..baselines import BASELINES

    known = list(dict.fromkeys([*BASELINES, *(method.name for method in (*TRANSDUCTIVE, *METHODS))]))
    names = list(dict.fromkeys(name.strip() for name in methods.split(",") if name.strip()))
    if names == ["all"]:
        return known
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        close = guess(unknown[0], known) if unknown else ""
        raise UsageError(f"Unknown method {', '.join(unknown)!r}{close}: choose from {', '.join(known)}, or all.")
    return sorted(names, key=known.index)


def check_rows(rows: Any, k: int) -> None:
    """Raise an error for rows that no method can use, before the first one starts."""
    from sklearn.utils import check_array

    n = len(check_array(rows, ensure_min_samples=2))
    if not 1 <= k <= n:
        raise UsageError(f"k={k} should be from 1 to the number of rows, {n}.")


def fitting(names: list[str], rows: Any, k: int) -> list[str]:
    """The methods that can handle these rows, with a message about each of the others."""
    from ..baselines import BASELINES
    from ..baselines.clusterer import GB, free_memory

    kept, n, free = [], len(rows), free_memory()
    for name in names:
        needs = BASELINES[name].needs(n, k) if name in BASELINES else 0.0
        if needs > free:
            say(f"{name} is left out: {n} rows would need {needs / GB:.1f} GB, and {free / GB:.1f} GB are free.")
        elif name in BASELINES and not getattr(BASELINES[name].load(), "signed", True) and rows.min() < 0:
            say(f"{name} is left out: it needs values >= 0, and the smallest is {rows.min():g}.")
        else:
            kept.append(name)
    return kept


def default_jobs(device: str) -> int:
    """The number of parallel processes: one per processor, or a single one on a GPU."""
    import os

    from ..engine.runtime import choose_device

    return 1 if choose_device(device).type == "cuda" else os.cpu_count() or 1


def run_of(task: "Task", result: "RunResult", rows: Any, y: Any) -> dict[str, Any]:
    """A run as a row of the table; None for unknown values."""
    from ..metrics import silhouette

    line = {**task._asdict(), **dict.fromkeys(() if y is None else ("ACC", "NMI", "ARI")), "silhouette": None}
    if result.labels is not None:
        line |= {**({} if y is None else scores_of(y, result.labels)), "silhouette": silhouette(rows, result.labels)}
    memory = None if result.labels is None else round(result.memory / 1e9, 3)
    return {**line, "seconds": round(result.seconds, 3), "gigabytes": memory, "failure": result.failure}


def say_failures(runs: list[dict[str, Any]]) -> None:
    """Print why runs have no scores. Raise an error if no run has scores."""
    failures = dict.fromkeys((run["method"], run["failure"]) for run in runs if run["failure"])
    for name, failure in failures:
        say(f"{name}: {failure}")
    if all(run["failure"] for run in runs):
        raise RuntimeError("No run finished.")


def demo(
    out: Annotated[Path, typer.Option(help="Folder for picture, model and report.")] = Path("diffclust-demo"),
    seed: Seed = 0,
) -> None:
    """Cluster scikit-learn's handwritten digits, compare with k-means, draw the centres and write a report."""
    from ..baselines import BASELINES
    from ..callbacks import TrainingRecord
    from ..datasets import load
    from ..explain.pictures import cluster_sheet, write_png
    from ..saving.save import save

    check_out(out, folder=True)
    images, y = load("digits")
    print(f"{len(images)} images of {images.shape[1]}x{images.shape[2]} pixels; the labels are used for scoring only.")
    rows = []

    def entry(name: str, labels: "np.ndarray", seconds: float) -> None:
        values = scores_of(y, labels).values()
        rows.append([name, *(f"{100 * value:.1f}" for value in values), f"{seconds:.1f}"])

    began = time.perf_counter()
    entry("k-means", BASELINES["kmeans"](flat(images), 10, seed), time.perf_counter() - began)
    record = TrainingRecord(frames=5)
    settings = {"random_state": seed, "verbose": sys.stderr.isatty(), "callbacks": [record]}
    estimator = estimator_of("tell", 10, settings)
    began = time.perf_counter()
    estimator.fit(images)
    entry("TELL", estimator.labels_, time.perf_counter() - began)
    print_table(["", "ACC", "NMI", "ARI", "seconds"], rows)
    out.mkdir(parents=True, exist_ok=True)
    picture = out / "centres.png"
    centers = estimator.inverse_transform(estimator.cluster_centers_)
    sureness = estimator.predict_proba(images).max(1)
    write_png(picture, cluster_sheet(images, estimator.labels_, sureness, centers))
    save(estimator, out / "model", beside(Source("digits"), record))
    print(f"{picture}: one line per cluster: its decoded centre, then its most certain members.")
    print(f"{out / 'model'}: the model; try 'diffclust explain {out / 'model'} --row 7'.")
    try:
        page = estimator.report(out / "report.html", images, y, title="TELL on handwritten digits")
    except ImportError as error:
        print(f"No report: {error}")
    else:
        print(f"{page.resolve()}: the report; open it in a browser.")


def rows_for_all(X: Any, wishes: dict[str, str] | None = None) -> tuple[Any, bool]:
    """Rows for the classical methods and for the silhouette, and whether they were scaled: the columns of a table or an
    array are scaled as our own methods scale them, images and sparse rows are not."""
    from ..estimator.networks import in_column_units
    from ..reading.tables import Columns, needs_column_types

    reading = Columns.fit(X, wishes) if needs_column_types(X, wishes) else None  # type: ignore[arg-type]
    rows = flat(X if reading is None else reading.transform(X))
    if reading is None and getattr(X, "ndim", 2) > 2:
        return rows, False
    scaled = in_column_units(rows, None if reading is None else reading.scale)
    return (rows, False) if scaled is None else (scaled, True)


def flat(X: Any) -> Any:
    """Samples as dense rows. Integer images are scaled to [0, 1]."""
    import numpy as np

    if hasattr(X, "toarray"):
        return X.toarray()
    X = np.asarray(X)
    if X.ndim > 2 and X.dtype.kind in "iu":
        X = X.astype(np.float32) / (255 if X.max() <= 255 else 65535)
    return X.reshape(len(X), -1)


def scores_of(y: Any, labels: Any) -> dict[str, float]:
    """Scores on the rows whose label is known."""
    from ..metrics import accuracy, ari, is_labelled, nmi

    known = is_labelled(y)
    y, labels = y[known], labels[known]
    return {"ACC": accuracy(y, labels), "NMI": nmi(y, labels), "ARI": ari(y, labels)}


def agreement(labels: list[Any]) -> float | None:
    """Stability: the mean adjusted Rand index over pairs of seeds."""
    from itertools import combinations
    from statistics import mean

    from ..metrics import ari

    pairs = list(combinations([each for each in labels if each is not None], 2))
    return mean(ari(a, b) for a, b in pairs) if pairs else None


def print_runs(runs: list[dict[str, Any]], stability: dict[str, float | None]) -> None:
    """Print a line for each method: means and standard deviations over its seeds."""
    from statistics import mean, stdev

    columns = [key for key in ("ACC", "NMI", "ARI", "silhouette") if key in runs[0]]
    rows = []
    for name, alike in stability.items():
        own = [run for run in runs if run["method"] == name and not run["failure"]]
        cells = []
        for column in columns:
            values = [100 * run[column] for run in own]
            spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
            cells.append(f"{mean(values):.1f}{spread}" if values else "")
        cells.append("" if alike is None else f"{100 * alike:.1f}")
        cells += [f"{mean(run[key] for run in own):.{places}f}" if own else "" for key, places in COSTS]
        rows.append([name, *cells])
    print_table(["", *columns, "stability", "seconds", "GB"], rows)
    print("Scores are in percent, higher is better. Silhouette: how compact clusters are, and how far from")
    print("others. Stability: how much the clusters of different seeds agree.")


def write_runs(out: Path, runs: list[dict[str, Any]]) -> None:
    """Write a line for each run."""
    import csv

    from ..engine.disk import atomic_write

    with atomic_write(out) as part, part.open("w", newline="") as file:
        writer = csv.DictWriter(file, runs[0])
        writer.writeheader()
        writer.writerows(runs)
