"""Results as lines of a CSV file. Most are only ever added to: a run that is there is not repeated."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def read(path: Path) -> list[dict[str, str]]:
    """All lines; none where there is no file yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, fields: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """In place of what is there: of a script that does all its work at once."""
    path.unlink(missing_ok=True)
    append(path, fields, rows)


def append(path: Path, fields: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, fields)
        if new:
            writer.writeheader()
        writer.writerows(rows)
