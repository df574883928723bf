"""The L-ADMM block: its operators, its identity with the algorithm, and the solution it converges to."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from torch import nn

from diffclust.nn import LADMMBlock, shrink, shrink_samples

numbers = st.floats(-5, 5)


@settings(max_examples=50, deadline=None)
@given(st.lists(numbers, min_size=1, max_size=8), st.floats(0, 3))
def test_shrink_is_the_proximal_step_of_the_one_norm(values, threshold):
    """argmin_u ½(u - x)² + b|u|, value by value, by looking at many u."""
    x = torch.tensor(values, dtype=torch.float64)
    u = torch.linspace(-6, 6, 24001, dtype=torch.float64)
    best = u[(0.5 * (u - x[:, None]).square() + threshold * u.abs()).argmin(1)]
    assert torch.allclose(shrink(x, threshold), best, atol=1e-3)


def test_shrinking_samples_shortens_each_as_a_whole():
    x = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    assert torch.allclose(shrink_samples(x, 1.0), torch.tensor([[2.4, 3.2], [0.0, 0.0], [0.0, 0.0]]))
    images = torch.randn(3, 2, 4, 5)
    assert torch.allclose(shrink_samples(images, 0.5).flatten(1), shrink_samples(images.flatten(1), 0.5))


def problem(seed=0, d=6, m=10, n=5):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(d, m))
    return A, rng.normal(size=(n, d))


@pytest.mark.parametrize("norm", ["elements", "samples"])
def test_k_classical_blocks_are_k_iterations(norm):
    """The papers' columns and letters, by numpy."""
    A, rows = problem()
    X, beta, lam = rows.T, 0.7, 0.4
    alpha = 0.99 / (beta * np.linalg.norm(A, 2) ** 2)
    Z, E, M = np.zeros((10, 5)), np.zeros_like(X), np.zeros_like(X)
    block = LADMMBlock.classical(torch.from_numpy(A), lam=lam, penalty=beta, norm=norm)
    state = None
    for _ in range(7):
        step = Z - alpha * A.T @ (M + beta * (A @ Z + E - X))
        Z = np.sign(step) * np.maximum(np.abs(step) - alpha, 0)
        V = X - A @ Z - M / beta
        if norm == "elements":
            E = np.sign(V) * np.maximum(np.abs(V) - lam / beta, 0)
        else:
            length = np.linalg.norm(V, axis=0)
            E = V * np.maximum(1 - lam / beta / length, 0)
        M = M + beta * (A @ Z + E - X)
        state = block(torch.from_numpy(rows), state)
    for ours, theirs in zip(state, (Z, E, M, A @ Z), strict=True):
        assert np.allclose(ours.detach().numpy().T, theirs)


def run(block, x, iterations):
    state = None
    with torch.no_grad():
        for _ in range(iterations):
            state = block(x, state)
    return state


@pytest.mark.slow
def test_it_converges_to_the_solution_with_sparse_errors():
    """min |z|_1 + λ|e|_1 s.t. x = Az + e is a linear programme, which scipy solves."""
    A, rows = problem()
    lam = 0.5
    z, e, *_ = run(LADMMBlock.classical(torch.from_numpy(A), lam=lam, norm="elements"), torch.from_numpy(rows), 8000)
    ours = z.abs().sum(1) + lam * e.abs().sum(1)
    for i, x in enumerate(rows):
        cost = np.r_[np.ones(20), lam * np.ones(12)]
        constraint = np.hstack([A, -A, np.eye(6), -np.eye(6)])
        exact = linprog(cost, A_eq=constraint, b_eq=x, bounds=(0, None)).fun
        assert float(ours[i]) == pytest.approx(exact, rel=1e-4)
    assert torch.allclose(z @ torch.from_numpy(A).T + e, torch.from_numpy(rows), atol=1e-5)


@pytest.mark.slow
def test_it_converges_to_the_solution_with_outlying_samples():
    """|z|_1 + λ|x - Az|_2: at the optimum λ Aᵀr/|r| is sign(z) where z is not zero and within [-1, 1] elsewhere."""
    A, rows = problem(1)
    lam = 0.8
    z, e, *_ = run(LADMMBlock.classical(torch.from_numpy(A), lam=lam), torch.from_numpy(rows), 8000)
    pull = lam * (e / e.norm(dim=1, keepdim=True)) @ torch.from_numpy(A)
    used = z.abs() > 1e-6
    checked = e.norm(dim=1) > 1e-3  # else the norm has no gradient
    assert checked.any()
    assert used[checked].any()
    assert torch.allclose(pull[checked][used[checked]], z.sign()[checked][used[checked]], atol=1e-4)
    assert (pull[checked].abs() <= 1 + 1e-4).all()


@pytest.mark.parametrize(("factor", "converges"), [(1.0, True), (3.0, False)])
def test_the_step_is_below_the_inverse_of_the_norm(factor, converges):
    """α < 1 / (β |AᵀA|), not α > |AᵀA| as printed: three times as long and Z no longer comes to rest."""
    A, rows = problem()
    block = LADMMBlock.classical(torch.from_numpy(A), lam=5.0)
    with torch.no_grad():
        block.analysis.weight *= factor
        block.threshold *= factor
    x = torch.from_numpy(rows)
    state = run(block, x, 3000)
    with torch.no_grad():
        rests = bool((block(x, state).z - state.z).abs().max() < 1e-4)
    assert rests == converges


def test_any_number_of_samples_and_the_answer_does_not_depend_on_company():
    block = LADMMBlock(nn.Linear(7, 4), nn.Linear(4, 7), (7,), (4,))
    assert {tuple(p.shape) for p in (block.threshold, block.penalty, block.damping)} == {(7,), (4,)}
    x = torch.randn(9, 4)
    for whole, alone in zip(run(block, x, 3), run(block, x[4:5], 3), strict=True):
        assert torch.allclose(whole[4:5], alone, atol=1e-6)


def test_convolutional_dictionaries():
    synthesis, analysis = nn.ConvTranspose2d(5, 2, 3, 2, 1, 1, bias=False), nn.Conv2d(2, 5, 3, 2, 1, bias=False)
    block = LADMMBlock(synthesis, analysis, (5, 4, 4), (2, 8, 8))
    x = torch.randn(3, 2, 8, 8)
    state = block(x, block(x))
    assert state.z.shape == (3, 5, 4, 4)
    assert state.e.shape == state.m.shape == x.shape
    assert block.threshold.shape == (5, 1, 1)
    (state.z.abs().sum() + state.e.square().sum()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in block.parameters())


def test_gradients_are_those_of_finite_differences():
    torch.manual_seed(0)
    block = LADMMBlock(nn.Linear(4, 3), nn.Linear(3, 4), (4,), (3,)).double()
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: block(x, block(x)), x)


def test_forbidden_codes_stay_zero():
    A, rows = problem()
    allowed = torch.ones(5, 10)
    allowed[:, 3] = 0
    block, state = LADMMBlock.classical(torch.from_numpy(A), lam=5.0), None
    for _ in range(50):
        state = block(torch.from_numpy(rows), state, allowed)
    assert (state.z[:, 3] == 0).all()
    assert (state.z != 0).any()


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="norm='rows'"):
        LADMMBlock(nn.Identity(), nn.Identity(), (2,), (2,), norm="rows")
