"""The page "Which method?": recorded runs of defaults beside k-means and UMAP, by kind of data, with a rule."""

import csv
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from measured import cost, cost_ratios
from rows import AS_THEY_ARE  # benchmarks/rows.py

NEAR = 1.0  # points of accuracy within which the simpler choice is as good
KMEANS, UMAP, HDBSCAN, TELL, SSCNET = "k-means", "UMAP + k-means", "UMAP + HDBSCAN", "TELL", "SSCNet"
SIMPLEST_FIRST = (KMEANS, TELL, UMAP, SSCNET)
TIMED = (KMEANS, UMAP, TELL)  # in the runs of rows.csv; of others there are too few to leave out what each has first
Runs = list[dict[str, str]]


@dataclass(frozen=True)
class Measured:
    """One method on one set: mean accuracy, over how many seeds, and the least seconds of a fit, as the first one in a
    process imports and compiles; None where they were not measured in the same way as those of the others."""

    accuracy: float
    seeds: int
    seconds: float | None = None

    @classmethod
    def of(cls, runs: Runs, timed: bool = False) -> "Measured":
        seconds = min(float(run["seconds"]) for run in runs) if timed else None
        return cls(mean(float(run["acc"]) for run in runs), len(runs), seconds)


KINDS = {
    "table of numbers": {
        "breast_cancer": "breast cancer, 569 x 30",
        "gtzan30": "audio statistics, 1,000 x 58",
        "letter": "letters, 20,000 x 16",
        "mice_protein": "protein levels, 1,080 x 77",
        "pendigits": "pen strokes, 10,992 x 16",
        "satimage": "spectral values, 6,435 x 36",
        "segment": "image segments, 2,310 x 19",
        "vowel": "vowels, 990 x 13",
        "wine": "wine, 178 x 13",
    },
    "table with categories": {
        "mushroom": "mushrooms, 5,644 x 98 (one column per category)",
        "penguins": "penguins, 333 x 9",
    },
    "texts (tf-idf)": {
        "20newsgroups": "20 Newsgroups, 18,200 x 2,000",
        "bbc": "BBC news, 1,490 x 2,000",
        "r8": "Reuters R8, 7,674 x 2,000",
        "searchsnippets": "search snippets, 12,295 x 2,000",
    },
    "curves": {
        "acsf1": "power signatures, 200 x 1,460",
        "italy_power": "days of power, 1,096 x 24",
        "movement_libras": "hand movements, 360 x 90",
    },
    "single cells": {"pbmc4k": "blood cells, 4,271 x 1,989", "worm_neuron": "worm neurons, 2,100 x 2,000"},
    "images as rows": {"optdigits": "digits, 5,620 x 64", "umist": "faces, 575 x 1,024"},
    "images": {
        "digits": "digits, 1,797 of 8 x 8",
        "usps": "USPS, 9,298 of 16 x 16",
        "mnist": "MNIST, 70,000 of 28 x 28",
    },
    "images: views of the same objects": {
        "coil20": "COIL-20 objects, 1,440 of 32 x 32",
        "umist-images": "UMIST faces, 575 of 32 x 32",
    },
}


def page(head: str, results: Path) -> str:
    found = {**on_rows(results), **on_images(results)}
    short = ["| you have | use | k-means | UMAP + k-means | TELL |", "|---|---|---|---|---|"]
    whole = []
    for kind, sets in KINDS.items():
        taken = Counter(choice(found[name]) for name in sets)
        common = [name for name in sets if UMAP in found[name] and TELL in found[name]]
        known = common or [name for name in sets if TELL in found[name]]
        cells = [summary([found[name].get(method) for name in known]) for method in (KMEANS, UMAP, TELL)]
        best = ", ".join(f"{method} ({count})" for method, count in taken.most_common())
        short.append(f"| {kind} | {best} | {' | '.join(cells)} |")
        whole.append(f"### {kind.capitalize()}\n\n{table(sets, found)}")
    low, high = cost_ratios(results)
    marks = {
        "short": "\n".join(short),
        "whole": "\n\n".join(whole),
        "near": f"{NEAR:g}",
        "cost": cost(results, ""),
        "ratios": f"{low:.1f} to {high:.1f}",
    }
    for name, text in marks.items():
        head = head.replace("{{" + name + "}}", text)
    return head


