"""A table as text: the paper's figures next to ours, which come from the recorded runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median, stdev

from scipy.stats import spearmanr, ttest_ind_from_stats

from .published import Line, published
from .record import Outcome, Records
from .search import with_choices
from .spec import PaperTable, Row

SIGNIFICANCE = 0.05  # level of the t-test by which a mean is as good as the best
ONE_CLUSTER = 1.001  # effective number of clusters below which all rows are in one
MARK = "†"
NOT_AGAIN = "paper, not run again"
BEST_BY = {
    "loss": ("clustering_loss", min),
    "scatter": ("scatter", min),
    "balance": ("effective_clusters", max),
}


@dataclass
class Printed:
    """A table as text: its header, its lines, and the notes below it."""

    header: list[str]
    lines: list[list[str]]
    notes: list[str]

    def markdown(self) -> str:
        rows = [self.header, ["---"] * len(self.header), *self.lines]
        table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
        return "\n\n".join([table, *self.notes])


def printed(table: PaperTable, records: Records, seeds: int | None = None) -> Printed:
    table = with_choices(table, records)
    layout = {"scores": _scores, "runs": _runs, "sets": _sets}[table.layout]
    shown = layout(table, records, seeds or table.seeds)
    if table.notes:
        shown.notes.append(table.notes)
    return shown


def kept(row: Row, outcomes: Sequence[Outcome]) -> dict[str, Outcome]:
    """The runs that label-free rules choose: the rule of the row, and that of the most even clusters."""
    if row.rule is None or len(outcomes) < 2:
        return {}
    rules = {rule: BEST_BY[rule] for rule in (row.rule, "balance")}
    return {
        rule: best(outcomes, key=lambda outcome: outcome.figures[column])
        for rule, (column, best) in rules.items()
        if all(column in outcome.figures for outcome in outcomes)
    }


def _blocks(table: PaperTable) -> list[tuple[Line | None, list[Row]]]:
    """Published lines by data set, in the paper's order, each with our rows that are compared with it; then our other
    rows."""
    lines = published(*table.source) if table.source else []
    sets = list(dict.fromkeys(line.dataset for line in lines))
    lines = sorted(lines, key=lambda line: sets.index(line.dataset))
    blocks: list[tuple[Line | None, list[Row]]] = []
    for line in lines:
        rows = [row for row in table.rows if row.published == line.name]
        if rows or table.whole:
            blocks.append((line, rows))
    known = {line.name for line in lines}
    alone = [row for row in table.rows if row.published not in known]
    return [*blocks, *([(None, alone)] if alone else [])]


def _scores(table: PaperTable, records: Records, seeds: int) -> Printed:
    header = ["data", "row", "", *table.metrics, "every run: ACC"]
    names = {row.published[0]: row.spec.where for row in table.rows if row.spec and row.published}
    best = {row.spec.where: _best(table, records, row.spec.where) for row in table.rows if row.spec}
    lines = []
    for line, rows in _blocks(table):
        where = names.get(line.dataset, line.dataset.removesuffix("-full")) if line else ""
        if line:
            word = "paper" if rows else NOT_AGAIN
            lines.append([where, line.label, word, *map(line.cell, table.metrics), ""])
        for row in rows:
            lines += _row(row, records, best, table, seeds, where or (row.spec.where if row.spec else ""))
    if len({line[0] for line in lines}) == 1:  # there is one data set, which the title names
        header, lines = header[1:], [line[1:] for line in lines]
    return Printed(header, lines, _remarks(table, records))


def _row(
    row: Row, records: Records, best: dict[str, dict[str, list[float]]], table: PaperTable, seeds: int, where: str
) -> list[list[str]]:
    outcomes = records.of(row.spec) if row.spec else []
    if row.spec is None or not outcomes:
        return [[where, row.label, row.reason, *("" for _ in table.metrics), ""]]
    cells = []
    for column in table.metrics.values():
        values = [outcome.figures[column] for outcome in outcomes]
        ranked = not row.by_labels and not collapsed(outcomes) and as_good(values, best[row.spec.where][column])
        mark = f" {MARK}" if ranked else ""
        cells.append(spread(values) + mark)
    wanted = row.wanted(seeds)
    many = f"mean of {len(outcomes)}" + (f" (of {wanted})" if len(outcomes) < wanted else "")
    every = " ".join(f"{outcome.figures['acc']:.1f}" for outcome in outcomes)
    lines = [[where, row.label, many if len(outcomes) > 1 else "one run", *cells, every]]
    for rule, choice in kept(row, outcomes).items():
        figures = [f"{choice.figures[column]:.2f}" for column in table.metrics.values()]
        lines.append([where, "", f"kept by {rule}", *figures, ""])
    return lines


def _best(table: PaperTable, records: Records, where: str) -> dict[str, list[float]]:
    """For each score, the runs of the row with the best mean on a data set, among rows whose settings labels did not
    choose."""
    rows = [records.of(row.spec) for row in table.rows if row.spec and row.spec.where == where and not row.by_labels]
    rows = [outcomes for outcomes in rows if outcomes and not collapsed(outcomes)]
    found: dict[str, list[float]] = {}
    for column in table.metrics.values():
        values = [[outcome.figures[column] for outcome in outcomes] for outcomes in rows]
        found[column] = max(values, key=mean, default=[])
    return found


def collapsed(outcomes: Sequence[Outcome]) -> bool:
    """Whether every run ended with all samples in one cluster, whose completeness is 100 %."""
    return all(outcome.figures.get("effective_clusters", 2.0) < ONE_CLUSTER for outcome in outcomes)


def as_good(values: Sequence[float], best: Sequence[float]) -> bool:
    """Whether a mean is the best, or not significantly different from it (Welch's t-test over the runs)."""
    if list(values) == list(best):
        return True
    if len(values) < 2 or len(best) < 2:
        return False
    ours, theirs = ((mean(runs), stdev(runs), len(runs)) for runs in (values, best))
    if ours[1] == theirs[1] == 0:
        return ours[0] == theirs[0]
    return bool(ttest_ind_from_stats(*ours, *theirs, equal_var=False).pvalue > SIGNIFICANCE)


def spread(values: Sequence[float]) -> str:
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def _remarks(table: PaperTable, records: Records) -> list[str]:
    runs = [records.of(row.spec) for row in table.rows if row.spec]
    remarks = [
        f"{MARK}: the best mean of ours on the data set, or not significantly different from it (Welch's t-test over "
        f"the runs, p > {SIGNIFICANCE:g})."
        + (" Rows whose λ was chosen by labels are not ranked." if any(row.by_labels for row in table.rows) else "")
        + (" Rows that end in one cluster are not ranked." if any(map(collapsed, filter(None, runs))) else "")
    ]
    groups: dict[str, list[Row]] = {}
    for row in table.rows:
        if row.group:
            groups.setdefault(row.group, []).append(row)
    lines = {line.name: line for line in published(*table.source)} if table.source else {}
    for group, rows in groups.items():
        ours = [
            mean(o.figures["acc"] for o in outcomes) for row in rows if row.spec and (outcomes := records.of(row.spec))
        ]
        figures = {row.published: lines[row.published].figures for row in rows if row.published in lines}
        theirs = {name: float(line["ACC"]) for name, line in figures.items() if "ACC" in line}  # some print only NMI
        said = [f"ours {max(ours) - min(ours):.2f}"] if len(ours) > 1 else []
        said += [f"paper {max(theirs.values()) - min(theirs.values()):.2f}"] if len(theirs) > 1 else []
        if said and len(ours) > 1:
            remarks.append(f"Largest less smallest mean ACC of {group} ({len(ours)} rows): {', '.join(said)}.")
    return remarks


def _runs(table: PaperTable, records: Records, seeds: int) -> Printed:
    """Every run with its clustering loss, smallest first."""
    header = ["whose", "run", "clustering loss", *table.metrics]
    lines, notes = [], []
    theirs = sorted(published(*table.source), key=lambda line: float(line.figures["L_clu"])) if table.source else []
    for line in theirs:
        lines.append(["paper", line.variant, line.figures["L_clu"], *(line.figures[name] for name in table.metrics)])
    if theirs:
        notes.append("paper: " + _correlation([(float(t.figures["L_clu"]), float(t.figures["ACC"])) for t in theirs]))
    for row in table.rows:
        outcomes = records.of(row.spec) if row.spec else []
        if not outcomes:
            lines.append(["ours", row.reason, "", *("" for _ in table.metrics)])
        for o in sorted(outcomes, key=lambda o: o.figures["clustering_loss"]):
            scores = [f"{o.figures[column]:.2f}" for column in table.metrics.values()]
            lines.append(["ours", f"seed {o.seed}.{o.restart}", f"{o.figures['clustering_loss']:.9f}", *scores])
        if outcomes:
            of = f" (of {seeds})" if len(outcomes) < seeds else ""
            means = " / ".join(spread([o.figures[column] for o in outcomes]) for column in table.metrics.values())
            pairs = [(o.figures["clustering_loss"], o.figures["acc"]) for o in outcomes]
            notes.append(f"ours: mean of {len(outcomes)}{of}: {means}. {_correlation(pairs)}")
    return Printed(header, lines, notes)


def _correlation(pairs: Sequence[tuple[float, float]]) -> str:
    losses, scores = zip(*pairs, strict=True)
    if len(set(losses)) < 3 or len(set(scores)) < 2:
        return "Too few different runs for a rank correlation."
    rho = float(spearmanr(losses, scores).statistic)
    return f"Rank correlation of loss and ACC over {len(pairs)} runs: {rho:.2f} (-1: the smaller loss is always right)."


def _sets(table: PaperTable, records: Records, seeds: int) -> Printed:
    """ACC: a line per method, a column per data set."""
    lines: list[list[str]] = []
    sets = list(dict.fromkeys(row.published[0] for row in table.rows if row.published))
    header = ["method", "", *(name.rpartition("-")[2] for name in sets), "max", "mean", "median"]
    by_method: dict[str, dict[str, str]] = {}
    for line in published(*table.source) if table.source else []:
        if line.dataset in sets:
            by_method.setdefault(line.label, {})[line.dataset] = line.figures["ACC"]
    again = {row.published[1] for row in table.rows if row.published}
    for method, figures in by_method.items():
        if method not in again and not table.whole:
            continue
        cells = [figures[name] for name in sets]
        summary = _summary([float(cell) for cell in cells])
        lines.append([method, "paper" if method in again else NOT_AGAIN, *cells, *summary])
        ours: dict[str, dict[str, Row]] = {}
        for row in table.rows:
            if row.published and row.published[1] == method:
                ours.setdefault(row.label, {})[row.published[0]] = row
        for label, rows in ours.items():
            specs = [rows[name].spec if name in rows else None for name in sets]
            outcomes = [records.of(spec) if spec else [] for spec in specs]
            if not any(outcomes):
                lines.append([label, next(iter(rows.values())).reason, *("" for _ in sets), "", "", ""])
                continue
            means = [mean(o.figures["acc"] for o in runs) if runs else None for runs in outcomes]
            cells = [f"{value:.2f}" if value is not None else "" for value in means]
            known = [value for value in means if value is not None]
            counts = sorted({len(runs) for runs, spec in zip(outcomes, specs, strict=True) if spec})
            many = f"mean of {'-'.join(map(str, dict.fromkeys((counts[0], counts[-1]))))}"
            complete = counts[0] >= seeds
            lines.append([label, many if complete else f"{many} (of {seeds})", *cells, *_summary(known)])
    return Printed(header, lines, [])


def _summary(values: Sequence[float]) -> list[str]:
    return [f"{figure(values):.2f}" for figure in (max, mean, median)]
