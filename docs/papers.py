"""The page "Do the papers hold?": the headline rows of five papers beside the recorded runs, with a verdict."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

from diffclust.reproduce.published import Line, published
from diffclust.reproduce.record import Records
from diffclust.reproduce.report import kept
from diffclust.reproduce.search import with_choices
from diffclust.reproduce.spec import PaperTable, Row
from diffclust.reproduce.tables import TABLES

NEAR = 2.0  # points of accuracy below the published figure that still count as reaching it
HOLDS, OTHERWISE, NOT, PART, OPEN = "holds", "holds with another rule", "does not hold", "run in part", "not run"
COUNTED = {
    HOLDS: "hold",
    OTHERWISE: "hold with another rule or reading than the paper's",
    NOT: "do not hold",
    PART: "have been run in part only, without reaching the figure",
    OPEN: "have not been run",
}


@dataclass(frozen=True)
class Paper:
    """Whose method, in which of our tables it has headline rows, and why some of them are not reached."""

    title: str
    method: str
    tables: tuple[str, ...]
    because: dict[str, str]  # by the beginning of "table: data: row"; the longest that fits
    keeps_by_loss: bool = False  # the paper prints the run of smallest clustering loss
    otherwise: str = ""  # what other rows are than the paper's own, where one of them reaches the figure


UNBOUNDED = "the loss as printed has no lower bound, and all rows end in one cluster"
NEAR_KMEANS = (
    "with centres tied to the weights it stays near k-means on the same features, which are poorer than the paper's"
)
STARTS = "kmeansnet/table5: mnist-full: k-meansNet, "
READ = (
    "100 epochs, level from the thirtieth on; k-means on the same features is ten points and more below the paper's, "
    "and no reading adds as much to it"
)
ORTHANT = "possibly because random directions fill the sphere, and the embeddings one orthant of it"
NO_TIME = "for want of GPU time"
PIXELS = "level with k-means on the same pixels"


def mark(variant: str) -> str:
    return f"{{{{mean cross-metric/table3 | mnist-test: {variant}, 1e-5}}}}"


PAPERS = (
    Paper(
        "TELL (Peng et al., JMLR 2022)",
        "tell",
        tuple(f"tell/{name}" for name in ("table1", "table4", "table5", "table6", "epochs5000", "table2", "table3")),
        {
            "tell/table4": "in two stages TELL ends below k-means on the same features",
            "tell/table5": "the paper does not say how centres begin or how they follow a stream",
        },
        keeps_by_loss=True,
    ),
    Paper(
        "k-meansNet (Peng et al., 2018)",
        "kmeansnet",
        tuple(
            f"kmeansnet/{name}" for name in ("table1", "table4", "table5", "readings", "figure4", "table2", "table3")
        ),
        {
            "kmeansnet": UNBOUNDED,
            "kmeansnet/table1": f"{UNBOUNDED}; {NEAR_KMEANS}",
            "kmeansnet/table5": NEAR_KMEANS,
            "kmeansnet/readings": READ,
            "kmeansnet/readings: mnist-full: k-meansNet, init=k-means++; features=raw": PIXELS,
            **{f"{STARTS}init=random; features={network}": ORTHANT for network in ("FCN", "CNN")},
            **{f"{STARTS}init={start}; features=raw": PIXELS for start in ("random", "k-means++", "k-means")},
        },
    ),
    Paper(
        "Sample-assignment invariance (Peng et al., TNNLS 2020)",
        "cross-metric",
        tuple(f"cross-metric/table{name}" for name in "3456"),
        {
            "cross-metric": "at a rate of our own, in fewer epochs; not for want of them: the accuracy of the dense "
            "network is within two points of its last after a twentieth of the epochs, on all of MNIST with an NMI "
            "already above the paper's; at 1e-5, with the paper's decay and all its 3,000 epochs, HOMO and HIT have "
            f"{mark('HOMO')} and {mark('HIT')} on MNIST-test, HOE {mark('HOE')}",
        },
    ),
    Paper(
        "Deep k-Means (Moradi Fard et al., 2020)",
        "dkm",
        ("dkm/table1",),
        {
            "dkm/table1: usps": "no λ helps; the autoencoder starts two points lower, and even k-means on the pixels "
            "differs from the paper's, so its copy of USPS may be another",
        },
    ),
    Paper(
        "SSCNet",
        "sscnet",
        ("sscnet/table1",),
        {
            "sscnet/table1": "to the letter it does not train: see [SSCNet as it is printed](letter.md)",
            "sscnet/table1: usps": "to the letter it does not train: see [SSCNet as it is printed](letter.md); ours "
            "with jitter has 97.4 to 97.6 in four runs of five, and 82.6 in one",
            "sscnet/table1: cifar10-full": "a third of the images; to the letter it does not train",
        },
        otherwise="a network of ours out of the paper's parts",
    ),
)
NAMES = {
    "mnist-full": "MNIST",
    "mnist-test": "MNIST, test images",
    "mnist-train60k": "MNIST, streamed",
    "cifar10-full": "CIFAR-10",
    "cifar10-test": "CIFAR-10, test images",
    "usps": "USPS",
    "20news": "20 Newsgroups",
    "rcv1-10k": "RCV1",
    "reuters10k": "Reuters-10k",
    "cifar100-super-s1": "CIFAR-100, one superclass",
}


@dataclass(frozen=True)
class Reading:
    """One way to run a row: its name, the accuracy of every run, and the runs that rules without labels keep."""

    label: str
    accuracies: list[float]
    kept: dict[str, float]
    by_labels: bool = False
    part: str = ""  # what it has of the paper's samples or epochs, where that is too little for a verdict

    @property
    def said(self) -> str:
        spread = f" ± {stdev(self.accuracies):.1f}" if len(self.accuracies) > 1 else ""
        return f"{self.label}: {mean(self.accuracies):.1f}{spread} ({len(self.accuracies)})"


def filled(text: str, records: Records) -> str:
    """Text with the accuracy of recorded rows in it.

    "{{acc TABLE | ROW}}" is mean and deviation, "{{mean TABLE | ROW}}" the mean alone and "{{nmi TABLE | ROW}}" that of
    the geometric NMI; "{{total TABLE | ROW}}" is the accuracy of the run whose reconstruction and clustering loss have
    the smallest sum. ROW has the whole name, such as "mnist: TELL, CNN".
    """

    def figure(found: re.Match[str]) -> str:
        kind, name, wanted = found.groups()
        table = with_choices(TABLES[name], records)
        outcomes = [o for row in table.only([wanted]).rows if row.spec for o in records.of(row.spec)]
        if not outcomes:
            raise ValueError(f"{name} has no runs of {wanted!r}, which a page names.")
        if kind == "total":
            least = min(outcomes, key=lambda each: each.figures["reconstruction"] + each.figures["clustering_loss"])
            return f"{least.figures['acc']:.1f}"
        values = [outcome.figures["nmi_geometric" if kind == "nmi" else "acc"] for outcome in outcomes]
        return f"{mean(values):.1f}" + (f" ± {stdev(values):.1f}" if kind == "acc" and len(values) > 1 else "")

    return re.sub(r"\{\{(acc|mean|nmi|total) ([^|{}]+) \| ([^{}]+)\}\}", figure, text)


def page(head: str, results: Path) -> str:
    """`head` with a table for each paper, and the verdicts counted."""
    records = Records(results)
    sections = [(paper, list(lines_of(paper, records))) for paper in PAPERS]
    verdicts = Counter(verdict for _, lines in sections for *_, verdict, _ in lines)
    counted = ", ".join(f"{verdicts[word]} {said}" for word, said in COUNTED.items() if verdicts[word])
    tables = "\n\n".join(f"## {paper.title}\n\n{table(lines)}" for paper, lines in sections)
    return head.replace("{{counted}}", counted).replace("{{near}}", f"{NEAR:g}").replace("{{tables}}", tables)


def table(lines: list[tuple[str, ...]]) -> str:
    head = ["| row | paper | ours: mean (runs) | verdict |", "|---|---|---|---|"]
    shown = []
    for where, data, row, figure, ours, verdict, because in lines:
        said = f"**{verdict}**" + (f": {because}" if because else "")
        shown.append(f"| {data}: {row} ({where}) | {figure} | {ours} | {said} |")
    return "\n".join([*head, *shown])


def lines_of(paper: Paper, records: Records) -> Iterator[tuple[str, ...]]:
    """The published lines of a paper's own method, each once, with what we have beside it."""
    seen: set[tuple[str, ...]] = set()
    for name in paper.tables:
        found = with_choices(TABLES[name], records)
        if found.layout == "sets":
            yield superclasses(found)
            continue
        lines = published(*found.source or ("", ""))
        sets = list(dict.fromkeys(line.dataset for line in lines))
        for line in sorted(lines, key=lambda line: sets.index(line.dataset)):
            rows = [row for row in found.rows if row.published == line.name and row.spec]
            rows = [row for row in rows if row.spec and row.spec.method == paper.method]
            known = (line.dataset, line.cell("ACC"), *sorted({row.spec.text for row in rows if row.spec}))
            if rows and known not in seen:
                seen.add(known)
                yield whole_line(paper, name, line, rows, records)


