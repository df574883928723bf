"""What the page shows of images: thumbnails, heat maps, decoded centres."""

from typing import Any

import numpy as np

from ..explain.pictures import displayable
from ..explain.rows import decoded_centers
from .material import Material
from .sprites import heat_sprite, sprite

# Bytes of the page that each kind of picture may take; together with texts and numbers they stay below 3 MB.
THUMBNAILS, HEAT, CENTERS = 1_100_000, 600_000, 300_000


def pictures(material: Material) -> dict[str, Any] | None:
    """Thumbnails of the sample, their heat maps, and the decoded centres; of rows that are no images, the thumbnails
    that were given with them, if any."""
    if material.thumbnails is not None:
        return {"thumbnails": sprite(given_pictures(material.thumbnails, material.rows), THUMBNAILS)}
    if material.kind != "image":
        return None
    samples = np.stack([e.sample for e in material.explanations])  # (n, c, h, w)
    low, high = value_range(samples)
    found: dict[str, Any] = {"thumbnails": sprite(displayable(samples, low, high), THUMBNAILS)}
    if material.explanations[0].attributions is not None:
        shape = material.explanations[0].shape
        heat = np.stack([e.attributions for e in material.explanations if e.attributions is not None])
        heat = heat if shape.layout == "grey" else heat.sum(1 if shape.layout == "channels-first" else 3)
        found["heat"] = heat_sprite(heat, HEAT)
    centers = decoded_centers(material.estimator)
    if centers is not None:
        found["centers"] = sprite(displayable(material.estimator._as_given(centers).numpy(), low, high), CENTERS)
    return found


def given_pictures(thumbnails: Any, rows: list[int]) -> np.ndarray:
    """Some of the user's thumbnails (n, h, w[, c]), of bytes or any numbers, as (n, h, w, c) in [0, 1]."""
    try:
        some = np.stack([np.asarray(thumbnails[i]) for i in rows])
    except ValueError as error:
        raise ValueError(f"thumbnails should be images of one size: {error}") from error
    some = some[..., None] if some.ndim == 3 else some
    if some.ndim != 4 or some.shape[3] not in (1, 3, 4) or some.dtype.kind not in "buif":
        raise ValueError(f"thumbnails should be images (n, h, w) or (n, h, w, c), not {some.shape} of {some.dtype}.")
    some = some[..., :3]  # without what is transparent
    low, high = (0.0, 255.0) if some.dtype == np.uint8 else value_range(some)
    return np.clip((some.astype(np.float64) - low) / ((high - low) or 1.0), 0, 1)


def value_range(samples: np.ndarray) -> tuple[float, float]:
    """What is black and what is white: 0 and 1 where the values fill that, as the networks judge it."""
    low, high = float(samples.min()), float(samples.max())
    return (0.0, 1.0) if low >= 0 and 0.5 <= high <= 1 else (low, high)
