"""The nearest centre and the sums of members against plain arithmetic; kernels on a GPU, or interpreted on the CPU."""

import sys

import pytest
import torch

from diffclust.nn import lloyd, member_sums, nearest

module = sys.modules["diffclust.nn.nearest"]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def truth(x, centers):
    """Squared distances in float64: (s, n, k)."""
    x = x.double().expand(len(centers), *x.shape[-2:])
    return (x[:, :, None] - centers.double()[:, None]).square().sum(3)


def members(x, labels, k):
    member = torch.nn.functional.one_hot(labels.long(), k).double()
    return member.mT @ x.double(), member.sum(1).long()


@pytest.fixture
def by_kernels(monkeypatch):
    """Kernels with tiny tiles, in Triton's interpreter where there is no GPU."""
    pytest.importorskip("triton")
    from triton.runtime import interpreter

    prepare = interpreter._patch_lang_tensor

    def patched(tensor, scope):  # numpy no longer makes an int of an array of one
        prepare(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patched)
    monkeypatch.setattr(module, "ROWS_PER_PROGRAM", 16)
    monkeypatch.setattr(module, "fused", lambda x: x.dtype in (torch.float32, torch.float16, torch.bfloat16))
    for name, kept in (("SPLIT_CONFIG", False), ("HALF_CONFIG", True)):
        monkeypatch.setattr(module, name, (64, 16, 2, 4, kept))


SHAPES = [  # sets, rows, centres, columns
    pytest.param(2, 40, 17, 5, id="two sets of centres"),
    pytest.param(1, 20, 3, 130, id="more columns than a tile has"),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("s", "n", "k", "d"), SHAPES)
def test_kernels_find_the_nearest_centre(by_kernels, s, n, k, d, dtype):
    x = (3 * torch.randn(n, d) + 5).to(DEVICE, dtype)
    centers = 3 * torch.randn(s, k, d, device=DEVICE) + 5
    distances = truth(x, centers)
    labels, found = nearest(x, centers)
    own = distances.gather(2, labels[:, :, None])[:, :, 0]
    torch.testing.assert_close(own, distances.amin(2), rtol=1e-5, atol=0)  # as near, that is, as the nearest
    torch.testing.assert_close(found.double(), distances.amin(2), rtol=1e-4, atol=1e-4 * (x.double() ** 2).sum(1).max())
    sums, counts = member_sums(x, labels, k)
    wanted, number = members(x, labels, k)
    torch.testing.assert_close(sums.double(), wanted, rtol=1e-5, atol=1e-3)
    assert counts.equal(number)


def test_kernels_take_problems_of_their_own(by_kernels):
    x, centers = torch.randn(3, 50, 8, device=DEVICE).half(), torch.randn(3, 5, 8, device=DEVICE)
    labels, _ = nearest(x, centers)
    assert labels.equal(truth(x, centers).argmin(2))
    sums, counts = member_sums(x, labels, 5)
    wanted, number = members(x, labels, 5)
    torch.testing.assert_close(sums.double(), wanted, rtol=1e-4, atol=1e-4)
    assert counts.equal(number)


def test_kernels_see_small_rows_beside_large_ones(by_kernels):
    """Halves end at 65,504, and below 6e-8 there is nothing."""
    x = torch.randn(40, 4, device=DEVICE) * torch.logspace(-2, 4, 40, device=DEVICE)[:, None]
    centers = torch.cat([x[::4] * 1.01, x[1::4] * 0.99])
    distances = truth(x, centers[None])[0]
    own = distances.gather(1, nearest(x, centers)[0][:, None])[:, 0]
    assert bool((own <= distances.amin(1) + 1e-5 * x.double().square().sum(1)).all())


def test_kernels_take_the_first_of_equal_centres(by_kernels):
    x = torch.randn(30, 4, device=DEVICE)
    centers = x[:3].repeat(6, 1)
    assert nearest(x, centers)[0].max() < 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("k", [7, 100, 300])  # few, some and many centres go different ways
def test_nearest_is_the_argmin_of_distances(k, dtype):
    x, centers = torch.randint(-3, 4, (500, 6)).to(dtype), torch.randint(-3, 4, (3, k, 6)).float()  # many are as near
    distances = truth(x, centers)
    labels, found = nearest(x, centers)
    assert labels.equal(distances.argmin(2))
    assert found.double().equal(distances.amin(2))
    one, of_one = nearest(x, centers[1])
    assert one.equal(labels[1])
    assert of_one.equal(found[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sets", [1, 3])
def test_a_product_says_which_centre_is_the_only_nearest(sets, dtype):
    x, centers = torch.randn(700, 5, dtype=dtype), torch.randn(sets, 200, 5, dtype=dtype)
    x[:100] = centers[:, -1:].expand(-1, 100, 5)[0] if sets == 1 else x[:100]  # the last of them, too
    x[7] = torch.nan  # of no number: some centre, and no error
    labels, _ = nearest(x, centers)
    sound = torch.arange(700) != 7
    assert labels[:, sound].equal(truth(x[sound], centers).argmin(2))


def test_rows_have_sets_of_their_own_without_kernels():
    x, centers = torch.randn(2, 30, 3), torch.randn(2, 4, 3)
    labels, _ = nearest(x, centers)
    assert labels.equal(truth(x, centers).argmin(2))
    sums, counts = member_sums(x, labels, 4)
    wanted, number = members(x, labels, 4)
    torch.testing.assert_close(sums.double(), wanted, rtol=1e-5, atol=1e-5)
    assert counts.equal(number)


def test_nearest_goes_through_the_cache_in_parts(monkeypatch):
    x, centers = torch.randn(300, 3), torch.randn(5, 3)
    whole, distances = nearest(x, centers)
    monkeypatch.setattr(module, "SCORES_AT_ONCE", 1)
    assert nearest(x, centers)[0].equal(whole)
    torch.testing.assert_close(nearest(x, centers)[1], distances)


@pytest.mark.gpu
def test_lloyd_ends_alike_on_both_devices_and_for_rows_that_stay_in_the_host(monkeypatch):
    x = torch.randn(5000, 20) + 4 * torch.randn(8, 20)[torch.randint(8, (5000,))]
    start = x[:8].clone()
    expected = lloyd(x, start)
    monkeypatch.setattr(sys.modules["diffclust.nn.kmeans"], "COPIED_AT_ONCE", 20 * 700)
    for rows in (x.cuda(), x, x.pin_memory()):
        found = lloyd(rows, start.cuda())
        assert found.labels.cpu().equal(expected.labels)
        torch.testing.assert_close(found.centers.cpu(), expected.centers, rtol=1e-4, atol=1e-4)
        assert found.inertia == pytest.approx(expected.inertia, rel=1e-5)
