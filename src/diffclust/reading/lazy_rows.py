"""Rows that are larger than memory: read when they are needed, and not kept."""

import math
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ..engine.rows import SHUFFLED_BLOCKS, Moments, Rows, sample
from .tables import Columns

HELD_BYTES = 2**26  # bytes of decoded row groups that are shuffled together
RECENT_ROWS = 2**14  # rows of a stream in the shuffle buffer


class ParquetRows(Rows):
    """Columns of a .parquet file, read by row groups. Only one thread reads at a time, as pyarrow's file requires."""

    def __init__(self, file: Any, columns: list[str], reading: Columns | None = None) -> None:
        """Store what reading needs; no row is read yet.

        Args:
            file: a pyarrow.parquet.ParquetFile.
            columns: names of the columns to read.
            reading: how a table becomes rows; None if its columns are numbers.
        """
        width = len(columns) if reading is None else len(reading.features)
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        self.file, self.columns, self.reading, self.row_shape = file, columns, reading, (width,)
        self.starts = np.concatenate([[0], np.cumsum(sizes)])
        self.window = max(1, min(SHUFFLED_BLOCKS, HELD_BYTES // max(1, 4 * max(sizes) * width)))
        self.groups: OrderedDict[int, np.ndarray] = OrderedDict()
        self.turn = threading.Lock()

    def __len__(self) -> int:
        return int(self.starts[-1])

    def edges(self) -> np.ndarray | None:
        return self.starts

    def take(self, index: Tensor) -> Tensor:
        with self.turn:
            return self._take(index.cpu().numpy())

    def _take(self, i: np.ndarray) -> Tensor:
        group = np.searchsorted(self.starts, i, side="right") - 1
        rows: np.ndarray = np.empty((len(i), *self.row_shape), self._kept)
        for g in np.unique(group):
            here = group == g
            rows[here] = self._group(int(g))[i[here] - self.starts[g]]
        return torch.from_numpy(rows)

    def subtract_origin(self, origin: Tensor | None) -> Rows:
        self.groups.clear()
        return super().subtract_origin(origin)

    @property
    def _kept(self) -> type:
        return np.float32 if self.origin_known else np.float64

    def _group(self, g: int) -> np.ndarray:
        if g not in self.groups:
            while len(self.groups) > self.window:  # a batch may reach into the next window
                self.groups.popitem(last=False)
            self.groups[g] = self._rows_of(self.file.read_row_group(g, columns=self.columns))
        self.groups.move_to_end(g)
        return self.groups[g]

    def _rows_of(self, table: Any) -> np.ndarray:
        rows: Any
        if self.reading is None:
            rows = np.stack([table.column(name).to_numpy().astype(np.float64) for name in self.columns], axis=1)
        else:
            rows = self.reading.transform(table.to_pandas())
            rows = np.asarray(rows.toarray() if sp.issparse(rows) else rows, np.float64)
        with np.errstate(over="ignore"):  # later checks raise, with the name of the column
            return (rows if self.origin is None else rows - self.origin.numpy()).astype(self._kept)


class IterableRows(Rows):
    """A torch IterableDataset that gives the same rows in every iteration: the first counts them, then there is one per
    pass. Rows are shuffled within a buffer."""

    forward_only = True
    window = 1

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.n = 0
        self.low, self.high, self.whole = (
            math.inf,
            -math.inf,
            False,
        )  # of images: their range, and whether they are integers
        self.looked_at = Moments()
        for item in dataset:
            one = sample(item)
            shape = tuple(one.shape)
            if one.ndim == 3 and one.numel():
                self.low, self.high = min(self.low, one.min().item()), max(self.high, one.max().item())
                self.whole = not one.is_floating_point() and one.dtype != torch.bool
            if self.n == 0:
                self.row_shape = shape
            elif shape != self.row_shape:
                raise ValueError(f"Sample {self.n} has shape {shape}, the others {self.row_shape}.")
            if one.numel():
                self.looked_at.add(one[None])
            self.n += 1
        if self.n == 0:
            raise ValueError("Found an IterableDataset with 0 samples while a minimum of 1 is required.")
        if len(self.row_shape) not in (1, 3):
            raise ValueError(f"A sample of the Dataset has shape {self.row_shape}: expected (d,), (h, w) or (c, h, w).")
        self._rewind()

    def __len__(self) -> int:
        return self.n

    def moments(self) -> Moments:
        return self.looked_at

    def edges(self) -> np.ndarray | None:
        return np.append(np.arange(0, self.n, RECENT_ROWS), self.n)

    def take(self, index: Tensor) -> Tensor:
        places = index.cpu().numpy()
        rows: dict[int, Tensor] = {}
        for place in np.unique(places).tolist():
            rows[place] = self._row(place)
        return self._moved(torch.stack([rows[place] for place in places.tolist()]))

    def _rewind(self) -> None:
        self.items: Iterator[Any] = iter(self.dataset)
        self.passed = 0
        self.recent: deque[Tensor] = deque(maxlen=2 * RECENT_ROWS)

    def _row(self, place: int) -> Tensor:
        if place < self.passed - len(self.recent):
            self._rewind()
        while self.passed <= place:
            try:
                self.recent.append(sample(next(self.items)))
            except StopIteration:
                raise ValueError(
                    f"The IterableDataset gave {self.n} samples the first time and only {self.passed} now: it must "
                    "give the same samples every time."
                ) from None
            self.passed += 1
        return self.recent[place - self.passed]
