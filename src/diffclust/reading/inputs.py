"""Conversion of users' data: any kind becomes `Rows`, and results are returned in the kind of the data.

Rows (n, d) stay rows. Images become (n, channels, height, width): (n, h, w) has one channel; with four
dimensions the channel axis is the one with at most four entries; if both or neither are, numpy arrays are
channels-last and torch tensors channels-first.
"""

import itertools
import math
import os
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from ..engine.data import CHUNK, Data
from ..engine.rows import ArrayRows, DatasetRows, Rows, SparseRows, TensorRows, sample
from . import formats
from .delimited import Expected
from .frames import is_frame
from .large_tables import TextTable
from .lazy_rows import IterableRows, ParquetRows
from .origin import origin_of
from .tables import Columns, needs_column_types, non_numeric_columns

SampleLayout = Literal["rows", "grey", "channels-first", "channels-last"]
MOST_CHANNELS = 4


@dataclass(frozen=True)
class Shape:
    """The shape of a sample in the user's array and in ours."""

    layout: SampleLayout
    row: tuple[int, ...]  # the shape that networks see: (d,) or (c, h, w)

    @classmethod
    def of(cls, shape: tuple[int, ...], *, torch_like: bool) -> "Shape":
        """The shapes, from that of one sample."""
        if len(shape) == 1:
            return cls("rows", shape)
        if len(shape) == 2:
            return cls("grey", (1, *shape))
        if len(shape) != 3:
            raise ValueError(
                f"Found array with dim {len(shape) + 1}: expected rows (n, d) or images (n, h, w), (n, h, w, c)."
            )
        first, last = shape[0] <= MOST_CHANNELS, shape[2] <= MOST_CHANNELS
        if (first and (torch_like or not last)) or (torch_like and not last):
            return cls("channels-first", shape)
        return cls("channels-last", (shape[2], shape[0], shape[1]))

    def arrange(self, x: Tensor) -> Tensor:
        """`(n, *as given)` -> `(n, *row)`."""
        if self.layout == "grey":
            return x[:, None]
        return x.permute(0, 3, 1, 2).contiguous() if self.layout == "channels-last" else x

    def restore(self, x: Tensor) -> Tensor:
        """`(n, *row)` -> `(n, *as given)`."""
        if self.layout == "grey":
            return x[:, 0]
        return x.permute(0, 2, 3, 1).contiguous() if self.layout == "channels-last" else x


@dataclass(frozen=True)
class UserInput:
    """A user's data after reading: rows, their shape, and how to return results."""

    rows: Rows
    shape: Shape
    give: Callable[[Tensor], Any]
    attributes: dict[str, Any]  # fitted attributes that describe the data
    scale: Tensor | None = None  # divisors of the columns of a table of mixed kinds


def read_rows(estimator: Any, X: Any, *, fitting: bool) -> UserInput:
    """Check X and convert it to rows; a `UserInput` is returned unchanged. The estimator does not change."""
    if isinstance(X, UserInput):
        return X
    if isinstance(X, DataLoader):
        X = X.dataset
    if isinstance(X, (str, os.PathLike)):
        wished = frozenset(getattr(estimator, "columns", None) or ())
        X = _opened(Path(X), None if fitting else estimator, wished)
    if not fitting:
        _check_single(estimator.shape_.row, X)
    if type(X) is np.ndarray and not fitting and vars(estimator).get("columns_") is None:
        given = _read_array(estimator, X, fitting)  # a fast path for the most frequent case, single rows
    elif isinstance(X, Tensor):
        given = _read_tensor(estimator, X, fitting)
    elif isinstance(X, (IterableDataset, ParquetRows)):
        rows = IterableRows(X) if isinstance(X, IterableDataset) else X
        shape = Shape("rows" if len(rows.row_shape) == 1 else "channels-first", rows.row_shape)
        divisor = None
        if isinstance(rows, IterableRows) and len(rows.row_shape) == 3:
            reach = rows.low, rows.high
            divisor = (
                _divisor(estimator, fitting, *reach) if rows.whole else _float_divisor(estimator, fitting, rows.high)
            )
            rows.divisor = divisor or 1.0
        given = UserInput(rows, shape, _numpy, {"image_divisor_": divisor})
        if isinstance(rows, ParquetRows) and rows.reading is None:
            given.attributes["feature_names_in_"] = np.array(rows.columns, dtype=object)
            _check_names(estimator, rows.columns, fitting)
    elif isinstance(X, TextTable):
        given = _read_in_parts(estimator, X, fitting)
    elif isinstance(X, Dataset):
        given = _read_dataset(estimator, X, fitting)
    elif fitting and needs_column_types(X, getattr(estimator, "columns", None)):
        given = _read_table(Columns.fit(X, getattr(estimator, "columns", None)), X)
    elif not fitting and getattr(estimator, "columns_", None) is not None:
        given = _read_table(estimator.columns_, X)
    else:
        given = _read_array(estimator, X, fitting)
    if not fitting and given.shape.row != estimator.shape_.row:
        ours, name = estimator.shape_.row, type(estimator).__name__
        if len(ours) == len(given.shape.row) == 1:
            raise ValueError(
                f"X has {given.shape.row[0]} features, but {name} is expecting {ours[0]} features as input."
            )
        raise ValueError(f"X has samples of shape {given.shape.row}, but {name} was fitted on samples of shape {ours}.")
    given.attributes.setdefault("n_features_in_", math.prod(given.shape.row))
    given.attributes["shape_"] = given.shape
    return _with_origin(estimator, given, fitting)


