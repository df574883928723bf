"""Where rows lie on a map: t-SNE, or the first two principal components."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from scipy.linalg import eigh

from ..extras import extra

Layout = Literal["t-SNE", "PCA"]
STEPS = (100, 250)  # of t-SNE: with clusters drawn together, and without
STEPS_OF_A_FRAME = (50, 150)  # of one map of many, which starts from its neighbour


def pca(z: np.ndarray) -> np.ndarray:
    """The first two principal components, each pointing to where most of its weight is: (n, d) -> (n, 2)"""
    centred = z - z.mean(0)
    rows = centred[np.linspace(0, len(z) - 1, min(len(z), 5000)).astype(int)].astype(np.float64)
    wide = rows.shape[1] > len(rows)  # then the products of rows are the smaller matrix
    products = rows @ rows.T if wide else rows.T @ rows
    last = len(products) - 1
    lengths, axes = (found[..., ::-1].T for found in eigh(products, subset_by_index=(max(0, last - 1), last)))
    if wide:
        axes = axes @ rows / np.sqrt(np.maximum(lengths, 1e-300))[:, None]
    axes = np.where(lengths > 1e-9 * lengths[0], 1, 0)[:, None] * axes  # else rows lie on a line, and this is rounding
    axes *= np.sign(axes.sum(1, keepdims=True) + 1e-12)
    flat = centred @ axes.T.astype(centred.dtype)
    return np.pad(flat, ((0, 0), (0, 2 - flat.shape[1])))


def spread_out(
    z: np.ndarray, how: Layout, start: np.ndarray | None = None, steps: tuple[int, int] | None = None
) -> np.ndarray:
    """Rows (n, d) on the plane (n, 2); t-SNE starts from `start` or the principal components."""
    if how == "PCA" or len(z) < 8:
        return pca(z)
    first = pca(z) if start is None else start
    tsne = extra("openTSNE", "report", "A t-SNE map")
    first = first / (first[:, 0].std() or 1.0) * 1e-4
    drawn_together, free = STEPS if steps is None else steps
    if not first.std() > 0:  # all rows are one point
        return pca(z)
    return np.asarray(
        tsne.TSNE(
            perplexity=min(30, (len(z) - 1) / 3),
            initialization=first,
            negative_gradient_method="bh",
            early_exaggeration_iter=drawn_together,
            n_iter=free,
            n_jobs=torch.get_num_threads(),
            random_state=0,
        ).fit(z)
    )


def follow(frames: Sequence[np.ndarray], how: Layout) -> list[np.ndarray]:
    """Maps of the same rows over time. Each starts from the one after it, the last from its principal components, so
    that a cluster keeps its place and what moves is what training moved."""
    maps: list[np.ndarray] = []
    later = None
    for z in reversed(frames):
        flat = spread_out(z, how, later, STEPS_OF_A_FRAME)
        flat = flat if later is None else _turn(flat, later)
        maps.append(flat)
        later = flat
    return maps[::-1]


def _turn(points: np.ndarray, onto: np.ndarray) -> np.ndarray:
    """Turn and mirror `points` so that they lie as near as can be to `onto` (orthogonal Procrustes)."""
    a, b = points - points.mean(0), onto - onto.mean(0)
    u, _, v = np.linalg.svd(a.T @ b)
    return a @ u @ v
