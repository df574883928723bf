"""Sphinx settings. Reference pages come from docstrings (reference.py), pages of results from CSV files."""

import csv
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src"), str(HERE.parent / "benchmarks")]

import choose  # noqa: E402  (docs/choose.py)
import defaults  # noqa: E402  (benchmarks/defaults.py)
import gallery  # noqa: E402  (docs/gallery.py)
import letter  # noqa: E402  (docs/letter.py)
import live  # noqa: E402  (docs/live.py)
import llms  # noqa: E402  (docs/llms.py)
import measured  # noqa: E402  (docs/measured.py)
import notebook  # noqa: E402  (docs/notebook.py)
import papers  # noqa: E402  (docs/papers.py)
import readable  # noqa: E402  (docs/readable.py)
import reference  # noqa: E402  (docs/reference.py)

from diffclust import __version__  # noqa: E402
from diffclust.baselines import BASELINES  # noqa: E402
from diffclust.methods import METHODS, TRANSDUCTIVE  # noqa: E402
from diffclust.reproduce.curves import draw  # noqa: E402
from diffclust.reproduce.record import Records  # noqa: E402
from diffclust.reproduce.report import printed  # noqa: E402
from diffclust.reproduce.tables import TABLES  # noqa: E402

project = "diffclust"
copyright = "the diffclust developers"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
default_role = "py:obj"
autodoc_member_order = "bysource"
autosummary_generate = False
napoleon_numpy_docstring = False
smartquotes_action = "De"  # dashes; quotes in docstrings are Python's
highlight_language = "none"  # a plain literal block is a formula
python_maximum_signature_line_length = 100
exclude_patterns = ["_build", "*.head.md", "extra", "_static"]
html_theme = "furo"
html_title = "diffclust"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_extra_path = ["extra"]
html_theme_options = {
    "light_css_variables": {
        "font-stack": "system-ui, sans-serif",  # a lone "monospace" would be drawn smaller than the text around it
        "font-stack--monospace": "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace",
    }
}


def setup(app) -> None:
    app.connect("autodoc-process-docstring", reference.defaults, priority=900)
    app.connect("autodoc-process-signature", reference.short_arrays)
    app.connect("autodoc-skip-member", reference.foreign)
    app.connect("html-page-context", readable.mend, priority=900)


FRESH = 5  # with restarts, scores of the seeds below were in view when "scatter" was chosen
RULES_SAW = (  # which seeds' scores were in view when a restart rule was chosen: what is said, first and last seed
    ("0 to 4, used to choose both rules", 0, FRESH - 1),
    ('5 to 9, used to choose "balance"', FRESH, 9),
    ("10 to 14, used for neither", 10, 14),
)