def _with_origin(estimator: Any, given: UserInput, fitting: bool) -> UserInput:
    """The rows with an origin subtracted, if they are far from zero."""
    if fitting:
        origin = origin_of(given.rows)
        given.attributes["origin_"] = None if origin is None else origin.numpy()
    else:
        known = getattr(estimator, "origin_", None)
        origin = None if known is None else torch.from_numpy(known)
    rows = given.rows.subtract_origin(origin)
    return given if rows is given.rows else replace(given, rows=rows)


def _check_single(row: tuple[int, ...], X: Any) -> None:
    """Raise for a single image, whose lines would be taken as rows of the wrong width."""
    if len(row) == 3:
        channels, *size = row
        single = [tuple(size)] if channels == 1 else [row, (*size, channels)]
        if tuple(getattr(X, "shape", ())) in single:
            raise ValueError(f"X has shape {tuple(X.shape)}, which is a single image: pass several, or X[None].")


def _check_names(estimator: Any, columns: list[str], fitting: bool) -> None:
    known = [] if fitting else list(getattr(estimator, "feature_names_in_", []))
    if known and known != columns:
        raise ValueError(
            f"The feature names should match those that were passed during fit: {', '.join(known[:5])}, ... "
            f"and not {', '.join(columns[:5])}, ..."
        )


def _read_table(reading: Columns, X: Any) -> UserInput:
    values = reading.transform(X)
    rows = SparseRows(values) if sp.issparse(values) else TensorRows(torch.from_numpy(values))
    return _given_by(reading, rows)


def _read_in_parts(estimator: Any, X: TextTable, fitting: bool) -> UserInput:
    """A table larger than memory: its columns are inferred from a sample of its rows, or are those of the fit."""
    wishes = getattr(estimator, "columns", None)
    reading = Columns.fit(X.sample, wishes) if fitting else getattr(estimator, "columns_", None)
    if reading is not None:
        return _given_by(reading, X.encoded(reading.transform))
    names = [X.names[i] for i in X.features]
    _check_names(estimator, names, fitting)

    def numbers(part: Any) -> np.ndarray:
        _check_cells(estimator, part)
        return np.stack([part[name] for name in names], axis=1)

    rows = X.encoded(numbers)
    return UserInput(rows, Shape("rows", rows.row_shape), _numpy, {"image_divisor_": None})


def _given_by(reading: Columns, rows: Rows) -> UserInput:
    attributes = {
        "image_divisor_": None,
        "columns_": reading,
        "feature_names_in_": np.array(reading.names, dtype=object),
        "n_features_in_": len(reading.names),
    }
    scale = None if reading.scale is None else torch.from_numpy(reading.scale).float()
    return UserInput(rows, Shape("rows", rows.row_shape), _numpy, attributes, scale)


def _opened(path: Path, fitted: Any, wished: frozenset[str]) -> Any:
    """A file that is read when needed, with the columns of the fitted estimator if there is one."""
    reading = getattr(fitted, "columns_", None)
    expected = Expected(features=wished) if fitted is None else Expected.by(fitted)
    if path.suffix == ".npy":
        return formats.read_npy(path).X
    if path.suffix == ".parquet":
        return formats.open_parquet(path, reading, expected)
    if any(path.name.lower().endswith(ending) for ending in formats.DELIMITED):
        return TextTable(path, expected)
    raise ValueError(
        f"{path}: estimators read .npy, .parquet, .csv and .tsv files themselves; for others see "
        "diffclust.reading.files.read."
    )


