"""The documentation: its code runs, its links lead somewhere, its commands exist, its verdicts follow their rules."""

import importlib
import os
import re
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.main import get_command

from diffclust import DCN, TELL, AEKMeans, DeepKMeans, cli, datasets
from diffclust.methods import METHODS, TRANSDUCTIVE
from diffclust.reproduce.record import Outcome, Records
from diffclust.reproduce.tables import TABLES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SOURCES = sorted(DOCS.glob("*.md"))
METHODS_OF_THE_GUIDE = {"TELL": TELL, "AEKMeans": AEKMeans, "DCN": DCN, "DeepKMeans": DeepKMeans}
SHARED = {"guide": METHODS_OF_THE_GUIDE, "number.head": METHODS_OF_THE_GUIDE}
BUILT_WHOLE = {"tutorial"}  # from a notebook
GENERATED = {path.name.removesuffix(".head.md") for path in DOCS.glob("*.head.md")}

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning", "ignore::DeprecationWarning"
)


def written_by_hand(path):
    return path.name.endswith(".head.md") or path.stem not in GENERATED | BUILT_WHOLE


PAGES = [path for path in SOURCES if written_by_hand(path)]


def blocks(path):
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)


@pytest.fixture
def at_hand(monkeypatch, tmp_path, little_training):
    """What the pages take for granted: small data under the names and files they use, and little training."""
    import plotly.graph_objects as go

    monkeypatch.setattr(go.Figure, "show", lambda figure: None)
    load = datasets.load
    monkeypatch.setattr(datasets, "load", lambda *args, **options: tuple(a[:100] for a in load(*args, **options)))
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    centres = 6 * rng.normal(size=(5, 8))
    rows = (centres[np.arange(100) % 5] + rng.normal(size=(100, 8))).astype("float32")
    np.save("rows.npy", rows)
    pd.DataFrame(rows, columns=[f"c{i}" for i in range(8)]).to_parquet("more.parquet")
    table = customers(rng)
    for name in ("customers", "january", "february"):
        table.to_csv(f"{name}.csv", index=False)
    symmetric = torch.from_numpy(rows[:40] @ rows[:40].T)
    return {
        "X": rows,
        "new_rows": rows[:5],
        "new": rows[:5],
        "source": [rows[:50], rows[50:]],
        "texts": [f"{a} and {b}" for a in ("wine", "tea", "milk") for b in map(str, range(100, 130))],
        "new_table": table[:5],
        "L": symmetric,
        "z": torch.from_numpy(rows[:40]),
        "A": torch.from_numpy(rows[:20].T.copy()),
    }


AFTERWARDS = {
    "explain.head": lambda names: (
        names["why"].cluster == names["model"].labels_[0] and Path("report.html").stat().st_size > 1e6
    ),
    "layers": lambda names: (
        names["assignments"].shape == (500, 5)
        and names["clusters"].weight.grad.abs().sum() > 0
        and names["encoder"][0].weight.grad.abs().sum() > 0
    ),
    "path": lambda names: (
        names["moved"].flows.sum() == len(names["february"])
        and all(Path(f"{name}.html").exists() for name in ("january", "drift", "moved"))
    ),
}


def customers(rng, n=60):
    half = np.arange(n) % 2
    return pd.DataFrame(
        {
            "customer_id": [f"c{i}" for i in range(n)],
            "income": 30_000 + 40_000 * half + rng.normal(0, 3000, n).round(),
            "plan": np.where(half, "premium", "free"),
            "since": pd.date_range("2024-01-01", periods=n).strftime("%Y-%m-%d"),
        }
    )


@pytest.mark.parametrize("path", [path for path in PAGES if blocks(path)], ids=lambda path: path.stem)
def test_code_of_a_page(path, at_hand):
    """Every block, one after the other, as a reader would run them."""
    names = {"diffclust": importlib.import_module("diffclust"), **at_hand, **SHARED.get(path.stem, {})}
    if path.stem == "subspaces":
        names["X"] = torch.from_numpy(at_hand["X"])
    for number, block in enumerate(blocks(path)):
        exec(compile(block, f"{path.name}, block {number}", "exec"), names)
        if path.stem == "guide" and "model" not in names and "dkm" in names:
            names["model"] = names["dkm"]  # "a fitted estimator", the page says
    if path.stem in AFTERWARDS:
        assert AFTERWARDS[path.stem](names)


