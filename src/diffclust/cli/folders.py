"""What the command saves next to a model: the record of training, and where the data are."""

import hashlib
import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from .errors import UsageError

if TYPE_CHECKING:
    from ..callbacks import TrainingRecord
    from ..reading.files import Words
    from ..saving.load import SavedModel

SAMPLES, SAMPLE_BYTES = 64, 1 << 16  # parts of a file that its fingerprint is computed from, and their size
MAX_FILES = 256  # files of a folder that its fingerprint is computed from


class Source(NamedTuple):
    """Where rows come from: DATA, its column of labels, and a file with embeddings of its rows."""

    data: str
    label: str | None = None
    embeddings: str | None = None


class ReadData(NamedTuple):
    """Rows, and what they are shown as: of embeddings, the table, texts or images that were embedded."""

    X: Any
    y: Any
    shown: Any
    label: str | None = None  # the column that y comes from


def beside(source: Source, record: "TrainingRecord") -> dict[str, bytes]:
    """The files that are saved together with a model."""
    from ..saving.folder import RECORD, SOURCE

    return {RECORD: record.to_bytes(), SOURCE: _source_json(source)}


def read_source(source: Source, *, features: Collection[str] = (), **as_fitted: Any) -> ReadData:
    """Read X and y; with embeddings, these are X. Columns in `features` are never taken as labels."""
    from ..reading.delimited import Expected
    from ..reading.files import read

    label_is_there = not as_fitted
    as_fitted.setdefault("expected", Expected(features=frozenset(features), frames=True))
    X, y, label = read(source.data, label=source.label, label_is_there=label_is_there, **as_fitted)
    if source.embeddings is None:
        return ReadData(X, y, X, label)
    rows = read(source.embeddings).X
    if len(rows) != X.shape[0]:
        raise UsageError(f"{source.embeddings} has {len(rows)} rows, but {source.data} has {X.shape[0]}.")
    return ReadData(rows, y, X, label)


