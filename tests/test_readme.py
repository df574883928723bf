"""The code of the README and of the examples runs; the README has the recorded figures."""

import csv
import re
import runpy
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest

from diffclust import datasets

ROOT = Path(__file__).parents[1]
ARGUMENTS = {"papers_figures": ["--data", "digits", "--rows", "150", "--epochs", "4"]}
ROWS = 160  # of every data set, at most

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(autouse=True)
def _little_data(monkeypatch, tmp_path, little_training):
    """The code is what is tested here, not the quality of the clusters."""
    load = datasets.load

    def some(*args: Any, **options: Any) -> Any:
        X, y = load(*args, **options)
        return X[:ROWS], y[:ROWS]

    monkeypatch.setattr(datasets, "load", some)
    monkeypatch.chdir(tmp_path)


def code(path: str) -> str:
    """The first Python block of a page."""
    return re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(), re.DOTALL)[0]


def run(path: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(code(path), names)
    return names


def test_readme_code():
    names = run("README.md")
    assert names["pictures"].shape == (10, 8, 8)
    assert (names["same"].predict(names["X"]) == names["model"].labels_).all()


def test_the_readme_has_one_block_of_about_ten_lines():
    text = (ROOT / "README.md").read_text()
    assert text.count("```python") == 1
    assert len([line for line in code("README.md").splitlines() if line]) <= 11


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_example(path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(path), *ARGUMENTS.get(path.stem, [])])
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


@pytest.fixture
def recorded(monkeypatch):
    """Accuracy of recorded runs that have these values: their mean, and the number of seeds in brackets."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import sheet

    def mean(file: str, **values: str) -> str:
        runs = sheet.read(ROOT / "benchmarks" / "results" / file)
        found = [float(run["acc"]) for run in runs if values.items() <= run.items()]
        return f"{statistics.mean(found):.1f} ({len(found)})"

    return mean


def test_figures_of_the_readme_are_the_recorded_ones(recorded):
    text = " ".join((ROOT / "README.md").read_text().split())
    for data in ("digits", "usps"):
        kmeans, tell = (recorded("defaults.csv", data=data, method=name, restart="0") for name in ("kmeans", "tell"))
        assert f"k-means {kmeans}, TELL {tell}" in text
    kmeans = recorded("tell-table5.csv", method="kmeans", settings='{"n_clusters": 10}')
    tell = recorded("precision.csv", data="mnist", method="TELL", precision="bf16")
    assert f"k-means {kmeans}, TELL {tell}" in text
    long_runs = recorded("tell-table1.csv", data="mnist", method="tell")
    assert long_runs.endswith(" (5)")
    assert f"average {long_runs.split()[0]} (paper" in text


def test_files_named_in_the_readme_exist():
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / "README.md").read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_list_of_benchmarks_is_whole():
    text = (ROOT / "benchmarks" / "README.md").read_text()
    scripts = [path.name for path in (ROOT / "benchmarks").glob("*.py")]
    assert [name for name in scripts if f"`{name}`" not in text] == []
    files = {path.name for path in (ROOT / "benchmarks" / "results").glob("*.csv")}
    named = set(re.findall(r"`([a-z_]+\.csv)`", text))
    papers = tuple(re.findall(r"`([a-z-]+-)\*\.csv`", text))
    assert named <= files
    assert [name for name in files - named if not name.startswith(papers)] == []


def test_the_figures_for_rows_are_the_recorded_ones():
    text = " ".join((ROOT / "README.md").read_text().split())
    with (ROOT / "benchmarks" / "results" / "rows.csv").open() as file:
        runs = [run for run in csv.DictReader(file) if not run["new_acc"]]
    sets = sorted({run["data"] for run in runs})

    def figures(method: str) -> dict[str, tuple[float, int]]:
        found = {data: [float(r["acc"]) for r in runs if (r["data"], r["method"]) == (data, method)] for data in sets}
        return {data: (statistics.mean(accuracies), len(accuracies)) for data, accuracies in found.items()}

    plain, standardised = figures("k-means"), figures("k-means, standardised")
    best = {data: max(plain[data], standardised[data]) for data in sets}
    assert len(sets) == 18
    plain, standardised = figures("UMAP + k-means"), figures("UMAP + k-means, standardised")
    as_they_are = runpy.run_path(str(ROOT / "benchmarks" / "rows.py"))["AS_THEY_ARE"]
    usual = {data: (plain if data in as_they_are else standardised)[data] for data in sets}
    for name, each in (("k-means", best), ("UMAP + k-means", usual), ("TELL", figures("TELL"))):
        mean, seeds = statistics.mean(acc for acc, _ in each.values()), {seeds for _, seeds in each.values()}
        assert f"{name} {mean:.1f} ({seeds.pop()})" in text
        assert not seeds
