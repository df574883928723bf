"""diffclust methods, diffclust compare, diffclust demo."""

import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..methods import METHODS, TRANSDUCTIVE
from .errors import Wrong
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
    check_out,
    estimator_of,
    wishes_of,
)
from .tables import print_table, print_unlabelled

if TYPE_CHECKING:
    import numpy as np


def methods() -> None:
    """What there is, with paper and file."""
    for method in (*METHODS, *TRANSDUCTIVE):
        only = ": for compare alone, as it labels only the rows it is given" if method in TRANSDUCTIVE else ""
        print(f"{method.name}  (diffclust.{method.estimator}){only}")
        for text in (method.title, method.paper, f"diffclust/methods/{method.module}.py"):
            print(textwrap.fill(text, 80, initial_indent="    ", subsequent_indent="      "))


def compare(
    data: DataArgument,
    k: Clusters,
    methods: Annotated[
        str, typer.Option(help="Ours, and kmeans, gmm, fuzzy, spectral, ssc and others; with commas between.")
    ] = "tell,kmeansnet,kmeans",
    seeds: Annotated[int, typer.Option(help="How many seeds each.", min=1)] = 3,
    device: Device = "auto",
    out: Annotated[Path | None, typer.Option(help="Also write every run to this .csv file.")] = None,
    column: ColumnOption = None,
    skip: Skip = None,
    label: Label = None,
    config: Config = None,
) -> None:
    """Run several methods over seeds and print the scores: mean and standard deviation."""
    from ..baselines import BASELINES
    from ..reading.files import read

    if out is not None:
        check_out(out, folder=False, reads=data)
    ours = {method.name for method in METHODS}
    names = list(dict.fromkeys(name.strip() for name in methods.split(",") if name.strip()))
    unknown = [name for name in names if name not in ours and name not in BASELINES]
    if unknown or not names:
        raise Wrong(f"Unknown method {', '.join(unknown)!r}: choose from {', '.join([*sorted(ours), *BASELINES])}.")
    X, y, _ = read(data, label=label)
    wishes = wishes_of(column, skip)
    rows = None if y is not None and ours.issuperset(names) else flat(X, wishes)
    runs = []
    for name in sorted(names, key=lambda name: name in ours):  # the classical are quick: what is wrong shows at once
        for seed in range(seeds):
            began = time.perf_counter()
            if name in ours:
                settings = {"random_state": seed, "device": device, "columns": wishes}
                labels = estimator_of(name, k, settings).fit_predict(X)
            else:
                labels = BASELINES[name](rows, k, seed)
            seconds = time.perf_counter() - began
            runs.append({"method": name, "seed": seed, "seconds": seconds, **_scores(rows, y, labels)})
    _print_runs(runs, names)
    print_unlabelled(y)
    if out is not None:
        import csv

        from ..engine.disk import written_whole

        with written_whole(out) as part, part.open("w", newline="") as file:
            writer = csv.DictWriter(file, runs[0])
            writer.writeheader()
            writer.writerows(runs)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for picture, model and report.")] = Path("diffclust-demo"),
    seed: Seed = 0,
) -> None:
    """Cluster scikit-learn's handwritten digits, beside k-means, draw the centres, and write a report."""
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
        values = _scores(None, y, labels).values()
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
    print(f"{picture}: a row a cluster, its decoded centre first, then its surest members.")
    print(f"{out / 'model'}: the model; try 'diffclust explain {out / 'model'} --row 7'.")
    try:
        page = estimator.report(out / "report.html", images, y, title="TELL on handwritten digits")
    except ImportError as error:
        print(f"No report: {error}")
    else:
        print(f"{page.resolve()}: the report; open it in a browser.")


def flat(X: Any, wishes: dict[str, str] | None = None) -> Any:
    """Rows for the classical methods: images flattened and scaled as ours are, sparse rows made dense, tables read as
    for ours, in their units."""
    import numpy as np

    from ..reading.tables import Columns, wants_reading

    if wants_reading(X, wishes):  # type: ignore[arg-type]
        reading = Columns.fit(X, wishes)  # type: ignore[arg-type]
        rows: Any = reading.transform(X)
        rows = np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows)
        return rows if reading.scale is None else rows / reading.scale
    if hasattr(X, "toarray"):
        return X.toarray()
    X = np.asarray(X)
    if X.ndim > 2 and X.dtype.kind in "iu":
        X = X.astype(np.float32) / (255 if X.max() <= 255 else 65535)
    return X.reshape(len(X), -1)


def _scores(rows: Any, y: Any, labels: Any) -> dict[str, float]:
    """Against y if it is known, else of the rows themselves."""
    from ..metrics import accuracy, ari, is_labelled, nmi, silhouette

    if y is None:
        return {"silhouette": silhouette(rows, labels)}
    known = is_labelled(y)
    y, labels = y[known], labels[known]
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
    print_table(["", *columns, "seconds"], rows)
