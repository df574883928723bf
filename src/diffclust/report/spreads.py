"""How the values of a column lie: in each cluster, against all rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..explain.clusters import Census
from ..reading.columns import Column

MEASURED = 20_000  # rows at most, evenly drawn
BINS = 20
EDGE = 0.005  # the share of rows at either end that goes into the outer bins
CHUNK = 2048  # rows at once


@dataclass(frozen=True)
class Spread:
    """One column: its bins, and the share of rows in each.

    Args:
        name: of the column.
        places: what the bins are: the values themselves, or the two ends of a range that is cut evenly.
        is_range: which of the two.
        shares: of each cluster, (k, bins); the whole is in the last line.
    """

    name: str
    places: list[str]
    is_range: bool
    shares: np.ndarray

    def to_dict(self) -> dict[str, Any]:
        """Without the clusters, which have their shares on their cards."""
        return {"name": self.name, "places": self.places, "range": self.is_range, "whole": _rounded(self.shares[-1])}

    def of(self, j: int) -> list[float]:
        return _rounded(self.shares[j])


def _rounded(shares: np.ndarray) -> list[float]:
    return [round(share, 4) for share in shares.tolist()]


def spreads(census: Census, wanted: set[int]) -> dict[int, Spread]:
    """Of the columns wanted, by their number among `places`. What does not vary has none."""
    parts = {i: place for i, place in enumerate(places(census)) if i in wanted}
    if not parts:
        return {}
    n = len(census.labels)
    rows = np.linspace(0, n - 1, min(n, MEASURED)).astype(int)
    features = np.unique(np.concatenate([np.arange(at.start, at.stop) for _, at in parts.values()]))
    values = values_of(census, rows, features)
    k, found = len(census.means), {}
    for i, (column, at) in parts.items():
        own = values[:, np.searchsorted(features, np.arange(at.start, at.stop))]
        bins, called, is_range = _binned(column, own)
        if len(called) < 2:
            continue
        counts = np.zeros((k + 1, BINS if is_range else len(called)))
        np.add.at(counts, (census.labels[rows], bins), 1)
        counts[-1] = counts[:-1].sum(0)
        found[i] = Spread(column.name, called, is_range, counts / np.maximum(counts.sum(1, keepdims=True), 1))
    return found


def distinctive(census: Census, j: int, n: int) -> list[int]:
    """The numbers among `places` of the n columns that set cluster j apart, the most distinctive first."""
    if getattr(census.subject.estimator, "columns_", None) is not None:
        at = {column.name: i for i, (column, _) in enumerate(places(census))}
        return [at[fact.column] for fact in (census.facts(j) or [])[:n] if fact.column in at]
    away = census.contrast(j)
    return [i for i in np.argsort(-np.abs(away), kind="stable")[:n].tolist() if away[i]]


def places(census: Census) -> list[tuple[Column, slice]]:
    """Columns of the table but for texts, or else features, and which of the rows' columns show how values lie."""
    reading, names = getattr(census.subject.estimator, "columns_", None), census.subject.feature_names
    if reading is None:
        return [(Column(name, "number"), slice(i, i + 1)) for i, name in enumerate(names or [])]
    found, done = [], 0
    for column in reading.used:
        width = len(column.features)
        if column.kind != "text":
            found.append((column, slice(done, done + (width if column.kind == "category" else 1))))
        done += width
    return found


def values_of(census: Census, rows: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Some features of some rows, in the user's numbers: (n, f)."""
    data, estimator = census.subject.data, census.subject.estimator
    kept = []
    for index in torch.from_numpy(rows).to(data.device).split(CHUNK):
        kept.append(estimator._as_given(data.take(index)).flatten(1)[:, features].double().cpu().numpy())
    return np.concatenate(kept)


def _binned(column: Column, values: np.ndarray) -> tuple[np.ndarray, list[str], bool]:
    """The bin of each row, what the bins are, and whether they are parts of a range."""
    if column.kind == "category":
        return values.argmax(1), list(column.levels), False
    x = values[:, 0]
    known = np.unique(x)
    if len(known) <= BINS and column.kind == "number":
        return np.searchsorted(known, x), [column.shown(value) for value in known.tolist()], False
    low, high = np.quantile(x, [EDGE, 1 - EDGE])
    if not high > low:
        return np.zeros(len(x), int), [], True
    bins = np.clip((BINS * (x - low) / (high - low)).astype(int), 0, BINS - 1)
    return bins, [column.shown(float(low), float(high)), column.shown(float(high), float(low))], True
