"""Where most rows lie on a map that shows only some of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter
from sklearn.metrics import pairwise_distances_argmin

COUNTED = 100_000  # rows at most, evenly drawn
CELLS = 96  # along the longer side of the map
WIDTH = 2.0  # standard deviation of the smoothing, in cells
MARGIN = 8  # cells around the map
LEVELS = (10, 30, 50, 70, 90)  # of `sparser`, where the shade changes: the first leaves out 10 % of the rows


@dataclass(frozen=True)
class Density:
    """Density of rows on a grid over the map.

    Args:
        x: centres of the columns of the grid, (columns,).
        y: centres of its lines, (lines,).
        sparser: percentage of the rows that are in cells of lower density, (lines, columns).
    """

    x: np.ndarray
    y: np.ndarray
    sparser: np.ndarray

    def to_dict(self) -> dict[str, Any]:
        return {
            "x": [float(self.x[0]), float(self.x[1] - self.x[0])],
            "y": [float(self.y[0]), float(self.y[1] - self.y[0])],
            "sparser": self.sparser.tolist(),
            "levels": list(LEVELS),
        }


def density_of(z: np.ndarray, rows: list[int] | np.ndarray, flat: np.ndarray) -> Density | None:
    """Density of all rows z (n, d) on the map `flat` (s, 2) of some of them: each counts where the nearest row of the
    map is. None if the map shows all rows."""
    if len(rows) == len(z):
        return None
    counted = z[np.linspace(0, len(z) - 1, min(len(z), COUNTED)).astype(int)]
    nearest = np.bincount(pairwise_distances_argmin(counted, z[rows]), minlength=len(rows))
    low, high = flat.min(0), flat.max(0)
    cell = float((high - low).max()) / CELLS or 1.0
    shape = np.ceil((high - low) / cell).astype(int) + 2 * MARGIN + 1
    edges = [low[axis] + cell * (np.arange(shape[axis] + 1) - MARGIN - 0.5) for axis in (0, 1)]
    counts, _, _ = np.histogram2d(flat[:, 0], flat[:, 1], bins=edges, weights=nearest)
    smooth = gaussian_filter(counts.T, WIDTH, mode="constant")
    order = np.argsort(smooth, axis=None)
    sparser = np.empty(smooth.size)
    sparser[order] = 100 * np.cumsum(smooth.ravel()[order]) / smooth.sum()
    x, y = ((own[1:] + own[:-1]) / 2 for own in edges)
    return Density(x, y, sparser.reshape(smooth.shape).round().astype(int))
