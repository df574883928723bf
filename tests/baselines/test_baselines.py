"""What every classical method promises: blobs or subspaces found, seeds, bad input, memory, scikit-learn's checks."""

import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.cluster import AgglomerativeClustering
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from conftest import failed_checks, subspaces
from diffclust import baselines
from diffclust.baselines import BASELINES, ZAC, Spectral
from diffclust.metrics import accuracy

SUBSPACES = ["ssc", "lsr1", "lsr2", "lrr", "lrsc", "slrr", "smr"]
PARTS = ["nmf", "nmf-lp"]  # of values that are not negative
PAIRS = ["njw", "lsr1", "lsr2", "lrr", "lrsc", "smr", "agglomerative-average", "agglomerative-weighted"]


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(150, 5, centers=4, cluster_std=0.5, random_state=2)


def parts(seed=0, k=4, n=30):
    """Rows that are mostly of one of k patterns with few columns in common."""
    rng = np.random.default_rng(seed)
    patterns = np.kron(np.eye(k), np.ones(5)) + 0.1
    y = np.repeat(np.arange(k), n)
    return patterns[y] * rng.uniform(0.5, 1.5, (k * n, 1)) + 0.1 * rng.random((k * n, 5 * k)), y


@pytest.mark.parametrize("name", [name for name in BASELINES if name not in PARTS])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_blobs_are_found(name, dtype, blobs):
    X, y = blobs
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # apart blobs make an unconnected graph: no warning of that
        if name == "ssc":
            warnings.simplefilter("ignore")
        labels = BASELINES[name](X.astype(dtype), 4, 0)
    assert labels.shape == (150,)
    assert labels.dtype == np.int64
    assert set(labels) == {0, 1, 2, 3}
    assert adjusted_rand_score(y, labels) == 1.0


@pytest.mark.parametrize("name", SUBSPACES)
def test_subspaces_are_found(name):
    X, y = subspaces(dim=3, ambient=20, noise=0.01)
    assert accuracy(y, BASELINES[name](X, 4, 0)) >= 0.95
    assert accuracy(y, BASELINES["kmeans"](X, 4, 0)) < 0.6


@pytest.mark.parametrize("name", PARTS)
def test_parts_are_found(name):
    X, y = parts()
    assert accuracy(y, BASELINES[name](X, 4, 0)) == 1
    with pytest.raises(ValueError, match="smallest is -1"):
        BASELINES[name](X - 2 * np.eye(120, 20) - X * np.eye(120, 20) + np.eye(120, 20), 4, 0)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", BASELINES)
def test_same_seed_same_labels_and_the_global_state_is_untouched(name):
    X = np.random.default_rng(0).random(size=(80, 3))
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first, second = BASELINES[name](X, 3, 5), BASELINES[name](X.copy(), 3, 5)
    assert (first == second).all()
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


@pytest.mark.parametrize("name", BASELINES)
def test_bad_input_is_refused_with_numbers(name):
    X = np.ones((5, 2))
    for k in (0, 6):
        with pytest.raises(ValueError, match=f"k={k} should be from 1 to the number of rows, 5"):
            BASELINES[name](X, k, 0)
    with pytest.raises(ValueError, match="NaN"):
        BASELINES[name](np.full((5, 2), np.nan), 2, 0)
    with pytest.raises(ValueError, match="dim 3"):
        BASELINES[name](np.ones((5, 2, 2)), 2, 0)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("X", [np.ones((12, 3)), np.zeros((12, 3)), np.eye(12)], ids=["equal", "zero", "orthogonal"])
@pytest.mark.parametrize("name", BASELINES)
def test_rows_with_nothing_to_tell_them_apart(name, X):
    labels = BASELINES[name](X, 3, 0)
    assert labels.shape == (12,)
    assert set(labels) <= {0, 1, 2}


@pytest.mark.parametrize("name", PAIRS)
def test_memory_is_asked_for_before_work_begins(name, monkeypatch):
    monkeypatch.setattr("diffclust.baselines.clusterer.free_memory", lambda device: 2e9)
    model = BASELINES[name].build(2)
    monkeypatch.setattr(type(model), "label", lambda self, X, seed: np.arange(len(X)) % 2)
    model.fit(np.zeros((5000, 1)))  # 0.2 GB a matrix
    with pytest.raises(ValueError, match=r"on 20000 rows needs \d+\.\d GB.* 2\.0 GB are free.*LSC"):
        BASELINES[name].build(2).fit(np.zeros((20_000, 1)))


@pytest.mark.parametrize("name", sorted(set(BASELINES) - set(PAIRS)))
def test_the_others_grow_with_the_rows_alone(name):
    assert BASELINES[name].needs(10**6, 10) < 1e9


