"""Two of the papers' baselines beside their own figures: LSC on MNIST, DSC-Net on COIL-20.

    DIFFCLUST_DATA=... python benchmarks/baselines.py [--only lsc|dscnet] [--threads 2]
    python benchmarks/baselines.py --show

LSC with 1,000 and 500 landmarks, from k-means and at random; DSC-Net with its defaults. Labels only score. A run that
is in the CSV is not repeated.
"""

import argparse
import statistics
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import sheet

RESULTS = Path(__file__).parent / "results" / "baselines.csv"
FIELDS = ("data", "method", "settings", "seed", "acc", "nmi", "seconds", "threads")
PLAN = [
    *(("mnist", "lsc", {"landmarks": how, "n_landmarks": n}, 3) for how, n in (("kmeans", 1000), ("kmeans", 500))),
    ("mnist", "lsc", {"landmarks": "random", "n_landmarks": 1000}, 3),
    ("coil20", "dscnet", {}, 5),
]


def told(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def run(name: str, method: str, settings: dict[str, Any], seed: int, threads: int) -> dict[str, object]:
    import torch

    from diffclust import DSCNet, datasets, metrics
    from diffclust.baselines.lsc import LSC

    torch.set_num_threads(threads)
    X, y = datasets.load(name)
    k = int(y.max()) + 1
    if method == "lsc":
        X, estimator = X.reshape(len(X), -1) / 255.0, LSC(k, random_state=seed, device="cpu", **settings)
    else:
        estimator = DSCNet(k, random_state=seed, **settings)
    start = time.perf_counter()
    labels = estimator.fit_predict(X)
    seconds = time.perf_counter() - start
    scores = [f"{100 * score(y, labels):.2f}" for score in (metrics.accuracy, metrics.nmi)]
    return dict(zip(FIELDS, (name, method, told(settings), seed, *scores, f"{seconds:.1f}", threads), strict=True))


def show(rows: list[dict[str, str]]) -> None:
    groups = defaultdict(list)
    for row in rows:
        groups[row["data"], row["method"], row["settings"]].append(row)
    for (name, method, settings), runs in groups.items():
        acc, nmi, seconds = (statistics.mean(float(row[part]) for row in runs) for part in ("acc", "nmi", "seconds"))
        print(f"{name:8}{method:8}{settings:40}{acc:5.1f} / {nmi:5.1f}{seconds:7.0f} s ({len(runs)})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("lsc", "dscnet"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--show", action="store_true")
    wish = parser.parse_args()
    done = {(r["data"], r["method"], r["settings"], int(r["seed"])) for r in sheet.read(wish.results)}
    warnings.simplefilter("ignore")
    for name, method, settings, seeds in [] if wish.show else PLAN:
        for seed in range(seeds if wish.only in (None, method) else 0):
            if (name, method, told(settings), seed) not in done:
                sheet.append(wish.results, FIELDS, [run(name, method, settings, seed, wish.threads)])
    show(sheet.read(wish.results))


if __name__ == "__main__":
    main()
