"""What is particular to k-meansNet: its soft loss, the collapse of its literal form, and the guard against it."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from diffclust import KMeansNet
from diffclust.engine.data import Batch, Data
from diffclust.engine.phase import Phase
from diffclust.engine.rows import TensorRows
from diffclust.nn import DenseAutoencoder
from diffclust.reproduce.kmeansnet import FIVE_READINGS


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


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("alpha", [1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1, 5])  # the paper's
def test_the_default_does_not_collapse_for_any_alpha_of_the_grid(spheres, alpha):
    X, y = spheres
    model = KMeansNet(5, alpha=alpha, network="identity", epochs=50, random_state=0).fit(X)
    assert not model.diagnostics_["empty_clusters"]
    assert adjusted_rand_score(y, model.labels_) > 0.9


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("alpha", [1e-5, 5.0])
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
@pytest.mark.parametrize(
    ("optimizer", "init"),
    [("adadelta", "random"), ("adagrad", "k-means++"), ("adam", "k-means"), ("rmsprop", "random")],
)
def test_the_papers_optimisers_and_starts_run(digits, optimizer, init):
    model = KMeansNet(4, optimizer=optimizer, init=init, decoupled=True, pretrain_epochs=1, epochs=2, random_state=0)
    assert model.fit(digits[0][:64]).labels_.shape == (64,)


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


ALPHA = 1e-3


def reading(name, x, **changes):
    """A small model of one of the five readings, with its embeddings as float64 rows."""
    estimator = KMeansNet(3, **{"alpha": 0.2 if name.startswith("iv") else ALPHA, **FIVE_READINGS[name], **changes})
    network = DenseAutoencoder((6,), 4, hidden=(8,), bottleneck="sigmoid")
    model = estimator.build_model(network, len(x)).eval()
    codes = model.autoencoder.encode(x).detach().double()
    rows = [row / row.norm() if estimator.sphere else row for row in codes]
    model.clusters.set_centers(torch.stack([rows[0], rows[5], 0.9 * rows[9]]).float())
    return estimator, model, rows


def naive_loss(estimator, model, x, rows):
    """|x - g(h)|² + λ Σ_j I_j (|h|² - (W_j·h + b_j) / α), by loops in float64. Gives also dL/dW and dL/db, with the
    assignment as a constant, of the part that reads them: exact where the winner takes all."""
    W = model.clusters.weight.detach().double()
    if model.clusters.bias is None:
        b = -W.square().sum(1) / (4 * estimator.alpha)
    else:
        b = model.clusters.bias.detach().double()
    n, total, dW, db = len(rows), 0.0, torch.zeros_like(W), torch.zeros_like(b)
    for x_i, h in zip(x, rows, strict=True):
        scores = [float(W[j] @ h + b[j]) for j in range(3)]
        if estimator.assignment == "hard":
            share = [float(j == int(np.argmax(scores))) for j in range(3)]
        else:
            share = [np.exp(s) / sum(np.exp(t) for t in scores) for s in scores]
        back = model.autoencoder.decode(h.float()[None])[0].detach()
        total += float((x_i - back).double().square().sum()) / n
        for j in range(3):
            total += estimator.weight * share[j] * (float(h @ h) - scores[j] / estimator.alpha) / n
            dW[j] -= estimator.weight * share[j] * h / estimator.alpha / n
            db[j] -= estimator.weight * share[j] / estimator.alpha / n
    return total, dW, db


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.rand(30, 6)


@pytest.mark.parametrize("name", FIVE_READINGS)
def test_the_loss_of_each_reading(name, x):
    estimator, model, rows = reading(name, x)
    losses = model.loss(Batch(x, x, torch.arange(30)))
    expected, _, _ = naive_loss(estimator, model, x, rows)
    assert sum(losses.values()).item() == pytest.approx(expected, rel=1e-5)


def one_step(model, x, epoch, lr=1.0):
    """What plain SGD does in an epoch of one batch: the gradient of W, and W after the step."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=lr)
    phase = Phase("clustering", model, Data(TensorRows(x), torch.device("cpu"), len(x)), optimizer, epochs=2)
    model.before_epoch(epoch, phase.data)
    batch = Batch(x, x, torch.arange(len(x)))
    sum(model.loss(batch).values()).backward()
    phase.apply_gradients(batch, {})
    return model.clusters.weight.grad


