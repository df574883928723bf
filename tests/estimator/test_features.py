"""Encoders that learn by neighbours: which data have them, what units rows get, when the rows themselves are kept."""

import hashlib

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.datasets import load_wine, make_blobs, make_circles
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

import diffclust
from conftest import train
from diffclust import DCN, TELL, AEKMeans, metrics
from diffclust.engine.checkpoint import CheckpointFolder
from diffclust.engine.data import Data
from diffclust.engine.phase import Phase
from diffclust.engine.pretraining import NeighbourPretraining
from diffclust.engine.rows import TensorRows
from diffclust.engine.runtime import seeded
from diffclust.estimator import restarts
from diffclust.estimator.networks import build, compared_as_they_are, row_units
from diffclust.estimator.restarts import GRAPH_RULES, neighbour_graph
from diffclust.nn.autoencoders import DenseAutoencoder, RowAutoencoder, ScaledRows

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
CPU = torch.device("cpu")
SHORT = {"pretrain_epochs": 4, "epochs": 4, "random_state": 0, "device": "cpu"}


def summary(X):
    return Data(TensorRows(torch.as_tensor(np.asarray(X), dtype=torch.float32)), CPU).summary


def test_columns_of_other_units_are_standardised():
    X = np.random.default_rng(0).normal(size=(200, 6)) * [1, 10, 1, 1000, 1, 1]
    shift, scale, asinh = row_units(summary(X))
    assert np.allclose(scale, X.std(0), rtol=1e-3)
    assert np.allclose(shift, X.mean(0), atol=1e-3)
    assert asinh


def test_one_column_of_another_unit_is_enough():
    """An age among grades."""
    grades, age = np.random.default_rng(0).integers(0, 4, (200, 30)), np.linspace(0, 80, 200)
    scale = row_units(summary(np.c_[grades, age])).scale
    assert scale[-1] > 15 * scale[0]


def test_columns_of_one_unit_keep_their_proportions():
    X = np.random.default_rng(0).normal(size=(200, 6)) * [1, 2, 1, 2, 1, 1]
    units = row_units(summary(X))
    assert len(units.scale.unique()) == 1
    assert not units.asinh


@pytest.mark.parametrize("share", [0.5, 0.02])
def test_a_column_of_two_values_does_not_outweigh_the_others(share):
    X = np.random.default_rng(0).normal(size=(200, 4)) * [1, 10, 100, 0]
    X[:, 3] = np.where(np.arange(200) < 200 * share, 7.0, 3.0)
    units = row_units(summary(X))
    assert 4.0 / units.scale[3] == pytest.approx(2**-0.5, rel=1e-5)
    assert np.allclose(units.scale[:3], X.std(0)[:3], rtol=1e-3)


def test_only_two_values_are_two_values():
    X = np.random.default_rng(0).integers(0, 2, (300, 3)).astype(float)
    X[0, 1] = 0.5
    X[:, 2] = 5.0
    assert summary(X).two_valued.tolist() == [True, False, False]


def test_values_far_out_decode_to_themselves():
    X = np.random.default_rng(0).standard_t(1.5, size=(300, 3)) * [1, 50, 1000]
    data = Data(TensorRows(torch.as_tensor(X, dtype=torch.float32)), CPU)
    network = build("scaled", data, 0, {})
    assert network.asinh
    x = data.take(torch.arange(300))
    assert torch.allclose(network.decode(network.encode(x)), x, rtol=1e-3, atol=1e-2)


def words(n, seed=0):
    """Rows of length one with few values: each of three topics has words of its own, and all share some."""
    generator = np.random.default_rng(seed)
    topic = generator.integers(0, 3, n)
    X = np.zeros((n, 60))
    for row, t in zip(X, topic, strict=True):
        row[generator.choice(20, 5, replace=False) + 15 * t] = generator.uniform(0.5, 1, 5)
    return X / np.linalg.norm(X, axis=1, keepdims=True), topic


KNOWN_GRAPHS = {
    "few columns": "b3d2d539",
    "many columns": "f029c8b7",
    "in given units": "b6f50a85",
    "texts": "b19029ca",
    "views": "c2bbcfd2",
}


