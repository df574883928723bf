"""A table of mixed columns: the kinds of its columns are inferred once, and rows of all later tables are read alike.

Numbers keep their units, a category becomes a column of zeros and ones for each of its values, a date a number of days
and its cyclic parts, a text tf-idf. Columns of identifiers, and constant columns, are left out. Blank cells are filled
from the other cells of their row (see `filling`).

The order of the columns does not matter: they are sorted by name.
"""

import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from .cells import as_words, cells_of, is_blank
from .columns import KINDS, Column, Kind, did_you_mean, is_identifier
from .filling import Fill
from .frames import columns_of, decimal_sign_of, frame_of, is_frame, names_of_columns
from .labels import label_column, may_be_labels

FEW_CELLS = 10  # up to this many unreadable cells are not counted in a warning


@dataclass(frozen=True)
class Columns:
    """How a table is read.

        reading = Columns.fit(frame)
        print(reading.describe())
        rows = reading.transform(frame)

    Args:
        columns: a `Column` for each column of the table, in its order.
        scale: divisors of the columns of the rows if kinds are mixed, so that every column of the table has about the
            same weight; None if all are numbers, or if there is only a text: then the scale is chosen from the rows.
        fill: how blanks are filled; None if there are only texts, whose blanks are empty texts.
    """

    columns: tuple[Column, ...]
    scale: np.ndarray | None
    fill: Fill | None

    @classmethod
    def fit(cls, X: Any, wishes: Mapping[str, Kind] | None = None) -> Self:
        """Infer the kinds of the columns. `wishes`: kinds by name, which override what is inferred."""
        names = _checked_names(X)
        wishes = _checked_wishes(wishes, names)
        unsaid = [name for name in names if name not in wishes]
        cells = _cells(X, names)
        label = label_column(unsaid, may_be=lambda i: may_be_labels(as_words(cells[unsaid[i]])))
        columns = tuple(
            Column.of_labels(name)
            if label is not None and name == unsaid[label]
            else Column.infer(name, cells[name], wishes.get(name), decimal_sign_of(X))
            for name in names
        )
        used = _used(columns)
        if not used:
            told = "; ".join(f"{column.name}: {column.description}" for column in columns[:5])
            raise ValueError(f"No column of the table is left to cluster by ({told}).")
        bare = cls(columns, None, None)
        encoded = bare._encoded(cells)
        plain = [encoded[column.name] for column in used if column.kind != "text"]
        if plain:
            rows = np.concatenate(plain, axis=1)
            bare._check_finite(rows)
            bare = cls(columns, None, Fill.fit(rows))
        kinds = {column.kind for column in used}
        if kinds == {"number"} or (kinds == {"text"} and len(used) == 1):
            return bare
        return cls(columns, bare._even_scale(bare._rows(encoded)), bare.fill)

    def _even_scale(self, rows: Any) -> np.ndarray:
        """The divisors: numbers by their standard deviation; all parts of a date, or all words of a text, together
        count as one number; two different categories are as far apart as numbers that differ by one deviation."""
        rows = rows.astype(np.float64)
        mean = np.asarray(rows.mean(0)).ravel()
        squares = rows.multiply(rows) if sp.issparse(rows) else rows**2
        variance = np.maximum(np.asarray(squares.mean(0)).ravel() - mean**2, 0)
        scale, done = np.ones(len(mean)), 0
        for column in self.used:
            here = slice(done, done + len(column.features))
            done = here.stop
            if column.kind == "category":
                scale[here] = np.sqrt(2)
            elif column.kind == "date":  # days and sines have different variances, and get equal weights
                scale[here] = np.sqrt(variance[here] * len(column.features))
            else:
                scale[here] = np.sqrt(variance[here].sum())
        return np.where(scale > 1e-6 * np.abs(mean), scale, 1.0)

    # ---- what it is

    @cached_property
    def used(self) -> list[Column]:
        """The columns that are not left out, in the order of the features."""
        return _used(self.columns)

    @property
    def names(self) -> list[str]:
        """The names of the columns of the table."""
        return [column.name for column in self.columns]

    @property
    def kept_as_words(self) -> list[str]:
        """The columns that are read as words, although they may look like numbers."""
        return [column.name for column in self.used if column.keeps_words]

    @cached_property
    def features(self) -> list[str]:
        """Names of the features: "income", "plan = premium"."""
        if self.is_text and self.used[0].words is not None:
            return list(self.used[0].words.terms)
        return [feature for column in self.used for feature in column.features]

    @property
    def is_text(self) -> bool:
        """Whether a text is the only column."""
        return [column.kind for column in self.used] == ["text"]

    def takes(self, X: Any) -> bool:
        """Whether rows without names may belong to this table: they have the same number of columns."""
        return X.shape[1:] == (len(self.names),) and all(column.kind in ("number", "skip") for column in self.columns)

    def captions(self, X: Any) -> list[str] | None:
        """A caption for each row: its text, or else its cell in the first column of distinct words."""
        called = [column.name for column in self.used if column.kind == "text"]
        called += [column.name for column in self.columns if column.why in ("all distinct", "count")]
        given = {str(name) for name in names_of_columns(X)} if is_frame(X) else set()
        name = next((name for name in called if name in given), None)
        return None if name is None else [word or "" for word in as_words(_cells(X, [name])[name])]

    @property
    def texts(self) -> slice:
        """Which features are words of texts."""
        start = sum(len(column.features) for column in self.used if column.kind != "text")
        return slice(start, len(self.features))

    def place(self, feature: int) -> tuple[Column, int]:
        """The column that a feature belongs to, and which of its features it is."""
        for column in self.used:
            if feature < len(column.features):
                return column, feature
            feature -= len(column.features)
        raise IndexError(feature)

    def phrase(self, feature: int, value: float) -> str:
        """A feature of a row in words: "income 2.1 sd above", "plan = premium", "plan is not basic"."""
        column, part = self.place(feature)
        if column.kind == "text" or self.fill is None:
            return f"“{self.features[feature]}”" if self.is_text else self.features[feature]
        if column.kind == "category":
            return column.features[part] if value > 0.5 else f"{column.name} is not {column.levels[part]}"
        return f"{column.features[part]} {deviations((value - self.fill.mean[feature]) / self.fill.deviation[feature])}"

    def in_words(self, rows: np.ndarray) -> Any:
        """Decoded rows, such as centres, as a table: numbers and dates in their own format, shares of categories
        ("premium 83 %, basic 17 %"), the heaviest words of texts."""
        rows = np.asarray(rows, np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(self.features):
            raise ValueError(f"rows have shape {rows.shape}, but the table becomes {len(self.features)} numbers a row.")
        said, done = {}, 0
        for column in self.used:
            here = rows[:, done : done + len(column.features)]
            done += len(column.features)
            said[column.name] = np.array([column.in_words(row) for row in here], object)
        return frame_of({name: said[name] for name in self.names if name in said})

    @cached_property
    def _starts(self) -> list[int]:
        """Where the features of each column begin and end."""
        return [0, *accumulate(len(column.features) for column in self.used)]

    def by_column(self, figures: np.ndarray) -> np.ndarray:
        """Values of features (n, features), summed over the features of each used column."""
        return np.add.reduceat(figures, self._starts[:-1], axis=1)

    def cell(self, row: np.ndarray, column: int) -> str:
        """The cell of a row (features,) in one of the used columns, as the table would write it."""
        start, end = self._starts[column : column + 2]
        return self.used[column].in_words(row[start:end]).removesuffix(" 100 %")

    def describe(self) -> str:
        """One line per column: "income: number, 3 % missing"."""
        return "\n".join(f"{column.name}: {column.description}" for column in self.columns)

    def __str__(self) -> str:
        return self.describe()

    # ---- rows

    def transform(self, X: Any) -> np.ndarray | sp.csr_matrix:
        """Convert a table with the columns of the fit to rows: float64 (n, features), or sparse if there are texts.

        An unknown category, and what is no number or no date, is treated as missing, with a warning. A missing column
        raises an error.
        """
        if not is_frame(X):
            X = _named(X, self.names)
        names = [str(name) for name in names_of_columns(X)]
        missing = [column.name for column in self.used if column.name not in names]
        if missing:
            it = "it" if len(missing) == 1 else "them"
            lower = {name.casefold() for name in missing}
            alike = [name for name in names if name.casefold() in lower]
            in_capitals = {name.casefold() for name in alike} == lower
            raise ValueError(
                f"X has no column {', '.join(map(repr, missing))}, which fit saw; "
                f"it has {_some(alike if in_capitals else names)}. "
                + (f"Capitals count: rename {it}." if in_capitals else f"Add {it} empty to have {it} filled.")
            )
        cells = _cells(X, [column.name for column in self.used])
        if not len(next(iter(cells.values()))):
            raise ValueError("Found a table with 0 rows while a minimum of 1 is required.")
        encoded = self._encoded(cells)
        for column in self.used:
            if new := column.unread_in(cells[column.name], encoded[column.name]):
                what = (
                    "categories that fit did not see"
                    if column.kind == "category"
                    else f"cells that are no {column.kind}"
                )
                text = f"Column {column.name!r} has {what}, treated as missing: {_some(sorted(new))}."
                known = int((~is_blank(cells[column.name])).sum())
                if new.total() > max(FEW_CELLS, known / 2):  # rather a file of another kind than a few odd cells
                    written = "" if column.kind == "category" else f"; in fit they were written as {column.example}"
                    text += f" These are {new.total():,} of its {known:,} cells{written}."
                warnings.warn(text, UserWarning, stacklevel=_level_of_caller())
        return self._rows(encoded)

    def _encoded(self, cells: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The features of each column."""
        return {column.name: column.encode(cells[column.name]) for column in self.used}

    def _rows(self, encoded: Mapping[str, Any]) -> np.ndarray | sp.csr_matrix:
        plain = [encoded[column.name] for column in self.used if column.kind != "text"]
        texts = [encoded[column.name] for column in self.used if column.kind == "text"]
        filled = None
        if plain and self.fill is not None:
            rows = np.concatenate(plain, axis=1)
            self._check_finite(rows)
            filled = self.fill.transform(rows)
        if not texts:
            assert filled is not None
            return filled
        whole = [] if filled is None else [sp.csr_matrix(filled)]
        return sp.csr_matrix(sp.hstack([*whole, *texts], format="csr"))

    def _check_finite(self, rows: np.ndarray) -> None:
        infinite = np.isinf(rows)
        if infinite.any():
            row, place = np.argwhere(infinite)[0]
            raise ValueError(f"Input X contains infinity: column {self.features[place]!r}, row {row} (the first is 0).")

    # ---- keeping

    def to_dict(self) -> dict[str, Any]:
        return {
            "columns": [column.to_dict() for column in self.columns],
            "scale": None if self.scale is None else self.scale.tolist(),
            "fill": None if self.fill is None else self.fill.to_dict(),
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Self:
        scale = None if saved["scale"] is None else np.array(saved["scale"], np.float64)
        fill = None if saved["fill"] is None else Fill.from_dict(saved["fill"])
        reading = cls(tuple(Column.from_dict(column) for column in saved["columns"]), scale, fill)
        plain = reading.texts.start
        if (fill is not None and len(fill.mean) != plain) or (
            scale is not None and len(scale) != len(reading.features)
        ):
            raise ValueError("the columns of its table do not fit together")
        return reading


def _level_of_caller() -> int:
    """The stacklevel, for the calling function, of the first caller outside of diffclust and its decorators."""
    frame, level = sys._getframe(1), 1
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith(
        ("diffclust.", "sklearn.", "torch.", "contextlib")
    ):
        frame, level = frame.f_back, level + 1
    return level


def deviations(away: float) -> str:
    """A difference in standard deviations, in words."""
    return f"{abs(away):.1f} sd {'above' if away >= 0 else 'below'}"


def needs_column_types(X: Any, wishes: Mapping[str, Kind] | None) -> bool:
    """Whether X is a table that is not only rows of numbers: it has a column of words or dates, a blank cell, or a
    column of identifiers; or the user gave `columns`."""
    if not is_frame(X):
        return False
    if wishes is not None or non_numeric_columns(X):
        return True
    counted = {str(name): values for name, values in _columns(X).items() if is_identifier(str(name))}
    return any(Column.infer(name, cells_of(values)).why == "all distinct" for name, values in counted.items())


def non_numeric_columns(X: Any) -> list[str]:
    """Columns with words, dates or blanks."""
    if hasattr(X, "sparse") and _is_sparse(X):
        return []
    odd = []
    for name, values in _columns(X).items():
        array = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
        if array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and np.isnan(array).any()):
            odd.append(str(name))
    return odd


def _columns(X: Any) -> dict[Any, Any]:
    return columns_of(X, names_of_columns(X))


def _is_sparse(X: Any) -> bool:
    return any("Sparse" in str(kind) for kind in X.dtypes)


def _used(columns: tuple[Column, ...]) -> list[Column]:
    """The used columns, sorted by name, texts last."""
    there = [column for column in columns if column.kind != "skip"]
    return sorted(there, key=lambda column: (column.kind == "text", column.name))


def _cells(X: Any, names: list[str]) -> dict[str, np.ndarray]:
    given = {str(name): name for name in reversed(names_of_columns(X))}
    columns = columns_of(X, [given[name] for name in names])
    return {name: cells_of(columns[given[name]]) for name in names}


def _named(X: Any, names: list[str]) -> Any:
    """A table from an array whose columns have the order of the fit."""
    from .frames import Frame

    array = np.asarray(X, object)
    if array.ndim != 2 or array.shape[1] != len(names):
        shape = f"{array.shape[1]} features" if array.ndim == 2 else f"shape {array.shape}"
        raise ValueError(f"X has {shape}, but the estimator is expecting {len(names)} features as input: a table.")
    return Frame({name: array[:, i] for i, name in enumerate(names)})


def _checked_names(X: Any) -> list[str]:
    names = [str(name) for name in names_of_columns(X)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"The table has more than one column named {', '.join(map(repr, twice))}: rename them.")
    if not names or not X.shape[0]:
        raise ValueError(f"Found a table of shape {tuple(X.shape)} while a minimum of 1 row and 1 column is required.")
    return names


def _checked_wishes(wishes: Mapping[str, Kind] | None, names: list[str]) -> dict[str, Kind]:
    wishes = {str(name): kind for name, kind in (wishes or {}).items()}
    for name, kind in wishes.items():
        if name not in names:
            raise ValueError(
                f"columns: there is no column {name!r}{did_you_mean(name, names)}; there are {_some(names)}."
            )
        if kind not in KINDS:
            raise ValueError(f"columns: {name!r} is to be {kind!r}, which should be one of {', '.join(KINDS)}.")
    return wishes


def _some(names: list[str]) -> str:
    return ", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
