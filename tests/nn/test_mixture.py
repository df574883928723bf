import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.datasets import make_blobs
from sklearn.mixture import GaussianMixture as Reference

from diffclust.nn import GaussianMixture


@pytest.fixture
def mixture():
    layer = GaussianMixture(3, 4).double()
    with torch.no_grad():
        layer.weight.normal_()
        layer.log_variances.normal_()
        layer.shares.normal_()
    return layer


def test_logits_are_scipys_log_densities(mixture):
    z = torch.randn(10, 4, dtype=torch.float64)
    weights = torch.softmax(mixture.shares, 0)
    for i in range(10):
        for c in range(3):
            spread = mixture.log_variances[c].exp().sqrt().detach()
            density = norm.logpdf(z[i], mixture.centers[c].detach(), spread).sum()
            expected = float(weights[c].log().detach()) + density
            assert float(mixture.logits(z)[i, c].detach()) == pytest.approx(expected)


def test_the_assignment_is_the_posterior(mixture):
    z = torch.randn(10, 4, dtype=torch.float64)
    joint = mixture.logits(z).exp()
    assert torch.allclose(mixture(z), joint / joint.sum(1, keepdim=True))
    # as predict_proba has it: logits over α times the temperature
    assert mixture.alpha * mixture.temperature == 1


def test_gradcheck(mixture):
    z = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(mixture.logits, z)


def test_distances_do_not_depend_on_spreads(mixture):
    z = torch.randn(6, 4, dtype=torch.float64)
    assert torch.allclose(mixture.distances(z), torch.cdist(z, mixture.centers).square())


def test_expectation_maximisation_is_scikit_learns():
    X, _ = make_blobs(400, 3, centers=4, cluster_std=[0.5, 1.0, 2.0, 1.5], random_state=0)
    start = X[[0, 1, 2, 3]]
    labels = ((X[:, None] - start) ** 2).sum(2).argmin(1)
    means = np.stack([X[labels == j].mean(0) for j in range(4)])
    precisions = np.stack([1 / X[labels == j].var(0) for j in range(4)])
    reference = Reference(
        4,
        covariance_type="diag",
        means_init=means,
        precisions_init=precisions,
        weights_init=np.bincount(labels) / 400,
        tol=1e-7,
        max_iter=500,
        reg_covar=0,
    ).fit(X)
    mixture = GaussianMixture(4, 3)
    mixture.set_centers(torch.from_numpy(start))
    mixture.fit_(torch.from_numpy(X), max_iter=500, tolerance=1e-7)
    assert np.allclose(mixture.centers.detach(), reference.means_, atol=1e-2)
    assert np.allclose(mixture.log_variances.detach().exp(), reference.covariances_, rtol=2e-2)
    assert np.allclose(mixture.log_weights.detach().exp(), reference.weights_, atol=1e-3)


def test_no_component_becomes_a_point():
    z = torch.cat([torch.zeros(50, 2), torch.randn(50, 2) + 5])
    mixture = GaussianMixture(2, 2)
    mixture.place(z)
    assert float(mixture.log_variances.detach().min()) > -20
    assert torch.isfinite(mixture.logits(z)).all()


def test_constant_rows_are_survived():
    mixture = GaussianMixture(2, 3)
    mixture.place(torch.ones(20, 3))
    assert all(p.isfinite().all() for p in mixture.parameters())
    assert torch.isfinite(mixture.logits(torch.ones(20, 3))).all()


def test_the_loss_is_of_distances_to_the_means():
    x, _ = make_blobs(60, centers=3, n_features=2, random_state=0)
    x = torch.from_numpy(x).float() + 10
    mixture = GaussianMixture(3, 2)
    mixture.place(x)
    apart = torch.cdist(x, mixture.centers).square()
    assert mixture.loss(x).item() == pytest.approx((mixture(x) * apart).sum(1).mean().item(), rel=1e-4)
