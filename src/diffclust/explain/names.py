"""A few words for each cluster: what sets it apart."""

from collections import Counter
from collections.abc import Sequence
from textwrap import shorten
from typing import Any

import numpy as np

from ..reading.tables import Columns
from .rows import decoded_centers, input_scale, names_of
from .tables import BARELY, ColumnFact, column_facts

FEATURES, WORDS = 2, 3  # that make a name
LONGEST = 40  # characters of a part of a name


def names_by_facts(facts: Sequence[Sequence[ColumnFact]]) -> list[str]:
    """From what tells each cluster from the whole: "high income, plan = premium", or "goal, match, league" for texts. A
    cluster that nothing tells has a number for a name."""
    parts = [[shorten(fact.phrase, LONGEST, placeholder="…") for fact in own[:FEATURES]] for own in facts]
    return _told_apart([", ".join(own) for own in parts])


def cluster_names(estimator: Any, terms: Sequence[str] | None = None) -> list[str]:
    """Of a fitted estimator without its rows, by the decoded centres: as `names_by_facts`, or from features that are no
    table, or from words where rows are texts of these `terms`. Differences are in the units of the network. Clusters of
    images, and one that is alone, have a number for a name."""
    k, decoded = len(estimator.cluster_centers_), decoded_centers(estimator)
    names, reading = names_of(estimator, terms), getattr(estimator, "columns_", None)
    if names is None or decoded is None or k < 2:
        return _told_apart([""] * k)
    centers = decoded.double().flatten(1).numpy()
    sizes, scale = np.maximum(np.asarray(estimator.diagnostics_["sizes"], float), 1e-9), input_scale(estimator)
    if isinstance(reading, Columns) and not reading.is_text and terms is None:
        return names_by_facts([column_facts(reading, centers, scale, sizes, j, least=BARELY) for j in range(k)])
    weighted = sizes[:, None] * centers
    away = (centers - (weighted.sum(0) - weighted) / (sizes.sum() - sizes)[:, None]) / scale
    are_words = terms is not None or (reading is not None and reading.is_text)
    return _told_apart([_most(names, line, are_words) for line in away])


def _most(names: Sequence[str], away: np.ndarray, are_words: bool) -> str:
    """The words that a cluster has most of, or the features that differ most."""
    if are_words:
        return ", ".join(names[i] for i in np.argsort(-away, kind="stable")[:WORDS] if away[i] > 0)
    order = [i for i in np.argsort(-np.abs(away), kind="stable")[:FEATURES] if away[i] != 0]
    return ", ".join(f"{'high' if away[i] > 0 else 'low'} {names[i]}" for i in order)


def _told_apart(found: list[str]) -> list[str]:
    """Names that occur twice get their number, and where there is none the number is the name."""
    twice = Counter(found)
    called = [name if twice[name] == 1 else f"{name} ({j})" for j, name in enumerate(found)]
    return [called[j] if name else f"cluster {j}" for j, name in enumerate(found)]