def after_the_rule(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The runs on which nothing was chosen, where there are some."""
    return [row for row in rows if int(row["seed"]) >= FRESH] or rows


def results_page() -> str:
    head = papers.filled((HERE / "results.head.md").read_text(), Records(HERE.parent / "benchmarks/results"))
    rows = list(csv.DictReader((HERE.parent / "benchmarks/results/defaults.csv").open()))
    groups = defaultdict(list)
    for row in rows:
        groups[row["data"], row["method"], row["settings"]].append(row)

    def cell(group: list[dict[str, str]], name: str) -> str:
        values = [float(row[name]) for row in group]
        spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
        return f"{statistics.mean(values):.1f}{spread}"

    lines = ["| data | method | settings | seeds | ACC | NMI | ARI | seconds |", "|---|---|---|---|---|---|---|---|"]
    for (data, name, settings), group in groups.items():
        single = [row for row in group if row["restart"] == "0"]
        chosen = after_the_rule([row for row in group if row["chosen"] == "1"])
        several = len(single) < len(group)
        for label, part in (("", single), (f"n_init={len(group) // len(single)}", chosen))[: 1 + several]:
            how = ", ".join(filter(None, [settings, label])) or "defaults"
            scores = " | ".join(cell(part, key) for key in ("acc", "nmi", "ari"))
            seconds = statistics.mean(float(row["seconds"]) for row in part)
            lines.append(f"| {data} | {name} | {how} | {len(part)} | {scores} | {seconds:.0f} |")
    rule = [
        "| data | seeds | fits | runs each | mean of the runs | kept | above the mean | by balance | best by labels |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (data, name, _), group in groups.items():
        fits = defaultdict(list)
        for row in group:
            fits[row["seed"]].append(row)
        fits = {seed: fit for seed, fit in fits.items() if len(fit) > 2}
        for seeds, first, last in RULES_SAW:
            part = {seed: fit for seed, fit in fits.items() if first <= int(seed) <= last}
            rule += [rule_line(f"{data}, {name}", seeds, part)] if part else []
    marks = {
        "defaults": defaults.table(rows),
        "table": "\n".join(lines),
        "rule": "\n".join(rule),
        "tables": papers_tables(),
    }
    for name, text in marks.items():
        head = head.replace("{{" + name + "}}", text)
    return head


def rule_line(what: str, seeds: str, fits: dict[str, list[dict[str, str]]]) -> str:
    """Of several fits with restarts: the mean of the runs, the kept one, the most even one, and the best."""
    means = [statistics.mean(float(row["acc"]) for row in fit) for fit in fits.values()]
    picked = [next(float(row["acc"]) for row in fit if row["chosen"] == "1") for fit in fits.values()]
    even = [float(max(fit, key=lambda row: float(row["effective_clusters"]))["acc"]) for fit in fits.values()]
    best = [max(float(row["acc"]) for row in fit) for fit in fits.values()]
    wins = sum(p > m for p, m in zip(picked, means, strict=True))
    size = len(next(iter(fits.values())))
    return (
        f"| {what} | {seeds} | {len(fits)} | {size} | {statistics.mean(means):.1f} | {statistics.mean(picked):.1f} "
        f"| {wins} of {len(fits)} | {statistics.mean(even):.1f} | {statistics.mean(best):.1f} |"
    )


def papers_tables() -> str:
    """A section for every table that has runs; the names of the others."""
    records = Records(HERE.parent / "benchmarks/results")
    sections, empty = [], []
    for table in TABLES.values():
        if not any(records.of(row.spec) for row in table.rows if row.spec):
            empty.append(f"`{table.name}`")
            continue
        sections.append(f"### `{table.name}`: {table.title}\n\n{printed(table, records).markdown()}")
        if table.figure and draw(table, records, HERE / "figures" / f"{table.file}.png"):
            sections.append(f"![{table.title}](figures/{table.file}.png)")
    if empty:
        sections.append(f"No runs yet: {', '.join(empty)}.")
    return "\n\n".join(sections)


def explain_page() -> str:
    """How soon rows leave their cluster, by order of removal."""
    rows = list(csv.DictReader((HERE.parent / "benchmarks/results/faithfulness.csv").open()))
    groups = defaultdict(lambda: defaultdict(list))
    for row in rows:
        groups[row["data"], row["settings"]][row["order"]].append(row)
    lines = [
        "| data | settings | seeds | attribution | distance | random | error |",
        "|---|---|---|---|---|---|---|",
    ]
    for (data, settings), orders in groups.items():
        cells = []
        for order in ("attribution", "distance", "random"):
            values = [100 * float(row["share_to_flip"]) for row in orders[order]]
            spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.1f}{spread} %")
        own = orders["attribution"]
        error = f"{100 * statistics.mean(float(row['completeness_mean']) for row in own):.2f} / "
        error += f"{100 * max(float(row['completeness_max']) for row in own):.2f} %"
        kind = settings.removeprefix("network=") or "default"
        lines.append(f"| {data} | {kind} | {len(own)} | {' | '.join(cells)} | {error} |")
    return (HERE / "explain.head.md").read_text().replace("{{faithfulness}}", "\n".join(lines))


def invariance_page() -> str:
    """What each setting of CrossMetric did, beside k-means on the network it began with."""
    rows = list(csv.DictReader((HERE.parent / "benchmarks/results/cross_metric.csv").open()))
    groups = defaultdict(list)
    for row in rows:
        groups[row["study"], row["data"], row["setting"], f"{row['pretrain_epochs']} + {row['epochs']}"].append(row)
    lines = [
        "| study | data | setting | epochs | seeds | ACC | AE + k-means | NMI | AE + k-means | loss | clusters |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (study, data, setting, epochs), group in groups.items():
        cells = []
        for name in ("acc", "start_acc", "nmi", "start_nmi"):
            values = [float(row[name]) for row in group]
            spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.1f}{spread}")
        first, last, left = (
            statistics.mean(float(row[name]) for row in group)
            for name in ("first_loss", "last_loss", "effective_clusters")
        )
        said = ", ".join(f"{name} {value}" for name, value in json.loads(setting).items())
        lines.append(
            f"| {study} | {data} | {said} | {epochs} | {len(group)} | {' | '.join(cells)} "
            f"| {first:.2f} to {last:.2f} | {left:.1f} |"
        )
    return (HERE / "invariance.head.md").read_text().replace("{{table}}", "\n".join(lines))


def streams_page() -> str:
    """Rows a second, streaming MNIST, and the memory map, from their CSV files."""

    def rows(name: str) -> list[dict[str, str]]:
        path = HERE.parent / "benchmarks/results" / name
        return list(csv.DictReader(path.open())) if path.exists() else []

    def scores(runs: list[dict[str, str]]) -> str:
        values = [[float(run[score]) for run in runs] for score in ("acc", "nmi", "ari")]
        return " / ".join(f"{statistics.mean(v):.1f} ± {statistics.stdev(v):.1f}" for v in values)

    shapes = defaultdict(dict)
    for row in rows("streams_speed.csv"):
        shapes[row["method"]][f"k = {row['k']}, d = {row['d']}"] = f"{int(row['rows_per_second']):,}"
    columns = list(next(iter(shapes.values())))
    speed = [f"| rows a second | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
    speed += [f"| {name} | {' | '.join(found[column] for column in columns)} |" for name, found in shapes.items()]
    groups = defaultdict(lambda: defaultdict(list))
    for row in rows("streams_mnist.csv"):
        if row["labels"] == "on arrival":
            groups[row["method"]][row["stream"]].append(row)
    streams = ("shuffled", "classes in order")
    mnist = [f"| | seeds | {' | '.join(streams)} |", "|---|---|---|---|"]
    for name, found in groups.items():
        cells = " | ".join(scores(found[stream]) for stream in streams)
        mnist.append(f"| {name} | {len(found['shuffled'])} | {cells} |")
    large = [
        "| rows | method | starts | processor seconds | inertia a row | anonymous memory |",
        "|---|---|---|---|---|---|",
        *(
            f"| {int(row['rows']):,} | {row['method']} | {row['starts']} | {row['processor_seconds']} "
            f"| {row['inertia_per_row']} | {row['anonymous_gb']} GB |"
            for row in rows("large.csv")
            if row["method"] != "KMeansNet"
        ),
    ]
    learnt = defaultdict(lambda: defaultdict(list))
    for row in rows("features.csv"):
        learnt[row["features"], row["protocol"]][row["method"]].append(row)
    features = ["| features | | seeds | k-means | TELL |", "|---|---|---|---|---|"] if learnt else ["Not run yet."]
    features += [
        f"| {name} | {protocol} | {len(found['TELL'])} | {scores(found['k-means'])} | {scores(found['TELL'])} |"
        for (name, protocol), found in learnt.items()
    ]
    page = (HERE / "streams.head.md").read_text()
    marks = {"speed": speed, "mnist": mnist, "features": features, "large": large}
    for name, lines in marks.items():
        page = page.replace("{{" + name + "}}", "\n".join(lines))
    return page


def compare_page() -> str:
    """The tables of `diffclust compare digits`, from their CSV files."""
    head = papers.filled((HERE / "compare.head.md").read_text(), Records(HERE.parent / "benchmarks/results"))
    results = HERE.parent / "benchmarks/results"
    deep = [each.name for each in (*TRANSDUCTIVE, *METHODS) if each.name not in BASELINES]
    head = head.replace("{{digits}}", compared(results / "compare_digits.csv", BASELINES))
    return head.replace("{{all}}", compared(results / "compare_all.csv", deep))


def compared(path: Path, names: Iterable[str]) -> str:
    groups = defaultdict(list)
    for row in csv.DictReader(path.open()):
        if row["method"] in names:
            groups[row["method"]].append(row)
    lines = ["| method | ACC | NMI | ARI | silhouette | seconds | GB |", "|---|---|---|---|---|---|---|"]
    for name, group in groups.items():
        done = [row for row in group if not row["failure"]]
        if not done:
            lines.append(f"| `{name}` | {group[0]['failure']} | | | | | |")
            continue
        cells = []
        for score in ("ACC", "NMI", "ARI", "silhouette"):
            values = [100 * float(row[score]) for row in done]
            spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.1f}{spread}")
        seconds, size = (statistics.mean(float(row[key]) for row in done) for key in ("seconds", "gigabytes"))
        lines.append(f"| `{name}` | {' | '.join(cells)} | {seconds:.1f} | {size:.2f} |")
    return "\n".join(lines)


TABLES_TOLD = {
    "penguins.csv": "penguins: 344 x 7, two categories, blanks",
    "mushroom.csv": "mushroom: 5,644 x 22, all categories",
    "mice_protein.csv": "mice_protein: 1,080 x 78, blanks, an id",
    "gtzan30.csv": "gtzan30: 1,000 x 59, very uneven units, an id",
    "customers": "customers (made up): 1,000 x 9, date, categories, blanks, an id",
    "bbc.csv.gz": "bbc: 1,490 news texts",
    "searchsnippets.csv.gz": "searchsnippets: 12,295 short texts",
    "wine": "wine: 178 x 13",
    "breast_cancer": "breast_cancer: 569 x 30",
}


def tables_page() -> str:
    """Tables as people have them: TELL beside k-means and k-prototypes, whole and with blanks."""
    runs = defaultdict(list)
    for run in csv.DictReader((HERE.parent / "benchmarks/results/tables.csv").open()):
        runs[run["data"], run["method"], run["blank"]].append((float(run["acc"]), float(run["nmi"])))

    def cell(*key: str) -> str:
        scores = [statistics.mean(values) for values in zip(*runs[key], strict=True)] if runs[key] else []
        return f"{scores[0]:.1f} / {scores[1]:.1f} ({len(runs[key])})" if scores else ""

    methods = ("k-means", "k-prototypes", "k-means, our rows", "TELL")
    measured = [f"| set | {' | '.join(methods)} |", "|---" * 5 + "|"]
    measured += [
        f"| {told} | {' | '.join(cell(name, each, '0') for each in methods)} |" for name, told in TABLES_TOLD.items()
    ]
    blanks = ["| set | k-means, whole | blanked | TELL, whole | blanked | TELL loses (NMI) |", "|---" * 6 + "|"]
    for name in TABLES_TOLD:
        whole, blanked = (runs[name, "TELL", share] for share in ("0", "0.2"))
        if whole and blanked:
            lost = statistics.mean(nmi for _, nmi in whole) - statistics.mean(nmi for _, nmi in blanked)
            cells = [cell(name, each, share) for each in ("k-means", "TELL") for share in ("0", "0.2")]
            blanks.append(f"| {name.split('.')[0]} | {' | '.join(cells)} | {lost:.1f} |")
    page = (HERE / "tables.head.md").read_text()
    return page.replace("{{measured}}", "\n".join(measured)).replace("{{blanks}}", "\n".join(blanks))


RESULTS = HERE.parent / "benchmarks/results"


reference.write(HERE)
(HERE / "compare.md").write_text(compare_page())
(HERE / "results.md").write_text(results_page())
(HERE / "explain.md").write_text(explain_page())
(HERE / "invariance.md").write_text(invariance_page())
(HERE / "streams.md").write_text(streams_page())
(HERE / "tables.md").write_text(tables_page())
(HERE / "choose.md").write_text(choose.page((HERE / "choose.head.md").read_text(), RESULTS))
(HERE / "papers.md").write_text(papers.page((HERE / "papers.head.md").read_text(), RESULTS))
(HERE / "letter.md").write_text(letter.page((HERE / "letter.head.md").read_text(), RESULTS))
for name in ("rows", "rows_more", "number"):
    (HERE / f"{name}.md").write_text(measured.page((HERE / f"{name}.head.md").read_text(), RESULTS))
(HERE / "extra").mkdir(exist_ok=True)
gallery.write(HERE)
notebook.write(HERE)
live.write(HERE)
(HERE / "extra" / "llms.txt").write_text(llms.page(HERE))
