"""Every module of the package with what it is for, in its own words: `make map`."""

import ast
import re
from pathlib import Path

HOME = Path(__file__).resolve().parents[1] / "src" / "diffclust"


def purposes() -> dict[str, str]:
    """engine/phase.py -> the first sentence of its docstring."""
    found = {}
    for path in sorted(HOME.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if text:
            start = " ".join((ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0].split())
            found[path.relative_to(HOME).as_posix()] = re.split(r"(?<=[.?!])\s", start)[0].rstrip(":")
    return found


if __name__ == "__main__":
    for name, purpose in purposes().items():
        print(f"{name:40}{purpose}")
