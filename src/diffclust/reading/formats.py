"""The formats of users' files: functions that give X, and y if the file has labels.

No file is ever unpickled.
"""

import json
import math
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..extras import extra
from ..metrics import is_labelled
from .delimited import COMPRESSED, FITTING, NUMBERED, Expected, columns_as_written, read_bytes, read_delimited
from .frames import columns_of, frame_of, is_frame, names_of_columns
from .labels import LABEL_COLUMNS, NoSuchLabel
from .unpacking import UnpacksTooLarge, check_unpacked

if TYPE_CHECKING:
    from .lazy_rows import ParquetRows
    from .tables import Columns

Arrays = dict[str, NDArray[Any]]

X_NAMES = ("X", "images", "data")
Y_NAMES = ("y", "labels", "target")


class Table(NamedTuple):
    X: Any
    y: NDArray[Any] | None = None
    label: str | None = None  # the name of the column that y comes from


# --- arrays


def check_regular(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a regular file: pipes and devices are not read.")


def read_npy(path: Path, expected: Expected = FITTING) -> Table:
    check_regular(path)
    try:
        X = np.load(path, mmap_mode="c", allow_pickle=False)  # copy-on-write: torch warns about read-only arrays
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # numpy parses the header as Python source, which raises many kinds of errors
        raise _unreadable(path) from error
    if not isinstance(X, np.ndarray):  # np.load goes by the content: this is a .npz under another name
        raise _unreadable(path)
    return Table(_numbers(X, path))


def _read_npz(path: Path, expected: Expected = FITTING) -> Table:
    X, y = split(load_arrays(path), path)
    if y is not None and y.dtype.kind == "U" and "" in y:
        y = np.array([label or None for label in y.tolist()], object)
    return Table(_numbers(X, path), y if y is not None and is_labelled(y).any() else None)


def load_arrays(path: Path) -> Arrays:
    """The arrays of a .npz."""
    try:
        with zipfile.ZipFile(path) as file:
            members = file.infolist()
            check_unpacked(path, path.stat().st_size, sum(member.file_size for member in members))
            return {member.filename.removesuffix(".npy"): _array(file, member) for member in members}
    except (PermissionError, UnpacksTooLarge):
        raise
    except Exception as error:  # damaged files raise many kinds of errors
        raise _unreadable(path) from error


def _array(file: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """An array of a .npz, if the file has as many bytes as its header says: numpy allocates before it reads."""
    numpy = np.lib.format
    with file.open(member) as stream:
        header = numpy.read_array_header_1_0 if numpy.read_magic(stream) == (1, 0) else numpy.read_array_header_2_0
        shape, by_columns, kind = header(stream)
        said, there = math.prod(shape) * kind.itemsize, member.file_size - stream.tell()
        if kind.hasobject or min(shape, default=0) < 0 or said != there:
            raise ValueError(f"{member.filename}: {kind} of shape {shape} in {there} bytes")
        values = np.frombuffer(bytearray(stream.read()), kind)
    return values.reshape(shape, order="F" if by_columns else "C")


def _unreadable(path: Path) -> ValueError:
    # not numpy's message: for a pickle it says how to load it unsafely
    return ValueError(
        f"{path} cannot be read as {path.suffix}: it is something else, damaged, or holds pickled objects, "
        "which are never loaded, as they can run code."
    )


def split(arrays: Arrays, source: object) -> tuple[Any, NDArray[Any] | None]:
    """X, dense or sparse, and y, if present, from the arrays of a .npz."""
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
    """A sparse matrix from the arrays that `scipy.sparse.save_npz` writes."""
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


def _read_delimited(path: Path, expected: Expected) -> Table:
    from .large_tables import TextTable, is_large

    if is_large(path):
        table = TextTable(path, expected)
        return Table(table, None if table.labels is None else _labels(table.labels), table.label)
    X, labels, name = read_delimited(path, expected)
    return Table(X, None if labels is None else _labels(labels), name)


def open_parquet(path: Path, reading: "Columns | None" = None, expected: Expected = FITTING) -> "ParquetRows":
    """A .parquet file whose row groups are read when they are needed: columns of numbers and perhaps one of labels, or
    a table read by `reading`."""
    from .lazy_rows import ParquetRows

    parquet = extra("pyarrow.parquet", "data", "Reading a .parquet file", package="pyarrow")
    check_regular(path)
    if not path.is_file():
        raise FileNotFoundError(f"No such file: {path}")
    try:
        file = parquet.ParquetFile(path)
        columns = _feature_columns(file, expected) if reading is None else file.schema_arrow.names
        groups = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        if file.metadata.num_rows == 0:
            raise ValueError("it is empty: 0 rows.")
    except PermissionError:
        raise
    except Exception as error:
        raise ValueError(f"{path}: {str(error) or type(error).__name__}") from error
    _check_cells(path, max(groups), len(columns))
    return ParquetRows(file, columns, reading)


def _feature_columns(file: Any, expected: Expected) -> list[str]:
    """All columns except the labels and the index of a DataFrame, if they are numbers."""
    from pyarrow import types

    schema = file.schema_arrow
    index = (schema.pandas_metadata or {}).get("index_columns", [])  # names; a range index is a dict and no column
    columns = [name for name in schema.names if name not in index]
    label = expected.label_among(columns, lambda i: _first_of(file, columns[i]))
    names = [name for i, name in enumerate(columns) if i != label]
    kinds = {name: schema.field(name).type for name in names}
    numeric = (types.is_integer, types.is_floating, types.is_boolean)
    _check_columns([name for name, kind in kinds.items() if not any(is_kind(kind) for is_kind in numeric)], len(names))
    return names


def _first_of(file: Any, name: str) -> list[Any]:
    """The cells of a column in the first row group."""
    return file.read_row_group(0, columns=[name]).column(name).to_pylist() if file.num_row_groups else []


def _check_columns(words: list[str], n_features: int) -> None:
    if words:
        raise ValueError(
            f"not numeric: {', '.join(map(repr, words))}. "
            f"Of a file that is read in parts, only a column named {', '.join(LABEL_COLUMNS)} may hold words: "
            "read it whole (pandas.read_parquet), or in one process."
        )
    if n_features == 0:
        raise ValueError("there are no columns besides the labels.")


def _labels(values: list[Any]) -> NDArray[Any] | None:
    """Whole numbers if all labels are, otherwise strings; None for missing ones, or instead of all if all are
    missing."""
    there = is_labelled(values) & [str(value).strip() != "" for value in values]
    if not there.any():
        return None
    known = [str(value).strip() for value, is_there in zip(values, there, strict=True) if is_there]
    try:
        labels = np.array([int(value) for value in known], np.int64)
    except (ValueError, OverflowError):
        labels = np.array(known)
    if there.all():
        return labels
    y = np.full(len(values), None, object)
    y[there] = labels.tolist()
    return y


def _read_parquet(path: Path, expected: Expected) -> Table:
    extra("pandas", "data", "Reading a .parquet file")
    extra("pyarrow", "data", "Reading a .parquet file")
    parquet = extra("pyarrow.parquet", "data", "Reading a .parquet file", package="pyarrow")

    def load() -> Any:
        with parquet.ParquetFile(path) as file:
            _check_cells(path, file.metadata.num_rows, file.metadata.num_columns)
        return _checked(parquet.read_table(path))

    return _read_arrow(path, expected, load)


def _read_feather(path: Path, expected: Expected) -> Table:
    extra("pandas", "data", "Reading a .feather file")
    arrow = extra("pyarrow", "data", "Reading a .feather file")

    def load() -> Any:
        with arrow.OSFile(str(path)) as stream:
            file = arrow.ipc.open_file(stream)
            batches, size = [], 0
            for i in range(file.num_record_batches):
                batches.append(file.get_batch(i))
                size += batches[-1].nbytes
                check_unpacked(path, path.stat().st_size, size)
            return _checked(arrow.Table.from_batches(batches, file.schema))

    return _read_arrow(path, expected, load)


def _checked(table: Any) -> Any:
    """The table as a frame, after checks of texts and offsets, for which pandas would fail later."""
    table.validate(full=True)
    return table.to_pandas()


def _check_cells(path: Path, rows: int, columns: int) -> None:
    """Check the memory of a table: a constant column takes no space in a file, but eight bytes per row in memory."""
    check_unpacked(path, path.stat().st_size, 8 * rows * columns)


def _read_arrow(path: Path, expected: Expected, load: Callable[[], Any]) -> Table:
    try:
        table = load()
        table.columns = table.columns.astype(str)
        return _labelled(table, expected)
    except (PermissionError, UnpacksTooLarge):
        raise
    except NoSuchLabel as error:
        raise NoSuchLabel(f"{path}: {error}") from error
    except Exception as error:  # arrow and pandas raise many kinds of errors
        raise ValueError(f"{path}: {str(error) or type(error).__name__}") from error


def has_no_header(data: str, X: Any) -> bool:
    """Whether X comes from a .csv or .tsv without names of columns."""
    if not data.lower().endswith(DELIMITED):
        return False
    from .large_tables import TextTable

    names = X.names if isinstance(X, TextTable) else names_of_columns(X) if is_frame(X) else []
    return all(name == NUMBERED.format(i + 1) for i, name in enumerate(names))


def as_written(path: Path, names: list[str], X: Any) -> dict[str, Any]:
    """Columns of the table X as they are written in its file: X may have whole numbers as floats."""
    ending = path.suffix.lower()
    if any(path.name.lower().endswith(each) for each in DELIMITED):
        return columns_as_written(path, names)
    if ending in (".parquet", ".feather"):
        pandas = extra("pandas", "data", f"Reading a {ending} file")
        X = (pandas.read_parquet if ending == ".parquet" else pandas.read_feather)(path)
        X.columns = X.columns.astype(str)
    return columns_of(X, names)


def _labelled(table: Any, expected: Expected) -> Table:
    """A DataFrame without its labels, and the labels."""
    from pandas.api.types import is_numeric_dtype

    names = list(table.columns)
    place = expected.label_among(names, lambda i: table.iloc[:, i].tolist())
    X = table if place is None else table.drop(columns=names[place])
    if X.shape[1] == 0:
        raise ValueError("there are no columns besides the labels.")
    if len(X) == 0:
        raise ValueError("it is empty: 0 rows.")
    if all(is_numeric_dtype(kind) for kind in X.dtypes) and not X.isna().to_numpy().any():
        X = X.astype(np.float64)
    return Table(
        X, None if place is None else _labels(table.iloc[:, place].tolist()), None if place is None else names[place]
    )


# --- a JSON object a line


def _read_lines(path: Path, expected: Expected) -> Table:
    """A column for each name in one of the objects; blank for objects without it."""
    entries = list(json_lines(path))
    if not entries:
        raise ValueError(f"{path} is empty: no lines.")
    names = list(dict.fromkeys(name for _, entry in entries for name in entry))
    for number, entry in entries:
        nested = next((name for name, value in entry.items() if isinstance(value, (dict, list))), None)
        if nested is not None:
            raise ValueError(f"{path}, line {number}: {nested!r} is not a plain value: use separate columns.")
    try:
        place = expected.label_among(names, lambda i: [entry.get(names[i]) for _, entry in entries])
    except ValueError as error:
        raise type(error)(f"{path}: {error}") from error
    columns = {}
    for i, name in enumerate(names):
        values = np.empty(len(entries), object)
        values[:] = [entry.get(name) for _, entry in entries]
        if i != place:
            columns[name] = values
    if not columns:
        raise ValueError(f"{path}: there is nothing besides the labels.")
    y = None if place is None else _labels([entry.get(names[place]) for _, entry in entries])
    return Table(frame_of(columns), y, None if place is None else names[place])


def json_lines(path: Path, **kinds: type) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of each line of a .jsonl, perhaps .gz or .zst, that is not blank. Raises if an object lacks
    one of `kinds`."""
    wanted = ", ".join(f'"{name}" ({kind.__name__})' for name, kind in kinds.items())
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error}).") from error
    for number, line in enumerate(text.split("\n"), 1):  # a carriage return alone does not end a line
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            if "\\ud" in line.lower():  # half of a surrogate pair, which could not be written
                json.dumps(entry, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}: not JSON that can be read ({error}).") from error
        if not isinstance(entry, dict) or not all(isinstance(entry.get(k), v) for k, v in kinds.items()):
            raise ValueError(f"{path}, line {number}: expected an object{' with ' * bool(wanted)}{wanted}.")
        yield number, entry


DELIMITED = tuple(ending + packed for ending in (".csv", ".tsv") for packed in ("", *COMPRESSED))
READERS: dict[str, Callable[[Path, Expected], Table]] = {
    ".npy": read_npy,
    ".npz": _read_npz,
    ".csv": _read_delimited,
    ".tsv": _read_delimited,
    ".parquet": _read_parquet,
    ".feather": _read_feather,
    ".jsonl": _read_lines,
}
READERS |= {ending + packed: READERS[ending] for ending in (".csv", ".tsv", ".jsonl") for packed in COMPRESSED}
