"""The page "Do the papers hold?": the headline rows of five papers beside the recorded runs, with a verdict."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from diffclust.reproduce.published import Line, published
from diffclust.reproduce.record import Records
from diffclust.reproduce.report import kept
from diffclust.reproduce.search import with_choices
from diffclust.reproduce.spec import PaperTable, Row
from diffclust.reproduce.tables import TABLES

NEAR = 2.0  # points of accuracy below the published figure that still count as reaching it
LEVEL = 0.5  # points that the last third of the epochs may gain in a reading that has come to rest
FEW = 3  # readings of another table that are named one by one
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
    runs: dict[str, tuple[str, str]] = field(
        default_factory=dict
    )  # "table: data: row" -> where all its runs are printed
    note: str = ""  # below the table


UNBOUNDED = "the loss as printed has no lower bound, and all rows end in one cluster"
NEAR_KMEANS = (
    "with centres tied to the weights it stays near k-means on the same features, which are poorer than the paper's"
)
STARTS = "kmeansnet/table5: mnist-full: k-meansNet, "
READ = (
    "in five more readings k-means on the same features is ten points and more below the paper's, and no reading adds "
    "to it what the paper's does"
)
ORTHANT = "possibly because random directions fill the sphere, and the embeddings one orthant of it"
NO_TIME = "for want of GPU time"
PIXELS = "level with k-means on the same pixels"
LITERALLY = "to the letter it does not train: see [SSCNet as it is printed](letter.md)"


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
            "tell/table6": "with Adam all runs are within a point of their end after a fifth of these epochs",
        },
        keeps_by_loss=True,
        runs={"tell/table1: mnist-full: TELL": ("TELL", "S1"), "tell/table1: cifar10-full: TELL": ("TELL", "S2")},
    ),
    Paper(
        "k-meansNet (Peng et al., 2018)",
        "kmeansnet",
        tuple(f"kmeansnet/{name}" for name in ("table1", "table4", "table5", "readings", "table2", "table3")),
        {
            "kmeansnet": UNBOUNDED,
            "kmeansnet/table1": f"{UNBOUNDED}; {NEAR_KMEANS}; {READ}",
            "kmeansnet/table5": NEAR_KMEANS,
            f"{STARTS}init=k-means++; features=CNN": f"{UNBOUNDED}; {NEAR_KMEANS}",
            **{f"{STARTS}init=random; features={network}": ORTHANT for network in ("FCN", "CNN")},
            **{f"{STARTS}init={start}; features=raw": PIXELS for start in ("random", "k-means++", "k-means")},
        },
        note="The paper's figure 4 shows runs of its tables once more, and is not counted. The five runs of the "
        "literal reading with the CNN stand beside two of its figures, 93.11 and 91.26.",
    ),
    Paper(
        "Sample-assignment invariance (Peng et al., TNNLS 2020)",
        "cross-metric",
        tuple(f"cross-metric/table{name}" for name in "3456"),
        {"cross-metric": "see below"},
        note="The paper's learning rates cannot be read in our copy. Rows without a rate in their names have ours, "
        "1e-3 (CIFAR-10: 1e-5), and stop as in the paper where hardly a label changes. With the dense network their "
        "mean accuracy is within two points of its last after a twentieth of the epochs. At 1e-5, with the paper's "
        f"decay, all its 3,000 epochs and distances as they are, HOMO and HIT have {mark('HOMO')} and {mark('HIT')} "
        "on the test images of MNIST: neither that rate nor more epochs bring what is missing there. HOE has "
        f"{mark('HOE')}, since cosine distances as they are lose clusters. At 1e-5 HOT, all of MNIST and the CNN have "
        "not been run. Rows by P2 are labelled by the runs of P1, whose curve they show.",
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
            "sscnet/table1": LITERALLY,
            "sscnet/table1: usps": f"{LITERALLY}; ours with jitter has 97.4 to 97.6 in four runs of five, and 82.6 in "
            "one",
        },
        note="Rows called ours are no readings of the paper but networks of ours out of its parts. Their settings were "
        "chosen while looking at scores on USPS, and on CIFAR-10 those of its own.",
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
    shorter: str = ""  # what it has of the paper's epochs
    gain: float | None = None  # of the mean accuracy, in the last third of the epochs, where a curve is recorded
    other: str = ""  # what it is, where it is no reading of the paper

    @property
    def mean(self) -> float:
        return mean(self.accuracies)

    @property
    def short(self) -> str:
        """Why it has no verdict; empty where it has."""
        if self.part or not self.shorter:
            return self.part
        if self.gain is None:
            return f"{self.shorter}, without a curve"
        return f"{self.shorter}, still rising" if self.gain > LEVEL else ""

    @property
    def said(self) -> str:
        spread = f" ± {stdev(self.accuracies):.1f}" if len(self.accuracies) > 1 else ""
        epochs = f"{self.shorter}: {signed(self.gain)}" if self.shorter else ""
        less = "; ".join(filter(None, [self.part, epochs]))
        return f"{self.label}: {self.mean:.1f}{spread} ({len(self.accuracies)}{less and f'; {less}'})"


def signed(gain: float | None) -> str:
    return "no curve" if gain is None else f"{round(gain, 1) + 0.0:+.1f}"  # no -0.0


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
    tables = "\n\n".join(
        "\n\n".join(filter(None, [f"## {paper.title}", table(lines), filled(paper.note, records)]))
        for paper, lines in sections
    )
    marks = {"counted": counted, "near": f"{NEAR:g}", "level": f"{LEVEL:g}", "tables": tables}
    for name, text in marks.items():
        head = head.replace("{{" + name + "}}", text)
    return head


def table(lines: list[tuple[str, ...]]) -> str:
    head = ["| row | paper | ours: mean (runs) | verdict |", "|---|---|---|---|"]
    shown = []
    for where, data, row, figure, ours, verdict, because in lines:
        said = f"**{verdict}**" + (f": {because}" if because else "")
        shown.append(f"| {data}: {row} ({where}) | {figure} | {ours} | {said} |")
    return "\n".join([*head, *shown])


@dataclass
class Headline:
    """A published figure, and our rows beside it by the table that they stand in. Papers repeat figures from table to
    table; what is the same method on the same data with the same figure is one."""

    line: Line
    rows: dict[str, list[Row]]


def headlines(paper: Paper, records: Records) -> Iterator[Headline | PaperTable]:
    found: dict[Any, Headline | PaperTable] = {}
    for name in paper.tables:
        table = with_choices(TABLES[name], records)
        if table.layout == "sets":
            found[name] = table
            continue
        lines = published(*table.source or ("", ""))
        sets = list(dict.fromkeys(line.dataset for line in lines))
        for line in sorted(lines, key=lambda line: sets.index(line.dataset)):
            rows = [row for row in table.rows if row.published == line.name and row.spec]
            rows = [row for row in rows if row.spec and row.spec.method == paper.method]
            if rows:
                one = found.setdefault((line.dataset, line.method, line.cell("ACC")), Headline(line, {}))
                assert isinstance(one, Headline)
                known = {row.spec.text for each in one.rows.values() for row in each if row.spec}
                one.rows[name] = [row for row in rows if row.spec and row.spec.text not in known]
    yield from found.values()


def lines_of(paper: Paper, records: Records) -> Iterator[tuple[str, ...]]:
    """The published figures of a paper's own method, each once, with what we have beside it."""
    for each in headlines(paper, records):
        yield superclasses(each) if isinstance(each, PaperTable) else whole_line(paper, each, records)


