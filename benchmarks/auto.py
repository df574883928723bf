"""How many clusters are found, and how good they are, beside HDBSCAN and UMAP + HDBSCAN; what helps at a given number.

    python benchmarks/auto.py --data FOLDER                    # all sets, five seeds
    python benchmarks/auto.py --data FOLDER --sets digits,usps --seeds 2 --methods TELL
    python benchmarks/auto.py --show                           # the table, from the CSV

FOLDER has mnist.npz, usps.npz, coil20.npz, pendigits.npz, in itself or in FOLDER/sets, and the tables in FOLDER/rows.
Labels score and choose nothing. "TELL, k given" is told the number of classes: its time is what the search for the
number is set against. "TELL, k over" begins with twice as many, and "..., k-means start" has init="k-means", which
differs on images alone. "TELL, labels" is told ten labels a class, which are not scored, and "TELL, links" two
hundred pairs of rows of one class. UMAP needs umap-learn. `blob` and `uniform` have one cluster. Results are appended
to benchmarks/results/auto.csv; what is there is not run again.
"""

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import sweep

RESULTS = Path(__file__).parent / "results" / "auto.csv"
COLUMNS = ("data", "method", "seed", "classes", "found", "acc", "nmi", "ari", "noise", "seconds", "device")
METHODS = ("TELL", "TELL, k given", "TELL, k over", "TELL, labels", "TELL, links", "HDBSCAN", "UMAP + HDBSCAN")
LABELS, LINKS = 10, 200  # a class, and in all
ROWS = "bbc,breast_cancer,mice_protein,movement_libras,pbmc4k,satimage,searchsnippets,segment,umist,wine,worm_neuron"
SETS = f"digits,usps,mnist,pendigits,coil20,{ROWS},blob,uniform"


def load(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    if name == "blob":
        return rng.normal(size=(1000, 10)), np.zeros(1000, int)
    if name == "uniform":
        return rng.uniform(size=(1000, 5)), np.zeros(1000, int)
    if name == "digits":
        from diffclust import datasets

        return datasets.load("digits")
    paths = [folder / part / f"{name}.npz" for part in ("", "sets", "rows")]
    arrays = np.load(next(path for path in paths if path.exists()))
    return arrays["X"] if "X" in arrays else arrays["images"], arrays["labels"]


def knowledge_of(method: str, y: np.ndarray, seed: int) -> dict[str, Any]:
    """What the method is told of some rows, drawn by the seed."""
    rng = np.random.default_rng(seed)
    if method.endswith("labels"):
        known = np.full(len(y), -1)
        for each in np.unique(y):
            some = rng.permutation(np.flatnonzero(y == each))[:LABELS]
            known[some] = each
        return {"known": known}
    if method.endswith("links"):
        pairs = rng.integers(len(y), size=(100 * LINKS, 2))
        alike = pairs[(y[pairs[:, 0]] == y[pairs[:, 1]]) & (pairs[:, 0] != pairs[:, 1])]
        return {"must_link": alike[:LINKS]}
    return {}


def labels_of(
    method: str, X: np.ndarray, k: int, seed: int, device: str, knowledge: dict[str, Any] | None = None
) -> np.ndarray:
    """The clusters of the rows; -1 where HDBSCAN says noise."""
    if method.startswith("TELL"):
        from diffclust import TELL

        number, over = "auto" if method == "TELL" else k, 2.0 if "over" in method else 1.0
        init = "k-means" if method.endswith("k-means start") else "neighbours"
        model = TELL(number, overcluster=over, init=init, random_state=seed, device=device)
        return model.fit(X, **(knowledge or {})).labels_
    from sklearn.cluster import HDBSCAN

    X = X.reshape(len(X), -1).astype(np.float64)
    sparse = X.min() >= 0 and (X == 0).mean() > 0.5
    if not sparse:
        deviation = X.std(0)
        X = (X - X.mean(0)) / np.where(deviation > 0, deviation, 1)
    if method.startswith("UMAP"):
        import umap

        metric = "cosine" if sparse else "euclidean"
        X = umap.UMAP(n_neighbors=15, n_components=10, min_dist=0, metric=metric, random_state=seed).fit_transform(X)
    return HDBSCAN(min_cluster_size=max(5, len(X) // 100), copy=True).fit_predict(X)


def run(folder: Path, device: str, name: str, method: str, seed: int) -> list[dict[str, Any]]:
    from diffclust import TELL, metrics  # noqa: F401, before the clock

    X, y = load(folder, name)
    k = len(np.unique(y))
    clock = time.process_time if device == "cpu" else time.perf_counter
    start = clock()
    knowledge = knowledge_of(method, y, seed)
    labels = labels_of(method, X, k, seed, device, knowledge)
    seconds = clock() - start
    new = knowledge.get("known", np.full(len(y), -1)) == -1  # rows whose label was not told
    scores = [100 * figure(y[new], labels[new]) for figure in (metrics.accuracy, metrics.nmi, metrics.ari)]
    figures = (*(f"{score:.2f}" for score in scores), f"{100 * np.mean(labels < 0):.1f}", f"{seconds:.1f}", device)
    return [dict(zip(COLUMNS, (name, method, seed, k, len(np.unique(labels[labels >= 0])), *figures), strict=True))]


def show(rows: list[dict[str, str]]) -> None:
    """By set and method: the number found (mean, from the least to the most), scores, seconds."""
    found: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        found.setdefault((row["data"], row["method"]), []).append(row)
    print(f"{'':16}{'':18}{'classes':>8}{'found':>18}{'acc':>8}{'nmi':>8}{'ari':>8}{'seconds':>9}{'runs':>6}")
    for (data, method), runs in found.items():
        numbers = [int(row["found"]) for row in runs]
        spread = f"{statistics.mean(numbers):.1f} ({min(numbers)} to {max(numbers)})"
        means = [statistics.mean(float(row[name]) for row in runs) for name in ("acc", "nmi", "ari", "seconds")]
        cells = "".join(f"{mean:>8.1f}" for mean in means[:3])
        print(f"{data:16}{method:18}{runs[0]['classes']:>8}{spread:>18}{cells}{means[3]:>9.1f}{len(runs):>6}")


def main() -> None:
    parser = sweep.options(__doc__, sets=SETS, seeds=5, results=RESULTS)
    parser.add_argument("--methods", default=";".join(METHODS), help="separated by semicolons")
    wish = parser.parse_args()
    work = [
        (name, method, seed)
        for seed in range(wish.seeds)
        for name in wish.sets.split(",")
        for method in wish.methods.split(";")
        if method != "HDBSCAN" or seed == 0  # nothing in it is random
    ]
    show(sweep.sweep(run, work, wish, keys=("data", "method", "seed"), columns=COLUMNS))


if __name__ == "__main__":
    main()
