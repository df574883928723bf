"""Rows that are curves, such as a day's loads or a spectrum: their mean and band in each cluster."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..explain.clusters import Census
from .material import numbers
from .spreads import MEASURED, values_of

FEWEST, MOST = 16, 200  # columns of a curve; of more, evenly spaced ones are shown
SMOOTH = 0.25  # of the squared steps that columns in a random order would have
BAND = (0.1, 0.9)  # quantiles


@dataclass(frozen=True)
class Curves:
    """At some of the columns.

    Args:
        names: of the columns.
        means: of each cluster, (k, columns); nan for one without rows.
        low: the lower end of the band, (k, columns).
        high: the upper end.
        whole: the mean of all rows, (columns,).
    """

    names: list[str]
    means: np.ndarray
    low: np.ndarray
    high: np.ndarray
    whole: np.ndarray

    def to_dict(self) -> dict[str, Any]:
        """Without the clusters, which have theirs on their cards."""
        reach = [float(np.nanmin(self.low)), float(np.nanmax(self.high))]
        return {"names": self.names, "whole": numbers(self.whole), "reach": numbers(reach)}

    def of(self, j: int) -> list[list[float]]:
        return [numbers(part[j]) for part in (self.means, self.low, self.high)]


def curves_of(census: Census) -> Curves | None:
    """The curves of the clusters; None where rows are no curves."""
    names = census.subject.feature_names
    if getattr(census.subject.estimator, "columns_", None) is not None or names is None or len(names) < FEWEST:
        return None
    n, k = len(census.labels), len(census.means)
    rows = np.linspace(0, n - 1, min(n, MEASURED)).astype(int)
    if not are_curves(values_of(census, rows[:: max(1, len(rows) // 1000)], np.arange(len(names)))):
        return None
    shown = np.unique(np.linspace(0, len(names) - 1, min(len(names), MOST)).astype(int))
    x, labels = values_of(census, rows, shown), census.labels[rows]
    nothing = np.full((3, len(shown)), np.nan)
    found = [_band(x[labels == j]) if (labels == j).any() else nothing for j in range(k)]
    means, low, high = np.stack(found, axis=1)
    return Curves([names[i] for i in shown], means, low, high, x.mean(0))


def are_curves(x: np.ndarray) -> bool:
    """Whether columns that stand side by side are alike in rows (n, d): squared steps from one to the next are small
    beside those that a random order of the columns would have, twice the variance within rows."""
    variance = x.var(1).mean()
    return bool(variance > 0 and np.square(np.diff(x, axis=1)).mean() < SMOOTH * 2 * variance)


def _band(x: np.ndarray) -> np.ndarray:
    """Mean and the ends of the band, (3, columns)."""
    return np.stack([x.mean(0), *np.quantile(x, BAND, axis=0)])