@pytest.mark.parametrize("kind", KNOWN_GRAPHS)
def test_other_neighbours_are_other_rules(kind):
    """Where this fails because rows have other neighbours than before, raise GRAPH_RULES and put the new figure."""
    generator = np.random.default_rng(0)
    shape = {"few columns": (60, 6), "texts": (60, 60), "views": (60, 1, 8, 8)}.get(kind, (60, 40))
    X = words(60)[0] if kind == "texts" else generator.normal(size=shape)
    data = Data(TensorRows(torch.as_tensor(X, dtype=torch.float32)), CPU)
    data.scale = torch.ones(40) if kind == "in given units" else None
    found = neighbour_graph(data, 3).index.sort().values.to(torch.int64).numpy()
    assert (GRAPH_RULES, hashlib.sha256(found.tobytes()).hexdigest()[:8]) == (2, KNOWN_GRAPHS[kind])


def test_a_fit_goes_on_with_the_graph_it_began_with(tmp_path, monkeypatch):
    """A checkpoint of other rules is refused, and so is one of before there was a number; a fit without a graph asks
    for none."""

    def stop(progress):
        if progress.epoch == 2:
            raise KeyError

    def fit(features, *callbacks):
        settings = {**SHORT, "features": features, "checkpoint": tmp_path / features, "checkpoint_every": 1}
        return TELL(3, **settings, callbacks=callbacks).fit(load_wine().data)

    for features in ("neighbours", "reconstruction"):
        with pytest.raises(KeyError):
            fit(features, stop)
    monkeypatch.setattr(restarts, "GRAPH_RULES", 3)
    with pytest.raises(ValueError, match=r"the rules of the neighbour graph .another version of diffclust. differ"):
        fit("neighbours")
    fit("reconstruction")
    folder = CheckpointFolder(tmp_path / "neighbours")
    state = folder.read()
    state["identity"] = {name: value for name, value in state["identity"].items() if "graph" not in name}
    folder.write(state)
    monkeypatch.setattr(restarts, "GRAPH_RULES", 2)
    with pytest.raises(ValueError, match="the rules of the neighbour graph"):
        fit("neighbours")
    monkeypatch.setattr(restarts, "GRAPH_RULES", 1)
    fit("neighbours")


def test_texts_are_neighbours_by_the_words_they_share():
    X, topic = words(150)
    graph = neighbour_graph(Data(TensorRows(torch.as_tensor(X, dtype=torch.float32)), CPU, 32))
    expected = NearestNeighbors(n_neighbors=16, metric="cosine", algorithm="brute").fit(X).kneighbors(X)[1][:, 1:]
    assert np.mean([len(set(a) & set(b)) for a, b in zip(graph.index.tolist(), expected, strict=True)]) > 14.9
    dense, thin = (TELL(3, **SHORT).fit(x) for x in (X.astype(np.float32), sparse.csr_matrix(X, dtype=np.float32)))
    assert (dense.labels_ == thin.labels_).all()
    assert metrics.accuracy(topic, TELL(3, random_state=0, device="cpu").fit(X).labels_) > 0.95


def test_the_network_is_kept_for_texts():
    """Words drawn at random have no topics, and k-means on the rows cuts as few edges."""
    X, _ = words(150)
    X = np.random.default_rng(0).permuted(X, axis=1)
    model, counts = (TELL(3, random_state=0, device="cpu").fit(x) for x in (X, X * np.linspace(1, 2, 150)[:, None]))
    assert type(model.model_.autoencoder) is not ScaledRows
    assert type(counts.model_.autoencoder) is ScaledRows


def test_categories_are_no_texts():
    """They have one length, too, and no topics: k-means on the rows is kept."""
    X = np.eye(4)[np.random.default_rng(0).integers(0, 4, (150, 15))].reshape(150, -1)
    assert type(TELL(3, random_state=0, device="cpu").fit(X).model_.autoencoder) is ScaledRows


def test_texts_of_other_lengths_are_counts():
    X, _ = words(60)
    X *= np.linspace(1, 2, 60)[:, None]
    assert not compared_as_they_are(Data(TensorRows(torch.as_tensor(X, dtype=torch.float32)), CPU))