def test_the_path_of_a_newcomer(works, at_hand):
    """The commands of the page, one after the other, on files that the example makes."""
    text = (DOCS / "path.md").read_text()
    lines = re.findall(r"^diffclust (.*)$", text, re.MULTILINE)
    assert len(lines) == 8
    runpy.run_path(str(ROOT / "examples" / "months.py"))["write"](Path())
    short = {"fit": ["--quiet", "--device", "cpu"], "compare": ["--device", "cpu", "--jobs", "0"]}
    for line in lines:
        name, *rest = line.split()
        works(name, *rest, *short.get(name, []))
    assert Path("february-labels.csv").exists()
    assert {"report.html", "comparison.html"} <= set(os.listdir("runs/january"))


def is_there(page, target):
    """A file beside the page, or a page that the build writes."""
    place = (page.parent / target).resolve()
    if place.exists():
        return True
    if DOCS not in place.parents:
        return False
    name = place.relative_to(DOCS).with_suffix("").as_posix()
    methods = {f"methods/{method.name}" for method in (*METHODS, *TRANSDUCTIVE)}
    built = {"api/index", "methods/classical", "examples/index", "tutorial"}
    return name in GENERATED | methods | built or name.startswith("figures/")


@pytest.mark.parametrize(
    "path",
    [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md"],
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_links_lead_somewhere(path):
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text)]
    links = [link for link in links if link and not link.startswith(("http:", "https:", "mailto:"))]
    pages = [f"{name}.md" for name in re.findall(r"\{doc\}`(?:[^`<]*<)?([\w/-]+)>?`", text)]
    assert [link for link in links + pages if not is_there(path, link)] == []


def headings(text):
    return re.findall(r"^#+ (.*?) *$", text, re.MULTILINE)


def slug(heading):
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def sections_missing(text):
    """Sections that a text at the root names, as `docs/files.md`, "Heading" or by an anchor, and that are not there."""
    quoted = re.findall(r'(?:`([\w/.]+)\.md`|\b([A-Z]{6,})),\s+"([^"]+)"', text)
    anchors = re.findall(r"\]\(([\w/.-]+\.md)#([\w-]+)\)", text)
    named = [(f"{path or name}.md", slug(" ".join(heading.split()))) for path, name, heading in quoted] + anchors
    return [(path, name) for path, name in named if name not in map(slug, headings((ROOT / path).read_text()))]


@pytest.mark.parametrize("name", ["README", "CONTRIBUTING", "RELEASING", "SECURITY"])
def test_sections_that_are_named_exist(name):
    assert sections_missing((ROOT / f"{name}.md").read_text()) == []


def test_a_missing_section_would_be_seen():
    assert (
        sections_missing('see `docs/files.md`, "Files you do\n  not trust", CONTRIBUTING, "To add an\nexample"') == []
    )
    assert sections_missing('`docs/files.md`, "Gone"; CONTRIBUTING, "Lost"; [a](docs/files.md#gone)') == [
        ("docs/files.md", "gone"), ("CONTRIBUTING.md", "lost"), ("docs/files.md", "gone"),
    ]  # fmt: skip


def test_a_dead_link_would_be_seen():
    assert is_there(DOCS / "index.md", "papers.md")
    assert not is_there(DOCS / "index.md", "nowhere.md")
    assert not is_there(ROOT / "README.md", "nowhere.md")


def options_of(command):
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("path", [*PAGES, ROOT / "README.md"], ids=lambda path: path.stem)
def test_commands_exist(path):
    """Every command that a page shows, with every option it gives."""
    known = get_command(cli.app).commands
    lines = re.findall(r"^(?:torchrun .* -m )?diffclust (\w+)(.*?)(?:#.*)?$", path.read_text(), re.MULTILINE)
    for name, rest in lines:
        assert name in known, f"diffclust {name}"
        unknown = {word.split("=")[0] for word in rest.split() if re.match(r"--?[a-z]", word)} - options_of(known[name])
        assert not unknown, f"diffclust {name}: {unknown}"


