"""The page of a comparison: what `Comparison` found, with pictures or captions of the rows that moved."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .. import __version__
from ..explain.pictures import displayable
from ..explain.rows import decoded_centers
from . import page, page_at, write_page
from .pictures import CENTERS, THUMBNAILS, value_range
from .sprites import sprite

if TYPE_CHECKING:
    from .comparison import Comparison

CAPTION = 300  # characters of a row that moved
VALUES = 4  # columns of a row without a caption


def write_comparison(
    found: "Comparison", path: str | os.PathLike[str], *, captions: Sequence[str] | None, title: str | None
) -> Path:
    path, n = page_at(path), len(found.subject.data)
    if captions is not None and len(captions) != n:
        raise ValueError(f"captions has {len(captions)} entries for {n} rows.")
    rows = sorted({row for move in found.moves for row in move.rows})
    samples = samples_of(found, rows)
    images = samples.ndim == 4
    content = {
        **found.to_dict(),
        "title": title or f"{found.names[0]} and {found.names[1]}, compared",
        "version": __version__,
        "rows": rows,
        "captions": captions_of(found, captions, rows, samples),
        "pictures": pictures(found, samples) if images else None,
    }
    return write_page(path, page("compare", content))


def samples_of(found: "Comparison", rows: list[int]) -> np.ndarray:
    """The rows in the user's numbers: (n, f), or (n, c, h, w) of images."""
    data = found.subject.data
    taken = data.take(torch.tensor(rows, dtype=torch.long, device=data.device))
    return found.subject.estimator._as_given(taken).cpu().numpy()


def captions_of(found: "Comparison", captions: Sequence[str] | None, rows: list[int], samples: np.ndarray) -> list[str]:
    """What the rows are called: their texts, else the first of their values, behind a name; nothing for images."""
    values = values_of(found, samples)
    if captions is None:
        return values
    captions = list(captions)  # by position, also of a Series
    texts = [str(captions[row]) for row in rows]
    reading = getattr(found.subject.estimator, "columns_", None)
    if reading is not None and all(column.kind != "text" for column in reading.used):
        texts = [f"{text}: {each}" for text, each in zip(texts, values, strict=True)]
    return [text if len(text) <= CAPTION else text[: CAPTION - 1] + "…" for text in texts]


def values_of(found: "Comparison", samples: np.ndarray) -> list[str]:
    """The first columns of each row, as the table would write them."""
    reading = getattr(found.subject.estimator, "columns_", None)
    if reading is not None:
        columns = [(at, column.name) for at, column in enumerate(reading.used[:VALUES])]
        return [", ".join(f"{name} {reading.cell(sample, at)}" for at, name in columns) for sample in samples]
    names = (found.subject.feature_names or [])[:VALUES]
    return [", ".join(f"{name} {x:.4g}" for name, x in zip(names, sample, strict=False)) for sample in samples]


def pictures(found: "Comparison", samples: np.ndarray) -> dict[str, Any]:
    """Of images: the rows that moved, and the first model's decoded centres."""
    centers = decoded_centers(found.subject.estimator)
    kinds = {"rows": (samples, THUMBNAILS)}
    if centers is not None:
        kinds["centers"] = (found.subject.estimator._as_given(centers).numpy(), CENTERS)
    shown = {name: (images, budget) for name, (images, budget) in kinds.items() if len(images)}
    ranges = [value_range(images) for images, _ in shown.values()]
    low, high = min(ends[0] for ends in ranges), max(ends[1] for ends in ranges)
    return {name: sprite(displayable(images, low, high), budget) for name, (images, budget) in shown.items()}
