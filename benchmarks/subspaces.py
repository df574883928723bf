"""Subspaces that nearest neighbours cannot tell apart: 8 of dimension 8 in R^30, 60 unit-length rows each, then
Gaussian noise of standard deviation 0.05 on every value. Accuracy over seeds, on the rows fitted and on as many new.

    python benchmarks/subspaces.py [--seeds 5] [--device cpu] [--curves]

--curves: the claims the paper does not measure, SSC beside SSCNet: a share of rows replaced by gross outliers (scored
on the others), a share of the rows, clusters of unequal size (1:10), sample weights off, and the number of blocks. A
run that is in the CSV is not repeated. Labels are used for the scores alone.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import sheet
import torch

from diffclust import SSC, SSCNet
from diffclust.baselines import BASELINES
from diffclust.metrics import accuracy, nmi

RESULTS = Path(__file__).parent / "results" / "subspaces.csv"
FIELDS = ["what", "method", "seed", "acc", "nmi", "held_out_acc", "seconds", "device", "torch"]
K, DIM, AMBIENT, ROWS, NOISE = 8, 8, 30, 60, 0.05


def draw(seed: int, sizes: list[int], outliers: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows and labels to fit on (-1 for outliers), and new rows of the same subspaces with theirs."""
    rng = np.random.default_rng(seed)
    X, y, new, new_y = [], [], [], []
    for j, size in enumerate(sizes):
        basis = np.linalg.qr(rng.normal(size=(AMBIENT, DIM)))[0]
        rows = rng.normal(size=(size + ROWS, DIM)) @ basis.T
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        rows += NOISE * rng.normal(size=rows.shape)
        X.append(rows[:size])
        new.append(rows[size:])
        y.append(np.full(size, j))
        new_y.append(np.full(ROWS, j))
    X, y = np.concatenate(X), np.concatenate(y)
    lost = rng.permutation(len(X))[: round(outliers * len(X))]
    X[lost] = rng.normal(size=(len(lost), AMBIENT))  # of length 5.5, against 1
    y[lost] = -1
    return X, y, np.concatenate(new), np.concatenate(new_y)


def cases(curves: bool) -> list[tuple[str, list[int], float, list[str]]]:
    every = ["kmeans", "spectral", "ssc", "sscnet"]
    plan = [("plain", [ROWS] * K, 0.0, every)]
    if curves:
        plan += [(f"outliers {share:.0%}", [ROWS] * K, share, ["ssc", "sscnet", "sscnet-unweighted"])
                 for share in (0.05, 0.1, 0.2, 0.3)]  # fmt: skip
        plan += [(f"rows {share:.0%}", [max(3, round(share * ROWS))] * K, 0.0, ["ssc", "sscnet"])
                 for share in (0.05, 0.1, 0.25, 0.5)]  # fmt: skip
        plan += [("imbalance 1:10", [12] * 4 + [120] * 4, 0.0, ["ssc", "sscnet", "sscnet-unweighted"])]
        plan += [("plain", [ROWS] * K, 0.0, ["sscnet-unweighted", *(f"sscnet-{n}-blocks" for n in (0, 1, 2, 3))])]
    return plan


def run(method: str, X: np.ndarray, new: np.ndarray, seed: int, device: str) -> tuple[np.ndarray, np.ndarray | None]:
    if method in ("kmeans", "spectral"):
        return BASELINES[method](X, K, seed), None
    if method == "ssc":
        return SSC(K, device=device, random_state=seed).fit_predict(X), None
    settings = {"sample_weights": False} if method.endswith("unweighted") else {}
    if method.endswith("blocks"):
        settings = {"n_blocks": int(method.split("-")[1])}
    model = SSCNet(K, network="dictionary", device=device, random_state=seed, **settings).fit(X)
    return model.labels_, model.predict(new)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--curves", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    done = {(row["what"], row["method"], int(row["seed"])) for row in sheet.read(chosen.out)}
    for what, sizes, outliers, methods in cases(chosen.curves):
        for method in methods:
            for seed in range(chosen.seeds):
                if (what, method, seed) in done:
                    continue
                X, y, new, new_y = draw(seed, sizes, outliers)
                began = time.perf_counter()
                labels, held_out = run(method, X, new, seed, chosen.device)
                seconds = time.perf_counter() - began
                inside = y >= 0
                row = {
                    "what": what, "method": method, "seed": seed,
                    "acc": f"{100 * accuracy(y[inside], labels[inside]):.2f}",
                    "nmi": f"{100 * nmi(y[inside], labels[inside]):.2f}",
                    "held_out_acc": "" if held_out is None else f"{100 * accuracy(new_y, held_out):.2f}",
                    "seconds": f"{seconds:.1f}", "device": chosen.device, "torch": torch.__version__,
                }  # fmt: skip
                sheet.append(chosen.out, FIELDS, [row])
                print(*(row[name] for name in FIELDS[:7]), flush=True)


if __name__ == "__main__":
    main()
