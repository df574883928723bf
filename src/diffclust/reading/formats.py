"""Users' files: `read("table.csv")` gives X, y if the file has labels, and for texts the words they were read with.

Nothing here ever unpickles a file.
"""

import csv
import gzip
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..extras import extra
from ..metrics import is_labelled

if TYPE_CHECKING:
    from .sources import ParquetRows

Arrays = dict[str, NDArray[Any]]

X_NAMES = ("X", "images", "data")
Y_NAMES = ("y", "labels", "target")
LABEL_COLUMNS = ("label", "labels", "y", "target", "class")
TERMS = 2000  # columns a text has, as in the papers


@dataclass(frozen=True)
class Words:
    """How texts become rows: counts of terms, times their weights, brought to length one (tf-idf)."""

    terms: list[str]
    weights: list[float]  # log((1 + n) / (1 + texts with the term)) + 1

    @classmethod
    def fit(cls, texts: Sequence[str]) -> Self:
        """The commonest terms of these texts."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        vectorizer = TfidfVectorizer(max_features=TERMS).fit(texts)
        return cls(vectorizer.get_feature_names_out().tolist(), vectorizer.idf_.tolist())

    def transform(self, texts: Sequence[str]) -> sp.csr_matrix:
        """A row a text; terms that are not ours count for nothing."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        vectorizer = TfidfVectorizer(vocabulary=self.terms)
        vectorizer.idf_ = np.array(self.weights)
        return vectorizer.transform(texts).astype(np.float32)

    def to_json(self) -> str:
        return json.dumps({"terms": self.terms, "weights": self.weights})

    @classmethod
    def from_json(cls, text: str) -> Self:
        try:
            saved = json.loads(text)
            words = cls([str(term) for term in saved["terms"]], [float(weight) for weight in saved["weights"]])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a list of words as diffclust saves it ({error!r}).") from error
        if not words.terms or not len(set(words.terms)) == len(words.terms) == len(words.weights):
            raise ValueError(f"not one weight for each of {len(words.terms)} different words.")
        return words


class Table(NamedTuple):
    X: Any
    y: NDArray[Any] | None = None
    words: Words | None = None  # of texts


# --- arrays


def read_npy(path: Path) -> Table:
    try:
        X = np.load(path, mmap_mode="c", allow_pickle=False)  # writable, in memory alone: torch warns of others
    except (ValueError, OSError, EOFError) as error:
        raise _unreadable(path) from error
    if not isinstance(X, np.ndarray):  # np.load looks at the content: a .npz by another name
        raise _unreadable(path)
    return Table(_numbers(X, path))


def _read_npz(path: Path) -> Table:
    X, y = split(load_arrays(path), path)
    if y is not None and y.dtype.kind == "U" and "" in y:
        y = np.array([label or None for label in y.tolist()], object)
    return Table(_numbers(X, path), y if y is not None and is_labelled(y).any() else None)