@pytest.mark.parametrize(("scale", "apart"), [("auto", 2.0), (True, 2.5)])  # two values too far apart, and neighbours
def test_categories_do_not_decide_alone(scale, apart):
    """Two species that all measurements tell apart, and tosses of coins beside them, which neighbours share."""
    generator = np.random.default_rng(0)
    species, coins = generator.integers(0, 2, 300), generator.integers(0, 2, (2, 300)).T
    X = np.c_[generator.normal(apart * species, 1.0, (4, 300)).T * [1, 20, 300, 4], coins, 1 - coins]
    labels = TELL(2, scale=scale, random_state=0, device="cpu").fit(X).labels_
    assert metrics.accuracy(species, labels) > 0.95


@pytest.mark.parametrize("scale", [None, 2**0.5])  # rows of their own, and as a table has them
def test_rows_of_categories_are_near_where_they_agree(scale):
    generator = np.random.default_rng(0)
    codes = np.minimum(generator.geometric(0.5, (60, 7)) - 1, 3)
    X = np.eye(4)[codes].reshape(60, -1)
    data = Data(TensorRows(torch.as_tensor(X, dtype=torch.float32)), CPU)
    data.scale = None if scale is None else torch.full((28,), scale)
    z = build("scaled", data, 0, {}).encode(data.take(torch.arange(60)))
    agree = (codes[:, None] == codes).mean(-1)
    assert np.allclose(z @ z.T / z[0].square().sum(), agree, atol=2e-2)
    X[0, 0] = 0.5  # a share: no longer choices, and seen from the mean
    data = Data(TensorRows(torch.as_tensor(X, dtype=torch.float32)), CPU)
    assert build("scaled", data, 0, {}).shift.any()


@pytest.mark.parametrize(("n_columns", "unit"), [(6, 3), (120, 9)])
def test_columns_of_counts_are_divided_by_the_root(n_columns, unit):
    X = np.random.default_rng(0).poisson(0.2, size=(200, n_columns)) * np.r_[1.0, unit, np.ones(n_columns - 2)]
    units = row_units(summary(X))
    assert np.allclose(units.scale, np.sqrt(X.std(0)), rtol=1e-3)
    assert not units.asinh


def test_few_columns_of_counts_in_other_units_are_standardised():
    X = np.random.default_rng(0).poisson(0.2, size=(200, 6)) * [1.0, 90, 1, 1, 1, 1]
    units = row_units(summary(X))
    assert np.allclose(units.scale, X.std(0), rtol=1e-3)
    assert units.asinh


@pytest.mark.parametrize(("n_columns", "directions"), [(16, False), (17, True)])
def test_rows_of_few_columns_are_points(n_columns, directions):
    """And neighbours are told by their distance; of more, by the angle between them, too."""
    X = np.random.default_rng(0).normal(size=(90, n_columns))
    data = Data(TensorRows(torch.as_tensor(X, dtype=torch.float32)), CPU)
    network = build("scaled", data, 0, {})
    x = data.take(torch.arange(90))
    z = network.encode(x)
    assert network.directions is directions
    assert z.shape == (90, n_columns + directions)
    assert bool(z.norm(dim=1).std() < 1e-4) is directions
    assert torch.allclose(network.decode(z), x, atol=1e-4)
    table = Data(data.rows, CPU)
    table.scale = torch.ones(n_columns)
    assert build("scaled", table, 0, {}).directions  # as columns of several kinds are seen
    points, angles = (nearest(each, metric) for each, metric in ((x, "euclidean"), (z, "cosine")))
    found = neighbour_graph(data).index.tolist()
    if directions:
        assert min(shared(found, points), shared(found, angles)) > shared(points, angles) + 0.5
    else:
        assert shared(found, points) > 14.9


def nearest(rows, metric):
    """Of each row its 15 nearest others."""
    return NearestNeighbors(n_neighbors=16, metric=metric, algorithm="brute").fit(rows).kneighbors(rows)[1][:, 1:]


def shared(some, others):
    """How many neighbours of a row are in both lists, in the mean."""
    return np.mean([len(set(a) & set(b)) for a, b in zip(some, others, strict=True)])


