"""Images by TELL's defaults, by reconstruction and by neighbours, beside k-means and UMAP + k-means, over seeds.

    DIFFCLUST_DATA=... python benchmarks/images.py [--data coil20,usps] [--features auto] [--seeds 5] [--device cuda]
    python benchmarks/images.py --show

Labels only score. A run that is in the CSV is not repeated. UMIST is read from rows/umist.npz in the data folder;
UMAP needs umap-learn.
"""

import argparse
import os
import statistics
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import sheet

RESULTS = Path(__file__).parent / "results" / "images.csv"
FIELDS = ("data", "features", "seed", "acc", "nmi", "ari", "seconds", "device")
SEEDS = {"mnist": 5, "usps": 5, "digits": 5, "coil20": 5, "umist": 5, "cifar10-test": 3}


def load(name: str) -> tuple[Any, Any]:
    from diffclust import datasets

    if name != "umist":
        return datasets.load(name)
    arrays = np.load(Path(os.environ["DIFFCLUST_DATA"]) / "rows" / "umist.npz")
    return arrays["images"], arrays["labels"]


def labels_of(how: str, X: Any, k: int, seed: int, device: str) -> np.ndarray:
    """Of TELL with `features` as said, or of k-means on the pixels or on what UMAP makes of them."""
    from diffclust import TELL

    if how in ("auto", "reconstruction", "neighbours"):
        return TELL(k, features=how, random_state=seed, device=device).fit(X).labels_
    from sklearn.cluster import KMeans

    x = np.asarray(X).reshape(len(X), -1) / 255.0
    if how == "UMAP":
        import umap

        x = umap.UMAP(n_neighbors=15, n_components=10, min_dist=0, random_state=seed).fit_transform(x)
    return KMeans(k, n_init=10, random_state=seed).fit(x).labels_


def run(name: str, features: str, seed: int, device: str) -> dict[str, object]:
    from diffclust import metrics

    X, y = load(name)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels = labels_of(features, X, int(y.max()) + 1, seed, device)
    seconds = time.perf_counter() - start
    scores = [f"{100 * score(y, labels):.2f}" for score in (metrics.accuracy, metrics.nmi, metrics.ari)]
    return dict(zip(FIELDS, (name, features, seed, *scores, f"{seconds:.1f}", device), strict=True))


def show(rows: list[dict[str, str]]) -> None:
    groups = defaultdict(list)
    for row in rows:
        groups[row["data"], row["features"]].append(row)
    for (name, features), runs in sorted(groups.items()):
        acc, nmi = (statistics.mean(float(row[score]) for row in runs) for score in ("acc", "nmi"))
        each = ", ".join(f"{float(row['acc']):.1f}" for row in runs)
        print(f"{name:14}{features:16}{acc:5.1f} / {nmi:5.1f}   ({each})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=",".join(SEEDS))
    parser.add_argument("--features", default="auto", help="of auto, reconstruction, neighbours, k-means, UMAP")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--show", action="store_true")
    wish = parser.parse_args()
    done = {(row["data"], row["features"], int(row["seed"])) for row in sheet.read(wish.results)}
    for name in [] if wish.show else wish.data.split(","):
        for features in wish.features.split(","):
            for seed in range(wish.seeds or SEEDS.get(name, 3)):
                if (name, features, seed) not in done:
                    sheet.append(wish.results, FIELDS, [run(name, features, seed, wish.device)])
    show(sheet.read(wish.results))


if __name__ == "__main__":
    main()