def choice(found: dict[str, Measured]) -> str:
    """The simplest of those within a point of the best."""
    best = max(each.accuracy for method, each in found.items() if method in SIMPLEST_FIRST)
    return next(m for m in SIMPLEST_FIRST if m in found and found[m].accuracy >= best - NEAR)


def table(sets: dict[str, str], found: dict[str, dict[str, Measured]]) -> str:
    methods = [m for m in (KMEANS, UMAP, HDBSCAN, TELL, SSCNET) if any(m in found[name] for name in sets)]
    lines = [f"| data | {' | '.join(methods)} | use |", "|---" * (len(methods) + 2) + "|"]
    for name, words in sets.items():
        best = choice(found[name])
        lines.append(f"| {words} | {' | '.join(cell(found[name].get(method)) for method in methods)} | {best} |")
    return "\n".join(lines)


def summary(measured: list[Measured | None]) -> str:
    """Means over the sets of a kind."""
    known = [each for each in measured if each is not None]
    if len(known) < len(measured):
        return ""
    seconds = [each.seconds for each in known if each.seconds is not None]
    time = f", {duration(mean(seconds))}" if seconds else ""
    return f"{mean(each.accuracy for each in known):.1f}{time}"


def cell(measured: Measured | None) -> str:
    if measured is None:
        return ""
    time = "" if measured.seconds is None else f", {duration(measured.seconds)}"
    return f"{measured.accuracy:.1f} ({measured.seeds}){time}"


def duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s" if seconds >= 0.1 else "< 0.1 s"


def read(path: Path) -> Runs:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def on_rows(results: Path) -> dict[str, dict[str, Measured]]:
    """k-means and UMAP in the scaling that is usual for the kind of data."""
    groups: dict[tuple[str, str], Runs] = defaultdict(list)
    timed = read(results / "rows.csv")
    sets = {run["data"] for run in timed}
    for run in [*timed, *read(results / "rows_more.csv")]:
        if not run["new_acc"]:
            groups[run["data"], run["method"]].append(run)
    found: dict[str, dict[str, Measured]] = defaultdict(dict)
    for data in {data for data, _ in groups}:
        scaled = "" if data in AS_THEY_ARE else ", standardised"
        names = {KMEANS: KMEANS + scaled, UMAP: UMAP + scaled, HDBSCAN: HDBSCAN, TELL: TELL}
        chosen = {method: groups[data, name] for method, name in names.items()}
        found[data] = {
            method: Measured.of(runs, method in TIMED and data in sets) for method, runs in chosen.items() if runs
        }
    return found


def on_images(results: Path) -> dict[str, dict[str, Measured]]:
    defaults = [run for run in read(results / "defaults.csv") if run["restart"] == "0"]
    given = [run for run in read(results / "auto.csv") if run["method"] == "TELL, k given"]
    images, views = read(results / "sscnet.csv"), read(results / "images.csv")
    mnist = [run for run in read(results / "tell-table5.csv") if run["settings"] == '{"n_clusters": 10}']
    found: dict[str, dict[str, Runs]] = {name: {} for name in ("digits", "usps", "mnist", "coil20", "umist-images")}
    found["mnist"][KMEANS] = mnist
    for data in ("digits", "usps"):
        for method, name in ((KMEANS, "kmeans"), (SSCNET, "sscnet")):
            found[data][method] = [run for run in defaults if (run["data"], run["method"]) == (data, name)]
    for data in ("coil20", "mnist"):
        found[data][SSCNET] = [run for run in images if (run["data"], run["method"]) == (data, "sscnet")]
    for data in ("digits", "usps", "mnist"):
        found[data][TELL] = [run for run in given if run["data"] == data]
        found[data][UMAP] = [run for run in views if (run["data"], run["features"]) == (data, "UMAP")]
    for method, name in ((KMEANS, "k-means"), (UMAP, "UMAP"), (TELL, "auto")):
        for data in ("coil20", "umist-images"):
            found[data][method] = [run for run in views if (run["data"], run["features"]) == (data.split("-")[0], name)]
    return {data: {m: Measured.of(runs) for m, runs in each.items() if runs} for data, each in found.items()}