def superclasses(found: PaperTable) -> tuple[str, ...]:
    reason = next(row.reason for row in found.rows)
    return f"`{found.name}`", "CIFAR-100", "ten superclasses", "", "", OPEN, reason.removeprefix("not run here: ")


def whole_line(paper: Paper, headline: Headline, records: Records) -> tuple[str, ...]:
    line, name = headline.line, next(iter(headline.rows))
    key = f"{name}: {line.dataset}: {line.label}"
    by_table = {
        table: [reading(row, records) for row in rows if row.spec and records.of(row.spec)]
        for table, rows in headline.rows.items()
    }
    readings = [each for some in by_table.values() for each in some]
    figure, data = line.cell("ACC"), NAMES.get(line.dataset, line.dataset)
    row = line.variant.replace("; online: fit on 1000 test images, streamed over 60000 train images", "")
    where = ", ".join(f"`{table if table == name else table.partition('/')[2]}`" for table in headline.rows)
    said = (where, data, ", ".join(filter(None, [line.method, row])), figure + all_runs(paper.runs.get(key)))
    if not readings:
        reason = headline.rows[name][0].reason.removeprefix("not run here: ").removeprefix("not run yet")
        return (*said, "", OPEN, reason or NO_TIME)
    value = float(figure.split()[0].split("-")[0])
    verdict, because = judged(value, readings)
    if paper.keeps_by_loss and verdict == OTHERWISE and not because.startswith("read"):
        because += f", that of the smallest loss, the paper's rule, {readings[0].kept['loss']:.1f}"
    if verdict == NOT:
        fits = [start for start in paper.because if key.startswith(start)]
        because = filled(paper.because[max(fits, key=len)], records) if fits else ""
    if verdict in (NOT, PART):
        because += reached_otherwise(value, readings)
    ours = [shown(some, table == name) for table, some in by_table.items() if some]
    return (*said, "; ".join(ours), verdict, because)


