"""Images as one sheet, and a sheet as a PNG file, with nothing but numpy and zlib."""

import struct
import zlib
from pathlib import Path

import numpy as np

from ..engine.disk import atomic_write


def sheet(rows: list[np.ndarray], *, zoom: int, gap: int = 2) -> np.ndarray:
    """Lists of images (n_i, h, w[, c]) in [0, 1] -> one picture (H, W, 3) of 8-bit values, a row for each list."""
    h, w = rows[0].shape[1:3]
    widest = max(len(images) for images in rows)
    height, width = h * zoom + gap, w * zoom + gap
    canvas = np.full((len(rows) * height + gap, widest * width + gap, 3), 255, dtype=np.uint8)
    for i, images in enumerate(rows):
        for j, image in enumerate(images):
            colour = image if image.ndim == 3 and image.shape[2] == 3 else image.reshape(h, w, -1)[:, :, :1]
            pixels = (np.clip(colour, 0, 1) * 255).round().astype(np.uint8)
            top, left = gap + i * height, gap + j * width
            canvas[top : top + h * zoom, left : left + w * zoom] = pixels.repeat(zoom, 0).repeat(zoom, 1)
    return canvas


def png(picture: np.ndarray) -> bytes:
    """A picture (H, W) or (H, W, 1) in grey or (H, W, 3) in colour, of 8-bit values, as a PNG file."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    height, width = picture.shape[:2]
    colour = 2 if picture.ndim == 3 and picture.shape[2] == 3 else 0
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)  # 8 bits, no interlace
    lines = np.concatenate([np.zeros((height, 1), np.uint8), picture.reshape(height, -1)], axis=1)  # filter 0
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(lines.tobytes(), 9))
        + chunk(b"IEND", b"")
    )


def write_png(path: Path, picture: np.ndarray) -> None:
    with atomic_write(path) as part:
        part.write_bytes(png(picture))


def signed_colours(values: np.ndarray) -> np.ndarray:
    """Signed values (h, w[, c]) -> 8-bit colours: green for, red against, white for nothing. Channels are summed."""
    total = values.sum(2) if values.ndim == 3 else values
    share = total / (np.abs(total).max() or 1.0)
    full = np.where(share[..., None] >= 0, [26, 127, 90], [179, 64, 42])
    return (255 + np.abs(share)[..., None] * (full - 255)).round().astype(np.uint8)


def displayable(images: np.ndarray, low: float, high: float) -> np.ndarray:
    """Images (n, c, h, w) with values from `low` to `high` -> (n, h, w, 1 or 3) in [0, 1]."""
    shown = images if images.shape[1] == 3 else images[:, :1]
    return np.clip((shown.transpose(0, 2, 3, 1) - low) / ((high - low) or 1.0), 0, 1)


def cluster_sheet(images: np.ndarray, labels: np.ndarray, sureness: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """One row a cluster: its decoded centre, then its ten surest members."""
    rows = []
    for j, center in enumerate(centers):
        members = np.flatnonzero(labels == j)
        surest = members[np.argsort(-sureness[members], kind="stable")[:10]]
        blank = np.ones_like(center)
        rows.append(np.stack([center, blank, *images[surest]]))
    return sheet(rows, zoom=max(1, 48 // centers.shape[1]))
