"""Add the lines of CSV files that were made elsewhere to those of the same name in benchmarks/results.

    python benchmarks/gather.py FOLDER [FOLDER ...]

Files are looked for in every folder below; a line that is there already is left out.
"""

import argparse
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def gather(folder: Path, results: Path = RESULTS) -> dict[str, int]:
    """How many lines were new, by file."""
    added: dict[str, int] = {}
    for path in sorted(folder.rglob("*.csv")):
        head, *lines = path.read_text(encoding="utf-8").splitlines()
        there = results / path.name
        known = there.read_text(encoding="utf-8").splitlines() if there.exists() else []
        if known and known[0] != head:
            raise SystemExit(f"{path} has other columns than {there}.")
        fresh = [line for line in dict.fromkeys(lines) if line not in set(known)]
        if fresh:
            end = "\r\n" if b"\r\n" in (there if known else path).read_bytes() else "\n"
            with there.open("a", encoding="utf-8", newline="") as file:
                file.writelines(line + end for line in (fresh if known else [head, *fresh]))
            added[path.name] = added.get(path.name, 0) + len(fresh)
    return added


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    for folder in parser.parse_args().folders:
        for name, count in gather(folder).items():
            print(f"{name}: {count} lines")
