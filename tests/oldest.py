"""The oldest versions that pyproject.toml allows, as requirements, for `make oldest`: `python tests/oldest.py`."""

import re
import tomllib
from pathlib import Path

EXTRAS = ("data", "report", "onnx")


def oldest(project):
    """Each lower bound as the version itself."""
    listed = [*project["dependencies"], *(one for extra in EXTRAS for one in project["optional-dependencies"][extra])]
    return [re.sub(r">=([\d.]+).*", r"==\1", one) for one in listed]


if __name__ == "__main__":
    home = Path(__file__).parents[1]
    print(*oldest(tomllib.loads((home / "pyproject.toml").read_text())["project"]), sep="\n")
