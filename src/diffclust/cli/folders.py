"""What stands beside a saved model in its folder: the words of texts, the record of training, where the data were."""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .errors import Wrong

if TYPE_CHECKING:
    from ..callbacks import TrainingRecord
    from ..reading.files import Words
    from ..saving.load import Saved

BLOCKS, BLOCK = 64, 1 << 16  # of a file that are looked at, to know it again
FILES = 256  # of a folder


def beside(data: str, words: "Words | None", record: "TrainingRecord") -> dict[str, bytes]:
    """What is saved together with a model."""
    from ..saving.folder import RECORD, SOURCE, WORDS

    files = {RECORD: record.to_bytes(), SOURCE: _source(data)}
    return files if words is None else {WORDS: words.to_json().encode(), **files}


def words_of(saved: "Saved") -> "Words | None":
    from ..reading.files import Words
    from ..saving.folder import WORDS

    blob = saved.file(WORDS)
    if blob is None:
        return None
    try:
        return Words.from_json(blob.decode())
    except (ValueError, RecursionError) as error:
        raise Wrong(f"{saved.folder / WORDS} is damaged: {error}") from error


def record_of(saved: "Saved") -> "TrainingRecord | None":
    from ..callbacks import TrainingRecord
    from ..saving.folder import RECORD

    blob = saved.file(RECORD)
    return None if blob is None else TrainingRecord.from_bytes(blob, saved.folder / RECORD)


def read_for(saved: "Saved", estimator: Any, data: str) -> Any:
    """DATA as the saved model wants it: images of its size and depth, texts in its words."""
    from ..reading.files import read

    known, sample = words_of(saved), estimator.shape_.row
    bits: Literal[8, 16] = 16 if estimator.image_divisor_ == 65535 else 8
    table = read(data, image_shape=sample if len(sample) == 3 else None, image_bits=bits, words=known)
    if known is None and table.words is not None:
        raise Wrong(f"{data} holds texts, but {saved.folder} was not fitted on a file of texts.")
    if known is not None and table.words is None:
        raise Wrong(f"{saved.folder} was fitted on texts: give it a .jsonl file, not {data}.")
    return table


def _source(data: str) -> bytes:
    place = Path(data).expanduser()
    named = {"data": data}
    if place.exists():
        named = {"data": str(place.resolve()), "fingerprint": fingerprint(place)}
    return json.dumps(named).encode()


def fingerprint(place: Path) -> str:
    """Of a file, or of a folder's files: their names, their sizes, and parts of what is in them."""
    digest = hashlib.sha256()
    files = [place]
    if place.is_dir():
        files = sorted(path for path in place.rglob("*") if path.is_file())
        digest.update("\n".join(f"{path.relative_to(place)} {path.stat().st_size}" for path in files).encode())
        files = files[:: max(1, len(files) // FILES)]
    for path in files:
        size = path.stat().st_size
        digest.update(f"{size}\n".encode())
        with path.open("rb") as file:
            for start in range(0, size, max(BLOCK, size // BLOCKS)):
                file.seek(start)
                digest.update(file.read(BLOCK))
    return digest.hexdigest()


def source_of(saved: "Saved", command: str) -> str:
    """Where the data were; `command` is the one that asks. A folder may be a stranger's, and name a file of yours that
    is not to be shown: what it names is read only where it knows what is in there."""
    from .. import datasets
    from ..saving.folder import SOURCE

    path, folder = saved.folder / SOURCE, saved.folder
    name_it = f"diffclust {command} {folder} DATA"
    blob = saved.file(SOURCE)
    if blob is None:
        raise Wrong(f"{folder} does not say which data it was fitted on: {name_it}")
    try:
        said = json.loads(blob)
        source, known = said["data"], said.get("fingerprint")
        place = Path(source)
        is_there = place.is_absolute() and place.exists()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Wrong(f"{path} is damaged ({error!r}): name the data, {name_it}") from error
    if not place.is_absolute():
        if source in datasets.names():
            return source
        raise Wrong(f"{folder} was fitted on {source!r}, which is not the name of a data set: {name_it}")
    if not is_there:
        raise FileNotFoundError(f"The data that {folder} was fitted on are no longer at {source}: {name_it}")
    if not (place.is_file() or place.is_dir()) or known is None or known != fingerprint(place):
        raise Wrong(
            f"{source} is not, or is no longer, what {folder} was fitted on: to read it all the same, {name_it}"
        )
    return source
