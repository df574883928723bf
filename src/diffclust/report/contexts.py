"""The words of a cluster where they stand: in texts of its rows."""

import re
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from ..explain.clusters import Census
from ..explain.tables import WORDS
from ..reading.texts import Words, telling_words

FITTED = 20_000  # texts at most that words are told from, evenly drawn
SHOWN = 5  # words of a cluster, each in one text
ASKED = 40  # rows of a cluster that are looked into
READ = 20_000  # characters of a text
AROUND = 45  # characters on either side of a word


def words_of_clusters(census: Census, texts: Sequence[str]) -> list[list[str]]:
    """The telling words of each cluster, from texts that the user gives beside the rows."""
    n, k = len(texts), len(census.means)
    rows = np.linspace(0, n - 1, min(n, FITTED)).astype(int)
    some = [str(texts[i])[:READ] for i in rows]
    try:
        words = Words.fit(some)
    except ValueError:  # not a word in any of them
        return [[] for _ in range(k)]
    labels = census.labels[rows]
    members = sp.csr_matrix((np.ones(len(rows)), (labels, np.arange(len(rows)))), (k, len(rows)))
    sums = (members @ words.transform(some)).toarray()
    return telling_words(sums / np.maximum(np.bincount(labels, minlength=k), 1)[:, None], words.terms, WORDS)


def in_context(words: Sequence[str], texts: Sequence[str], rows: Sequence[int]) -> list[tuple[int, str, str, str]]:
    """Each word in the first of the rows whose text has it, another row for each where there is one: the row, what
    stands before the word, the word as it is written, and what stands behind it."""
    found: list[tuple[int, str, str, str]] = []
    for word in words:
        if len(found) == SHOWN:
            break
        pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)" if word.isascii() else re.escape(word), re.IGNORECASE)
        used = {row for row, *_ in found}
        for row in sorted(rows[:ASKED], key=lambda row: row in used):
            text = str(texts[row])[:READ]
            at = pattern.search(text)
            if at is not None:
                found.append((row, _cut(text[: at.start()], end=True), at[0], _cut(text[at.end() :], end=False)))
                break
    return found


def _cut(text: str, *, end: bool) -> str:
    """The last or the first characters, by whole words, in one line."""
    flat = " ".join(text[-4 * AROUND :].split()) if end else " ".join(text[: 4 * AROUND].split())
    space = (" " if text[-1:].isspace() else "") if end else (" " if text[:1].isspace() else "")
    if len(flat) <= AROUND:
        return flat + space if end else space + flat
    part = flat[-AROUND:].partition(" ")[2] if end else flat[:AROUND].rpartition(" ")[0]
    return f"…{part or flat[-AROUND:]}{space}" if end else f"{space}{part or flat[:AROUND]}…"
