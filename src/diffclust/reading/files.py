"""A user's data from a path or a name."""

from pathlib import Path
from typing import Literal

from .. import datasets
from .formats import READERS, TEXT_ENDINGS, Table, Words, json_lines, read_texts
from .images import image_places, read_images

__all__ = ["Table", "Words", "captions", "read"]


def read(
    path: str | Path,
    *,
    image_shape: tuple[int, ...] | None = None,
    image_bits: Literal[8, 16] | None = None,
    words: Words | None = None,
) -> Table:
    """A user's data.

    .npy            an array, mapped and not loaded
    .npz            X (or images, data), y (or labels, target); one array alone is X; sparse as scipy saves it
    .csv, .parquet  numeric columns; one named label, labels, y, target or class is y ("y" beside "x" is not);
                    a DataFrame where pandas is installed; a first column without a name is an index, not data;
                    in y, None stands for a label that is missing
    .jsonl(.gz)     a JSON object a line with "text", perhaps "label": tf-idf of the 2000 commonest terms, or of
                    `words` as an earlier `read` gave them
    a folder        images, in sorted order, brought to the commonest size and grey if all are, or to
                    `image_shape` (channels, h, w) as an earlier fit saw them; what is transparent is laid on white;
                    uint16 where every image has more than 8 bits a pixel and one goes beyond 255, else uint8, or
                    `image_bits` as an earlier fit saw them; names of sub-folders are y
    else            the name of a data set, as in `diffclust.datasets.load`
    """
    path = Path(path).expanduser()
    if path.is_dir():
        return Table(*read_images(path, image_shape, image_bits))
    if not path.exists():
        if str(path) in datasets.names():
            return Table(*datasets.load(str(path)))
        raise FileNotFoundError(f"No file, folder or data set {str(path)!r}{datasets.suggestion(str(path))}")
    ending = next((ending for ending in (*READERS, *TEXT_ENDINGS) if path.name.lower().endswith(ending)), None)
    if ending is None:
        known = ", ".join((*READERS, *TEXT_ENDINGS))
        raise ValueError(f"{path}: unknown ending {path.suffix!r}. Known: {known}, and folders of images.")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty: 0 bytes.")
    return read_texts(path, words) if ending in TEXT_ENDINGS else READERS[ending](path)


def captions(path: str | Path) -> list[str] | None:
    """What to call each row of `read(path)`: the texts of .jsonl, the files of a folder of images; None for others."""
    path = Path(path).expanduser()
    if path.is_dir():
        return ["/".join(parts) for parts in image_places(path)]
    if path.name.lower().endswith(TEXT_ENDINGS) and path.exists():
        return [entry["text"] for _, entry in json_lines(path, text=str)]
    return None
