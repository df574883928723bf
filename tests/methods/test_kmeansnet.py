"""What is particular to k-meansNet: its soft loss, the collapse of its literal form, and the guard against it."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from diffclust import KMeansNet
from diffclust.engine.data import Batch
from diffclust.methods.kmeansnet import ALPHA_GRID
from diffclust.nn import DenseAutoencoder


@pytest.fixture(scope="module")
def spheres():
    """Five easy blobs on the unit sphere."""
    X, y = make_blobs(300, 8, centers=5, cluster_std=0.6, random_state=1)
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


@pytest.mark.parametrize("alpha", [1e-2, 1.0, 5.0])
@pytest.mark.parametrize("decoupled", [True, False])
def test_the_loss_is_the_papers(alpha, decoupled):
    """(1/α) mean_i Σ_j I_ij (β_i - b_j - W_j·z_i), I = softmax(W z + b), by loops."""
    estimator = KMeansNet(3, alpha=alpha, decoupled=decoupled, weight=2.0)
    model = estimator.build_model(DenseAutoencoder((6,), 4, hidden=(8,)), 50).eval()
    x = torch.randn(20, 6)
    z = F.normalize(model.autoencoder.encode(x), dim=1)
    total = 0.0
    for i in range(20):
        W = model.clusters.weight
        b = model.clusters.bias if decoupled else -alpha * (W / (2 * alpha)).square().sum(1)
        score = W @ z[i] + b
        share = torch.exp(score) / torch.exp(score).sum()
        total += float((share * (alpha * z[i].square().sum() - score)).sum().detach()) / alpha
    losses = model.loss(Batch(x, x, torch.arange(20)))
    assert float(losses["clustering"].detach()) == pytest.approx(2.0 * total / 20, rel=1e-4)


def test_the_autoencoder_learns_from_whole_rows():
    """|x - g(h)|² of a row: with the mean over its values Adadelta stays where the output is the mean image."""
    estimator = KMeansNet(3)
    model = estimator.build_model(DenseAutoencoder((6,), 4, hidden=(8,)), 50).eval()
    x = torch.randn(20, 6)
    losses = estimator.pretraining(model).loss(Batch(x, x, torch.arange(20)))
    expected = (x - model.reconstruct(x)).square().sum(1).mean()
    assert losses["reconstruction"].item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_grid_is_the_papers():
    assert pytest.approx([1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1, 5]) == list(ALPHA_GRID)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("alpha", ALPHA_GRID)
def test_the_default_does_not_collapse_for_any_alpha_of_the_grid(spheres, alpha):
    X, y = spheres
    model = KMeansNet(5, alpha=alpha, network="identity", epochs=50, random_state=0).fit(X)
    assert not model.diagnostics_["empty_clusters"]
    assert adjusted_rand_score(y, model.labels_) > 0.9


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("alpha", [1e-5, 1e-2, 5.0])
def test_training_the_network_along_does_not_collapse_either(digits, alpha):
    model = KMeansNet(4, alpha=alpha, joint=True, pretrain_epochs=20, epochs=10, random_state=0).fit(digits[0])
    assert not model.diagnostics_["empty_clusters"]
    assert adjusted_rand_score(digits[1], model.labels_) > 0.4


def test_the_literal_form_collapses_and_says_so(spheres):
    X, _ = spheres
    literal = {"alpha": 1e-3, "network": "identity", "decoupled": True, "optimizer": "adadelta", "random_state": 0}
    with pytest.warns(ConvergenceWarning, match="clusters are empty|Collapse"):
        model = KMeansNet(5, **literal, epochs=300, repair=False).fit(X)
    assert model.diagnostics_["empty_clusters"]


def test_the_guard_goes_back_to_the_best_partition(spheres):
    X, y = spheres
    literal = {"alpha": 1e-3, "network": "identity", "decoupled": True, "optimizer": "adadelta", "random_state": 0}
    with pytest.warns(ConvergenceWarning, match="began to dissolve"):
        model = KMeansNet(5, **literal, epochs=300).fit(X)
    assert model.n_iter_ < 300
    assert not model.diagnostics_["empty_clusters"]
    assert adjusted_rand_score(y, model.labels_) > 0.9


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("optimizer", ["adadelta", "adagrad", "adam", "rmsprop"])
@pytest.mark.parametrize("init", ["random", "k-means++", "k-means"])
def test_the_papers_optimisers_and_starts_run(digits, optimizer, init):
    model = KMeansNet(4, optimizer=optimizer, init=init, decoupled=True, pretrain_epochs=1, epochs=2, random_state=0)
    assert model.fit(digits[0]).labels_.shape == (200,)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", ["mnist", "mnist-cnn"])
def test_the_papers_networks(digits, name):
    model = KMeansNet.paper(name, n_clusters=4, pretrain_epochs=1, epochs=1, random_state=0).fit(digits[0])
    layers = [type(layer).__name__ for layer in model.model_.autoencoder.encoder]
    assert layers[-1] == "Sigmoid"
    assert layers.count("Dropout") == (4 if name == "mnist" else 0)
    assert model.model_.autoencoder.output == "sigmoid"


def test_decoupled_weights_do_not_learn_online(spheres):
    X, _ = spheres
    model = KMeansNet(5, network="identity", decoupled=True, epochs=1, random_state=0).fit(X)
    with pytest.raises(AttributeError, match="decoupled"):
        model.partial_fit(X)
