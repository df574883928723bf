"""What `make oldest` installs is what pyproject.toml promises."""

import tomllib
from pathlib import Path

from oldest import EXTRAS, oldest

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]


def test_every_dependency_has_a_lower_bound_and_it_is_taken():
    found = dict(one.split("==") for one in oldest(PROJECT))
    listed = [*PROJECT["dependencies"], *(one for extra in EXTRAS for one in PROJECT["optional-dependencies"][extra])]
    assert [f"{name}>={version}" for name, version in found.items()] == listed


def test_the_version_is_one_number():
    home = Path(__file__).parents[1]
    assert f'__version__ = "{PROJECT["version"]}"' in (home / "src/diffclust/__init__.py").read_text()
    assert f"version: {PROJECT['version']}" in (home / "CITATION.cff").read_text()
