import copy

import pytest
import torch
from torch import nn

from diffclust.engine.optimizers import Adadelta


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


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_adadelta_is_torchs(network, device):
    other = copy.deepcopy(network).to(device)
    network = network.to(device)
    ours = losses(network, Adadelta(network.parameters(), lr=1.0), 30, device)
    assert ours == pytest.approx(losses(other, torch.optim.Adadelta(other.parameters(), lr=1.0), 30, device), rel=1e-4)
    assert ours[-1] < 0.9 * ours[0]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_its_state_travels(network, device):
    network = network.to(device)
    first = Adadelta(network.parameters(), lr=1.0)
    losses(network, first, 5, device)
    copied = copy.deepcopy(network)
    second = Adadelta(copied.parameters(), lr=1.0)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    plain = copy.deepcopy(network)
    third = torch.optim.Adadelta(plain.parameters(), lr=1.0)
    third.load_state_dict(copy.deepcopy(first.state_dict()))
    expected = losses(network, first, 5, device)
    assert losses(copied, second, 5, device) == pytest.approx(expected, rel=1e-5)
    assert losses(plain, third, 5, device) == pytest.approx(expected, rel=1e-4)