def stream_batches(X: Any, size: int = CHUNK) -> Iterator[Any]:
    """The batches of a stream: those of a DataLoader, `size` items each of an IterableDataset; other data are one."""
    if isinstance(X, DataLoader):
        for batch in X:
            yield batch[0] if isinstance(batch, (tuple, list)) else batch
    elif isinstance(X, IterableDataset):
        items = iter(X)
        while batch := [sample(item) for item in itertools.islice(items, size)]:
            yield torch.stack(batch)
    else:
        yield X


def _numpy(answer: Tensor) -> np.ndarray:
    return answer.cpu().numpy()


def _check_cells(estimator: Any, X: Any) -> None:
    """If rows of numbers were fitted, raise an error that names a column of a table with other cells."""
    odd = non_numeric_columns(X) if is_frame(X) else []
    if odd:
        raise ValueError(
            f"Input X contains NaN or words, in {', '.join(map(repr, odd[:5]))}, but {type(estimator).__name__} was "
            "fitted on numbers without missing values. Fit it with columns={} to fill them."
        )


def _float_divisor(estimator: Any, fitting: bool, high: float) -> float | None:
    """The divisor of later integer images, after a fit on floating-point ones: None (chosen as for integers) if these
    were between 0 and 1, otherwise 1."""
    if fitting:
        return None if high <= 1 else 1.0
    known = estimator.image_divisor_
    if known not in (None, 1) and high > 2:
        raise ValueError(
            f"The estimator was fitted on integer images, which are divided by {known:g}; these are not integers and "
            f"reach {high:g}: give integers, or values from 0 to 1."
        )
    return None


def _divisor(estimator: Any, fitting: bool, low: float, high: float) -> float:
    """The divisor of integer images, so that they lie in [0, 1]; always that of the fit."""
    if low < 0 or high > 65535:
        raise ValueError(f"Integer images should have values from 0 to 65535; these reach from {low:g} to {high:g}.")
    if not fitting and estimator.image_divisor_ is not None:
        return estimator.image_divisor_
    return 255.0 if high <= 255 else 65535.0


def check_tensor(x: Tensor) -> None:
    """Check that a tensor is dense and has real numbers."""
    if x.layout != torch.strided:
        raise TypeError(f"A tensor of layout {x.layout} is not supported: give a scipy sparse matrix.")
    if x.is_complex():
        raise ValueError("Complex data not supported")


def _read_tensor(estimator: Any, x: Tensor, fitting: bool) -> UserInput:
    check_tensor(x)
    if x.ndim < 2:
        raise ValueError(f"Expected 2D array, got {x.ndim}D array instead: reshape to (n_samples, n_features).")
    if x.numel() == 0:
        raise ValueError(
            f"Found array of shape {tuple(x.shape)} while a minimum of 1 sample and 1 feature is required."
        )
    if not x.isfinite().all():
        raise ValueError("Input X contains NaN or infinity.")
    shape = Shape.of(tuple(x.shape[1:]), torch_like=True)
    divisor = None
    if x.ndim > 2 and x.is_floating_point():
        divisor = _float_divisor(estimator, fitting, x.max().item())
    elif x.ndim > 2 and x.dtype != torch.bool:
        divisor = _divisor(estimator, fitting, x.float().min().item(), x.float().max().item())
    keeps = divisor == 255 and x.dtype == torch.uint8
    values = x.detach() if keeps or x.is_floating_point() else x.detach().double()
    rows = TensorRows(shape.arrange(values), divisor or 1.0)
    return UserInput(rows, shape, lambda answer: answer.to(x.device), {"image_divisor_": divisor})


