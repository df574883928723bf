"""Partial knowledge: classes of some rows, rows that are together, rows that are not."""

import inspect

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import make_blobs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import diffclust
from conftest import ESTIMATORS
from diffclust.estimator.knowledge import read_knowledge
from diffclust.metrics import accuracy
from diffclust.nn.cluster import ClusterLayer
from diffclust.nn.knowledge import Knowledge, clusters_of_known, clusters_of_links, knowledge_loss

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SETTINGS = {"pretrain_epochs": 20, "epochs": 4, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def rows():
    return make_blobs(200, 6, centers=4, cluster_std=0.7, random_state=1)


@pytest.fixture(scope="module")
def halves():
    """Four blobs at the corners of a rectangle, which belong together along its longer sides."""
    rng = np.random.default_rng(0)
    corners = np.array([[0.0, 0], [4, 0], [0, 5], [4, 5]])
    return corners.repeat(50, 0) + rng.normal(scale=0.4, size=(200, 2)), np.repeat([0, 1, 0, 1], 50)


# ---- the loss


def test_the_loss_is_that_of_the_formula():
    torch.manual_seed(0)
    layer = ClusterLayer(3, 2)
    z, codes, together = torch.randn(6, 2), torch.tensor([2, 0]), torch.tensor([True, False])
    distances = torch.cdist(z, layer.centers).square()
    p = torch.softmax(-distances / distances.amin(1).mean(), dim=1)  # T = 2 / dim times the mean
    wanted = [-p[0, 2].log(), -p[1, 0].log(), -(p[2] @ p[4]).log(), -(1 - p[3] @ p[5]).log()]
    torch.testing.assert_close(knowledge_loss(layer, z, codes, together), torch.stack(wanted).mean())


def test_the_loss_is_finite_where_rows_cannot_be_told_apart():
    layer = ClusterLayer(3, 2)
    z = torch.zeros(4, 2, requires_grad=True)
    loss = knowledge_loss(
        layer, z + layer.centers[:1].detach(), torch.tensor([], dtype=torch.long), torch.tensor([False, True])
    )
    loss.backward()
    assert bool(loss.isfinite())
    assert bool(z.grad.isfinite().all())


def test_known_rows_say_which_centre_is_which():
    torch.manual_seed(0)
    z = 10 * torch.eye(3).repeat_interleave(30, 0) + torch.randn(90, 3)
    centers, labels = clusters_of_known(z, 3, z[[75, 80, 5]], torch.tensor([0, 0, 1]))
    means = torch.stack([z[60:].mean(0), z[:30].mean(0), z[30:60].mean(0)])
    torch.testing.assert_close(centers, means)
    assert torch.equal(labels, torch.tensor([1, 2, 0]).repeat_interleave(30))


def test_links_join_pieces_that_are_not_nearest(halves):
    z, y = torch.from_numpy(halves[0]).float(), torch.from_numpy(halves[1])
    pairs = torch.tensor([(i, i + 100) for i in range(0, 100, 4)])
    together = torch.ones(len(pairs), dtype=torch.bool)
    centers, labels = clusters_of_links(z, 2, (z[pairs[:, 0]], z[pairs[:, 1]]), together)
    means = torch.stack([z[y == j].mean(0) for j in (0, 1)])
    assert torch.cdist(centers, means).amin(0).max() < 0.2
    assert accuracy(y.numpy(), labels.numpy()) == 1


def test_the_share_that_holds_is_counted_by_hand():
    known = Knowledge(
        torch.tensor([0, 1]), torch.tensor([1, 0]), torch.tensor([[0, 1], [2, 3]]), torch.tensor([False, True])
    )
    assert known.share_satisfied(torch.tensor([1, 1, 0, 0])) == 0.5


# ---- what is told


def test_classes_spread_along_links():
    told = read_knowledge(5, [-1, "b", None, "a", float("nan")], [(0, 1), (2, 0)], [(3, 2)])
    assert told.classes == ("a", "b")
    assert dict(zip(told.facts.rows.tolist(), told.facts.labels.tolist(), strict=True)) == {
        0: 1,
        1: 1,
        2: 1,
        3: 0,
    }
    assert told.facts.pairs.tolist() == [[0, 1], [0, 2], [2, 3]]
    assert told.facts.same_cluster.tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("known", "must", "cannot", "error"),
    [
        ([0, 1, -1, -1], [(0, 1)], None, "rows 0 and 1 are linked, but are known as 0 and 1"),
        ([0, -1, -1, 1], [(0, 1), (1, 3)], None, "rows 0 and 3 are linked"),
        (None, [(0, 1), (1, 2)], [(0, 2)], "rows 0 and 2 are linked by must_link"),
        (["a", "a", None, None], None, [(1, 0)], "rows 0 and 1 are both known as 'a'"),
        ([0, 1], None, None, "known has 2 entries, expected one for each of the 4 rows"),
        ([0, "a", -1, -1], None, None, "all numbers or all names"),
        (None, [(0, 4)], None, "must_link: there is no row 4; rows are counted from 0 to 3"),
        (None, [(-1, 2)], None, "there is no row -1"),
        (None, None, [(2, 2)], "cannot_link: row 2 is linked with itself"),
        (None, [0, 1], None, "expected \\(m, 2\\) positions"),
        (None, [(0.5, 1)], None, "expected \\(m, 2\\) positions"),
    ],
)
def test_what_contradicts_itself_is_refused(known, must, cannot, error):
    with pytest.raises((ValueError, TypeError), match=error):
        read_knowledge(4, known, must, cannot)


