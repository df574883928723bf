"""A line search for λ by the accuracy on labelled validation samples, as in some papers.

Every value is tried with the first two seeds. The best mean accuracy on the validation samples decides; the scores of
the row are those of the other samples, and its label says that labels chose λ.
"""

from dataclasses import replace
from statistics import mean

from .record import Records
from .spec import PaperTable, Row, Spec

SEARCH_SEEDS = 2


def candidates(row: Row) -> list[Spec]:
    return [row.spec.with_weight(weight) for weight in row.weights] if row.spec is not None else []


def chosen(row: Row, records: Records, seeds: list[int]) -> Spec | None:
    """The candidate that the validation labels choose; None if runs are missing."""
    tried = []
    for spec in candidates(row):
        runs = [run for run in records.of(spec) if run.seed in seeds and "acc_validation" in run.figures]
        if {run.seed for run in runs} != set(seeds):
            return None
        tried.append((mean(run.figures["acc_validation"] for run in runs), spec))
    return max(tried, key=lambda pair: pair[0])[1] if tried else None


def with_choices(table: PaperTable, records: Records) -> PaperTable:
    """The table with λ in the labels of its rows. After each row comes the one whose λ labels chose, if that search was
    run."""
    rows = []
    for row in table.rows:
        if row.spec is None or not row.weights:
            rows.append(row)
            continue
        rows.append(replace(row, label=named(row.label, row.spec)))
        choice = chosen(row, records, table.numbers(SEARCH_SEEDS))
        if choice is not None:
            label = f"{named(row.label, choice)} by validation labels"
            rows.append(replace(row, label=label, spec=choice, by_labels=True))
    return replace(table, rows=tuple(rows))


def named(label: str, spec: Spec) -> str:
    return f"{label}, λ = {spec.settings['weight']:g}"
