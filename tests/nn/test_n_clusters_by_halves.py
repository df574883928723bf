"""How many clusters two views of the same rows agree on."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.metrics import adjusted_mutual_info_score, silhouette_samples

from diffclust.metrics import accuracy
from diffclust.nn import n_clusters
from diffclust.nn.n_clusters import (
    MIN_SILHOUETTE,
    MIN_SURPLUS,
    NEXT_TO_BEST,
    VALLEY_WIDTH,
    Choice,
    View,
    agreement,
    breadth,
    choose_number,
    clearer,
    shared_information,
    silhouette,
    surplus,
    valley,
    without_clusters,
)


def twice(z: torch.Tensor) -> tuple[View, View]:
    halves = torch.randperm(len(z)).tensor_split(2)
    return View(z, halves[0]), View(z, halves[1])


@pytest.mark.parametrize("k", [2, 5])
def test_the_silhouette_is_scikit_learns(k: int) -> None:
    rng = np.random.default_rng(0)
    z, labels = rng.normal(size=(80, 3)), rng.integers(k, size=80)
    far = torch.cdist(torch.tensor(z), torch.tensor(z))
    ours = silhouette(far, torch.tensor(labels), k + 1)  # one cluster is empty
    np.testing.assert_allclose(ours.numpy(), silhouette_samples(z, labels), atol=1e-10)


def test_the_silhouette_of_a_row_alone_is_nothing() -> None:
    z = torch.tensor([[0.0], [0.1], [9.0]])
    assert silhouette(torch.cdist(z, z), torch.tensor([0, 0, 1]), 2)[2] == 0


def test_agreement_is_the_matched_accuracy() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(4, size=(2, 50))
    assert agreement(torch.tensor(a), torch.tensor(b), 4) == pytest.approx(accuracy(a, b))


@pytest.mark.parametrize("k", [2, 7, 30])
def test_shared_information_is_scikit_learns(k: int) -> None:
    rng = np.random.default_rng(k)
    a = rng.integers(k, size=200)
    b = np.where(rng.random(200) < 0.5, a, rng.integers(k, size=200))
    ours = shared_information(torch.tensor(a), torch.tensor(b), k + 1)  # one cluster is empty
    assert ours == pytest.approx(adjusted_mutual_info_score(a, b), abs=1e-9)
    assert shared_information(torch.tensor(a), torch.tensor((a + 1) % k), k) == pytest.approx(1)
    assert shared_information(torch.tensor(a), torch.zeros(200, dtype=torch.long), k) == 0


def test_breadth_counts_directions() -> None:
    x = torch.tensor([[1.0, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0]])
    assert breadth(x) == pytest.approx(2)
    assert breadth(x.T) == pytest.approx(breadth(torch.cat([x.T, x.T])))  # fewer rows than columns, and more
    assert breadth(x[:2] + 100) == pytest.approx(1)
    assert breadth(torch.ones(5, 2)) == 0


def test_agreement_on_broad_rows_is_evidence_without_a_valley(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(n_clusters, "VALLEY", 0.0)
    monkeypatch.setattr(n_clusters, "SHALLOW_VALLEY", 0.0)
    torch.manual_seed(0)
    views = twice(6 * torch.eye(6).repeat_interleave(60, 0) + torch.randn(360, 6))
    narrow, broad = torch.randn(360, 9), torch.randn(360, 20)
    assert choose_number(views, 10).n_clusters == 1
    assert choose_number(views, 10, rows=narrow).n_clusters == 1
    assert choose_number(views, 10, rows=broad).n_clusters == 6
    assert choose_number(views, 4, rows=broad).n_clusters == 1  # a few clusters are no evidence


def test_a_surplus_of_agreement_is_evidence_where_the_valley_is_shallow(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    rows = 6 * torch.eye(6).repeat_interleave(60, 0) + torch.randn(360, 6)
    monkeypatch.setattr(n_clusters, "VALLEY", 0.0)
    assert choose_number(twice(rows), 10, rows=rows).n_clusters == 6
    assert choose_number(twice(rows), 10, rows=torch.randn(360, 6)).n_clusters == 1
    monkeypatch.setattr(n_clusters, "SHALLOW_VALLEY", 0.0)
    assert choose_number(twice(rows), 10, rows=rows).n_clusters == 1


@pytest.mark.parametrize("d", [2, 5, 20])
def test_clouds_have_no_surplus(d: int) -> None:
    torch.manual_seed(d)
    clouds = {
        "uniform": torch.rand(800, d),
        "correlated": torch.randn(800, d) @ torch.randn(d, d),
        "skewed": torch.randn(800, d).exp(),
        "counts": torch.poisson(torch.full((800, d), 3.0)),
        "one hot": torch.nn.functional.one_hot(torch.randint(4, (800, 3 + d))).flatten(1).float(),
    }
    found = {name: surplus(x, 28) for name, x in clouds.items()}
    assert max(found.values()) < MIN_SURPLUS, found
    assert surplus(clouds["uniform"][:8], 28) == 0  # too few rows to ask


def test_clusters_in_many_columns_have_a_surplus() -> None:
    torch.manual_seed(0)
    centers = 4 * torch.randn(8, 20)
    assert surplus(centers.repeat_interleave(100, 0) + torch.randn(800, 20), 28) > MIN_SURPLUS


def test_rows_without_clusters_keep_columns_and_rank_correlations() -> None:
    torch.manual_seed(0)
    x = (torch.randn(3_000, 3) @ torch.randn(3, 4)).exp()
    drawn = without_clusters(x)
    assert torch.equal(drawn.sort(0).values, x.sort(0).values)
    np.testing.assert_allclose(spearmanr(drawn).statistic, spearmanr(x).statistic, atol=0.06)
    equal_values = (x > x.median(0).values).float()  # columns of two values
    independent = without_clusters(torch.stack([equal_values[:, 0], equal_values[torch.randperm(3_000), 1]], 1))
    assert abs(spearmanr(independent).statistic) < 0.06


@pytest.mark.parametrize("draw", [torch.randn, torch.rand])
@pytest.mark.parametrize("d", [12, 40])
def test_broad_clouds_are_one_cluster(draw: object, d: int) -> None:
    torch.manual_seed(d)
    z = draw(800, d)  # type: ignore[operator]
    tilted = z @ torch.randn(d, 2 * d)
    assert choose_number(twice(z), 12, rows=z).n_clusters == 1
    assert choose_number(twice(tilted), 12, rows=tilted).n_clusters == 1


def test_the_valley_between_two_clusters_is_counted_by_hand() -> None:
    """Ten rows at either end and one of each cluster half way; then a third cluster, far off, of two rows. One is added
    to every count."""
    z = torch.tensor([0.0] * 10 + [0.49] + [1.0] * 10 + [0.51] + [50.0, 50.0])[:, None]
    labels = torch.tensor([0] * 11 + [1] * 11 + [2] * 2)
    depth = valley(z, labels, 3)
    assert depth[0, 1] == depth[1, 0] == pytest.approx(3 / 11)
    assert depth[0, 2] == depth[1, 2] == pytest.approx(1 / 3)


def test_a_valley_is_that_of_each_pair_alone() -> None:
    """All pairs at once, against the rows of two clusters projected on the line through their means."""
    torch.manual_seed(0)
    z, labels = torch.randn(300, 4), torch.randint(5, (300,))
    depth = valley(z, labels, 5)
    for i in range(5):
        for j in range(i):
            a, b = z[labels == i], z[labels == j]
            line = b.mean(0) - a.mean(0)
            place = (torch.cat([a, b]) - a.mean(0)) @ line / (line @ line)
            start, middle, end = (int(((place - at).abs() < VALLEY_WIDTH).sum()) for at in (0, 0.5, 1))
            assert depth[i, j] == depth[j, i] == pytest.approx((middle + 1) / (min(start, end) + 1))


def test_a_few_rows_far_out_are_no_cluster() -> None:
    torch.manual_seed(0)
    z = torch.randn(800, 4)
    z[:12] += 100
    assert choose_number(twice(z), 12).n_clusters == 1


def test_of_numbers_that_are_as_good_the_smallest_is_taken() -> None:
    choice = choose_number(twice(_pairs()), 12)
    best = max(choice.scores)
    assert choice.n_clusters == next(
        k for k, score in zip(choice.candidates, choice.scores, strict=True) if score >= NEXT_TO_BEST * best
    )
    torch.manual_seed(0)
    views = twice(_pairs())
    torch.manual_seed(1)
    strict = choose_number(views, 12, next_to_best=1.0)
    assert strict.n_clusters == strict.candidates[strict.scores.index(max(strict.scores))]


def _pairs() -> torch.Tensor:
    """Three pairs of blobs that touch."""
    torch.manual_seed(0)
    near = 3 * torch.eye(6)[[0, 1]].repeat(3, 1) + 9 * torch.eye(6)[[2, 2, 3, 3, 4, 4]]
    return near.repeat_interleave(80, 0) + torch.randn(480, 6)


@pytest.mark.parametrize("k", [2, 3, 6])
def test_blobs_are_counted(k: int) -> None:
    torch.manual_seed(k)
    z = 8 * torch.eye(6)[:k].repeat_interleave(60, 0) + torch.randn(60 * k, 6)
    assert choose_number(twice(z), 12).n_clusters == k


@pytest.mark.parametrize("draw", [torch.randn, torch.rand])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_one_blob_and_uniform_noise_are_one_cluster(draw: object, d: int) -> None:
    torch.manual_seed(d)
    assert choose_number(twice(draw(800, d)), 12).n_clusters == 1  # type: ignore[operator]


def test_what_only_one_of_them_sees_does_not_count() -> None:
    """Clumps in both, in different places: each alone would say three."""
    torch.manual_seed(0)
    clumps = [12 * torch.eye(4)[torch.randint(3, (300,))] + torch.randn(300, 4) for _ in range(2)]
    halves = torch.randperm(300).tensor_split(2)
    views = View(clumps[0], halves[0]), View(clumps[1], halves[1])
    choice = choose_number(views, 8)
    assert choice.n_clusters == 1
    assert max(choice.silhouettes) < MIN_SILHOUETTE
    assert choose_number(twice(clumps[0]), 8).n_clusters == 3


def test_rows_that_both_have_learnt_from_are_not_asked() -> None:
    """Clumps of these alone, in the same places for both: an accident that each has learnt by heart."""
    torch.manual_seed(0)
    z = torch.randn(600, 4)
    shared = torch.arange(400)
    clumped = z.clone()
    clumped[shared] += 12 * torch.eye(4)[torch.randint(3, (400,))]
    first, second = torch.cat([shared, torch.arange(400, 500)]), torch.cat([shared, torch.arange(500, 600)])
    assert choose_number((View(clumped, first), View(clumped, second)), 8).n_clusters == 1
    assert choose_number(twice(clumped), 8).n_clusters > 1
    assert choose_number((View(clumped, first), View(clumped, torch.arange(600))), 8).n_clusters == 1
    assert choose_number((View(z, torch.arange(600)),) * 2, 8).candidates == []  # nobody is left to ask


def test_no_more_are_looked_for_than_were_asked_for() -> None:
    torch.manual_seed(0)
    z = 9 * torch.eye(6).repeat_interleave(40, 0) + torch.randn(240, 6)
    assert choose_number(twice(z), 4).candidates == [2, 3, 4]
    assert choose_number(twice(z), 1).n_clusters == 1


def test_the_clearer_choice_has_the_larger_silhouette_at_its_best() -> None:
    dull = Choice(2, [2, 3], [0.3, 0.9], [1, 1], [0.3, 0.2], 0.1)
    clear = Choice(3, [2, 3], [0.1, 0.4], [1, 1], [0.1, 0.4], 0.1)
    assert clearer(dull, clear) is clear
    assert clearer(Choice(1, [], [], [], [], 1.0), dull) is dull
    assert clearer(clear._replace(n_clusters=1), dull) is dull  # who sees none does not outvote who sees some