def superclasses(found: PaperTable) -> tuple[str, ...]:
    reason = next(row.reason for row in found.rows)
    return f"`{found.name}`", "CIFAR-100", "ten superclasses", "", "", OPEN, reason.removeprefix("not run here: ")


def whole_line(paper: Paper, name: str, line: Line, rows: list[Row], records: Records) -> tuple[str, ...]:
    readings = [reading(row, records) for row in rows if row.spec and records.of(row.spec)]
    figure, data = line.cell("ACC"), NAMES.get(line.dataset, line.dataset)
    row = line.variant.replace("; online: fit on 1000 test images, streamed over 60000 train images", "")
    said = (f"`{name}`", data, ", ".join(filter(None, [line.method, row])), figure)
    if not readings:
        reason = rows[0].reason.removeprefix("not run here: ").removeprefix("not run yet")
        return (*said, "", OPEN, reason or NO_TIME)
    verdict, because = judged(float(figure.split()[0].split("-")[0]), readings)
    if paper.keeps_by_loss and verdict == OTHERWISE and not because.startswith("read"):
        because += f", that of the smallest loss, the paper's rule, {readings[0].kept['loss']:.1f}"
    if verdict == OTHERWISE and paper.otherwise:
        because += f", {paper.otherwise}"
    if verdict == NOT:
        key = f"{name}: {line.dataset}: {line.label}"
        fits = [start for start in paper.because if key.startswith(start)]
        because = filled(paper.because[max(fits, key=len)], records) if fits else ""
    return (*said, "; ".join(each.said for each in readings), verdict, because)


def reading(row: Row, records: Records) -> Reading:
    outcomes = records.of(row.spec) if row.spec else []
    rules = {rule: outcome.figures["acc"] for rule, outcome in kept(row, outcomes).items()}
    return Reading(row.label, [outcome.figures["acc"] for outcome in outcomes], rules, row.by_labels, row.part)


def judged(figure: float, readings: list[Reading]) -> tuple[str, str]:
    """By the mean of the first reading; else of another; else by the most even run; else it does not hold."""
    least = figure - NEAR
    first = readings[0]
    if mean(first.accuracies) >= least:
        return HOLDS, ""
    for each in readings[1:]:
        if mean(each.accuracies) >= least:
            how = "with λ chosen by labels, as the paper chose it" if each.by_labels else f"read as “{each.label}”"
            return OTHERWISE, how
    for each in readings:
        if each.kept.get("balance", 0.0) >= least:
            return OTHERWISE, f"the most even run has {each.kept['balance']:.1f}"
    return (PART, first.part) if all(each.part for each in readings) else (NOT, "")
