"""The neighbour graph and its loss against double loops, and against what formulas say."""

import math

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

from diffclust.nn import neighbours
from diffclust.nn.neighbours import (
    DISTANCE_FLOOR,
    NEGATIVE_SAMPLE_RATE,
    A,
    B,
    NeighbourGraph,
    fuzzy_weights,
    nearest_neighbours,
    neighbour_loss,
    neighbours_by_words,
)

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("n", [7, 300, 3000])
def test_neighbours_are_scikit_learns(metric, n):
    x = np.random.default_rng(0).normal(size=(n, 4)) + 2
    k = min(15, n - 1)
    distance, places = NearestNeighbors(n_neighbors=k + 1, metric=metric, algorithm="brute").fit(x).kneighbors(x)
    found = nearest_neighbours(torch.tensor(x), k, metric)
    assert torch.allclose(found.distance, torch.tensor(distance[:, 1:]), atol=1e-6)
    assert (found.places.numpy() == places[:, 1:]).mean() > 0.999


def test_equal_rows_are_neighbours_but_not_of_themselves():
    found = nearest_neighbours(torch.ones(6, 3), 3)
    assert (found.distance == 0).all()
    assert not (found.places == torch.arange(6)[:, None]).any()


@pytest.mark.parametrize("n", [5, 900])
def test_neighbours_by_words_are_those_by_all_columns(n):
    x = sparse.random(n, 40, 0.1, "csr", np.float32, np.random.default_rng(0))  # some rows have nothing but zeros
    k = min(15, n - 1)
    found = neighbours_by_words(x, k)
    expected = nearest_neighbours(torch.from_numpy(x.toarray()), k, "cosine")
    assert torch.allclose(found.distance, expected.distance, atol=1e-5)
    assert not (found.places == torch.arange(n)[:, None]).any()


def test_neighbours_by_words_are_not_looked_for_among_too_many(monkeypatch):
    x = sparse.random(50, 40, 0.1, "csr", np.float32, np.random.default_rng(0))
    monkeypatch.setattr(neighbours, "MAX_PRODUCTS", 2400)
    assert neighbours_by_words(x, 5) is None


def test_a_row_of_zeros_is_at_right_angles_to_all():
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    found = nearest_neighbours(x, 3, "cosine")
    assert found.distance[0].tolist() == [1, 1, 1]
    assert found.distance[1].tolist() == pytest.approx([0, 1, 1], abs=1e-6)


@pytest.mark.parametrize(
    ("n_neighbors", "metric", "message"),
    [(0, "euclidean", "from 1 to 4"), (5, "euclidean", "from 1 to 4"), (2, "hamming", "metric='hamming'")],
)
def test_what_cannot_be_asked(n_neighbors, metric, message):
    with pytest.raises(ValueError, match=message):
        nearest_neighbours(torch.rand(5, 2), n_neighbors, metric)


def test_cells_find_nearly_all_neighbours():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 8, generator=generator)[torch.randint(30, (4000,), generator=generator)]
    x = 3 * x + torch.randn(4000, 8, generator=generator)
    exact, found = nearest_neighbours(x, 15, exact=True), nearest_neighbours(x, 15, exact=False)
    recall = (exact.places[:, :, None] == found.places[:, None, :]).any(2).double().mean()
    assert recall > 0.9
    own = (x[:, None] - x[found.places]).norm(dim=2)
    assert torch.allclose(own, found.distance, atol=1e-3)


def test_two_islands_smaller_than_a_neighbourhood():
    x = torch.cat([torch.randn(8, 3), torch.randn(8, 3) + 1e4])
    graph = NeighbourGraph.of(x, 15, "euclidean")
    assert graph.index.shape == (16, 15)
    near = graph.index[:, :7] // 8 == (torch.arange(16) // 8)[:, None]
    assert near.all()
    assert graph.weight.isfinite().all()


