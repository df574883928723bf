import math

import pytest
import torch

from diffclust.nn.dimension import local_dimension


def slowly(x, some, k):
    """The formula, row by row."""
    inverse = []
    for i in some.tolist():
        distances = sorted(math.dist(x[i].tolist(), other.tolist()) for other in x)
        nearest = [d for d in distances if d > 1e-9][:k]
        inverse.append(sum(math.log(nearest[-1] / d) for d in nearest[:-1]) / (k - 1))
    return len(inverse) / sum(inverse)


@pytest.mark.parametrize("k", [3, 5])
def test_the_formula(k):
    x, some = torch.rand(40, 6), torch.tensor([0, 7, 39])
    x[1] = x[7]  # equal rows are passed over
    assert local_dimension(x, some, k) == pytest.approx(slowly(x, some, k), rel=1e-3)


@pytest.mark.parametrize("m", [1, 2, 4])
def test_a_sheet_has_as_many_dimensions_as_it_was_made_of(m):
    """Bent into forty columns, far from zero."""
    flat = torch.rand(2000, m) @ torch.randn(m, 40)
    assert local_dimension(100 + torch.sin(flat / 4), torch.arange(500)) == pytest.approx(m, rel=0.25)


def test_noise_has_many():
    assert local_dimension(torch.randn(300, 50), torch.arange(300)) > 15


@pytest.mark.parametrize(
    "x", [torch.ones(30, 4), torch.rand(3, 4), torch.eye(2).repeat(20, 1)], ids=["one", "few", "two"]
)
def test_nothing_is_told_of_rows_that_are_equal_or_few(x):
    assert local_dimension(x, torch.arange(len(x))) == math.inf
