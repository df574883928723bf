"""What belongs nowhere: `outlier_score` beside IsolationForest and HDBSCAN, by the area under the ROC curve.

    python benchmarks/outliers.py --data FOLDER [--sets wine,segment] [--seeds 3]
    python benchmarks/outliers.py --show

FOLDER has .npz files with X and labels. A model is fitted on two thirds of the rows of all classes but the last. Asked
about are the other rows of these classes and, as outliers, as many of four kinds: rows of the class left out, rows
whose columns come from different rows, rows of another set (each column with the mean and standard deviation of ours; a
set of more columns gives the first of them), uniform noise within the reach of each column. Labels make the classes,
and score. IsolationForest is scikit-learn's. HDBSCAN has no score for new rows: its own is fitted again with the rows
asked about, and the score is one minus the probability of belonging to a cluster, 1 for noise.
A run that is in the CSV is not repeated.
"""

import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import sweep

RESULTS = Path(__file__).parent / "results" / "outliers.csv"
FIELDS = ("data", "outliers", "method", "seed", "auc")
SETS = "wine,breast_cancer,segment,satimage,bbc,mice_protein"
OTHERS = {  # whose rows are strange to a set: of at least as many columns
    "wine": "breast_cancer",
    "breast_cancer": "satimage",
    "segment": "breast_cancer",
    "satimage": "mice_protein",
    "bbc": "searchsnippets",
    "mice_protein": "movement_libras",
}


def outliers_of(
    X: np.ndarray, left_out: np.ndarray, other: np.ndarray, n: int, generator: np.random.Generator
) -> dict[str, np.ndarray]:
    shuffled = np.stack([generator.permutation(column)[:n] for column in X.T], axis=1)
    noise = generator.uniform(X.min(0), X.max(0), (n, X.shape[1]))
    strange = generator.permutation(other)[:n, : X.shape[1]]
    if (X == 0).mean() < 0.5:  # not texts, whose rows are comparable as they are
        spread = strange.std(0)
        strange = X.mean(0) + X.std(0) * (strange - strange.mean(0)) / np.where(spread > 0, spread, 1)
    return {
        "class left out": left_out[:n],
        "columns shuffled": shuffled,
        "another set's rows": strange,
        "uniform noise": noise,
    }


def hdbscan_score(fitted: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Of rows that are clustered with the fitted ones, on columns standardised unless most values are zero."""
    from sklearn.cluster import HDBSCAN

    X = np.concatenate([fitted, rows])
    if (fitted == 0).mean() < 0.5:
        spread = fitted.std(0)
        X = (X - fitted.mean(0)) / np.where(spread > 0, spread, 1)
    model = HDBSCAN(min_cluster_size=max(5, len(fitted) // 100), copy=True).fit(X)
    return 1 - model.probabilities_[len(fitted) :]


def run(folder: Path, device: str, name: str, seed: int) -> list[dict[str, Any]]:
    from sklearn.ensemble import IsolationForest
    from sklearn.metrics import roc_auc_score

    from diffclust import TELL

    arrays = np.load(folder / f"{name}.npz")
    X, y = arrays["X"].astype(float), arrays["labels"]
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(X))
    X, y = X[order], y[order]
    known, left_out = X[y < y.max()], X[y == y.max()]
    n = 2 * len(known) // 3
    fitted, inliers = known[:n], known[n:]
    model = TELL(int(y.max()), random_state=seed, device=device).fit(fitted)
    forest = IsolationForest(random_state=seed).fit(fitted)
    scores = {
        "TELL": model.outlier_score,
        "IsolationForest": lambda rows: -forest.score_samples(rows),
        "HDBSCAN": lambda rows: hdbscan_score(fitted, rows),
    }
    other = np.load(folder / f"{OTHERS[name]}.npz")["X"].astype(float)
    lines = []
    for kind, odd in outliers_of(fitted, left_out, other, len(inliers), generator).items():
        rows, odds = np.concatenate([inliers, odd]), np.r_[np.zeros(len(inliers)), np.ones(len(odd))]
        for method, score in scores.items():
            auc = f"{roc_auc_score(odds, score(rows)):.3f}"
            lines.append(dict(zip(FIELDS, (name, kind, method, seed, auc), strict=True)))
    return lines


def show(rows: list[dict[str, str]]) -> None:
    found = defaultdict(list)
    for row in rows:
        found[row["data"], row["outliers"], row["method"]].append(float(row["auc"]))
    for (data, kind, method), aucs in found.items():
        print(f"{data:16}{kind:20}{method:18}{statistics.mean(aucs):.2f} ({len(aucs)})")
    for method in ("TELL", "IsolationForest", "HDBSCAN"):
        means = [statistics.mean(aucs) for (_, _, who), aucs in found.items() if who == method]
        print(f"{method}: mean {statistics.mean(means):.3f}")


def main() -> None:
    wish = sweep.options(__doc__, sets=SETS, seeds=3, results=RESULTS).parse_args()
    work = [(name, seed) for name in wish.sets.split(",") for seed in range(wish.seeds)]
    show(sweep.sweep(run, work, wish, keys=("data", "seed"), columns=FIELDS))


if __name__ == "__main__":
    main()
