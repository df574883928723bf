"""Deep k-Means' rules: one start and one order of batches for all methods of a seed; some samples are not scored."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from diffclust import AEKMeans, DeepKMeans, load, metrics
from diffclust.engine.model import ClusterModel
from diffclust.methods.dcn import DCNModel
from diffclust.methods.dec import DECModel
from diffclust.methods.deep_kmeans import DeepKMeansModel
from diffclust.reproduce import run
from diffclust.reproduce.dkm import LAMBDAS, SEEDS
from diffclust.reproduce.published import published
from diffclust.reproduce.record import Records
from diffclust.reproduce.report import printed
from diffclust.reproduce.run import Runner
from diffclust.reproduce.search import candidates
from diffclust.reproduce.spec import PaperTable
from diffclust.reproduce.tables import find

from .conftest import outcome

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

PRETRAINED = ("DCN-p", "DKM-p", "IDEC-p", "DEC")


def rows_on_digits(*labels, **changes):
    """The MNIST rows of both tables in their quick version, on digits."""
    found = {row.label: row for name in ("dkm/table1", "dkm/table2") for row in find(name).only(["mnist"]).quick().rows}

    def moved(spec):
        begins = moved(spec.begins) if spec.begins is not None else None
        own = {**spec.changes, **changes} if spec.is_ours else spec.changes
        return replace(spec, data="digits", begins=begins, rows=200, changes=own)

    return tuple(replace(found[label], spec=moved(found[label].spec)) for label in labels)


def on_digits(*labels, **changes) -> PaperTable:
    return PaperTable("some/table", "Digits", rows_on_digits(*labels, **changes), seeds=2, random_states=SEEDS)


@pytest.fixture
def count_starts(monkeypatch):
    fits = []
    reading = AEKMeans._read

    def counted(self, X):
        fits.append(self.random_state)
        return reading(self, X)

    monkeypatch.setattr(AEKMeans, "_read", counted)
    return fits


@pytest.fixture
def first_steps(monkeypatch):
    """For every fit: the state of the model as training begins, and the samples of every batch."""
    fits: list[tuple[dict[str, torch.Tensor], list[torch.Tensor]]] = []
    for model in (DCNModel, DECModel, DeepKMeansModel):

        def prepared(self, data, before=model.before_training):
            before(self, data)
            fits.append(({name: value.clone() for name, value in self.state_dict().items()}, []))

        def seen(self, batch, loss=model.loss):
            fits[-1][1].append(batch.index.clone())
            return loss(self, batch)

        monkeypatch.setattr(model, "before_training", prepared)
        monkeypatch.setattr(model, "loss", seen)
    return fits


def test_methods_of_a_seed_begin_with_the_same_network_centres_and_batches(runner, first_steps, count_starts):
    table = on_digits(*PRETRAINED)
    assert runner().run(table, 2)
    assert count_starts == list(SEEDS[:2])  # once a seed, for four methods
    assert len(first_steps) == 8
    start = table.rows[0].spec.begins
    for which, seed in enumerate(SEEDS[:2]):
        kept = load(runner().checkpoint / f"{start.key}-{seed}").model_.state_dict()
        fits = first_steps[which::2]
        shortest = min(len(batches) for _, batches in fits)
        assert shortest >= 1
        for state, batches in fits:
            for name, value in kept.items():
                assert torch.equal(state[name], value), name
            assert all(map(torch.equal, batches[:shortest], fits[0][1][:shortest]))
    one, other = first_steps[:2]
    assert not torch.equal(one[0]["clusters.weight"], other[0]["clusters.weight"])
    assert not torch.equal(one[1][0], other[1][0])


def test_what_is_recorded_is_a_fit_from_the_shared_start(runner, records):
    table = on_digits("AE-KM", "DKM-p")
    assert runner().run(table, 1)
    ae, dkm = (row.spec for row in table.rows)
    X, y = run.load_samples(ae)
    start = AEKMeans(**ae.settings, random_state=SEEDS[0], device="cpu").fit(X)
    begin = {"network": start.model_.autoencoder, "init": start.cluster_centers_}
    model = DeepKMeans(**{**dkm.settings, **begin}, random_state=SEEDS[0], device="cpu").fit(X)
    order = np.random.default_rng(0).permutation(200)
    validation, scored = order[:20], order[20:]
    for spec, fitted in ((ae, start), (dkm, model)):
        (recorded,) = records.of(spec)
        assert recorded.seed == SEEDS[0]
        assert recorded.figures["acc"] == pytest.approx(100 * metrics.accuracy(y[scored], fitted.labels_[scored]))
        geometric = metrics.nmi(y[scored], fitted.labels_[scored], "geometric")
        assert recorded.figures["nmi_geometric"] == pytest.approx(100 * geometric)
        apart = 100 * metrics.accuracy(y[validation], fitted.labels_[validation])
        assert recorded.figures["acc_validation"] == pytest.approx(apart)
        assert recorded.curve == []  # it would be of all samples


@pytest.mark.parametrize("first", ["AE-KM", "DKM-p"])
def test_the_start_is_trained_once_whichever_row_comes_first(runner, records, count_starts, first, beside):
    table = on_digits("AE-KM", "DKM-p")
    for label in (first, "AE-KM", "DKM-p"):
        assert runner().run(table.only([label]), 2)
    assert count_starts == list(SEEDS[:2])
    assert {(o.seed, o.restart) for o in records.outcomes} == {(seed, 0) for seed in SEEDS[:2]}
    assert all(float(o.place["seconds"]) >= 0 for o in records.outcomes)


@pytest.mark.parametrize("n", [20, 929, 9298, 70_000])
def test_no_sample_is_both_scored_and_for_validation(n):
    validation, scored = run.validation_split(n, 0.1)
    assert len(validation) == n // 10
    assert sorted([*validation, *scored]) == list(range(n))
    assert (validation == run.validation_split(n, 0.1)[0]).all()  # the same for every run
    nothing, everything = run.validation_split(n, 0)
    assert len(nothing) == 0
    assert (everything == np.arange(n)).all()


def test_labels_of_the_validation_part_change_no_score_but_its_own():
    spec = on_digits("KM").rows[0].spec
    X, y = run.load_samples(spec)
    labels = run.classical(spec, X, 0)
    validation, _ = run.validation_split(len(y), spec.validation)
    other = y.copy()
    other[validation] = (other[validation] + 1 + np.arange(len(validation))) % 10
    figures = [run.outcome(spec, 0, truth, {"labels": labels}, 0.0, "", "").figures for truth in (y, other)]
    assert figures[0].pop("acc_validation") != figures[1].pop("acc_validation")
    assert figures[0] == figures[1]


def test_the_authors_seeds_in_their_order(runner, records):
    table = on_digits("KM")
    assert runner().run(table, 2)
    assert [o.seed for o in records.outcomes] == list(SEEDS[:2])
    records.add("x", [outcome(table.rows[0].spec, 0, 50.0), outcome(table.rows[0].spec, SEEDS[4], 50.0)])
    assert runner().run(table, 4)  # a run with another seed is not one of the authors'
    assert [o.seed for o in records.outcomes[4:]] == list(SEEDS[2:4])
    assert table.numbers(12) == [*SEEDS, 0, 1]


class Killed(Exception):
    pass


@pytest.mark.parametrize("victim", ["AE-KM", "DKM-p"])
def test_a_killed_run_goes_on_with_the_same_start(runner, records, tmp_path, monkeypatch, victim):
    """Killed in the pretraining of the start, and in the method itself."""
    monkeypatch.setattr(run, "SLOW_FROM_ROWS", 0)  # a checkpoint an epoch
    table = on_digits("DKM-p", epochs=6)
    table = replace(
        table, rows=tuple(replace(r, spec=replace(r.spec, begins=longer(r.spec.begins))) for r in table.rows)
    )
    whole = Runner(Records(tmp_path / "whole"), tmp_path / "elsewhere", "cpu", say=lambda line: None)
    assert whole.run(table, 1)
    clock = run.Clock.__call__
    epochs = []

    def kill(self, progress):
        clock(self, progress)
        place = "DKM-p" if isinstance(progress.model, DeepKMeansModel) else "AE-KM"
        pretraining = not isinstance(progress.model, ClusterModel)
        if place == victim and (pretraining or victim == "DKM-p"):
            epochs.append(progress.epoch)
            if progress.epoch == 3 and epochs.count(3) == 1:
                raise Killed

    monkeypatch.setattr(run.Clock, "__call__", kill)
    with pytest.raises(Killed):
        runner().run(table, 1)
    assert records.outcomes == []
    assert runner().run(table, 1)
    assert epochs == [0, 1, 2, 3, 3, 4, 5]  # the last whole epoch before the kill was the third
    (ours,), (theirs,) = records.outcomes, whole.records.outcomes
    assert ours.figures == theirs.figures


def longer(spec):
    return replace(spec, changes={**spec.changes, "pretrain_epochs": 6, "epochs": 2})


def test_the_rows_of_the_tables():
    one = {(row.spec.data, row.label): row for row in find("dkm/table1").rows}
    two = {(row.spec.data, row.label): row for row in find("dkm/table2").rows}
    sets = ["mnist", "usps-signed", "20newsgroups", "rcv1"]
    for data in sets:
        for label in ("KM", "AE-KM", "DCN-np", "DKM-a", "DCN-p", "DKM-p"):
            assert one[data, label].published is not None
        for label in ("IDEC-np", "DKM-a", "IDEC-p", "DKM-p", "DEC"):
            assert (two[data, label].published is None) == (label == "DEC")
        for label in ("DKM-a", "DKM-p"):
            assert one[data, label].spec.key == two[data, label].spec.key  # one run serves both tables
        lengths = {
            "DCN-p": 50,
            "DCN-p, 100 epochs": 100,
            "DKM-p": 100,
            "IDEC-p": 50,
            "IDEC-p, 100 epochs": 100,
            "DEC": 100,
        }
        for label, epochs in lengths.items():
            row = (one | two)[data, label]
            assert row.spec.begins.key == one[data, "AE-KM"].spec.key
            assert (row.spec.settings["pretrain_epochs"], row.spec.settings["epochs"]) == (0, epochs)
    for row in (*one.values(), *two.values()):
        assert row.spec.validation == 0.1
        tuned = row.spec.method in ("dcn", "dkm", "idec")
        assert row.weights == (LAMBDAS if tuned and "100 epochs" not in row.label else ())
        if tuned:
            assert row.spec.settings["weight"] == (0.1 if row.spec.method == "idec" else 1.0)
        assert row.reason.startswith("not run here") == (row.spec.data == "rcv1")
    assert one["20newsgroups", "DKM-p, cosine"].spec.settings["distance"] == "cosine"
    vade = two["mnist", "VaDE, 300 epochs"]
    assert (vade.spec.settings["epochs"], vade.seeds) == (300, 5)
    assert find("dkm/table1").numbers(10) == list(SEEDS)


def test_every_recorded_run_belongs_to_a_row():
    """A change of the settings in a method's `papers` would lose what was measured with the old ones."""
    rows = [row for name in ("dkm/table1", "dkm/table2", "dkm/l2") for row in find(name).rows]
    known = {(spec.data, spec.method, spec.text) for row in rows for spec in (row.spec, *candidates(row))}
    records = Records(Path(__file__).parents[2] / "benchmarks/results")
    runs = [run for run in records.outcomes if '"validation"' in run.settings]
    assert len(runs) >= 87
    assert {run.what for run in runs} <= known
    assert {run.seed for run in runs} <= set(SEEDS)


