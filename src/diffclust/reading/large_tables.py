"""A .csv or .tsv that is larger than memory: it is read in parts and converted to a temporary file of numbers.

The first pass checks every line and keeps some evenly spaced rows, from which the kinds of the columns are inferred.
The second pass converts each part to rows, in an unnamed temporary file (in $TMPDIR) that is memory-mapped. Only a part
and the sample are in memory as text.
"""

import codecs
import csv
import gzip
import io
import tempfile
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ..extras import extra
from .delimited import (
    FITTING,
    HEAD,
    Expected,
    features_of,
    separator_of,
    stacked,
    stripped,
    table_lines,
    typed,
    typed_frame,
)
from .frames import Frame
from .labels import NoSuchLabel

if TYPE_CHECKING:
    from ..engine.rows import Rows

PART_CELLS = 2**20  # cells of a part: about 100 MB as words
SAMPLE_CELLS = 2**22  # cells of the sample of rows
READ_BYTES = 2**20  # bytes read at a time
LARGE_FILE = 2**28  # largest file in bytes that the command reads whole; as words it takes ten times as much memory
COMPRESSION = 5  # a compressed file becomes about this many times larger

Encode = Callable[[Any], np.ndarray | sp.csr_matrix]


def is_large(path: Path) -> bool:
    """Whether a .csv or .tsv, perhaps compressed, is too large to be read whole."""
    packed = COMPRESSION if path.suffix.lower() in (".gz", ".zst") else 1
    return packed * path.stat().st_size > LARGE_FILE


