"""The linear layers in few kernels against PyTorch's own: on a GPU, or in Triton's interpreter on the CPU."""

import copy
import itertools

import pytest
import torch
from torch import nn

from diffclust.engine.accelerate.dense import ROWS, Dense, connect, group_dense
from diffclust.engine.accelerate.launch import has_triton
from diffclust.engine.accelerate.layers import fused_layers
from diffclust.nn import DenseAutoencoder
from diffclust.nn.chain import Chain

pytestmark = pytest.mark.skipif(not has_triton(), reason="needs Triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def stack(*widths, dropout=0.0):
    layers = []
    for fan_in, fan_out in itertools.pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()] + ([nn.Dropout(dropout)] if dropout else [])
    return nn.Sequential(*layers[: -2 if dropout else -1]).to(DEVICE)


def everything(net, x, run, weight):
    x = x.clone().requires_grad_()
    y = run(x)
    (y * weight).sum().backward()
    return {"y": y.detach(), "x": x.grad, **{name: p.grad for name, p in net.named_parameters()}}


@pytest.mark.parametrize("rows", [1, 7, ROWS + 5])
@pytest.mark.parametrize("last", [False, True], ids=["plain end", "ReLU at the end"])
def test_a_run_is_its_layers(rows, last):
    net = stack(13, 37, 20, 5)
    net = nn.Sequential(*net, nn.ReLU()) if last else net
    twin = copy.deepcopy(net)
    (layers,) = group_dense(net)
    x, weight = torch.randn(rows, 13, device=DEVICE), torch.randn(rows, 5, device=DEVICE)
    found = everything(net, x, lambda x: connect(x, layers), weight)
    expected = everything(twin, x, twin, weight)
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=1e-4)


def test_dropout_lets_the_same_values_pass_both_ways():
    net = stack(6, 64, 3, dropout=0.25)
    (layers,) = group_dense(net)
    assert [layer.dropout for layer in layers] == [0.25, 0.0]
    x = torch.randn(500, 6, device=DEVICE)
    hidden, last = net[0], net[3]
    before = torch.relu(hidden(x))
    one = torch.ones(500, 3, device=DEVICE)
    y = connect(x, layers)
    (y * one).sum().backward()
    # what came through can be read from the last layer's gradient: Σ_b of the values after dropout
    kept = last.weight.grad[0] / before.sum(0)
    assert 0.9 < kept.mean() < 1.1
    assert kept.std() > 0.01
    share = hidden.bias.grad / ((before > 0).sum(0) * last.weight.sum(0))
    assert 0.9 < share.mean() < 1.1
    assert share.std() > 0.01


def test_frozen_layers_have_no_gradient():
    net = stack(4, 6, 5, 2)
    for p in net[0].parameters():
        p.requires_grad_(False)
    (layers,) = group_dense(net)
    twin = copy.deepcopy(net)
    x = torch.randn(9, 4, device=DEVICE)
    connect(x, layers).sum().backward()
    twin(x).sum().backward()
    assert net[0].weight.grad is None
    assert net[0].bias.grad is None
    for p, q in zip(net[2:].parameters(), twin[2:].parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-4)


def test_which_layers_go_together():
    a, b, relu, drop, flat = nn.Linear(2, 3), nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.1), nn.Flatten()
    parts = list(group_dense([flat, drop, a, relu, drop, b, flat, nn.Dropout(1.0)]))
    assert parts[:2] == [flat, drop]
    assert [(d.linear, d.relu, d.dropout) for d in parts[2]] == [(a, True, 0.1), (b, False, 0.0)]
    assert parts[3] is flat
    bare = nn.Linear(2, 2, bias=False)
    assert next(group_dense([bare])) is bare
    (run, end) = group_dense([a, drop])  # dropout without ReLU: a zero would not say who was dropped
    assert [type(d) for d in run] == [Dense]
    assert not run[0].dropout
    assert end is drop
    (run, end) = group_dense([a, relu, nn.Dropout(1.0)])
    assert run[0].dropout == 0.0
    assert isinstance(end, nn.Dropout)


def test_the_dense_network_is_a_chain_and_on_the_cpu_a_sequential():
    network = DenseAutoencoder((6,), 2, hidden=(8, 7))
    assert isinstance(network.encoder, Chain)
    assert isinstance(network.decoder, Chain)
    x = torch.rand(5, 6)
    assert torch.equal(network.encoder(x), nn.Sequential(*network.encoder)(x))


@pytest.mark.gpu
def test_training_in_bf16_is_as_exact_as_autocasts():
    torch.manual_seed(0)
    network = DenseAutoencoder((784,), 10, "sigmoid").cuda()
    x = torch.rand(256, 784, device="cuda")
    exact = copy.deepcopy(network).double()
    exact.reconstruction_loss(x.double(), exact.encode(x.double())).backward()
    errors = {}
    for fast in (False, True):
        model = copy.deepcopy(network)
        model.train(fast)  # without dropout training differs by the kernels alone
        with torch.autocast("cuda", torch.bfloat16), fused_layers(convolutions=False):
            loss = model.reconstruction_loss(x, model.encode(x))
        loss.backward()
        pairs = [(p.grad, q.grad) for p, q in zip(model.parameters(), exact.parameters(), strict=True)]
        errors[fast] = sum(((g.double() - e).norm() / e.norm()).item() for g, e in pairs)
    assert errors[True] < 1.1 * errors[False]
