"""Can I trust it? How much the restarts agree, which rows wander between them, how the number of clusters was found,
and whether k-means would do as well."""

from itertools import combinations
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.neighbors import NearestNeighbors

from .. import metrics
from ..explain.clusters import Census

STARTS = 4  # of k-means
NEIGHBOURS = 10
WANDERING = 12  # rows that are named
HALF = 0.5  # a row wanders if fewer of the other runs agree on it


def row_stability(estimator: Any, census: Census) -> np.ndarray | None:
    """(n,) The model's `row_stability_`; None with one restart, and for rows that are not those of the fit."""
    if not np.array_equal(census.labels, estimator.labels_):
        return None
    found: np.ndarray | None = getattr(estimator, "row_stability_", None)
    return found


def wandering(stays: np.ndarray | None) -> list[int]:
    """The rows that stay least, of those that most other runs put elsewhere."""
    if stays is None:
        return []
    return [i for i in np.argsort(stays, kind="stable")[:WANDERING].tolist() if stays[i] < HALF]


def trust(
    estimator: Any, census: Census, stays: np.ndarray | None, samples: np.ndarray, rows: list[int]
) -> dict[str, Any]:
    """What the page shows. `samples` are the rows on the map, (n, ...), and `rows` their numbers."""
    return {
        "runs": None if stays is None else among_runs(estimator, stays),
        "number": number_of_clusters(estimator),
        "tree": tree(estimator),
        "kmeans": beside_kmeans(samples, census.labels[rows], len(census.means)),
    }


def among_runs(estimator: Any, stays: np.ndarray) -> dict[str, Any]:
    runs = [np.asarray(run["labels"]) for run in estimator.runs_]
    return {
        "count": len(runs),
        "agreement": float(np.mean([metrics.ari(a, b) for a, b in combinations(runs, 2)])),
        "clusters": estimator.stability_.tolist(),
        "wander": int((stays < HALF).sum()),
    }


def number_of_clusters(estimator: Any) -> dict[str, Any] | None:
    """What spoke for each number of clusters, where it was not given."""
    said = getattr(estimator, "diagnostics_", None)
    found: dict[str, Any] | None = said.get("number") if isinstance(said, dict) else None
    return found


def tree(estimator: Any) -> list[list[float]] | None:
    """Which clusters are joined first: the two, the height, and how many rows they are together."""
    joins = getattr(estimator, "hierarchy_", None)
    return None if joins is None or not len(joins) else np.asarray(joins, dtype=float).tolist()


def beside_kmeans(samples: np.ndarray, labels: np.ndarray, k: int) -> dict[str, Any] | None:
    """Label-free scores of our labels and of k-means on the same rows, both measured on these rows: images and texts as
    they are, columns of a table by their deviation."""
    x = samples.reshape(len(samples), -1).astype(np.float64)
    if samples.ndim == 2:
        x = x / np.where(x.std(0) > 0, x.std(0), 1)
    if len(np.unique(x, axis=0)) <= k or k < 2:
        return None
    plain = KMeans(k, n_init=STARTS, random_state=0).fit_predict(x)
    near = NearestNeighbors(n_neighbors=min(NEIGHBOURS, len(x) - 1)).fit(x).kneighbors(return_distance=False)
    return {
        "rows": len(x),
        "neighbours": [together(near, labels), together(near, plain)],
        "silhouette": [float(metrics.silhouette(x, labels)), float(metrics.silhouette(x, plain))],
        "agreement": float(metrics.ari(labels, plain)),
    }


def together(near: np.ndarray, labels: np.ndarray) -> float:
    """The share of neighbours in one cluster, beyond what sizes alone would give: 1 is all of them, 0 is chance."""
    shares = np.bincount(labels) / len(labels)
    chance = float((shares**2).sum())
    kept = float((labels[near] == labels[:, None]).mean())
    return (kept - chance) / (1 - chance) if chance < 1 else 0.0