def test_the_papers_figures_come_with_their_spread(records):
    lines = {line.name: line for line in published("DKM", "1")}
    line = lines["mnist-full", "DKM", "p (pretrained)"]
    assert (line.cell("ACC"), line.cell("NMI")) == ("84.0 ± 2.2", "79.6 ± 0.9")
    assert line.cell("ARI") == ""
    assert [len(published("DKM", table)) for table in "12"] == [24, 16]
    usps = find("dkm/table1").only(["usps-signed: DKM-p"])
    records.add("x", [outcome(usps.rows[0].spec, seed, 70 + i) for i, seed in enumerate(SEEDS[:2])])
    shown = printed(usps, records)
    assert shown.header == ["row", "", "ACC", "NMI", "every run: ACC"]
    assert shown.lines[0] == ["DKM, p (pretrained)", "paper", "75.7 ± 1.3", "77.6 ± 1.1", ""]
    marks = ["70.50 ± 0.71 †", "61.50 ± 0.71 †"]  # the geometric NMI, 9 below ACC
    assert shown.lines[1] == ["DKM-p, λ = 1", "mean of 2 (of 10)", *marks, "70.0 71.0"]


def test_rows_with_fewer_seeds_than_the_table(records, runner):
    (row,) = rows_on_digits("KM")
    table = PaperTable("some/table", "Digits", (replace(row, seeds=1),), random_states=SEEDS, seeds=3)
    assert runner().run(table, 3)
    assert len(records.outcomes) == 1
    assert printed(table, records).lines[0][1] == "one run"
    assert [row.wanted(2), replace(row, seeds=5).wanted(3), replace(row, seeds=5).wanted(10)] == [2, 3, 5]