@pytest.mark.parametrize(
    ("model", "error"),
    [
        (diffclust.TELL(3), "known has 4 classes, more than n_clusters=3"),
        (diffclust.TELL(4, overcluster=2), "so it should be 1"),
        (diffclust.SSCNet(4), "SSCNet cannot use known classes"),
        (diffclust.TELL(4, init=np.zeros((4, 10))), "init is an array of centres"),
    ],
)
def test_what_cannot_be_used_is_refused(rows, model, error):
    with pytest.raises(ValueError, match=error):
        model.fit(rows[0], known=rows[1])
    assert not hasattr(model, "labels_")


# ---- fits


def test_missing_values_of_pandas_are_unknown():
    for values in (pd.Series([1, None, 0], dtype="Int64"), pd.Series(["b", None, "a"], dtype="string")):
        told = read_knowledge(3, values, None, None)
        assert told.facts.rows.tolist() == [0, 2]


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if getattr(diffclust, name).starts_from_centers])
def test_every_method_takes_classes_and_links(rows, name):
    X, y = rows
    known = np.where(np.arange(len(y)) % 10 == 0, 3 - y, -1)  # the other way round
    first = int(np.flatnonzero(known == 0)[0])
    model = getattr(diffclust, name)(4, **SETTINGS).fit(
        X, known=known, must_link=[(first, int(np.flatnonzero(y == 3)[1]))]
    )
    assert np.mean(model.labels_ == 3 - y) > 0.95
    told = model.diagnostics_["known"]
    assert told["classes"] == ["0", "1", "2", "3"]
    assert told["must_link"] == 1
    assert told["kept"] > 0.9
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_links_decide_what_is_one_cluster(halves):
    X, y = halves
    settings = {**SETTINGS, "network": "identity"}
    assert diffclust.metrics.ari(y, diffclust.TELL(2, **settings).fit(X).labels_) < 0.1
    pairs = [(i, i + 100) for i in range(0, 100, 3)]
    assert diffclust.metrics.ari(y, diffclust.TELL(2, **settings).fit(X, must_link=pairs).labels_) == 1
    apart = [(i, i + 50) for i in range(0, 50, 2)] + [(i, i + 50) for i in range(100, 150, 2)]
    assert diffclust.metrics.ari(y, diffclust.TELL(2, **settings).fit(X, cannot_link=apart).labels_) == 1


def test_nothing_known_changes_nothing(rows):
    plain = diffclust.TELL(4, **SETTINGS).fit(rows[0])
    for told in ({"known": np.full(200, -1)}, {"must_link": [], "cannot_link": np.empty((0, 2), int)}):
        model = diffclust.TELL(4, **SETTINGS).fit(rows[0], **told)
        np.testing.assert_array_equal(model.cluster_centers_, plain.cluster_centers_)
        assert model.history_ == plain.history_
        assert "known" not in model.diagnostics_


def test_y_is_never_learnt_from(rows):
    plain = diffclust.TELL(4, **SETTINGS).fit(rows[0])
    scored = diffclust.TELL(4, **SETTINGS).fit(rows[0], 3 - rows[1])
    np.testing.assert_array_equal(scored.cluster_centers_, plain.cluster_centers_)


def test_knowledge_goes_through_a_pipeline(rows):
    known = np.where(np.arange(200) % 10 == 0, 3 - rows[1], -1)
    pipe = make_pipeline(StandardScaler(), diffclust.TELL(4, **SETTINGS)).fit(rows[0], rows[1], tell__known=known)
    assert np.mean(pipe[-1].labels_ == 3 - rows[1]) > 0.95
    assert {"known", "must_link", "cannot_link"} <= set(inspect.signature(diffclust.TELL.fit).parameters)


def test_classes_are_the_least_number(rows):
    known = np.where(np.arange(200) % 10 == 0, rows[1], -1)
    assert diffclust.TELL("auto", max_clusters=2, **SETTINGS).fit(rows[0], known=known).n_clusters_ == 4


def test_a_checkpoint_of_other_knowledge_is_not_gone_on_from(rows, tmp_path):
    known = np.where(np.arange(200) % 10 == 0, rows[1], -1)

    def die(progress):
        if progress.phase == "clustering" and progress.epoch == 1:
            raise RuntimeError("killed")

    kept = {**SETTINGS, "features": "neighbours", "checkpoint": tmp_path, "checkpoint_every": 1}
    whole = diffclust.TELL(4, **{**kept, "checkpoint": None}).fit(rows[0], known=known)
    with pytest.raises(RuntimeError, match="killed"):
        diffclust.TELL(4, callbacks=[die], **kept).fit(rows[0], known=known)
    with pytest.raises(ValueError, match="what is known"):
        diffclust.TELL(4, **kept).fit(rows[0], known=np.where(known == 3, -1, known))
    again = diffclust.TELL(4, **kept).fit(rows[0], known=known)
    np.testing.assert_array_equal(again.labels_, whole.labels_)
    np.testing.assert_allclose(again.cluster_centers_, whole.cluster_centers_)


def test_it_survives_a_folder(rows, tmp_path):
    known = np.where(np.arange(200) % 10 == 0, rows[1], -1)
    model = diffclust.TELL(4, **SETTINGS).fit(rows[0], known=known)
    model.save(tmp_path / "model")
    back = diffclust.load(tmp_path / "model")
    assert back.diagnostics_["known"] == model.diagnostics_["known"]
    np.testing.assert_array_equal(back.predict(rows[0]), model.labels_)