class TextTable:
    """A table in a file after the first pass: `shape`, the column of labels, and a sample of rows.

    Args:
        path: a .csv or .tsv, perhaps .gz or .zst.
        expected: what is known about its columns, such as that of the labels.
    """

    def __init__(self, path: Path, expected: Expected = FITTING) -> None:
        self.path = path
        if not path.is_file():
            raise FileNotFoundError(f"No such file: {path}")
        with self._named():
            self.encoding = self._detect_encoding()
            self.separator = "\t" if ".tsv" in path.suffixes else self._detect_separator()
            with self._text() as text:
                start, self.width, lines = table_lines(text, self.separator)
                head = list(islice(lines, HEAD))
                self.names, self.features, self.place = features_of(start, stacked(head, self.width), expected)
                self._scan(chain(head, lines), expected if start is not None else Expected.by(None))

    @property
    def label(self) -> str | None:
        """The name of the column of labels."""
        return None if self.place is None else self.names[self.place]

    def _scan(self, lines: Iterator[list[str]], expected: Expected) -> None:
        """Count rows, and keep the labels and every `step`-th row; `step` is doubled when these become too many."""
        most, step, kept, n = max(2, SAMPLE_CELLS // self.width), 1, list[list[str]](), 0
        self.classes: dict[str, int] = {}
        self.codes = array("L")  # codes of the labels
        for n, line in enumerate(lines, 1):
            if (n - 1) % step == 0:
                kept.append(line)
                if len(kept) > most:
                    kept, step = kept[::2], 2 * step
            if self.place is not None:
                self.codes.append(self.classes.setdefault(line[self.place], len(self.classes)))
        cells = stacked(kept, self.width)
        self.shape = (n, len(self.features))
        self.sample = typed_frame({name: cells[:, i] for name, i in self._places()}, self.separator, expected)

    @cached_property
    def labels(self) -> list[str] | None:
        """The labels as they are written; equal words are the same object."""
        words = list(self.classes)
        return None if self.place is None else [words[code] for code in self.codes]

    # ---- the file

    @contextmanager
    def _named(self) -> Iterator[None]:
        """A context in which every error names the file."""
        try:
            yield
        except NoSuchLabel as error:
            raise NoSuchLabel(f"{self.path}: {error}") from error
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{self.path} is not a complete gzip file ({error}).") from error
        except (ValueError, csv.Error) as error:
            raise ValueError(f"{self.path}: {error}") from error

    @contextmanager
    def _bytes(self) -> Iterator[IO[bytes]]:
        ending = self.path.suffix.lower()
        if ending == ".zst":
            arrow = extra("pyarrow", "data", "Reading a .zst file")
            with arrow.input_stream(str(self.path), compression="zstd") as stream:
                yield stream
            return
        with gzip.open(self.path) if ending == ".gz" else self.path.open("rb") as file:
            yield file  # type: ignore[misc]

    @contextmanager
    def _text(self) -> Iterator[io.TextIOWrapper]:
        with self._bytes() as raw, io.TextIOWrapper(raw, self.encoding, newline="") as text:
            yield text

    def _detect_encoding(self) -> str:
        """The first encoding in which the whole file can be read, as for smaller files."""
        with self._bytes() as raw:
            mark = raw.read(2)
        marked = mark in (b"\xff\xfe", b"\xfe\xff")
        for encoding in ("utf-16",) if marked else ("utf-8-sig", "cp1252"):
            decoder = codecs.getincrementaldecoder(encoding)()
            try:
                with self._bytes() as raw:
                    while block := raw.read(READ_BYTES):
                        if not marked and b"\0" in block:
                            raise ValueError("it is not text: it contains zero bytes.")
                        decoder.decode(block)
                decoder.decode(b"", final=True)
            except UnicodeDecodeError as error:
                if marked:
                    raise ValueError(f"it starts like {encoding}, but is not ({error}).") from error
                continue
            return encoding
        return "latin-1"

    def _detect_separator(self) -> str:
        with self._text() as text:
            return separator_of(text.read(READ_BYTES + 1))

    # ---- its rows

    def parts(self) -> Iterator[Frame]:
        """Consecutive parts of the rows, with the feature columns, in the types of the sample."""
        numeric = {name for name in self.sample.columns if np.asarray(self.sample[name]).dtype.kind == "f"}
        with self._named(), self._text() as text:
            lines = table_lines(text, self.separator)[2]
            while some := list(islice(lines, max(1, PART_CELLS // self.width))):
                cells = stacked(some, self.width)
                yield Frame({name: _as_before(cells[:, i], name in numeric) for name, i in self._places()})

    def _places(self) -> Iterator[tuple[str, int]]:
        return ((self.names[i], i) for i in self.features)

    def __getitem__(self, rows: Sequence[int]) -> Frame:
        """Rows by their numbers."""
        wanted, found, done = set(rows), dict[int, Frame](), 0
        for part in self.parts():
            here = [row for row in wanted if done <= row < done + len(part)]
            found |= {row: part[[row - done]] for row in here}
            done += len(part)
            if len(found) == len(wanted):
                break
        return Frame({name: np.concatenate([found[row][name] for row in rows]) for name in found[rows[0]].columns})

    def encoded(self, encode: Encode) -> "Rows":
        """All rows as numbers, in a temporary file that exists as long as the result."""
        from ..engine.rows import ArrayRows, SparseRows  # imports torch, which reading a file does not need

        with tempfile.TemporaryFile() as values, tempfile.TemporaryFile() as places:
            ends, done, width = [np.zeros(1, np.int64)], 0, 0
            for part in self.parts():
                try:
                    rows: Any = encode(part)
                except ValueError as error:
                    raise ValueError(f"{self.path}, in the rows from {done} on: {error}") from error
                width, done = rows.shape[1], done + len(part)
                if sp.issparse(rows):
                    values.write(rows.data.astype(np.float32).tobytes())
                    places.write(rows.indices.astype(np.int64).tobytes())
                    ends.append(rows.indptr[1:] + ends[-1][-1])
                else:
                    values.write(np.asarray(rows, np.float64).tobytes())
            if len(ends) == 1:
                return ArrayRows(_mapped(values, np.float64).reshape(done, width), (width,), lambda x: x)
            stored = _mapped(values, np.float32), _mapped(places, np.int64), np.concatenate(ends)
            return SparseRows(sp.csr_matrix(stored, shape=(done, width), copy=False))


def _mapped(file: IO[bytes], kind: type) -> np.ndarray:
    file.flush()
    return np.memmap(file, kind, mode="r") if file.tell() else np.zeros(0, kind)


def _as_before(words: np.ndarray, numeric: bool) -> np.ndarray:
    """Numbers if the sample had numbers and these cells are numbers too."""
    return typed(words) if numeric else stripped(words)
