"""Whether a clustering can be trusted: restarts, wandering rows and k-means, against small cases done by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from diffclust import TELL
from diffclust.report.trust import beside_kmeans, stability, together, trust, wandering

KEPT = np.array([0, 0, 0, 1, 1, 1])
SWAPPED = 1 - KEPT  # the same clusters under other numbers
OTHER = np.array([0, 0, 1, 1, 1, 1])  # row 2 elsewhere


def model(*runs):
    return SimpleNamespace(labels_=KEPT, runs_=[{"labels": labels} for labels in runs])


def census(labels=KEPT):
    return SimpleNamespace(labels=labels, means=np.zeros((2, 1)))


def test_rows_stay_under_any_numbering():
    assert stability(model(KEPT, SWAPPED), census()).tolist() == [1] * 6


def test_a_row_that_wanders():
    stays = stability(model(KEPT, SWAPPED, OTHER, OTHER), census())
    assert stays == pytest.approx([1, 1, 1 / 3, 1, 1, 1])
    assert wandering(stays) == [2]
    found = trust(model(KEPT, SWAPPED, OTHER, OTHER), census(), stays, np.arange(6.0)[:, None], list(range(6)))
    assert found["runs"]["clusters"] == pytest.approx([7 / 9, 1])
    assert found["runs"]["wander"] == 1
    assert (found["runs"]["count"], found["runs"]["others"]) == (4, 3)


def test_nothing_is_said_of_one_run_or_of_other_rows():
    assert stability(model(KEPT), census()) is None
    assert stability(model(KEPT, OTHER), census(KEPT[:4])) is None
    assert wandering(None) == []


def test_neighbours_beyond_chance():
    near = np.array([[1], [0], [3], [2]])
    assert together(near, np.array([0, 0, 1, 1])) == 1
    assert together(near, np.array([0, 1, 0, 1])) == -1  # chance is a half, and none is kept
    assert together(near, np.zeros(4, int)) == 0  # one cluster keeps all, and says nothing


def test_k_means_beside_better_and_worse_labels():
    X, y = make_blobs(200, 3, centers=3, cluster_std=0.4, random_state=0)
    same = beside_kmeans(X, y, 3)
    assert same["agreement"] == pytest.approx(1)
    assert same["neighbours"][0] == pytest.approx(same["neighbours"][1])
    worse = beside_kmeans(X, np.arange(200) % 3, 3)
    assert worse["neighbours"][0] < 0.1 < worse["neighbours"][1]
    assert beside_kmeans(np.ones((20, 2)), np.zeros(20, int), 3) is None


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_restarts_reach_the_page(blobs, tmp_path):
    pytest.importorskip("plotly")
    from test_report import content

    X = blobs[0].astype("float32")
    model = TELL(3, network="identity", n_init=3, epochs=2, random_state=0, device="cpu").fit(X)
    data, _ = content(model.report(tmp_path / "r.html", X, layout="PCA"))
    assert data["trust"]["runs"]["count"] == 3
    assert data["trust"]["kmeans"]["rows"] == 150
    assert len(data["trust"]["runs"]["clusters"]) == 3
