"""The cells of one column: what is blank, and how numbers and dates are written.

A column is one of three arrays: float64 with NaN for blanks, datetime64[us] with NaT, or object with `str` and None.
"""

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import numpy as np

BLANK = frozenset({"", "na", "n/a", "#n/a", "<na>", "nan", "nat", "null", "none", "?", "-", "--"})

# How numbers are written, in the order in which they are tried: a pattern, what separates thousands, the decimal sign.
NUMBERS: dict[str, tuple[re.Pattern[str], str, str]] = {
    "1234.5": (re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"), "", "."),
    "1,234.5": (re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d+)(\.\d*)?"), ",", "."),
    "1234,5": (re.compile(r"[+-]?(\d+,?\d*|,\d+)([eE][+-]?\d+)?"), "", ","),
    "1.234,5": (re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d*)?"), ".", ","),
    "1 234.5": (re.compile(r"[+-]?(\d{1,3}([ \u00a0\u202f']\d{3})+|\d+)(\.\d*)?"), " \u00a0\u202f'", "."),
    "1 234,5": (re.compile(r"[+-]?(\d{1,3}([ \u00a0\u202f']\d{3})+|\d+)(,\d*)?"), " \u00a0\u202f'", ","),
}
INFINITE = frozenset({"inf", "infinity"})

DATES = (
    "iso", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%Y/%m/%d", "%d-%m-%Y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y",
)  # fmt: skip
CLOCKS = ("", " %H:%M", " %H:%M:%S")


class BadCell(ValueError):
    """A cell that is not what its column is. `cell` and `row` (counted from 0) say which."""

    def __init__(self, cell: str, row: int) -> None:
        super().__init__(f"row {row} (the first is 0): {cell!r}")
        self.cell, self.row = cell, row


def cells_of(values: Any) -> np.ndarray:
    """A column of pandas, polars, arrow or numpy as one of the three arrays; whatever is no number and no date is text.
    Words that stand for a blank, as "NA" or "?", are None."""
    array = _as_array(values)
    if array.dtype.kind in "iuf":
        return array.astype(np.float64)
    if array.dtype.kind == "M":
        return array.astype("datetime64[us]")
    entries = [_entry(value) for value in array.tolist()] if array.dtype.kind != "b" else [str(v) for v in array]
    there = [entry for entry in entries if entry is not None]
    if there and all(isinstance(entry, float) for entry in there):
        return np.array([math.nan if entry is None else entry for entry in entries])
    if there and all(isinstance(entry, datetime) for entry in there):
        return np.array(entries, "datetime64[us]")
    found = np.empty(len(entries), object)
    found[:] = [entry if entry is None or isinstance(entry, str) else spelled(entry) for entry in entries]
    return found


def _as_array(values: Any) -> np.ndarray:
    kind = str(getattr(values, "dtype", ""))
    if hasattr(values, "to_list") and not kind.startswith(("float", "int", "uint", "datetime64[", "bool", "Float64")):
        return _objects(values.to_list())  # nullable types, categories, polars
    array = values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)
    return _objects(values.to_list()) if array.dtype.kind not in "iufMbOUST" else array


def _objects(values: list[Any]) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _entry(value: Any) -> str | float | datetime | None:
    """One cell of a column of mixed type: None where it is blank."""
    if isinstance(value, str):
        text = value.strip()
        return None if text.casefold() in BLANK else text
    if value is None or value != value or str(value) in ("NaT", "<NA>"):
        return None
    if isinstance(value, (bool, np.bool_)):
        return str(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return str(value)


def spelled(value: float | datetime) -> str:
    """A number or a date as a word: 3.0 is "3"."""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    return str(int(value)) if value.is_integer() else repr(value)


def is_blank(cells: np.ndarray) -> np.ndarray:
    if cells.dtype.kind == "f":
        return np.isnan(cells)
    return np.isnat(cells) if cells.dtype.kind == "M" else np.array([cell is None for cell in cells], bool)


def as_words(cells: np.ndarray) -> np.ndarray:
    """Any column as `str` and None."""
    if cells.dtype.kind == "O":
        return cells
    plain = [None if blank else spelled(v) for v, blank in zip(cells.tolist(), is_blank(cells), strict=True)]
    return _objects(plain)


def _parsed(cells: np.ndarray, parse: Callable[[str], Any], empty: Any) -> list[Any]:
    """parse of every word, once for those that are there often; BadCell for the first it cannot read."""
    known: dict[Any, Any] = {None: empty}
    found = []
    for row, word in enumerate(cells):
        if word not in known:
            try:
                known[word] = parse(word)
            except ValueError:
                raise BadCell(word, row) from None
        found.append(known[word])
    return found


def numbers(cells: np.ndarray, style: str) -> np.ndarray:
    """float64, NaN where blank, of words written in `style`, a name of `NUMBERS`."""
    if cells.dtype.kind == "f":
        return cells
    pattern, thousands, decimal = NUMBERS[style]

    def parse(word: str) -> float:
        if pattern.fullmatch(word):
            plain = word.translate({ord(sign): None for sign in thousands})
            return float(plain.replace(decimal, "."))
        if word.lstrip("+-").casefold() in INFINITE:
            return float(word)
        raise ValueError

    words = as_words(cells)
    try:
        return np.array(_parsed(words, parse, math.nan), np.float64)
    except BadCell:
        if style == "1234.5":
            raise
        return np.array(_parsed(words, float, math.nan), np.float64)  # new rows may have them as numbers


def number_style(cells: np.ndarray) -> str | None:
    """How all the words that are there are written as numbers; None where some are none."""
    return _style(cells, list(NUMBERS), numbers)


def date_parser(style: str) -> Callable[[str], datetime]:
    def parse(word: str) -> datetime:
        if style != "iso":
            return datetime.strptime(word, style)
        if not word[:4].isdigit() or len(word) < 8:
            raise ValueError
        found = datetime.fromisoformat(word)
        return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found

    return parse


def dates(cells: np.ndarray, style: str) -> np.ndarray:
    """datetime64[us], NaT where blank, of words written in `style`: "iso" or a format of strptime."""
    if cells.dtype.kind == "M":
        return cells
    try:
        return np.array(_parsed(as_words(cells), date_parser(style), None), "datetime64[us]")
    except BadCell:
        if style == "iso":
            raise
        return np.array(_parsed(as_words(cells), date_parser("iso"), None), "datetime64[us]")


def date_style(cells: np.ndarray) -> str | None:
    styles = [style if style == "iso" else style + clock for style in DATES for clock in CLOCKS]
    return _style(cells, list(dict.fromkeys(styles)), dates)


def _style(cells: np.ndarray, styles: list[str], parse: Callable[[np.ndarray, str], np.ndarray]) -> str | None:
    there = np.unique(cells[~is_blank(cells)].astype(str)).astype(object)
    if not len(there):
        return None
    for style in styles:
        try:
            parse(there[:100], style)
            parse(there, style)
        except BadCell:
            continue
        return style
    return None
