"""Figures in the pages on rows and on the number of clusters: marks in the text become means of recorded runs.

`{{acc rows | TELL | bbc}}` is the mean accuracy over seeds in `rows.csv`, `{{both ...}}` accuracy / NMI, `{{spread
...}}` the same with the standard deviation of the accuracy, `{{new ...}}` the accuracy on new rows, `{{fallbacks ...}}`
how many runs fell back to k-means. Without a set, it is the mean over all sets; several sets are separated by commas.
`{{cells NAME | SET}}` are the cells of a line of a table, named in `TABLES`; other marks are in `WRITERS`.
"""

import csv
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from number_rules import RULES, SINGLE, means  # benchmarks/number_rules.py
from rows import AS_THEY_ARE  # benchmarks/rows.py

USUALLY_UNSCALED = {  # what UMAP's users leave unscaled: texts, vectors of texts, cells, faces
    *AS_THEY_ARE,
    *("books", "debian_tfidf", "debian_vectors", "fortunes_tfidf", "fortunes_vectors", "orl", "pbmc68k", "tweets"),
}
KMEANS, UMAP, TELL, STANDARDISED = "k-means", "UMAP + k-means", "TELL", ", standardised"
BETTER, USUAL = ", better scaling", ", usual scaling"
ROWS_TABLE = ("both", KMEANS + BETTER), ("both", UMAP + USUAL), ("spread", TELL)
TABLES = {
    "rows": ("rows", ROWS_TABLE),
    "more": ("rows_more", (("both", KMEANS + BETTER), ("both", UMAP + BETTER), ("spread", TELL))),
    "umap": (
        "rows",
        (*(("both", UMAP + how) for how in ("", STANDARDISED, BETTER, ", our units")), ("both", TELL)),
    ),
    "held": (
        "rows_held",
        (
            *(("both", name) for name in (KMEANS, KMEANS + STANDARDISED, UMAP + STANDARDISED)),
            ("both", "TELL, rules of the eighteen sets"),
            ("spread", TELL),
        ),
    ),
    "unseen": (
        "rows_unseen",
        (
            *(("both", name) for name in (KMEANS, KMEANS + STANDARDISED, UMAP + USUAL)),
            ("both", "TELL, rules before"),
            ("spread", TELL),
        ),
    ),
}
SETS = {  # of `rows_unseen.csv`: in view when rules were last changed, and not
    "FIRST": "arrowhead,body,brown,debian_vectors,ecoli,fortunes_vectors,hawks,japanesevowels,led7digit,orl,page_blocks"
    ",phoneme,trace,yeast",
    "OTHERS": "australian,books,debian_tfidf,dermatology,fortunes_tfidf,gunpoint,heart,leaves,magic,osuleaf,pbmc68k"
    ",rodents,tweets",
}
NEAR = 1.0  # points of accuracy below the other by which a choice still counts as right
Run = dict[str, str]


