import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from diffclust import baselines
from diffclust.baselines import BASELINES, FuzzyCMeans


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(150, 5, centers=4, cluster_std=0.5, random_state=2)


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_blobs_are_found(name, dtype, blobs):
    X, y = blobs
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # apart blobs make an unconnected graph: no warning of that
        labels = BASELINES[name](X.astype(dtype), 4, 0)
    assert labels.shape == (150,)
    assert labels.dtype == np.int64
    assert set(labels) == {0, 1, 2, 3}
    assert adjusted_rand_score(y, labels) == 1.0


@pytest.mark.parametrize("name", BASELINES)
def test_same_seed_same_labels_and_the_global_state_is_untouched(name):
    X = np.random.default_rng(0).normal(size=(80, 3))
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


@pytest.mark.parametrize("name", ["spectral", "agglomerative-average", "agglomerative-weighted"])
def test_all_pairs_methods_refuse_large_data(name):
    X = np.zeros((20_001, 1), np.float32)
    with pytest.raises(ValueError, match=r"20001 rows are too many.*20000"):
        BASELINES[name](X, 2, 0)


def test_average_linkage_agrees_with_scikit_learn():
    X = np.random.default_rng(3).normal(size=(70, 3))
    theirs = AgglomerativeClustering(5, linkage="average").fit_predict(X)
    assert adjusted_rand_score(theirs, baselines.agglomerative_average(X, 5, 0)) == 1.0


def test_weighted_linkage_by_hand():
    # 0 and 1 merge, then 3 joins them: its distance to that pair is (3 + 2) / 2 in both methods. The point at
    # 7.4 is from {0, 1, 3}: average (7.4 + 6.4 + 4.4) / 3 = 6.07, weighted ((7.4 + 6.4) / 2 + 4.4) / 2 = 5.65.
    # The pair {13.2, 13.3} is 5.85 from 7.4: average merges 7.4 to the right, weighted to the left.
    X = np.array([[0.0], [1.0], [3.0], [7.4], [13.2], [13.3]])
    average, weighted = baselines.agglomerative_average(X, 2, 0), baselines.agglomerative_weighted(X, 2, 0)
    assert average[3] == average[4] == average[5] != average[2]
    assert weighted[3] == weighted[2] == weighted[0] != weighted[4]


def test_gmm_is_free_of_scale_and_survives_constant_columns(blobs):
    X, y = blobs
    X = np.hstack([X, np.zeros((150, 3))])  # pixels that are always black
    for scale in (1e-3, 1, 255):
        assert adjusted_rand_score(y, baselines.gmm(scale * X, 4, 0)) == 1.0


def test_gmm_sees_different_widths():
    # A tight cluster beside a wide one: k-means gives the near side of the wide one to the tight one.
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(300, 5)) * 0.1, rng.normal(size=(300, 5)) + 2 * np.eye(5)[0]])
    y = np.arange(600) // 300
    assert adjusted_rand_score(y, baselines.gmm(X, 2, 0)) > 0.97
    assert adjusted_rand_score(y, baselines.kmeans(X, 2, 0)) < 0.8


def test_kmeans_takes_sparse_rows(blobs):
    X, y = blobs
    assert adjusted_rand_score(y, baselines.kmeans(sp.csr_matrix(X), 4, 0)) == 1.0
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        baselines.gmm(sp.csr_matrix(X), 4, 0)


# --- fuzzy c-means


def test_one_update_by_hand():
    # Centres at 0 and 4, m = 2: u of x=1 is (1/1) / (1/1 + 1/9) = 0.9; of x=3 0.1; of x=0 exactly 1.
    X = np.array([[0.0], [1.0], [3.0], [4.0]])
    u = np.exp(FuzzyCMeans(2)._log_memberships(X, np.array([[0.0], [4.0]])))
    assert u[:, 0] == pytest.approx([1.0, 0.9, 0.1, 0.0])
    # c_0 = (1*0 + .81*1 + .01*3 + 0*4) / (1 + .81 + .01) = 0.84 / 1.82, and by symmetry 4 minus that.
    with pytest.warns(ConvergenceWarning, match="max_iter=1 "):
        fitted = FuzzyCMeans(2, max_iter=1, random_state=_seed_with_ends(X)).fit(X)
    assert sorted(fitted.cluster_centers_[:, 0]) == pytest.approx([0.84 / 1.82, 4 - 0.84 / 1.82])


