"""The ten smallest eigenvectors of graph Laplacians: `smallest_eigenvectors` against torch.linalg.eigh, scipy's ARPACK
and plain power iteration, as ratios of time and of peak memory to ours. Each method runs in a process of its own.

    python benchmarks/eigenvectors.py [--device cpu] [--out ...]

Graphs: normalised Laplacians of the 10 nearest neighbours of ten Gaussian clusters, well apart ("gap") or overlapping,
so that the tenth and the next eigenvalue almost touch ("no gap"), with a weak ring through all rows; dense float64 up
to n = 2048, sparse at 16384. All stop at a residual |LY - Y(YᵀLY)| below 1e-5 |LY_0|, power iteration (on 2I - L, with
QR) after 3,000 steps at the latest; `error` is what the sum of the eigenvalues exceeds ARPACK's, solved to 1e-10, by.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import sheet
import torch
from scipy.sparse.linalg import eigsh
from sklearn.neighbors import kneighbors_graph

from diffclust.nn import smallest_eigenvectors
from diffclust.nn.eigenvectors import random_orthonormal

RESULTS = Path(__file__).parent / "results" / "eigenvectors.csv"
FIELDS = ["n", "graph", "method", "seconds", "peak_mb", "time_ratio", "memory_ratio", "error", "device", "torch"]
K, TOLERANCE = 10, 1e-5
METHODS = ("ours", "eigh", "arpack", "power")


def graph(n: int, kind: str) -> sp.csr_array:
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(K, 8)) * (4 if kind == "gap" else 1)
    x = centers[np.arange(n) % K] + rng.normal(size=(n, 8))
    w = kneighbors_graph(x, 10, mode="connectivity")
    ring = sp.diags_array([0.01, 0.01], offsets=[1, -1], shape=(n, n))  # one piece: ARPACK misses equal eigenvalues
    w = sp.csr_array(w.maximum(w.T) + ring)
    scale = sp.diags_array(1 / np.sqrt(w.sum(axis=1)))
    return sp.csr_array(sp.eye_array(n) - scale @ w @ scale)


def power(L: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    scale = (L @ y).norm()
    for step in range(3000):
        y = torch.linalg.qr(2 * y - L @ y).Q
        if step % 8 == 0:
            ly = L @ y
            if (ly - y @ (y.T @ ly)).norm() <= TOLERANCE * scale:
                break
    return y


def solve(method: str, L: sp.csr_array, device: str) -> tuple[float, float]:
    """Seconds, and the sum of the eigenvalues found."""
    n = L.shape[0]
    if method == "arpack":
        began = time.perf_counter()
        values = eigsh(2 * sp.eye_array(n) - L, K, which="LA", tol=TOLERANCE, v0=np.ones(n) / np.sqrt(n))[0]
        return time.perf_counter() - began, float((2 - values).sum())
    whole = L.tocoo()
    matrix = torch.sparse_coo_tensor(np.stack(whole.coords), whole.data, L.shape, device=device, check_invariants=False)
    matrix = matrix.coalesce() if n > 2048 else matrix.to_dense()
    start = random_orthonormal(n, K, like=torch.empty(0, dtype=torch.float64, device=device))
    for attempt in range(2):  # the first warms up
        if device != "cpu":
            torch.cuda.synchronize()
        began = time.perf_counter()
        if method == "ours":
            total = float(smallest_eigenvectors(matrix, start=start, tolerance=TOLERANCE, max_iter=3000)[0].sum())
        elif method == "eigh":
            total = float(torch.linalg.eigh(matrix).eigenvalues[:K].sum())
        else:
            y = power(matrix, start)
            total = float((y * (matrix @ y)).sum())
        seconds = time.perf_counter() - began
        if attempt == 0 and seconds > 5:
            break
    return seconds, total


def child(n: int, kind: str, method: str, device: str) -> None:
    """One measurement; memory is what the process grew by."""
    torch.set_num_threads(1)
    L = graph(n, kind)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds, total = solve(method, L, device)
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    if device != "cpu" and method != "arpack":
        peak = torch.cuda.max_memory_allocated() / 2**20
    exact = float((2 - eigsh(2 * sp.eye_array(n) - L, K, which="LA", tol=1e-10, ncv=60)[0]).sum())
    print(json.dumps({"seconds": seconds, "peak_mb": peak, "error": total - exact}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--child", nargs=3)
    chosen = parser.parse_args()
    if chosen.child:
        child(int(chosen.child[0]), chosen.child[1], chosen.child[2], chosen.device)
        return
    rows: list[dict[str, Any]] = []
    for n in (256, 2048, 16384):
        for kind in ("gap", "no gap"):
            ours: dict[str, float] = {}
            for method in METHODS:
                if method == "eigh" and n > 2048:
                    continue  # 2 GB and hours
                words = [sys.executable, __file__, "--child", str(n), kind, method, "--device", chosen.device]
                found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
                ours = ours or found
                memory = found["peak_mb"] / ours["peak_mb"] if ours["peak_mb"] else float("nan")
                rows.append({
                    "n": n, "graph": kind, "method": method, "seconds": f"{found['seconds']:.4f}",
                    "peak_mb": f"{found['peak_mb']:.1f}", "time_ratio": f"{found['seconds'] / ours['seconds']:.2f}",
                    "memory_ratio": f"{memory:.2f}", "error": f"{found['error']:.1e}", "device": chosen.device,
                    "torch": torch.__version__,
                })  # fmt: skip
                print(*rows[-1].values(), flush=True)
    sheet.write(chosen.out, FIELDS, rows)


if __name__ == "__main__":
    main()
