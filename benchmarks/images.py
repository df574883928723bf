"""Images by reconstruction and by neighbours: TELL's defaults beside `features="neighbours"`, over seeds.

    DIFFCLUST_DATA=... python benchmarks/images.py [--data coil20,usps] [--seeds 5] [--device cuda]
    python benchmarks/images.py --show

Labels only score. A run that is in the CSV is not repeated.
"""

import argparse
import statistics
import time
import warnings
from collections import defaultdict
from pathlib import Path

import sheet

RESULTS = Path(__file__).parent / "results" / "images.csv"
FIELDS = ("data", "features", "seed", "acc", "nmi", "ari", "seconds", "device")
SEEDS = {"mnist": 5, "usps": 5, "coil20": 5, "cifar10-test": 3}


def run(name: str, features: str, seed: int, device: str) -> dict[str, object]:
    from diffclust import TELL, datasets, metrics

    X, y = datasets.load(name)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = TELL(int(y.max()) + 1, features=features, random_state=seed, device=device).fit(X)
    seconds = time.perf_counter() - start
    scores = [f"{100 * score(y, model.labels_):.2f}" for score in (metrics.accuracy, metrics.nmi, metrics.ari)]
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
    parser.add_argument("--features", default="reconstruction,neighbours")
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
