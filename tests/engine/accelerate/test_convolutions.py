"""The fused convolutions against PyTorch's own: on a GPU, or in Triton's interpreter on the CPU."""

import copy

import pytest
import torch
from torch import nn

from diffclust.engine.accelerate import convolutions
from diffclust.engine.accelerate.convolutions import DeferredGradients, Layer, convolve, group, known
from diffclust.engine.accelerate.launch import has_triton
from diffclust.engine.accelerate.layers import fused_layers
from diffclust.engine.accelerate.side_stream import SideStream
from diffclust.nn import ConvAutoencoder
from diffclust.nn.chain import Chain

pytestmark = pytest.mark.skipif(not has_triton(), reason="needs Triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def stacks(shape):
    """The convolutions of both halves of the network, batch norm's parameters away from 1 and 0, and inputs. Where the
    kernels are interpreted, slowly, two layers of each half: one of stride 1 and one of stride 2."""
    network = ConvAutoencoder(shape, 10, "sigmoid", hidden=8).to(DEVICE)
    for norm in network.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.uniform_(norm.bias, -0.5, 0.5)
    down, up = (12, 4) if DEVICE == "cuda" else (6, 10)
    encoder, decoder = nn.Sequential(*list(network.encoder)[:down]), nn.Sequential(*list(network.decoder)[up:])
    images = torch.rand(4, *shape, device=DEVICE)
    return (encoder, images), (decoder, torch.randn_like(encoder(images)))


def everything(stack, x, run, weight):
    """Output, gradients, and batch norm's buffers after one step."""
    x = x.clone().requires_grad_()
    y = run(x)
    (y * weight(y)).sum().backward()
    gradients = {name: p.grad for name, p in stack.named_parameters() if p.grad is not None}
    return {"y": y.detach(), "x": x.grad, **gradients, **dict(stack.named_buffers())}


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("shape", [(1, 4, 4), pytest.param((3, 5, 6), marks=pytest.mark.gpu)])  # slow when interpreted
@pytest.mark.parametrize("many", [convolutions.FULL_GPU, 0], ids=["few pixels", "many"])
def test_a_chain_is_its_layers(shape, half, many, monkeypatch):
    monkeypatch.setattr(convolutions, "FULL_GPU", many)
    stack, x = stacks(shape)[half]
    plain, fused = copy.deepcopy(stack), copy.deepcopy(stack)
    (layers,) = group(fused)
    weights = {}

    def weight(y):
        return weights.setdefault("once", torch.randn_like(y))

    with torch.backends.cudnn.flags(allow_tf32=False):
        expected = everything(plain, x, plain, weight)
    found = everything(fused, x, lambda x: convolve(x, layers), weight)
    skipped = set(expected) - set(found)
    last = f"{len(stack) - 1}.bias"
    assert skipped == {f"{i}.bias" for i, m in enumerate(stack) if known(m)} - {last}
    for name in found:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-3, atol=1e-3)
    for name in skipped:  # a bias before batch norm changes nothing
        assert expected[name].abs().max() < 1e-3


@pytest.mark.parametrize("uses", [1, 2])
def test_gradients_that_are_waited_for_at_the_end(uses, monkeypatch):
    """Those of the second chain, whose backward comes first, are joined after the backward of the first."""
    chains = nn.Sequential(Chain(nn.Conv2d(1, 2, 3, padding=1)), Chain(nn.ConvTranspose2d(2, 1, 3, padding=1))).to(
        DEVICE
    )
    x, seen = torch.rand(2, 1, 3, 4, device=DEVICE), []
    plain = copy.deepcopy(chains)
    plain(x).square().sum().mul(uses).backward()
    monkeypatch.setattr(
        DeferredGradients,
        "__init__",
        watched(DeferredGradients.__init__, lambda self, *_: self.side.__dict__.update(seen=seen)),
    )
    monkeypatch.setattr(
        SideStream,
        "join",
        watched(SideStream.join, lambda self: seen.append("later" if hasattr(self, "seen") else "now")),
    )
    monkeypatch.setattr(
        convolutions, "_weight_gradient", watched(convolutions._weight_gradient, lambda *_: seen.append("gradient"))
    )
    deferred = DeferredGradients(chains, x.device)
    runs = [next(iter(group(chain))) for chain in chains]
    (sum(convolve(convolve(x, runs[0], deferred), runs[1], deferred).square().sum() for _ in range(uses))).backward()
    assert seen[-1] == "later"
    assert seen.count("gradient") == 2 * uses
    assert seen.count("now") == 2 * (uses - 1)
    for p, q in zip(chains.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-3)


def watched(work, note):
    def run(*arguments):
        result = work(*arguments)
        note(*arguments)
        return result

    return run


def test_what_the_kernels_know():
    conv, norm, relu = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()
    assert known(conv)
    for other in (
        nn.Conv2d(2, 4, 5, padding=2), nn.Conv2d(2, 4, 3), nn.Conv2d(2, 4, 3, 3, 1), nn.Linear(2, 2),
        nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.Conv2d(2, 2, 3, padding=1, groups=2),
        nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"), nn.Conv2d(2, 128, 3, padding=1),
    ):  # fmt: skip
        assert not known(other)
    flat, linear = nn.Flatten(), nn.Linear(4, 4)
    parts = list(group([flat, conv, norm, relu, conv, flat, linear, conv]))
    assert parts[0] is flat
    assert [(layer.convolution, layer.norm) for layer in parts[1]] == [(conv, norm), (conv, None)]
    assert parts[2:4] == [flat, linear]
    assert [type(layer) for layer in parts[4]] == [Layer]
    assert list(group([conv, relu, flat])) == [conv, relu, flat]  # ReLU without batch norm is left to PyTorch
    assert next(group([conv, nn.BatchNorm2d(4, affine=False), relu])) is conv


@pytest.mark.gpu
def test_training_in_bf16_is_as_exact_as_cudnns():
    torch.manual_seed(0)
    network = ConvAutoencoder((1, 28, 28), 10, "sigmoid").cuda()
    x = torch.rand(64, 1, 28, 28, device="cuda")
    exact = copy.deepcopy(network).double()
    exact.reconstruction_loss(x.double(), exact.encode(x.double())).backward()
    errors = {}
    for fast in (False, True):
        model = copy.deepcopy(network)
        with torch.autocast("cuda", torch.bfloat16), fused_layers(fast):
            loss = model.reconstruction_loss(x, model.encode(x))
        loss.backward()
        pairs = [(p.grad, q.grad) for p, q in zip(model.parameters(), exact.parameters(), strict=True) if p.ndim > 1]
        errors[fast] = sum(((g.double() - e).norm() / e.norm()).item() for g, e in pairs)
    assert errors[True] < 1.2 * errors[False]


def test_without_leave_a_chain_is_a_sequential():
    chain = Chain(nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU())
    x = torch.rand(2, 1, 4, 4)
    twin = nn.Sequential(*copy.deepcopy(list(chain)))
    assert torch.equal(chain(x), twin(x))
    with fused_layers(True):
        assert torch.equal(chain(x), twin(x))  # on the CPU the kernels never run by themselves
    assert Chain.runner is None
