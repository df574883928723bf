"""Tables with named columns: those of pandas, polars and arrow, and our own if none of them is installed."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


class Frame:
    """A minimal table: arrays by name, and rows by number."""

    def __init__(self, cells: Mapping[str, np.ndarray]) -> None:
        self.cells = dict(cells)
        self.columns = list(self.cells)
        self.attrs: dict[str, Any] = {}
        self.shape = (len(next(iter(self.cells.values()))) if self.cells else 0, len(self.cells))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, which: Any) -> Any:
        """A column by its name, or some rows by their numbers."""
        if isinstance(which, str):
            return self.cells[which]
        return Frame({name: column[which] for name, column in self.cells.items()})


def frame_of(cells: Mapping[str, np.ndarray]) -> Any:
    """A DataFrame if pandas is installed, otherwise a `Frame`."""
    try:
        import pandas
    except ImportError:
        return Frame(cells)
    return pandas.DataFrame(dict(cells))


def with_decimal_sign(X: Any, sign: str | None) -> Any:
    """The frame with the decimal sign of its file in `attrs`, as pandas calls such metadata."""
    if sign is not None:
        X.attrs["diffclust decimal"] = sign
    return X


def decimal_sign_of(X: Any) -> str | None:
    return getattr(X, "attrs", {}).get("diffclust decimal")


def is_frame(X: Any) -> bool:
    """Whether X has columns with names."""
    return hasattr(X, "columns") and hasattr(X, "shape") and hasattr(X, "__getitem__")


def names_of_columns(X: Any) -> list[Any]:
    return list(X.columns)


def columns_of(X: Any, names: Iterable[Any]) -> dict[Any, Any]:
    """Columns by name; of two with the same name, the first."""
    listed = names_of_columns(X)
    if not hasattr(X, "iloc"):
        return {name: X[name] for name in names}
    return {name: X.iloc[:, listed.index(name)] for name in names}
