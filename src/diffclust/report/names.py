"""What people call clusters and rows: given on the page of a report, exported there, and read back here."""

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

KINDS = ("cluster", "row")
HEAD = ["kind", "number", "name"]
LONGEST = 200  # characters of a name


@dataclass(frozen=True)
class Names:
    """Names by number.

    Attributes:
        clusters: cluster -> its name.
        rows: row -> its name, or label.
    """

    clusters: dict[int, str] = field(default_factory=dict)
    rows: dict[int, str] = field(default_factory=dict)

    def labels(self, n: int) -> np.ndarray:
        """The names of n rows, (n,): None if a row has none. Scores and reports accept it as their `y`."""
        if self.rows and max(self.rows) >= n:
            raise ValueError(f"row {max(self.rows)} has a name, but there are {n} rows.")
        found = np.full(n, None, dtype=object)
        for row, name in self.rows.items():
            found[row] = name
        return found

    def of(self, labels: Sequence[int] | np.ndarray) -> np.ndarray:
        """The name of the cluster of each label (n,), or its number in words."""
        return np.array([self.clusters.get(j, str(j)) for j in np.asarray(labels).tolist()], dtype=object)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save in the format of the report: a .json or a .csv file."""
        path = Path(path)
        if _kind(path) == ".json":
            path.write_text(json.dumps({"clusters": self.clusters, "rows": self.rows}, ensure_ascii=False), "utf-8")
            return
        with path.open("w", encoding="utf-8", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(HEAD)
            for kind, names in zip(KINDS, (self.clusters, self.rows), strict=True):
                lines.writerows([kind, number, name] for number, name in names.items())


def load_names(path: str | os.PathLike[str]) -> Names:
    """Load the names of clusters and rows that were given in a report.

    Args:
        path: the .json or .csv file that the report exported.
    """
    path = Path(path)
    kind = _kind(path)
    text = path.read_bytes().decode("utf-8-sig")
    try:
        return _of_json(json.loads(text)) if kind == ".json" else _of_csv(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} has no names as a report exports them: {error}") from error


def given_names(estimator: Any, wish: Any) -> Names:
    """Of the names that the model was given, and of those the caller gives: a file, `Names`, or names by
    cluster."""
    own = getattr(estimator, "given_names_", None)
    found = Names() if own is None else Names(_numbered("cluster", own))
    if wish is None:
        return found
    if isinstance(wish, str | os.PathLike):
        wish = load_names(wish)
    more = wish if isinstance(wish, Names) else Names(_numbered("cluster", wish))
    return Names({**found.clusters, **more.clusters}, more.rows)


def _kind(path: Path) -> str:
    if path.suffix.lower() not in (".json", ".csv"):
        raise ValueError(f"{path}: names are kept in a .json or a .csv file.")
    return path.suffix.lower()


def _of_json(saved: Any) -> Names:
    if not isinstance(saved, dict) or not saved.keys() <= {"clusters", "rows"}:
        raise ValueError('it should be {"clusters": {...}, "rows": {...}}.')
    return Names(*(_numbered(kind, saved.get(f"{kind}s", {})) for kind in KINDS))


def _of_csv(text: str) -> Names:
    lines = list(csv.reader(io.StringIO(text, newline="")))
    if not lines or lines[0] != HEAD:
        raise ValueError(f"its first line should be {','.join(HEAD)}.")
    found: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
    for at, line in enumerate(lines[1:], 2):
        if line and (len(line) != len(HEAD) or line[0] not in KINDS):
            raise ValueError(f"line {at} should be a cluster or a row, its number and its name.")
        if line:
            found[line[0]][line[1]] = line[2]
    return Names(*(_numbered(kind, found[kind]) for kind in KINDS))


def _numbered(kind: str, names: Any) -> dict[int, str]:
    """Names by number; a list is counted from 0, and what has no name is left out."""
    if isinstance(names, Mapping):
        pairs = list(names.items())
    elif isinstance(names, str) or not isinstance(names, Sequence | np.ndarray):
        raise ValueError(f"names of {kind}s should be given by number.")
    else:
        pairs = list(enumerate(names))
    found = {}
    for number, name in pairs:
        if not str(number).isdecimal():
            raise ValueError(f"{number!r} should be the number of a {kind}.")
        if name is not None and not isinstance(name, str):
            raise ValueError(f"the name of {kind} {number} should be a text, not {name!r}.")
        if name and name.strip():
            found[int(number)] = name.strip()[:LONGEST]
    return found
