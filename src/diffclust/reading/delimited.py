"""Tables as text: cells separated by commas, semicolons, tabs or bars, in any common encoding."""

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from ..extras import extra
from .cells import BLANK, NUMBERS, groups_thousands, is_code, is_year, may_be_thousands, written_as_numbers
from .frames import columns_of, frame_of, names_of_columns, with_decimal_sign
from .labels import NoSuchLabel, label_column, may_be_labels
from .unpacking import check_unpacked, unpack_limit

SEPARATORS = ("\t", ";", "|", ",")
LOOK = 50  # number of lines from which the separator is inferred
NUMBERED = "column {}"  # name of a column without a name
HEAD = 1000  # number of lines from which the decimal sign is inferred
COMPRESSED = (".gz", ".zst")


@dataclass(frozen=True)
class Expected:
    """What is known about the columns of a file before it is read.

    Args:
        label: the column of labels.
        words: columns that a fitted model reads as words although they may look like numbers, such as "007", or "1.234"
            for 1234; None while a model is fitted.
        features: columns that are never labels, whatever their names.
        frames: whether columns of numbers with names are a table even without pandas, instead of an array.
    """

    label: str | None = None
    words: frozenset[str] | None = None
    features: frozenset[str] = frozenset()
    frames: bool = False

    @classmethod
    def by(cls, fitted: Any) -> "Expected":
        """What a fitted estimator expects of new rows."""
        reading = getattr(fitted, "columns_", None)
        if reading is None:
            return cls(words=frozenset(), features=frozenset(getattr(fitted, "feature_names_in_", ())))
        return cls(words=frozenset(reading.kept_as_words), features=frozenset(reading.names), frames=True)

    def label_among(self, names: Sequence[str], cells: Callable[[int], Iterable[Any]]) -> int | None:
        """The position of the labels. While a model is fitted, the name alone is not enough if the cells are no
        labels."""

        def may_be(place: int) -> bool:
            return names[place] not in self.features and (self.words is not None or may_be_labels(cells(place)))

        return label_column(names, self.label, may_be)


FITTING = Expected()


def read_bytes(path: Path) -> bytes:
    """The bytes of a file, perhaps .gz or .zst; raises if it unpacks to more than allowed."""
    ending, packed = path.suffix.lower(), path.stat().st_size
    most = unpack_limit(packed) + 1
    if ending == ".gz":
        try:
            with gzip.open(path) as stream:
                raw = stream.read(most)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path} is not a complete gzip file ({error}).") from error
    elif ending == ".zst":
        arrow = extra("pyarrow", "data", "Reading a .zst file")
        try:
            with arrow.input_stream(str(path), compression="zstd") as stream:
                raw = stream.read(most)
        except OSError as error:
            raise ValueError(f"{path} is not a complete zstd file ({error}).") from error
    else:
        return path.read_bytes()
    check_unpacked(path, packed, len(raw))
    return raw


def decode(raw: bytes) -> str:
    """Decode UTF-8 with or without a byte order mark, UTF-16 with one, or else Windows-1252."""
    for mark, encoding in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if raw.startswith(mark):
            try:
                return raw.decode(encoding)
            except UnicodeDecodeError as error:
                raise ValueError(f"it starts like {encoding}, but is not ({error}).") from error
    if b"\0" in raw:
        raise ValueError("it is not text: it contains zero bytes.")
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            continue
    return raw.decode("latin-1")


def read_delimited(path: Path, expected: Expected = FITTING) -> tuple[Any, list[str] | None, str | None]:
    """X, labels as they are written, and the name of their column. X is a frame, or an array if the columns have no
    names and are all numbers."""
    try:
        return _read(path, expected)
    except (ValueError, csv.Error) as error:
        text = str(error)
        kind = NoSuchLabel if isinstance(error, NoSuchLabel) else ValueError
        raise kind(text if text.startswith(str(path)) else f"{path}: {text}") from error


def columns_as_written(path: Path, names: list[str]) -> dict[str, list[Any]]:
    """Columns of a file that was read before, as they are written: "007" stays "007"."""
    start, table, _ = _cells_of_file(path)
    known = start or _numbered(table.shape[1])
    return {name: _as_written(table[:, known.index(name)].tolist()) for name in names}