# --- what is written from the recorded runs


@pytest.fixture
def page_writers(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.syspath_prepend(DOCS)
    names = ("choose", "measured", "papers", "letter", "llms", "gallery", "ideas", "notebook", "readable", "reference")
    return {name: importlib.import_module(name) for name in names}


def test_the_simplest_choice_within_a_point(page_writers):
    choose = page_writers["choose"]

    def choice(**accuracies):
        names = {"kmeans": "k-means", "tell": "TELL", "umap": "UMAP + k-means", "hdbscan": "UMAP + HDBSCAN"}
        return choose.choice({names[name]: choose.Measured(value, 5) for name, value in accuracies.items()})

    assert choice(kmeans=80, tell=80.9, umap=80.5) == "k-means"
    assert choice(kmeans=70, tell=80, umap=80.9) == "TELL"
    assert choice(kmeans=70, tell=79, umap=80.9) == "UMAP + k-means"
    assert choice(kmeans=70, tell=60, hdbscan=99) == "k-means"  # which finds another number of clusters


def test_seconds_beside_the_accuracy(page_writers):
    choose, results = page_writers["choose"], ROOT / "benchmarks" / "results"
    runs = pd.read_csv(results / "rows.csv")
    mine = runs[(runs.data == "letter") & runs.new_acc.isna()]
    found = choose.on_rows(results)
    for method, name in (("TELL", "TELL"), ("UMAP + k-means", "UMAP + k-means, standardised")):
        assert found["letter"][method].seconds == mine[mine.method == name].seconds.min()
    assert found["letter"]["UMAP + HDBSCAN"].seconds is None
    assert {each.seconds for each in found["pendigits"].values()} == {None}  # not timed in the same way
    assert [choose.duration(seconds) for seconds in (0.04, 1.26, 18.8)] == ["< 0.1 s", "1.3 s", "19 s"]
    measured = [choose.Measured(80, 5, 2.0), choose.Measured(90, 5, 4.0), choose.Measured(70, 3)]
    assert choose.summary(measured) == "80.0, 3.0 s"
    assert choose.summary([*measured, None]) == ""
    cost = pd.read_csv(results / "rows_cost.csv")
    ratios = cost["TELL"] / cost["UMAP + k-means"]
    assert page_writers["measured"].cost_ratios(results) == pytest.approx((ratios.min(), ratios.max()))


def test_verdicts(page_writers):
    papers = page_writers["papers"]
    near, far = papers.Reading("near", [89.0, 90.0], {}), papers.Reading("far", [50.0, 60.0], {"balance": 60.0})
    even = papers.Reading("even", [50.0, 89.0], {"loss": 50.0, "balance": 89.0})
    chosen = papers.Reading("λ", [90.0], {}, by_labels=True)
    assert papers.judged(91.0, [near, far])[0] == papers.HOLDS
    assert papers.judged(92.0, [near])[0] == papers.NOT
    assert papers.judged(91.0, [far, near]) == (papers.OTHERWISE, "read as “near”")
    assert papers.judged(90.0, [even]) == (papers.OTHERWISE, "the most even run has 89.0")
    assert "labels" in papers.judged(90.0, [far, chosen])[1]
    assert papers.judged(90.0, [far])[0] == papers.NOT
    short = papers.Reading("short", [60.0], {}, part="300 of 3,000 epochs")
    assert papers.judged(90.0, [short]) == (papers.PART, "300 of 3,000 epochs")
    assert papers.judged(90.0, [far, short])[0] == papers.NOT
    assert papers.judged(60.0, [short])[0] == papers.HOLDS


def test_a_row_with_fewer_epochs_has_a_verdict_once_its_curve_is_level(page_writers):
    papers = page_writers["papers"]

    def verdict(*gains):
        named = [papers.Reading("short", [60.0], {}, shorter="300 of 3,000 epochs", gain=gain) for gain in gains]
        return papers.judged(90.0, named)

    assert verdict(0.5) == verdict(-9.0) == verdict(3.0, 0.1) == (papers.NOT, "")
    assert verdict(0.6) == (papers.PART, "300 of 3,000 epochs, still rising")
    assert verdict(None) == (papers.PART, "300 of 3,000 epochs, without a curve")
    fewer = papers.Reading("fewer", [60.0], {}, part="a third of the images", shorter="300 epochs", gain=0.0)
    assert papers.judged(90.0, [fewer]) == (papers.PART, "a third of the images")
    assert fewer.said == "fewer: 60.0 (1; a third of the images; 300 epochs: +0.0)"


def test_what_a_curve_gains(page_writers):
    gain = page_writers["papers"].gain
    curve = [{"epoch": epoch, "acc": acc} for epoch, acc in enumerate([9, 9, 9, 1, 2, 3, 6, 6, 9], start=1)]
    assert gain([curve]) == 7.0 - 2.0
    assert gain([curve, curve[:1], []]) == 5.0  # too short to say
    assert gain([[], curve[:1]]) is None


def test_a_network_of_ours_reaches_a_figure_and_changes_no_verdict(page_writers):
    papers = page_writers["papers"]
    letter = papers.Reading("to the letter", [20.0, 22.0], {})
    ours = papers.Reading("ours", [95.0, 97.0], {"balance": 97.0}, other="a residual network")
    assert papers.judged(97.0, [letter, ours]) == (papers.NOT, "")
    assert papers.judged(97.0, [ours]) == (papers.PART, "networks of ours alone")
    said = papers.reached_otherwise(97.0, [letter, ours])
    assert said == "; another network of ours reaches it: “ours”, 96.0 on 2 seeds, a residual network"
    assert papers.reached_otherwise(99.0, [letter, ours]) == papers.reached_otherwise(20.0, [letter]) == ""


def test_each_published_figure_is_judged_once(page_writers):
    papers, records = page_writers["papers"], Records(ROOT / "benchmarks" / "results")
    for paper in papers.PAPERS:
        found = [each for each in papers.headlines(paper, records) if isinstance(each, papers.Headline)]
        names = [(each.line.dataset, each.line.method, each.line.cell("ACC")) for each in found]
        assert len(set(names)) == len(names) > 0
        texts = [[row.spec.text for rows in each.rows.values() for row in rows] for each in found]
        assert all(len(set(each)) == len(each) for each in texts)
        kept = {(row.spec.data, row.spec.text) for each in found for rows in each.rows.values() for row in rows}
        ours = [row for name in paper.tables for row in TABLES[name].rows if row.published and row.spec]
        ours = [row for row in ours if row.spec.method == paper.method and TABLES[row_table(row)].layout != "sets"]
        assert {(row.spec.data, row.spec.text) for row in ours} <= kept


def row_table(row):
    return next(name for name, table in TABLES.items() if row in table.rows)


def test_figures_in_a_text_are_those_of_the_runs(page_writers, tmp_path):
    papers, row = page_writers["papers"], TABLES["tell/table4"].rows[-1]
    records = Records(tmp_path)
    for seed, (acc, lost) in enumerate([(80.0, 0.3), (90.0, 0.2)]):
        figures = {"acc": acc, "nmi_geometric": 50.0, "clustering_loss": 0.1, "reconstruction": lost}
        records.outcomes.append(Outcome("mnist", "tell", row.spec.text, seed, 0, figures, {}))
    marks = [f"{{{{{kind} tell/table4 | mnist: TELL, CNN}}}}" for kind in ("acc", "mean", "nmi", "total")]
    assert papers.filled(", ".join(marks), records) == "85.0 ± 7.1, 85.0, 50.0, 90.0"
    with pytest.raises(ValueError, match="no runs of 'mnist: TELL, dense'"):
        papers.filled("{{acc tell/table4 | mnist: TELL, dense}}", records)


def test_the_pages_have_the_recorded_figures(page_writers):
    results = ROOT / "benchmarks" / "results"
    papers = page_writers["papers"].page((DOCS / "papers.head.md").read_text(), results)
    ours = "95.16; mean of its 5 runs 87.4 | TELL, CNN: 84.8 ± 5.6 (5); Adadelta, 300 epochs: 79.8 ± 0.7 (3; "
    assert f"| MNIST: TELL (`tell/table1`, `table4`, `table6`) | {ours}" in papers
    assert [papers.count(f"| {figure}") for figure in ("95.16", "87.76", "57.55", "86.32", "87.16", "86.30")] == [1] * 6
    assert "“SSCNet, ours, jitter”, 97.0 on 5 seeds, a classifier on ten codes" in papers
    assert "| **run in part**: 20,000 of 60,000 images; another network of ours reaches it: " in papers
    assert papers.count("**not run**") + papers.count("**holds") + papers.count("**does not hold**") > 60
    choose = page_writers["choose"].page((DOCS / "choose.head.md").read_text(), results)
    assert "| breast cancer, 569 x 30 | 90.7 (5), < 0.1 s |" in choose
    letter = page_writers["letter"].page((DOCS / "letter.head.md").read_text(), results)
    assert "| literal | 20.0 ± 3.3 |" in letter
    assert letter.count("|---") > 20
    for text in (papers, choose, letter):
        assert "{{" not in text


@pytest.mark.parametrize("name", ["rows", "rows_more", "number"])
def test_pages_on_rows_and_numbers_are_filled_from_the_runs(page_writers, name):
    text = page_writers["measured"].page((DOCS / f"{name}.head.md").read_text(), ROOT / "benchmarks" / "results")
    assert "{{" not in text
    assert not re.search(r"\bnan\b", text)
    tables = re.findall(r"(?:^ *\|.*\n)+", text, re.MULTILINE)
    for table in tables:  # a cell for every title
        assert len({line.count("|") for line in table.splitlines()}) == 1, table


def test_figures_of_rows_are_means_over_seeds_then_sets(page_writers):
    runs = pd.read_csv(ROOT / "benchmarks" / "results" / "rows.csv")
    means = runs[runs.method == "TELL"].groupby("data")[["acc", "nmi"]].mean()
    one = runs[(runs.method == "TELL") & (runs.data == "acsf1")]
    plain, standardised = (
        runs[runs.method == name].groupby("data").acc.mean() for name in ("k-means", "k-means, standardised")
    )

    def filled(mark):
        return page_writers["measured"].page(mark, ROOT / "benchmarks" / "results")

    assert filled("{{both rows | TELL}}") == f"{means.acc.mean():.1f} / {means.nmi.mean():.1f}"
    assert filled("{{spread rows | TELL | acsf1}}").startswith(f"{one.acc.mean():.1f} ± {one.acc.std():.1f} / ")
    assert filled("{{fallbacks rows | TELL | acsf1}}") == f"{(one.network == 'ScaledRows').sum()} of {len(one)}"
    assert filled("{{acc rows | k-means, better scaling}}") == f"{np.maximum(plain, standardised).mean():.1f}"
    assert filled("{{cells rows | bbc}}").count("|") == 2
    with pytest.raises(ValueError, match="no runs of 'DCN'"):
        filled("{{acc rows_more | DCN | r8}}")


def test_the_readme_has_the_figures_of_the_sets_kept_aside(page_writers):
    aside = (
        "TELL had {{acc rows_unseen | TELL, rules before one column of another unit | OTHERS}} (two seeds), "
        "UMAP + k-means {{acc rows_unseen | UMAP + k-means, usual scaling | OTHERS}} (one), "
        "k-means on standardised columns {{acc rows_unseen | k-means, standardised | OTHERS}}, and k-means in the "
        "better of two scalings, picked by the labels, {{acc rows_unseen | k-means, better scaling | OTHERS}}"
    )
    figures = page_writers["measured"].page(aside, ROOT / "benchmarks" / "results")
    assert figures in " ".join((ROOT / "README.md").read_text().split())


def test_llms_txt_has_every_page_of_the_index(page_writers, tmp_path):
    llms = page_writers["llms"]
    index = (DOCS / "index.md").read_text()
    for _, names in llms.contents(index):
        for name in names:
            place = tmp_path / f"{name}.md"
            place.parent.mkdir(exist_ok=True)
            place.write_text(f"# The page {name}\n\nWhat it says. More.\n")
    (tmp_path / "index.md").write_text(index)
    text = llms.page(tmp_path)
    assert text.startswith("# diffclust\n\n> ")
    assert "## Results\n\n- [The page papers](papers.html): published figures, ours, and a verdict on each\n" in text
    assert "- [The page methods/vade](methods/vade.html): What it says. More.\n" in text
    listed = {name for _, names in llms.contents(index) for name in names}
    assert {path.name.removesuffix(".md").removesuffix(".head") for path in PAGES} - {"index"} <= listed


def test_the_code_on_classical_methods_runs(page_writers, at_hand):
    names = {"X": np.tile(at_hand["X"], (3, 1))}
    exec(re.findall(r"```python\n(.*?)```", page_writers["reference"].classical_page(), re.DOTALL)[0], names)
    assert len(names["labels"]) == len(names["X"])


def test_every_example_has_a_place_and_a_picture(page_writers):
    gallery = page_writers["gallery"]
    assert sorted(gallery.names()) == sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
    assert gallery.PICTURES.keys() == set(gallery.names()) >= {path.stem for path in gallery.KEPT.glob("*.png")}
    for name in gallery.names():
        assert (gallery.KEPT / f"{name}.txt").read_text().strip(), name
        assert f"_static/gallery/{name}.png" in gallery.page(name)
        assert gallery.told(name)[0].endswith((".", "?", ")")), name


def test_pictures_are_those_of_the_present_examples(page_writers, monkeypatch):
    gallery = page_writers["gallery"]
    assert gallery.stale() == []  # `python docs/gallery.py NAME` draws one anew
    monkeypatch.setitem(gallery.ARGUMENTS, "curves", ["--changed"])
    assert gallery.stale() == ["curves"]


def test_figures_stay_in_one_piece(page_writers):
    mended = page_writers["readable"].mended
    for cell in ("61.1, 3.6 s", "47.7, &lt; 0.1 s", "89.1 ± 4.8", "5.4 MB"):
        assert mended(f"<td><p>{cell}</p></td>") == f'<td class="figures"><p>{cell}</p></td>'
    for cell in ("3 s of one core", "s", "TELL (2)"):
        assert mended(f"<td><p>{cell}</p></td>") == f"<td><p>{cell}</p></td>"


def test_pictures_are_shown_and_small():
    text = "".join(path.read_text() for path in (*SOURCES, ROOT / "README.md"))
    for path in (DOCS / "_static").glob("*.png"):
        assert f"_static/{path.name})" in text, path.name
    for path in (DOCS / "_static").rglob("*.png"):
        assert path.stat().st_size < 250_000, path.name


def test_every_method_has_its_idea_and_advice(page_writers):
    import xml.etree.ElementTree as ET

    ideas, index = page_writers["ideas"], (DOCS / "index.md").read_text()
    names = {method.name for method in (*METHODS, *TRANSDUCTIVE)}
    assert names - ideas.IDEAS.keys() == set(), "draw them and say when to use them: IDEAS in docs/ideas.py"
    assert ideas.IDEAS.keys() - names == set()
    for method in (*METHODS, *TRANSDUCTIVE):
        assert f"(methods/{method.name}.md)" in index, f"{method.name}: add it to the table in docs/index.md"
        assert f"\nmethods/{method.name}\n" in index, f"{method.name}: add it to the toctree in docs/index.md"
        drawn = re.search(r"<figure.*</figure>", ideas.picture(method.name), re.DOTALL)[0]
        assert ET.fromstring(drawn).find("svg") is not None
        assert "## When to use it\n\n- " in ideas.advice(method.name)
    assert ideas.numbers("dscnet", "DSCNet") == ""


def test_the_numbers_of_a_method_are_the_recorded_ones(page_writers):
    told = page_writers["ideas"].numbers("tell", "TELL")
    runs = pd.read_csv(ROOT / "benchmarks" / "results" / "defaults.csv")
    runs = runs[(runs.data == "digits") & (runs.method == "tell") & (runs.restart == 0) & runs.settings.isna()]
    assert f"| digits | {len(runs)} | {runs.acc.mean():.1f} ± {runs.acc.std():.1f} |" in told
    runs = pd.read_csv(ROOT / "benchmarks" / "results" / "rows.csv")
    means = runs[runs.method == "TELL"].groupby("data")[["acc", "nmi"]].mean()
    acc, nmi = means.mean()
    seeds = (runs.method == "TELL").groupby(runs.data).sum().loc[means.index].min()
    assert f"| mean of {len(means)} sets of rows | {seeds} | {acc:.1f} | {nmi:.1f} |" in told


def test_tables_of_methods_on_rows_are_means_of_the_recorded_runs(page_writers):
    runs = pd.read_csv(ROOT / "benchmarks" / "results" / "rows.csv")
    groups = runs[runs.new_acc.isna()].groupby(["method", "data"])
    means, shortest = groups[["acc", "nmi"]].mean(), groups.seconds.min()
    filled = page_writers["measured"].page("{{subspaces}}\n\n{{methods}}", ROOT / "benchmarks" / "results")
    for name in sorted(set(runs.data)):
        scaling = max(("k-means", "k-means, standardised"), key=lambda method: means.acc[method, name])
        cells = [f"{means.acc[m, name]:.1f} / {means.nmi[m, name]:.1f}" for m in (scaling, "SSC", "SSCNet")]
        seconds = ", ".join(f"{shortest[method, name]:.1f}" for method in ("SSC", "SSCNet", "TELL"))
        assert f"| {name} | {' | '.join(cells)} | {seconds} |" in filled
    both = {method: "{:.1f} / {:.1f}".format(*means.loc[method].mean()) for method in ("SSC", "SSCNet", "DEC")}
    assert f"| **{both['SSC']}** | **{both['SSCNet']}** |" in filled
    assert f"| `DEC` | {both['DEC']} |" in filled


def test_what_the_theme_leaves_out_is_put_in(page_writers):
    mended = page_writers["readable"].mended
    assert mended("<dl>\n<dd>a: int,</dd>\n<dd>b,</dd>\n</dl>") == (
        '<ul class="parameters">\n<li>a: int,</li>\n<li>b,</li>\n</ul>'
    )
    assert mended("<dl>\n<dt>a</dt>\n<dd>b</dd>\n</dl>") == "<dl>\n<dt>a</dt>\n<dd>b</dd>\n</dl>"
    assert mended("<td><p>89.1 ± 4.8 (5)</p></td>") == '<td class="figures"><p>89.1 ± 4.8 (5)</p></td>'
    assert mended(f"<td>{'word ' * 20}</td>").startswith('<td class="sentence">')
    assert mended("<td><code class='a long name for a class of code in a cell of a table'>k</code></td>")[:4] == "<td>"


def test_the_tutorial_runs(page_writers, at_hand):
    """Cell by cell, and the page has what they gave."""
    import json

    notebook = page_writers["notebook"]
    cells = json.loads(notebook.NOTEBOOK.read_text())["cells"]
    names = {}
    notebook.run(cells, names)
    assert names["why"].cluster == names["model"].labels_[7]
    assert len(names["names"].clusters) == 10
    page = notebook.markdown(cells)
    assert f"```text\n{names['X'].shape}\n```" in page
    assert '<div class="output"><div style' in page  # the explanation, as a card
    assert "looks like" in page


def test_a_cell_that_fails_is_not_passed_over(page_writers):
    with pytest.raises(ZeroDivisionError):
        page_writers["notebook"].run([{"cell_type": "code", "source": ["1 / 0"]}], {})