def all_runs(where: tuple[str, str] | None) -> str:
    """The mean of a paper's own runs, where it prints them beside the one it keeps."""
    if where is None:
        return ""
    runs = [float(line.figures["ACC"]) for line in published(*where)]
    return f"; mean of its {len(runs)} runs {mean(runs):.1f}"


def shown(readings: list[Reading], own: bool) -> str:
    """Each by its name; many of another table than the row's own in one."""
    if own or len(readings) <= FEW:
        return "; ".join(each.said for each in readings)
    means = [each.mean for each in readings]
    gains = [each.gain for each in readings if each.shorter and each.gain is not None]
    less = f" ({readings[0].shorter}: {signed(min(gains))} to {signed(max(gains))})" if gains else ""
    return f"{len(readings)} more readings: {min(means):.1f} to {max(means):.1f}{less}"


def reading(row: Row, records: Records) -> Reading:
    outcomes = records.of(row.spec) if row.spec else []
    rules = {rule: outcome.figures["acc"] for rule, outcome in kept(row, outcomes).items()}
    accuracies = [outcome.figures["acc"] for outcome in outcomes]
    curves = [outcome.curve for outcome in outcomes]
    return Reading(row.label, accuracies, rules, row.by_labels, row.part, row.shorter, gain(curves), row.other)


def gain(curves: list[list[dict[str, float]]]) -> float | None:
    """Mean accuracy of the last third of the epochs, less that of the third before; curves with a point in both."""
    gains = []
    for curve in curves:
        end = max((point["epoch"] for point in curve), default=0.0)
        last = [point["acc"] for point in curve if point["epoch"] > 2 / 3 * end]
        before = [point["acc"] for point in curve if end / 3 < point["epoch"] <= 2 / 3 * end]
        if last and before:
            gains.append(mean(last) - mean(before))
    return mean(gains) if gains else None


def judged(figure: float, readings: list[Reading]) -> tuple[str, str]:
    """By the mean of the first reading; else of another; else by the most even run; else it does not hold, if one of
    them had all that the paper's has, or came to rest before. Networks of ours decide nothing."""
    least = figure - NEAR
    readings = [each for each in readings if not each.other]
    if not readings:
        return PART, "networks of ours alone"
    first = readings[0]
    if first.mean >= least:
        return HOLDS, ""
    for each in readings[1:]:
        if each.mean >= least:
            how = "with λ chosen by labels, as the paper chose it" if each.by_labels else f"read as “{each.label}”"
            return OTHERWISE, how
    for each in readings:
        if each.kept.get("balance", 0.0) >= least:
            return OTHERWISE, f"the most even run has {each.kept['balance']:.1f}"
    return (PART, first.short) if all(each.short for each in readings) else (NOT, "")


def reached_otherwise(figure: float, readings: list[Reading]) -> str:
    """Which network of ours reaches it, if one does."""
    for each in readings:
        if each.other and each.mean >= figure - NEAR:
            seeds = f"{len(each.accuracies)} seed{'s' * (len(each.accuracies) > 1)}"
            return f"; another network of ours reaches it: “{each.label}”, {each.mean:.1f} on {seeds}, {each.other}"
    return ""
