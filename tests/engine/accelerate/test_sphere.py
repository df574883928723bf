"""What comes after the layers, by kernels, against its plain form: on a GPU, or in Triton's interpreter on the CPU."""

import pytest
import torch

from diffclust.engine.accelerate import reconstruction_error, sphere
from diffclust.engine.accelerate.launch import has_triton
from diffclust.engine.accelerate.layers import fused_arithmetic
from diffclust.engine.accelerate.reconstruction_error import squared_error
from diffclust.engine.accelerate.sphere import WIDEST, FusedSphere
from diffclust.nn.autoencoders import Autoencoder, base
from diffclust.nn.cluster import ClusterLayer, PlainSphere

pytestmark = pytest.mark.skipif(not has_triton(), reason="needs Triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def value_and_gradient(work, x):
    x = x.clone().requires_grad_()
    y = work(x)
    (y * torch.linspace(-1, 2, y.numel(), device=DEVICE).view(y.shape)).sum().backward()
    return y.detach(), x.grad


@pytest.mark.parametrize("shape", [(1, 1), (21, 10), (3, WIDEST + 1)])
def test_rows_of_length_one(shape):
    x = torch.randn(shape, device=DEVICE)
    x[0] = 0  # of no direction
    for found, expected in zip(
        *(value_and_gradient(s.unit_rows, x) for s in (FusedSphere(), PlainSphere())), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("step", [torch.tensor(0.1, device=DEVICE), 0.1], ids=["tensor", "number"])
def test_a_step_on_the_sphere(step):
    pull, mass = torch.randn(5, 7, device=DEVICE), torch.tensor([0, 0.5, 1, 3, 9.0], device=DEVICE)
    pull[0] = 0
    weights = [
        1.4 * PlainSphere().unit_rows(torch.randn(5, 7, generator=torch.Generator().manual_seed(0))) for _ in "ab"
    ]
    fused, plain = (weight.to(DEVICE) for weight in weights)
    FusedSphere().step(fused, pull, mass, step, 1.4)
    PlainSphere().step(plain, pull, mass, step, 1.4)
    torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(fused.norm(dim=1), torch.full((5,), 1.4, device=DEVICE))
    torch.testing.assert_close(fused[0].cpu(), weights[0][0])  # nothing pulls it


@pytest.mark.parametrize("sigmoid", [False, True])
@pytest.mark.parametrize("turned", [False, True], ids=["in order", "channels last"])
def test_the_error_of_a_reconstruction(sigmoid, turned):
    y, target = torch.randn(3, 2, 20, 21, device=DEVICE), torch.rand(3, 2, 20, 21, device=DEVICE)
    y = y.to(memory_format=torch.channels_last) if turned else y
    forms = (squared_error, base.squared_error)
    for found, expected in zip(
        *(value_and_gradient(lambda y, f=f: f(y, target, sigmoid), y) for f in forms), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-8)


def test_plain_forms_come_back():
    with fused_arithmetic(torch.device("cuda")):
        assert isinstance(ClusterLayer.arithmetic, FusedSphere)
        assert Autoencoder.squared_error is squared_error
        with fused_arithmetic(torch.device("cpu")):
            pass
    assert type(ClusterLayer.arithmetic) is PlainSphere
    assert Autoencoder.squared_error is base.squared_error
    with fused_arithmetic(torch.device("cpu")):
        assert type(ClusterLayer.arithmetic) is PlainSphere


def test_a_model_on_the_cpu_keeps_to_plain_forms(monkeypatch):
    """While another thread trains on a GPU."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    z, weight = PlainSphere().unit_rows(torch.randn(9, 4)), PlainSphere().unit_rows(torch.randn(3, 4))
    y = torch.rand(9, 4)

    def answers():
        form, moved = ClusterLayer.arithmetic, weight.clone()
        owner, mean = form.nearest(z, weight, 1.0, 1.0, 1.0)
        pull, mass = form.sums(z, owner, 3)
        form.step(moved, pull, mass, torch.tensor(0.1), 1.0)
        return form.unit_rows(2 * z), owner, mean, pull, moved, Autoencoder.squared_error(y, y + 1, False)

    expected = answers()
    for module in (sphere, reconstruction_error):
        monkeypatch.setattr(module, "launch", lambda *arguments, **options: pytest.fail("a kernel was launched"))
    with fused_arithmetic(torch.device("cuda")):
        found = answers()
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("rows", "columns", "centers"), [(1, 1, 1), (300, 10, 10), (21, 65, 3), (30, 7, 6)])
def test_the_nearest_centre(rows, columns, centers):
    z = PlainSphere().unit_rows(torch.randn(rows, columns, device=DEVICE))
    weight = 3 * PlainSphere().unit_rows(torch.randn(centers, columns, device=DEVICE))
    found, expected = [], []
    for form, results in ((FusedSphere(), found), (PlainSphere(), expected)):
        x = z.clone().requires_grad_()
        owner, mean = form.nearest(x, weight, 1.5, 0.3, 0.7)
        (2 * mean).backward()
        results += [owner, mean.detach(), x.grad]
    assert torch.equal(found[0], expected[0])
    for a, b in zip(found[1:], expected[1:], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("rows", "columns", "centers"), [(1, 1, 1), (300, 10, 10), (30, 65, 6)])
def test_sums_of_members(rows, columns, centers):
    z, owner = torch.randn(rows, columns, device=DEVICE), torch.randint(centers, (rows,), device=DEVICE)
    for found, expected in zip(*(s.sums(z, owner, centers) for s in (FusedSphere(), PlainSphere())), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_no_number_has_a_centre_too():
    owner, mean = FusedSphere().nearest(
        torch.full((3, 2), torch.nan, device=DEVICE), torch.ones(3, 2, device=DEVICE), 1.0, 1.0, 0.0
    )
    assert bool(((owner >= 0) & (owner < 3)).all())
    assert bool(mean.isnan())


def test_centres_that_learn_have_gradients():
    z, weight = torch.randn(4, 3, device=DEVICE), torch.randn(2, 3, device=DEVICE, requires_grad=True)
    FusedSphere().nearest(z, weight, 1.0, 1.0, 0.0)[1].backward()
    assert weight.grad is not None