@pytest.mark.parametrize("name", [name for name in FIVE_READINGS if not name.startswith("iv")])
def test_the_step_of_the_centres_in_each_hard_reading(name, x):
    estimator, model, rows = reading(name, x)
    _, dW, db = naive_loss(estimator, model, x, rows)
    W = model.clusters.weight.detach().double()
    bias = None if model.clusters.bias is None else model.clusters.bias.detach().double()
    lr = (
        1.0 if estimator.center_update == "optimizer" else 1e-6
    )  # a gradient that is not rescaled is 1 / α times as large
    one_step(model, x, epoch=0, lr=lr)
    for j in range(3):
        step = 0.2 * ALPHA * dW[j] / dW[j].norm() if estimator.center_update == "optimizer" else dW[j]
        moved = W[j] - lr * step
        if estimator.ball:
            moved = moved * min(1.0, 2 * ALPHA / float(moved.norm()))
            expected = min(0.0, max(-ALPHA, float(bias[j] - lr * db[j])))
            assert model.clusters.bias[j].item() == pytest.approx(expected, rel=1e-4, abs=1e-9)
        else:
            moved = 2 * ALPHA * moved / moved.norm()
        assert torch.allclose(model.clusters.weight[j].detach().double(), moved, rtol=1e-3, atol=1e-8)


def test_the_ball_keeps_weights_and_biases_in(x):
    _, model, _ = reading("v, hard, in the ball", x)
    one_step(model, x, epoch=0, lr=1.0)  # far too long
    assert model.clusters.weight.norm(dim=1).max() <= 2 * ALPHA * (1 + 1e-5)
    assert model.clusters.bias.max() <= 0
    assert model.clusters.bias.min() >= -ALPHA


def test_the_soft_reading_moves_centres_towards_their_rows(x):
    """b follows from W, so the gradient vanishes where Ω_j is the mean of its rows, softly assigned: by differences."""
    estimator, model, rows = reading("iv, soft, any length", x, weight=1.0)
    grad = one_step(model, x, epoch=0, lr=0.0).double()
    for j, k in ((0, 1), (2, 3)):
        values = []
        for shift in (1e-3, -1e-3):
            with torch.no_grad():
                model.clusters.weight[j, k] += shift
            values.append(naive_loss(estimator, model, x, rows)[0])
            with torch.no_grad():
                model.clusters.weight[j, k] -= shift
        assert grad[j, k].item() == pytest.approx((values[0] - values[1]) / 2e-3, rel=1e-2, abs=1e-4)


@pytest.mark.parametrize("alternate", [True, False])
def test_network_and_centres_in_turns_or_at_once(alternate, x):
    _, model, _ = reading("i, hard, rescaled", x, alternate=alternate, weight=100.0)
    grads = []
    for epoch in (0, 1):
        model.zero_grad(set_to_none=True)
        grads.append(one_step(model, x, epoch, lr=0.0))
        pulls = model.autoencoder.encoder[1].weight.grad.clone()
        model.zero_grad(set_to_none=True)
        model.autoencoder.reconstruction_loss(x, model.embed(x)).mul(6).backward()
        alone = model.autoencoder.encoder[1].weight.grad
        assert torch.allclose(pulls, alone, rtol=1e-3, atol=1e-5) == (alternate and epoch == 0)
    assert (grads[1] is None) == alternate


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", FIVE_READINGS)
def test_each_reading_learns(digits, name):
    settings = {
        **FIVE_READINGS[name],
        "optimizer": "adadelta-keras",
        "repair": False,
        "alpha": ALPHA,
        "random_state": 0,
    }
    model = KMeansNet(4, **settings, pretrain_epochs=1, epochs=2).fit(digits[0][:64])
    assert model.labels_.shape == (64,)
    lengths = np.linalg.norm(model.cluster_centers_, axis=1)
    if not name.startswith("iv"):
        assert (lengths <= 1 + 1e-5).all()
    if not name.startswith(("iv", "v")):
        assert np.allclose(lengths, 1, atol=1e-5)


def test_what_goes_by_the_length_of_centres_needs_the_sphere(spheres):
    for wrong in ({"ball": True, "decoupled": True}, {"center_update": "optimizer"}):
        with pytest.raises(ValueError, match="needs sphere=True"):
            KMeansNet(5, network="identity", sphere=False, **wrong).fit(spheres[0])


def test_any_length_keeps_lengths():
    """Two clusters that differ in length alone: on the sphere they are one."""
    rng = np.random.default_rng(0)
    X = np.ones((60, 2)) * np.repeat([1.0, 5.0], 30)[:, None] + 0.05 * rng.normal(size=(60, 2))
    y = np.repeat([0, 1], 30)
    model = KMeansNet(2, network="identity", sphere=False, alpha=5.0, epochs=5, random_state=0).fit(X)
    assert adjusted_rand_score(y, model.labels_) == 1
    model = KMeansNet(2, network="identity", epochs=5, random_state=0, repair=False).fit(X)
    assert adjusted_rand_score(y, model.labels_) < 0.5
