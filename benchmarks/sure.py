"""How sure a clustering is, against labels: do stable clusters have one class, and do probabilities mean what they say?

    python benchmarks/sure.py --data FOLDER --sets wine,segment --seeds 2
    python benchmarks/sure.py --show                           # both tables, from the CSV

Of each cluster of a fit with three restarts: its purity (the share of its commonest class), its `stability_` and, as
`halves`, its stability in `stability(X, n=3)`. Of each fit: the share of rows that are right once clusters and classes
are matched, and of two confidences, the largest probability of every row and this times the stability of its cluster
over halves, the mean and the expected calibration error: the gap between confidence and accuracy in ten bins, weighted
by their rows. Results are appended to benchmarks/results/sure.csv; what is there is not run again.
"""

import time
from pathlib import Path
from typing import Any

import auto
import numpy as np
import sweep

RESULTS = Path(__file__).parent / "results" / "sure.csv"
COLUMNS = (
    *("data", "seed", "cluster", "rows", "purity", "stability", "halves", "accuracy"),
    *("probability", "probability_error", "confidence", "confidence_error", "seconds"),
)
SETS = "acsf1,bbc,breast_cancer,gtzan30,italy_power,mice_protein,movement_libras,mushroom,pbmc4k,pendigits,penguins"
SETS += ",satimage,segment,umist,vowel,wine,worm_neuron"
RESTARTS, HALVES, BINS = 3, 3, 10


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
    began = time.process_time()
    model = TELL(int(y.max()) + 1, n_init=RESTARTS, random_state=seed, device=device).fit(X)
    halves = model.stability(X, n=HALVES, random_state=seed)
    seconds = time.process_time() - began
    probability, right = model.predict_proba(X).max(1), right_rows(y, model.labels_)
    fit = [right.mean()]
    for each in (probability, halves.confidence):
        fit += [each.mean(), calibration_error(each, right)]
    lines = []
    for j, stability in enumerate(model.stability_):
        own = y[model.labels_ == j]
        purity = np.bincount(own).max() / len(own) if len(own) else 0
        figures = (purity, stability, halves.clusters[j], *fit, seconds)
        lines.append(dict(zip(COLUMNS, (name, seed, j, len(own), *(f"{v:.4f}" for v in figures)), strict=True)))
    return lines


def show(lines: list[dict[str, str]]) -> None:
    """By set: the rank correlation of purity with stability over restarts and over halves, of the clusters of all
    seeds, and how far each confidence is off; then over all sets."""
    from scipy.stats import spearmanr

    titles = ("clusters", "restarts", "halves", "accuracy", "probability", "error", "confidence", "error")
    print(f"{'':18}" + "".join(f"{title:>12}" for title in titles))
    filled = [line for line in lines if int(line["rows"])]
    errors = []
    for name in [*dict.fromkeys(line["data"] for line in filled), "all"]:
        own = [line for line in filled if name in ("all", line["data"])]
        purity, *stabilities = ([float(line[what]) for line in own] for what in ("purity", "stability", "halves"))
        ranks = [spearmanr(each, purity).statistic for each in stabilities]
        fits = {(line["data"], line["seed"]): line for line in own}.values()
        means = [np.mean([float(fit[figure]) for fit in fits]) for figure in COLUMNS[7:12]]
        errors += [means] if name != "all" else []
        means = means if name != "all" else np.mean(errors, axis=0)
        print(f"{name:18}{len(own):>12}" + "".join(f"{value:>12.2f}" for value in (*ranks, *means)))


def main() -> None:
    wish = sweep.options(__doc__, sets=SETS, seeds=3, results=RESULTS).parse_args()
    show(sweep.sweep(run, sweep.sets_by_seed(wish), wish, keys=("data", "seed"), columns=COLUMNS))


if __name__ == "__main__":
    main()
