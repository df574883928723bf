"""n_clusters="auto", the tree of clusters, and how sure they are."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_blobs

import diffclust
from diffclust import CrossMetric, fit_together
from diffclust.estimator.stability import compared

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SETTINGS = {"pretrain_epochs": 40, "epochs": 3, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def rows():
    return make_blobs(240, 6, centers=4, cluster_std=0.7, random_state=1)


@pytest.fixture(scope="module")
def found(rows):
    return diffclust.TELL("auto", **SETTINGS).fit(rows[0])


def test_the_number_is_found(rows, found):
    assert found.n_clusters_ == 4
    assert found.cluster_centers_.shape[0] == 4
    assert found.n_clusters == "auto"
    assert diffclust.metrics.ari(rows[1], found.labels_) == 1
    np.testing.assert_array_equal(found.predict(rows[0]), found.labels_)
    told = found.diagnostics_["number"]
    assert told["n_clusters"] == 4
    assert told["candidates"][int(np.argmax(told["scores"]))] == 4


def test_the_same_seed_finds_the_same_with_a_checkpoint_too(rows, found, tmp_path):
    before = torch.get_rng_state()
    again = clone(found).set_params(checkpoint=tmp_path).fit(rows[0])
    assert torch.equal(before, torch.get_rng_state())
    np.testing.assert_array_equal(again.labels_, found.labels_)
    assert again.diagnostics_["number"] == found.diagnostics_["number"]
    again.partial_fit(rows[0][:30])  # and a stream goes on from what was found
    assert again.n_clusters_ == 4
    assert again.hierarchy_.shape == (3, 4)


@pytest.mark.parametrize("name", ["VaDE", "DEC", "KMeansNet", "CrossMetric", "SSCNet"])
def test_every_method_can_look(rows, name):
    model = getattr(diffclust, name)("auto", max_clusters=6, **{**SETTINGS, "pretrain_epochs": 10}).fit(rows[0][::2])
    assert 2 <= model.n_clusters_ <= 6


def test_without_a_network_the_rows_are_looked_at(rows):
    assert diffclust.TELL("auto", network="identity", **SETTINGS).fit(rows[0]).n_clusters_ == 4


@pytest.mark.parametrize("draw", [np.random.RandomState(0).standard_normal, np.random.RandomState(1).random_sample])
def test_one_blob_and_noise_are_one_cluster(draw):
    model = diffclust.TELL("auto", **SETTINGS).fit(draw((400, 5)))
    assert model.n_clusters_ == 1
    assert set(model.labels_) == {0}
    np.testing.assert_allclose(model.predict_proba(np.zeros((2, 5))), 1)


def test_images_are_looked_at_too(digits):
    model = diffclust.TELL("auto", max_clusters=6, **{**SETTINGS, "pretrain_epochs": 5}).fit(digits[0])
    assert 1 <= model.n_clusters_ <= 6


def test_few_rows_say_nothing():
    assert diffclust.TELL("auto", **SETTINGS).fit(np.arange(24.0).reshape(12, 2)).n_clusters_ == 1


def test_fits_side_by_side_find_what_each_finds_alone(rows, found):
    model, given = fit_together([diffclust.TELL("auto", **SETTINGS), diffclust.TELL(3, **SETTINGS)], rows[0])
    assert (model.n_clusters_, given.n_clusters_) == (4, 3)
    np.testing.assert_array_equal(model.labels_, found.labels_)
    assert "number" not in given.diagnostics_


def test_it_survives_a_folder(rows, found, tmp_path):
    found.save(tmp_path / "model")
    back = diffclust.load(tmp_path / "model")
    assert (back.n_clusters, back.n_clusters_) == ("auto", 4)
    assert back.diagnostics_["number"] == found.diagnostics_["number"]
    np.testing.assert_array_equal(back.predict(rows[0]), found.labels_)
    np.testing.assert_array_equal(back.hierarchy_, found.hierarchy_)
    np.testing.assert_array_equal(back.cut(2), found.cut(2))


@pytest.mark.parametrize(
    ("model", "error"),
    [
        (diffclust.TELL("many"), "n_clusters='many' should be 'auto' or an integer >= 1."),
        (diffclust.TELL("auto", max_clusters=0), "max_clusters=0 should be >= 1."),
        (diffclust.TELL("auto", init=np.zeros((3, 10))), "init is an array of centres"),
    ],
)
def test_what_makes_no_sense_is_refused(rows, model, error):
    with pytest.raises((TypeError, ValueError), match=error):
        model.fit(rows[0])


def test_a_stream_cannot_begin_without_a_number(rows):
    with pytest.raises(ValueError, match="call fit first"):
        diffclust.TELL("auto").partial_fit(rows[0])


# ---- the tree


def test_cuts_join_whole_clusters(rows, found):
    for k in (1, 2, 3, 4):
        coarse = found.cut(k)
        assert len(np.unique(coarse)) == k
        assert all(len(np.unique(coarse[found.labels_ == j])) == 1 for j in range(4))
    np.testing.assert_array_equal(found.cut(2, rows[0]), found.cut(2))
    told = found.cut(2, torch.tensor(rows[0]).float())
    assert isinstance(told, torch.Tensor)
    np.testing.assert_array_equal(told.numpy(), found.cut(2))
    with pytest.raises(ValueError, match="k=5 should be from 1 to 4"):
        found.cut(5)


# ---- stability


def test_jaccard_by_hand():
    """Cluster 0 is found whole under another name, cluster 1 split in the middle."""
    labels, other = np.array([0, 0, 1, 1, 1, 1]), np.array([2, 2, 0, 0, 1, 1])
    sure = compared(labels, [other, labels], 2)
    np.testing.assert_allclose(sure.clusters, [1, (0.5 + 1) / 2])
    np.testing.assert_allclose(sure.rows, [1, 1, 1, 1, 0.5, 0.5])


def test_an_empty_cluster_is_found_nowhere():
    np.testing.assert_allclose(compared(np.array([0, 0]), [np.array([0, 0])], 2).clusters, [1, 0])


def test_restarts_that_agree_are_sure(rows):
    model = diffclust.TELL(4, n_init=3, **SETTINGS).fit(rows[0])
    np.testing.assert_allclose(model.stability_, 1)
    np.testing.assert_allclose(model.row_stability_, 1)


def test_after_a_stream_the_restarts_are_of_other_rows(rows):
    """Though the last batch has as many rows as the fit."""
    model = diffclust.TELL(4, n_init=2, **SETTINGS).fit(rows[0]).partial_fit(rows[0][::-1])
    for name in ("stability_", "row_stability_"):
        with pytest.raises(AttributeError, match="before partial_fit: call stability"):
            getattr(model, name)


def test_one_restart_has_nothing_to_compare(found):
    with pytest.raises(AttributeError, match="set n_init > 1"):
        _ = found.stability_
    assert not hasattr(CrossMetric(3), "row_stability_")


def test_other_rows_tell_sound_clusters_from_made_up_ones(rows):
    """Four blobs, and a uniform cloud far from them that is cut in two."""
    rng = np.random.default_rng(0)
    cloud = rng.uniform(40, 46, size=(120, 6))
    X = np.concatenate([rows[0], cloud])
    model = diffclust.TELL(6, network="identity", **SETTINGS).fit(X)
    sure = model.stability(X, n=4)
    made_up = sorted(set(model.labels_[240:]))
    sound = [j for j in range(6) if j not in made_up]
    assert len(made_up) == 2
    assert sure.clusters[sound].min() > 0.95
    assert sure.clusters[made_up].max() < 0.9
    assert sure.rows[:240].mean() > sure.rows[240:].mean()
    probability = model.predict_proba(X).max(1)
    naive = [p * sure.clusters[j] for p, j in zip(probability, model.labels_, strict=True)]
    np.testing.assert_allclose(sure.confidence, naive)
    assert sure.confidence[:240].min() > sure.confidence[240:].max()


def test_stability_needs_rows(found):
    with pytest.raises(ValueError, match="X has 6 rows"):
        found.stability(np.zeros((6, 6)))
    with pytest.raises(ValueError, match="n=0"):
        found.stability(np.zeros((60, 6)), n=0)
