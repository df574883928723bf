"""Rows, texts and cells: every method's defaults beside k-means, UMAP + k-means and UMAP + HDBSCAN, k given.

    python benchmarks/rows.py --data FOLDER                       # TELL and the baselines, five seeds
    python benchmarks/rows.py --data FOLDER --methods DEC,DCN --seeds 2 --jobs 8
    python benchmarks/rows.py --data FOLDER --new-rows            # fit on 80 % of the rows, predict the rest
    python benchmarks/rows.py --show                              # the tables, from the CSV

FOLDER has .npz files with X (or images) and labels. Labels score and choose nothing. Each fit runs on one thread;
`seconds` is processor time. UMAP needs umap-learn: 15 neighbours, 10 dimensions, min_dist 0, on standardised columns
and on columns as they are, cosine where more than half of the values are zero; of the two, the better is shown, as of
k-means, although only labels can tell which. Results are appended to benchmarks/results/rows.csv; what is there is not
run again. The rows of UMAP that are there now (two seeds) come from another script and machine, with one scaling a
set: standardised but for cells, texts and faces.
"""

import argparse
import csv
import os
import statistics
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "rows.csv"
COLUMNS = ("data", "method", "seed", "acc", "nmi", "ari", "seconds", "network", "new_acc")
BASELINES = ("k-means, standardised", "k-means", "UMAP + k-means, standardised", "UMAP + k-means", "UMAP + HDBSCAN")


def load(path: Path) -> tuple[np.ndarray, np.ndarray]:
    arrays = np.load(path)
    X = arrays["X"] if "X" in arrays else arrays["images"]
    return X.reshape(len(X), -1).astype(np.float64), arrays["labels"]


def standardised(X: np.ndarray) -> np.ndarray:
    deviation = X.std(0)
    return (X - X.mean(0)) / np.where(deviation > 0, deviation, 1)


def baseline(method: str, X: np.ndarray, k: int, seed: int) -> np.ndarray:
    from sklearn.cluster import HDBSCAN, KMeans

    sparse = X.min() >= 0 and (X == 0).mean() > 0.5
    if "standardised" in method or (method == "UMAP + HDBSCAN" and not sparse):
        X = standardised(X)
    if method.startswith("UMAP"):
        import umap

        metric = "cosine" if sparse and "standardised" not in method else "euclidean"
        X = umap.UMAP(n_neighbors=15, n_components=10, min_dist=0, metric=metric, random_state=seed).fit_transform(X)
    if method == "UMAP + HDBSCAN":
        return HDBSCAN(min_cluster_size=max(5, len(X) // 100), copy=True).fit_predict(X)
    return KMeans(k, n_init=10, random_state=seed).fit_predict(X)


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
    start = time.process_time()
    if method in BASELINES:
        labels = baseline(method, X[fitted], k, seed)
    else:
        model = getattr(diffclust, method)(k, random_state=seed, device="cpu").fit(X[fitted])
        labels, network = model.labels_, type(model.model_.autoencoder).__name__
    seconds = time.process_time() - start
    if new_rows:
        new = np.setdiff1d(np.arange(len(y)), fitted)
        new_acc = f"{100 * metrics.accuracy(y[new], model.predict(X[new])):.2f}"
    figures = (metrics.accuracy, metrics.nmi, metrics.ari)
    scores = [f"{100 * figure(y[fitted], labels):.2f}" for figure in figures]
    name = method + (", fitted on 80 %" if new_rows else "")
    return dict(zip(COLUMNS, (path.stem, name, seed, *scores, f"{seconds:.2f}", network, new_acc), strict=True))


def known() -> list[dict[str, str]]:
    if not RESULTS.exists():
        return []
    with RESULTS.open() as file:
        return list(csv.DictReader(file))


def show() -> None:
    """ACC / NMI by set, mean over seeds; of k-means and UMAP the better of two scalings."""
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for row in known():
        if not row["new_acc"]:
            scores = float(row["acc"]), float(row["nmi"]), float(row["seconds"])
            found.setdefault((row["data"], row["method"]), []).append(scores)
    means = {key: tuple(map(statistics.mean, zip(*values, strict=True))) for key, values in found.items()}
    sets = sorted({data for data, _ in means})
    methods = list(dict.fromkeys(row["method"] for row in known() if not row["new_acc"]))
    print(f"{'':18}" + "".join(f"{method[:22]:>24}" for method in methods))
    for data in sets:
        cells = [means.get((data, method)) for method in methods]
        print(f"{data:18}" + "".join(f"{'-' if c is None else f'{c[0]:.1f} / {c[1]:.1f}':>24}" for c in cells))
    for label, names in (("all sets", methods),):
        cells = [[means[data, method] for data in sets if (data, method) in means] for method in names]
        means_of = [tuple(map(statistics.mean, zip(*cell, strict=True))) for cell in cells]
        print(f"{label:18}" + "".join(f"{f'{c[0]:.1f} / {c[1]:.1f}':>24}" for c in means_of))
    for prefix in ("k-means", "UMAP + k-means"):
        two = [m for m in methods if m.startswith(prefix)]
        best = [max(means[d, m] for m in two if (d, m) in means) for d in sets if any((d, m) in means for m in two)]
        if best:
            acc, nmi, _ = map(statistics.mean, zip(*best, strict=True))
            print(f"{prefix}, the better scaling of each set: {acc:.1f} / {nmi:.1f} over {len(best)} sets")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--methods", default="TELL," + ",".join(b.replace(",", ";") for b in BASELINES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sets", default="")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--new-rows", action="store_true")
    parser.add_argument("--show", action="store_true")
    wish = parser.parse_args()
    if wish.show:
        show()
        return
    done = {(row["data"], row["method"], int(row["seed"])) for row in known()}
    suffix = ", fitted on 80 %" if wish.new_rows else ""
    methods = [method.replace(";", ",") for method in wish.methods.split(",")]
    paths = sorted(p for p in wish.data.glob("*.npz") if not wish.sets or p.stem in wish.sets.split(","))
    work = [(p, m, s, wish.new_rows) for s in range(wish.seeds) for m in methods for p in paths]
    work = [each for each in work if (each[0].stem, each[1] + suffix, each[2]) not in done]
    with ProcessPoolExecutor(wish.jobs) as pool, RESULTS.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if file.tell() == 0:
            writer.writeheader()
        for row in pool.map(run, *zip(*work, strict=True)) if work else ():
            writer.writerow(row)
            file.flush()
            print(*row.values(), flush=True)
    show()


if __name__ == "__main__":
    main()
