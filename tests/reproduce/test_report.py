"""The printed table, from runs made up so that every figure can be checked by hand."""

import math
from dataclasses import replace

import pytest
from scipy.stats import t

from diffclust.reproduce.report import as_good, kept, printed
from diffclust.reproduce.spec import Row, Spec
from diffclust.reproduce.tables import TABLES, find

from .conftest import outcome, spec, table


def test_paper_mean_and_kept_run_stand_beside_one_another(records):
    one = find("tell/table1").only(["TELL"])
    row = one.rows[0]
    losses = [0.3, 0.1, 0.2]
    records.add("a", [outcome(row.spec, i, acc, clustering_loss=losses[i]) for i, acc in enumerate((90, 80, 70))])
    lines = printed(one, records).lines
    assert lines[0] == ["mnist", "TELL", "paper", "95.16", "88.83", "89.66", ""]
    marks = [f"{mean}.00 ± 10.00 †" for mean in (80, 70, 60)]
    assert lines[1] == ["mnist", "TELL, CNN", "mean of 3 (of 5)", *marks, "90.0 80.0 70.0"]
    assert lines[2] == ["mnist", "", "kept by loss", "80.00", "70.00", "60.00", ""]
    assert lines[4] == ["cifar10", "TELL, CNN, 20,000 images, 500 epochs", "not run yet", "", "", "", ""]


def test_published_lines_that_are_not_run_again_are_marked(records):
    whole = printed(find("tell/table1"), records).lines
    assert ["mnist", "VaDE", "paper, not run again", "92.36", "86.58", "85.09", ""] in whole
    assert {len(row) for row in whole} == {7}


@pytest.mark.parametrize("name", TABLES)
def test_every_table_can_be_printed_before_it_is_run(name, records):
    shown = printed(find(name), records)
    assert shown.lines
    assert {len(line) for line in shown.lines} == {len(shown.header)}


def test_the_rule_keeps_a_run_without_labels():
    runs = [
        outcome(spec(), i, acc, scatter=s, clustering_loss=1 - s) for i, (acc, s) in enumerate([(9, 0.5), (8, 0.2)])
    ]
    assert kept(Row("", spec(), rule="scatter"), runs) == {"scatter": runs[1]}
    assert kept(Row("", spec(), rule="loss"), runs) == {"loss": runs[0]}
    for run, even in zip(runs, (2.0, 1.5), strict=True):
        run.figures["effective_clusters"] = even
    assert kept(Row("", spec(), rule="scatter"), runs) == {"scatter": runs[1], "balance": runs[0]}
    assert kept(Row("", spec()), runs) == {}
    assert kept(Row("", spec(), rule="loss"), runs[:1]) == {}


def welch(a, b):
    """Two-sided p, written out."""
    va, vb = (sum((x - sum(s) / len(s)) ** 2 for x in s) / (len(s) - 1) / len(s) for s in (a, b))
    statistic = (sum(a) / len(a) - sum(b) / len(b)) / math.sqrt(va + vb)
    freedom = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    return 2 * t.sf(abs(statistic), freedom)


def test_not_significantly_different_from_the_best():
    best = [90.0, 91.0, 92.0, 93.0]
    for values in ([89.0, 90.0, 91.0], [80.0, 99.0, 85.0], [88.0, 88.5, 89.0], [60.0, 61.0, 62.0, 90.0]):
        assert as_good(values, best) == (welch(values, best) > 0.05)
    assert as_good([80.0, 99.0, 85.0], best)
    assert not as_good([88.0, 88.5, 89.0], best)
    assert as_good(best, best)
    assert not as_good([91.0], best)  # one run has no spread
    assert not as_good([91.0, 91.0], [92.0, 92.0])
    assert as_good([92.0, 92.0], [92.0, 92.0, 92.0])
    assert not as_good([12.25] * 5, best)  # collapsed runs are all the same


def test_rows_in_one_cluster_have_no_marks(records):
    """They would be the best where no other row has run, and always by completeness."""
    a, b = spec(), spec(epochs=7)
    for which, acc, clusters in ((a, 11.25, 1.0), (b, 5.0, 6.0)):
        records.add("x", [outcome(which, seed, acc, effective_clusters=clusters) for seed in range(3)])
    shown = printed(table(Row("a", a), Row("b", b)), records)
    assert {line[0]: line[2].endswith("†") for line in shown.lines} == {"a": False, "b": True}
    assert shown.notes[0].endswith("Rows that end in one cluster are not ranked.")
    assert not printed(table(Row("b", b)), records).notes[0].endswith("not ranked.")


def test_marks_are_given_within_a_data_set(records):
    a, b, c = spec(), spec(epochs=7), Spec("usps", "kmeans", changes={"n_clusters": 10})
    for which, scores in ((a, (90, 91, 92)), (b, (50, 51, 52)), (c, (20, 21, 22))):
        records.add("x", [outcome(which, seed, acc) for seed, acc in enumerate(scores)])
    shown = printed(table(Row("a", a), Row("b", b), Row("c", c)), records)
    assert {line[1]: line[3].endswith("†") for line in shown.lines} == {"a": True, "b": False, "c": True}


