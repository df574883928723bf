"""The page "SSCNet as it is printed": measurements of the paper's literal pipeline, and what each change gives."""

import csv
import re
from pathlib import Path
from statistics import mean, stdev

from diffclust.reproduce.published import published
from diffclust.reproduce.record import Records
from diffclust.reproduce.tables import TABLES

Figures = dict[tuple[str, str], dict[str, str]]  # (what, of) -> figure name -> value
MENDS = {  # row label of our tables on USPS -> text on this page, in its order
    "SSCNet, to the letter": "literal",
    "to the letter, a rate of 1e-6": "literal, learning rate 1e-6",
    "to the letter, Adam": "literal, with Adam",
    "to the letter, Adam and longer steps": "the same, with the longest allowed steps",
    "SSCNet, mended": 'repaired: `pipeline="references"`, Adam, pretraining',
    "mended, steps of at most 0.01": "repaired, except that steps are at most 0.01",
    "mended, 40 layers": "repaired, 40 layers",
    "mended, references of 1,024": "repaired, 1,024 references",
    "mended, no blocks": "repaired, without L-ADMM blocks",
    "mended, ten codes of our network": "repaired, with the codes of our network",
    "mended, ten codes of our network, jitter": "the same, with augmentation",
    "the paper's dictionary, classifier on its codes": "ours, with the codes of the paper's dictionary",
    "SSCNet, ours": "ours, without augmentation",
    "SSCNet, ours, jitter": "ours, with augmentation: the default",
}
LEFT = ("|X|", "|E|", "|X - A(Z)|", "codes left, %", "|Z|_1 of an image")
TERMS = {"reconstruction": "Σ w |E|", "sparsity": "λ |Z|_1", "spectral": "c1 L_e", "clustering": "c2 L_K"}


def page(head: str, results: Path) -> str:
    found = read(results / "sscnet_letter.csv")
    parts = {
        "start": table("initial weights", found, "start", ("codes left, %", "|Z|_1 of an image", "|X|", "|X - A(Z)|")),
        "gradients": table(
            "term", found, "gradients", ("loss", "gradient of A and A'", "a step, % of the weights"), TERMS
        ),
        "descent": table("L1 with", found, "descent", LEFT),
        "spectrum": table("", found, "spectrum", ("Y(0)", "10 layers", "least")),
        "rotation": table("Y by", found, "rotation", ("as they are, %", "turned, %")),
        "steps": steps(results / "sscnet_letter.csv"),
        "seeds": (results / "sscnet_letter.csv").read_text().splitlines()[-1].split(",")[-3],
        "mends": mends(Records(results)),
        "blocks": blocks(Records(results)),
    }
    for name, text in parts.items():
        head = head.replace("{{" + name + "}}", text)
    return head


def read(path: Path) -> Figures:
    """The last measurement of each kind; the number of steps is not part of its name."""
    found: Figures = {}
    with path.open() as file:
        for row in csv.DictReader(file):
            of = re.sub(r", \d+ steps$", "", row["of"])
            found.setdefault((row["what"], of), {})[row["figure"]] = row["value"]
    return found


def steps(path: Path) -> str:
    """Of the descent, in the last measurement."""
    return re.findall(r", (\d+) steps", path.read_text())[-1]


def table(corner: str, found: Figures, what: str, columns: tuple[str, ...], names: dict[str, str] | None = None) -> str:
    lines = ["| " + " | ".join([corner, *map(escaped, columns)]) + " |", "|---" * (len(columns) + 1) + "|"]
    for (of_what, of), figures in found.items():
        if of_what == what:
            cells = [figures.get(column, "") for column in columns]
            lines.append("| " + " | ".join([escaped((names or {}).get(of, of)), *map(number, cells)]) + " |")
    return "\n".join(lines)


def escaped(text: str) -> str:
    """Bars are no columns."""
    return text.replace("|", "\\|").replace("Z\\|_1", "Z\\|₁")


def number(text: str) -> str:
    value = float(text)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def mends(records: Records) -> str:
    rows = {row.label: row.spec for name in ("sscnet/table1", "sscnet/parts") for row in TABLES[name].rows
            if row.spec and row.spec.data == "usps"}  # fmt: skip
    lines = ["| on USPS | ACC | NMI | seeds |", "|---|---|---|---|"]
    for label, said in MENDS.items():
        runs = [outcome.figures for outcome in records.of(rows[label])]
        scores = [spread([run[column] for run in runs]) for column in ("acc", "nmi_geometric")]
        lines.append(f"| {said} | {' | '.join(scores)} | {len(runs) or 'not run yet'} |")
    return "\n".join(lines)


def blocks(records: Records) -> str:
    lines = ["| on MNIST | ACC | NMI | the paper's NMI | seeds |", "|---|---|---|---|---|"]
    printed = {line.name: line.cell("NMI") for line in published("SSCNet", "3")}
    for row in TABLES["sscnet/figure3"].rows:
        assert row.spec
        runs = [outcome.figures for outcome in records.of(row.spec)]
        scores = [spread([run[column] for run in runs]) for column in ("acc", "nmi_geometric")]
        theirs = printed[row.published] if row.published else ""
        lines.append(f"| {row.label} | {' | '.join(scores)} | {theirs} | {len(runs) or 'not run yet'} |")
    return "\n".join(lines)


def spread(values: list[float]) -> str:
    if not values:
        return ""
    return f"{mean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")