def test_free_memory_is_what_the_machine_has():
    from diffclust.baselines.clusterer import free_memory

    assert 1e8 < free_memory() < 1e14


def test_average_linkage_agrees_with_scikit_learn():
    X = np.random.default_rng(3).normal(size=(70, 3))
    theirs = AgglomerativeClustering(5, linkage="average").fit_predict(X)
    assert adjusted_rand_score(theirs, BASELINES["agglomerative-average"](X, 5, 0)) == 1.0


def test_weighted_linkage_by_hand():
    # 0 and 1 merge, then 3 joins them: its distance to that pair is (3 + 2) / 2 in both methods. The point at
    # 7.4 is from {0, 1, 3}: average (7.4 + 6.4 + 4.4) / 3 = 6.07, weighted ((7.4 + 6.4) / 2 + 4.4) / 2 = 5.65.
    # The pair {13.2, 13.3} is 5.85 from 7.4: average merges 7.4 to the right, weighted to the left.
    X = np.array([[0.0], [1.0], [3.0], [7.4], [13.2], [13.3]])
    average, weighted = BASELINES["agglomerative-average"](X, 2, 0), BASELINES["agglomerative-weighted"](X, 2, 0)
    assert average[3] == average[4] == average[5] != average[2]
    assert weighted[3] == weighted[2] == weighted[0] != weighted[4]


def test_gmm_is_free_of_scale_and_survives_constant_columns(blobs):
    X, y = blobs
    X = np.hstack([X, np.zeros((150, 3))])  # pixels that are always black
    for scale in (1e-3, 1, 255):
        assert adjusted_rand_score(y, BASELINES["gmm"](scale * X, 4, 0)) == 1.0
    model = baselines.GMM(4, random_state=0).fit(X)
    assert (model.predict(X) == model.labels_).all()


def test_gmm_sees_different_widths():
    # A tight cluster beside a wide one: k-means gives the near side of the wide one to the tight one.
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(300, 5)) * 0.1, rng.normal(size=(300, 5)) + 2 * np.eye(5)[0]])
    y = np.arange(600) // 300
    assert adjusted_rand_score(y, BASELINES["gmm"](X, 2, 0)) > 0.97
    assert adjusted_rand_score(y, BASELINES["kmeans"](X, 2, 0)) < 0.8


def test_a_tensor_with_a_gradient_is_rows_and_a_numpy_integer_a_number(blobs):
    X, k = blobs[0], np.int64(3)
    expected = BASELINES["lsc-k"](X, 3, 0)
    assert np.array_equal(BASELINES["lsc-k"](torch.tensor(X, requires_grad=True), k, 0), expected)
    assert np.array_equal(Spectral(k, random_state=0).fit(X).labels_, Spectral(3, random_state=0).fit(X).labels_)


def test_zac_takes_any_number_of_neighbours(blobs):
    X = blobs[0]
    for n_neighbors in (1, 2, 3, 200):
        assert np.unique(ZAC(4, n_neighbors=n_neighbors, random_state=0).fit(X).labels_).tolist() == [0, 1, 2, 3]


def test_kmeans_takes_sparse_rows(blobs):
    X, y = blobs
    assert adjusted_rand_score(y, BASELINES["kmeans"](sp.csr_matrix(X), 4, 0)) == 1.0
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        BASELINES["gmm"](sp.csr_matrix(X), 4, 0)


def negative(estimator):
    """scikit-learn checks clusterers on standardised rows, whatever they say of negative values."""
    return {} if estimator.signed else {"check_clustering": "its rows are negative"}


OURS = [BASELINES[name].build(3) for name in BASELINES if BASELINES[name].module.startswith(".")]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("estimator", OURS, ids=lambda estimator: type(estimator).__name__)
def test_scikit_learn_checks(estimator):
    assert failed_checks(estimator, negative(estimator)) == []


def test_the_list_is_whole():
    for name, baseline in BASELINES.items():
        assert name == baseline.name
        assert re.search("(min|max|argmin_j) .|. = .", baseline.title), f"{name} has no formula"
        assert baseline.paper
    assert set(baselines.__all__) >= {type(model).__name__ for model in OURS}
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        _ = baselines.colour


def test_imports_no_torch():
    code = "import sys, diffclust.baselines; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert out.strip() == "False"


def test_empty_clusters_are_reported():
    rng = np.random.default_rng(0)
    X = 100 + 0.5 * rng.random((200, 10))  # the part that all rows share outweighs every other
    with pytest.warns(UserWarning, match=r"[1-9] of 5 clusters are empty"):
        model = baselines.NMF(5, random_state=0).fit(X)
    assert model.diagnostics_["sizes"] == np.bincount(model.labels_, minlength=5).tolist()
    assert len(model.diagnostics_["warnings"]) == 1
