from itertools import pairwise

import pytest
import torch
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.datasets import make_blobs

from diffclust.nn import kmeans, kmeans_plus_plus, lloyd, squared_distances
from diffclust.nn.kmeans import TOLERANCE, draw_proportional
from diffclust.nn.kmeans import _lloyd as kmeans_from


def blobs(seed=0, n_samples=300, centers=5):
    x, _ = make_blobs(n_samples, n_features=4, centers=centers, random_state=seed)
    return torch.tensor(x, dtype=torch.float32)


def objective(x, centers):
    return squared_distances(x, centers).amin(1).sum().item()


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n_clusters", [3, 5, 8])
def test_inertia_is_as_small_as_that_of_scikit_learn(seed, n_clusters):
    x = blobs(seed)
    theirs = KMeans(n_clusters, n_init=30, random_state=seed).fit(x.numpy())
    result = kmeans(x, n_clusters, n_init=30)
    assert result.inertia <= 1.02 * theirs.inertia_  # 1.011 at most in more than five hundred comparisons
    assert result.inertia == pytest.approx(objective(x, result.centers), rel=1e-5)
    assert result.labels.equal(squared_distances(x, result.centers).argmin(1))


def test_more_starts_never_end_worse():
    x = blobs(centers=9)
    inertia = [kmeans(x, 9, n_init=n, generator=seeded(3)).inertia for n in (1, 3, 10)]
    assert inertia == sorted(inertia, reverse=True)


def test_lloyd_takes_the_same_road_as_scikit_learn():
    x = blobs(1)
    start = x[:5].clone()
    theirs = KMeans(5, init=start.numpy(), n_init=1, algorithm="lloyd", tol=0).fit(x.numpy())
    ours = lloyd(x, start, tolerance=0)
    torch.testing.assert_close(ours.centers, torch.from_numpy(theirs.cluster_centers_), rtol=1e-4, atol=1e-4)
    assert ours.labels.tolist() == theirs.labels_.tolist()


def test_lloyd_never_climbs():
    x, start = blobs(2), blobs(2)[:8]
    road = [objective(x, start)] + [lloyd(x, start, max_iter=n, tolerance=0).inertia for n in range(1, 12)]
    assert all(later <= earlier * (1 + 1e-6) for earlier, later in pairwise(road))
    assert road[-1] < road[0]


def test_lloyd_leaves_its_start_as_it_was_and_stops_at_max_iter():
    x = blobs()
    start = x[:5].clone()
    result = lloyd(x, start, max_iter=2, tolerance=0)
    assert start.equal(x[:5])
    assert result.n_iter == 2


def test_lloyd_revives_an_empty_cluster():
    x = torch.tensor([[0.0], [1.0], [10.0], [11.0]])
    result = lloyd(x, torch.tensor([[5.0], [1e3], [-1e3]]))
    assert result.labels.unique().tolist() == [0, 1, 2]
    assert result.inertia == pytest.approx(0.5)


def test_starts_that_move_together_end_where_each_ends_alone():
    x = blobs(3, centers=7)
    starts = torch.stack([kmeans_plus_plus(x, 6, seeded(start)) for start in range(4)])
    starts[1, 2] = 1e3  # begins empty
    alone = [lloyd(x, start) for start in starts]
    together = kmeans_from(x, starts, 300, TOLERANCE)
    best = min(alone, key=lambda result: result.inertia)
    torch.testing.assert_close(together.centers, best.centers, rtol=1e-4, atol=1e-4)
    assert together.labels.equal(best.labels)
    assert (together.n_iter, together.inertia) == (best.n_iter, pytest.approx(best.inertia))


def test_many_clusters_take_the_road_of_plain_means():
    x = torch.randn(600, 3)
    ours, centers = lloyd(x, x[:90], max_iter=6, tolerance=0), x[:90].double()
    for _ in range(6):
        labels = torch.cdist(x.double(), centers).argmin(1)
        centers = torch.stack([x[labels == j].double().mean(0) for j in range(90)])
    torch.testing.assert_close(ours.centers.double(), centers, rtol=1e-4, atol=1e-4)
    assert ours.labels.equal(torch.cdist(x.double(), centers).argmin(1))


def test_kmeans_plus_plus_picks_distinct_rows():
    x = torch.arange(12.0)[:, None]
    for _ in range(20):
        centers = kmeans_plus_plus(x, 12)
        assert centers.flatten().sort().values.equal(x.flatten())


def test_kmeans_plus_plus_finds_every_far_group():
    groups = torch.tensor([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0], [100.0, 100.0]])
    x = groups.repeat_interleave(25, 0) + torch.rand(100, 2)
    for _ in range(20):
        assert squared_distances(kmeans_plus_plus(x, 4), groups).argmin(1).unique().numel() == 4


def test_kmeans_plus_plus_starts_as_low_as_scikit_learns_greedy_one():
    x, runs = blobs(1), range(100)
    ours = sum(objective(x, kmeans_plus_plus(x, 8, seeded(run))) for run in runs)
    theirs = [kmeans_plusplus(x.numpy(), 8, random_state=run)[0] for run in runs]
    assert ours <= 1.1 * sum(objective(x, torch.from_numpy(start)) for start in theirs)  # not greedy: 1.25


def test_equal_rows_are_survived():
    x = torch.full((20, 3), 2.5)
    assert kmeans_plus_plus(x, 4).equal(x[:4])
    result = kmeans(x, 4)
    assert result.inertia == 0
    assert result.centers.equal(x[:4])


def test_a_generator_makes_it_reproducible_and_leaves_the_global_one_alone():
    x = blobs(centers=7)
    before = torch.get_rng_state()
    first, again, other = (kmeans_plus_plus(x, 7, seeded(seed)) for seed in (5, 5, 6))
    assert first.equal(again)
    assert not first.equal(other)
    assert kmeans(x, 7, generator=seeded(5)).centers.equal(kmeans(x, 7, generator=seeded(5)).centers)
    assert torch.get_rng_state().equal(before)


def test_draws_are_proportional_to_the_weights():
    weights = torch.tensor([0.0, 1.0, 2.0, 0.0, 5.0, -3.0])
    drawn = torch.bincount(draw_proportional(weights, 40_000, seeded(0)), minlength=6) / 40_000
    torch.testing.assert_close(drawn, weights.clamp_min(0) / 8, rtol=0, atol=0.01)
    assert drawn[[0, 3, 5]].tolist() == [0, 0, 0]


def test_draws_are_uniform_where_every_weight_is_zero():
    drawn = torch.bincount(draw_proportional(torch.zeros(4), 40_000, seeded(0)), minlength=4) / 40_000
    torch.testing.assert_close(drawn, torch.full((4,), 0.25), rtol=0, atol=0.01)


def test_kmeans_does_not_mind_where_the_origin_is():
    corners = torch.tensor([[0.0, 0], [6, 0], [0, 6], [6, 6]]).repeat_interleave(100, 0)
    x = corners + torch.randn(400, 2) + 1e4
    assert kmeans(x, 4).inertia <= 1.01 * KMeans(4, n_init=10, random_state=0).fit(x.numpy()).inertia_


def test_rows_whose_squares_overflow_have_an_answer():
    x = torch.tensor([[-1e30], [1e30], [-1e30], [1e30]])
    assert kmeans(x, 2, n_init=2).labels.shape == (4,)
