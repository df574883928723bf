"""DSC-Net: ridge regression without a network, its objective by hand, what it refuses, scikit-learn's checks."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

import diffclust
from conftest import failed_checks
from diffclust import DSCNet
from diffclust.baselines import LSR
from diffclust.engine.data import Batch
from diffclust.methods.dscnet import DSCNetModel, keep_largest
from diffclust.metrics import accuracy
from diffclust.nn.autoencoders import Identity
from diffclust.nn.cluster import ClusterLayer

SHORT = {"pretrain_epochs": 2, "epochs": 3, "random_state": 0, "device": "cpu", "embedding_dim": 4}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_checks():
    settings = {"epochs": 15, "lr": 0.01, "keep": 0.9, "subspace_dim": 1, "device": "cpu"}
    assert failed_checks(DSCNet(3, network="identity", **settings)) == []


def subspaces(k=3, dim=2, ambient=12, n=20, seed=0):
    rng = np.random.default_rng(seed)
    bases = [np.linalg.qr(rng.normal(size=(ambient, dim)))[0] for _ in range(k)]
    x = np.concatenate([rng.normal(size=(n, dim)) @ basis.T for basis in bases])
    return x / np.linalg.norm(x, axis=1, keepdims=True), np.repeat(np.arange(k), n)


def test_without_a_network_it_is_ridge_regression():
    X, y = subspaces()
    model = DSCNet(
        3,
        network="identity",
        weight=0.1,
        expression=3.0,
        epochs=1200,
        lr=0.02,
        keep=0.9,
        subspace_dim=2,
        random_state=0,
    ).fit(X)
    ridge = LSR(3, weight=2 * 0.1 / (1 + 3.0)).coefficients(torch.from_numpy(X)).numpy().T
    assert model.coefficients_ == pytest.approx(ridge, abs=5e-3)
    assert accuracy(y, model.labels_) == 1
    assert model.history_[-1]["expression"] < model.history_[0]["expression"]


def test_the_objective_by_hand():
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    model = DSCNetModel(Identity((2,)), ClusterLayer(2, 2), DSCNet(2, weight=0.5, expression=4.0), 3)
    c = torch.tensor([[9.0, 0.5, 0.0], [1.0, 9.0, 0.0], [0.0, 0.5, 9.0]])  # its diagonal does not count
    model.c.data.copy_(c)
    # C X = [0, 1], [1, 0], [0, 1]; X - C X = [1, -1], [-1, 2], [1, 0]; squares 2 + 5 + 1 = 8; |C|² = 1.5
    order = torch.tensor([2, 0, 1])
    losses = model.loss(Batch(x[order], x[order], order))
    assert losses["expression"].item() == pytest.approx(4 / 2 * 8 / 3)
    assert losses["coefficients"].item() == pytest.approx(0.5 * 1.5 / 3)
    assert losses["reconstruction"].item() == pytest.approx(8 / 2 / 3)


def test_the_largest_coefficients_of_a_column_are_kept():
    c = torch.tensor([[0.0, -4.0, 3.0, 2.0, 1.0], [1.0, 0.0, 0.0, 0.0, 0.0]]).T
    assert keep_largest(c, 0.4).T.tolist() == [[0, -4, 0, 0, 0], [1, 0, 0, 0, 0]]
    assert keep_largest(c, 0.41).T.tolist() == [[0, -4, 3, 0, 0], [1, 0, 0, 0, 0]]
    assert keep_largest(c, 1.0).tolist() == c.tolist()


def test_the_identity_puts_negative_eigenvalues_last():
    # of two pairs that write one another I + S has the eigenvalues 1.2, 1.2, 0.8, 0.8, and S 0.2 and -0.2, twice each
    c = torch.kron(torch.eye(2), torch.tensor([[0.0, 0.2], [0.2, 0.0]])).double()
    w = DSCNet(1, subspace_dim=1, keep=1.0, power=1.0).affinity(c)
    assert w.numpy() == pytest.approx(5 * c.numpy(), abs=1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_images_have_the_authors_network_and_rows_a_dense_one(digits):
    model = DSCNet(4, **SHORT).fit(digits[0][:60])
    assert model.labels_.shape == (60,)
    assert {record["phase"] for record in model.history_} == {"pretraining", "clustering"}
    assert model.affinity_matrix_.shape == (60, 60)
    assert (model.affinity_matrix_ == model.affinity_matrix_.T).all()
    assert len(DSCNet(3, **SHORT).fit(subspaces()[0]).labels_) == 60


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_same_seed_same_labels_and_the_callers_state_is_untouched(digits):
    before = torch.get_rng_state()
    first, second = (DSCNet(4, **SHORT).fit_predict(digits[0][:40]) for _ in range(2))
    assert (first == second).all()
    assert (torch.get_rng_state() == before).all()


def break_off(model, epoch, data):
    if epoch == 1:
        raise KeyboardInterrupt


def spoil(model, epoch, data):
    if epoch == 0:
        model.c.data.fill_(torch.inf)


@pytest.mark.parametrize(
    ("hook", "what", "epochs", "says"),
    [
        ("after_epoch", break_off, 2, "Stopped by the user in epoch 2 of 3 of clustering"),
        ("before_epoch", spoil, 3, "The loss was not finite in epoch 0 of clustering"),
    ],
)
def test_what_went_wrong_in_training_is_told(monkeypatch, hook, what, epochs, says):
    monkeypatch.setattr(DSCNetModel, hook, what)
    with pytest.warns(ConvergenceWarning, match=says):
        model = DSCNet(3, **SHORT).fit(subspaces()[0])
    assert model.n_iter_ == epochs
    assert any(says in message for message in model.diagnostics_["warnings"])


@pytest.mark.parametrize("name", ["predict", "transform", "save"])
def test_it_says_that_it_is_transductive(name):
    assert not hasattr(DSCNet(2), name)
    with pytest.raises(AttributeError, match=r"transductive.*SSCNet"):
        getattr(DSCNet(2), name)
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        _ = DSCNet(2).colour


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"n_clusters": 9}, "n_samples=5"),
        ({"keep": 0.0}, "keep=0.0"),
        ({"weight": -1.0}, "weight=-1.0"),
        ({"epochs": 0}, "epochs=0"),
        ({"network": "toaster"}, "network='toaster'"),
    ],
)
def test_bad_settings_are_named(settings, says):
    with pytest.raises(ValueError, match=says):
        DSCNet(**{"n_clusters": 2, "device": "cpu", **settings}).fit(np.random.default_rng(0).normal(size=(5, 3)))


def test_memory_is_asked_for_before_training(monkeypatch):
    monkeypatch.setattr("diffclust.methods.dscnet.free_memory", lambda device: 1e9)
    with pytest.raises(ValueError, match=r"DSCNet on 20000 rows needs 12\.8 GB.* 1\.0 GB are free.*SSCNet"):
        DSCNet(2, device="cpu").fit(np.zeros((20_000, 1)))


def test_it_is_listed():
    assert diffclust.DSCNet is DSCNet