def _as_written(words: list[str]) -> list[Any]:
    """The numbers, if printing them gives the words again; otherwise the words."""
    words = [word.strip() for word in words]
    for kind in (int, float):
        try:
            values = [kind(word) for word in words]
        except ValueError:
            continue
        if [str(value) for value in values] == words:
            return values
    return words


def _cells_of_file(path: Path) -> tuple[list[str] | None, np.ndarray, str]:
    """Names, if the file has some, all cells as words, and the separator."""
    text = decode(read_bytes(path))
    separator = "\t" if ".tsv" in path.suffixes else separator_of(text)
    start, width, lines = table_lines(io.StringIO(text, newline=""), separator)
    return start, stacked(list(lines), width), separator


def _read(path: Path, expected: Expected) -> tuple[Any, list[str] | None, str | None]:
    start, table, separator = _cells_of_file(path)
    names, features, place = features_of(start, table, expected)
    named = start is not None
    X = typed_frame({names[i]: table[:, i] for i in features}, separator, expected if named else Expected.by(None))
    labels = None if place is None else [str(cell) for cell in table[:, place]]
    columns = columns_of(X, names_of_columns(X))
    numeric = all(np.asarray(column).dtype.kind == "f" for column in columns.values())
    if numeric and not (named and (expected.frames or hasattr(X, "iloc"))):
        X = np.stack(list(columns.values()), axis=1)
    return X, labels, None if place is None else names[place]


def typed_frame(cells: dict[str, np.ndarray], separator: str, expected: Expected) -> Any:
    """Words as a frame: a column is numbers if all its words are and contain nothing more."""
    sign = decimal_sign(cells.values(), separator)
    if expected.words is not None:
        kept = expected.words
    else:
        kept = frozenset(name for name, words in cells.items() if _says_more(words, sign))
    return with_decimal_sign(
        frame_of({name: stripped(words) if name in kept else typed(words) for name, words in cells.items()}), sign
    )


def decimal_sign(columns: Iterable[np.ndarray], separator: str) -> str | None:
    """The decimal sign that some column shows without doubt; if none does, a comma if semicolons separate cells."""
    heads = [written_as_numbers(words[:HEAD]) for words in columns]
    for sign, style in ((".", "1234.5"), (",", "1234,5")):
        for words in heads:
            is_one = any(sign in word for word in words) and all(map(NUMBERS[style][0].fullmatch, words))
            if is_one and not groups_thousands(words, sign):
                return sign
    return "," if separator == ";" else None


def _says_more(words: np.ndarray, decimal: str | None) -> bool:
    """Whether these words contain more than their floats: 1.234 may be 1234, and 007 is not 7."""
    parts = (words[:HEAD], words)
    if any(word[:1] == "0" for word in words) and all(map(is_code, parts)):
        return True
    return decimal != "." and all(may_be_thousands(written_as_numbers(part), ".", decimal) for part in parts)


def _numbered(width: int) -> list[str]:
    return [NUMBERED.format(i + 1) for i in range(width)]


def stripped(words: np.ndarray) -> np.ndarray:
    return np.array([word.strip() for word in words], object)


def features_of(
    names: list[str] | None, cells: np.ndarray, expected: Expected
) -> tuple[list[str], list[int], int | None]:
    """Names of all columns, the positions of the features, and that of the labels, inferred from some cells."""
    named = names is not None
    names = names or _numbered(cells.shape[1])
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"there is more than one column named {', '.join(map(repr, twice))}: rename them.")
    by_name = named or expected.label is not None
    place = expected.label_among(names, lambda i: cells[:, i]) if by_name else None
    others = [place] + ([0] if names[0] == "" else [])  # a first column without a name is row numbers
    features = [i for i in range(len(names)) if i not in others]
    if not features:
        raise ValueError("there are no columns besides the labels.")
    return names, features, place


