"""λ by validation labels: which value they choose, that the row says so, and that nothing is searched unasked."""

import pytest

from diffclust.reproduce.report import printed
from diffclust.reproduce.search import candidates, chosen, with_choices
from diffclust.reproduce.spec import Row, Spec

from .conftest import outcome, spec, table

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SEEDS = (7, 3, 11)
WEIGHTS = (0.1, 1.0, 10.0)


def row(**changes) -> Row:
    return Row("DKM-p", Spec("digits", "dkm", changes={"n_clusters": 10, "weight": 1.0, **changes}), weights=WEIGHTS)


def tried(records, one, accuracies, seeds=SEEDS[:2]):
    """Runs with (test, validation) accuracies for every candidate."""
    for candidate, (test, validation) in zip(candidates(one), accuracies, strict=True):
        records.add("x", [outcome(candidate, seed, test, acc_validation=validation) for seed in seeds])


def test_the_best_mean_accuracy_on_the_validation_part_decides(records):
    one = row()
    tried(records, one, [(50, 60), (90, 50), (70, 59)])  # the scored part would choose the second
    assert chosen(one, records, [7, 3]).settings["weight"] == 0.1
    records.add("x", [outcome(candidates(one)[2], 7, 70, acc_validation=62.0)])  # a mean of 60.5
    assert chosen(one, records, [7, 3]).settings["weight"] == 10
    records.add("x", [outcome(candidates(one)[0], 11, 50, acc_validation=99.0)])  # a seed that is not for the search
    assert chosen(one, records, [7, 3]).settings["weight"] == 10


def test_nothing_is_chosen_before_every_value_was_tried(records):
    one = row()
    tried(records, one, [(50, 60), (90, 50), (70, 59)], seeds=[7])
    assert chosen(one, records, [7, 3]) is None
    for candidate in candidates(one)[:2]:
        records.add("x", [outcome(candidate, 3, 50, acc_validation=50.0)])
    records.add("x", [outcome(candidates(one)[2], 3, 50)])  # scored as a whole: no validation part
    assert chosen(one, records, [7, 3]) is None
    assert [shown.label for shown in with_choices(table(one, random_states=SEEDS), records).rows] == ["DKM-p, λ = 1"]
    assert chosen(Row("plain", spec()), records, [7, 3]) is None


def test_a_row_that_labels_chose_lambda_for_says_so(records):
    one = row()
    tried(records, one, [(50, 60), (90, 50), (70, 59)])
    shown = printed(table(one, Row("k-means", spec()), random_states=SEEDS), records)
    assert [line[0] for line in shown.lines] == [
        "DKM-p, λ = 1",
        "DKM-p, λ = 0.1 by validation labels",
        "k-means",
    ]
    assert [line[2] for line in shown.lines[:2]] == ["90.00 ± 0.00 †", "50.00 ± 0.00"]  # scores of the other samples


def test_a_row_that_labels_chose_lambda_for_is_not_ranked(records):
    one = row()
    tried(records, one, [(50, 50), (60, 60), (70, 90)])
    shown = printed(table(one, random_states=SEEDS), records)
    cells = {line[0]: line[2] for line in shown.lines}
    assert cells == {"DKM-p, λ = 1": "60.00 ± 0.00 †", "DKM-p, λ = 10 by validation labels": "70.00 ± 0.00"}
    assert "not ranked" in shown.notes[0]
    assert "not ranked" not in printed(table(Row("k-means", spec())), records).notes[0]


@pytest.fixture
def small():
    """Deep k-Means on a few digits, in a table with seeds of its own."""
    changes = {"n_clusters": 10, "network": "identity", "epochs": 1, "weight": 1.0}
    some = Spec("digits", "dkm", changes=changes, rows=120, validation=0.1)
    return table(Row("DKM", some, weights=WEIGHTS), random_states=SEEDS)


def test_a_search_is_run_only_when_asked_for(runner, records, small):
    said = []
    assert runner(say=said.append).run(small, 3)
    assert [run.seed for run in records.outcomes] == [7, 3, 11]
    assert {run.settings for run in records.outcomes} == {small.rows[0].spec.text}
    assert not any("validation labels" in line for line in said)
    assert runner(say=said.append).run(small, 3, search=True)
    choice = chosen(small.rows[0], records, [7, 3])
    counts = {spec.text: len(records.of(spec)) for spec in candidates(small.rows[0])}
    assert counts == {spec.text: 2 for spec in candidates(small.rows[0])} | {small.rows[0].spec.text: 3, choice.text: 3}
    again = len(records.outcomes)
    assert runner(say=said.append).run(small, 3, search=True)
    assert len(records.outcomes) == again
    named = [line for line in said if "by validation labels, seed 11" in line]
    assert len(named) == (choice.text != small.rows[0].spec.text)


def test_a_search_that_was_stopped_goes_on(runner, records, small):
    assert not runner(minutes=0).run(small, 2, search=True)
    assert records.outcomes == []
    assert runner().run(small, 2)
    assert not runner(minutes=0).run(small, 2, search=True)
    assert len(records.outcomes) == 2
    assert runner().run(small, 2, search=True)
    assert {len(records.of(spec)) for spec in candidates(small.rows[0])} == {2}
