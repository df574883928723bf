"""The house keeps its import arrows: no loops, lazy imports included, and nobody knows what is above."""

import ast
import re
import runpy
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import diffclust

HOME = Path(diffclust.__file__).parent


def name_of(path):
    """engine/phase.py -> engine.phase, engine/__init__.py -> engine; the package itself is the empty name."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path.relative_to(HOME)) for path in HOME.rglob("*.py")}


def statements(node):
    """All import statements below a node, those of functions too, but for what only type checkers read."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            yield from (found for other in child.orelse for found in statements(other))
        elif isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        else:
            yield from statements(child)


def imported(path, tree):
    """(ours, theirs): the package's modules that a file imports, and the names of other packages."""
    package = list(path.parts[:-1])
    ours, theirs = set(), set()
    for node in statements(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1] + (node.module.split(".") if node.module else [])
            target = ".".join(base)
            for alias in node.names:
                inner = f"{target}.{alias.name}".strip(".")
                ours.add(inner if inner in MODULES else target)
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module]
            theirs |= {name.split(".")[0] for name in names}
            ours |= {name.removeprefix("diffclust").strip(".") for name in names if name.split(".")[0] == "diffclust"}
    return ours, theirs


@pytest.fixture(scope="module")
def trees():
    """Not read when the tests are collected, which every process does."""
    return {path.relative_to(HOME): ast.parse(path.read_text()) for path in sorted(HOME.rglob("*.py"))}


@pytest.fixture(scope="module")
def imports(trees):
    return {name_of(path): imported(path, tree) for path, tree in trees.items()}


def within(name, *packages):
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def test_what_is_imported_is_there(imports):
    assert all(target in MODULES for ours, _ in imports.values() for target in ours)
    assert imports["engine.phase"][0] >= {"nn.autoencoders", "engine.data"}  # that they are found at all


def loop_in(graph):
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def test_there_are_no_loops(imports):
    assert loop_in({name: ours for name, (ours, _) in imports.items()}) is None


def test_a_loop_would_be_seen(imports):
    lazy = ast.parse("if TYPE_CHECKING:\n    from . import model\ndef f():\n    from .phase import Phase")
    assert imported(Path("engine/guard.py"), lazy) == ({"engine.phase"}, set())
    graph = {name: ours for name, (ours, _) in imports.items()}
    graph["nn.autoencoders"] = {"engine.phase"}
    assert set(loop_in(graph)) >= {"nn.autoencoders", "engine.phase"}


RULES = {  # who -> of what it knows nothing
    "nn": ("engine", "estimator", "methods", "reading", "saving", "explain", "report", "cli"),
    "engine": ("estimator", "methods", "reading", "saving", "explain", "report", "cli"),
    "methods": ("nn.parallel", "baselines", "cli", "reproduce"),
    "baselines": ("cli", "reproduce"),
    "estimator": ("methods", "cli", "reproduce"),
}


@pytest.mark.parametrize("package", RULES)
def test_nobody_knows_what_is_above(imports, package):
    found = {
        f"{name} imports {target}"
        for name, (ours, _) in imports.items()
        for target in ours
        if within(name, package) and within(target, *RULES[package])
    }
    assert not found


def test_a_class_has_a_name_of_its_own(trees):
    homes = {}
    for path, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(str(path))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_the_layers_know_nothing_of_scikit_learn(imports):
    assert not [name for name, (_, theirs) in imports.items() if within(name, "nn") and "sklearn" in theirs]


def test_there_is_one_training_step(trees):
    calls = [path for path in trees if ".backward(" in (HOME / path).read_text()]
    assert calls == [Path("engine/phase.py")]


LISTED_BY_THEMSELVES = ("engine", "methods", "baselines")  # their `__init__` names every module
ROOT = HOME.parents[1]


def map_of_packages():
    """CONTRIBUTING's words about each package; a package begins a line, and other modules have the empty name."""
    told = (ROOT / "CONTRIBUTING.md").read_text().partition("## The map")[2].partition("## To add a method")[0]
    words = {}
    for start, text in re.findall(r"^    (\S+)(.*(?:\n {20}.*)*)", told, flags=re.MULTILINE):
        package = start.strip("/").replace("/", ".") if start.endswith("/") else ""
        words.setdefault(package, set()).update(re.findall(r"\w+", f"{start} {text}"))
    for package in LISTED_BY_THEMSELVES:
        words[package] |= set(re.findall(r"\w+", (HOME / package / "__init__.py").read_text()))
    return words


def test_the_map_has_every_module_at_its_package():
    words = map_of_packages()
    missing = []
    for name in MODULES - {"", "__main__"}:
        parts = name.split(".")
        places = [".".join(parts[:i]) for i in range(len(parts), -1, -1) if ".".join(parts[:i]) in words]
        if parts[-1] not in words[places[0]]:
            missing.append(name)
    assert sorted(missing) == []


def test_every_module_says_what_it_is_for():
    purposes = runpy.run_path(str(ROOT / "docs" / "modules.py"))["purposes"]()
    assert purposes["engine/loop.py"] == "The training loop."
    assert [name for name, purpose in purposes.items() if not 10 < len(purpose) <= 120] == []


@pytest.mark.parametrize("folder", ["benchmarks", "docs", "examples"])
def test_scripts_import_names_that_exist(folder):
    for path in sorted((Path(__file__).parents[1] / folder).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("diffclust."):
                module = import_module(node.module)
                for alias in node.names:
                    inner = hasattr(module, "__path__") and find_spec(f"{node.module}.{alias.name}")
                    assert hasattr(module, alias.name) or inner, f"{path.name}: {node.module} has no {alias.name}"
