"""SSC on all 70,000 images of MNIST: time, peak memory and scores, appended to a CSV.

    DIFFCLUST_DATA=... python benchmarks/ssc_mnist.py [--alpha 5] [--seed 0] [--device cpu]

The limit is 60 minutes on two cores and 8 GB. Labels are used for the scores alone.
"""

import argparse
import csv
import resource
import time
from pathlib import Path

import torch

from diffclust import SSC
from diffclust.datasets import load
from diffclust.metrics import accuracy, ari, nmi

RESULTS = Path(__file__).parent / "results" / "ssc_mnist.csv"
FIELDS = ["data", "rows", "alpha", "seed", "acc", "nmi", "ari", "components", "seconds", "peak_gb", "device", "threads"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--alpha", type=float, default=SSC().alpha)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    X, y = load("mnist")
    began = time.perf_counter()
    model = SSC(10, alpha=chosen.alpha, device=chosen.device, random_state=chosen.seed).fit(X)
    row = {
        "data": "mnist", "rows": len(X), "alpha": chosen.alpha, "seed": chosen.seed,
        "acc": f"{100 * accuracy(y, model.labels_):.2f}", "nmi": f"{100 * nmi(y, model.labels_):.2f}",
        "ari": f"{100 * ari(y, model.labels_):.2f}", "components": model.diagnostics_["components"],
        "seconds": f"{time.perf_counter() - began:.0f}",
        "peak_gb": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f}",
        "device": chosen.device, "threads": torch.get_num_threads(),
    }  # fmt: skip
    print(row)
    new = not chosen.out.exists()
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    with chosen.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if new:
            writer.writeheader()
        writer.writerow(row)


if __name__ == "__main__":
    main()