def load_arrays(path: Path) -> Arrays:
    """The arrays of a .npz."""
    try:
        with path.open("rb") as stream:  # given a path, numpy leaves broken files open
            file = np.load(stream, allow_pickle=False)
            return {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise _unreadable(path) from error


def _unreadable(path: Path) -> ValueError:
    # Not in numpy's words: for a pickle they say how to load it unsafely.
    return ValueError(
        f"{path} cannot be read as {path.suffix}: it is something else, damaged, or holds pickled objects, "
        "which are never loaded, as they can run code."
    )


def split(arrays: Arrays, source: object) -> tuple[Any, NDArray[Any] | None]:
    """X, dense or sparse, and y if it is there, among the arrays of a .npz."""
    X_name, y_name = (next((name for name in known if name in arrays), None) for known in (X_NAMES, Y_NAMES))
    if X_name is None and len(arrays) == 1:
        (X_name,) = arrays
    if X_name is None:
        raise ValueError(f"{source}: no array is called {', '.join(X_NAMES)}; there are {', '.join(arrays)}.")
    X = _csr(arrays, source) if "indptr" in arrays else arrays[X_name]
    if y_name is None:
        return X, None
    y = arrays[y_name]
    if y.shape != X.shape[:1]:
        raise ValueError(f"{source}: {y_name} has shape {y.shape}, but X has shape {X.shape}.")
    return X, y


def _csr(arrays: Arrays, source: object) -> sp.csr_matrix:
    """As `scipy.sparse.save_npz` writes it."""
    try:
        if arrays["format"].item() != b"csr":
            raise ValueError(f"its format is {arrays['format'].item()!r}")
        X = sp.csr_matrix((arrays["data"], arrays["indices"], arrays["indptr"]), shape=tuple(arrays["shape"].tolist()))
        X.check_format(full_check=True)
    except (KeyError, ValueError) as error:
        raise ValueError(f"{source}: not a sparse matrix of rows, CSR ({error}).") from error
    return X


def _numbers(X: Any, path: Path) -> Any:
    if X.dtype.kind not in "biuf":
        raise ValueError(f"{path}: expected numbers, but the dtype is {X.dtype}.")
    if X.ndim < 2:
        raise ValueError(f"{path}: expected rows (n, d) or images, but the shape is {X.shape}.")
    if 0 in X.shape:
        raise ValueError(f"{path} is empty: its shape is {X.shape}.")
    return X


# --- tables


def _read_csv(path: Path) -> Table:
    try:
        return _csv_table(path)
    except (ValueError, csv.Error) as error:  # also of bytes that are not UTF-8
        raise ValueError(f"{path}: {_in_plain_words(str(error))}") from error


def _in_plain_words(said: str) -> str:
    """numpy's word on a cell that is no number, as the user would look for it."""
    found = re.match(r"could not convert string '(.*)' to float64 at row (\d+), column (\d+)", said, re.DOTALL)
    if found is None:
        return said
    cell, row, column = found[1], int(found[2]), found[3]
    what = f"{cell!r} is no number" if cell.strip() else "missing: fill such cells, or leave their rows out"
    return f"row {row} (the first is 0), column {column} (the first is 1): {what}."


def _csv_table(path: Path) -> Table:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.reader(stream)
        records = [(reader.line_num, line) for line in islice(filter(None, reader), 2)]
    start = [[cell.strip() for cell in line] for _, line in records]
    named = bool(start) and _is_header(start[0])
    if len(start) <= named:
        raise ValueError("it is empty: 0 rows.")
    columns = start[0] if named else [f"column {i + 1}" for i in range(len(start[0]))]
    label = _label_column(columns) if named else None
    others = [i for i, column in enumerate(columns) if i == label or (i == 0 and column == "")]
    features = [i for i in range(len(columns)) if i not in others]
    _check_columns([columns[i] for i in features if i < len(start[-1]) and _is_word(start[-1][i])], len(features))
    # Labels and names of rows may be words: loadtxt gets a number in place of each.
    words: dict[str, int] = {}
    cells = np.loadtxt(
        path,
        delimiter=",",
        quotechar='"',
        comments=None,
        encoding="utf-8-sig",
        ndmin=2,
        skiprows=records[0][0] if named else 0,  # blank lines before the names, and those within them
        converters={i: lambda cell: words.setdefault(cell, len(words)) for i in others},
    )
    if cells.shape[1] != len(columns):
        raise ValueError(f"the first line has {len(columns)} cells, the others have {cells.shape[1]}.")
    X, known = cells[:, features], list(words)
    y = None if label is None else _labels([known[int(code)] for code in cells[:, label]])
    try:
        import pandas
    except ImportError:
        return Table(X, y)
    return Table(pandas.DataFrame(X, columns=[columns[i] for i in features]) if named else X, y)


def _is_header(cells: list[str]) -> bool:
    """Does this line hold names? Yes if there are words in it, or it counts 0, 1, 2 as pandas does by default."""
    counted = [str(i) for i in range(len(cells))]
    return any(map(_is_word, cells)) or (len(cells) > 2 and cells in (counted, ["", *counted[:-1]]))


def _is_word(cell: str) -> bool:
    try:
        float(cell or 0)
    except ValueError:
        return True
    return False


def _label_column(columns: Sequence[str]) -> int | None:
    folded = [column.casefold() for column in columns]
    known = [name for name in LABEL_COLUMNS if name != "y" or "x" not in folded]  # beside x, y is a coordinate
    found = [i for i, column in enumerate(folded) if column in known]
    if len(found) > 1:
        raise ValueError(f"{', '.join(repr(columns[i]) for i in found)} could all be the labels. Keep one.")
    return found[0] if found else None


def open_parquet(path: Path) -> "ParquetRows":
    """A .parquet file whose row groups are read when they are needed; a column of labels is left out."""
    from .sources import ParquetRows

    parquet = extra("pyarrow.parquet", "data", "Reading a .parquet file", package="pyarrow")
    if not path.is_file():
        raise FileNotFoundError(f"No such file: {path}")
    try:
        file = parquet.ParquetFile(path)
        columns = _feature_columns(file.schema_arrow)
        if file.metadata.num_rows == 0:
            raise ValueError("it is empty: 0 rows.")
    except (ValueError, OSError) as error:  # not parquet is a ValueError, too
        raise ValueError(f"{path}: {error}") from error
    return ParquetRows(file, columns)


def _feature_columns(schema: Any) -> list[str]:
    """All but the labels and the index of a DataFrame, if they are numbers."""
    from pyarrow import types

    index = (schema.pandas_metadata or {}).get("index_columns", [])  # names; a counting index is a dict, and no column
    columns = [name for name in schema.names if name not in index]
    label = _label_column(columns)
    names = [name for i, name in enumerate(columns) if i != label]
    kinds = {name: schema.field(name).type for name in names}
    numeric = (types.is_integer, types.is_floating, types.is_boolean)
    _check_columns([name for name, kind in kinds.items() if not any(is_kind(kind) for is_kind in numeric)], len(names))
    return names


def _check_columns(words: list[str], n_features: int) -> None:
    if words:
        raise ValueError(
            f"not numeric: {', '.join(map(repr, words))}. "
            f"Only a column named {', '.join(LABEL_COLUMNS)} may hold words: encode the others or drop them."
        )
    if n_features == 0:
        raise ValueError("there is no column but the labels.")


def _labels(values: list[Any]) -> NDArray[Any] | None:
    """Whole numbers if they all are, else strings; None for each that is missing, and for all of them if all are."""
    there = is_labelled(values) & [str(value).strip() != "" for value in values]
    if not there.any():
        return None
    known = [str(value).strip() for value, is_there in zip(values, there, strict=True) if is_there]
    try:
        labels = np.array([int(value) for value in known], np.int64)
    except ValueError:
        labels = np.array(known)
    if there.all():
        return labels
    y = np.full(len(values), None, object)
    y[there] = labels.tolist()
    return y


def _read_parquet(path: Path) -> Table:
    pandas = extra("pandas", "data", "Reading a .parquet file")
    extra("pyarrow", "data", "Reading a .parquet file")
    try:
        table = pandas.read_parquet(path, engine="pyarrow")
        table.columns = table.columns.astype(str)
        label = _label_column(table.columns)
        X = table if label is None else table.drop(columns=table.columns[label])
        is_number = pandas.api.types.is_numeric_dtype
        _check_columns([name for name, kind in X.dtypes.items() if not is_number(kind)], X.shape[1])
        if len(X) == 0:
            raise ValueError("it is empty: 0 rows.")
    except (ValueError, OSError) as error:  # not parquet is a ValueError, too
        raise ValueError(f"{path}: {error}") from error
    return Table(X.astype(np.float64), None if label is None else _labels(table.iloc[:, label].tolist()))


READERS: dict[str, Callable[[Path], Table]] = {
    ".npy": read_npy,
    ".npz": _read_npz,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
TEXT_ENDINGS = (".jsonl", ".jsonl.gz")


# --- texts


def read_texts(path: Path, words: Words | None) -> Table:
    texts: list[str] = []
    labels: list[Any] = []
    for number, entry in json_lines(path, text=str):
        if texts and ("label" in entry) != bool(labels):
            has = "a" if "label" in entry else "no"
            raise ValueError(f'{path}, line {number}: {has} "label", unlike the lines before.')
        texts.append(entry["text"])
        if "label" in entry:
            labels.append(entry["label"])
    if not texts:
        raise ValueError(f"{path} is empty: no lines.")
    try:
        words = words or Words.fit(texts)
    except ValueError as error:
        raise ValueError(f"{path}: no words in its {len(texts)} texts ({error}).") from error
    return Table(words.transform(texts), _labels(labels) if labels else None, words)


def json_lines(path: Path, **kinds: type) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of each line of a .jsonl or .jsonl.gz that is not blank; `kinds` are in each object."""
    wanted = ", ".join(f'"{name}" ({kind.__name__})' for name, kind in kinds.items())
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        # newline="\n": a lone carriage return ends no line.
        with opener(path, "rt", encoding="utf-8-sig", newline="\n") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    entry = json.loads(line)
                except json.JSONDecodeError as error:
                    raise ValueError(f"{path}, line {number}: not JSON ({error}).") from error
                if not isinstance(entry, dict) or not all(isinstance(entry.get(k), v) for k, v in kinds.items()):
                    raise ValueError(f"{path}, line {number}: expected an object with {wanted}.")
                yield number, entry
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error}).") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a whole gzip file ({error}).") from error
