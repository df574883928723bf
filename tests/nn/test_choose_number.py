"""How many clusters two views of the same rows agree on."""

import numpy as np
import pytest
import torch
from sklearn.metrics import silhouette_samples

from diffclust.metrics import accuracy
from diffclust.nn.number import NOTHING, Choice, View, agreement, choose_number, clearer, silhouette, valley


def twice(z: torch.Tensor) -> tuple[View, View]:
    halves = torch.randperm(len(z)).tensor_split(2)
    return View(z, halves[0]), View(z, halves[1])


@pytest.mark.parametrize("k", [2, 5])
def test_the_silhouette_is_scikit_learns(k: int) -> None:
    rng = np.random.default_rng(0)
    z, labels = rng.normal(size=(80, 3)), rng.integers(k, size=80)
    ours = silhouette(torch.tensor(z), torch.tensor(labels), k + 1)  # one cluster is empty
    np.testing.assert_allclose(ours.numpy(), silhouette_samples(z, labels), atol=1e-10)


def test_the_silhouette_of_a_row_alone_is_nothing() -> None:
    z = torch.tensor([[0.0], [0.1], [9.0]])
    assert silhouette(z, torch.tensor([0, 0, 1]), 2)[2] == 0


def test_agreement_is_the_matched_accuracy() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(4, size=(2, 50))
    assert agreement(torch.tensor(a), torch.tensor(b), 4) == pytest.approx(accuracy(a, b))


def test_the_valley_between_two_clusters_is_counted_by_hand() -> None:
    """Ten rows at either end and one of each cluster half way; then a third cluster, far off, of two rows."""
    z = torch.tensor([0.0] * 10 + [0.49] + [1.0] * 10 + [0.51] + [50.0, 50.0])[:, None]
    labels = torch.tensor([0] * 11 + [1] * 11 + [2] * 2)
    depth = valley(z, labels, 3)
    assert depth[0, 1] == depth[1, 0] == pytest.approx(2 / 10)
    assert depth[0, 2] == depth[1, 2] == 0


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
    assert max(choice.silhouettes) < NOTHING
    assert choose_number(twice(clumps[0]), 8).n_clusters == 3


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
