"""Data larger than memory: a memory map of Gaussians clustered without a network, beside MiniBatchKMeans in one run.

    python benchmarks/large.py [--rows 20000000] [--methods TELL,KMeansNet] [--folder /tmp] [--device cpu]

A seeded mixture of 100 Gaussians with 64 features is written to a file (5 GB for 20 million rows). Each method fits it
in a process of its own, one after the other: seconds, the sum of squared distances to the nearest of its centres over
all rows (the same code for all), and the most anonymous memory it ever held, read from /proc every tenth of a second:
pages of the file itself are the system's to drop. Our methods start from k-means of SAMPLE rows, which is part of their
time, and then take --epochs passes. MiniBatchKMeans stops by its own rule; MiniBatchKMeans-1 takes as many batches as
one pass has. Its fit draws each batch anew with weights over all rows, which costs more the more rows there are;
MiniBatchKMeans-stream is what one can do about it: scikit-learn's k-means of the same SAMPLE rows for a start, one pass
by `partial_fit`, and the labels of all rows, which the others have from fit. SAMPLE and STEP were chosen on a file
of 1 million rows with MiniBatchKMeans in view; STARTS was 5 there, and became 20 when the best of 5 on 20 million rows
was a poor one. KMeansNet sees directions alone, so that its inertia is not that of the rows.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.cluster import KMeans, MiniBatchKMeans

import diffclust
from diffclust.nn import kmeans

RESULTS = Path(__file__).parent / "results" / "large.csv"
K, D = 100, 64
SAMPLE, STARTS = 20_000, 20
STEP = 0.01  # a tenth of the default: the start is good, and a batch has some forty rows of a cluster
STREAM = "MiniBatchKMeans-stream"
PART = 1 << 18  # rows written at a time


def generate(path: Path, rows: int) -> None:
    if path.exists() and np.load(path, mmap_mode="r").shape == (rows, D):
        return
    rng = np.random.default_rng(0)
    centers = 3 * rng.normal(size=(K, D)).astype(np.float32)
    X = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, D))
    for i in range(0, rows, PART):
        labels = rng.integers(K, size=min(PART, rows - i))
        X[i : i + PART] = centers[labels] + rng.standard_normal((len(labels), D), dtype=np.float32)
    X.flush()


def anonymous() -> float:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 2**20 for line in status if line.startswith("RssAnon"))


class Watch(threading.Thread):
    """The most anonymous memory in GB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = 0.0

    def run(self) -> None:
        while True:
            self.most = max(self.most, anonymous())
            time.sleep(0.1)


def fit(method: str, X: np.ndarray, batch: int, epochs: int, device: str):
    if method.startswith("MiniBatchKMeans") and method != STREAM:
        passes = {"max_iter": 1} if method.endswith("-1") else {}
        return MiniBatchKMeans(K, batch_size=batch, random_state=0, **passes).fit(X)
    rows = np.sort(np.random.default_rng(0).choice(len(X), min(SAMPLE, len(X)), replace=False))
    if method == STREAM:
        start = KMeans(K, n_init=STARTS, random_state=0).fit(X[rows]).cluster_centers_
        model = MiniBatchKMeans(K, init=start, n_init=1, random_state=0, compute_labels=False)
        for i in range(0, len(X), batch):
            model.partial_fit(X[i : i + batch])
        model.labels_ = np.concatenate([model.predict(X[i : i + batch]) for i in range(0, len(X), batch)])
        return model
    sample = torch.from_numpy(X[rows])
    sample = torch.nn.functional.normalize(sample, dim=1) if method == "KMeansNet" else sample
    start = kmeans(sample, K, n_init=STARTS, generator=torch.Generator().manual_seed(0)).centers

    settings = {"network": "identity", "init": start, "epochs": epochs, "batch_size": batch}
    settings |= {"center_step": STEP}
    return getattr(diffclust, method)(K, **settings, random_state=0, device=device).fit(X)


def measure(method: str, path: Path, batch: int, epochs: int, device: str) -> dict[str, object]:
    """Fit in this process."""
    X = np.load(path, mmap_mode="r")
    watch = Watch()
    watch.start()
    began, busy = time.perf_counter(), time.process_time()
    model = fit(method, X, batch, epochs, device)
    seconds, busy = time.perf_counter() - began, time.process_time() - busy
    most = watch.most
    centers = model.cluster_centers_.astype(np.float64)
    inertia = 0.0
    for i in range(0, len(X), 2048):
        x = X[i : i + 2048].astype(np.float64)
        if method == "KMeansNet":
            x /= np.linalg.norm(x, axis=1, keepdims=True)
        distances = (x**2).sum(1) - (2 * x @ centers.T - (centers**2).sum(1)).max(1)
        inertia += distances.sum()
    return {
        "method": method, "rows": len(X), "batch": batch, "epochs": "" if method.startswith("Mini") else epochs,
        "starts": 1 if method in ("MiniBatchKMeans", "MiniBatchKMeans-1") else STARTS,
        "seconds": round(seconds, 1),
        "processor_seconds": round(busy, 1), "inertia_per_row": round(inertia / len(X), 4),
        "anonymous_gb": round(most, 3), "device": device, "threads": os.environ.get("OMP_NUM_THREADS", ""),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--methods", default="TELL,MiniBatchKMeans-stream,MiniBatchKMeans-1,MiniBatchKMeans")
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("/tmp"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    args = parser.parse_args()
    path = args.folder / f"mixture-{args.rows}.npy"
    if args.alone:
        print(json.dumps(measure(args.alone, path, args.batch, args.epochs, args.device)))
        return
    generate(path, args.rows)
    for method in args.methods.split(","):
        words = [sys.executable, __file__, *sys.argv[1:], "--alone", method]
        line = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        print(line, flush=True)
        new = not RESULTS.exists()
        with RESULTS.open("a", newline="") as file:
            writer = csv.DictWriter(file, line.keys(), lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow(line)


if __name__ == "__main__":
    main()