def test_weights_are_umaps():
    distance = torch.rand(50, 15, dtype=torch.float64).sort(1).values
    weights = fuzzy_weights(distance)
    assert torch.allclose(weights.sum(1), torch.full((50,), math.log2(15), dtype=torch.float64), atol=1e-6)
    assert (weights[:, 0] == 1).all()
    sigma = -(distance[:, 1:] - distance[:, :1]) / weights[:, 1:].log()  # the same for all neighbours of a row
    assert torch.allclose(sigma, sigma[:, :1].expand_as(sigma))


def test_weights_of_equal_distances_are_one():
    assert (fuzzy_weights(torch.full((3, 15), 2.0)) == 1).all()
    assert (fuzzy_weights(torch.zeros(3, 15)) == 1).all()


def test_weights_of_distances_that_rounding_put_out_of_order():
    """As of rows that are nearly equal: 1 - cos is not as exact as the distances it was sorted by."""
    distance = torch.full((1, 15), 3e-7)
    distance[0, 3] = 1e-7
    weights = fuzzy_weights(distance)
    assert (weights <= 1).all()
    assert (weights > 0).all()


def test_neighbours_are_drawn_in_proportion_to_their_weights():
    graph = NeighbourGraph(torch.tensor([[4, 7, 9]]), torch.tensor([[1.0, 0.5, 0.5]]))
    uniform = (torch.arange(1000) + 0.5)[None] / 1000
    drawn = graph.draw(torch.tensor([0]), uniform)[0]
    assert [(drawn == j).sum().item() for j in (4, 7, 9)] == [500, 250, 250]


def test_the_cut_is_a_double_loop():
    generator = torch.Generator().manual_seed(1)
    graph = NeighbourGraph.of(torch.randn(40, 3, generator=generator, dtype=torch.float64), 5)
    labels = torch.randint(3, (40,), generator=generator)
    leaving, volume = [0.0] * 3, [0.0] * 3
    for i in range(40):
        for j, w in zip(graph.index[i].tolist(), graph.weight[i].tolist(), strict=True):
            for end in (i, j):
                volume[labels[end]] += w
                leaving[labels[end]] += w * (labels[i] != labels[j]).item()
    expected = sum(a / b for a, b in zip(leaving, volume, strict=True)) / 3
    assert graph.cut(labels, 3) == pytest.approx(expected)
    assert graph.cut(torch.zeros(40, dtype=torch.long), 1) == 0
    assert graph.cut(torch.zeros(40, dtype=torch.long), 2) == 0.5  # an empty cluster loses all


def naive_loss(z, near, far):
    def odds(a, b):
        return A * ((a - b).square().sum() + DISTANCE_FLOOR) ** B

    pull = [torch.log(1 + odds(z[i], other)) for i in range(len(z)) for other in near[i]]
    push = [-torch.log(odds(z[i], other) / (1 + odds(z[i], other))) for i in range(len(z)) for other in far[i]]
    return torch.stack(pull).mean() + NEGATIVE_SAMPLE_RATE * torch.stack(push).mean()


def test_the_loss_and_its_gradient_are_a_double_loop():
    z, near, far = (torch.randn(*shape, dtype=torch.float64) for shape in ((6, 3), (6, 2, 3), (6, 4, 3)))
    for tensor in (z, near, far):
        tensor.requires_grad_()
    fast, slow = neighbour_loss(z, near, far), naive_loss(z, near, far)
    assert fast.item() == pytest.approx(slow.item())
    for a, b in zip(torch.autograd.grad(fast, [z, near, far]), torch.autograd.grad(slow, [z, near, far]), strict=True):
        assert torch.allclose(a, b)
    assert torch.autograd.gradcheck(neighbour_loss, (z, near, far))


def test_rows_on_one_another_have_finite_gradients():
    z = torch.zeros(4, 2, requires_grad=True)
    neighbour_loss(z, z[:, None], z[:, None]).backward()
    assert z.grad.isfinite().all()
