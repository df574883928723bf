"""Write labels to a file while they are computed, so that neither rows nor labels need to fit into memory."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TextIO

import numpy as np

from ..engine.disk import atomic_write
from ..extras import extra

Parts = Iterable[tuple[np.ndarray, np.ndarray]]  # labels (b,) and probabilities (b, k) of consecutive parts
Beside = Mapping[str, Sequence[Any]]  # further columns
PARTS_PER_GROUP = 64  # number of parts in a row group of a .parquet file


class LabelColumns(NamedTuple):
    """What is written next to the label of each row."""

    proba: bool = False  # whether to write probabilities
    beside: Beside = MappingProxyType({})
    names: Sequence[str] = ()  # names of the clusters; none: not written


LABELS_ALONE = LabelColumns()


def write(path: Path, parts: Parts, n: int, more: LabelColumns = LABELS_ALONE) -> None:
    """Write the labels of n rows and `more` to a .csv or .parquet file, or only the labels to a .npy file. The file is
    replaced atomically when it is complete."""
    with atomic_write(path) as part:
        WRITERS[path.suffix](part, parts, n, more)


def as_csv(labels: np.ndarray, beside: Beside) -> bytes:
    """The contents of a .csv file with the labels."""
    text = io.StringIO(newline="")
    _write_lines(text, [(labels, labels[:, None])], LabelColumns(beside=beside))
    return text.getvalue().encode("utf-8", "surrogateescape")


def _names(probabilities: np.ndarray) -> list[str]:
    return [f"p{j}" for j in range(probabilities.shape[1])]


def _write_csv(path: Path, parts: Parts, n: int, more: LabelColumns) -> None:
    with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        _write_lines(file, parts, more)


def _write_lines(file: TextIO, parts: Parts, more: LabelColumns) -> None:
    proba, beside, names = more
    writer = csv.writer(file, lineterminator="\n")
    done = 0
    for labels, probabilities in parts:
        if done == 0:
            called = ["name"] if names else []
            chances_of = _names(probabilities) if proba else []
            writer.writerow(["row", *map(_no_formula, beside), "label", *called, *chances_of])
        chances = [[f"{p:.6f}" for p in row] for row in probabilities] if proba else [[]] * len(labels)
        for i, label in enumerate(labels.tolist()):
            own = [_no_formula(column[done + i], name == "file") for name, column in beside.items()]
            called = [_no_formula(names[label])] if names else []
            writer.writerow([done + i, *own, label, *called, *chances[i]])
        done += len(labels)


def _no_formula(cell: Any, is_file: bool = False) -> Any:
    """Change a cell so that no spreadsheet runs it as a formula: ./name for a file, a leading ' for others."""
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    return f"./{cell}" if is_file else f"'{cell}"


def _write_npy(path: Path, parts: Parts, n: int, more: LabelColumns) -> None:
    with path.open("wb") as file:  # no memory map, because a full disk would kill the process
        header = {"descr": "<i8", "fortran_order": False, "shape": (n,)}
        np.lib.format.write_array_header_1_0(file, header)
        for labels, _ in parts:
            file.write(labels.astype("<i8").tobytes())


def _write_parquet(path: Path, parts: Parts, n: int, more: LabelColumns) -> None:
    proba, beside, names = more
    arrow = extra("pyarrow", "data", "Writing a .parquet file")
    parquet = extra("pyarrow.parquet", "data", "Writing a .parquet file", package="pyarrow")
    writer, done = None, 0
    try:
        for labels, probabilities in _gathered(parts):
            columns: dict[str, Any] = {"row": np.arange(done, done + len(labels))}
            columns |= {name: column[done : done + len(labels)] for name, column in beside.items()}
            columns["label"] = labels
            columns |= {"name": [names[label] for label in labels]} if names else {}
            columns |= dict(zip(_names(probabilities), probabilities.T, strict=True)) if proba else {}
            table = arrow.table(columns)
            writer = writer or parquet.ParquetWriter(path, table.schema)
            writer.write_table(table)
            done += len(labels)
    finally:
        if writer is not None:
            writer.close()


def _gathered(parts: Parts) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    parts = iter(parts)
    while some := list(islice(parts, PARTS_PER_GROUP)):
        yield np.concatenate([labels for labels, _ in some]), np.concatenate([chances for _, chances in some])


WRITERS = {".csv": _write_csv, ".npy": _write_npy, ".parquet": _write_parquet}
