"""Importing is light, and the house keeps its import arrows."""

import ast
import subprocess
import sys
from pathlib import Path

import diffclust

HOME = Path(diffclust.__file__).parent


def test_importing_brings_little_beyond_torch_and_scikit_learn():
    """What it costs is measured by benchmarks/startup.py."""
    code = (
        "import sys, torch, scipy.sparse, sklearn.base, sklearn.metrics, sklearn.callback; before = set(sys.modules);"
        "import diffclust; diffclust.TELL, diffclust.KMeansNet;"
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    new = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "diffclust" in new
    assert not {"pandas", "matplotlib", "rich", "typer", "PIL", "pyarrow", "plotly"} & set(new)


def imports(path: Path) -> set[str]:
    """Package modules a file imports, as paths from the package's root."""
    found = set()
    package = path.relative_to(HOME).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            found.add("/".join([*base, *(node.module or "").split(".")]).strip("/"))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found |= {name.split(".")[0] for name in names}
    return found


def test_the_layers_know_nothing_of_scikit_learn_or_training():
    for path in (HOME / "nn").glob("*.py"):
        assert not {name for name in imports(path) if name.startswith(("sklearn", "engine", "methods", "estimator"))}


def test_the_engine_knows_no_method():
    for path in (HOME / "engine").glob("*.py"):
        assert not {name for name in imports(path) if name.startswith(("methods", "estimator", "cli"))}


def test_there_is_one_training_loop():
    calls = [path for path in HOME.rglob("*.py") if ".backward(" in path.read_text()]
    assert [path.name for path in calls] == ["loop.py"]
