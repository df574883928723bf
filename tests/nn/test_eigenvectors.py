"""Eigenvectors by descent against eigh and svd; the order of the polynomials; gradients where eigh has none."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diffclust.nn import EigenvectorLayer, affinity, laplacian, smallest_eigenvectors, top_singular_vectors
from diffclust.nn.eigenvectors import Skew, cayley_coefficients, cayley_curve, polish, random_orthonormal, step_length


def symmetric(n, seed=0, spectrum=None):
    g = torch.Generator().manual_seed(seed)
    q = torch.linalg.qr(torch.randn(n, n, generator=g, dtype=torch.float64)).Q
    values = torch.rand(n, generator=g, dtype=torch.float64) if spectrum is None else torch.as_tensor(spectrum).double()
    return q @ torch.diag(values) @ q.T


def orthonormal(n, k, seed=0):
    return random_orthonormal(n, k, like=torch.empty(0, dtype=torch.float64), seed=seed)


def objective(L, y):
    return float(torch.trace(y.T @ L @ y))


def angle(u, v):
    """The largest principal angle between two spans, in radians."""
    return math.asin(min(1.0, float(torch.linalg.matrix_norm(u - v @ (v.T @ u), 2))))


# ---- the curve


def test_coefficients():
    assert cayley_coefficients(1) == pytest.approx([1, 1])
    assert cayley_coefficients(2) == pytest.approx([1, 1, 1 / 2])
    assert cayley_coefficients(3) == pytest.approx([1, 1, 1 / 2, 1 / 8])
    assert cayley_coefficients(4) == pytest.approx([1, 1, 1 / 2, (2 - math.sqrt(2)) / 4, 0.0214466], rel=1e-5)
    assert cayley_coefficients(5) == pytest.approx([1, 1, 0.5, 0.15451, 0.02951, 0.00282], rel=1e-3)
    with pytest.raises(ValueError, match="order=0"):
        cayley_coefficients(0)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5, 6])
def test_the_orthogonality_error_has_the_stated_order(order):
    """YᵀY - I is O(t^2r): halving t divides it by 2^2r."""
    L, y = symmetric(12), orthonormal(12, 3)
    p = Skew(y, 2 * L @ y)

    def error(t):
        moved = cayley_curve(p, t, cayley_coefficients(order))
        return float((moved.T @ moved - torch.eye(3)).norm())

    t = {1: 0.01, 2: 0.1}.get(order, 0.8)
    assert math.log2(error(t) / error(t / 2)) == pytest.approx(2 * order, abs=0.35)


def test_the_papers_coefficients_stay_at_order_four_from_r_four_on():
    L, y = symmetric(12), orthonormal(12, 3)
    p = Skew(y, 2 * L @ y)
    paper = [2.0 ** (-i * (i - 1) / 2) for i in range(6)]

    def error(t):
        moved = cayley_curve(p, t, paper)
        return float((moved.T @ moved - torch.eye(3)).norm())

    assert math.log2(error(0.4) / error(0.2)) == pytest.approx(4, abs=0.3)


def test_the_skew_product_is_the_matrix():
    L, y = symmetric(9), orthonormal(9, 2)
    s = torch.tensor([[0.0, 0.3], [-0.3, 0.0]], dtype=torch.float64)
    whole = 2 * (L @ y @ y.T - y @ y.T @ L) + y @ s @ y.T
    v = torch.randn(9, 4, dtype=torch.float64)
    assert torch.allclose(Skew(y, 2 * L @ y, s) @ v, whole @ v)
    assert torch.allclose(whole, -whole.T)


def test_the_curve_is_the_cayley_transform_to_second_order():
    """(I + tP/2)^-1 (I - tP/2) Y goes downhill; with the signs the other way round, as printed, it goes up."""
    L, y = symmetric(10), orthonormal(10, 2)
    P = 2 * (L @ y @ y.T - y @ y.T @ L)
    eye, t = torch.eye(10, dtype=torch.float64), 1e-3
    cayley = torch.linalg.solve(eye + t / 2 * P, (eye - t / 2 * P) @ y)
    ours = cayley_curve(Skew(y, 2 * L @ y), t, cayley_coefficients(2))
    assert float((cayley - ours).abs().max()) < 1e-8
    assert objective(L, ours) < objective(L, y)
    assert objective(L, torch.linalg.solve(eye - t / 2 * P, (eye + t / 2 * P) @ y)) > objective(L, y)


def test_the_newton_step_is_the_minimum_of_the_second_order_expansion():
    L = symmetric(10)
    y = orthonormal(10, 2)
    for _ in range(3):  # near enough to the bottom that the curve bends up
        y = torch.linalg.qr(y - 0.5 * L @ y).Q
    p = Skew(y, 2 * L @ y)

    def f(t):
        return objective(L, cayley_curve(p, t, cayley_coefficients(2)))

    h = 1e-4
    first, second = (f(h) - f(-h)) / (2 * h), (f(h) - 2 * f(0) + f(-h)) / h**2
    assert float(step_length(lambda v: L @ v, p, L @ y, cap=100.0)) == pytest.approx(-first / second, rel=1e-4)


def test_the_step_is_guarded_where_the_curvature_is_not_positive_and_never_exceeds_its_cap():
    L = torch.diag(torch.tensor([0.0, 1.0], dtype=torch.float64))
    top = torch.tensor([[0.1], [1.0]], dtype=torch.float64)
    top = top / top.norm()  # near the maximum: the curve bends down
    p = Skew(top, 2 * L @ top)
    assert float(step_length(lambda v: L @ v, p, L @ top, cap=0.25)) == 0.25
    y = orthonormal(2, 1)
    p = Skew(y, 2 * L @ y)
    assert float(step_length(lambda v: L @ v, p, L @ y, None)) <= 0.8 / float((p @ y).norm()) * (1 + 1e-12)


def test_polishing_squares_the_error():
    y = orthonormal(20, 4) + 1e-3 * torch.randn(20, 4, dtype=torch.float64)
    before = float((y.T @ y - torch.eye(4)).norm())
    z = polish(y)
    assert float((z.T @ z - torch.eye(4)).norm()) < before**2


# ---- the layer


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(3, 24), st.integers(1, 6), st.integers(0, 10**6), st.sampled_from([2, 3, 4]), st.booleans())
def test_every_layer_goes_down_while_the_step_condition_holds(n, k, seed, order, definite):
    k = min(k, n - 1)
    L = symmetric(n, seed) if definite else symmetric(n, seed, torch.linspace(-1, 1, n))
    y = orthonormal(n, k, seed)
    with torch.no_grad():
        moved = EigenvectorLayer(k, order=order).double()(L, y)
    assert objective(L, torch.linalg.qr(moved).Q) <= objective(L, y) + 1e-9


def clustered(n=256, k=10, seed=0):
    g = torch.Generator().manual_seed(seed)
    centers = 6 * torch.randn(k, 5, generator=g)
    z = centers[torch.arange(n) % k] + torch.randn(n, 5, generator=g)
    return laplacian(affinity(z.double(), 5))


def test_sixteen_layers_come_close_where_the_papers_cap_does_not():
    L = clustered()
    best = float(torch.linalg.eigvalsh(L)[:10].sum())
    start = orthonormal(256, 10)

    def reach(layers, cap):
        y = start
        for _ in range(layers):
            with torch.no_grad():
                y = EigenvectorLayer(10, cap=cap).double()(L, y)
        return objective(L, torch.linalg.qr(y).Q) - best

    first = objective(L, start) - best
    assert reach(16, None) < 0.05 * first
    assert reach(16, 0.01) > 0.3 * first


def test_a_learnable_turn_keeps_orthogonality_and_the_objective():
    L, y = symmetric(12), orthonormal(12, 3)
    layer = EigenvectorLayer(3, cap=0.01).double()
    plain = layer(L, y).detach()
    with torch.no_grad():
        layer.turn.copy_(torch.tensor([[0.0, 1, 2], [0, 0, 1], [0, 0, 0]]))
    turned = layer(L, y).detach()
    assert float((turned.T @ turned - torch.eye(3)).abs().max()) < 1e-5
    assert objective(L, turned) == pytest.approx(objective(L, plain), abs=1e-3)
    assert float((turned - plain).abs().max()) > 1e-3


def test_gradcheck_of_the_layer():
    """With a short cap the step is a constant, as the layer takes it to be."""
    y = orthonormal(5, 2)
    layer = EigenvectorLayer(2, cap=1e-2).double()
    a = symmetric(5, spectrum=[0.1, 0.2, 0.5, 0.9, 1.0]).requires_grad_()
    assert torch.autograd.gradcheck(lambda a: layer(a + a.T, y), a)


def test_layers_are_batched():
    Ls = torch.stack([symmetric(8, seed) for seed in range(4)])
    y = orthonormal(8, 3)
    layer = EigenvectorLayer(3).double()
    for i, moved in enumerate(layer(Ls, y.expand(4, 8, 3))):
        assert torch.allclose(moved, layer(Ls[i], y))


# ---- the functions


@pytest.mark.parametrize(("n", "k"), [(6, 1), (40, 5), (30, 30), (256, 10)])
def test_smallest_eigenvectors_are_those_of_eigh(n, k):
    L = symmetric(n, seed=n) if n < 256 else clustered()
    values, vectors = smallest_eigenvectors(L, k, tolerance=1e-9, max_iter=2000)
    exact, basis = torch.linalg.eigh(L)
    assert torch.allclose(values, exact[:k], atol=1e-8)
    assert angle(vectors, basis[:, :k]) < 1e-5
    assert torch.allclose(vectors.T @ vectors, torch.eye(k, dtype=torch.float64), atol=1e-10)
    assert torch.allclose(L @ vectors, vectors * values, atol=1e-6)


def test_a_sparse_matrix_and_an_operator_agree_with_the_dense_one():
    L = clustered(64, 4)
    start = orthonormal(64, 4)
    dense = smallest_eigenvectors(L, 4, start=start)[0]
    with pytest.warns(UserWarning, match="Sparse"):  # torch calls its own CSR a beta
        compressed = L.to_sparse_csr()
    assert torch.allclose(smallest_eigenvectors(compressed, start=start)[0], dense, atol=1e-8)
    assert torch.allclose(smallest_eigenvectors(lambda y: L @ y, start=start)[0], dense)


def test_batches_and_random_states():
    Ls = torch.stack([symmetric(10, seed) for seed in range(3)]).reshape(3, 1, 10, 10)
    state = torch.get_rng_state()
    values, vectors = smallest_eigenvectors(Ls, 2, tolerance=1e-10)
    assert values.shape == (3, 1, 2)
    assert vectors.shape == (3, 1, 10, 2)
    assert torch.allclose(values, torch.linalg.eigvalsh(Ls)[..., :2], atol=1e-8)
    assert (torch.get_rng_state() == state).all()


def projector_gradient(matrix, find):
    matrix = matrix.clone().requires_grad_()
    v = find((matrix + matrix.T) / 2)
    probe = torch.linspace(-1, 1, matrix.numel(), dtype=matrix.dtype).reshape(matrix.shape)
    return torch.autograd.grad(((v @ v.T) * probe).sum(), matrix)[0]


def test_the_gradient_of_the_span_is_eighs():
    L = symmetric(12, spectrum=[0.1, 0.15, 0.2, *np.linspace(0.6, 1, 9)])
    ours = projector_gradient(L, lambda a: smallest_eigenvectors(a, 3, tolerance=1e-12)[1])
    theirs = projector_gradient(L, lambda a: torch.linalg.eigh(a).eigenvectors[:, :3])
    assert torch.allclose(ours, theirs, atol=1e-6)


def test_equal_eigenvalues_have_gradients_here_and_none_in_eigh():
    L = torch.diag(torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0, 2.0], dtype=torch.float64))
    ours = projector_gradient(L, lambda a: smallest_eigenvectors(a, 3, tolerance=1e-12)[1])
    theirs = projector_gradient(L, lambda a: torch.linalg.eigh(a).eigenvectors[:, :3])
    assert not theirs.isfinite().all()
    assert ours.isfinite().all()
    eps = 1e-6  # the span has a derivative all the same: by finite differences
    probe = torch.linspace(-1, 1, 36, dtype=torch.float64).reshape(6, 6)
    bump = torch.zeros_like(L)
    bump[0, 4] = bump[4, 0] = eps / 2

    def value(a):
        v = torch.linalg.eigh(a).eigenvectors[:, :3]
        return float(((v @ v.T) * probe).sum())

    assert float(ours[0, 4] + ours[4, 0]) / 2 == pytest.approx(
        (value(L + bump) - value(L - bump)) / (2 * eps), abs=1e-5
    )
    stacked, y = L.clone().requires_grad_(), orthonormal(6, 3)
    for _ in range(8):
        y = EigenvectorLayer(3).double()(stacked, y)
    y.square().sum(0)[0].backward()
    assert stacked.grad.isfinite().all()


@pytest.mark.parametrize("shape", [(20, 7), (7, 20), (3, 15, 6)])
def test_top_singular_vectors_are_those_of_svd(shape):
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    u, s, v = top_singular_vectors(x, 3, tolerance=1e-10, max_iter=2000)
    U, S, Vh = torch.linalg.svd(x, full_matrices=False)
    assert torch.allclose(s, S[..., :3], atol=1e-7)
    low = (U[..., :3] * S[..., None, :3]) @ Vh[..., :3, :]
    assert torch.allclose((u * s[..., None, :]) @ v.mT, low, atol=1e-6)
    assert torch.allclose(u.mT @ u, torch.eye(3, dtype=torch.float64).expand(*shape[:-2], 3, 3), atol=1e-6)


def test_singular_vectors_carry_gradients():
    x = torch.randn(9, 5, dtype=torch.float64, requires_grad=True)
    s = top_singular_vectors(x, 2, tolerance=1e-12)[1]
    (ours,) = torch.autograd.grad(s.square().sum(), x)
    (theirs,) = torch.autograd.grad(torch.linalg.svdvals(x)[:2].square().sum(), x)
    assert torch.allclose(ours, theirs, atol=1e-6)


def test_a_zero_matrix_is_survived():
    values, vectors = smallest_eigenvectors(torch.zeros(5, 5), 2)
    assert (values == 0).all()
    assert torch.allclose(vectors.T @ vectors, torch.eye(2), atol=1e-5)
    assert torch.isfinite(top_singular_vectors(torch.zeros(5, 4), 2)[0]).all()


def test_bad_input_is_named():
    L = torch.eye(4)
    for k in (0, 5):
        with pytest.raises(ValueError, match=f"k={k} should be from 1 to n=4"):
            smallest_eigenvectors(L, k)
        with pytest.raises(ValueError, match=f"k={k} should be from 1 to 4"):
            top_singular_vectors(torch.eye(4), k)
    with pytest.raises(ValueError, match=r"\(3, 4\)"):
        smallest_eigenvectors(torch.zeros(3, 4), 2)
    with pytest.raises(ValueError, match="start"):
        smallest_eigenvectors(lambda y: y, 2)
    with pytest.raises(ValueError, match="2 columns, expected k=3"):
        smallest_eigenvectors(L, 3, start=torch.eye(4)[:, :2])
    for start in (2 * torch.eye(4)[:, :2], torch.ones(4, 2), torch.full((4, 2), float("nan"))):
        with pytest.raises(ValueError, match="orthonormal columns"):
            smallest_eigenvectors(L, start=start)
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="NaN or infinity"):
            smallest_eigenvectors(torch.full((4, 4), bad), 2)
        with pytest.raises(ValueError, match="NaN or infinity"):
            top_singular_vectors(torch.full((4, 4), bad), 2)
    with pytest.raises(ValueError, match="cap=0"):
        EigenvectorLayer(2, cap=0)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gpu_finds_what_a_cpu_finds(dtype):
    """Values, spans and gradients, of two matrices at once."""
    g = torch.Generator().manual_seed(0)
    L = torch.stack([symmetric(40, 0), symmetric(40, 1)]).to(dtype)
    x = torch.randn(2, 30, 12, generator=g, dtype=torch.float64).to(dtype)

    def found(device):
        matrix, rows = L.to(device).requires_grad_(), x.to(device).requires_grad_()
        values, vectors = smallest_eigenvectors(matrix, 3)
        u, s, v = top_singular_vectors(rows, 3)
        assert {t.device.type for t in (values, vectors, u, s, v)} == {device}
        (values.square().sum() + s.sum()).backward()
        spans = vectors @ vectors.mT, u @ u.mT, v @ v.mT
        return [t.detach().cpu() for t in (values, s, *spans, matrix.grad, rows.grad)]

    for ours, theirs in zip(found("cuda"), found("cpu"), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-3)


@pytest.mark.gpu
def test_a_sparse_matrix_on_a_gpu():
    L = symmetric(30, spectrum=torch.arange(30.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its sparse formats unfinished
        sparse = L.to_sparse_csr().cuda()
        values = smallest_eigenvectors(sparse, 3)[0]
    assert values.cpu() == pytest.approx(torch.tensor([0.0, 1.0, 2.0]).double(), abs=1e-6)
