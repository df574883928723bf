"""How does the rule of n_clusters="auto" compare with other rules for the number of clusters?

    python benchmarks/number_rules.py --data FOLDER [--sets digits,wine] [--seeds 3]
    python benchmarks/number_rules.py --show

FOLDER has the tables in FOLDER/rows. Labels score and choose nothing. Every rule sees the same embedding: that of
TELL's network after pretraining, for images its layout by the neighbour graph (`diffclust.nn.layout`). "ours" also
trains the two networks on halves that it needs. A rule that gives a number is scored by k-means with that number, a
rule that merges clusters by what is left. The rules, up to the `max_clusters` of "auto":

- silhouette: the k-means clusters with the largest silhouette.
- gap: the smallest k with gap(k) >= gap(k + 1) - s(k + 1), beside ten uniform boxes along the principal axes
  (Tibshirani, Walther, Hastie: "Estimating the number of clusters via the gap statistic", 2001).
- stability: the k for which the clusters of two random halves agree best, by adjusted mutual information, mean of five
  draws.
- BIC: Gaussian mixtures with full covariances.
- DP mixture: scikit-learn's Dirichlet process mixture, clusters with at least one percent of the rows.
- dip: merges the two k-means clusters that Hartigan's dip test along the line through their centres finds least
  separate, as long as p >= 0.05; where one has more than twice as many rows, its nearest to the other are tested too,
  and the smaller p counts (package diptest).
- UniForCE: joins clusters by centre distance if more than half of eleven tests on equal parts have p >= 0.001
  (Vardakas, Kalogeratos, Likas: "UniForCE: the unimodality forest method for clustering", 2025).

Results are appended to benchmarks/results/number_rules.csv; what is there is not run again.
"""

import math
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import sweep
from auto import load

RESULTS = Path(__file__).parent / "results" / "number_rules.csv"
COLUMNS = ("data", "seed", "rule", "classes", "found", "acc", "nmi")
SETS = (
    "digits,umist,pendigits,bbc,breast_cancer,wine,satimage,pbmc4k,segment,worm_neuron,movement_libras,mice_protein,acsf1,"
    "gtzan30,vowel,penguins,italy_power,blob,uniform"
)
SINGLE = ("blob", "uniform")  # they have one cluster
ROWS = 2_000  # largest sample on which the other rules look for the number
REFERENCES, DRAWS, PARTS = 10, 5, 11
NEAR = 0.2  # a number is near that of the classes if it is off by at most this share


Found = tuple[int, np.ndarray | None]  # a number, and the clusters of all rows if the rule says which


def embedding_of(X: np.ndarray, seed: int) -> np.ndarray:
    import torch

    from diffclust import TELL
    from diffclust.nn.layout import compute_layout

    features = "auto" if X.ndim > 2 else "neighbours"
    model = TELL(2, features=features, init="k-means", epochs=0, random_state=seed).fit(X)
    z = torch.from_numpy(model.transform(X))
    if "reconstruction" in model.history_[0] and "neighbours" not in model.history_[0]:
        torch.manual_seed(seed)
        z = compute_layout(z)
    return z.double().numpy()


def clusters_of(z: np.ndarray, k: int, seed: int) -> Any:
    from sklearn.cluster import KMeans

    return KMeans(k, n_init=5, random_state=seed).fit(z)


def ours(X: np.ndarray, z: np.ndarray, most: int, seed: int) -> Found:
    from diffclust import TELL
    from diffclust.estimator.n_clusters import with_n_clusters

    estimator = TELL("auto", random_state=seed)
    _, choice = with_n_clusters(estimator, estimator._read(X))
    return choice.n_clusters, None


def by_silhouette(X: np.ndarray, z: np.ndarray, most: int, seed: int) -> Found:
    from sklearn.metrics import silhouette_score

    return max(range(2, most + 1), key=lambda k: silhouette_score(z, clusters_of(z, k, seed).labels_)), None


def by_gap(X: np.ndarray, z: np.ndarray, most: int, seed: int) -> Found:
    rng = np.random.default_rng(seed)
    axes = np.linalg.svd(z - z.mean(0), full_matrices=False)[2]
    along = (z - z.mean(0)) @ axes.T
    boxes = [rng.uniform(along.min(0), along.max(0), along.shape) for _ in range(REFERENCES)]
    gaps, errors = [], []
    for k in range(1, most + 2):
        logs = [math.log(clusters_of(box, k, seed).inertia_) for box in boxes]
        gaps.append(statistics.mean(logs) - math.log(clusters_of(z, k, seed).inertia_))
        errors.append(statistics.pstdev(logs) * math.sqrt(1 + 1 / REFERENCES))
    return next((k for k in range(1, most + 1) if gaps[k - 1] >= gaps[k] - errors[k]), most), None


def by_stability(X: np.ndarray, z: np.ndarray, most: int, seed: int) -> Found:
    from sklearn.metrics import adjusted_mutual_info_score

    rng = np.random.default_rng(seed)
    halves = [np.array_split(rng.permutation(len(z)), 2) for _ in range(DRAWS)]

    def agreement(k: int) -> float:
        both = [[clusters_of(z[half], k, seed).predict(z) for half in pair] for pair in halves]
        return statistics.mean(adjusted_mutual_info_score(a, b) for a, b in both)

    return max(range(2, most + 1), key=agreement), None


def by_bic(X: np.ndarray, z: np.ndarray, most: int, seed: int) -> Found:
    from sklearn.mixture import GaussianMixture

    models = [GaussianMixture(k, random_state=seed, reg_covar=1e-4).fit(z) for k in range(1, most + 1)]
    return 1 + int(np.argmin([model.bic(z) for model in models])), None


