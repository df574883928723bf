"""SpectralNet: its objective by a double loop, orthonormal answers, rings that k-means cuts, what it refuses."""

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs, make_circles

from diffclust import SpectralNet
from diffclust.engine.data import Batch, Data
from diffclust.engine.rows import TensorRows
from diffclust.methods.spectralnet import RIDGE, Siamese, inverse_root, orthonormalizer
from diffclust.metrics import accuracy
from diffclust.nn.autoencoders import DenseAutoencoder, Identity

SHORT = {"pretrain_epochs": 2, "siamese_epochs": 2, "epochs": 3, "width": 16, "random_state": 0, "device": "cpu"}


class Always(torch.nn.Module):
    """A map whose answer is given."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, codes):
        return self.answer


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # its loss falls to the end, by a little
def test_a_ring_in_a_ring_and_new_rows():
    X, y = make_circles(400, noise=0.05, factor=0.4, random_state=0)
    model = SpectralNet(
        2, network="identity", n_neighbors=10, width=64, epochs=400, lr=1e-3, random_state=0, device="cpu"
    ).fit(X[:300])
    assert accuracy(y[:300], KMeans(2, n_init=3, random_state=0).fit_predict(X[:300])) < 0.7
    assert accuracy(y[:300], model.labels_) > 0.98
    assert accuracy(y[300:], model.predict(X[300:])) > 0.98
    y = model.transform(X[:300])
    assert np.allclose(y.T @ y / 300, np.eye(2), atol=1e-3)


def test_the_objective_by_a_double_loop():
    x = torch.randn(12, 2, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    model = SpectralNet(3, network="identity", n_neighbors=2, width=8).build_model(Identity((2,)), 12)
    model.codes = model.places = x
    model.scale = torch.tensor(0.5)
    index = torch.arange(12)
    loss = model.loss(Batch(x, x, index))["clustering"]
    f = model.map(x).double()
    values, vectors = torch.linalg.eigh(f.T @ f / 12)
    y = f @ vectors @ torch.diag((values + RIDGE * values.mean()).rsqrt()) @ vectors.T
    distances = torch.cdist(x.double(), x.double())
    w = torch.zeros(12, 12, dtype=torch.float64)
    for i in range(12):
        for j in distances[i].argsort()[1:3].tolist():
            w[i, j] = torch.exp(-(distances[i, j] ** 2) / (2 * 0.5))
    expected = sum((w[i, j] + w[j, i]) / 2 * (y[i] - y[j]).square().sum() for i in range(12) for j in range(12))
    expected += 2 * w.sum() * (3 - torch.trace(y.T @ y) / 12)  # directions that lack, as if drawn at random
    assert loss.item() == pytest.approx(expected.item() / 12, rel=1e-3)
    loss.backward()
    assert model.map[0][0].weight.grad.abs().max() > 0


def test_one_answer_for_all_rows_is_not_the_best():
    """Rows of two parts. The same F for all would have no distances, and its Y is no orthonormal one."""
    x = torch.cat([torch.randn(6, 2, generator=torch.Generator().manual_seed(i)) + 20 * i for i in range(2)])
    model = SpectralNet(2, network="identity", n_neighbors=2, width=8).build_model(Identity((2,)), 12)
    model.codes, model.places, model.scale = x, x, torch.tensor(1.0)

    def loss_of(f):
        model.map = Always(f)
        return model.loss(Batch(x, x, torch.arange(12)))["clustering"].item()

    parts = torch.ones(12, 2)
    parts[6:, 1] = -1.0
    assert loss_of(parts) == pytest.approx(0.0, abs=1e-3)
    degree = model.weights(x).sum().item() / 12
    assert loss_of(torch.ones(12, 2)) == pytest.approx(2 * degree, rel=1e-3)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", [0, 1])
def test_large_first_steps_leave_the_map_all_its_directions(seed):
    """RMSprop's first step is ten times its rate: as wide as on MNIST, tanh was one and the same for all rows."""
    X, y = make_blobs(120, 5, centers=4, cluster_std=0.5, random_state=0)
    model = SpectralNet(
        4, network="identity", width=1024, optimizer="rmsprop", lr=1e-3, epochs=20, random_state=seed, device="cpu"
    ).fit(X)
    assert np.allclose(np.linalg.svd(model.transform(X), compute_uv=False), np.sqrt(120), rtol=1e-2)
    assert accuracy(y, model.labels_) == 1.0


@pytest.mark.parametrize("condition", [1.0, 1e4])
def test_inverse_root(condition):
    q = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))[0]
    gram = q @ torch.diag(torch.logspace(0, -np.log10(condition), 5, dtype=torch.float64)) @ q.T
    root = inverse_root(gram)
    assert torch.allclose(root @ gram @ root, torch.eye(5, dtype=torch.float64), atol=0.02)


def test_columns_that_say_the_same_have_a_root_and_gradients():
    g = torch.Generator().manual_seed(0)
    y = (torch.randn(2000, 1, generator=g) @ torch.randn(1, 10, generator=g)).requires_grad_()
    root = orthonormalizer(y)
    root.square().sum().backward()
    assert bool(root.isfinite().all())
    assert bool(y.grad.isfinite().all())


def test_the_contrastive_loss_by_hand():
    x = torch.tensor([[0.0, 0.0], [0.1, 0.0], [5.0, 0.0], [5.0, 0.1]])
    model = SpectralNet(2, width=4).build_model(DenseAutoencoder((2,), 2, hidden=(4,)), 4)
    model.siamese = torch.nn.Identity()
    siamese = Siamese(model)
    siamese.codes, siamese.near = x, torch.tensor([[1], [0], [3], [2]])
    losses = siamese.loss(Batch(x, x, torch.arange(4)))
    assert losses["neighbours"].item() == pytest.approx(0.01)
    # each with the one before it: 5.0 or more apart, but for the second and the fourth, which are 0.1
    assert losses["others"].item() == pytest.approx(2 * 0.9**2 / 4, rel=1e-4)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_phases_it_has(digits):
    model = SpectralNet(4, **SHORT).fit(digits[0])
    assert list(dict.fromkeys(record["phase"] for record in model.history_)) == ["pretraining", "siamese", "clustering"]
    assert model.inverse_transform(model.cluster_centers_).shape == (4, *digits[0].shape[1:])
    without = SpectralNet(4, **{**SHORT, "siamese_epochs": 0}).fit(digits[0])
    assert {record["phase"] for record in without.history_} == {"pretraining", "clustering"}


def test_rows_that_are_all_equal_have_an_answer():
    data = Data(TensorRows(torch.ones(9, 2)), torch.device("cpu"), 9)
    model = SpectralNet(2, network="identity", width=4).build_model(Identity((2,)), 9)
    model.before_training(data)
    assert model.loss(Batch(torch.ones(9, 2), torch.ones(9, 2), torch.arange(9)))["clustering"].isfinite()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_few_rows_keep_what_was_learnt():
    """Without a network and training its map is no k-means: there is nothing to fall back to."""
    X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    model = SpectralNet(2, **{**SHORT, "epochs": 2}).fit(X)  # fewer than fifteen rows a cluster
    assert "fallback" not in {event["kind"] for event in model.diagnostics_["events"]}
