"""Affinities against loops, their scale, their gradients, and what happens to rows without company."""

import numpy as np
import pytest
import torch

from diffclust.nn import affinity, laplacian
from diffclust.nn.graph import scales


def by_loops(z, n_neighbors):
    n = len(z)
    W = np.zeros((n, n))
    for i in range(n):
        d = [float(((z[i] - z[j]) ** 2).sum()) for j in range(n)]
        others = [j for j in range(n) if j != i]
        positive = sorted(d[j] for j in others if d[j] > 0)
        sigma = positive[(len(positive) - 1) // 2]
        for j in sorted(others, key=lambda j: d[j])[:n_neighbors]:
            W[i, j] = np.exp(-d[j] / sigma)
    return (W + W.T) / 2


@pytest.mark.parametrize("n_neighbors", [1, 3, 11])
def test_affinity_by_loops(n_neighbors):
    z = np.random.default_rng(0).normal(size=(12, 3))
    W = affinity(torch.from_numpy(z), n_neighbors).numpy()
    assert np.allclose(W, by_loops(z, n_neighbors))
    kept = W[W > 0]
    assert kept.min() >= 0.5 / np.e - 1e-9 or n_neighbors == 11
    assert (np.diag(W) == 0).all()


def test_the_full_graph_keeps_every_pair_and_units_do_not_matter():
    z = torch.randn(10, 4, dtype=torch.float64)
    assert torch.allclose(affinity(z, graph="full"), affinity(z, 9))
    assert torch.allclose(affinity(1000 * z, 3), affinity(z, 3))


def test_gradients_are_those_of_finite_differences():
    z = torch.randn(7, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: affinity(z, 3), z)
    assert torch.autograd.gradcheck(lambda z: laplacian(affinity(z, 3), normalized=True), z)


def test_the_quadratic_form_of_the_laplacian():
    """Σ_ij W_ij |y_i - y_j|² over rows is 2 tr(YᵀLY)."""
    W = affinity(torch.randn(9, 3, dtype=torch.float64), 4)
    y = torch.randn(9, 2, dtype=torch.float64)
    total = sum(float(W[i, j] * (y[i] - y[j]).square().sum()) for i in range(9) for j in range(9))
    assert total == pytest.approx(2 * float(torch.trace(y.T @ laplacian(W) @ y)))


def test_the_normalised_laplacian_lies_between_nought_and_two():
    W = affinity(torch.randn(30, 3, dtype=torch.float64), 4)
    values = torch.linalg.eigvalsh(laplacian(W, normalized=True))
    assert -1e-9 <= float(values.min()) <= float(values.max()) <= 2 + 1e-9
    W[0] = W[:, 0] = 0
    L = laplacian(W, normalized=True)
    assert L.isfinite().all()
    assert (L[0] == 0).all()


def test_equal_rows_are_survived():
    z = torch.ones(6, 3, requires_grad=True)
    W = affinity(z, 2)
    assert W.isfinite().all()
    W.sum().backward()
    assert z.grad.isfinite().all()


def test_bad_settings_are_named():
    z = torch.randn(5, 2)
    for n_neighbors in (0, 5):
        with pytest.raises(ValueError, match=f"n_neighbors={n_neighbors} should be from 1 to 4"):
            affinity(z, n_neighbors)
    with pytest.raises(ValueError, match="graph='ring'"):
        affinity(z, 2, "ring")


def test_rows_far_from_the_origin_have_the_same_neighbours():
    z = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    moved = (z.double() + 1000).float()  # what float32 keeps of them
    assert torch.allclose(affinity(moved, 5), affinity(moved.double(), 5).float(), atol=1e-4)


def test_the_scale_is_the_lower_median_of_what_is_positive():
    distances = torch.rand(6, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    distances[0, :4] = 0.0
    distances[1] = 0.0
    distances.requires_grad_()
    found = scales(distances)
    for row, scale in zip(distances.detach(), found.detach(), strict=True):
        positive = row[row > 0].sort().values
        assert scale.item() == (positive[(len(positive) - 1) // 2].item() if len(positive) else 1.0)
    found.sum().backward()
    assert torch.equal(distances.grad.sum(1), torch.tensor([1.0, 0, 1, 1, 1, 1], dtype=torch.float64))
