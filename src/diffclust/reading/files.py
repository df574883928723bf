"""A user's data from a path or a name."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from .. import datasets
from .delimited import FITTING, Expected, decode
from .formats import READERS, Table, check_regular
from .frames import frame_of
from .images import image_places, is_image, read_images
from .labels import NoSuchLabel
from .texts import Words

__all__ = ["Table", "Words", "captions", "read"]

TEXT_FOLDER = ".txt"
SHEETS = (".xlsx", ".xls", ".xlsm", ".ods")  # of spreadsheets, which are not read


def read(
    path: str | Path,
    *,
    image_shape: tuple[int, ...] | None = None,
    image_bits: Literal[8, 16] | None = None,
    label: str | None = None,
    label_is_there: bool = True,
    expected: Expected = FITTING,
) -> Table:
    """Read a user's data.

    .npy            an array, memory-mapped
    .npz            X (or images, data), y (or labels, target); a single array is X; sparse as scipy saves it
    .csv, .tsv      the separator and the encoding are inferred; also .gz and .zst
    .parquet, .feather
    .jsonl          a JSON object per line, each name a column; also .gz and .zst
                    Tables are DataFrames if pandas is installed. The column `label`, or else one named label,
                    labels, y, target or class is y (but not "y" next to "x", fractions, or more than 50
                    different words in most of the rows); a first column without a name is an index,
                    not data; in y, None means a missing label
    a folder        images in sorted order, resized to the commonest size, grey if all are grey, or as given by
                    `image_shape` (channels, h, w); transparent pixels are laid on white; uint16 if every image has
                    more than 8 bits per pixel and one has values above 255, otherwise uint8, or as given by
                    `image_bits`; names of sub-folders are y
    a folder        of .txt files: a table with their text; names of sub-folders are y
    else            the name of a data set, as in `diffclust.datasets.load`

    `expected` is what a fitted model expects of the columns of a table.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        texts = text_places(path)
        return _read_texts(path, texts) if texts else Table(*read_images(path, image_shape, image_bits))
    if not path.exists():
        if str(path) in datasets.names():
            return Table(*datasets.load(str(path)))
        raise FileNotFoundError(datasets.not_there(str(path)))
    ending = next((ending for ending in sorted(READERS, key=len)[::-1] if path.name.lower().endswith(ending)), None)
    if ending is None:
        hint = " Save the sheet as .csv." if path.suffix.lower() in SHEETS else ""
        raise ValueError(
            f"{path}: unknown ending {path.suffix!r}. Known: {', '.join(READERS)}, and folders of images or .txt files."
            + hint
        )
    check_regular(path)
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty: 0 bytes.")
    if label is not None and label_is_there and ending in (".npy", ".npz"):
        raise ValueError(f"{path} has no columns with names: there is no {label!r} for the labels.")
    try:
        return READERS[ending](path, replace(expected, label=label))
    except NoSuchLabel:
        if label_is_there:
            raise
        return READERS[ending](path, expected)


def text_places(folder: Path) -> list[Path]:
    """The .txt files of a folder and its sub-folders, in sorted order; none if it has images."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return [] if any(map(is_image, found)) else [path for path in found if path.suffix.lower() == TEXT_FOLDER]


def _read_texts(folder: Path, places: list[Path]) -> Table:
    texts = np.empty(len(places), object)
    for i, place in enumerate(places):
        try:
            texts[i] = decode(place.read_bytes())
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from error
    inside = [place.relative_to(folder).parts for place in places]
    y = np.array([parts[0] for parts in inside]) if all(len(parts) > 1 for parts in inside) else None
    return Table(frame_of({"text": texts}), y)


def captions(path: str | Path) -> list[str] | None:
    """A caption for each row of `read(path)`: the files of a folder; None for other data."""
    path = Path(path).expanduser()
    if path.is_dir():
        texts = text_places(path)
        names = [text.relative_to(path).as_posix() for text in texts] or ["/".join(p) for p in image_places(path)]
        return [name.encode("utf-8", "backslashreplace").decode() for name in names]  # names may be in other encodings
    return None