def _seed_with_ends(X):
    """A seed whose k-means++ draw is the two outer points."""
    from sklearn.cluster import kmeans_plusplus

    return next(s for s in range(1000) if set(kmeans_plusplus(X, 2, random_state=s)[0][:, 0]) == {0.0, 4.0})


@pytest.mark.parametrize("m", [1.3, 2.0, 3.0])
def test_memberships_are_the_formula(m):
    rng = np.random.default_rng(0)
    X, centers = rng.normal(size=(10, 3)), rng.normal(size=(4, 3))
    u = np.exp(FuzzyCMeans(4, m=m)._log_memberships(X, centers))
    for i in range(10):
        for j in range(4):
            d = [np.linalg.norm(X[i] - c) for c in centers]
            assert u[i, j] == pytest.approx(1 / sum((d[j] / d[other]) ** (2 / (m - 1)) for other in range(4)))
    assert u.sum(1) == pytest.approx(np.ones(10))


def test_the_answer_is_a_fixed_point(blobs):
    X, _ = blobs
    fitted = FuzzyCMeans(4, tol=1e-10, random_state=0).fit(X)
    weights = fitted.u_**2
    assert fitted.cluster_centers_ == pytest.approx(weights.T @ X / weights.sum(0)[:, None], abs=1e-6)
    assert fitted.u_ == pytest.approx(fitted.predict_proba(X))
    assert (fitted.predict(X) == fitted.labels_).all()
    assert (fitted.fit_predict(X) == fitted.labels_).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_objective_never_grows():
    X = np.random.default_rng(0).normal(size=(100, 4))
    objectives = [FuzzyCMeans(3, max_iter=t, random_state=0).fit(X).objective_ for t in range(1, 15)]
    assert (np.diff(objectives) <= 1e-9).all()


def test_near_m_one_it_is_k_means(blobs):
    X, _ = blobs
    ours = FuzzyCMeans(4, m=1.02, random_state=0).fit(X)
    theirs = KMeans(4, n_init=10, random_state=0).fit(X)
    assert adjusted_rand_score(ours.labels_, theirs.labels_) == 1.0
    assert np.sort(ours.cluster_centers_[:, 0]) == pytest.approx(np.sort(theirs.cluster_centers_[:, 0]), abs=1e-4)
    assert ours.objective_ == pytest.approx(theirs.inertia_, rel=1e-3)


def test_far_from_the_origin():
    X, y = make_blobs(90, 3, centers=3, cluster_std=0.3, random_state=0)
    assert adjusted_rand_score(y, FuzzyCMeans(3, random_state=0).fit_predict(X + 1e6)) == 1.0


def test_more_centres_than_points_to_place_them_on():
    X = np.repeat([[0.0, 0.0], [1.0, 1.0]], 5, axis=0)
    fitted = FuzzyCMeans(3, random_state=0).fit(X)
    assert np.isfinite(fitted.u_).all()
    assert fitted.u_.sum(1) == pytest.approx(np.ones(10))


def test_a_centre_far_from_every_row_does_not_divide_by_zero():
    X, centers = np.repeat([[0.0], [1.0]], 5, axis=0), np.array([[0.0], [1.0], [0.5]])
    fuzzy = FuzzyCMeans(3, m=1.0005)
    log_u = fuzzy._log_memberships(X, centers)
    assert np.exp(log_u)[:, 2].sum() == 0  # underflows: the formula as written would be 0 / 0
    assert fuzzy._centers(X, log_u)[:, 0] == pytest.approx([0.0, 1.0, 0.5])


@pytest.mark.parametrize(
    ("knobs", "says"),
    [
        ({"n_clusters": 0}, "n_clusters=0"),
        ({"n_clusters": 9}, "n_samples=5"),
        ({"m": 1.0}, "m=1.0"),
        ({"max_iter": 0}, "max_iter=0"),
    ],
)
def test_fuzzy_knobs_are_checked(knobs, says):
    with pytest.raises(ValueError, match=says):
        FuzzyCMeans(**{"n_clusters": 2, **knobs}).fit(np.random.default_rng(0).normal(size=(5, 2)))


@parametrize_with_checks([FuzzyCMeans(n_clusters=3)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_imports_no_torch():
    code = "import sys, diffclust.baselines; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert out.strip() == "False"
