"""IIC and IMSAT: their objectives by loops, the direction of a push, who is whose partner."""

import itertools
import math

import pytest
import torch

from diffclust import IIC, IMSAT
from diffclust.engine.data import Batch
from diffclust.methods.iic import mutual_information
from diffclust.methods.imsat import divergence
from diffclust.nn.autoencoders import DenseAutoencoder, Identity


def shares(n=7, k=3):
    return torch.softmax(torch.randn(n, k, dtype=torch.float64), dim=1)


@pytest.mark.parametrize("weight", [1.0, 1.5])
def test_mutual_information_by_loops(weight):
    p, q = shares(), shares()
    table = [[0.0] * 3 for _ in range(3)]
    for i, c, d in itertools.product(range(7), range(3), range(3)):
        table[c][d] += float(p[i, c] * q[i, d] + p[i, d] * q[i, c]) / 14
    size = [sum(row) for row in table]
    expected = sum(
        table[c][d] * (math.log(table[c][d]) - weight * math.log(size[c]) - weight * math.log(size[d]))
        for c in range(3)
        for d in range(3)
    )
    assert mutual_information(p.T @ q, weight).item() == pytest.approx(expected)


def test_information_is_largest_for_decided_even_agreeing_clusters():
    even = torch.eye(4, dtype=torch.float64)
    assert mutual_information(even).item() == pytest.approx(math.log(4), rel=1e-5)
    assert mutual_information(torch.ones(4, 4, dtype=torch.float64)).item() == pytest.approx(0, abs=1e-6)
    uneven = torch.diag(torch.tensor([0.7, 0.1, 0.1, 0.1], dtype=torch.float64))
    assert mutual_information(uneven) < mutual_information(even)


def test_information_has_the_right_gradient():
    joint = torch.rand(3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(mutual_information, joint)


def test_a_partner_is_a_neighbour_a_changed_sample_or_the_sample_itself():
    x, other = torch.randn(5, 2), torch.randn(5, 2)
    model = IIC(3, network="identity").build_model(Identity((2,)), 5)
    index = torch.arange(5)
    own, theirs = model.shares(model.embed(x)), model.shares(model.embed(other))
    near = torch.tensor([[1, 2], [0, 2], [3, 4], [4, 0], [1, 1]])
    for batch, expected in (
        (Batch(x, x, index), own),
        (Batch(x, other, index), theirs),
        (Batch(x, x, index, neighbour=other), theirs),
        (Batch(x, x, index, near=near), own[near].mean(1)),
    ):
        _, p, q = model.classify(batch)
        assert torch.allclose(p, own)
        assert torch.allclose(q, expected)


def test_a_push_goes_where_the_assignment_changes_most():
    """Between two centres on a line the other directions change nothing."""
    torch.manual_seed(0)
    model = IMSAT(2, network="identity").build_model(Identity((3,)), 4)
    model.clusters.set_centers(torch.tensor([[-1.0, 0, 0], [1.0, 0, 0]]))
    x = torch.tensor([[0.1, 0.5, -0.3], [-0.2, 0.0, 2.0]])
    _, log_p = model.log_shares(x)
    push = model.moved(x, log_p, torch.tensor([0.5, 0.2])) - x
    assert torch.allclose(push.norm(dim=1), torch.tensor([0.5, 0.2]), atol=1e-5)
    assert torch.allclose(push[:, 1:], torch.zeros(2, 2), atol=1e-4)


def test_imsat_by_loops():
    torch.manual_seed(0)
    x = torch.randn(6, 4)
    model = IMSAT(3, weight=0.3, balance=2.0).build_model(DenseAutoencoder((4,), 3, hidden=(5,)), 6)
    model.radius = torch.zeros(6)  # no push: the first term is nothing
    losses = model.loss(Batch(x, x, torch.arange(6)))
    p = model.shares(model.embed(x)).detach().double()
    undecided = -sum(float(v * v.log()) for row in p for v in row) / 6
    mean = p.mean(0)
    even = -sum(float(v * v.log()) for v in mean)
    assert losses["stability"].item() == pytest.approx(0, abs=1e-6)
    assert losses["clustering"].item() == pytest.approx(0.3 * (undecided - 2.0 * even), rel=1e-4)
    assert divergence(p.log(), p.log()).abs().max() < 1e-12
    model.radius = torch.ones(6)
    assert model.loss(Batch(x, x, torch.arange(6)))["stability"] > 0
