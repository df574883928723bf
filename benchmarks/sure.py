"""How sure a clustering is, against labels: do stable clusters have one class, and do probabilities mean what they say?

    python benchmarks/sure.py --data FOLDER --sets wine,segment --seeds 2
    python benchmarks/sure.py --show                           # both tables, from the CSV

Of each cluster of a fit with three restarts: its purity (the share of its commonest class) and its `stability_`. Of
each fit: the mean of the largest probability of every row, the share of rows that are right once clusters and classes
are matched, and the expected calibration error: the gap between the two in ten bins, weighted by their rows. Results
are appended to benchmarks/results/sure.csv; what is there is not run again.
"""

import time
from pathlib import Path
from typing import Any

import auto
import numpy as np
import sweep

RESULTS = Path(__file__).parent / "results" / "sure.csv"
COLUMNS = ("data", "seed", "cluster", "rows", "purity", "stability", "confidence", "accuracy", "ece", "seconds")
SETS = "digits,usps,pendigits,bbc,breast_cancer,mice_protein,movement_libras,pbmc4k,satimage,segment,wine,worm_neuron"
RESTARTS, BINS = 3, 10


def right_rows(y: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Whether each row's cluster is the one that is matched with its class."""
    from scipy.optimize import linear_sum_assignment

    table = np.zeros((labels.max() + 1, y.max() + 1))
    np.add.at(table, (labels, y), 1)
    cluster, kind = linear_sum_assignment(table, maximize=True)
    matched = np.full(len(table), -1)
    matched[cluster] = kind
    return matched[labels] == y


def calibration_error(confidence: np.ndarray, right: np.ndarray) -> float:
    """Σ over bins of the confidence: their share of rows times the gap between mean confidence and accuracy."""
    place = np.minimum((BINS * confidence).astype(int), BINS - 1)
    gaps = [abs((confidence - right)[place == b].sum()) for b in range(BINS)]
    return float(sum(gaps) / len(right))


def run(folder: Path, device: str, name: str, seed: int) -> list[dict[str, Any]]:
    from diffclust import TELL

    X, y = auto.load(folder, name)
    y = np.unique(y, return_inverse=True)[1]
    began = time.perf_counter()
    model = TELL(int(y.max()) + 1, n_init=RESTARTS, random_state=seed, device=device).fit(X)
    seconds = time.perf_counter() - began
    confidence, right = model.predict_proba(X).max(1), right_rows(y, model.labels_)
    lines = []
    for j, stability in enumerate(model.stability_):
        own = y[model.labels_ == j]
        purity = np.bincount(own).max() / len(own) if len(own) else 0
        figures = (purity, stability, confidence.mean(), right.mean(), calibration_error(confidence, right), seconds)
        lines.append(dict(zip(COLUMNS, (name, seed, j, len(own), *(f"{v:.4f}" for v in figures)), strict=True)))
    return lines


def show(lines: list[dict[str, str]]) -> None:
    """By set: the rank correlation of stability and purity over clusters of all seeds, and how far probabilities are
    off; then over the clusters of all sets."""
    from scipy.stats import spearmanr

    print(f"{'':18}{'clusters':>9}{'rank correlation':>18}{'confidence':>12}{'accuracy':>10}{'error':>8}")
    every: list[tuple[float, float]] = []
    for name in dict.fromkeys(line["data"] for line in lines):
        own = [line for line in lines if line["data"] == name and int(line["rows"])]
        pairs = [(float(line["stability"]), float(line["purity"])) for line in own]
        every += pairs
        fits = {line["seed"]: line for line in own}.values()
        means = [np.mean([float(fit[figure]) for fit in fits]) for figure in ("confidence", "accuracy", "ece")]
        print(f"{name:18}{len(own):>9}{spearmanr(*zip(*pairs, strict=True)).statistic:>18.2f}", end="")
        print("".join(f"{mean:>{width}.3f}" for mean, width in zip(means, (12, 10, 8), strict=True)))
    if every:
        print(f"{'all':18}{len(every):>9}{spearmanr(*zip(*every, strict=True)).statistic:>18.2f}")


def main() -> None:
    wish = sweep.options(__doc__, sets=SETS, seeds=3, results=RESULTS).parse_args()
    work = [(name, seed) for seed in range(wish.seeds) for name in wish.sets.split(",")]
    show(sweep.sweep(run, work, wish, keys=("data", "seed"), columns=COLUMNS))


if __name__ == "__main__":
    main()
