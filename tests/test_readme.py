"""The code of the README and of the examples runs; the README has the recorded figures."""

import csv
import re
import runpy
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from diffclust import datasets

ROOT = Path(__file__).parents[1]
ARGUMENTS = {"papers_figures": ["--data", "digits", "--rows", "100", "--epochs", "4"]}
ROWS = 100  # of every data set, at most

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


def results(data: str) -> dict[str, str]:
    """A line of the README's table of results: the figure of each method."""
    text = (ROOT / "README.md").read_text().partition("## Results")[2]
    methods, *lines = (line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| "))
    found = next(cells for cells in lines if cells[0].startswith(data))
    return {name: cell.strip("*") for name, cell in zip(methods[1:], found[1:], strict=True)}


def test_figures_of_the_readme_are_the_recorded_ones(recorded):
    mnist = recorded("tell-table5.csv", method="kmeans", settings='{"n_clusters": 10}')
    for data, told in (("digits", "digits"), ("usps", "USPS"), ("mnist", "MNIST")):
        kmeans = mnist if data == "mnist" else recorded("defaults.csv", data=data, method="kmeans", restart="0")
        umap = recorded("images.csv", data=data, features="UMAP")
        tell = recorded("auto.csv", data=data, method="TELL, k given")
        assert results(told) == {"k-means": kmeans, "UMAP + k-means": umap, "TELL": tell}
    for data, told in (("coil20", "COIL-20"), ("umist", "UMIST")):
        names = {"k-means": "k-means", "UMAP + k-means": "UMAP", "TELL": "auto"}
        assert results(told) == {told: recorded("images.csv", data=data, features=each) for told, each in names.items()}
    long_runs = recorded("tell-table1.csv", data="mnist", method="tell")
    assert long_runs.endswith(" (5)")
    text = " ".join((ROOT / "README.md").read_text().split())
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


def rows_of(file: str) -> tuple[list[str], Callable[[str], dict[str, list[float]]]]:
    """The sets of a file of runs, and of a method its accuracies on each."""
    with (ROOT / "benchmarks" / "results" / file).open() as opened:
        runs = [run for run in csv.DictReader(opened) if not run["new_acc"]]
    found: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        found.setdefault((run["method"], run["data"]), []).append(float(run["acc"]))
    sets = sorted({run["data"] for run in runs})
    return sets, lambda method: {data: found.get((method, data), []) for data in sets}


def told(each: dict[str, list[float]]) -> str:
    """The mean over sets, and the number of seeds, which is that of every set."""
    (seeds,) = {len(accuracies) for accuracies in each.values()}
    return f"{statistics.mean(map(statistics.mean, each.values())):.1f} ({seeds})"


def better(*runs: dict[str, list[float]]) -> dict[str, list[float]]:
    return {data: max((each[data] for each in runs), key=statistics.mean) for data in runs[0]}


def test_the_figures_for_rows_are_the_recorded_ones():
    sets, accuracies = rows_of("rows.csv")
    best = better(accuracies("k-means"), accuracies("k-means, standardised"))
    plain, standardised = accuracies("UMAP + k-means"), accuracies("UMAP + k-means, standardised")
    as_they_are = runpy.run_path(str(ROOT / "benchmarks" / "rows.py"))["AS_THEY_ARE"]
    usual = {data: (plain if data in as_they_are else standardised)[data] for data in sets}
    tell = accuracies("TELL")
    assert results(f"{len(sets)} tables") == {"k-means": told(best), "UMAP + k-means": told(usual), "TELL": told(tell)}
    assert all(statistics.mean(tell[data]) > statistics.mean(best[data]) - 1 for data in sets)


def test_the_figures_for_small_tables_are_the_recorded_ones():
    sets, accuracies = rows_of("rows_held.csv")
    plain, umap, tell = (accuracies(name) for name in ("k-means", "UMAP + k-means, standardised", "TELL"))
    figures = {"k-means": told(plain), "UMAP + k-means": told(umap), "TELL": told(tell)}
    assert results(f"{len(sets)} small tables") == figures
    best = better(plain, accuracies("k-means, standardised"))
    ahead = sum(statistics.mean(best[data]) > statistics.mean(tell[data]) + 2 for data in sets)
    text = " ".join((ROOT / "README.md").read_text().split())
    assert f"more than two points on {ahead} of {len(sets)}, with a mean of {told(best).split()[0]}" in text
