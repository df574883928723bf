"""Are the explanations true to the model? Remove what they name first: how soon does a row leave its cluster?

    DIFFCLUST_DATA=... python benchmarks/faithfulness.py [--data digits,usps] [--seeds 5] [--device cuda]

A removed feature takes the mean of its column over all rows, whatever baseline the explanation used. Of texts only the
words that a row has are removed, and shares are of these: to remove an absent word would change nothing. Orders of
removal: "attribution" (what speaks most for the cluster first), "distance" (|x - mean|, which knows nothing of the
model), "random" (mean of five orders). A run that is in the CSV is not repeated. Labels are not used.
"""

import argparse
import os
import platform
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import scipy.sparse as sp
import sheet
import torch

import diffclust
from diffclust import TELL
from diffclust.datasets import load

RESULTS = Path(__file__).parent / "results" / "faithfulness.csv"
ROWS = 300  # explained, evenly spaced
SHARES = np.unique(np.concatenate([[0.01, 0.02, 0.03], np.linspace(0.05, 1, 20)]))
# data, clusters, settings beside the defaults
PLAN: list[tuple[str, int, dict[str, object]]] = [
    ("digits", 10, {}),
    ("digits", 10, {"network": "identity"}),
    ("usps", 10, {}),
    ("20newsgroups", 20, {"pretrain_epochs": 10, "epochs": 10}),  # half the default: a CPU will do
]
FIELDS = [
    "data", "settings", "seed", "order", "rows", "features", "stay_auc", "share_to_flip", "flipped_at_5",
    "flipped_at_10", "flipped_at_20", "completeness_mean", "completeness_max", "fit_seconds",
    "explain_seconds", "device", "diffclust", "torch",
]  # fmt: skip


def stays(model: TELL, x: np.ndarray, worth: np.ndarray, filler: np.ndarray, sparse: bool) -> np.ndarray:
    """Whether each row is still in its cluster once a share of its features is gone, those of most worth first:
    (rows, shares)"""
    shape, flat = x.shape[1:], x.reshape(len(x), -1)
    present = flat != 0 if sparse else np.ones(flat.shape, bool)
    order = np.argsort(np.where(present, -worth, np.inf), axis=1, kind="stable")
    sizes = present.sum(1, keepdims=True)

    def predict(values: np.ndarray) -> np.ndarray:
        return model.predict(sp.csr_array(values) if sparse else values.reshape(-1, *shape))

    home = predict(flat)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(flat.shape[1])[None], axis=1)
    return np.stack([predict(np.where(ranks < s * sizes, filler, flat)) == home for s in SHARES], axis=1)


def measure(stay: np.ndarray) -> dict[str, str]:
    """`stay_auc`: mean share of rows still at home over all shares removed, less is better. `share_to_flip`: mean share
    at which a row first leaves; those that never do count as 1."""
    gone = ~stay
    first = np.where(gone.any(1), SHARES[gone.argmax(1)], 1.0)
    flipped = {f"flipped_at_{s}": gone[:, np.searchsorted(SHARES, s / 100)].mean() for s in (5, 10, 20)}
    curve = np.concatenate([[1.0], stay.mean(0)])
    auc = np.trapezoid(curve, np.concatenate([[0.0], SHARES]))
    return {k: f"{v:.4f}" for k, v in {"stay_auc": auc, "share_to_flip": first.mean(), **flipped}.items()}


def run(name: str, k: int, settings: dict[str, object], seed: int, device: str) -> list[dict[str, object]]:
    warnings.simplefilter("ignore")
    X, _ = load(name)
    sparse = sp.issparse(X)
    began = time.perf_counter()
    rows = X.reshape(len(X), -1) if settings.get("network") == "identity" and not sparse else X
    model = TELL(k, random_state=seed, device=device, **settings).fit(rows)
    fit_seconds = time.perf_counter() - began
    chosen = np.linspace(0, X.shape[0] - 1, ROWS).astype(int)
    began = time.perf_counter()
    explained = model.explain(rows[chosen])
    explain_seconds = time.perf_counter() - began
    x = np.asarray(rows[chosen].todense() if sparse else rows[chosen])
    # the features of images as they go in: integers are divided by 255 inside
    flat = x.reshape(len(x), -1)
    mean = np.zeros(flat.shape[1]) if sparse else rows.reshape(len(rows), -1).mean(0)
    filler = mean.astype(x.dtype) if x.dtype.kind == "f" else mean.round().astype(x.dtype)
    weights = np.array([e.attributions.ravel() for e in explained])
    rng = np.random.default_rng(seed)
    orders = {
        "attribution": [weights],
        "distance": [np.abs(flat.astype(float) - mean)],
        "random": [rng.random(flat.shape) for _ in range(5)],
    }
    errors = [e.completeness_error for e in explained]
    shared = {
        "data": name, "settings": ", ".join(f"{key}={value}" for key, value in settings.items()), "seed": seed,
        "rows": len(x), "features": flat.shape[1], "completeness_mean": f"{np.mean(errors):.5f}",
        "completeness_max": f"{np.max(errors):.5f}", "fit_seconds": f"{fit_seconds:.1f}",
        "explain_seconds": f"{explain_seconds:.1f}",
        "device": torch.cuda.get_device_name() if "cuda" in str(next(model.model_.parameters()).device) else
        f"cpu, {platform.machine()}", "diffclust": diffclust.__version__, "torch": torch.__version__,
    }  # fmt: skip
    lines = []
    for order, worths in orders.items():
        stay = np.concatenate([stays(model, x, worth, filler, sparse) for worth in worths])
        lines.append({**shared, "order": order, **measure(stay)})
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=",".join(dict.fromkeys(row[0] for row in PLAN)))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    done = {(row["data"], row["settings"], int(row["seed"])) for row in sheet.read(chosen.out)}
    for name, k, settings in PLAN:
        for seed in range(chosen.seeds):
            words = ", ".join(f"{key}={value}" for key, value in settings.items())
            if name not in chosen.data.split(",") or (name, words, seed) in done:
                continue
            lines = run(name, k, settings, seed, chosen.device)
            sheet.append(chosen.out, FIELDS, lines)
            for line in lines:
                print(*(line[f] for f in ("data", "settings", "seed", "order", *FIELDS[6:13])), flush=True)


if __name__ == "__main__":
    main()