def test_of_counts_directions_alone_tell():
    """How much was counted in a row says nothing."""
    X = np.random.default_rng(0).poisson(0.4, size=(90, 40)).astype(np.float32)
    data = Data(TensorRows(torch.from_numpy(X)), CPU)
    z = build("scaled", data, 0, {}).encode(torch.from_numpy(X))
    assert shared(neighbour_graph(data).index.tolist(), nearest(z, "cosine")) > 14.9


@pytest.mark.parametrize(("n_clusters", "neighbours"), [(2, 15), (10, 6), (40, 4)])
def test_small_clusters_have_few_neighbours(n_clusters, neighbours):
    X = np.random.default_rng(0).normal(size=(120, 5)).astype(np.float32)
    assert neighbour_graph(Data(TensorRows(torch.from_numpy(X)), CPU), n_clusters).index.shape == (120, neighbours)


def test_a_constant_column_says_nothing(blobs):
    X = blobs[0]
    labels = TELL(3, **SHORT).fit(X).labels_
    for value in (0.0, 7.0):
        wider = np.c_[X, np.full(len(X), value)]
        assert metrics.ari(labels, TELL(3, **SHORT).fit(wider).labels_) > 0.95


@pytest.mark.parametrize(
    ("settings", "network"),
    [
        ({}, (RowAutoencoder, ScaledRows)),
        ({"features": "neighbours"}, RowAutoencoder),
        ({"features": "reconstruction"}, DenseAutoencoder),
        ({"network": "dense"}, DenseAutoencoder),
        ({"network": "dense", "features": "neighbours"}, DenseAutoencoder),
    ],
)
def test_who_learns_by_neighbours(blobs, settings, network):
    model = TELL(3, **{**SHORT, **settings}).fit(blobs[0])
    assert isinstance(model.model_.autoencoder, network)
    by_neighbours = settings.get("features") == "neighbours" or not settings
    assert ("neighbours" in model.history_[0]) is by_neighbours
    assert (model.predict(blobs[0]) == model.labels_).all()


def test_images_learn_by_reconstruction_unless_told(digits):
    assert "neighbours" not in TELL(4, **SHORT).fit(digits[0]).history_[0]
    assert "neighbours" in TELL(4, features="neighbours", **SHORT).fit(digits[0]).history_[0]


def test_the_rows_are_kept_where_the_network_has_nothing_to_add():
    X, y = load_wine(return_X_y=True)
    model = TELL(3, random_state=0, device="cpu").fit(X)
    assert type(model.model_.autoencoder) is ScaledRows
    assert "fallback" in [kind for kind, _ in model.diagnostics_["events"]]
    assert not model.diagnostics_["warnings"]
    assert metrics.accuracy(y, model.labels_) > 0.94
    decoded = model.inverse_transform(model.cluster_centers_)
    means = np.stack([X[model.labels_ == j].mean(0) for j in range(3)])
    assert np.abs(StandardScaler().fit(X).transform(decoded) - StandardScaler().fit(X).transform(means)).mean() < 0.5


@pytest.mark.parametrize(("per_cluster", "kept"), [(45, ScaledRows), (80, RowAutoencoder)])
def test_fewer_than_a_hundred_rows_are_too_few(per_cluster, kept):
    """A ring in a ring, which k-means cuts: of fewer rows that is kept."""
    X = make_circles(2 * per_cluster, noise=0.03, factor=0.3, random_state=0)[0]
    assert type(TELL(2, random_state=0, device="cpu").fit(X).model_.autoencoder) is kept


def test_a_chosen_way_is_not_left(blobs):
    model = TELL(3, features="neighbours", **SHORT).fit(blobs[0])
    assert "fallback" not in [kind for kind, _ in model.diagnostics_["events"]]


@pytest.mark.parametrize("width", [2, 5])
def test_lengths_count_where_columns_are_few(width):
    X, y = make_blobs(150, centers=np.outer([0, 6, -6], np.ones(width)), random_state=0)
    assert metrics.accuracy(y, TELL(3, random_state=0, device="cpu").fit(X).labels_) > 0.98


