"""What a default fit of rows costs beside k-means and UMAP + k-means: processor seconds of one thread, in one process.

    python benchmarks/rows_cost.py --data FOLDER --sets wine,segment,optdigits    # needs umap-learn

FOLDER has .npz files as for `rows.py`. Each method first runs once on a few rows, so that nothing is imported or
compiled within its time; then they take turns, and the smaller of two times counts. "1,000 x 16" and "10,000 x 50"
are normal rows in four and ten groups. k-means is scikit-learn's with ten starts, on standardised columns; UMAP's are
standardised, too, except if most values are zero. Results are appended to benchmarks/results/rows_cost.csv.
"""

import argparse
import csv
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from rows import load, standardised  # sets one thread before numpy is there

import numpy as np  # isort: skip

RESULTS = Path(__file__).parent / "results" / "rows_cost.csv"
COLUMNS = ("data", "rows", "columns", "TELL", "k-means", "UMAP + k-means")
FEW = 200  # rows to begin with


def groups(n: int = 1000, d: int = 16, k: int = 4) -> tuple[np.ndarray, int]:
    generator = np.random.default_rng(0)
    return generator.normal(size=(k, d))[generator.integers(k, size=n)] * 3 + generator.normal(size=(n, d)), k


def tell(X: np.ndarray, k: int) -> None:
    from diffclust import TELL

    TELL(k, random_state=0, device="cpu").fit(X)


def kmeans(X: np.ndarray, k: int) -> None:
    from sklearn.cluster import KMeans

    KMeans(k, n_init=10, random_state=0).fit(standardised(X))


def umap_kmeans(X: np.ndarray, k: int) -> None:
    import umap
    from sklearn.cluster import KMeans

    sparse = X.min() >= 0 and (X == 0).mean() > 0.5
    X, metric = (X, "cosine") if sparse else (standardised(X), "euclidean")
    z = umap.UMAP(n_neighbors=15, n_components=10, min_dist=0, metric=metric, random_state=0).fit_transform(X)
    KMeans(k, n_init=10, random_state=0).fit(z)


def seconds(fit: Callable[[np.ndarray, int], None], X: np.ndarray, k: int) -> float:
    start = time.process_time()
    fit(X, k)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", required=True)
    wish = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = {"1,000 x 16": groups(), "10,000 x 50": groups(10_000, 50, 10)}
    for name in wish.sets.split(","):
        X, y = load(wish.data / f"{name}.npz")
        found[name] = X, int(y.max()) + 1
    fits = {"TELL": tell, "k-means": kmeans, "UMAP + k-means": umap_kmeans}
    with RESULTS.open("a", newline="") as file:
        writer = csv.writer(file)
        if file.tell() == 0:
            writer.writerow(COLUMNS)
        for name, (X, k) in found.items():
            few = np.linspace(0, len(X) - 1, min(len(X), FEW)).astype(int)
            for fit in fits.values():
                fit(X[few], 2)
            taken = [[seconds(fit, X, k) for fit in fits.values()] for _ in range(2)]
            writer.writerow([name, *X.shape, *(f"{min(each):.2f}" for each in zip(*taken, strict=True))])
            file.flush()
            print(name, X.shape, taken, flush=True)


if __name__ == "__main__":
    main()
