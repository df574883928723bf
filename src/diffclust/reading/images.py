"""Folders of images."""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..extras import extra
from .unpacking import UnpacksTooLarge, check_unpacked

PIXEL_BYTES = 4  # bytes of a pixel in memory
MAX_SIDE = 128  # largest number of pixels per side: networks see smaller images, and photographs would need much memory
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff")


def is_image(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS


def image_places(folder: Path) -> list[tuple[str, ...]]:
    """The paths of the images in a folder, in the order in which they are read."""
    places = sorted(path.relative_to(folder).parts for path in folder.rglob("*") if is_image(path) and path.is_file())
    # macOS writes "._name.jpg" next to each image on disks of other formats
    places = [parts for parts in places if not any(part.startswith(".") for part in parts)]
    if not places:
        raise ValueError(f"{folder} holds no images ({', '.join(ENDINGS)}) and no texts (.txt).")
    return places


def read_images(
    folder: Path, shape: tuple[int, ...] | None, bits: int | None
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """The images, and the names of their sub-folders if all are in one. They are converted to `shape` (channels, h, w)
    and `bits` per pixel, or to the commonest ones, with at most `MAX_SIDE` pixels per side."""
    extra("PIL.Image", "data", "Reading images", package="Pillow")
    places = image_places(folder)
    paths = [folder.joinpath(*parts) for parts in places]
    if shape is None:
        (height, width), _ = Counter(map(_size, paths)).most_common(1)[0]
        reduction = max(1, max(height, width) / MAX_SIDE)
        height, width = max(1, round(height / reduction)), max(1, round(width / reduction))
    elif len(shape) == 3 and shape[0] in (1, 3):
        height, width = shape[1:]
    else:
        raise ValueError(f"{folder} holds images, but the model expects samples of shape {shape}.")
    mode = "L" if shape is not None and shape[0] == 1 else "RGB"
    packed = sum(path.stat().st_size for path in paths)
    check_unpacked(folder, packed, len(paths) * height * width * len(mode))
    pixels = [_pixels(path, height, width, mode) for path in paths]
    if bits is None:
        bits = 16 if all(x.dtype == np.uint16 for x in pixels) and max(x.max() for x in pixels) > 255 else 8
    X = np.stack([_in_bits(x, bits) for x in pixels])
    if shape is None and all((x == x[..., :1]).all() for x in X):
        X = np.ascontiguousarray(X[..., 0])
    in_folders = all(len(parts) > 1 for parts in places)
    return X, np.array([parts[0] for parts in places]) if in_folders else None


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from PIL import Image

    try:
        with Image.open(path) as image:
            check_unpacked(path, path.stat().st_size, PIXEL_BYTES * math.prod(image.size))
            yield image
    except UnpacksTooLarge:
        raise
    except Exception as error:  # each decoder of Pillow raises its own kinds
        raise ValueError(f"{path} cannot be read as an image ({error}).") from error


def _size(path: Path) -> tuple[int, int]:
    """(h, w) of the upright image: cameras note the rotation of a photograph in its file."""
    with _opened(path) as image:
        # other formats rarely have the note, and Pillow would decode a whole PNG to find it
        turned = image.format in ("JPEG", "MPO", "TIFF") and image.getexif().get(0x0112, 1) >= 5
        return image.size if turned else image.size[::-1]


def _pixels(path: Path, height: int, width: int, mode: str) -> NDArray[Any]:
    """(h, w, 3), or (h, w) with mode "L": uint8, or uint16 if the file has more bits per pixel."""
    from PIL import Image, ImageOps

    with _opened(path) as image:
        upright = ImageOps.exif_transpose(image)
        if upright.mode.startswith("I"):
            deep = np.asarray(upright)
            if deep.min() < 0 or deep.max() > 65535:
                raise ValueError(f"pixels from {deep.min()} to {deep.max()}, where 0 to 65535 can be read")
            upright = Image.fromarray(deep.astype(np.float32))  # float32 holds all values, and Pillow can resize it
            resized = np.asarray(upright.resize((width, height), Image.Resampling.BILINEAR))
            grey = resized.round().astype(np.uint16)
            return grey if mode == "L" else np.repeat(grey[..., None], 3, axis=2)
        if upright.mode == "F":
            raise ValueError("pixels in floating point")
        see_through = upright.has_transparency_data
        upright = upright.convert("RGBA")  # first, because Pillow warns about transparent palettes
        if see_through:
            upright = Image.alpha_composite(Image.new("RGBA", upright.size, "white"), upright)
        upright = upright.convert(mode)
        return np.asarray(upright.resize((width, height), Image.Resampling.BILINEAR))


def _in_bits(x: NDArray[Any], bits: int) -> NDArray[Any]:
    """An image with other bits per pixel, which does not depend on the other images. 8 to 16 bits: multiplied by 257.
    16 to 8 bits: the upper byte, or unchanged if no value exceeds 255."""
    if bits == 16:
        return x if x.dtype == np.uint16 else x.astype(np.uint16) * np.uint16(257)
    return (x if x.max() <= 255 else x >> 8).astype(np.uint8, copy=False)
