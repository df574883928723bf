"""Can I trust it? How much the restarts agree, which rows wander between them, and whether k-means would do as well."""

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


def stability(estimator: Any, census: Census) -> np.ndarray | None:
    """(n,) In what share of the other restarts a row stays with its cluster, clusters matched one to one. None with one
    restart, and for rows that are not those of the fit."""
    runs = [np.asarray(run["labels"]) for run in getattr(estimator, "runs_", []) if run.get("labels") is not None]
    if len(runs) < 2 or not np.array_equal(census.labels, estimator.labels_):
        return None
    own = next((i for i, labels in enumerate(runs) if np.array_equal(labels, census.labels)), None)
    others = [labels for i, labels in enumerate(runs) if i != own]
    stays = []
    for labels in others:
        named = metrics.match(census.labels, labels)
        stays.append(np.array([named.get(label, -1) for label in labels.tolist()]) == census.labels)
    return np.mean(stays, axis=0)


def wandering(stays: np.ndarray | None) -> list[int]:
    """The rows that stay least, of those that most other runs put elsewhere."""
    if stays is None:
        return []
    return [i for i in np.argsort(stays, kind="stable")[:WANDERING].tolist() if stays[i] < HALF]


def trust(
    estimator: Any, census: Census, stays: np.ndarray | None, samples: np.ndarray, rows: list[int]
) -> dict[str, Any]:
    """What the page shows. `samples` are the rows on the map, (n, ...), and `rows` their numbers."""
    found: dict[str, Any] = {"runs": None, "kmeans": beside_kmeans(samples, census.labels[rows], len(census.means))}
    if stays is not None:
        runs = [np.asarray(run["labels"]) for run in estimator.runs_]
        pairs = [metrics.ari(a, b) for a, b in combinations(runs, 2)]
        members = [census.labels == j for j in range(len(census.means))]
        found["runs"] = {
            "count": len(runs),
            "others": len(runs) - any(np.array_equal(labels, census.labels) for labels in runs),
            "agreement": float(np.mean(pairs)),
            "clusters": [float(stays[own].mean()) if own.any() else None for own in members],
            "wander": int((stays < HALF).sum()),
        }
    return found


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
