"""What is particular to VaDE: its evidence lower bound, its start, its rate, and the guard against dying components."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from diffclust import VaDE
from diffclust.engine.data import Batch, Data
from diffclust.engine.rows import TensorRows
from diffclust.nn import ConvAutoencoder, DenseAutoencoder, Identity

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
CPU = torch.device("cpu")


def small(**options):
    network = DenseAutoencoder((6,), 4, hidden=(8,), variational=True, **options)
    model = VaDE(3).build_model(network, 50)
    with torch.no_grad():
        for p in model.clusters.parameters():
            p.copy_(0.5 * torch.randn_like(p))
    return model


def test_the_bound_by_loops():
    model = small()
    z, mean, log_variance = torch.randn(3, 7, 4)
    total = model.divergence(z, mean, log_variance)
    mu, variances = model.clusters.centers.detach(), model.clusters.log_variances.detach().exp()
    pi = torch.softmax(model.clusters.shares, 0).tolist()
    for i in range(7):
        joint = []
        for c in range(3):
            density = pi[c]
            for d in range(4):
                v = float(variances[c, d])
                density *= math.exp(-((float(z[i, d]) - float(mu[c, d])) ** 2) / (2 * v)) / math.sqrt(2 * math.pi * v)
            joint.append(density)
        expected = 0.0
        for c in range(3):
            g = joint[c] / sum(joint)
            inside = 0.0
            for d in range(4):
                v, s = float(variances[c, d]), math.exp(float(log_variance[i, d]))
                inside += math.log(v) + s / v + (float(mean[i, d]) - float(mu[c, d])) ** 2 / v
            expected += g * inside / 2 + g * math.log(g / pi[c])
        expected -= sum(1 + float(log_variance[i, d]) for d in range(4)) / 2
        assert float(total[i].detach()) == pytest.approx(expected, rel=1e-3)


def test_the_divergence_is_zero_where_posterior_and_prior_agree():
    """One component, and an encoder that gives just that one."""
    model = VaDE(1).build_model(DenseAutoencoder((6,), 4, hidden=(8,), variational=True), 50)
    mean = model.clusters.centers.detach().expand(5, 4)
    total = model.divergence(torch.randn(5, 4), mean, torch.zeros(5, 4))
    assert torch.allclose(total, torch.zeros(5), atol=1e-5)


@pytest.mark.parametrize("output", ["sigmoid", "linear"])
def test_the_likelihood_by_loops(output):
    network = DenseAutoencoder((6,), 4, hidden=(8,), output=output)
    x, z = torch.rand(5, 6), torch.randn(5, 4)
    back, total = network.decode(z).detach(), 0.0
    for i in range(5):
        for v in range(6):
            a, b = float(x[i, v]), float(back[i, v])
            total -= a * math.log(b) + (1 - a) * math.log(1 - b) if output == "sigmoid" else -((a - b) ** 2) / 2
    assert float(network.negative_log_likelihood(x, z).detach()) == pytest.approx(total / 5, rel=1e-4)


def test_everything_learns():
    model = small()
    x = torch.randn(20, 6)
    sum(model.loss(Batch(x, x, torch.arange(20))).values()).backward()
    assert all(p.grad.abs().sum() > 0 for p in (*model.clusters.parameters(), *model.autoencoder.parameters()))


def test_the_embedding_is_the_mean():
    model = small()
    x = torch.randn(8, 6)
    mean, log_variance = model.autoencoder.moments(x)
    assert (model.embed(x) == mean).all()
    assert log_variance.shape == (8, 4)
    assert (model.autoencoder.encoder(x) == torch.cat([mean, log_variance], 1)).all()


@pytest.mark.parametrize("kind", ["dense", "conv"])
def test_the_start_is_a_mixture_of_the_embeddings_and_a_narrow_posterior(kind, digits):
    x = torch.from_numpy(digits[0])[:, None]
    network = {"dense": DenseAutoencoder, "conv": ConvAutoencoder}[kind]((1, 8, 8), 5, variational=True).eval()
    model = VaDE(4).build_model(network, 200).eval()
    data = Data(TensorRows(x), CPU, 50)
    model.before_training(data)
    mean, log_variance = network.moments(x)
    assert float(log_variance.std().detach()) == pytest.approx(0, abs=1e-4)  # the same for every row
    within = model.clusters.log_variances.exp().mean()
    assert torch.allclose(log_variance.exp(), 0.1 * within, rtol=1e-3)
    assert model.clusters(mean).argmax(1).bincount(minlength=4).min() > 0


def test_a_network_without_variances_gets_one_a_coordinate(blobs):
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside, self.outside = nn.Linear(6, 4), nn.Linear(4, 6)

        def encode(self, x):
            return self.inside(x)

        def decode(self, z):
            return self.outside(z)

    model = VaDE(3, network=Plain(), pretrain_epochs=3, epochs=5, lr=0.02, random_state=0).fit(blobs[0])
    assert "reconstruction" in model.history_[-1]
    assert float(model.model_.log_spread.detach().std()) > 1e-5  # equal at the start: they have learnt
    frozen = VaDE(3).build_model(Identity((4,)), 50)
    assert not frozen.log_spread.requires_grad


def test_a_variational_network_can_be_trained_layer_by_layer(blobs):
    model = VaDE(3, layer_epochs=1, pretrain_epochs=1, epochs=1, random_state=0).fit(blobs[0])
    phases = [record["phase"] for record in model.history_]
    assert phases == [*(f"layer {i}" for i in (1, 2, 3, 4)), "pretraining", "clustering"]


def test_the_rate_decays_to_a_tenth():
    model = small()
    assert [model.lr_factor(epoch) for epoch in (0, 9, 10, 25)] == pytest.approx([1, 1, 0.9, 0.81])
    assert model.lr_factor(1000) == 0.1
    assert VaDE(3, decay=1.0).build_model(Identity((4,)), 9).lr_factor(500) == 1


def test_probabilities_are_the_mixtures(blobs):
    model = VaDE(3, pretrain_epochs=5, epochs=5, random_state=0).fit(blobs[0])
    z = torch.from_numpy(model.transform(blobs[0])).double()
    posterior = torch.softmax(model.model_.clusters.logits(z), dim=1).detach()
    assert model.temperature_ == 2
    assert np.allclose(model.predict_proba(blobs[0]), posterior, atol=1e-5)


def test_bad_settings_are_named(blobs):
    for knob, value in (("decay", 0.0), ("decay", 1.5), ("repair", 3)):
        with pytest.raises(ValueError, match=knob):
            VaDE(3, **{knob: value}).fit(blobs[0])
