import copy
import inspect
import subprocess
import sys
from functools import partial

import pytest
import torch
from torch import nn

from diffclust.engine.accelerate import adadelta
from diffclust.engine.accelerate.adadelta import FusedAdadelta, _advance, _advance_at_once, _move_at_once
from diffclust.engine.accelerate.launch import has_triton
from diffclust.engine.optimizers import OPTIMIZERS, make_optimizer


@pytest.fixture
def network(request):
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2)).to(memory_format=torch.channels_last)


def losses(network, optimizer, steps, device):
    seen = []
    for step in range(steps):
        x = torch.randn(8, 3, 4, 4, generator=torch.Generator().manual_seed(step)).to(device)
        loss = (network(x) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    return seen


@pytest.fixture(params=[2**16, 30], ids=["all together", "large ones alone"])
def _large(request, monkeypatch):
    monkeypatch.setattr(adadelta, "LAUNCH_ALONE_FROM", request.param)


@pytest.mark.usefixtures("_large")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_adadelta_is_torchs(network, device):
    other = copy.deepcopy(network).to(device)
    network = network.to(device)
    ours = losses(network, FusedAdadelta(network.parameters(), lr=1.0), 30, device)
    assert ours == pytest.approx(losses(other, torch.optim.Adadelta(other.parameters(), lr=1.0), 30, device), rel=1e-4)
    assert ours[-1] < 0.9 * ours[0]


@pytest.mark.usefixtures("_large")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_its_state_travels(network, device):
    network = network.to(device)
    first = FusedAdadelta(network.parameters(), lr=1.0)
    losses(network, first, 5, device)
    copied = copy.deepcopy(network)
    second = FusedAdadelta(copied.parameters(), lr=1.0)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    plain = copy.deepcopy(network)
    third = torch.optim.Adadelta(plain.parameters(), lr=1.0)
    third.load_state_dict(copy.deepcopy(first.state_dict()))
    expected = losses(network, first, 5, device)
    assert losses(copied, second, 5, device) == pytest.approx(expected, rel=1e-5)
    assert losses(plain, third, 5, device) == pytest.approx(expected, rel=1e-4)


@pytest.mark.skipif(not has_triton(), reason="needs Triton")
@pytest.mark.parametrize(("rho", "eps"), [(0.9, 1e-6), (0.95, 1e-7)])
def test_the_kernel_takes_the_same_step(rho, eps):
    device = "cuda" if torch.cuda.is_available() else "cpu"  # there in Triton's interpreter
    plain = [torch.zeros(2500, device=device) for _ in range(2)]
    fused = [moment.clone() for moment in plain]
    for _ in range(3):
        gradient = torch.randn(2500, device=device)
        gradient[::7] = 0
        expected = _advance(gradient, *plain, {"rho": rho, "eps": eps})
        group = {"rho": rho, "eps": eps, "lr": 0.5}
        before = [moment.clone() for moment in fused]
        step = _advance_at_once(gradient.clone(), *fused, group)
        torch.testing.assert_close(step, expected, rtol=1e-5, atol=1e-9)
        torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-12)
        parameter = torch.ones(2500, device=device)
        parameter.grad = gradient.clone()
        _move_at_once(parameter, dict(zip(("square_avg", "acc_delta"), before, strict=True)), group)
        torch.testing.assert_close(parameter, 1 - 0.5 * expected)
        assert torch.equal(parameter.grad, gradient)
        torch.testing.assert_close(before, plain, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize(
    ("wish", "fused"),
    [
        ("adam", True),
        ("adamw", True),
        (torch.optim.Adam, True),
        (partial(torch.optim.Adam, lr=0.002, eps=1e-4), True),
        (partial(torch.optim.Adam, foreach=True), None),
        (partial(torch.optim.AdamW, fused=False), False),
        (lambda parameters: torch.optim.Adam(parameters, lr=0.1), None),
    ],
)
def test_adam_is_one_kernel_unless_the_caller_says_how(network, wish, fused):
    assert make_optimizer(network, wish, None).param_groups[0]["fused"] is fused


def test_settings_of_a_callable_stay(network):
    optimizer = make_optimizer(network, partial(torch.optim.Adam, lr=0.002, eps=1e-4), None)
    assert [optimizer.param_groups[0][name] for name in ("lr", "eps")] == [0.002, 1e-4]
    twin = copy.deepcopy(network)
    plain = torch.optim.Adam(twin.parameters(), lr=0.002, eps=1e-4)
    assert losses(network, optimizer, 20, "cpu") == pytest.approx(losses(twin, plain, 20, "cpu"), rel=1e-4)


STEPS = """
import sys, torch
from diffclust.engine.optimizers import OPTIMIZERS, make_optimizer

network = torch.nn.Linear(3, 2)
for name in OPTIMIZERS:
    for _ in range(2):
        optimizer = make_optimizer(network, name, None)
        network(torch.ones(4, 3)).square().mean().backward()
        optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
print("torch._dynamo" in sys.modules)
"""


def test_none_imports_torchs_compiler():
    """It would take a second of the first fit."""
    assert subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_they_are_torchs(network, name):
    twin = copy.deepcopy(network)
    ours = make_optimizer(network, name, 0.01)
    kind = next(each for each in type(ours).__mro__ if each.__module__.startswith("torch."))
    given = {key: value for key, value in ours.param_groups[0].items() if key in inspect.signature(kind).parameters}
    plain = kind(twin.parameters(), **{key: value for key, value in given.items() if key not in ("params", "fused")})
    assert isinstance(ours, kind)
    assert losses(network, ours, 10, "cpu") == pytest.approx(losses(twin, plain, 10, "cpu"), rel=1e-4)
    assert ours.state_dict()["state"].keys() == plain.state_dict()["state"].keys()
