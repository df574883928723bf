"""Rows, texts and cells: every method's defaults beside k-means, UMAP + k-means and UMAP + HDBSCAN, k given.

    python benchmarks/rows.py --data FOLDER                       # TELL and the baselines, five seeds
    python benchmarks/rows.py --data FOLDER --methods DEC,DCN --seeds 2 --jobs 8
    python benchmarks/rows.py --data FOLDER --new-rows            # fit on 80 % of the rows, predict the rest
    python benchmarks/rows.py --show                              # the tables, from the CSV

FOLDER has .npz files with X (or images) and labels. Labels score and choose nothing. Each fit runs on one thread;
`seconds` is processor time. UMAP needs umap-learn: 15 neighbours, 10 dimensions, min_dist 0, on standardised columns,
on columns as they are (cosine where more than half of the values are zero), and in the units that our own network sees
("our units", cosine), which tells the encoder from the scaling. "TELL, neighbours" never falls back to k-means: beside
"k-means, our units" and TELL it says how often the fallback is right. "usual scaling" is what people do, by kind of
data: standardised but for cells, texts and faces; "the better scaling" of each set is one that only labels can tell.
Results are appended to benchmarks/results/rows.csv; what is there is not run again.
"""

import argparse
import csv
import os
import statistics
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "rows.csv"
COLUMNS = ("data", "method", "seed", "acc", "nmi", "ari", "seconds", "network", "new_acc")
BASELINES = (
    "k-means, standardised",
    "k-means",
    "UMAP + k-means, standardised",
    "UMAP + k-means",
    "UMAP + k-means, our units",
    "UMAP + HDBSCAN",
    "k-means, our units",
)
AS_THEY_ARE = ("bbc", "pbmc4k", "searchsnippets", "umist", "worm_neuron", "20newsgroups", "r8", "optdigits")


def load(path: Path) -> tuple[np.ndarray, np.ndarray]:
    arrays = np.load(path)
    X = arrays["X"] if "X" in arrays else arrays["images"]
    return X.reshape(len(X), -1).astype(np.float64), arrays["labels"]


def standardised(X: np.ndarray) -> np.ndarray:
    deviation = X.std(0)
    return (X - X.mean(0)) / np.where(deviation > 0, deviation, 1)


def in_our_units(X: np.ndarray) -> np.ndarray:
    import torch

    from diffclust.engine.data import Data
    from diffclust.engine.rows import TensorRows
    from diffclust.estimator import networks

    data = Data(TensorRows(torch.from_numpy(X).float()), torch.device("cpu"))
    return data.map(networks.build("scaled", data, 0, {}).encode).double().numpy()


