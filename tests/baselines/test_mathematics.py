"""Closed forms and objectives of the classical methods beside naive solvers, on rows few enough for them."""

import itertools

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import torch
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.datasets import load_digits, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from diffclust.baselines import LRR, LRSC, LSC, LSR, NJW, NMF, SEC, SLRR, SMR, ZAC, Spectral
from diffclust.baselines.cut import cut, neighbour_graph, spectral_embedding
from diffclust.baselines.lrr import low_rank_representation
from diffclust.baselines.lsc import codes, left_singular_vectors
from diffclust.baselines.nmf import Factors, objective, step
from diffclust.baselines.slrr import residuals
from diffclust.baselines.zac import Merging, Walk, join_apart
from diffclust.metrics import accuracy


def rows(n=12, d=5, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, d)))


def span(y):
    """The projection onto the columns of y: vectors themselves may turn."""
    q = np.linalg.qr(np.asarray(y))[0]
    return q @ q.T


# --- least squares regression


@pytest.mark.parametrize(("n", "d"), [(12, 5), (6, 9)])
def test_lsr_writes_each_row_by_ridge_regression(n, d):
    x = rows(n, d)
    c1 = LSR(2, weight=0.3).coefficients(x).numpy()
    c2 = LSR(2, weight=0.3, zero_diagonal=False).coefficients(x).numpy()
    columns = x.numpy().T
    for j in range(n):
        others = np.delete(np.arange(n), j)
        for c, used in ((c1, others), (c2, np.arange(n))):
            a = columns[:, used]
            ridge = np.linalg.solve(a.T @ a + 0.3 * np.eye(len(used)), a.T @ columns[:, j])
            assert c[used, j] == pytest.approx(ridge)
    assert (np.diag(c1) == 0).all()


# --- low rank


def nuclear(m):
    return np.linalg.norm(m, "nuc")


def test_lrsc_is_the_minimum():
    """Against proximal gradient steps, which shrink singular values, from zero."""
    x, tau = rows(), 0.4
    c = LRSC(2, tau=tau).coefficients(x).numpy()
    columns = x.numpy().T
    k = columns.T @ columns
    z, rate = np.zeros((12, 12)), 1 / (tau * np.linalg.norm(k, 2))
    for _ in range(3000):
        u, s, vt = np.linalg.svd(z - rate * tau * (k @ z - k))
        z = (u * np.maximum(s - rate, 0)) @ vt
    assert c == pytest.approx(z, abs=1e-5)
    assert 0 < np.linalg.matrix_rank(c) < 5


def test_lrr_without_errors_is_the_shape_interaction_matrix():
    x = rows()
    found = low_rank_representation(x, weight=100.0)
    assert (found.q @ found.z).numpy() == pytest.approx(span(x), abs=1e-4)
    assert found.e.abs().max() < 1e-5


def test_lrr_is_certified_by_its_multiplier():
    """KKT: Y in λ ∂|E|_{2,1} and AᵀY in ∂|Z|_*, A = diag(s): then no other Z, E is better."""
    x = rows(30, 6, seed=1)
    x[:4] += 5 * rows(4, 6, seed=2)
    weight = 0.1
    q, z, e, y, s, _, gap = low_rank_representation(x, weight, max_iter=2000, tol=1e-8)
    assert gap <= 1e-8
    assert (s[:, None] * q.T - s[:, None] * z - e).abs().max() < 1e-7
    length = e.norm(dim=0)
    wrong = length > 1e-6
    assert 0 < wrong.sum() < 30
    assert (y[:, wrong] - weight * e[:, wrong] / length[wrong]).abs().max() < 1e-3
    assert y.norm(dim=0).max() <= weight * 1.001
    u, values, vt = torch.linalg.svd(z, full_matrices=False)
    rank = int((values > 1e-6).sum())
    certificate = s[:, None] * y
    assert rank > 0
    assert (u[:, :rank].T @ certificate @ vt[:rank].T - torch.eye(rank)).abs().max() < 0.02
    assert torch.linalg.matrix_norm(certificate, 2) < 1.02


def test_lrr_sees_through_rows_that_are_wrong():
    rng = np.random.default_rng(0)
    bases = [np.linalg.qr(rng.normal(size=(20, 3)))[0] for _ in range(3)]
    X = np.concatenate([rng.normal(size=(30, 3)) @ basis.T for basis in bases])
    X[::10] = rng.normal(size=(9, 20))
    y = np.repeat(np.arange(3), 30)
    good = np.arange(90) % 10 != 0
    assert accuracy(y[good], LRR(3, random_state=0).fit_predict(X)[good]) == 1


