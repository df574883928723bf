"""Does bf16 cost accuracy? The defaults in float32 and bf16 over the same seeds, side by side; labels only score.

DIFFCLUST_DATA=... python benchmarks/precision.py --data usps mnist --device cuda
"""

import argparse
import csv
import time
import warnings
from pathlib import Path

import numpy as np
import torch

import diffclust
from diffclust.datasets import load
from diffclust.metrics import accuracy, ari, nmi

RESULTS = Path(__file__).parent / "results" / "precision.csv"
FIELDS = ["data", "method", "network", "precision", "seed", "acc", "nmi", "ari", "seconds", "device", "torch"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["digits"])
    parser.add_argument("--methods", nargs="+", default=["TELL"])
    parser.add_argument("--networks", nargs="+", default=["auto"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--results", type=Path, default=RESULTS)
    wish = parser.parse_args()
    warnings.simplefilter("ignore")
    new = not wish.results.exists()
    with wish.results.open("a", newline="") as file:
        table = csv.DictWriter(file, FIELDS)
        if new:
            table.writeheader()
        for data in wish.data:
            X, y = load(data)
            for method in wish.methods:
                for network in wish.networks:
                    for precision in ("float32", "bf16"):
                        settings = {"precision": precision, "network": network, "device": wish.device}
                        estimator = getattr(diffclust, method)(10, n_init=wish.seeds, random_state=0, **settings)
                        began = time.perf_counter()
                        estimator.fit(X)
                        seconds = (time.perf_counter() - began) / wish.seeds
                        where = torch.cuda.get_device_name() if wish.device == "cuda" else "cpu"
                        scores = [[100 * f(y, r["labels"]) for f in (accuracy, nmi, ari)] for r in estimator.runs_]
                        for run, (acc, shared, rand) in zip(estimator.runs_, scores, strict=True):
                            row = [data, method, network, precision, run["seed"], f"{acc:.2f}", f"{shared:.2f}"]
                            row += [f"{rand:.2f}", f"{seconds:.1f}", where, torch.__version__]
                            table.writerow(dict(zip(FIELDS, row, strict=True)))
                        file.flush()
                        mean, std = np.mean(scores, 0), np.std(scores, 0, ddof=1)
                        figures = "  ".join(f"{m:5.2f} ± {s:4.2f}" for m, s in zip(mean, std, strict=True))
                        each = " ".join(f"{score[0]:.1f}" for score in scores)
                        print(
                            f"{data:8}{method:11}{network:6}{precision:9}{figures}  {seconds:6.1f} s a run  [{each}]",
                            flush=True,
                        )


if __name__ == "__main__":
    main()
