"""What stands beside a saved model in its folder: the words of texts, the record of training, where the data were."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .errors import Wrong

if TYPE_CHECKING:
    from ..reading.files import Words

WORDS = "words.json"
RECORD = "record.safetensors"
SOURCE = "source.json"


def save_words(folder: Path, words: "Words | None") -> None:
    if words is None:
        (folder / WORDS).unlink(missing_ok=True)  # of an earlier model in the same folder
    else:
        (folder / WORDS).write_text(words.to_json(), encoding="utf-8")


def load_words(folder: Path) -> "Words | None":
    from ..reading.files import Words

    path = folder / WORDS
    if not path.exists():
        return None
    try:
        return Words.from_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Wrong(f"{path} is damaged: {error}") from error


def read_for(folder: Path, estimator: Any, data: str) -> Any:
    """DATA as the model in `folder` wants it: images of its size and depth, texts in its words."""
    from ..reading.files import read

    known, sample = load_words(folder), estimator.shape_.row
    bits: Literal[8, 16] = 16 if estimator.image_divisor_ == 65535 else 8
    table = read(data, image_shape=sample if len(sample) == 3 else None, image_bits=bits, words=known)
    if known is None and table.words is not None:
        raise Wrong(f"{data} holds texts, but {folder} was not fitted on a file of texts.")
    if known is not None and table.words is None:
        raise Wrong(f"{folder} was fitted on texts: give it a .jsonl file, not {data}.")
    return table


def save_source(folder: Path, data: str) -> None:
    place = Path(data).expanduser()
    named = {"data": str(place.resolve()) if place.exists() else data}
    (folder / SOURCE).write_text(json.dumps(named), encoding="utf-8")


def load_source(folder: Path, command: str) -> str:
    """Where the data were; `command` is the one that asks."""
    path = folder / SOURCE
    if not path.exists():
        raise Wrong(f"{folder} does not say which data it was fitted on: diffclust {command} {folder} DATA")
    try:
        source = str(json.loads(path.read_text(encoding="utf-8"))["data"])
    except (ValueError, KeyError, TypeError) as error:
        raise Wrong(f"{path} is damaged ({error!r}): name the data, diffclust {command} {folder} DATA") from error
    if Path(source).is_absolute() and not Path(source).exists():
        raise FileNotFoundError(
            f"The data that {folder} was fitted on are no longer at {source}: diffclust {command} {folder} DATA"
        )
    return source
