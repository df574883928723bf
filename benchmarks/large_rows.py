"""Many rows: seconds and memory of a default fit, graph included, and how many of the true neighbours it finds.

    python benchmarks/large_rows.py --rows 100000 --threads 2
    python benchmarks/large_rows.py --rows 1000000 --device cuda

Blobs: --columns values around twenty centres, drawn by a fixed seed. The time is that of the whole fit, after a fit of
a few rows; `processor` is the sum over threads. The recall of the neighbour graph is that of 500 rows, against all
distances. Results are appended to benchmarks/results/large_rows.csv.
"""

import argparse
import os
import resource
import time
from pathlib import Path

import numpy as np
import sheet
import torch

from diffclust import TELL, metrics
from diffclust.nn import neighbours

RESULTS = Path(__file__).parent / "results" / "large_rows.csv"
COLUMNS = ("rows", "columns", "device", "threads", "seconds", "processor", "load", "memory_gb", "acc", "recall")
K, ASKED = 20, 500


def blobs(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    labels = generator.integers(K, size=n)
    centers = 2 * generator.standard_normal((K, d), dtype=np.float32)
    return centers[labels] + generator.standard_normal((n, d), dtype=np.float32), labels


def recall(X: np.ndarray, device: str, k: int = 15) -> float:
    """The share of the k nearest rows that the graph's search finds."""
    x = torch.from_numpy(X).to(device)
    found = neighbours.nearest_neighbours(x, k).places
    asked = torch.linspace(0, len(x) - 1, ASKED, device=device).long()
    true = torch.cdist(x[asked], x).topk(k + 1, largest=False).indices[:, 1:]
    return (found[asked][:, :, None] == true[:, None]).any(1).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    wish = parser.parse_args()
    torch.set_num_threads(wish.threads)
    X, y = blobs(wish.rows, wish.columns)
    TELL(K, random_state=0, device=wish.device).fit(X[:3000])
    load = os.getloadavg()[0]
    began, busy = time.perf_counter(), time.process_time()
    model = TELL(K, random_state=0, device=wish.device).fit(X)
    seconds, processor = time.perf_counter() - began, time.process_time() - busy
    on_gpu = wish.device != "cpu"
    most = torch.cuda.max_memory_allocated() if on_gpu else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures = (wish.rows, wish.columns, wish.device, wish.threads, f"{seconds:.1f}", f"{processor:.1f}", f"{load:.1f}")
    scores = (f"{most / 2**30:.2f}", f"{100 * metrics.accuracy(y, model.labels_):.2f}", f"{recall(X, wish.device):.3f}")
    sheet.append(RESULTS, COLUMNS, [dict(zip(COLUMNS, (*figures, *scores), strict=True))])
    print(*figures, *scores)


if __name__ == "__main__":
    main()
