"""The cells of one column: what is blank, and how numbers and dates are written.

A column is one of three arrays: float64 with NaN for blanks, datetime64[us] with NaT, or object with `str` and None.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, date, datetime
from typing import Any

import numpy as np

BLANK = frozenset({"", "na", "n/a", "#n/a", "<na>", "nan", "nat", "null", "none", "?", "-", "--"})
# Blank among numbers and dates; in a category they are a value.
UNKNOWN = frozenset(
    {
        "unknown", "missing", "not available", "not known", "n.a.", "n. a.", "tbd", "unbekannt", "fehlt", "fehlend",
        "k.a.", "k. a.", "k.a", "ka", "keine angabe", "inconnu", "inconnue", "desconocido", "desconocida", ".", "---",
    }
)  # fmt: skip

# Styles of numbers, in the order in which they are tried: a pattern, the separators of thousands, the decimal sign.
NUMBERS: dict[str, tuple[re.Pattern[str], str, str]] = {
    "1234.5": (re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"), "", "."),
    "1,234.5": (re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d+)(\.\d*)?"), ",", "."),
    "1234,5": (re.compile(r"[+-]?(\d+,?\d*|,\d+)([eE][+-]?\d+)?"), "", ","),
    "1.234,5": (re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d*)?"), ".", ","),
    "1 234.5": (re.compile(r"[+-]?(\d{1,3}([ \u00a0\u202f']\d{3})+|\d+)(\.\d*)?"), " \u00a0\u202f'", "."),
    "1 234,5": (re.compile(r"[+-]?(\d{1,3}([ \u00a0\u202f']\d{3})+|\d+)(,\d*)?"), " \u00a0\u202f'", ","),
}
# A point or comma that may separate thousands in all words that have one, and pairs of styles that it may mean.
THOUSANDS = {sign: re.compile(rf"[+-]?[1-9]\d{{0,2}}(\{sign}\d{{3}})+([.,]\d*)?") for sign in ".,"}
RIVALS = {"1234.5": "1.234,5", "1.234,5": "1234.5", "1,234.5": "1234,5", "1234,5": "1,234.5"}
# Signs before or after a number, and units after one, the same in a whole column. A style may end in one: "1.234,5 €".
UNITS = (
    "mm", "cm", "m", "km", "mg", "g", "kg", "lb", "lbs", "ml", "l", "m²", "m³", "ms", "s", "min", "h", "°C", "°F",
    "W", "kW", "kWh", "km/h", "mph", "bpm", "MB", "GB",
)  # fmt: skip
SIGNS = ("€", "$", "£", "¥", "₹", "%", "EUR", "USD", "GBP", "CHF", *UNITS)
DIGITS = re.compile(r"[+-]?\d[\d.,]*")
FIRST_YEAR, LAST_YEAR = 1800, 2100  # whole numbers in this range may be years
INFINITE = frozenset({"inf", "infinity"})

DATES = (
    "iso", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%Y/%m/%d", "%d-%m-%Y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y",
    "%d-%b-%Y", "%Y-%m", "%d/%m/%y", "%m/%d/%y", "%d.%m.%y",
)  # fmt: skip
CLOCKS = ("", " %H:%M", " %H:%M:%S")


def cells_of(values: Any) -> np.ndarray:
    """A column of pandas, polars, arrow or numpy as one of the three arrays; what is no number and no date is text.
    Words that mean blank, such as "NA" or "?", become None."""
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
        return objects(values.to_list())  # nullable types, categories, polars
    array = values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)
    return objects(values.to_list()) if array.dtype.kind not in "iufMbOUST" else array


def objects(values: list[Any]) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _entry(value: Any) -> str | float | datetime | None:
    """One cell of a column of mixed types; None if it is blank."""
    if isinstance(value, str):
        text = value.strip()
        return None if text.casefold() in BLANK else text
    if value is None or str(value) in ("NaT", "<NA>") or value != value:  # comparing <NA> gives no bool
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
    return objects(plain)


def _parsed(cells: Iterable[Any], parse: Callable[[str], Any], empty: Any) -> tuple[list[Any], int]:
    """The values of all words by `parse`, with `empty` for words that it cannot read, and how many these are. Repeated
    words are parsed once."""
    known: dict[Any, Any] = {None: empty}
    found, unread = [], 0
    for word in cells:
        if word not in known:
            known[word] = _tried(parse, word, empty)
        unread += known[word] is empty and word is not None
        found.append(known[word])
    return found, unread


def _tried(parse: Callable[[str], Any], word: str, empty: Any) -> Any:
    try:
        return parse(word)
    except ValueError:
        return empty


def _best_parsed(words: np.ndarray, parsers: list[Callable[[str], Any]], empty: Any) -> list[Any]:
    """The values by the parser that leaves the fewest words unread; the first of several."""
    tries = []
    for parse in parsers:
        found, unread = _parsed(words, parse, empty)
        if not unread:
            return found
        tries.append((unread, found))
    return min(tries, key=lambda tried: tried[0])[1]


def number_parser(style: str) -> Callable[[str], float]:
    bare, sign = style_and_sign(style)
    pattern, thousands, decimal = NUMBERS[bare]

    def parse(word: str) -> float:
        word = _without(sign, word)
        if pattern.fullmatch(word):
            plain = word.translate({ord(sign): None for sign in thousands})
            return float(plain.replace(decimal, "."))
        if word.lstrip("+-").casefold() in INFINITE:
            return float(word)
        raise ValueError

    return parse


def numbers(cells: np.ndarray, style: str) -> np.ndarray:
    """Words in `style`, a name of `NUMBERS`, as float64; NaN for blanks and for words that are no number."""
    if cells.dtype.kind == "f":
        return cells
    parsers: list[Callable[[str], Any]] = [number_parser(style)]
    if style != "1234.5":
        parsers.append(float)  # new rows may have Python numbers
    return np.array(_best_parsed(as_words(cells), parsers, math.nan), np.float64)


def number_style(cells: np.ndarray, least: float = 1.0, decimal: str | None = None) -> str | None:
    """The style of the numbers in a column; None if a share of less than `least` of its words are numbers. `decimal` is
    the decimal sign of the file, if known."""
    words = as_words(cells)
    sign = sign_of(words)
    if not sign:
        return _bare_style(words, least, decimal)
    bare = _bare_style(np.array([word and _without(sign, word) for word in words], object), least, decimal)
    return bare and f"{bare} {sign}"


def _bare_style(cells: np.ndarray, least: float, decimal: str | None) -> str | None:
    words, first = written_as_numbers(cells), []
    if may_be_thousands(words, ".", decimal):
        first = ["1.234,5"]
    elif decimal == "," or not groups_thousands(words, ","):
        first = ["1234.5", "1234,5"]
    return _style(cells, list(dict.fromkeys([*first, *NUMBERS])), number_parser, least)


def is_code(words: np.ndarray) -> bool:
    """Whether all words have the same number of digits and some begin with 0, as postcodes and article numbers."""
    if words.dtype.kind != "O":
        return False
    there = [word.strip() for word in words if word is not None]
    digits = [word for word in there if word.isdecimal()]
    if not any(word[0] == "0" for word in digits) or len({len(word) for word in digits}) > 1:
        return False
    return len(digits[0]) > 1 and all(word.isdecimal() or word.casefold() in BLANK | UNKNOWN for word in there)


def is_year(value: float) -> bool:
    """Whether this number may be a year."""
    return FIRST_YEAR <= value <= LAST_YEAR and value.is_integer()


def style_and_sign(style: str) -> tuple[str, str]:
    """The name in `NUMBERS` and the sign, or "", of a style such as "1.234,5 €"."""
    bare, _, sign = style.rpartition(" ")
    return (bare, sign) if sign in SIGNS else (style, "")


def sign_of(cells: np.ndarray) -> str:
    """The commonest of `SIGNS` in a column, or ""."""
    words = list(dict.fromkeys(word for word in cells if word is not None))
    counts = Counter(
        sign
        for word in words[:: max(1, len(words) // 1000)]
        for sign in SIGNS
        if sign in word and DIGITS.fullmatch(_without(sign, word).replace(" ", ""))
    )
    return max(SIGNS, key=lambda sign: counts[sign]) if counts else ""


def _without(sign: str, word: str) -> str:
    """A number without the sign before or after it: "-$5" is -5. A unit is after it: "m5" is a code."""
    if not sign:
        return word
    if word.endswith(sign):
        return word.removesuffix(sign).rstrip()
    if sign in UNITS:
        return word
    amount = word.lstrip("+-")
    minus = word.removesuffix(amount)
    return minus + amount.removeprefix(sign).lstrip() if amount.startswith(sign) else word


def may_be_thousands(words: Collection[str], sign: str, decimal: str | None) -> bool:
    """Whether this sign separates thousands: `groups_thousands`, and either some words are without it, or the decimal
    sign is known and another one."""
    if decimal == sign or not groups_thousands(words, sign):
        return False
    return decimal is not None or any(sign not in word for word in words)


def written_as_numbers(words: Iterable[str | None]) -> set[str]:
    """The distinct words of digits, points and commas."""
    stripped = (word.strip() for word in words if word is not None)
    return {word for word in stripped if DIGITS.fullmatch(word)}


def groups_thousands(words: Collection[str], sign: str) -> bool:
    """Whether three digits follow every occurrence of this sign, the number before it is not 0, and words without it
    are below 1000."""
    grouped = [word for word in words if sign in word]
    rest = (word for word in words if sign not in word)
    return (
        bool(grouped)
        and all(THOUSANDS[sign].fullmatch(word) for word in grouped)
        and all(len(re.split("[.,]", word.lstrip("+-"))[0]) <= 3 for word in rest)
    )


def is_ambiguous(cells: np.ndarray, style: str) -> bool:
    """Whether words of this style can also be read as numbers a thousand times as large or small."""
    if cells.dtype.kind == "f":
        return False
    bare, currency = style_and_sign(style)
    rival, sign = RIVALS.get(bare), "." if bare in ("1234.5", "1.234,5") else ","
    words = written_as_numbers(_without(currency, word) for word in as_words(cells))
    return rival is not None and groups_thousands(words, sign) and not _parsed(words, number_parser(rival), None)[1]


def date_parser(style: str) -> Callable[[str], datetime]:
    def parse(word: str) -> datetime:
        if style != "iso":
            if (style == "%Y-%m" and word[:2] not in ("19", "20")) or (style[:8] == "%d.%m.%y" and word[2:6:3] != ".."):
                raise ValueError  # more likely a version or a telephone number
            return datetime.strptime(word, style)
        if not word[:4].isdigit() or len(word) < 8:
            raise ValueError
        found = datetime.fromisoformat(word)
        return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found

    return parse


def dates(cells: np.ndarray, style: str) -> np.ndarray:
    """Words in `style`, "iso" or a format of strptime, as datetime64[us]; NaT for blanks and for words that are no
    date."""
    if cells.dtype.kind == "M":
        return cells
    parsers = [date_parser(each) for each in dict.fromkeys((style, "iso"))]
    return np.array(_best_parsed(as_words(cells), parsers, None), "datetime64[us]")


def date_style(cells: np.ndarray, least: float = 1.0) -> str | None:
    styles = [style if style == "iso" else style + clock for style in DATES for clock in CLOCKS]
    return _style(cells, list(dict.fromkeys(styles)), date_parser, least)


def is_unknown(word: str) -> bool:
    """Whether this word means blank among numbers or dates."""
    return word.casefold() in UNKNOWN


def _style(
    cells: np.ndarray, styles: list[str], parser: Callable[[str], Callable[[str], Any]], least: float
) -> str | None:
    """The first style in which all known words can be read, or else the one in which most can, if these are a share of
    at least `least`."""
    counts = Counter(word for word in as_words(cells) if word is not None and not is_unknown(word))
    some = list(counts)[:: max(1, len(counts) // 100)]
    best, most = None, 0
    for style in styles:
        parse = parser(style)
        if all(_tried(parse, word, None) is None for word in some):
            continue
        read = sum(n for word, n in counts.items() if _tried(parse, word, None) is not None)
        if read > most:
            best, most = style, read
        if most == counts.total():
            break
    return best if most and most >= least * counts.total() else None


def in_figures(value: float, beside: float = 0.0) -> str:
    """A number with four digits, but whole numbers and cents in full: 2019, 95833, 1,200,000. Five digits are grouped
    only `beside` six: 48,722 against 141,814."""
    if abs(value) < 100:
        return f"{value:.4g}"
    if abs(value) < 10_000:
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return f"{value:.0f}" if max(abs(value), abs(beside)) < 100_000 else f"{value:,.0f}"
