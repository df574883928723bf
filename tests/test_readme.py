"""What the README and the examples say runs."""

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ARGUMENTS = {"papers_figures": ["--data", "digits", "--rows", "150", "--epochs", "4"]}
QUICK = {"auto_steps": (8, 8), "auto_most": (2, 2), "auto_least": (1, 1)}

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(autouse=True)
def _little_training(monkeypatch, tmp_path):
    """The code is what is tested here, not the quality of the clusters."""
    from diffclust.estimator.base import PrototypeClusterer

    for name, value in QUICK.items():
        monkeypatch.setattr(PrototypeClusterer, name, value)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL))
def test_readme_block(block):
    names: dict[str, object] = {}
    exec(block, names)
    if "assignments" in names:
        assert names["assignments"].shape == (500, 5)
        assert names["clusters"].weight.grad.abs().sum() > 0
        assert names["encoder"][0].weight.grad.abs().sum() > 0
    elif "why" in names:
        assert names["why"].cluster == names["model"].labels_[0]
        assert Path("report.html").stat().st_size > 1e6
    else:
        assert names["pictures"].shape == (10, 8, 8)
        assert (names["same"].predict(names["X"]) == names["model"].labels_).all()


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_example(path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(path), *ARGUMENTS.get(path.stem, [])])
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


def test_the_table_of_defaults_is_the_recorded_one(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import defaults
    import sheet

    assert defaults.table(sheet.read(defaults.RESULTS)) in (ROOT / "README.md").read_text()