def test_lrr_says_when_it_is_not_done():
    with pytest.warns(ConvergenceWarning, match="in max_iter=2"):
        LRR(2, max_iter=2).fit(rows().numpy())


def test_slrr_by_loops():
    x, sample = rows(4, 5), rows(8, 5, seed=1)
    labels = np.array([0, 0, 1, 1, 1, 2, 2, 2])
    found = residuals(x, sample, torch.eye(4, dtype=torch.float64)[labels], 0.1).numpy()
    d = sample.numpy().T
    for i in range(4):
        c = np.linalg.solve(d.T @ d + 0.1 * np.eye(8), d.T @ x[i].numpy())
        for j in range(3):
            own = np.where(labels == j, c, 0)
            assert found[i, j] == pytest.approx(np.linalg.norm(x[i].numpy() - d @ own) / np.linalg.norm(own))
    assert np.isinf(found[:, 3]).all()  # a cluster without rows


def test_slrr_answers_for_new_rows():
    rng = np.random.default_rng(0)
    bases = [np.linalg.qr(rng.normal(size=(20, 3)))[0] for _ in range(3)]
    X, new = (np.concatenate([rng.normal(size=(50, 3)) @ basis.T for basis in bases]) for _ in range(2))
    y = np.repeat(np.arange(3), 50)
    model = SLRR(3, n_samples=60, random_state=0).fit(X)
    assert accuracy(y, model.labels_) >= 0.95
    together = np.concatenate([model.labels_, model.predict(new)])
    assert accuracy(np.concatenate([y, y]), together) >= 0.95


# --- graphs


def test_smr_solves_its_sylvester_equation():
    x = rows(20, 5)
    model = SMR(2, alpha=0.7)
    k = (x @ x.T).numpy()
    expected = scipy.linalg.solve_sylvester(0.7 * k, model.laplacian(x).numpy(), 0.7 * k)
    assert model.coefficients(x).numpy() == pytest.approx(expected)


def test_the_graph_of_neighbours_by_hand():
    w = neighbour_graph(torch.tensor([[0.0], [1.0], [3.0], [7.0]]), 1, 0).to_dense()
    expected = [[0, 1, 0, 0], [1, 0, 0.5, 0], [0, 0.5, 0, 0.5], [0, 0, 0.5, 0]]
    assert w.tolist() == expected


def test_the_spectral_embedding_is_that_of_all_eigenvectors(monkeypatch):
    x = rows(60, 3)
    w = neighbour_graph(x, 8, 0)
    dense = w.to_dense().numpy()
    root = np.sqrt(dense.sum(1))
    vectors = np.linalg.eigh(np.eye(60) - dense / np.outer(root, root))[1][:, :3]
    assert span(spectral_embedding(w, 3, 0)) == pytest.approx(span(vectors))
    monkeypatch.setattr("diffclust.baselines.cut.DENSE_UP_TO", 0)
    for kind in (w, w.to_dense()):
        assert span(spectral_embedding(kind, 3, 0)) == pytest.approx(span(vectors), abs=1e-2)


def test_a_row_without_neighbours_is_survived():
    w = torch.zeros(7, 7, dtype=torch.float64)
    w[:3, :3] = w[3:6, 3:6] = 1
    labels = cut(w, 2, 0)
    assert len(set(labels[:3])) == len(set(labels[3:6])) == 1
    assert labels[0] != labels[3]


def test_spectral_agrees_with_scikit_learn():
    X, y = load_digits(return_X_y=True)
    X, y = X[:500], y[:500]
    theirs = SpectralClustering(10, affinity="nearest_neighbors", n_neighbors=11, random_state=0).fit_predict(X)
    ours = Spectral(10, random_state=0).fit_predict(X)
    assert accuracy(y, ours) == pytest.approx(accuracy(y, theirs), abs=0.05)


def test_moons_and_a_few_rows_far_away():
    X, y = make_moons(300, noise=0.04, random_state=0)
    X = np.concatenate([X, np.full((8, 2), 9.0)])  # a piece of the graph for themselves, but no cluster
    labels = Spectral(2, n_neighbors=6, random_state=0).fit_predict(X)
    assert accuracy(y, labels[:300]) == 1
    assert len(set(labels[300:])) == 1
    assert accuracy(y, NJW(2, scale=0.05, random_state=0).fit_predict(X[:300])) == 1


def test_njw_by_loops():
    x = rows(9, 2)
    w = NJW(2, scale=0.7).affinity(x).numpy()
    distances = np.linalg.norm(x.numpy()[:, None] - x.numpy(), axis=2)
    median = np.sort(distances.ravel())[40]
    for i, j in itertools.product(range(9), repeat=2):
        expected = 0 if i == j else np.exp(-(distances[i, j] ** 2) / (2 * (0.7 * median) ** 2))
        assert w[i, j] == pytest.approx(expected)


