"""Rows laid out by their neighbours, and centres placed there."""

import pytest
import torch
from sklearn.datasets import make_blobs

from diffclust.metrics import accuracy
from diffclust.nn import ClusterLayer, kmeans
from diffclust.nn.knowledge import clusters_of_known
from diffclust.nn.layout import compute_layout, extend_layout, place_by_layout

pytestmark = pytest.mark.full_size


@pytest.fixture
def bars():
    """Two long bars side by side, which k-means cuts across."""
    torch.manual_seed(0)
    which = torch.arange(200) % 2
    along = 8 * torch.rand(200)
    return torch.stack([along, which + 0.1 * torch.randn(200)], 1), which


def test_what_k_means_cuts_across_is_found(bars):
    z, which = bars
    layer = ClusterLayer(2, 2)
    labels = place_by_layout(layer, z)
    assert accuracy(which.numpy(), kmeans(z, 2).labels.numpy()) < 0.7
    assert accuracy(which.numpy(), labels.numpy()) > 0.95
    means = torch.stack([z[labels == j].mean(0) for j in range(2)])
    torch.testing.assert_close(layer.centers.detach(), means)


def test_where_something_is_known_it_says_which_is_which(bars):
    z, which = bars
    rows, codes = torch.tensor([0, 1, 2, 3]), torch.tensor([1, 0, 1, 0])  # the bars in the other order
    labels = place_by_layout(ClusterLayer(2, 2), z, lambda u: clusters_of_known(u, 2, u[rows], codes))
    assert (labels == 1 - which).float().mean() > 0.95


def test_others_are_put_where_their_like_is(bars):
    z, _ = bars
    some = torch.arange(0, 200, 2).flip(0)
    torch.manual_seed(1)
    places = extend_layout(torch.cat([z, z[some[:3]]]), some)
    torch.manual_seed(1)
    torch.testing.assert_close(places[some], compute_layout(z[some]))
    torch.testing.assert_close(places[200:], places[some[:3]], atol=1e-3, rtol=1e-3)


def test_rows_without_a_number_are_refused():
    with pytest.raises(ValueError, match="NaN or infinity"):
        place_by_layout(ClusterLayer(2, 1), torch.tensor([[0.0], [1.0], [float("nan")]]))


@pytest.mark.parametrize("z", [torch.zeros(5, 3), torch.tensor([[1.0], [2.0]])])
def test_few_or_equal_rows_have_places(z):
    assert compute_layout(z).shape == z.shape
    assert compute_layout(z).isfinite().all()


@pytest.mark.parametrize("seed", range(3))
def test_plain_clusters_of_few_rows_are_not_torn(seed):
    X, y = make_blobs(160, 4, centers=3, cluster_std=0.3, random_state=seed)
    z, layer = torch.nn.functional.normalize(torch.tensor(X).float(), dim=1), ClusterLayer(3, 4, sphere=True)
    place_by_layout(layer, z)
    assert accuracy(y, layer.logits(z).argmax(1).numpy()) == 1