class Runs:
    """The runs of a CSV file, by method and set; of `rows.csv` those that were fitted on all rows."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.found: dict[tuple[str, str], list[Run]] = defaultdict(list)
        with path.open(newline="") as file:
            for run in csv.DictReader(file):
                self.found[run["method"], run["data"]].append(run)
        self.sets = sorted({data for _, data in self.found})

    def of(self, method: str, data: str) -> list[Run]:
        """Those of the better scaling, by accuracy, or of the usual one, where the method says so."""
        if method.endswith(BETTER):
            plain = method.removesuffix(BETTER)
            pair = [runs for name in (plain, plain + STANDARDISED) if (runs := self.found[name, data])]
            return max(pair, key=lambda runs: over(runs, "acc")) if pair else []
        if method.endswith(USUAL):
            method = method.removesuffix(USUAL) + ("" if data in USUALLY_UNSCALED else STANDARDISED)
        return self.found[method, data]

    def seeds(self, method: str) -> str:
        """How many runs every set has."""
        return str(min(len(self.of(method, data)) for data in self.sets))

    def figure(self, kind: str, method: str, sets: Sequence[str] = ()) -> str:
        runs = [self.of(method, data) for data in sets or self.sets]
        if not all(runs):
            raise ValueError(f"{self.name} has no runs of {method!r} on {sets or 'all sets'}.")
        if kind == "fallbacks":
            each = [run for part in runs for run in part]
            return f"{sum(run['network'] == 'ScaledRows' for run in each)} of {len(each)}"
        if kind == "new":
            return f"{mean(over(part, 'new_acc') for part in runs):.1f}"
        acc, nmi = (mean(over(part, score) for part in runs) for score in ("acc", "nmi"))
        if kind == "acc":
            return f"{acc:.1f}"
        if kind == "both":
            return f"{acc:.1f} / {nmi:.1f}"
        if kind == "spread":
            first = [float(run["acc"]) for run in runs[0]]
            spread = f" ± {stdev(first):.1f}" if len(runs) == 1 and len(first) > 1 else ""
            return f"{acc:.1f}{spread} / {nmi:.1f}"
        raise ValueError(f"{kind!r} is no figure of a run.")


def page(head: str, results: Path) -> str:
    """The text with its marks filled."""
    files: dict[str, Runs] = {}

    def runs(name: str) -> Runs:
        if name not in files:
            files[name] = Runs(results / f"{name}.csv")
        return files[name]

    def filled(mark: re.Match[str]) -> str:
        first, *given = mark[1].split(" | ")
        kind, _, name = first.partition(" ")
        if kind in WRITERS:
            return WRITERS[kind](results, name)
        sets = SETS.get(given[-1], given[-1]).split(",") if given[kind != "cells" :] else ()
        if kind == "cells":
            file, columns = TABLES[name]
            return " | ".join(runs(file).figure(what, method, sets) for what, method in columns)
        return runs(name).figure(kind, given[0], sets)

    return re.sub(r"\{\{([^{}]+)\}\}", filled, head)


def lines_of(path: Path) -> list[Run]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def by(lines: list[Run], *names: str) -> dict[tuple[str, ...], list[Run]]:
    found: dict[tuple[str, ...], list[Run]] = defaultdict(list)
    for line in lines:
        found[tuple(line[name] for name in names)].append(line)
    return found


def over(lines: list[Run], name: str) -> float:
    return mean(float(line[name]) for line in lines)


def table(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [titles, ["---"] * len(titles), *lines])


def cost(results: Path, _: str) -> str:
    """CPU seconds of fits of rows."""
    runs = lines_of(results / "rows_cost.csv")
    places = {KMEANS: 2, TELL: 1, UMAP: 1}
    cells = [[method, *(f"{float(run[method]):.{n}f}" for run in runs)] for method, n in places.items()]
    names = [name if " x " in (name := run["data"]) else f"{name}, {run['rows']} x {run['columns']}" for run in runs]
    ratios = [f"{float(run[TELL]) / float(run[UMAP]):.1f}" for run in runs]
    return table(["", *names], [*cells, [f"{TELL}, times {UMAP}", *ratios]])


def cost_ratios(results: Path) -> tuple[float, float]:
    """The least and the most time of TELL, in times of UMAP + k-means."""
    found = [float(run[TELL]) / float(run[UMAP]) for run in lines_of(results / "rows_cost.csv")]
    return min(found), max(found)


def fallback(results: Path, what: str) -> str:
    """How many fits of `rows.csv` fell back to k-means ("fell") or kept the network ("kept"), in how many of them the
    other was more than a point more accurate ("... wrong"), and on which sets it kept the network then ("sets")."""
    found = {key: run for key, (run, *_) in by(lines_of(results / "rows.csv"), "method", "data", "seed").items()}
    counts, sets = {"fits": 0, "fell": 0, "kept": 0, "fell wrong": 0, "kept wrong": 0}, set()
    for method, data, seed in found:
        if method == "TELL, neighbours":
            chosen = found[TELL, data, seed]
            fell = chosen["network"] == "ScaledRows"
            other = found[method if fell else "k-means, our units", data, seed]
            counts["fits"] += 1
            counts["fell" if fell else "kept"] += 1
            wrong = float(other["acc"]) > float(chosen["acc"]) + NEAR
            counts["fell wrong" if fell else "kept wrong"] += wrong
            sets |= {data} if wrong and not fell else set()
    return ", ".join(sorted(sets)) if what == "sets" else str(counts[what])


def methods(results: Path, _: str) -> str:
    """The other methods on rows, and TELL, the best first."""
    runs = Runs(results / "rows.csv")
    names = {name for name, _ in runs.found if name.isalnum() and name != "SSC"}  # which has a table of its own
    best_first = sorted(names, key=lambda name: float(runs.figure("acc", name)), reverse=True)
    return table(
        ["", "ACC / NMI", "seeds"],
        [[f"`{name}`", runs.figure("both", name), runs.seeds(name)] for name in best_first],
    )


def subspaces(results: Path, _: str) -> str:
    """SSC and SSCNet beside k-means, by set, and the shortest times of their fits."""
    runs, names = Runs(results / "rows.csv"), (KMEANS + BETTER, "SSC", "SSCNet")
    lines = []
    for data in runs.sets:
        seconds = (min(float(run["seconds"]) for run in runs.of(name, data)) for name in (*names[1:], TELL))
        scores = (runs.figure("both", name, [data]) for name in names)
        lines.append([data, *scores, ", ".join(f"{each:.1f}" for each in seconds)])
    lines.append(["mean", *(f"**{runs.figure('both', name)}**" for name in names), ""])
    heads = [f"{name.removesuffix(BETTER)} ({runs.seeds(name)})" for name in names]
    return table(["set", *heads, "seconds: SSC, SSCNet, TELL"], lines)


NUMBERED = {  # the sets of the table of numbers of clusters, in its order
    "digits": "digits, images",
    "usps": "USPS, images",
    "mnist": "MNIST, images",
    "coil20": "COIL-20, images",
    "umist": "UMIST, images",
    **{name: name for name in ("pendigits", "bbc", "breast_cancer", "wine", "satimage", "pbmc4k", "segment")},
    **{name: name for name in ("worm_neuron", "movement_libras", "mice_protein", "acsf1", "gtzan30", "vowel")},
    **{name: name for name in ("penguins", "italy_power", "searchsnippets")},
    "blob": "one blob",
    "uniform": "uniform noise",
}
SEARCHED, GIVEN = "TELL", "TELL, k given"
IN_ONE_SWEEP = ("digits", "usps", "mnist", "searchsnippets")  # both fits on one machine at about one time


def scores(runs: list[Run]) -> str:
    return " / ".join(f"{over(runs, name):.1f}" for name in ("acc", "nmi", "ari")) if runs else ""


def number(results: Path, _: str) -> str:
    """Numbers of clusters found, and scores without and with k. With k given, rows are those of `rows.csv`, and views
    of the same objects those of `images.csv`."""
    runs = by(lines_of(results / "auto.csv"), "data", "method")
    given = {data: runs[data, GIVEN] for data in NUMBERED}
    runs_of_rows = [run for run in lines_of(results / "rows.csv") if run["method"] == TELL]
    given |= {data: own for (data,), own in by(runs_of_rows, "data").items()}
    views = by(lines_of(results / "images.csv"), "data", "features")
    given |= {data: views[data, "auto"] for data in ("coil20", "umist")}
    costs = by(lines_of(results / "auto_cost.csv"), "data")
    lines = []
    for data, told in NUMBERED.items():
        searched = runs[data, SEARCHED]
        lines.append([told, searched[0]["classes"], ", ".join(run["found"] for run in searched)])
        if searched[0]["classes"] == "1":
            lines[-1] += [""] * 5
            continue
        lines[-1] += [scores(searched), scores(given[data])]
        for method in ("HDBSCAN", "UMAP + HDBSCAN"):
            own = runs[data, method]
            lines[-1].append(f"{scores(own)} ({', '.join(run['found'] for run in own)})" if own else "")
        if (data,) in costs:
            lines[-1].append(f"{over(costs[data,], 'auto') / over(costs[data,], 'k given'):.1f}")
        elif data in IN_ONE_SWEEP:
            lines[-1].append(f"{over(searched, 'seconds') / over(runs[data, GIVEN], 'seconds'):.1f}")
        else:
            lines[-1].append("")
    titles = ("classes", "found, seed by seed", "without k", "with k given", "HDBSCAN", "UMAP + HDBSCAN", "times a fit")
    return table(["", *titles], lines)


def rules(results: Path, _: str) -> str:
    """The number of clusters that each rule finds, and the means over the sets that have several clusters."""
    runs = lines_of(results / "number_rules.csv")
    lines = [
        [NUMBERED[data], own[0]["classes"], *(f"{over(each, 'found'):.1f}" for each in by(own, "rule").values())]
        for (data,), own in by(runs, "data").items()
    ]
    several = sorted({run["data"] for run in runs} - set(SINGLE))
    columns = [list(means(own, several)) for own in by(runs, "rule").values()]
    for name, digits, figures in zip(
        ("accuracy", "NMI", "off by at most 20 %, percent", "mean of abs(log2(found / classes))"),
        (1, 1, 0, 2),
        zip(*columns, strict=True),
        strict=True,
    ):
        lines.append([f"**{name}**", "", *(f"{figure:.{digits}f}" for figure in figures)])
    return table(["", "classes", *RULES], lines)


def overclustered(results: Path, _: str) -> str:
    runs = by(lines_of(results / "auto.csv"), "data", "method")
    lines = []
    for data, told in NUMBERED.items():
        for start in ("", ", k-means start"):
            if own := runs[data, f"TELL, k over{start}"]:
                lines.append([told, scores(runs[data, GIVEN + start]), scores(own)])
    return table(["", "`TELL(k)`", "`TELL(k, overcluster=2)`"], lines)


def known(results: Path, _: str) -> str:
    """Accuracy with some labels or links, of the seeds that have all three."""
    accuracy = "acc"
    runs = by(lines_of(results / "auto.csv"), "data", "method")
    lines = []
    for data in ("digits", "usps"):
        methods = (GIVEN, "TELL, labels", "TELL, links")
        seeds = set.intersection(*({run["seed"] for run in runs[data, method]} for method in methods))
        each = [[run for run in runs[data, method] if run["seed"] in seeds] for method in methods]
        told = f"{NUMBERED[data].replace(', ', ' as ')}, {len(seeds)} seed{'s' * (len(seeds) > 1)}"
        lines.append(f"| {told} | {' | '.join(f'{over(own, accuracy):.1f}' for own in each)} |")
    return "\n".join(lines)


def outliers(results: Path, _: str) -> str:
    """Areas under the curve of TELL, IsolationForest and HDBSCAN, by set and kind of outlier, and their means."""
    runs = lines_of(results / "outliers.csv")
    sets, kinds, methods = (list(dict.fromkeys(run[name] for run in runs)) for name in ("data", "outliers", "method"))
    found = by(runs, "data", "outliers", "method")

    def cell(data: str, kind: str) -> str:
        return " / ".join(f"{over(found[data, kind, method], 'auc'):.2f}" for method in methods)

    lines = [[data, *(cell(data, kind) for kind in kinds)] for data in sets]
    grouped = by(runs, "outliers", "method")
    lines.append(["mean", *(" / ".join(f"{over(grouped[k, m], 'auc'):.2f}" for m in methods) for k in kinds)])
    return table(["", *kinds], lines)


def sure(results: Path, what: str) -> str:
    """How far the two confidences are from accuracy, by set; or one figure over all of them."""
    from scipy.stats import spearmanr

    runs = [run for run in lines_of(results / "sure.csv") if int(run["rows"])]
    fits = {data: [own[0] for own in by(group, "seed").values()] for (data,), group in by(runs, "data").items()}
    if what in ("stability", "halves"):
        rank = spearmanr([float(run[what]) for run in runs], [float(run["purity"]) for run in runs]).statistic
        return f"{rank:.2f}"
    if what == "clusters":
        return str(len(runs))
    names = ("accuracy", "probability", "probability_error", "confidence", "confidence_error")
    if what in names:
        return f"{mean(over(own, what) for own in fits.values()):.2f}"
    lines = [[data, *(f"{over(own, name):.2f}" for name in names)] for data, own in fits.items()]
    lines.append(["mean", *(f"{mean(over(own, name) for own in fits.values()):.2f}" for name in names)])
    return table(["", "accuracy", "mean probability", "error", "mean confidence", "error"], lines)


WRITERS = {
    "cost": cost,
    "fallback": fallback,
    "methods": methods,
    "subspaces": subspaces,
    "number": number,
    "rules": rules,
    "overclustered": overclustered,
    "known": known,
    "outliers": outliers,
    "sure": sure,
}