def typed(words: np.ndarray) -> np.ndarray:
    """Numbers if all cells are numbers in Python's syntax; otherwise the words."""
    try:
        return words.astype(np.float64)
    except ValueError:
        pass
    pattern, plain = NUMBERS["1234.5"][0], stripped(words)
    blank = np.array([word.casefold() in BLANK for word in plain])
    if blank.all() or not all(pattern.fullmatch(word) for word in plain[~blank]):
        return plain
    found = np.full(len(plain), np.nan)
    found[~blank] = plain[~blank].astype(np.float64)
    return found


def separator_of(text: str) -> str:
    """The separator with which all of the first lines have the same number of cells, more than one; otherwise a
    comma."""
    start = text[: 2**20]
    counts = {}
    for separator in SEPARATORS:
        try:
            lines = islice(filter(None, csv.reader(io.StringIO(start, newline=""), delimiter=separator)), LOOK)
            counts[separator] = [len(line) for line in lines]
        except csv.Error:
            continue
    for separator, widths in counts.items():
        whole = widths if len(start) == len(text) or len(widths) == LOOK else widths[:-1]
        if whole and min(whole) == max(whole) > 1:
            return separator
    first = {separator: widths[0] for separator, widths in counts.items() if widths}
    return max(first, key=lambda separator: (first[separator], separator == ","), default=",")


def table_lines(file: TextIO, separator: str) -> tuple[list[str] | None, int, Iterator[list[str]]]:
    """Names, if the first line has some; the number of cells per line; and the lines, which all have that number."""
    reader = csv.reader(file, delimiter=separator)
    first = next((line for line in reader if any(line)), [])
    start = [cell.strip() for cell in first]
    numbered = ((reader.line_num, line) for line in reader)
    seen = list(islice(numbered, LOOK)) if _are_years(start) else []
    named = bool(start) and (
        _is_header(start) or (_are_years(start) and _stand_above_others(start, [line for _, line in seen]))
    )
    width = len(start)

    def lines() -> Iterator[list[str]]:
        if not named and any(start):
            yield first
        for number, line in chain(seen, numbered):
            if len(line) == width and (width > 1 or line[0].strip()):
                yield line
            elif line and not (len(line) == 1 and not line[0].strip()):
                raise ValueError(f"line {number} has {_cells(len(line))}, the first has {_cells(width)}.")

    return start if named else None, width, lines()


def stacked(lines: list[list[str]], width: int) -> np.ndarray:
    """The cells as words, (n, d)."""
    if not lines:
        raise ValueError("it is empty: 0 rows.")
    table = np.empty((len(lines), width), object)
    table[:] = lines
    return table


def _cells(n: int) -> str:
    return f"{n} cell{'' if n == 1 else 's'}"


def _is_header(cells: list[str]) -> bool:
    """Whether this line is names: it has words, or counts 0, 1, 2 as pandas does by default."""
    counted = [str(i) for i in range(len(cells))]
    return any(map(_is_word, cells)) or (len(cells) > 2 and cells in (counted, ["", *counted[:-1]]))


def _are_years(cells: list[str]) -> bool:
    """Whether these may be names of columns, one per year: years in order, perhaps after a blank above row names."""
    years = cells[1:] if cells[:1] == [""] else cells
    if len(years) < 2 or not all(cell.isdecimal() and len(cell) == 4 and is_year(float(cell)) for cell in years):
        return False
    return years in (sorted(set(years)), sorted(set(years), reverse=True))


def _stand_above_others(years: list[str], lines: list[list[str]]) -> bool:
    """Whether no column below these years is mostly years, too."""
    columns = list(zip(*(line for line in lines if len(line) == len(years)), strict=True))
    if not columns:
        return False
    return not any(_are_mostly_years(column) for year, column in zip(years, columns, strict=True) if year)


def _are_mostly_years(cells: Iterable[str]) -> bool:
    there = [word for cell in cells if (word := cell.strip()).casefold() not in BLANK]
    alike = sum(not _is_word(word) and is_year(float(word)) for word in there)
    return 2 * alike > len(there)


def _is_word(cell: str) -> bool:
    try:
        float(cell or 0)
    except ValueError:
        return True
    return False
