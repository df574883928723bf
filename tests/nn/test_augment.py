import pytest
import torch

from diffclust.nn.augment import jitter, photo_jitter


def disc(size, radius):
    across = torch.arange(size) - (size - 1) / 2
    return (across[:, None] ** 2 + across**2 <= radius**2).float()[None, None]


@pytest.mark.parametrize("shape", [(3, 1, 8, 8), (2, 3, 15, 15), (4, 2, 5, 9)])
def test_strength_zero_changes_nothing(shape):
    x = torch.rand(shape)
    torch.testing.assert_close(jitter(x, 0.0), x, rtol=0, atol=1e-5)


@pytest.mark.parametrize("shape", [(3, 1, 8, 8), (2, 3, 15, 15), (4, 2, 5, 9)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shape_and_dtype_are_kept(shape, dtype):
    changed = jitter(torch.rand(shape, dtype=dtype))
    assert changed.shape == shape
    assert changed.dtype == dtype


def test_values_stay_within_the_range_that_came_in():
    x = 5 * torch.randn(50, 3, 12, 12)
    changed = jitter(x)
    assert changed.min() >= x.min() - 1e-5
    assert changed.max() <= x.max() + 1e-5


def test_a_constant_image_stays_constant():
    x = torch.full((20, 1, 9, 9), 0.7)
    torch.testing.assert_close(jitter(x), x)


def test_each_row_gets_a_change_of_its_own_and_its_channels_share_it():
    x = torch.rand(1, 1, 16, 16).expand(6, 2, 16, 16).contiguous()
    changed = jitter(x)
    assert changed[:, 0].equal(changed[:, 1])
    assert torch.pdist(changed[:, 0].flatten(1)).min() > 0.1
    assert (changed - x).flatten(1).norm(dim=1).min() > 0.1


def test_changes_follow_the_global_seed():
    x = torch.rand(4, 1, 10, 10)
    torch.manual_seed(7)
    first, other = jitter(x), jitter(x)
    torch.manual_seed(7)
    assert jitter(x).equal(first)
    assert not first.equal(other)


def test_a_centred_disc_keeps_its_mass_and_about_its_place():
    x = disc(28, 8).expand(500, 1, 28, 28)
    changed = jitter(x)
    mass = changed.sum((1, 2, 3)) / x[0].sum()
    assert mass.min() > 0.7
    assert mass.max() < 1.3
    place = torch.arange(28.0) - 13.5
    for shadow in (changed.sum((1, 2)), changed.sum((1, 3))):
        centroid = (shadow * place).sum(1) / shadow.sum(1)
        assert 1.5 < centroid.abs().max() < 0.12 * 28  # 8 % of the width, times zoom, turn and shear


def test_a_greater_strength_changes_more():
    x = disc(28, 8).expand(200, 1, 28, 28)
    change = [(jitter(x, strength) - x).abs().mean().item() for strength in (0.1, 0.3, 1.0)]
    assert change == sorted(change)
    assert change[2] > 3 * change[0]


def test_photographs_at_strength_zero_are_at_most_mirrored():
    x = torch.rand(8, 3, 6, 5)
    changed = photo_jitter(x, 0.0)
    for image, before in zip(changed, x, strict=True):
        assert min((image - before).abs().max(), (image - before.flip(2)).abs().max()) < 1e-5


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_photographs_keep_shape_type_and_limits(channels, dtype):
    x = torch.rand(16, channels, 8, 8, dtype=dtype)
    changed = photo_jitter(x)
    assert changed.shape == x.shape
    assert changed.dtype == dtype
    assert changed.min() >= x.min()
    assert changed.max() <= x.max()
    assert not torch.equal(changed, photo_jitter(x))


def test_a_photograph_of_one_grey_stays_of_one_grey_and_some_lose_their_colours():
    flat = torch.rand(32, 1, 1, 1).expand(32, 3, 4, 4).contiguous()
    changed = photo_jitter(flat)
    torch.testing.assert_close(changed, changed[:, :1, :1, :1].expand_as(changed), rtol=0, atol=1e-5)
    torch.manual_seed(0)
    changed = photo_jitter(torch.rand(200, 3, 4, 4))
    grey = ((changed - changed[:, :1]).abs().amax((1, 2, 3)) < 1e-6).float().mean()
    assert 0.1 < grey < 0.3