@pytest.mark.parametrize("kind", ["wide", "sparse", "two rows", "fewer than neighbours", "equal rows", "zeros"])
def test_rows_of_every_shape_have_an_answer(kind):
    generator = np.random.default_rng(0)
    X = {
        "wide": generator.normal(size=(40, 300)),
        "sparse": sparse.random(60, 200, 0.05, "csr", np.float32, generator),
        "two rows": generator.normal(size=(2, 3)),
        "fewer than neighbours": generator.normal(size=(9, 3)),
        "equal rows": np.ones((30, 3)),
        "zeros": np.r_[np.zeros((5, 3)), generator.normal(size=(30, 3))],
    }[kind]
    model = TELL(2, **SHORT).fit(X)
    assert (model.predict(X) == model.labels_).all()
    assert np.isfinite(model.transform(X)).all()
    assert np.isfinite(model.inverse_transform(model.cluster_centers_)).all()


def test_a_change_of_ones_own_sees_wide_rows_as_they_are():
    """And not the principal components that the network sees of them."""
    seen = set()

    def change(x):
        seen.add(tuple(x.shape[1:]))
        return x

    rows = np.random.default_rng(0).normal(size=(30, 150))
    TELL(2, augment=change, **{**SHORT, "features": "neighbours"}).fit(rows)
    assert seen == {(150,)}


def phases(data, n):
    found = []
    for seed in range(n):
        with seeded(seed, CPU):
            estimator = AEKMeans(3, device="cpu", features="neighbours")
            model = estimator.build_model(estimator.build_autoencoder(data), len(data))
            learner = NeighbourPretraining(model)
            found.append(Phase("pretraining", learner, data, estimator.build_optimizer(learner), 3))
    return found


@pytest.mark.parametrize("batch_size", [32, 96])
def test_stacked_runs_learn_what_they_learn_alone(batch_size):
    X, _ = make_blobs(96, 5, centers=4, random_state=0)
    data = Data(TensorRows(torch.tensor(X, dtype=torch.float32)), CPU, batch_size)
    data.graph = neighbour_graph(data)
    alone, stacked = phases(data, 2), phases(data, 2)
    train(alone, range(2), stack=False)
    train(stacked, range(2), stack=True)
    for one, other in zip(alone, stacked, strict=True):
        for a, b in zip(one.history, other.history, strict=True):
            assert a["neighbours"] == pytest.approx(b["neighbours"], rel=1e-3)


@pytest.mark.parametrize("method", [TELL, DCN])
def test_a_killed_fit_goes_on(method, blobs, tmp_path):
    class Killed(Exception):
        pass

    settings = {**SHORT, "batch_size": 50, "features": "neighbours"}
    whole = method(3, **settings).fit(blobs[0])
    for phase, epoch in (("pretraining", 2), ("clustering", 1)):

        def kill(progress, phase=phase, epoch=epoch):
            if (progress.phase, progress.epoch) == (phase, epoch):
                raise Killed

        kept = {"checkpoint": tmp_path, "checkpoint_every": 1}
        with pytest.raises(Killed):
            method(3, **settings, **kept, callbacks=[kill]).fit(blobs[0])
        again = method(3, **settings, **kept).fit(blobs[0])
        assert again.history_ == whole.history_
        assert (again.labels_ == whole.labels_).all()


def test_rows_on_a_disk_learn_as_those_in_memory(blobs, tmp_path):
    X = blobs[0].astype(np.float32)
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=X.shape)
    mapped[:] = X
    settings = {**SHORT, "batch_size": 50}
    assert (TELL(3, **settings).fit(mapped).labels_ == TELL(3, **settings).fit(X).labels_).all()


def test_saved_and_loaded(blobs, tmp_path):
    for features in ("auto", "neighbours"):
        model = TELL(3, **SHORT, features=features).fit(np.tile(blobs[0], 30))  # wide: with principal components
        model.save(tmp_path / features)
        again = diffclust.load(tmp_path / features)
        assert (again.predict(np.tile(blobs[0], 30)) == model.labels_).all()
        assert type(again.model_.autoencoder) is type(model.model_.autoencoder)


def test_another_word_is_refused(blobs):
    with pytest.raises(ValueError, match="features='umap'"):
        TELL(3, features="umap").fit(blobs[0])
