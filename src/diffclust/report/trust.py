"""Can I trust it? How much the restarts agree, which rows wander between them, how the number of clusters was found,
and whether k-means would do as well."""

from itertools import combinations
from typing import Any

import numpy as np

from .. import metrics
from ..estimator.result_checks import compare_with_kmeans
from ..explain.clusters import Census

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


def trust(estimator: Any, census: Census, stays: np.ndarray | None) -> dict[str, Any]:
    """What the page shows."""
    return {
        "runs": None if stays is None else among_runs(estimator, stays),
        "number": number_of_clusters(estimator),
        "tree": tree(estimator),
        "kmeans": kmeans_beside(estimator, census),
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


def kmeans_beside(estimator: Any, census: Census) -> dict[str, Any] | None:
    """Label-free scores of our labels and of k-means on the same rows, both in the units of the model: what the fit
    itself measured, where these are its rows."""
    if not estimator.by_distance:
        return None
    model, data = estimator.model_.to(census.subject.data.device), census.subject.data
    found = compare_with_kmeans(model, data, census.labels, len(census.means), estimator.seed_)
    if found is None:
        return None
    x, labels, plain = (part.cpu().numpy() for part in found)
    return {
        "rows": len(x),
        "neighbours": list(found.together),
        "silhouette": [metrics.silhouette(x, labels), metrics.silhouette(x, plain)],
        "agreement": float(metrics.ari(labels, plain)),
    }