def words_of(saved: "SavedModel") -> "Words | None":
    from ..reading.files import Words
    from ..saving.folder import WORDS

    blob = saved.file(WORDS)
    if blob is None:
        return None
    try:
        return Words.from_json(blob.decode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{saved.folder / WORDS} is damaged: {error}") from error


def record_of(saved: "SavedModel") -> "TrainingRecord | None":
    from ..callbacks import TrainingRecord
    from ..saving.folder import RECORD

    blob = saved.file(RECORD)
    return None if blob is None else TrainingRecord.from_bytes(blob, saved.folder / RECORD)


def read_for(saved: "SavedModel", estimator: Any, source: Source) -> ReadData:
    """Read DATA for the saved model: images in its size and depth, a table if it was fitted on one."""
    from ..reading.delimited import Expected
    from ..reading.frames import is_frame
    from ..reading.large_tables import TextTable

    sample, reading = estimator.shape_.row, getattr(estimator, "columns_", None)
    bits: Literal[8, 16] = 16 if estimator.image_divisor_ == 65535 else 8
    shape = sample if len(sample) == 3 else None
    read = read_source(source, image_shape=shape, image_bits=bits, expected=Expected.by(estimator))
    words = words_of(saved)
    if words is not None:  # models of older versions have a file of their words
        if not is_frame(read.X) or "text" not in list(read.X.columns):
            raise UsageError(f"{saved.folder} was fitted on texts: give it a .jsonl file, not {source.data}.")
        return read._replace(X=words.transform([text or "" for text in read.X["text"]]))
    is_table = is_frame(read.X) or isinstance(read.X, TextTable)
    if reading is not None and not is_table and source.embeddings is None and not reading.takes(read.X):
        kind = "texts" if reading.is_text else "a table"
        raise UsageError(
            f"{saved.folder} was fitted on {kind}: give it a file with the columns {_some(reading.names)}."
        )
    return read


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def captions_of(estimator: Any, source: Source, shown: Any) -> list[str] | None:
    """The caption of each row: its file, its text, or the cells that tell it from other rows."""
    from ..reading.files import captions
    from ..reading.frames import is_frame
    from ..reading.tables import Columns

    called = captions(source.data)
    if called is not None and source.embeddings is None and not is_frame(shown):
        return called
    reading = getattr(estimator, "columns_", None)
    if reading is None and is_frame(shown) and source.embeddings is not None:
        reading = Columns.fit(shown)
    return called if reading is None else reading.captions(shown) or called


def _source_json(source: Source) -> bytes:
    named = {"label": source.label, **_known("data", source.data)}
    if source.embeddings is not None:
        named |= _known("embeddings", source.embeddings)
    return json.dumps({name: value for name, value in named.items() if value is not None}).encode()


def _known(name: str, data: str) -> dict[str, str]:
    """The path and the fingerprint of a file."""
    place, sign = Path(data).expanduser(), "fingerprint" if name == "data" else f"{name}_fingerprint"
    return {name: str(place.resolve()), sign: fingerprint(place)} if place.exists() else {name: data}


def fingerprint(place: Path) -> str:
    """A hash of a file, or of the names, sizes and parts of the contents of the files in a folder."""
    digest = hashlib.sha256()
    files = [place]
    if place.is_dir():
        files = sorted(path for path in place.rglob("*") if path.is_file())
        listed = "\n".join(f"{path.relative_to(place)} {path.stat().st_size}" for path in files)
        digest.update(listed.encode("utf-8", "surrogateescape"))  # names may be in any encoding
        files = files[:: max(1, len(files) // MAX_FILES)]
    for path in files:
        size = path.stat().st_size
        digest.update(f"{size}\n".encode())
        with path.open("rb") as file:
            for start in range(0, size, max(SAMPLE_BYTES, size // SAMPLES)):
                file.seek(start)
                digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


def source_of(saved: "SavedModel", command: str, data: str | None = None, embeddings: Path | None = None) -> Source:
    """Where the data of the fit are, or `data` if given; `command` is named in messages. A folder from a stranger could
    name a private file of the user, so a file is read only if the folder has its fingerprint."""
    from ..saving.folder import SOURCE

    path, folder = saved.folder / SOURCE, saved.folder
    name_it = f"diffclust {command} {folder} DATA"
    own = None if embeddings is None else str(embeddings)
    try:
        said = _said(saved)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if data is not None:
            return Source(data, None, own)
        raise UsageError(f"{path} is damaged ({error!r}): name the data, {name_it}") from error
    if said is None:
        if data is not None:
            return Source(data, None, own)
        raise UsageError(f"{folder} does not say which data it was fitted on: {name_it}")
    if data is not None:
        if said.embeddings is not None and own is None:
            raise UsageError(f"{folder} was fitted on embeddings: give --embeddings for {data}, too.")
        return Source(data, said.label, own)
    signs = json.loads(saved.file(SOURCE) or b"{}")
    _check_known(said.data, signs.get("fingerprint"), folder, name_it)
    if said.embeddings is not None:
        _check_known(said.embeddings, signs.get("embeddings_fingerprint"), folder, name_it)
    return said


def _said(saved: "SavedModel") -> Source | None:
    """The source that the folder names, without checking its fingerprint; None if it names none."""
    from ..saving.folder import SOURCE

    blob = saved.file(SOURCE)
    if blob is None:
        return None
    said = json.loads(blob)
    source = Source(said["data"], said.get("label"), said.get("embeddings"))
    if not isinstance(source.data, str) or not all(isinstance(entry, str | None) for entry in source):
        raise TypeError("it should hold strings")
    _ = Path(source.data).exists(), Path(source.embeddings or "").exists()  # raises for names that no file can have
    return source


def _check_known(source: str, known: Any, folder: Path, name_it: str) -> None:
    from .. import datasets

    place = Path(source)
    if not place.is_absolute():
        if source in datasets.names():
            return
        raise UsageError(f"{folder} was fitted on {source!r}, which is not the name of a data set: {name_it}")
    if not place.exists():
        raise FileNotFoundError(f"The data that {folder} was fitted on are no longer at {source}: {name_it}")
    if not (place.is_file() or place.is_dir()) or known is None or known != fingerprint(place):
        raise UsageError(
            f"{source} is not, or is no longer, what {folder} was fitted on: to read it all the same, {name_it}"
        )