def test_units_do_not_count_for_sec():
    x = rows(40, 4)
    plain, huge = (SEC(3).coordinates(scale * x, 0) for scale in (1, 2.0**1000))
    assert torch.allclose(plain.abs(), huge.abs(), atol=1e-6)


def test_units_do_not_count_for_lsc():
    x = rows(40, 4).numpy()
    plain, huge = (LSC(3, random_state=0).fit(scale * x).labels_ for scale in (1, 2.0**1000))
    assert (plain == huge).all()


def test_sec_is_the_minimum_over_its_linear_map():
    """The matrix as printed, V and b solved for: no orthonormal F does better."""
    x = rows(40, 4)
    model = SEC(3, weight=0.8, ridge=0.5, n_neighbors=6)
    f = model.coordinates(x, 0).numpy()
    w = neighbour_graph(x, 6, 0).to_dense().numpy()
    root = np.sqrt(w.sum(1))
    xc = x.numpy() - x.numpy().mean(0)
    gamma = 0.5 * (xc**2).sum(1).mean()

    def value(f):
        v = np.linalg.solve(xc.T @ xc + gamma * np.eye(4), xc.T @ f)
        fit = xc @ v + f.mean(0) - f  # b is the mean, of centred rows
        smooth = np.trace(f.T @ (np.eye(40) - w / np.outer(root, root)) @ f)
        return smooth + 0.8 * ((fit**2).sum() + gamma * (v**2).sum())

    best = value(f)
    rng = np.random.default_rng(0)
    for scale in (0.01, 0.1, 1.0):
        assert best < value(np.linalg.qr(f + scale * rng.normal(size=f.shape))[0])
    centring = np.eye(40) - 1 / 40
    linear = xc @ np.linalg.solve(xc.T @ xc + gamma * np.eye(4), xc.T)
    matrix = np.eye(40) - w / np.outer(root, root) + 0.8 * (centring - linear)
    assert best == pytest.approx(np.linalg.eigvalsh(matrix)[:3].sum())


def test_lsc_codes_and_vectors_by_loops():
    x, landmarks = rows(20, 3).float(), rows(6, 3, seed=1).float()
    z = codes(x, landmarks, 2).toarray()
    distances = np.linalg.norm(x.numpy()[:, None] - landmarks.numpy(), axis=2)
    near = np.sort(distances, axis=1)[:, :2]
    expected = np.exp(-(distances**2) / (2 * near.mean() ** 2)) * (distances <= near[:, 1:])
    expected /= expected.sum(1, keepdims=True)
    assert z == pytest.approx(expected, abs=1e-5)
    scaled = expected / np.sqrt(expected.sum(0))
    graph = scaled @ scaled.T
    assert graph.sum(1) == pytest.approx(np.ones(20))  # degrees are one
    vectors = np.linalg.eigh(graph)[1][:, -3:]
    assert span(left_singular_vectors(codes(x, landmarks, 2), 3)) == pytest.approx(span(vectors), abs=1e-4)


def test_lsc_landmarks():
    x = rows(200, 3)
    assert len(LSC(2, n_landmarks=500).choose(x, 0)) == 200
    drawn = LSC(2, landmarks="random", n_landmarks=7).choose(x, 0)
    assert all((x == row).all(1).any() for row in drawn)
    means = LSC(2, n_landmarks=7).choose(x, 0)
    nearest = torch.cdist(x, means).amin(1).square().sum()
    assert nearest < torch.cdist(x, drawn).amin(1).square().sum()


# --- factors


def test_nmf_lp_never_raises_its_objective_and_ends_where_no_entry_can_move():
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.random((30, 6)))
    graph = neighbour_graph(x, 4, 0)
    w, v = (torch.from_numpy(rng.random((30, 3))).requires_grad_() for _ in range(2))
    factors, values = Factors(w.detach(), v.detach()), []
    for _ in range(6000):
        factors = step(x, graph, factors, 0.5)
        values.append(objective(x, graph, factors, 0.5))
    assert (np.diff(values) <= 1e-9).all()
    w, v = (each.clone().requires_grad_() for each in factors)
    dense = graph.to_dense()
    rough = torch.trace(v.T @ (torch.diag(dense.sum(1)) - dense) @ v)
    loss = (x - v @ (w.T @ x)).square().sum() + 0.5 * rough
    assert loss.item() == pytest.approx(values[-1])
    loss.backward()
    for each in (w, v):
        assert (each.grad * each).abs().max() < 5e-3  # where an entry is not zero, its slope is