def baseline(method: str, X: np.ndarray, k: int, seed: int) -> np.ndarray:
    from sklearn.cluster import HDBSCAN, KMeans

    sparse = X.min() >= 0 and (X == 0).mean() > 0.5
    metric = "cosine" if (sparse and "standardised" not in method) or "our units" in method else "euclidean"
    if "our units" in method:
        X = in_our_units(X)
    elif "standardised" in method or (method == "UMAP + HDBSCAN" and not sparse):
        X = standardised(X)
    if method.startswith("UMAP"):
        import umap

        X = umap.UMAP(n_neighbors=15, n_components=10, min_dist=0, metric=metric, random_state=seed).fit_transform(X)
    if method == "UMAP + HDBSCAN":
        return HDBSCAN(min_cluster_size=max(5, len(X) // 100), copy=True).fit_predict(X)
    return KMeans(k, n_init=10, random_state=seed).fit_predict(X)


def kmeans_for_new_rows(
    method: str, X: np.ndarray, new: np.ndarray, k: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Labels of the fitted rows and of the new ones."""
    from sklearn.cluster import KMeans
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler() if "standardised" in method else "passthrough"
    model = make_pipeline(scaler, KMeans(k, n_init=10, random_state=seed)).fit(X)
    return [model[-1].labels_, model.predict(new)]


def run(path: Path, method: str, seed: int, new_rows: bool) -> dict[str, Any]:
    import torch

    import diffclust
    from diffclust import metrics

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    X, y = load(path)
    k = int(y.max()) + 1
    network, new_acc = "", ""
    fitted = np.arange(len(y))
    if new_rows:
        fitted = np.random.default_rng(seed).permutation(len(y))[: int(0.8 * len(y))]
    new = np.setdiff1d(np.arange(len(y)), fitted)
    start = time.process_time()
    if method in BASELINES and new_rows:
        labels, answers = kmeans_for_new_rows(method, X[fitted], X[new], k, seed)
    elif method in BASELINES:
        labels = baseline(method, X[fitted], k, seed)
    else:
        estimator, _, features = method.partition(", ")
        settings = {"features": features} if features else {}
        model = getattr(diffclust, estimator)(k, random_state=seed, device="cpu", **settings).fit(X[fitted])
        labels = model.labels_
        network = type(model.model_.autoencoder).__name__ if hasattr(model, "model_") else ""  # SSC has none
        answers = model.predict(X[new]) if new_rows else None
    seconds = time.process_time() - start
    if new_rows:
        new_acc = f"{100 * metrics.accuracy(y[new], answers):.2f}"
    figures = (metrics.accuracy, metrics.nmi, metrics.ari)
    scores = [f"{100 * figure(y[fitted], labels):.2f}" for figure in figures]
    name = method + (", fitted on 80 %" if new_rows else "")
    return dict(zip(COLUMNS, (path.stem, name, seed, *scores, f"{seconds:.2f}", network, new_acc), strict=True))


def known(results: Path) -> list[dict[str, str]]:
    if not results.exists():
        return []
    with results.open() as file:
        return list(csv.DictReader(file))


Scores = tuple[float, ...]


def means(rows: list[dict[str, str]], columns: Sequence[str]) -> dict[tuple[str, str], Scores]:
    """By data and method, over seeds."""
    found: dict[tuple[str, str], list[Scores]] = {}
    for row in rows:
        found.setdefault((row["data"], row["method"]), []).append(tuple(float(row[name]) for name in columns))
    return {key: tuple(map(statistics.mean, zip(*values, strict=True))) for key, values in found.items()}


def show(rows: list[dict[str, str]]) -> None:
    """ACC / NMI by set, mean over seeds, then over sets; then what was fitted on 80 % of the rows."""
    fits = means([row for row in rows if not row["new_acc"]], ("acc", "nmi"))
    sets, methods = sorted({data for data, _ in fits}), list(dict.fromkeys(method for _, method in fits))
    print(f"{'':18}" + "".join(f"{method[:22]:>24}" for method in methods))
    for data in sets:
        cells = [fits.get((data, method)) for method in methods]
        print(f"{data:18}" + "".join(f"{'-' if c is None else f'{c[0]:.1f} / {c[1]:.1f}':>24}" for c in cells))
    print(f"{'all sets':18}" + "".join(f"{over_sets(fits, sets, [method]):>24}" for method in methods))
    for prefix in ("k-means", "UMAP + k-means"):
        two = [prefix, f"{prefix}, standardised"]
        print(f"{prefix}, the better scaling of each set: {over_sets(fits, sets, two)}")
        usual = {(data, prefix): fits.get((data, two[data not in AS_THEY_ARE])) for data in sets}
        print(f"{prefix}, usual scaling: {over_sets({k: v for k, v in usual.items() if v}, sets, [prefix])}")
    new = means([row for row in rows if row["new_acc"]], ("acc", "new_acc"))
    for (data, method), (fitted, unseen) in sorted(new.items()):
        print(f"{data:18}{method:40} {fitted:5.1f} -> {unseen:5.1f} ({unseen - fitted:+.1f})")


def over_sets(fits: dict[tuple[str, str], Scores], sets: list[str], methods: list[str]) -> str:
    """ACC / NMI, mean over sets, of the better method in each."""
    best = [max(found) for data in sets if (found := [fits[data, m] for m in methods if (data, m) in fits])]
    if not best:
        return "-"
    acc, nmi = map(statistics.mean, zip(*best, strict=True))
    return f"{acc:.1f} / {nmi:.1f}" + ("" if len(best) == len(sets) else f" ({len(best)})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--methods", default="TELL," + ",".join(b.replace(",", ";") for b in BASELINES[:-1]))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sets", default="")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--new-rows", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--show", action="store_true")
    wish = parser.parse_args()
    if wish.show:
        show(known(wish.results))
        return
    done = {(row["data"], row["method"], int(row["seed"])) for row in known(wish.results)}
    suffix = ", fitted on 80 %" if wish.new_rows else ""
    methods = [method.replace(";", ",") for method in wish.methods.split(",")]
    paths = sorted(p for p in wish.data.glob("*.npz") if not wish.sets or p.stem in wish.sets.split(","))
    work = [(p, m, s, wish.new_rows) for s in range(wish.seeds) for m in methods for p in paths]
    work = [each for each in work if (each[0].stem, each[1] + suffix, each[2]) not in done]
    with ProcessPoolExecutor(wish.jobs) as pool, wish.results.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if file.tell() == 0:
            writer.writeheader()
        for row in pool.map(run, *zip(*work, strict=True)) if work else ():
            writer.writerow(row)
            file.flush()
            print(*row.values(), flush=True)
    show(known(wish.results))


if __name__ == "__main__":
    main()
