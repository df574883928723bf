"""Are rows clumped? The `surplus` of agreement of `nn.n_clusters`, on single clouds and on real sets.

    python benchmarks/surplus.py --data FOLDER [--sets "normal 5,wine"] [--seeds 3]
    python benchmarks/surplus.py --show

FOLDER has .npz files with X. Rows are standardised. A cloud, drawn with `--seeds` other numbers each, is named by its
kind, columns and, if not 1,000, rows. A run that is in the CSV is not repeated.
"""

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import sweep

RESULTS = Path(__file__).parent / "results" / "surplus.csv"
COLUMNS = ("data", "seed", "rows", "surplus")
KINDS = {
    "uniform": lambda r, n, d: r.uniform(size=(n, d)),
    "normal": lambda r, n, d: r.normal(size=(n, d)),
    "correlated": lambda r, n, d: r.normal(size=(n, d)) @ r.normal(size=(d, d)),
    "t": lambda r, n, d: r.standard_t(5, size=(n, d)),
    "elliptic-t": lambda r, n, d: r.normal(size=(n, d)) @ r.normal(size=(d, d)) / np.sqrt(r.chisquare(5, (n, 1)) / 5),
    "exponential": lambda r, n, d: r.exponential(size=(n, d)),
    "lognormal": lambda r, n, d: np.exp(r.normal(size=(n, d)) @ r.normal(size=(d, d)) / d**0.5),
    "counts": lambda r, n, d: r.poisson(3, size=(n, d)),
    "categories": lambda r, n, d: np.eye(4)[r.integers(4, size=(n, d))].reshape(n, -1),
    "sphere": lambda r, n, d: (lambda x: x / np.linalg.norm(x, axis=1, keepdims=True))(r.normal(size=(n, d))),
}
CLOUDS = [f"{kind} {d}" for kind in KINDS for d in (2, 5, 20) if (kind, d) != ("categories", 2)]
SMALL = [f"{kind} {d} {n}" for kind in ("uniform", "normal", "exponential") for d in (2, 5) for n in (60, 200)]
SETS = "mice_protein,letter,pbmc4k,mushroom,wine,segment,breast_cancer"


def rows_of(folder: Path, name: str, seed: int) -> np.ndarray:
    kind, *sizes = name.split()
    if kind not in KINDS:
        with np.load(folder / f"{name}.npz") as file:
            return np.asarray(file["X"], dtype=np.float64).reshape(len(file["X"]), -1)
    d, n = [*map(int, sizes), 1_000][:2]
    return KINDS[kind](np.random.default_rng(seed), n, d)


def run(folder: Path, device: str, name: str, seed: int) -> list[dict[str, Any]]:
    import torch

    from diffclust.estimator.n_clusters import AUTO_AT_LEAST, AUTO_AT_MOST
    from diffclust.nn.n_clusters import surplus

    X = rows_of(folder, name, seed)
    spread = X.std(0)
    x = torch.from_numpy((X - X.mean(0)) / np.where(spread > 0, spread, 1)).float().to(device)
    torch.manual_seed(seed)
    found = surplus(x, min(AUTO_AT_MOST, max(AUTO_AT_LEAST, round(len(x) ** 0.5))))
    return [dict(zip(COLUMNS, (name, seed, len(x), f"{found:.3f}"), strict=True))]


def main() -> None:
    parser = sweep.options(__doc__, sets=",".join([*CLOUDS, *SMALL, SETS]), seeds=3, results=RESULTS)
    wish = parser.parse_args()
    work = [(name, seed) for name in wish.sets.split(",") for seed in range(wish.seeds)]
    found: dict[str, list[float]] = {}
    for line in sweep.sweep(run, work, wish, keys=("data", "seed"), columns=COLUMNS):
        found.setdefault(line["data"], []).append(float(line["surplus"]))
    for name, values in found.items():
        print(f"{name:20}{statistics.mean(values):>8.3f}{max(values):>8.3f}")


if __name__ == "__main__":
    main()