def test_nmf_lowers_its_objective_to_that_of_multiplicative_updates_and_takes_the_largest_part():
    """Of the parts H that it keeps, the best V of each row is found by non-negative least squares."""
    rng = np.random.default_rng(0)
    parts = np.kron(np.eye(3), np.ones(4))
    X = rng.dirichlet(np.full(3, 0.3), 60) @ parts + 0.05 * rng.random((60, 12))
    found = []
    for max_iter in (1, 3, 10, 500):
        model = NMF(3, max_iter=max_iter, random_state=0).fit(X)
        assert (model.components_ >= 0).all()
        v = np.array([scipy.optimize.nnls(model.components_.T, x)[0] for x in X])
        found.append(((X - v @ model.components_) ** 2).sum())
    assert (np.diff(found) < 0).all()
    least = np.inf
    for _ in range(3):
        w, h = rng.random((60, 3)), rng.random((3, 12))
        for _ in range(3000):
            h *= (w.T @ X) / (w.T @ w @ h)
            w *= (X @ h.T) / (w @ h @ h.T)
        least = min(least, ((X - w @ h) ** 2).sum())
    assert found[-1] == pytest.approx(least, rel=0.01)
    lengths = [np.sqrt((h**2).sum()) for h in model.components_]
    naive = [max(range(3), key=lambda j: row[j] * lengths[j]) for row in v]
    assert (model.labels_ == naive).all()


def test_nmf_is_free_of_scale():
    X = np.random.default_rng(0).random((60, 8))
    labels = [NMF(3, random_state=0).fit_predict(scale * X) for scale in (1, 1e-4, 1e4)]
    assert (labels[0] == labels[1]).all()
    assert (labels[0] == labels[2]).all()


# --- zeta


def test_cycles_are_the_determinants_that_leave_one_out():
    steps = Walk.of(rows(15, 2).numpy(), 4, 0)
    for cluster in (np.arange(15), np.array([3, 1, 7, 12])):
        p = np.zeros((15, 15))
        np.put_along_axis(p, steps.places, steps.values, axis=1)
        inner = np.eye(len(cluster)) - 0.01 * p[np.ix_(cluster, cluster)]
        whole = -np.linalg.slogdet(inner)[1]
        for i in range(len(cluster)):
            without = np.delete(np.delete(inner, i, 0), i, 1)
            assert steps.popularity(cluster)[i] == pytest.approx(whole + np.linalg.slogdet(without)[1], abs=1e-9)


def test_sparse_and_dense_clusters_agree(monkeypatch):
    steps = Walk.of(rows(40, 2).numpy(), 6, 0)
    dense = steps.popularity(np.arange(5, 35))
    monkeypatch.setattr("diffclust.baselines.zac.DENSE_UP_TO", 0)
    assert steps.popularity(np.arange(5, 35)) == pytest.approx(dense)


def test_zac_merges_the_pair_that_gains_most():
    """Beside a loop that looks at all pairs each time."""
    X = rows(40, 2, seed=3).numpy()
    steps = Walk.of(X, 6, 0)
    parts = steps.nearest_components()
    first = [np.flatnonzero(parts == c) for c in range(parts.max() + 1)]
    naive = [list(part) for part in first]
    while len(naive) > 4:

        def gain(pair):
            a, b = (np.array(naive[c]) for c in pair)
            both = steps.popularity(np.concatenate([a, b]))
            own, other = both[: len(a)].mean(), both[len(a) :].mean()
            return own - steps.popularity(a).mean() + other - steps.popularity(b).mean()

        a, b = max(itertools.combinations(range(len(naive)), 2), key=gain)
        naive[a] += naive.pop(b)
    expected = np.empty(40)
    for label, part in enumerate(naive):
        expected[part] = label
    assert adjusted_rand_score(expected, ZAC(4, n_neighbors=6).fit_predict(X)) == 1
    merging = Merging(steps, first)
    merging.until(4)
    assert sorted(map(len, merging.members.values())) == sorted(map(len, naive))


def test_clusters_without_an_edge_join_by_their_means():
    X = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [9.0]])
    members = {0: np.arange(3), 1: np.array([3, 4]), 2: np.array([5])}
    join_apart(X, members, 2)
    assert sorted(map(sorted, members.values())) == [[0, 1, 2], [3, 4, 5]]


def test_k_means_groups_like_scikit_learn():
    from diffclust.baselines.cut import group

    x = rows(90, 2) + 6 * torch.eye(3, 2, dtype=torch.float64).repeat(30, 1)
    theirs = KMeans(3, n_init=10, random_state=0).fit_predict(x.numpy())
    assert adjusted_rand_score(theirs, group(x, 3, 0)) == 1
