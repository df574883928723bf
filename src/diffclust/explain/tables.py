"""A cluster in the words of its table: the columns that tell it from the whole, most telling first."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..reading.cells import cells_of
from ..reading.columns import Column
from ..reading.frames import columns_of, is_frame, names_of_columns
from ..reading.tables import Columns, deviations
from ..reading.texts import telling_words

WORDS = 8  # of a text
NAMING = 3  # of them in a phrase
BARELY = 0.2  # standard deviations: a column that differs by less tells nothing
HAS = 1.5  # times that a category the rows have more of counts beside one that they have less of
BEYOND_CHANCE = 3.0  # standard errors that it should differ by


@dataclass(frozen=True)
class ColumnFact:
    """How the rows of a cluster differ from all rows in one column.

    Args:
        column: its name.
        kind: of the column.
        away: the largest difference of means, in standard deviations over all rows.
        sentence: in words: "income 2.1 sd above (52,000 against 31,000)", "plan = premium 83 % (against 21 %)".
        shares: of a category: each value with its share in the cluster and in the whole.
        words: of a text, most telling first.
        phrase: in a word or two: "high income", "plan = premium", "early since".
    """

    column: str
    kind: str
    away: float
    sentence: str
    shares: dict[str, tuple[float, float]] | None = None
    words: list[str] | None = None
    phrase: str = ""

    def to_dict(self) -> dict[str, object]:
        shares = None if self.shares is None else {value: list(pair) for value, pair in self.shares.items()}
        return {**vars(self), "shares": shares}


def column_facts(
    reading: Columns, means: np.ndarray, spread: np.ndarray, sizes: np.ndarray, j: int, least: float | None = None
) -> list[ColumnFact]:
    """Of cluster j, from means (k, f) of the rows' columns in each cluster, their deviations (f,) over all rows, and
    the sizes (k,) of the clusters. Texts come first.

    Args:
        least: the smallest difference that tells something, in standard deviations; by default more than rows drawn
            from the whole would differ by.
    """
    if least is None:
        least = max(BARELY, BEYOND_CHANCE * float(np.sqrt(1 / sizes[j] - 1 / sizes.sum())))
    whole = np.average(means, axis=0, weights=sizes)
    away = (means[j] - whole) / np.where(spread > 0, spread, np.inf)
    facts, done = [], 0
    for column in reading.used:
        here = slice(done, done + len(column.features))
        done = here.stop
        if column.kind == "text" and column.words is not None:
            facts.append(_text_fact(column, means[:, here], away[here], j))
        else:
            facts.append(_fact(column, means[j, here], whole[here], away[here]))
    telling = [fact for fact in facts if abs(fact.away) >= (min(least, BARELY) if fact.kind == "text" else least)]
    return sorted(telling, key=lambda fact: (fact.kind != "text", -abs(fact.away)))


def _text_fact(column: Column, means: np.ndarray, away: np.ndarray, j: int) -> ColumnFact:
    assert column.words is not None
    words = telling_words(means, column.words.terms, WORDS)[j]
    text, phrase = f"words: {', '.join(words)}", ", ".join(words[:NAMING])
    return ColumnFact(column.name, "text", float(np.abs(away).max()), text, words=words, phrase=phrase)


def _fact(column: Column, mean: np.ndarray, whole: np.ndarray, away: np.ndarray) -> ColumnFact:
    if column.kind == "category":
        most = int(np.argmax(np.where(away > 0, HAS * away, -away)))
        text = f"{column.features[most]} {100 * mean[most]:.0f} % (against {100 * whole[most]:.0f} %)"
        pairs = zip(column.levels, mean.tolist(), whole.tolist(), strict=True)
        shares = {value: (own, of_all) for value, own, of_all in pairs}
        is_so = away[most] > 0
        phrase = column.features[most] if is_so else f"{column.name} not {column.levels[most]}"
        return ColumnFact(column.name, "category", float(away[most]), text, shares, phrase=phrase)
    against = f"{column.shown(mean[0], whole[0])} against {column.shown(whole[0], mean[0])}"
    text = f"{column.name} {deviations(away[0])} ({against})"
    high, low = ("late", "early") if column.kind == "date" else ("high", "low")
    phrase = f"{high if away[0] > 0 else low} {column.name}"
    return ColumnFact(column.name, column.kind, float(away[0]), text, phrase=phrase)


def cell_phrase(reading: Columns, row: np.ndarray, at: int) -> str:
    """A cell of a row (features,), by the number of its column among those that are used: "income 2.1 sd above",
    "plan = premium", "since 2024-05-01"."""
    column, cell = reading.used[at], reading.cell(row, at)
    start = sum(len(each.features) for each in reading.used[:at])
    if column.kind == "number":
        return reading.phrase(start, float(row[start]))
    return f"{column.name} = {cell}" if column.kind == "category" else f"{column.name} {cell}"


def shown_cell(reading: Columns, row: np.ndarray, at: int, blank: np.ndarray | None) -> str:
    """The cell as the table would write it. Where it was `blank` (columns,) it is said to be filled."""
    cell = reading.cell(row, at)
    return f"missing (filled: {cell})" if blank is not None and blank[at] else cell


def blank_cells(reading: Columns, X: Any) -> np.ndarray | None:
    """Which cells of a table, (n, columns that are used), were blank, or of a category that is not known; None for what
    is no table. A text that is blank is not filled."""
    if not is_frame(X):
        return None
    given = {str(name): name for name in reversed(names_of_columns(X))}
    columns = columns_of(X, [given[column.name] for column in reading.used])
    blank = [
        np.zeros(X.shape[0], bool)
        if column.kind == "text"
        else np.isnan(column.encode(cells_of(columns[given[column.name]]))).any(1)
        for column in reading.used
    ]
    return np.stack(blank, axis=1)


def some_rows(X: Any, rows: list[int]) -> Any:
    """Some rows of a table or an array, as one of its own kind."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]