def _read_dataset(estimator: Any, dataset: Any, fitting: bool) -> UserInput:
    if len(dataset) == 0:
        raise ValueError("Found a Dataset with 0 samples while a minimum of 1 is required.")
    first = sample(dataset[0])
    if first.ndim not in (1, 3):
        raise ValueError(f"A sample of the Dataset has shape {tuple(first.shape)}: expected (d,), (h, w) or (c, h, w).")
    shape = Shape("rows" if first.ndim == 1 else "channels-first", tuple(first.shape))
    divisor = None
    if first.ndim == 3 and not first.is_floating_point():
        probe = Data(DatasetRows(dataset, shape.row), torch.device("cpu"))
        low, high = (0.0, 255.0) if first.dtype == torch.uint8 else (probe.summary.low, probe.summary.high)
        divisor = _divisor(estimator, fitting, low, high)
    elif first.ndim == 3 and not fitting:
        _float_divisor(estimator, fitting, first.max().item())
    rows = DatasetRows(dataset, shape.row, divisor or 1.0)
    return UserInput(rows, shape, _numpy, {"image_divisor_": divisor})


def _matches_fit(estimator: Any, X: Any) -> bool:
    """Whether X obviously has the type and width of the fit, so that the full check, which takes a millisecond, can be
    skipped. Whether values are finite is checked when they are read."""
    if type(X) is not np.ndarray or X.ndim != 2 or X.dtype.kind != "f" or "feature_names_in_" in vars(estimator):
        return False
    return len(X) > 0 and X.shape[1] == estimator.n_features_in_


def in_numbers(check: Callable[[Any], Any], X: Any, name: str = "X") -> Any:
    """The result of scikit-learn's check of X, but dates raise: that check accepts them as numbers."""
    try:
        X = check(X.detach().cpu() if isinstance(X, Tensor) else X)
    except ValueError as error:
        first, _, advice = str(error).partition("\n")
        if "missing values encoded as NaN" in advice:  # it names estimators that take them, none of which clusters
            raise ValueError(
                f"{first} Fill it first, as with sklearn.impute.SimpleImputer. Estimators with a network fill the "
                "blanks of a DataFrame."
            ) from None
        raise
    except OverflowError as error:
        raise ValueError(f"Input {name} holds a number too large for float64 ({error}).") from None
    if X.dtype.kind not in "biuf":
        raise ValueError(f"{name} holds {X.dtype} and no numbers: give dates as columns of a DataFrame.")
    return X


def _read_array(estimator: Any, X: Any, fitting: bool) -> UserInput:
    if isinstance(X, (list, tuple)) and X and all(isinstance(entry, str) for entry in X):
        raise ValueError("X is a list of texts: give a table of them, as in pandas.DataFrame({'text': texts}).")
    attributes: dict[str, Any] = {"image_divisor_": None}
    mapped = isinstance(X, np.memmap)  # scikit-learn's checks return a plain array
    if not fitting and _matches_fit(estimator, X):
        pass
    elif (np.ndim(X) if isinstance(X, (list, tuple)) else getattr(X, "ndim", 2)) > 2:
        X = in_numbers(lambda X: check_array(X, dtype="numeric", allow_nd=True, estimator=estimator), X)
    else:
        if not fitting:
            _check_cells(estimator, X)
        judge = copy(estimator)  # validate_data changes the estimator it is given
        # a memory map may be larger than memory, so its values are checked when they are read
        finite = not mapped or X.dtype.kind != "f"
        how: dict[str, Any] = {"accept_sparse": "csr", "dtype": "numeric", "ensure_all_finite": finite}
        X = in_numbers(lambda X: validate_data(judge, X, reset=fitting, **how), X)
        if hasattr(judge, "feature_names_in_"):
            attributes["feature_names_in_"] = judge.feature_names_in_
    if sp.issparse(X):
        return UserInput(SparseRows(X), Shape("rows", (X.shape[1],)), _numpy, attributes)
    shape = Shape.of(X.shape[1:], torch_like=False)
    divisor = None
    if X.ndim > 2 and X.dtype.kind in "iu":
        divisor = attributes["image_divisor_"] = _divisor(estimator, fitting, X.min(), X.max())
    elif X.ndim > 2 and X.dtype.kind == "f" and not mapped:
        divisor = attributes["image_divisor_"] = _float_divisor(estimator, fitting, float(X.max()))
    rows: Rows
    if mapped:
        rows = ArrayRows(X, shape.row, shape.arrange, divisor or 1.0)
    else:
        kept = X.dtype if X.dtype == np.float32 or (divisor == 255 and X.dtype == np.uint8) else np.float64
        if X.dtype != kept or not (X.flags.c_contiguous and X.flags.writeable):
            X = np.require(X, kept, ["C", "W"])
        rows = TensorRows(shape.arrange(torch.from_numpy(X)), divisor or 1.0)
    return UserInput(rows, shape, _numpy, attributes)
