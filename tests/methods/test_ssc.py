"""SSC: subspaces that neighbours cannot tell apart, scale, what it refuses, and scikit-learn's own checks."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.exceptions import ConvergenceWarning

import diffclust
from conftest import failed_checks, subspaces
from diffclust import SSC
from diffclust.baselines import BASELINES
from diffclust.methods import TRANSDUCTIVE
from diffclust.methods.ssc import join_strays, spectral_labels
from diffclust.metrics import accuracy


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_checks():
    assert failed_checks(SSC(3, device="cpu")) == []


def test_finds_subspaces_that_k_means_and_neighbours_do_not():
    X, y = subspaces()
    model = SSC(4, random_state=0).fit(X)
    assert accuracy(y, model.labels_) == 1
    assert accuracy(y, BASELINES["kmeans"](X, 4, 0)) < 0.6
    assert model.diagnostics_["sizes"] == [30] * 4
    assert model.affinity_matrix_.shape == (120, 120)
    assert (abs(model.affinity_matrix_ - model.affinity_matrix_.T) > 1e-6).nnz == 0
    assert BASELINES["ssc"](X, 4, 0).tolist() == model.labels_.tolist()


def test_arpack_and_all_eigenvectors_agree(monkeypatch):
    X, _ = subspaces(1)
    dense = SSC(4, random_state=0).fit_predict(X)
    monkeypatch.setattr("diffclust.methods.ssc.DENSE_UP_TO", 0)
    assert accuracy(dense, SSC(4, random_state=0).fit_predict(X)) == 1


def test_lengths_signs_order_and_kind_of_the_rows_do_not_matter():
    X, y = subspaces(2)
    rng = np.random.default_rng(0)
    scaled = X * rng.choice([-1, 1], (120, 1)) * np.exp(rng.normal(size=(120, 1)))
    order = rng.permutation(120)
    for kind in (scaled, scaled * 1e-25, pd.DataFrame(scaled), sp.csr_array(scaled), torch.from_numpy(scaled)):
        assert accuracy(y, SSC(4, random_state=0).fit_predict(kind)) == 1
    assert accuracy(y[order], SSC(4, random_state=0).fit_predict(scaled[order])) == 1
    assert SSC(2, random_state=0).fit(np.random.default_rng(0).random((30, 4, 4))).n_features_in_ == 16


def test_same_seed_same_labels_and_the_callers_state_is_untouched():
    X, _ = subspaces(noise=0.2)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    assert (SSC(4, random_state=3).fit_predict(X) == SSC(4, random_state=3).fit_predict(X)).all()
    SSC(4).fit(X)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


@pytest.mark.parametrize("name", ["predict", "predict_proba", "transform", "partial_fit", "save"])
def test_it_says_that_it_is_transductive(name):
    model = SSC(2)
    assert not hasattr(model, name)
    with pytest.raises(AttributeError, match=r"transductive.*SSCNet"):
        getattr(model, name)
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        _ = model.colour


def test_equal_rows_share_their_label_and_do_not_tear_the_graph():
    X, y = subspaces()
    model = SSC(4, random_state=0).fit(np.concatenate([X, X]))
    assert accuracy(np.concatenate([y, y]), model.labels_) == 1
    assert (model.labels_[:120] == model.labels_[120:]).all()
    assert model.diagnostics_["repeated"] == 120


@pytest.mark.parametrize("X", [np.ones((9, 3)), np.zeros((9, 3)), np.eye(9)], ids=["equal", "zero", "orthogonal"])
def test_rows_without_neighbours_are_reported(X):
    with pytest.warns(ConvergenceWarning):
        model = SSC(2, random_state=0).fit(X)
    assert model.labels_.tolist() == [0] * 9
    assert model.diagnostics_["isolated"] >= 1


def test_a_few_rows_of_zeros_are_survived():
    X, y = subspaces()
    X[:3] = 0
    with pytest.warns(ConvergenceWarning, match="1 rows have no neighbour"):  # equal ones count once
        model = SSC(4, random_state=0).fit(X)
    assert accuracy(y[3:], model.labels_[3:]) == 1
    assert len(set(model.labels_[:3])) == 1


def test_a_graph_in_more_pieces_than_clusters_is_reported():
    X, y = subspaces(k=3, dim=2, ambient=6, noise=0.0)
    with pytest.warns(ConvergenceWarning, match="falls into 3 components, more than n_clusters=2"):
        model = SSC(2, random_state=0).fit(X)
    for j in range(3):
        assert len(set(model.labels_[y == j])) == 1  # a piece is never torn
    assert set(model.labels_) == {0, 1}


def test_spectral_labels_of_a_graph_by_hand():
    def clique(n):
        return np.ones((n, n)) - np.eye(n)

    graph = sp.csr_array(sp.block_diag([clique(3), clique(4), np.zeros((1, 1))]))
    labels, found = spectral_labels(graph, 2, 0)
    assert len(set(labels[:3])) == len(set(labels[3:7])) == 1
    assert {labels[0], labels[3]} == {0, 1}
    assert labels[7] == -1
    assert found == {"isolated": 1, "components": 2, "converged": True}
    graph = sp.csr_array(sp.block_diag([clique(30), clique(2), clique(40)]))  # a pair is no cluster of 72
    labels, found = spectral_labels(graph, 2, 0)
    assert (labels[30:32] == -1).all()
    assert {labels[0], labels[40]} == {0, 1}
    labels, _ = spectral_labels(sp.csr_array(sp.block_diag([clique(n) for n in (5, 9, 7, 6)])), 2, 0)
    assert labels.tolist() == [1] * 5 + [0] * 9 + [1] * 13


def test_a_graph_that_nearly_falls_apart():
    """Twenty eigenvalues within 1e-6 of one, of which Lanczos would miss some."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(20), 20)
    inside = (y[:, None] == y) & (rng.random((400, 400)) < 0.5)
    weights = (inside + 1e-8) * rng.random((400, 400))
    labels, _ = spectral_labels(sp.csr_array(weights + weights.T), 20, 0)
    assert accuracy(y, labels) == 1


