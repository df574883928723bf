"""A few words for each cluster: what sets it apart, read off the decoded centres."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from .rows import decoded_centers, input_scale, names_of

FEATURES, WORDS = 2, 3  # that make a name


def cluster_names(estimator: Any, terms: Sequence[str] | None = None) -> list[str]:
    """Of a fitted estimator: "high income, plan = premium", or "goal, match, league" where rows are texts of these
    `terms`, or of a table with one text. Differences from the other clusters are in the units of each column. Clusters
    of images, and one that is alone, have a number for a name."""
    k, decoded = len(estimator.cluster_centers_), decoded_centers(estimator)
    names, reading = names_of(estimator, terms), getattr(estimator, "columns_", None)
    if names is None or decoded is None or k < 2:
        return [_number(j) for j in range(k)]
    centers = decoded.double().flatten(1).numpy()
    sizes = np.maximum(np.asarray(estimator.diagnostics_["sizes"], float), 1e-9)[:, None]
    others = (np.sum(sizes * centers, axis=0) - sizes * centers) / (sizes.sum() - sizes)
    away = (centers - others) / input_scale(estimator)
    are_words = terms is not None or (reading is not None and reading.is_text)
    categories = set() if reading is None else {f for c in reading.used if c.kind == "category" for f in c.features}
    found = []
    for j in range(k):
        if are_words:
            order = np.argsort(-away[j], kind="stable")[:WORDS]
            words = [names[i] for i in order if away[j, i] > 0]
        else:
            order = np.argsort(-np.abs(away[j]), kind="stable")[:FEATURES]
            words = [_phrase(names[i], away[j, i], names[i] in categories) for i in order if away[j, i] != 0]
        found.append(", ".join(words) or _number(j))
    twice = Counter(found)
    return [name if twice[name] == 1 else f"{name} ({j})" for j, name in enumerate(found)]


def _phrase(feature: str, away: float, is_category: bool) -> str:
    if is_category:
        return feature if away > 0 else f"not {feature}"
    return f"{'high' if away > 0 else 'low'} {feature}"


def _number(j: int) -> str:
    return f"cluster {j}"
