import math

import pytest
import torch

from diffclust.nn.contrastive import contrastive_loss


def by_loops(a, b, temperature):
    u = [*a.tolist(), *b.tolist()]
    u = [[v / math.sqrt(sum(w * w for w in row)) for v in row] for row in u]
    n, total = len(a), 0.0
    for i, row in enumerate(u):
        likeness = [sum(v * w for v, w in zip(row, other, strict=True)) / temperature for other in u]
        others = [math.exp(value) for j, value in enumerate(likeness) if j != i]
        total -= likeness[(i + n) % (2 * n)] - math.log(sum(others))
    return total / (2 * n)


@pytest.mark.parametrize("temperature", [0.2, 0.5])
def test_against_loops(temperature):
    a, b = torch.randn(2, 5, 3, dtype=torch.float64)
    assert contrastive_loss(a, b, temperature).item() == pytest.approx(by_loops(a, b, temperature), rel=1e-10)


def test_its_gradient():
    a, b = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(contrastive_loss, (a.detach().requires_grad_(), b.detach().requires_grad_()))


def test_lengths_do_not_count_and_pairs_may_be_exchanged():
    a, b = torch.randn(2, 6, 4, dtype=torch.float64)
    torch.testing.assert_close(contrastive_loss(a, b), contrastive_loss(3 * b, 0.1 * a))


def test_it_is_least_where_pairs_agree():
    a = torch.eye(4, dtype=torch.float64)
    assert contrastive_loss(a, a) < contrastive_loss(a, a.roll(1, 0))