def test_strays_take_the_label_of_the_row_they_correlate_most_with():
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-0.8, 0.6], [0.0, 0.9]])
    assert join_strays(x, np.array([4, 5, -1, -1])).tolist() == [4, 5, 4, 5]
    assert join_strays(x, np.full(4, -1)).tolist() == [0] * 4


@pytest.mark.parametrize(
    ("settings", "X", "error", "says"),
    [
        ({"n_clusters": 0}, np.ones((5, 2)), ValueError, "n_clusters=0"),
        ({"n_clusters": 2.5}, np.ones((5, 2)), TypeError, "n_clusters=2.5"),
        ({"n_clusters": 6}, np.ones((5, 2)), ValueError, "n_samples=5 should be >= n_clusters=6"),
        ({"alpha": 1.0}, np.ones((5, 2)), ValueError, "alpha=1.0"),
        ({"alpha": "big"}, np.ones((5, 2)), ValueError, "alpha='big'"),
        ({"device": "gpu9"}, np.ones((9, 2)), ValueError, "device='gpu9'"),
        ({}, np.ones((1, 2)), ValueError, "1 sample"),
        ({}, np.full((9, 2), np.nan), ValueError, "NaN"),
        ({}, torch.full((9, 2), 1e300, dtype=torch.float64), ValueError, "too large for float32"),
    ],
)
def test_bad_input_is_named_and_leaves_the_estimator_as_it_was(settings, X, error, says):
    model = SSC(**settings)
    with pytest.raises(error, match=says):
        model.fit(X)
    assert not [name for name in vars(model) if name.endswith("_")]


def test_it_is_listed_as_transductive():
    assert [method.load() for method in TRANSDUCTIVE] == [diffclust.SSC, diffclust.DSCNet]
