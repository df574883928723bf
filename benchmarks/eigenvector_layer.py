"""Eigenvectors inside a network: forward and backward of a spectral loss, by `EigenvectorLayer`s, by
`smallest_eigenvectors`, by torch.linalg.eigh and by torch.lobpcg, all through autograd.

    python benchmarks/eigenvector_layer.py [--device cpu] [--seconds 120] [--out ...]

The matrix is the normalised Laplacian of a graph of 10 neighbours of ten overlapping Gaussian clusters, dense float32;
the loss is a fixed function of the projector YYᵀ, whose gradient by L is wanted. `error` is the distance of that
gradient from eigh's in float64, as a share of it, up to n = 2,000. Sizes go up from 500 to 20,000 until a method needs
more than a tenth of the seconds, or runs out of memory; it is then left out. Rows that are in the CSV are not run
again.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import sheet
import torch
from sklearn.neighbors import kneighbors_graph
from torch import Tensor

from diffclust.nn import EigenvectorLayer, smallest_eigenvectors
from diffclust.nn.eigenvectors import random_orthonormal

RESULTS = Path(__file__).parent / "results" / "eigenvector_layer.csv"
FIELDS = ["n", "method", "seconds", "trace", "error", "device", "torch"]
SIZES, K, LAYERS, EXACT = (500, 1000, 2000, 5000, 10_000, 20_000), 10, 16, 2000


def matrix(n: int) -> Tensor:
    rng = np.random.default_rng(0)
    x = 1.5 * rng.normal(size=(K, 8))[np.arange(n) % K] + rng.normal(size=(n, 8))
    w = kneighbors_graph(x, 10, mode="connectivity")
    w = sp.csr_array(w.maximum(w.T))
    scale = sp.diags_array(1 / np.sqrt(w.sum(axis=1)))
    return torch.from_numpy((sp.eye_array(n) - scale @ w @ scale).toarray()).float()


def by_layers(a: Tensor) -> Tensor:
    y = random_orthonormal(len(a), K, like=a.detach())
    for _ in range(LAYERS):
        y = EigenvectorLayer(K).to(a)(a, y)
    return y


METHODS: dict[str, Callable[[Tensor], Tensor]] = {
    f"{LAYERS} layers": by_layers,
    "smallest_eigenvectors": lambda a: smallest_eigenvectors(a, K, tolerance=1e-4)[1],
    "lobpcg": lambda a: torch.lobpcg(a, k=K, largest=False)[1],
    "eigh": lambda a: torch.linalg.eigh(a).eigenvectors[:, :K],
}


def gradient(find: Callable[[Tensor], Tensor], a: Tensor) -> tuple[Tensor, float]:
    """Of Σ_i p_i |y_i|² by the matrix, p fixed: a function of the projector alone; and tr(YᵀLY)."""
    a = a.detach().requires_grad_()
    y = find((a + a.mT) / 2)
    probe = torch.linspace(-1, 1, len(a), dtype=a.dtype, device=a.device)
    (probe[:, None] * y.square()).sum().backward()
    with torch.no_grad():
        return a.grad, float((y * (a @ y)).sum())  # type: ignore[return-value]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    done = {(int(row["n"]), row["method"]) for row in sheet.read(chosen.out) if row["device"] == chosen.device}
    began, given_up = time.perf_counter(), set()
    for n in SIZES:
        a = matrix(n).to(chosen.device)
        exact = gradient(METHODS["eigh"], a.double())[0] if n <= EXACT else None
        for name, find in METHODS.items():
            if (n, name) in done or name in given_up or time.perf_counter() - began > chosen.seconds:
                continue
            try:
                gradient(find, torch.diag(torch.linspace(0.1, 1, 200)).to(a))  # warm
                start = time.perf_counter()
                found, trace = gradient(find, a)
                took = time.perf_counter() - start
            except RuntimeError as error:
                print(n, name, str(error)[:80], flush=True)
                given_up.add(name)
                continue
            if took > chosen.seconds / 10:
                given_up.add(name)
            off = "" if exact is None else f"{float((found.double() - exact).norm() / exact.norm()):.1e}"
            row = {
                "n": n, "method": name, "seconds": f"{took:.3f}", "trace": f"{trace:.5f}", "error": off,
                "device": chosen.device, "torch": torch.__version__,
            }  # fmt: skip
            sheet.append(chosen.out, FIELDS, [row])
            print(*row.values(), flush=True)


if __name__ == "__main__":
    main()
