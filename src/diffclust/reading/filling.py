"""Blank cells, filled with their expected values given the other cells of the row.

Probabilistic principal components (Tipping and Bishop, "Probabilistic Principal Component Analysis", JRSS B 1999) of
columns in units of their deviation: a row is x = W t + μ + ε with t ~ N(0, I) and ε ~ N(0, σ² I). For a row with the
observed cells o and the missing cells m,

    x_m = W_m (W_o'W_o + σ² I)^-1 W_o' (x_o - μ_o) + μ_m
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

MAX_FACTORS = 10  # largest number of columns of W
FIT_ROWS = 10_000  # largest number of rows W is estimated from, evenly spaced
EM_STEPS = 30  # steps of expectation-maximisation
ROWS_AT_ONCE = 4096  # rows filled at a time


@dataclass(frozen=True)
class Fill:
    mean: np.ndarray  # (d,)
    deviation: np.ndarray  # (d,); one for columns that do not vary
    low: np.ndarray  # (d,) smallest and largest values: filled values stay between them
    high: np.ndarray
    factors: np.ndarray  # W (d, q)
    noise: float  # σ²

    @classmethod
    def fit(cls, rows: np.ndarray) -> Self:
        """Estimate from rows (n, d) with NaN for blanks; every column has at least one value."""
        mean, low, high = np.nanmean(rows, 0), np.nanmin(rows, 0), np.nanmax(rows, 0)
        deviation = np.nanstd(rows, 0)
        varies = deviation > 1e-12 * np.abs(mean)
        deviation = np.where(varies, deviation, 1.0)
        some = rows[np.linspace(0, len(rows) - 1, min(len(rows), FIT_ROWS)).astype(int)]
        u = np.where(varies | np.isnan(some), (some - mean) / deviation, 0.0)  # otherwise only rounding errors
        factors, noise = _learn(np.nan_to_num(u), ~np.isnan(u), min(MAX_FACTORS, u.shape[1] // 2))
        return cls(mean, deviation, low, high, factors, noise)

    def transform(self, rows: np.ndarray) -> np.ndarray:
        """The rows with blanks filled."""
        blank = np.isnan(rows)
        if not blank.any():
            return rows
        rows = rows.copy()
        with_blanks = np.flatnonzero(blank.any(1))
        for part in np.split(with_blanks, range(ROWS_AT_ONCE, len(with_blanks), ROWS_AT_ONCE)):
            here = blank[part]
            u = np.nan_to_num((rows[part] - self.mean) / self.deviation)
            t, _ = _expect(u, ~here, self.factors, self.noise)
            guess = np.clip(t @ self.factors.T * self.deviation + self.mean, self.low, self.high)
            rows[part] = np.where(here, guess, rows[part])
        return rows

    def to_dict(self) -> dict[str, Any]:
        return {name: np.asarray(value).tolist() for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Self:
        d = len(saved["mean"])
        arrays = {name: np.array(saved[name], np.float64) for name in ("mean", "deviation", "low", "high")}
        factors = np.array(saved["factors"], np.float64).reshape(d, -1)
        return cls(**arrays, factors=factors, noise=float(saved["noise"]))


def _expect(u: np.ndarray, there: np.ndarray, w: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Means (n, q) and covariances (n, q, q) of t given the observed cells; u is zero for missing ones."""
    n, (d, q) = len(u), w.shape
    if q == 0:
        return np.zeros((n, 0)), np.zeros((n, 0, 0))
    products = (w[:, :, None] * w[:, None, :]).reshape(d, q * q)
    covariance = noise * np.linalg.inv((there @ products).reshape(-1, q, q) + noise * np.eye(q))
    return np.einsum("nij,nj->ni", covariance, u @ w) / noise, covariance


def _learn(u: np.ndarray, there: np.ndarray, q: int) -> tuple[np.ndarray, float]:
    """W and σ² by expectation-maximisation, starting from the principal components of rows filled with means."""
    d = u.shape[1]
    if q == 0:
        return np.zeros((d, 0)), 1.0
    values, vectors = np.linalg.eigh(u.T @ u / len(u))
    noise = max(float(values[:-q].mean()), 1e-3)
    w = vectors[:, -q:] * np.sqrt(np.maximum(values[-q:] - noise, 1e-3))
    if there.all():
        return w, noise
    seen = there.astype(np.float64)
    for _ in range(EM_STEPS):
        t, covariance = _expect(u, seen, w, noise)
        second = (covariance + t[:, :, None] * t[:, None, :]).reshape(len(u), q * q)
        squares = (seen.T @ second).reshape(d, q, q)  # Σ over rows in which the cell is observed
        w = np.linalg.solve(squares + 1e-6 * np.eye(q), (u.T @ t)[:, :, None])[:, :, 0]
        error = (u**2).sum() - 2 * ((u.T @ t) * w).sum() + np.einsum("dij,di,dj->", squares, w, w)
        noise = max(float(error / seen.sum()), 1e-3)
    return w, noise
