"""What `make oldest` installs is what pyproject.toml promises, and what the tests import is what it names."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from oldest import EXTRAS, oldest

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]


def test_every_dependency_has_a_lower_bound_and_it_is_taken():
    found = dict(one.split("==") for one in oldest(PROJECT))
    listed = [*PROJECT["dependencies"], *(one for extra in EXTRAS for one in PROJECT["optional-dependencies"][extra])]
    assert [f"{name}>={version}" for name, version in found.items()] == listed


def imported(path):
    """The packages that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.split(".")[0]


def test_what_the_tests_import_is_named():
    """As a dependency or in an extra; or it is a file of our own."""
    listed = [*PROJECT["dependencies"], *(one for extra in PROJECT["optional-dependencies"].values() for one in extra)]
    named = {re.match(r"[\w-]+", one)[0].lower() for one in listed}
    files = [*Path(__file__).parent.rglob("*.py")]
    ours = [*files, *(Path(__file__).parents[1] / "benchmarks").glob("*.py")]
    own = {*sys.stdlib_module_names, *(path.stem for path in ours), "tests", "diffclust"}
    others = {name for path in files for name in imported(path)} - own
    known = packages_distributions()
    assert {name for name in others if not named & {each.lower() for each in known.get(name, [name])}} == set()


def test_the_version_is_one_number():
    home = Path(__file__).parents[1]
    assert f'__version__ = "{PROJECT["version"]}"' in (home / "src/diffclust/__init__.py").read_text()
    assert f"version: {PROJECT['version']}" in (home / "CITATION.cff").read_text()
