"""What a table lacks is run, once; work that was stopped goes on."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.cluster import KMeans, MiniBatchKMeans

from diffclust import TELL, CrossMetric, callbacks, datasets, metrics
from diffclust.baselines import BASELINES
from diffclust.estimator.base import PrototypeClusterer
from diffclust.reproduce import cross_metric, run
from diffclust.reproduce.record import Records
from diffclust.reproduce.run import Runner
from diffclust.reproduce.spec import Row, Spec
from diffclust.reproduce.tables import find

from .conftest import PLAIN, spec, table

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


class FakeTime:
    """A clock that goes on by a second with every look."""

    def __init__(self):
        self.now = 0

    def monotonic(self):
        self.now += 1
        return self.now


@pytest.fixture
def count_fits(monkeypatch):
    fits = []
    reading = PrototypeClusterer._read

    def counted(self, X):
        given = reading(self, X)
        fits.append((len(given.rows), self.random_state))
        return given

    monkeypatch.setattr(PrototypeClusterer, "_read", counted)
    return fits


def test_every_seed_is_run_once(runner, records, count_fits, beside):
    rows = table(Row("plain", spec()))
    assert runner().run(rows, 2)
    assert count_fits == [(120, 0), (120, 1)]
    assert runner().run(rows, 2)
    again = Runner(Records(records.folder), runner().checkpoint, "cpu", say=lambda line: None)
    assert again.run(rows, 3)
    assert count_fits == [(120, 0), (120, 1), (120, 2)]
    assert (records.folder / "some-table.csv").exists()
    assert not list(runner().checkpoint.iterdir())


def test_what_is_recorded_is_what_a_fit_gives(runner, records):
    runner().run(table(Row("plain", spec())), 1)
    (recorded,) = records.of(spec())
    X, y = run.load_samples(spec())
    model = TELL(**PLAIN, random_state=0, device="cpu").fit(X)
    assert recorded.figures["acc"] == pytest.approx(100 * metrics.accuracy(y, model.labels_))
    assert recorded.figures["nmi_geometric"] == pytest.approx(100 * metrics.nmi(y, model.labels_, "geometric"))
    assert recorded.figures["clustering_loss"] == model.clustering_loss_
    assert recorded.figures["scatter"] == model.runs_[0]["scatter"]
    assert [point["epoch"] for point in recorded.curve] == [1, 2, 3, 4, 5, 6]
    assert recorded.curve[-1]["acc"] == pytest.approx(recorded.figures["acc"], abs=1e-3)
    assert recorded.place["device"].startswith("cpu")
    assert float(recorded.place["seconds"]) >= 0


def test_runs_side_by_side_are_what_they_are_alone(runner, records, beside, at_once, monkeypatch):
    monkeypatch.setattr(callbacks, "SIDE_BY_SIDE", 2)
    runner().run(table(Row("plain", spec())), 3)
    assert at_once == ([2, 1] if beside else [1, 1, 1])
    X, y = run.load_samples(spec())
    for seed, recorded in enumerate(records.of(spec())):
        model = TELL(**PLAIN, random_state=seed, device="cpu").fit(X)
        assert (recorded.seed, recorded.restart) == (seed, 0)
        assert recorded.figures["acc"] == pytest.approx(100 * metrics.accuracy(y, model.labels_))
        assert recorded.figures["clustering_loss"] == model.clustering_loss_


def stopped(runner, monkeypatch, rows, seeds, minutes, **options):
    """The same work in pieces of so many looks at the clock; how many it took."""
    for piece in range(1, 100):
        monkeypatch.setattr(run, "time", FakeTime())
        if runner(minutes=minutes, **options).run(rows, seeds):
            return piece
    raise AssertionError("no end")


COUNTED = {"n_clusters": 10, "pretrain_epochs": 4, "epochs": 6}


def test_work_in_pieces_ends_where_whole_work_does(runner, records, monkeypatch, tmp_path, beside):
    monkeypatch.setattr(run, "SLOW_FROM_ROWS", 0)  # a checkpoint an epoch
    small = Spec("digits", "tell", changes={"network": "dense", **COUNTED}, rows=120)
    rows = table(Row("whole", small))
    whole = Runner(Records(tmp_path / "whole"), tmp_path / "other", "cpu", say=lambda line: None)
    whole.run(rows, 2)
    pieces = stopped(runner, monkeypatch, rows, 2, minutes=7 / 60)
    assert pieces > 3
    for ours, theirs in zip(records.of(small), whole.records.of(small), strict=True):
        assert ours.figures == theirs.figures
        assert ours.curve == theirs.curve
    assert [float(o.place["seconds"]) for o in records.of(small)] == [pytest.approx(10, abs=1.5)] * 2  # of all pieces


def test_a_clean_stop_leaves_one_checkpoint_that_can_travel(runner, records, monkeypatch, tmp_path):
    monkeypatch.setattr(run, "CHECKPOINT_EVERY", 1)
    monkeypatch.setattr(run, "time", FakeTime())
    rows = table(Row("plain", spec(epochs=12)))
    first = runner(minutes=10 / 60)
    assert not first.run(rows, 1)
    assert records.outcomes == []
    (folder,) = first.checkpoint.iterdir()
    assert len(list(folder.iterdir())) == 1
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(first.checkpoint, elsewhere)
    monkeypatch.setattr(run, "time", FakeTime())
    seen = []
    monkeypatch.setattr(run.Evaluate, "__call__", lambda self, progress: seen.append(progress.epoch))
    assert Runner(records, elsewhere, "cpu", say=lambda line: None).run(rows, 1)
    assert seen[0] > 3
    assert seen[-1] == 11


def test_no_time_at_all(runner, records):
    assert not runner(minutes=0).run(table(Row("plain", spec())), 1)
    assert records.outcomes == []


def test_a_run_the_user_broke_off_is_not_recorded(runner, records, monkeypatch):
    def ctrl_c(self, progress):
        raise KeyboardInterrupt

    monkeypatch.setattr(run.Evaluate, "__call__", ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        runner().run(table(Row("plain", spec())), 1)
    assert records.outcomes == []


def test_rows_on_the_same_features_share_one_network(runner, records, count_fits, beside):
    alone = {"n_clusters": 10, "pretrain_epochs": 2, "epochs": 0}
    network = Spec("digits", "tell", changes=alone, rows=120)
    rows = table(
        Row("k-means", Spec("digits", "kmeans", changes={"n_clusters": 10}, features=network)),
        Row(
            "one start",
            Spec("digits", "kmeans", changes={"n_clusters": 10, "init": "random", "n_init": 1}, features=network),
        ),
        Row("two stages", Spec("digits", "tell", changes={**PLAIN, "sphere": True}, features=network)),
    )
    runner().run(rows, 2)
    assert sorted(count_fits) == [(120, 0), (120, 0), (120, 1), (120, 1)]  # network, centres; two seeds
    X, _ = run.load_samples(network)
    ours = np.load(runner().checkpoint / f"{network.key}-1.npy")
    assert (ours == TELL(**alone, random_state=1, device="cpu").fit(X).transform(X)).all()
    for row in rows.rows:
        assert len(records.of(row.spec)) == 2
    assert records.of(rows.rows[0].spec)[0].figures["acc"] > 20  # ten digits: better than nothing


def test_samples_of_unit_length():
    X, y = run.load_samples(Spec("digits", "tell", unit_length=True, rows=50))
    assert X.shape == (50, 8, 8)
    assert np.square(X).sum((1, 2)) == pytest.approx(1)
    plain, same = run.load_samples(Spec("digits", "tell", rows=50))
    assert (y == same).all()
    assert plain / np.linalg.norm(plain, axis=(1, 2), keepdims=True) == pytest.approx(X, abs=1e-6)
    assert len(run.load_samples(Spec("digits", "tell"))[0]) == len(datasets.load("digits")[0])


def test_a_missing_data_set_is_said_once_and_the_rest_goes_on(runner, records, monkeypatch, tmp_path):
    monkeypatch.setenv("DIFFCLUST_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said = []
    rows = [Row("absent", Spec(f"cifar100-s{s}", "tell", "cifar10")) for s in (1, 2)]
    assert runner(say=said.append).run(table(*rows, Row("plain", spec())), 1)
    assert len(said) == 2
    assert said[0].startswith("Not run here: cifar100 is neither in")
    assert "plain, seed 0" in said[1]


@pytest.fixture
def cifar100(monkeypatch, tmp_path):
    """CIFAR-100 in its official binary form, with 12 images of each class of superclass 1, 6 train and 6 test."""
    rng = np.random.default_rng(0)
    home = tmp_path / "cifar-100-binary"
    home.mkdir()
    fine = np.repeat([4, 30, 55, 72, 95], 6).astype(np.uint8)
    for part in ("train", "test"):
        records = rng.integers(0, 256, (30, 3074)).astype(np.uint8)
        records[:, 0], records[:, 1] = 0, fine
        (home / f"{part}.bin").write_bytes(records.tobytes())
    monkeypatch.setenv("DIFFCLUST_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize("name", ["tell/table2", "kmeansnet/table2"])
def test_superclasses_of_cifar100(runner, records, cifar100, name):
    rows = find(name).quick()
    first = [row for row in rows.rows if row.spec.data == "cifar100-s1"]
    runner().run(table(*first), 1)
    for row in first:
        (recorded,) = records.of(row.spec)
        assert 20 <= recorded.figures["acc"] <= 100  # five classes of twelve
        assert recorded.figures["effective_clusters"] <= 5


@pytest.mark.parametrize("small", [True, False])
def test_sparse_rows_and_the_share_of_right_pairs(runner, records, monkeypatch, small):
    X, y = datasets.load("digits")
    rows = sp.csr_matrix(X.reshape(len(X), -1))
    run._load.cache_clear()
    monkeypatch.setattr(run.datasets, "load", lambda name: (rows, y))
    monkeypatch.setattr(run, "MAX_DENSE_VALUES", 120 * 64 if small else 120 * 64 - 1)
    changes = {"n_clusters": 10, "network": "dense", "pretrain_epochs": 1, "epochs": 1}
    sparse = Spec("words", "cross-metric", changes=changes, rows=120)
    means = Spec("words", "kmeans", changes={"n_clusters": 10}, rows=120)
    try:
        assert runner().run(table(Row("sparse", sparse), Row("k-means", means)), 1)
        assert sp.issparse(run.load_samples(sparse)[0]) is not small
    finally:
        run._load.cache_clear()
    (found,) = records.of(sparse)
    assert 0 < found.figures["pair_precision"] <= 100
    kept = np.sort(np.random.default_rng(0).permutation(len(X))[:120])
    labels = KMeans(10, n_init=10, random_state=0).fit_predict(X[kept].reshape(120, -1).astype(float))
    assert records.of(means)[0].figures["acc"] == pytest.approx(100 * metrics.accuracy(y[kept], labels))


@pytest.mark.parametrize("method", ["tell", "kmeans"])
def test_a_stream_is_scored_as_it_arrives(runner, records, method):
    changes = PLAIN if method == "tell" else {"n_clusters": 10}
    online = Spec("digits", method, changes=changes, rows=700, start=100, arriving=600)
    offline = Spec("digits", method, changes=changes, rows=700)
    runner().run(table(Row("online", online), Row("offline", offline)), 2)
    assert [o.seed for o in records.of(online)] == [0, 1]
    X, y = run.load_samples(online)
    rng = np.random.default_rng(1)
    start, order = 600 + rng.choice(100, 100, replace=False), rng.permutation(600)
    if method == "tell":
        model = TELL(**PLAIN, random_state=1, device="cpu")
    else:
        model = MiniBatchKMeans(10, n_init=10, random_state=1)
        X = X.reshape(700, -1).astype(float)
    model.fit(X[start])
    arrived = []
    for batch in (order[:200], order[200:400], order[400:]):  # the fewest batches of at most 256 rows
        arrived.append(model.partial_fit(X[batch]).predict(X[batch]))
    accuracy = 100 * metrics.accuracy(y[order], np.concatenate(arrived))
    assert records.of(online)[1].figures["acc"] == pytest.approx(accuracy)
    assert records.of(offline)[1].figures["acc"] != pytest.approx(accuracy)  # of all rows, at once
    assert online.quick().arriving < online.quick().rows


def test_a_stream_of_features(runner, records):
    net = {"n_clusters": 10, "network": "dense", "pretrain_epochs": 1, "epochs": 0}
    learnt = Spec("digits", "tell", changes=net, rows=300)
    means = {"n_clusters": 10}
    online = Spec("digits", "kmeans", changes=means, features=learnt, start=50, arriving=200)
    pixels = Spec("digits", "kmeans", changes=means, rows=300, start=50, arriving=200)
    runner().run(table(Row("features", online), Row("pixels", pixels)), 1)
    X, y = run.load_samples(online)
    Z = TELL(**net, random_state=0, device="cpu").fit(X).transform(X).astype(float)
    rng = np.random.default_rng(0)
    start, order = 200 + rng.choice(100, 50, replace=False), rng.permutation(200)
    labels = MiniBatchKMeans(10, n_init=10, random_state=0).fit(Z[start]).partial_fit(Z[order]).predict(Z[order])
    assert records.of(online)[0].figures["acc"] == pytest.approx(100 * metrics.accuracy(y[order], labels))
    assert records.of(online)[0].figures["acc"] != records.of(pixels)[0].figures["acc"]


def test_labels_can_be_read_off_another_run(runner, records, count_fits):
    """One network for all, one fit for both assignments of a variant: P₂ as of a fit that was asked for it."""
    mine = {"n_clusters": 10, "network": "dense", "matched": False}
    start = Spec("digits", "cross-metric", changes={**mine, "pretrain_epochs": 2, "epochs": 0}, rows=120, shared=True)
    learns = {**mine, "pretrain_epochs": 0, "epochs": 3, "metric": "cityblock"}
    first = Spec("digits", "cross-metric", changes=learns, rows=120, begins=start, shared=True)
    second = cross_metric.by_target(first)
    means = Spec("digits", "kmeans", changes={"n_clusters": 10}, features=start)
    rows = table(Row("P1", first), Row("P2", second), Row("k-means", means))
    runner().run(rows, 2)
    assert len(count_fits) == 4  # two seeds: the start and the variant
    p1, p2 = (records.of(spec)[0] for spec in (first, second))
    assert p1.figures["clustering_loss"] == p2.figures["clustering_loss"]

    X, y = run.load_samples(first)
    begun = CrossMetric(**start.settings, random_state=0, device="cpu").fit(X)
    begin = {"network": begun.model_.autoencoder, "init": begun.cluster_centers_}
    asked = CrossMetric(**{**second.settings, **begin}, random_state=0, device="cpu").fit(X)
    assert p2.figures["acc"] == pytest.approx(100 * metrics.accuracy(y, asked.labels_))
    labels = BASELINES["kmeans"](begun.transform(X).astype(float), 10, 0)
    assert records.of(means)[0].figures["acc"] == pytest.approx(100 * metrics.accuracy(y, labels))


def test_rows_that_begin_alike_run_at_once(runner, records, beside, at_once):
    mine = {"n_clusters": 10, "network": "dense", "embedding_dim": 4, "rescale": False, "tolerance": 0, "repair": False}
    start = Spec("digits", "cross-metric", changes={**mine, "pretrain_epochs": 2, "epochs": 0}, rows=120, shared=True)
    specs = [
        Spec("digits", "cross-metric", changes={**mine, "pretrain_epochs": 0, **own}, rows=120, begins=start)
        for own in ({"epochs": 2, "metric": "euclidean"}, {"epochs": 4, "metric": "cosine"})
    ]
    runner().run(table(*(Row(f"row {i}", each) for i, each in enumerate(specs))), 2)
    assert at_once == ([2, 4] if beside else [1] * 6)  # two starts, and what they lead to
    read = [replace(each, shared=False, reads=replace(each, shared=True)) for each in specs]
    read = [replace(each, changes={**each.changes, "inference": "target"}) for each in read]
    at_once.clear()
    runner().run(table(*(Row(f"row {i}, P2", each) for i, each in enumerate(read))), 2)
    assert at_once == ([4] if beside else [1] * 4)
    short, long = ([float(run.place["seconds"]) for run in records.of(each)] for each in specs)
    assert len(short) == len(long) == 2
    if beside:
        assert sum(long) == pytest.approx(2 * sum(short), abs=0.21)  # shared out by epochs, to a tenth of a second each
    for each in specs:
        alone = Runner(Records(records.folder / "alone"), runner().checkpoint / "alone", "cpu", say=lambda line: None)
        alone.run(table(Row("alone", each)), 2)
        for ours, theirs in zip(records.of(each), alone.records.of(each), strict=True):
            assert ours.figures == theirs.figures
