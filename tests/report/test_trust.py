"""Whether a clustering can be trusted: restarts, wandering rows and k-means, against small cases done by hand."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from diffclust import TELL
from diffclust.estimator.stability import compared
from diffclust.explain.clusters import Census
from diffclust.explain.rows import Subject
from diffclust.report.trust import (
    among_runs,
    kmeans_beside,
    number_of_clusters,
    row_stability,
    tree,
    wandering,
)

KEPT = np.array([0, 0, 0, 1, 1, 1])
SWAPPED = 1 - KEPT  # the same clusters under other numbers
OTHER = np.array([0, 0, 1, 1, 1, 1])  # row 2 elsewhere


def model(*others):
    found = compared(KEPT, others, 2)
    runs = [{"labels": labels} for labels in (KEPT, *others)]
    return SimpleNamespace(labels_=KEPT, runs_=runs, stability_=found.clusters, row_stability_=found.rows)


def census(labels=KEPT):
    return SimpleNamespace(labels=labels, means=np.zeros((2, 1)))


def test_what_is_shown_is_the_models_own_stability():
    steady, shaken = model(SWAPPED), model(SWAPPED, OTHER, OTHER)
    assert row_stability(steady, census()).tolist() == [1] * 6
    stays = row_stability(shaken, census())
    assert stays == pytest.approx([1, 1, 1 / 3, 1, 1, 1])
    assert wandering(stays) == [2]
    found = among_runs(shaken, stays)
    assert found["clusters"] == pytest.approx([7 / 9, (1 + 2 * 3 / 4) / 3])  # Jaccard indices
    assert (found["count"], found["wander"]) == (4, 1)


def test_nothing_is_said_of_one_run_or_of_other_rows():
    assert row_stability(SimpleNamespace(labels_=KEPT), census()) is None
    assert row_stability(model(OTHER), census(KEPT[:4])) is None
    assert wandering(None) == []
    nothing = SimpleNamespace(diagnostics_=["a warning"])
    assert number_of_clusters(nothing) is None
    assert tree(nothing) is None


@pytest.fixture
def units_apart():
    X, _ = make_blobs(200, 3, centers=3, cluster_std=0.4, random_state=0)
    return (X * [1, 1, 1000]).astype("float32")  # columns of other units


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_page_compares_with_k_means_as_the_fit_did(units_apart):
    model = TELL(3, n_init=2, epochs=20, pretrain_epochs=2, random_state=0, device="cpu").fit(units_apart)
    census = Census.of(Subject.of(model, units_apart))
    beside, fitted = kmeans_beside(model, census), model.diagnostics_["soundness"]
    assert beside["neighbours"] == pytest.approx([fitted["together"], fitted["kmeans"]])
    assert beside["silhouette"][1] > 0.5
    shuffled = replace(census, labels=np.arange(200) % 3)
    worse = kmeans_beside(model, shuffled)
    assert worse["neighbours"][0] < 0.1 < worse["neighbours"][1]
    assert kmeans_beside(SimpleNamespace(by_distance=False), census) is None


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_restarts_number_and_tree_reach_the_page(blobs, tmp_path):
    pytest.importorskip("plotly")
    from test_report import content

    X = blobs[0].astype("float32")
    model = TELL("auto", max_clusters=5, network="identity", n_init=3, epochs=2, random_state=0, device="cpu").fit(X)
    data, _ = content(model.report(tmp_path / "r.html", X, layout="PCA"))
    trust = data["trust"]
    assert trust["runs"]["count"] == 3
    assert trust["kmeans"]["rows"] == 150
    assert trust["runs"]["clusters"] == pytest.approx(model.stability_)
    assert data["map"]["stability"] == pytest.approx(model.row_stability_, abs=1e-3)
    assert trust["number"]["n_clusters"] == model.n_clusters_ == data["k"]
    assert trust["number"]["candidates"] == [2, 3, 4, 5]
    assert np.allclose(trust["tree"], model.hierarchy_)