def test_every_run_with_its_loss_and_the_rank_correlation(records):
    one = find("tell/tableS1")
    runs = [(0.0183, 80), (0.0181, 95), (0.0182, 70), (0.0184, 60)]
    made = [outcome(one.rows[0].spec, i, acc, clustering_loss=loss) for i, (loss, acc) in enumerate(runs)]
    records.add("x", made)
    shown = printed(one, records)
    assert [line[1] for line in shown.lines] == ["run=1", "run=2", "run=5", "run=4", "run=3"] + [
        f"seed {seed}.0" for seed in (1, 2, 0, 3)
    ]
    assert shown.lines[5] == ["ours", "seed 1.0", "0.018100000", "95.00", "85.00", "75.00"]
    # ranks of loss 1 2 3 4, of ACC 4 2 3 1: 1 - 6 (9 + 0 + 0 + 9) / (4 · 15) = -0.8; the paper's: 5 4 1 2 3
    assert "over 4 runs: -0.80" in shown.notes[1]
    assert "mean of 4 (of 5): 76.25" in shown.notes[1]
    assert "over 5 runs: -0.60" in shown.notes[0]


def test_a_column_a_superclass(records):
    two = find("tell/table2")
    tell = [row for row in two.rows if row.label == "TELL"]
    for number, row in enumerate(tell):
        records.add("x", [outcome(row.spec, seed, 30 + number + seed) for seed in (0, 2)])
    shown = printed(two, records)
    assert shown.header == ["method", "", *(f"s{i}" for i in range(1, 11)), "max", "mean", "median"]
    ours = next(line for line in shown.lines if line[:2] == ["TELL", "mean of 2 (of 5)"])
    assert ours[2:12] == [f"{31 + number}.00" for number in range(10)]
    assert ours[12:] == ["40.00", "35.50", "35.50"]
    paper = next(line for line in shown.lines if line[:2] == ["TELL", "paper"])
    assert paper[12:] == ["46.20", "35.07", "34.60"]  # as the paper itself prints them
    assert next(line for line in shown.lines if line[0] == "GMM" or line[0] == "SC")[1] == "paper, not run again"
    assert any(line[1] == "not run here: CIFAR-100 could not be had" for line in shown.lines)


def test_the_spread_over_starts(records):
    five = find("kmeansnet/table5")
    rows = [row for row in five.rows if row.group == "k-meansNet literal, dense"]
    for row, acc in zip(rows, (80, 84, 83), strict=True):
        records.add("x", [outcome(row.spec, seed, acc + seed, scatter=0.1) for seed in (0, 1)])
    notes = printed(five, records).notes
    # the paper's: 87.72, 87.76, 87.56
    assert "Largest less smallest mean ACC of k-meansNet literal, dense (3 rows): ours 4.00, paper 0.20." in notes
    assert not any("k-means, raw" in note for note in notes)


def test_the_nmi_of_the_paper(records):
    four = find("kmeansnet/table4")
    run = outcome(four.rows[0].spec, 0, 50, ami=1, homogeneity=2, completeness=3, v_measure=4, scatter=0.5)
    records.add("x", [run])
    shown = printed(four, records)
    assert shown.header[2:5] == ["ACC", "NMI", "ARI"]
    assert shown.lines[1][2:6] == ["50.00 †", "41.00 †", "30.00 †", "1.00 †"]  # the geometric NMI, 9 below ACC


@pytest.mark.parametrize(("name", "first"), [("tell/table6", "88.83"), ("kmeansnet/table4", "85.52")])
def test_every_column_of_the_papers_own_lines_is_filled(records, name, first):
    shown = printed(find(name), records)
    lines = [line for line in shown.lines if line[1] == "paper"]
    assert lines[0][shown.header.index("V")] == first
    assert len(lines) == 4
    assert all(all(line[2:-1]) for line in lines)


def test_markdown(records):
    text = printed(table(Row("a | b", spec())), records).markdown()
    assert text.splitlines()[2] == "| a \\| b | not run yet |  |  |  |  |"
    assert text.count("\n\n") == 1


@pytest.mark.parametrize("name", ["tell/table6", "tell/figure7", "kmeansnet/figure5", "dkm/l2"])
def test_tables_without_runs_are_printed_too(records, name):
    shown = printed(find(name), records)
    assert {len(line) for line in shown.lines} == {len(shown.header)}


def test_a_column_is_of_one_data_set_whatever_the_order_of_rows(records):
    one = find("tell/table2")
    backwards = replace(one, rows=one.rows[::-1])
    for number, row in enumerate(one.rows):
        if row.spec and row.published:
            records.add("a", [outcome(row.spec, 0, number)])

    def cells(table):
        shown = printed(table, records)
        columns = {name: i for i, name in enumerate(shown.header) if i > 1}
        return {(line[0], line[1]): {name: line[i] for name, i in columns.items()} for line in shown.lines}

    assert cells(backwards) == cells(one)