def by_dp_mixture(X: np.ndarray, z: np.ndarray, most: int, seed: int) -> Found:
    from sklearn.mixture import BayesianGaussianMixture

    labels = BayesianGaussianMixture(n_components=most, random_state=seed, max_iter=500).fit_predict(z)
    return int((np.bincount(labels) >= len(z) / 100).sum()), None


def p_of_dip(values: np.ndarray) -> float:
    """Of Hartigan's dip test: small where the values are not unimodal."""
    import diptest

    return float(diptest.diptest(np.ascontiguousarray(values))[1]) if len(values) > 3 else 1.0


def by_dip(X: np.ndarray, z: np.ndarray, most: int, seed: int) -> Found:
    labels = clusters_of(z, most, seed).labels_

    def p_of(i: int, j: int) -> float:
        a, b = sorted((z[labels == i], z[labels == j]), key=len)
        line = a.mean(0) - b.mean(0)
        p = p_of_dip(np.concatenate([a, b]) @ line)
        if len(b) > 2 * len(a):
            near = b[np.argsort(np.square(b - a.mean(0)).sum(1))[: len(a)]]
            p = min(p, p_of_dip(np.concatenate([a, near]) @ line))
        return p

    ids = list(range(most))
    values = {(i, j): p_of(i, j) for i in ids for j in ids if i < j}
    while values:
        (i, j), p = max(values.items(), key=lambda item: item[1])
        if p < 0.05:
            break
        labels[labels == j] = i
        ids.remove(j)
        values = {pair: p for pair, p in values.items() if not {i, j} & set(pair)}
        values |= {(min(i, m), max(i, m)): p_of(min(i, m), max(i, m)) for m in ids if m != i}
    return len(ids), labels


def by_uniforce(X: np.ndarray, z: np.ndarray, most: int, seed: int) -> Found:
    rng = np.random.default_rng(seed)
    start = clusters_of(z, most, seed)
    labels, centers = start.labels_, start.cluster_centers_
    pairs = [(i, j) for i in range(most) for j in range(i + 1, most)]
    tree = np.arange(most)
    for i, j in sorted(pairs, key=lambda pair: np.square(centers[pair[0]] - centers[pair[1]]).sum()):
        if tree[i] == tree[j]:
            continue
        a, b = z[labels == i], z[labels == j]
        size, line = min(len(a), len(b)), centers[i] - centers[j]
        parts = (np.concatenate([rng.permutation(each)[:size] for each in (a, b)]) @ line for _ in range(PARTS))
        if sum(p_of_dip(part) >= 0.001 for part in parts) > PARTS / 2:
            tree[tree == tree[j]] = tree[i]
    merged = np.unique(tree[labels], return_inverse=True)[1]
    return int(merged.max()) + 1, merged


RULES = {
    "ours": ours,
    "silhouette": by_silhouette,
    "gap": by_gap,
    "stability": by_stability,
    "BIC": by_bic,
    "DP mixture": by_dp_mixture,
    "dip": by_dip,
    "UniForCE": by_uniforce,
}


def run(folder: Path, device: str, name: str, seed: int) -> list[dict[str, Any]]:
    from diffclust import TELL, metrics
    from diffclust.estimator.n_clusters import most_clusters

    X, y = load(folder, name)
    z = embedding_of(X, seed)
    some = np.random.default_rng(seed).permutation(len(z))[:ROWS]
    most = most_clusters(TELL("auto"), len(X))
    lines = []
    for rule, find in RULES.items():
        found, labels = find(X, z[some], most, seed)
        truth = y if labels is None else y[some]
        labels = clusters_of(z, found, seed).labels_ if labels is None else labels
        scores = (f"{100 * score(truth, labels):.2f}" for score in (metrics.accuracy, metrics.nmi))
        lines.append(dict(zip(COLUMNS, (name, seed, rule, len(np.unique(y)), found, *scores), strict=True)))
    return lines


def means(runs: list[dict[str, str]], sets: list[str]) -> Iterator[float]:
    """Over sets: accuracy, NMI, the share of runs whose number is near that of the classes, and the mean of
    |log2 (found / classes)|."""
    by_set = [[run for run in runs if run["data"] == name] for name in sets]
    for figure in (
        lambda run: float(run["acc"]),
        lambda run: float(run["nmi"]),
        lambda run: 100.0 * (abs(int(run["found"]) / int(run["classes"]) - 1) <= NEAR),
        lambda run: abs(math.log2(int(run["found"]) / int(run["classes"]))),
    ):
        yield statistics.mean(statistics.mean(map(figure, each)) for each in by_set)


def show(lines: list[dict[str, str]]) -> None:
    sets = list(dict.fromkeys(line["data"] for line in lines))
    print(f"{'':16}{'classes':>8}" + "".join(f"{rule:>12}" for rule in RULES))
    for name in sets:
        here = [line for line in lines if line["data"] == name]
        found = [statistics.mean(int(line["found"]) for line in here if line["rule"] == rule) for rule in RULES]
        print(f"{name:16}{here[0]['classes']:>8}" + "".join(f"{each:>12.1f}" for each in found))
    several = [name for name in sets if name not in SINGLE]
    table = [list(means([line for line in lines if line["rule"] == rule], several)) for rule in RULES]
    for i, what in enumerate(("accuracy", "NMI", "near, percent", "|log2 ratio|")):
        print(f"{what:24}" + "".join(f"{each[i]:>12.{2 if i == 3 else 1}f}" for each in table))


def main() -> None:
    wish = sweep.options(__doc__, sets=SETS, seeds=3, results=RESULTS).parse_args()
    show(sweep.sweep(run, sweep.sets_by_seed(wish), wish, keys=("data", "seed"), columns=COLUMNS))


if __name__ == "__main__":
    main()
