"""One column of a table: its kind, inferred from its cells, and how its cells become numbers."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Literal, Self, get_args

import numpy as np
import scipy.sparse as sp

from .cells import (
    as_words,
    date_style,
    dates,
    in_figures,
    is_ambiguous,
    is_blank,
    is_code,
    is_unknown,
    is_year,
    number_style,
    numbers,
    style_and_sign,
)
from .texts import Words, is_without_spaces

Kind = Literal["number", "category", "date", "text", "skip"]
KINDS: tuple[Kind, ...] = get_args(Kind)

TEXT_COLUMNS = ("text", "texts", "body", "content", "document")  # text whatever words they have
MAX_CATEGORIES = 30  # largest number of categories of a column: rarer ones become "other"
COUNT_FROM = 20  # distinct consecutive whole numbers, from which on they are row numbers
FEW_WORDS = 10  # up to this many distinct words are categories in any case
TEXT_WORDS = 4  # mean number of words in a cell, from which on a column is text
TEXT_CHARACTERS = 8  # the same in characters, for languages without spaces between words
IDENTIFIER = re.compile(r"(^|.*[_\s.-])(id|idx|index|key|uuid|guid|unnamed: \d+)$|^$", re.IGNORECASE)
CAMEL_IDENTIFIER = re.compile(r".*[a-z](ID|Id)$")
YEAR, WEEK = 365.2425, 7.0  # days
# Cyclic parts of a date: their length in days, and the time span a column needs for them.
CYCLES = {"time of year": (YEAR, YEAR), "day of week": (WEEK, 2 * WEEK), "time of day": (1.0, 0.0)}
MOSTLY = 0.9  # smallest share of numbers, or dates, in a column of numbers, or dates
MOSTLY_IF_SAID = 0.5  # the same if the user gave the kind
CODE = re.compile(r"[^\W\d_]+[ _-]?\d.*")  # such as "V27": in such a column "250" is no quantity either
OTHER = "other"
WHY = {  # in words
    "constant": "it has one value",
    "all distinct": "all its values differ, as those of an id do",
    "code": "looks like a code",
    "count": "it counts the rows",
}
READ_AS = {  # numbers that could be read in two ways
    "1234.5": ", read as 1.234 = 1.234",
    "1.234,5": ", read as 1.234 = 1234",
    "1,234.5": ", read as 1,234 = 1234",
    "1234,5": ", read as 1,234 = 1.234",
}
A_DAY = datetime(2024, 12, 31, 10, 30)  # an example that shows how dates are written


class NonBlankCells:
    """The cells of a column that are not blank, and how they are written.

    Args:
        least: smallest share of numbers, or dates, in a column of numbers, or dates.
        decimal: the decimal sign of the file, if known.
    """

    def __init__(self, cells: np.ndarray, least: float, decimal: str | None) -> None:
        self.cells, self.least, self.decimal = cells, least, decimal

    def __len__(self) -> int:
        return len(self.cells)

    @cached_property
    def number_style(self) -> str | None:
        return "1234.5" if self.cells.dtype.kind == "f" else number_style(self.cells, self.least, self.decimal)

    @cached_property
    def date_style(self) -> str | None:
        return "iso" if self.cells.dtype.kind == "M" else date_style(self.cells, self.least)

    @cached_property
    def numbers(self) -> np.ndarray:
        """The cells as numbers in `number_style`; NaN for others."""
        return numbers(self.cells, self.number_style or "1234.5")

    @cached_property
    def dates(self) -> np.ndarray:
        """The cells as dates in `date_style`; NaT for others."""
        return dates(self.cells, self.date_style or "iso")

    def words(self) -> list[str]:
        return as_words(self.cells).tolist()


@dataclass(frozen=True)
class Column:
    """How one column is read.

    Args:
        name: as the table has it.
        kind: "number", "category", "date", "text", or "skip": left out.
        why: the reason, if it is left out.
        missing: share of blank cells in `fit`.
        style: how its numbers or dates are written.
        values: the known categories, sorted; "other" stands for rare ones.
        grouped: the categories that are "other".
        rounds: the cyclic parts of a date.
        words: the terms of a text.
    """

    name: str
    kind: Kind
    why: str = ""
    missing: float = 0.0
    style: str = ""
    values: tuple[str, ...] = ()
    grouped: bool = False
    rounds: tuple[str, ...] = ()
    words: Words | None = None
    distinct: int = 0  # number of distinct values in `fit`
    unread: int = 0  # number of cells in `fit` that are no number, or no date
    unread_words: tuple[str, ...] = ()  # some of them
    ambiguous: bool = False  # whether its points or commas may be decimal signs or separate thousands

    # ---- looking

    @classmethod
    def infer(cls, name: str, cells: np.ndarray, wish: Kind | None = None, decimal: str | None = None) -> Self:
        """Infer how to read a column. `wish` is the kind given by the user, `decimal` the decimal sign of the file."""
        blank = is_blank(cells)
        seen = cls(name, "skip", missing=float(blank.mean()) if len(cells) else 0.0)
        if wish == "skip":
            return replace(seen, why="as you said")
        if blank.all():
            return replace(seen, why="empty")
        there = cells[~blank]
        distinct = len(set(there.tolist()))
        seen = replace(seen, distinct=distinct)
        if wish is None and distinct == 1:
            return replace(seen, why="constant")
        present = NonBlankCells(there, MOSTLY_IF_SAID if wish else MOSTLY, decimal)
        return getattr(seen, f"_as_{wish or seen._infer_kind(present)}")(present)

    @classmethod
    def of_labels(cls, name: str) -> Self:
        return cls(name, "skip", why="labels, by its name")

    def _infer_kind(self, there: NonBlankCells) -> str:
        if there.cells.dtype.kind == "M":
            return "date"
        if is_code(there.cells):
            return "code" if self._is_mostly_distinct(there) else "category"
        if there.number_style is not None and self._are_few(there, is_blank(there.numbers)):
            return self._infer_kind_of_numbers(there.numbers)
        if there.date_style is not None and self._are_few(there, is_blank(there.dates)):
            return "date"
        if self.name.casefold() in TEXT_COLUMNS:
            return "text"
        words = there.words()
        distinct_enough = self._is_mostly_distinct(there)
        if distinct_enough and float(np.mean([len(word.split()) for word in words])) >= TEXT_WORDS:
            return "text"
        if distinct_enough and is_without_spaces(words):
            return "text" if np.mean([len(word) for word in words]) >= TEXT_CHARACTERS else "id"
        return "id" if distinct_enough else "category"

    def _is_mostly_distinct(self, there: NonBlankCells) -> bool:
        return self.distinct > max(FEW_WORDS, len(there) / 2)

    def _are_few(self, there: NonBlankCells, unread: np.ndarray) -> bool:
        """Whether unreadable cells may count as missing, because they are neither codes nor categories."""
        odd = {word for word in as_words(there.cells[unread]) if not is_unknown(word)}
        return not odd or (self.distinct > FEW_WORDS and not any(CODE.fullmatch(word) for word in odd))

    def _infer_kind_of_numbers(self, values: np.ndarray) -> str:
        values = values[~np.isnan(values)]
        if (values == values[0]).all():
            return "constant"
        if self.distinct < max(FEW_WORDS + 1, len(values)) or (values != np.round(values)).any():
            return "number"
        if is_identifier(self.name):
            return "id"
        first, last = float(values.min()), float(values.max())
        without_gap = len(values) >= COUNT_FROM and last - first + 1 == len(values)
        return "count" if without_gap and not (is_year(first) and is_year(last)) else "number"

    def _as_code(self, there: NonBlankCells) -> Self:
        return replace(self, why="code")

    def _as_count(self, there: NonBlankCells) -> Self:
        return replace(self, why="count")

    def _as_constant(self, there: NonBlankCells) -> Self:
        return replace(self, why="constant")

    def _with_unread(self, unread: np.ndarray) -> Self:
        """The column with words that are neither blank nor a number or date."""
        counts = Counter(as_words(unread).tolist())
        return replace(self, unread=counts.total(), unread_words=tuple(word for word, _ in counts.most_common(3)))

    def _as_id(self, there: NonBlankCells) -> Self:
        all_of_them = self.distinct == len(there)
        too_many = f"{self.distinct} of {len(there)} values differ, too many for a category"
        return replace(self, why="all distinct" if all_of_them else too_many)

    def _as_number(self, there: NonBlankCells) -> Self:
        style = there.number_style
        if style is None:
            raise ValueError(f"Column {self.name!r} should be a number, but has {_no_number(there.cells)!r}.")
        unread = is_blank(there.numbers)
        known = replace(self, kind="number", style=style, ambiguous=is_ambiguous(there.cells[~unread], style))
        return known._with_unread(there.cells[unread])

    def _as_date(self, there: NonBlankCells) -> Self:
        style, unread = there.date_style, is_blank(there.dates)
        if style is None:
            raise ValueError(
                f"Column {self.name!r} should be a date, but {str(there.cells[0])!r} and the others are not in one "
                "known format, such as 2024-12-31 or 31/12/2024."
            )
        days = _days(there.dates[~unread])
        reach = float(days.max() - days.min())
        clock = bool((days % 1).any())
        rounds = [
            name
            for name, (length, least) in CYCLES.items()
            if (reach >= least and clock if length == 1 else reach >= least)
        ]
        return replace(self, kind="date", style=style, rounds=tuple(rounds))._with_unread(there.cells[unread])

    def _as_category(self, there: NonBlankCells) -> Self:
        counts = Counter(there.words())
        kept = sorted(counts, key=lambda word: (-counts[word], word))[
            : MAX_CATEGORIES if len(counts) > MAX_CATEGORIES else None
        ]
        grouped = len(kept) < len(counts)
        return replace(self, kind="category", values=tuple(sorted(kept)), grouped=grouped)

    def _as_text(self, there: NonBlankCells) -> Self:
        try:
            return replace(self, kind="text", words=Words.fit(there.words()))
        except ValueError as error:
            raise ValueError(f"Column {self.name!r}: no words in its {len(there)} texts ({error}).") from error

    # ---- what it is

    @property
    def description(self) -> str:
        """In words: "category, 7 values"."""
        blanks = f", {100 * self.missing:.2g} % missing" if self.missing else ""
        if self.kind == "skip":
            return f"left out: {WHY.get(self.why, self.why)}"
        more = ""
        if self.kind == "category":
            more = f", {self.distinct} values" + (f", of which {MAX_CATEGORIES} are kept" if self.grouped else "")
        elif self.kind == "text" and self.words is not None:
            more = f", {len(self.words.terms)} {'characters' if self.words.characters else 'words'}"
        elif self.ambiguous:
            more = READ_AS[style_and_sign(self.style)[0]]
        elif self.style not in ("", "1234.5", "iso"):
            more = f" as in {A_DAY.strftime(self.style)}" if self.kind == "date" else f" as in {self.style}"
        return f"{self.kind}{more}{blanks}{self._unread_description}"

    @property
    def keeps_words(self) -> bool:
        """Whether its words contain more than the numbers they look like."""
        if self.kind == "category":
            return any(word.isdecimal() and len(word) > 1 and word[0] == "0" for word in self.values)
        return self.kind == "number" and self.style not in ("", "1234.5")

    @cached_property
    def _unread_description(self) -> str:
        if not self.unread:
            return ""
        some = ", ".join(map(repr, self.unread_words))
        cells = "1 cell is" if self.unread == 1 else f"{self.unread:,} cells are"
        return f"; {cells} no {self.kind} ({some}), counted as missing"

    @cached_property
    def features(self) -> list[str]:
        """Names of the features that it becomes."""
        if self.kind == "number":
            return [self.name]
        if self.kind == "category":
            return [f"{self.name} = {value}" for value in self.levels]
        if self.kind == "date":
            return [self.name] + [
                f"{self.name} ({part}, {wave})" for part in self.rounds for wave in ("sine", "cosine")
            ]
        if self.kind == "text" and self.words is not None:
            return [f"{self.name} “{term}”" for term in self.words.terms]
        return []

    @property
    def levels(self) -> tuple[str, ...]:
        """The values of a category, one per feature."""
        return (*self.values, OTHER) if self.grouped else self.values

    # ---- rows

    def encode(self, cells: np.ndarray) -> np.ndarray | sp.csr_matrix:
        """Features (n, len(features)); NaN for blank or unreadable cells. Texts are sparse, and zero if blank."""
        if self.kind == "number":
            return numbers(cells, self.style)[:, None]
        if self.kind == "date":
            return self._encode_dates(_days(dates(cells, self.style)))
        if self.kind == "category":
            return self._encode_categories(as_words(cells))
        assert self.words is not None
        return self.words.transform(["" if text is None else text for text in as_words(cells)])

    def unread_in(self, cells: np.ndarray, encoded: np.ndarray | sp.csr_matrix) -> Counter[str]:
        """Words of new rows that became blanks: unknown categories, and what is no number or no date."""
        if self.kind == "text":
            return Counter()
        assert isinstance(encoded, np.ndarray)
        words = as_words(cells[np.isnan(encoded[:, 0]) & ~is_blank(cells)]).tolist()
        return Counter(word for word in words if self.kind == "category" or not is_unknown(word))

    @property
    def example(self) -> str:
        """How its numbers or dates are written."""
        if self.kind == "date":
            return str(A_DAY.date()) if self.style == "iso" else A_DAY.strftime(self.style)
        return self.style

    def _encode_categories(self, words: np.ndarray) -> np.ndarray:
        levels = self.levels
        place = {value: i for i, value in enumerate(self.values)}
        other = len(self.values) if self.grouped else -1
        index = np.array([-1 if word is None else place.get(word, other) for word in words])
        rows = (index[:, None] == np.arange(len(levels))).astype(np.float64)
        rows[index < 0] = math.nan
        return rows

    def _encode_dates(self, days: np.ndarray) -> np.ndarray:
        angles = [2 * math.pi * days / CYCLES[part][0] for part in self.rounds]
        return np.stack([days, *(wave(angle) for angle in angles for wave in (np.sin, np.cos))], axis=1)

    def shown(self, value: float, beside: float = 0.0) -> str:
        """A value of its first feature, as the table would write it; `beside` is another in the same phrase."""
        if self.kind != "date":
            return in_figures(value, beside)
        return str(np.datetime64(0, "D") + np.timedelta64(round(value), "D"))

    def in_words(self, row: np.ndarray) -> str:
        """The features of a decoded row in words; shares are made to lie between 0 and 1 and to sum to 1."""
        if self.kind == "category":
            shares = np.clip(row, 0, 1)
            shares = shares / shares.sum() if shares.sum() > 0 else np.full(len(row), 1 / len(row))
            order = [i for i in np.argsort(-shares, kind="stable") if shares[i] >= 0.005]
            return ", ".join(f"{self.levels[i]} {100 * shares[i]:.0f} %" for i in order)
        if self.kind == "text":
            assert self.words is not None
            order = [i for i in np.argsort(-row, kind="stable")[:5] if row[i] > 0]
            return ", ".join(self.words.terms[i] for i in order)
        return self.shown(float(row[0]))

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "words": None if self.words is None else self.words.to_dict()}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Self:
        if saved["kind"] not in KINDS:
            raise ValueError(f"column {saved['name']!r} has the unknown kind {saved['kind']!r}")
        lists = {name: tuple(str(entry) for entry in saved[name]) for name in ("values", "rounds")}
        lists["unread_words"] = tuple(str(entry) for entry in saved.get("unread_words", ()))
        words = None if saved["words"] is None else Words.from_dict(saved["words"])
        return cls(**{**saved, **lists, "words": words})


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """The end of a message about a missing column: a column with a similar name, if there is one."""
    folded = {known.casefold(): known for known in names}
    close = get_close_matches(name.casefold(), folded, n=1)
    return f" (did you mean {folded[close[0]]!r}?)" if close else ""


def is_identifier(name: str) -> bool:
    return bool(IDENTIFIER.match(name) or CAMEL_IDENTIFIER.match(name))


def _days(moments: np.ndarray) -> np.ndarray:
    """Days since 1970-01-01; NaN for NaT."""
    days = (moments - np.datetime64(0, "us")) / np.timedelta64(1, "D")
    return np.where(np.isnat(moments), math.nan, days)


def _no_number(there: np.ndarray) -> str:
    return next((str(word) for word in there if number_style(np.array([word], object)) is None), str(there[0]))
