"""Fuzzy c-means: its updates by hand and by loops, its fixed point, k-means in the limit."""

import numpy as np
import pytest
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from diffclust.baselines import FuzzyCMeans
from diffclust.engine.runtime import restart_seeds


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(150, 5, centers=4, cluster_std=0.5, random_state=2)


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
    draws = ((s, kmeans_plusplus(X, 2, random_state=restart_seeds(s, 1)[0])[0][:, 0]) for s in range(1000))
    return next(s for s, drawn in draws if set(drawn) == {0.0, 4.0})


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
    with pytest.warns(UserWarning, match="1 of 3 clusters are empty"):
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


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_memberships_do_not_depend_on_units(unit):
    X = np.random.default_rng(0).normal(size=(60, 3)) + 5 * np.eye(3).repeat(20, 0)
    plain, other = (FuzzyCMeans(3, random_state=0).fit(scale * X) for scale in (1.0, unit))
    np.testing.assert_allclose(other.predict_proba(unit * X), plain.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(other.cluster_centers_ / unit, plain.cluster_centers_, rtol=1e-5)
