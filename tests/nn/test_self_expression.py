"""The active-set solver against scikit-learn's lasso, and its blocks against one another."""

import sys

import numpy as np
import pytest
import torch
from sklearn.linear_model import Lasso

from diffclust.nn import self_expression

module = sys.modules["diffclust.nn.self_expression"]  # its name in diffclust.nn is the function's


def unit_rows(n=100, d=12, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def dense(found, n):
    c = np.zeros((n, n))
    c[found.rows, found.columns] = found.values
    return c


@pytest.mark.parametrize("alpha", [2.0, 5.0])
def test_coefficients_are_the_lassos(alpha):
    x = unit_rows()
    found = self_expression(torch.from_numpy(x), alpha, tolerance=1e-7)
    c = dense(found, 100)
    assert found.unfinished == 0
    assert (np.diag(c) == 0).all()
    for i in range(0, 100, 10):
        others = x.copy()
        others[i] = 0
        weight = np.abs(others @ x[i]).max() / alpha
        exact = Lasso(weight / 12, fit_intercept=False, tol=1e-10, max_iter=100_000).fit(others.T, x[i]).coef_
        assert np.allclose(c[i], exact, atol=1e-5)


@pytest.mark.slow
def test_candidates_join_until_none_is_missing(monkeypatch):
    """With three at a time the answer is the same as with all at once."""
    x = torch.from_numpy(unit_rows(80, 10))
    whole = dense(self_expression(x, 5.0, 1e-7), 80)
    monkeypatch.setattr(module, "NEW_CANDIDATES", 3)
    monkeypatch.setattr(module, "MAX_ROUNDS", 60)
    assert np.allclose(dense(self_expression(x, 5.0, 1e-7), 80), whole, atol=1e-5)


def test_blocks_do_not_matter(monkeypatch):
    x = torch.from_numpy(unit_rows(40, 8))
    whole = dense(self_expression(x, 4.0, 1e-7), 40)
    monkeypatch.setattr(module, "MAX_BLOCK_VALUES", 12 * 48 * 40)
    assert np.allclose(dense(self_expression(x, 4.0, 1e-7), 40), whole, atol=1e-5)


def test_rows_write_each_other_within_orthogonal_subspaces():
    rng = np.random.default_rng(0)
    x = np.zeros((40, 6))
    x[:20, :3], x[20:, 3:] = rng.normal(size=(20, 3)), rng.normal(size=(20, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    c = dense(self_expression(torch.from_numpy(x), 10.0), 40)
    assert (c[:20, 20:] == 0).all()
    assert (c[20:, :20] == 0).all()
    assert (c != 0).any(axis=1).all()


def test_rows_without_company_have_no_coefficients():
    x = torch.eye(4)
    x[3] = 0
    assert len(self_expression(x, 5.0).values) == 0


def test_alpha_is_named():
    with pytest.raises(ValueError, match=r"alpha=1\.0"):
        self_expression(torch.eye(3), 1.0)
