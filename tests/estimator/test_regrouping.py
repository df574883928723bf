"""Clusters merged, split and named after a fit."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import make_blobs

import diffclust
from conftest import ESTIMATORS
from diffclust.nn.cluster import ClusterLayer
from diffclust.nn.regrouping import replay_regrouping

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SETTINGS = {"pretrain_epochs": 20, "epochs": 3, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def rows():
    return make_blobs(200, 6, centers=5, cluster_std=0.7, random_state=1)


@pytest.fixture
def model(rows):
    return diffclust.TELL(5, **SETTINGS).fit(rows[0])


@pytest.mark.parametrize("name", ESTIMATORS)
def test_only_what_was_asked_for_changes(rows, name):
    X = rows[0]
    model = getattr(diffclust, name)(5, **SETTINGS).fit(X)
    before, centers = model.labels_, model.cluster_centers_
    model.merge(3, 1)
    assert model.n_clusters_ == 4
    expected = np.array([0, 1, 2, 1, 3])[before]  # the last takes the free number
    np.testing.assert_array_equal(model.labels_, expected)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_allclose(model.cluster_centers_[[0, 2, 3]], centers[[0, 2, 4]])
    p = model.predict_proba(X)
    assert p.shape == (200, 4)
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-5)
    joined = int((model.labels_ == 1).sum())
    model.split(1, X)
    assert model.n_clusters_ == 5
    others = expected != 1
    np.testing.assert_array_equal(model.labels_[others], expected[others])
    parts = np.bincount(model.labels_, minlength=5)[[1, 4]]
    assert parts.sum() == joined
    assert parts[0] >= parts[1] > 0
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert model.diagnostics_["sizes"] == np.bincount(model.labels_, minlength=5).tolist()
    assert model.diagnostics_["regrouped"] == [["merge", 1, 3], ["split", 1]]


def test_a_split_undoes_a_merge_of_blobs(rows, model):
    before = model.labels_
    model.merge(0, 4).split(0, rows[0])
    assert diffclust.metrics.ari(before, model.labels_) == 1


def test_nothing_is_drawn_and_defaults_do_not_matter(rows, model):
    before = torch.get_rng_state()
    torch.set_default_dtype(torch.float64)
    try:
        model.merge(0, 4).split(0, rows[0])
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.get_rng_state().equal(before)
    assert all(value.dtype == torch.float32 for value in model.model_.clusters.state_dict().values())


def test_the_merged_centre_is_the_weighted_mean(rows, model):
    sizes, centers = np.bincount(model.labels_), model.cluster_centers_
    mean = (sizes[1] * centers[1] + sizes[2] * centers[2]) / (sizes[1] + sizes[2])
    np.testing.assert_allclose(model.merge(1, 2).cluster_centers_[1], mean, rtol=1e-5)
    assert model.hierarchy_.shape == (3, 4)
    assert len(np.unique(model.cut(2))) == 2


def test_folders_pickles_and_programs_know(rows, model, tmp_path):
    model.merge(1, 3).split(0, rows[0]).merge(2, 4)
    model.names_ = {1: "a pair"}
    model.save(tmp_path / "model")
    back = diffclust.load(tmp_path / "model")
    np.testing.assert_array_equal(back.predict(rows[0]), model.labels_)
    np.testing.assert_allclose(back.predict_proba(rows[0]), model.predict_proba(rows[0]), atol=1e-6)
    assert back.names_ == model.names_
    assert back.diagnostics_["regrouped"] == model.diagnostics_["regrouped"]
    labels, _ = model.export_program().module()(torch.tensor(rows[0]).float())
    np.testing.assert_array_equal(labels.numpy(), model.labels_)
    np.testing.assert_array_equal(back.split(0, rows[0]).merge(0, 1).predict(rows[0]), back.labels_)


@pytest.mark.parametrize(
    "steps",
    [[["merge", 1, 9]], [["merge", 2, 1]], [["split", -1]], [["split", 1.0]], [["eval", 1]], [["split", 0]] * 101],
)
def test_a_strangers_steps_are_looked_at(steps):
    with pytest.raises(ValueError, match=r"merged|to merge|to split"):
        replay_regrouping(ClusterLayer(5, 2), steps)


def test_explanations_go_on(rows, model):
    model.merge(1, 3)
    told = model.explain(rows[0][:3])[0]
    assert told.cluster == model.labels_[0]
    assert sum(told.contributions) + told.bias == pytest.approx(told.margin, rel=1e-4, abs=1e-4)
    assert model.explain_cluster(1, rows[0]).size == (model.labels_ == 1).sum()


def test_a_new_fit_forgets(rows, model):
    model.names_ = ["a", "b", "c", "d", "e"]
    model.merge(1, 3).fit(rows[0])
    assert model.n_clusters_ == 5
    assert "regrouped" not in model.diagnostics_
    assert model.names_[0] != "a"
    model.partial_fit(rows[0][:20])


def test_after_a_stream(rows, model):
    model.partial_fit(rows[0][:50]).merge(0, 1)
    np.testing.assert_array_equal(model.predict(rows[0][:50]), model.labels_)


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda m, X: m.merge(0, 5), "cluster=5 should be from 0 to 4"),
        (lambda m, X: m.merge(-1, 2), "cluster=-1 should be from 0 to 4"),
        (lambda m, X: m.merge(2, 2), "Cluster 2 cannot be merged with itself"),
        (lambda m, X: m.merge("0", 1), "should be an integer"),
        (lambda m, X: m.split(7, X), "cluster=7 should be from 0 to 4"),
        (lambda m, X: m.split(1, X[:40]), "split needs the rows of the fit"),
        (lambda m, X: setattr(m, "names_", ["a"]), "names_ should be 5 names"),
        (lambda m, X: setattr(m, "names_", {9: "a"}), "cluster=9"),
        (lambda m, X: setattr(m, "names_", {1: 3}), "which is no name"),
        (lambda m, X: m.merge(0, 1).partial_fit(X), "merged or split, as they have no centres: fit again"),
        (lambda m, X: m.merge(0, 1).outlier_score(X), "merged or split"),
        (lambda m, X: diffclust.TELL(3).merge(0, 1), "not fitted"),
    ],
)
def test_what_makes_no_sense_is_refused(rows, model, act, error):
    with pytest.raises((ValueError, TypeError), match=error):
        act(model, rows[0])


def test_one_place_cannot_be_split():
    X = np.repeat([[0.0, 0], [9, 9]], 10, axis=0)
    model = diffclust.TELL(2, network="identity", **SETTINGS).fit(X)
    with pytest.raises(ValueError, match="nothing to split"):
        model.split(0, X)


# ---- names


def test_names_say_what_sets_clusters_apart():
    rng = np.random.default_rng(0)
    kind = np.repeat([0, 1, 2], 60)
    table = pd.DataFrame(
        {
            "income": np.where(kind == 0, 90.0, 30.0) + rng.normal(size=180),
            "age": np.where(kind == 1, 70.0, 30.0) + rng.normal(size=180),
            "noise": rng.normal(size=180),
        }
    )
    model = diffclust.TELL(3, **SETTINGS).fit(table)
    of_kind = [model.names_[np.bincount(model.labels_[kind == j]).argmax()] for j in range(3)]
    assert of_kind[0].startswith("high income")
    assert of_kind[1].startswith("high age")
    assert len(set(of_kind)) == 3
    assert not any("noise" in name for name in of_kind[:2])


def test_known_classes_are_names(rows):
    known = np.array([None] * 200, dtype=object)
    known[::10] = np.array(["ash", "birch", "cedar", "oak", "yew"])[rows[1][::10]]
    model = diffclust.TELL(5, **SETTINGS).fit(rows[0], known=known)
    assert model.names_ == ["ash", "birch", "cedar", "oak", "yew"]
    assert model.merge(1, 3).names_ == ["ash", "birch", "cedar", "yew"]


def test_images_and_one_cluster_have_numbers(digits):
    model = diffclust.TELL(3, pretrain_epochs=1, epochs=1, random_state=0, device="cpu").fit(digits[0][:60])
    assert model.names_ == ["cluster 0", "cluster 1", "cluster 2"]
    model.names_ = {2: "loops"}
    assert model.names_ == ["cluster 0", "cluster 1", "loops"]
