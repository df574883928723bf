"""How long a fit of 5,000 rows takes: SSCNet beside SSC and TELL, with the threads that OMP_NUM_THREADS allows.

    OMP_NUM_THREADS=2 python benchmarks/sscnet_speed.py --data FOLDER [--rows 5000] [--out ...]

FOLDER has .npz files with X and labels (see benchmarks/rows.py), of which measurements, categories and short texts are
taken, and rows of ten 5-planes in R^50 are drawn. Defaults, wall-clock seconds, seed 0; labels score. Rows that are in
the CSV are not run again.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
import sheet
import torch
from rows import load

from diffclust import SSC, TELL, SSCNet, metrics

RESULTS = Path(__file__).parent / "results" / "sscnet_speed.csv"
FIELDS = ["data", "n", "method", "seconds", "acc", "nmi", "threads", "cores", "torch"]
SETS = ("satimage", "mushroom", "searchsnippets")
METHODS = {"TELL": TELL, "SSCNet": SSCNet, "SSC": SSC}
PLANES, DIM, AMBIENT, NOISE = 10, 5, 50, 0.05


def planes(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    bases = [np.linalg.qr(rng.normal(size=(AMBIENT, DIM)))[0] for _ in range(PLANES)]
    y = rng.integers(PLANES, size=n)
    X = np.stack([bases[j] @ rng.normal(size=DIM) for j in y])
    return X + NOISE * rng.normal(size=X.shape), y


def part(X: np.ndarray, y: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    kept = np.random.default_rng(0).permutation(len(y))[:n]
    return X[kept], y[kept]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    done = {(row["data"], int(row["n"]), row["method"]) for row in sheet.read(chosen.out)}
    TELL(2, device="cpu", epochs=1, pretrain_epochs=1).fit(planes(100)[0])  # what the first fit of a process costs
    for name in ("planes", *SETS):
        X, y = planes(chosen.rows) if name == "planes" else part(*load(chosen.data / f"{name}.npz"), chosen.rows)
        for method, estimator in METHODS.items():
            if (name, len(y), method) in done:
                continue
            began = time.perf_counter()
            labels = estimator(int(y.max()) + 1, random_state=0, device="cpu").fit_predict(X)
            took = time.perf_counter() - began
            row = {
                "data": name, "n": len(y), "method": method, "seconds": f"{took:.1f}",
                "acc": f"{100 * metrics.accuracy(y, labels):.2f}", "nmi": f"{100 * metrics.nmi(y, labels):.2f}",
                "threads": torch.get_num_threads(), "cores": os.cpu_count(), "torch": torch.__version__,
            }  # fmt: skip
            sheet.append(chosen.out, FIELDS, [row])
            print(*row.values(), flush=True)


if __name__ == "__main__":
    main()
