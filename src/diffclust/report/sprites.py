"""Many small images in one PNG: what the page draws its thumbnails from."""

import base64
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from ..explain.pictures import png

LEVELS = 15  # of a heat map, each way: what the eye can tell, and it packs well


def sprite(images: np.ndarray, budget: int, most: int = 48) -> dict[str, Any]:
    """Images (n, h, w, c) in [0, 1] -> one PNG as base64 of at most `budget` bytes, made smaller until it fits."""
    side = min(most, max(images.shape[1:3]))
    while True:
        small = _shrink(images, side)
        packed = _pack((small * 255).round().astype(np.uint8))
        if len(packed["png"]) <= budget or side <= 4:
            return packed
        side = max(4, int(side * 0.8))


def heat_sprite(values: np.ndarray, budget: int, most: int = 28) -> dict[str, Any]:
    """Signed values (n, h, w) -> grey levels around 128, each map by its own largest value."""
    side = min(most, max(values.shape[1:3]))
    while True:
        small = _shrink(values[..., None], side)
        peak = np.abs(small).max(axis=(1, 2, 3), keepdims=True)
        steps = np.round(small / np.where(peak > 0, peak, 1) * LEVELS)
        packed = _pack((128 + steps * (127 // LEVELS)).astype(np.uint8))
        if len(packed["png"]) <= budget or side <= 4:
            return packed
        side = max(4, int(side * 0.8))


def _shrink(images: np.ndarray, side: int) -> np.ndarray:
    """So that the longer side has at most `side` pixels, by means over areas."""
    h, w = images.shape[1:3]
    if max(h, w) <= side:
        return images
    size = (max(1, round(h * side / max(h, w))), max(1, round(w * side / max(h, w))))
    x = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2), dtype=np.float32))
    return F.interpolate(x, size=size, mode="area").numpy().transpose(0, 2, 3, 1)


def _pack(images: np.ndarray) -> dict[str, Any]:
    """8-bit images (n, h, w, c), row by row on one sheet."""
    n, h, w, c = images.shape
    columns = max(1, int(np.ceil(np.sqrt(n * h / w))))
    lines = -(-n // columns)
    sheet = np.zeros((lines * columns, h, w, c), np.uint8)
    sheet[:n] = images
    sheet = sheet.reshape(lines, columns, h, w, c).swapaxes(1, 2).reshape(lines * h, columns * w, c)
    return {"png": base64.b64encode(png(sheet)).decode(), "w": w, "h": h, "columns": columns, "n": n}
