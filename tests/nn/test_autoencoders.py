import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from diffclust.nn import ConvAutoencoder, DenseAutoencoder, Identity, PoolingAutoencoder
from diffclust.nn.autoencoders import NETWORKS, Wrapped
from diffclust.nn.autoencoders.rows import fast_asinh

IMAGES = [(1, 4, 4), (1, 5, 7), (1, 8, 8), (1, 15, 15), (1, 28, 28), (3, 32, 32)]
SMALL = {
    "dense": {"hidden": (8, 6)},
    "conv": {"hidden": 8},
    "conv-pool": {"hidden": 8},
    "residual": {"maps": (4, 6, 8)},
}


def small(kind, shape, **options):
    return NETWORKS[kind](shape, 3, **{**SMALL.get(kind, {}), **options}).eval()


def linears(network):
    return [layer for layer in network if isinstance(layer, nn.Linear)]


def n_parameters(network):
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize("kind", sorted(NETWORKS))
@pytest.mark.parametrize("shape", IMAGES)
def test_images_go_in_and_come_back_in_their_own_shape(kind, shape):
    network, x = small(kind, shape), torch.rand(2, *shape)
    z = network.encode(x)
    assert z.shape == (2, network.embedding_dim)
    assert network.decode(z).shape == x.shape
    torch.testing.assert_close(network.reconstruction_loss(x, z), F.mse_loss(network.decode(z), x))


CONVOLUTIONAL = ["conv", "conv-pool", "residual"]


@pytest.mark.parametrize("kind", CONVOLUTIONAL)
@pytest.mark.parametrize(("shape", "shrink"), [((3, 16, 16), 2), ((1, 17, 23), 2), ((1, 13, 20), 3)])
def test_convolutions_see_the_means_of_squares(kind, shape, shrink):
    network, x = small(kind, shape, shrink=shrink), torch.rand(2, *shape)
    assert network.decode(network.encode(x)).shape == x.shape
    _, h, w = shape
    means = torch.stack([
        torch.stack([x[..., i : i + shrink, j : j + shrink].mean((2, 3)) for j in range(0, w, shrink)], -1)
        for i in range(0, h, shrink)
    ], -2)  # fmt: skip
    plain = small(kind, tuple(means.shape[1:]))
    plain.load_state_dict(dict(zip(plain.state_dict(), network.state_dict().values(), strict=True)))
    torch.testing.assert_close(network.encode(x), plain.encode(means))


@pytest.mark.parametrize("kind", ["dense", "identity"])
def test_rows_go_in_and_come_back(kind):
    network, x = small(kind, (7,)), torch.randn(5, 7)
    z = network.encode(x)
    assert z.shape == (5, 7 if kind == "identity" else 3)
    assert network.decode(z).shape == x.shape


@pytest.mark.parametrize("kind", CONVOLUTIONAL)
@pytest.mark.parametrize(("shape", "size"), [((1, 3, 3), "3x3"), ((3, 9, 2), "9x2")])
def test_an_image_too_small_is_refused_with_its_size(kind, shape, size):
    with pytest.raises(ValueError, match=f"{size} are too small for the {kind} network: it needs 4x4"):
        small(kind, shape)


@pytest.mark.parametrize("kind", CONVOLUTIONAL)
def test_convolutions_refuse_rows(kind):
    with pytest.raises(ValueError, match=rf"{kind} network needs images .* not rows of \(10,\)"):
        small(kind, (10,))


LINEAR = {"dictionary", "conv-dictionary", "rows", "scaled"}  # at their output, whatever is asked


@pytest.mark.parametrize("kind", sorted(set(NETWORKS) - LINEAR))
def test_sigmoid_output_stays_in_range(kind):
    network = small(kind, (1, 6, 6), output="sigmoid")
    z = 50 * torch.randn(20, network.embedding_dim)
    assert network.decode(z).min() >= 0
    assert network.decode(z).max() <= 1
    network.set_units(torch.tensor(-3.0), torch.tensor(10.0))
    assert network.decode(z).min() >= -3
    assert network.decode(z).max() <= 7


@pytest.mark.parametrize("kind", sorted(NETWORKS))
@pytest.mark.parametrize("units", [(), (1, 6, 6)], ids=["one number", "one a feature"])
def test_units_are_undone_by_decode_and_kept_out_of_the_loss(kind, units):
    shape = (1, 6, 6)
    shift, scale = 4 + torch.rand(units), 50 + torch.rand(units)
    plain, network = small(kind, shape), small(kind, shape)
    network.load_state_dict(plain.state_dict())
    network.set_units(shift, scale)
    x = torch.randn(8, *shape)
    z = plain.encode(x)
    in_units = x * scale + shift
    torch.testing.assert_close(network.encode(in_units), z, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(network.decode(z), plain.decode(z) * scale + shift)
    loss, expected = network.reconstruction_loss(in_units, z), plain.reconstruction_loss(x, z)
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", sorted(NETWORKS))
@pytest.mark.parametrize("output", ["linear", "sigmoid"])
def test_config_builds_the_network_again(kind, output):
    network = small(kind, (2, 5, 7), output=output)
    network.set_units(torch.tensor(0.3), torch.tensor(2.0))
    again = type(network)(**json.loads(json.dumps(network.config))).eval()
    again.load_state_dict(network.state_dict())
    x = torch.rand(4, 2, 5, 7)
    z = network.encode(x)
    assert again.encode(x).equal(z)
    assert again.decode(z).equal(network.decode(z))
    assert again.config == network.config


def test_config_remembers_dropout_and_bottleneck():
    network = DenseAutoencoder((6,), 3, hidden=(8,), dropout=0.4, bottleneck="sigmoid")
    assert str(DenseAutoencoder(**network.config)) == str(network)
    pooling = PoolingAutoencoder((1, 4, 4), 3, hidden=8, bottleneck="linear")
    assert str(PoolingAutoencoder(**pooling.config)) == str(pooling)


def test_units_of_each_feature_travel_with_the_weights():
    network = small("dense", (3,))
    network.set_units(torch.tensor([1.0, 2.0, 3.0]), torch.tensor(2.0))
    state = network.state_dict()
    again = DenseAutoencoder(**network.config).eval()
    again.set_units(state["shift"], state["scale"])
    again.load_state_dict(state)
    x = torch.randn(4, 3)
    assert again.encode(x).equal(network.encode(x))


@pytest.mark.full_size
def test_dense_has_the_papers_widths():
    network = DenseAutoencoder((784,))
    assert [layer.out_features for layer in linears(network.encoder)] == [500, 500, 2000, 10]
    assert [layer.out_features for layer in linears(network.decoder)] == [2000, 500, 500, 784]
    assert n_parameters(network.encoder) == 1_665_010
    assert n_parameters(network.decoder) == 1_665_784


@pytest.mark.parametrize("at", ["inputs", "hidden", "outputs"])
def test_where_dropout_stands(at):
    network = DenseAutoencoder((6,), 3, hidden=(8, 8), dropout=0.2, dropout_at=at, bottleneck="sigmoid")
    kinds = [type(layer).__name__ for layer in network.encoder]
    inside = ["Linear", "ReLU", "Dropout", "Linear", "ReLU", "Dropout", "Linear", "Sigmoid"]
    before, after = ["Dropout"] * (at == "inputs"), ["Dropout"] * (at == "outputs")
    assert kinds == ["Flatten", *before, *inside, *after]
    assert not any(isinstance(layer, nn.Dropout) for layer in network.decoder)
    assert str(DenseAutoencoder(**network.config)) == str(network)


@pytest.mark.full_size
@pytest.mark.parametrize(("shape", "flat"), [((1, 28, 28), 784), ((3, 32, 32), 1024)])
def test_conv_has_the_papers_widths(shape, flat):
    network = ConvAutoencoder(shape)
    convolutions = [layer for layer in network.encoder if isinstance(layer, nn.Conv2d)]
    assert [layer.out_channels for layer in convolutions] == [16, 32, 32, 16]
    assert [layer.stride for layer in convolutions] == [(1, 1), (2, 2), (1, 1), (2, 2)]
    assert [(layer.in_features, layer.out_features) for layer in linears(network.encoder)] == [
        (flat, 256),
        (256, 10),
    ]
    ups = [layer for layer in network.decoder if isinstance(layer, nn.ConvTranspose2d)]
    assert [layer.out_channels for layer in ups] == [32, 32, 16, shape[0]]


@pytest.mark.full_size
def test_conv_pool_has_the_papers_widths_and_a_sigmoid_bottleneck():
    network = PoolingAutoencoder((1, 28, 28))
    convolutions = [layer for layer in network.encoder if isinstance(layer, nn.Conv2d)]
    assert [(layer.out_channels, layer.kernel_size) for layer in convolutions] == [(64, (5, 5)), (32, (5, 5))]
    assert [layer.out_features for layer in linears(network.encoder)] == [1024, 10]
    assert isinstance(network.encoder[-1], nn.Sigmoid)


@pytest.mark.parametrize(
    ("kind", "options", "can"),
    [
        ("dense", {}, True),
        ("conv", {}, True),
        ("conv-pool", {"bottleneck": "linear"}, True),
        ("conv-pool", {}, False),  # a sigmoid
        ("dense", {"variational": True}, False),
        ("identity", {}, False),
    ],
)
def test_embeddings_can_be_made_larger_behind_a_linear_bottleneck(kind, options, can):
    network, x = small(kind, (1, 8, 8), **options), torch.rand(5, 1, 8, 8)
    z = network.encode(x)
    seen = network.decode(z)
    assert network.magnify(3.0) == can
    torch.testing.assert_close(network.encode(x), 3 * z if can else z)
    torch.testing.assert_close(network.decode(network.encode(x)), seen)


def test_identity_gives_back_what_it_was_given():
    network, x = Identity((2, 3, 4)), torch.randn(5, 2, 3, 4)
    assert network.encode(x).equal(x.flatten(1))
    assert network.decode(network.encode(x)).equal(x)
    assert n_parameters(network) == 0


def test_a_wrapped_module_sees_the_values_as_they_are():
    class Halving(nn.Module):
        def encode(self, x):
            return x[:, :1] / 2

        def decode(self, z):
            return (2 * z).expand(-1, 2)

    network = Wrapped(Halving(), (2,), 1)
    x = torch.tensor([[4.0, 6.0], [1.0, 1.0]])
    z = network.encode(x)
    assert z.tolist() == [[2], [0.5]]
    assert network.decode(z).tolist() == [[4, 4], [1, 1]]
    assert network.reconstruction_loss(x, z).item() == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["dense", "conv", "conv-pool"])
def test_training_lowers_the_reconstruction_loss(kind):
    network = small(kind, (1, 5, 7)).train()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    x, losses = torch.rand(16, 1, 5, 7), []
    for _ in range(30):
        optimizer.zero_grad()
        losses.append(network.reconstruction_loss(x, network.encode(x)))
        losses[-1].backward()
        optimizer.step()
    assert all(parameter.grad is not None for parameter in network.parameters())
    assert losses[-1] < 0.8 * losses[0]


def test_the_fast_asinh_is_asinh():
    x = torch.tensor([0.0, 1e-30, 9e-4, 1.1e-3, 0.5, 3.0, 1e6, 1e17], dtype=torch.float64)
    x = torch.cat([x, -x]).requires_grad_()
    torch.testing.assert_close(fast_asinh(x), x.asinh(), rtol=1e-6, atol=0)
    for fn in (fast_asinh, torch.asinh):
        x.grad = None
        fn(x).sum().backward()
        torch.testing.assert_close(x.grad, 1 / (1 + x.detach().square()).sqrt(), rtol=1e-6, atol=0)
    assert fast_asinh(torch.tensor([3e38, -3e38])).isfinite().all()


def test_samples_are_encoded_once_while_the_network_trains():
    network, x = small("rows", (6,)).train(), torch.randn(5, 6)
    passes = []
    network.encoder.register_forward_hook(lambda *_: passes.append(1))
    with network.once():
        z = network.encode(x)
        assert network.encode(x) is z
        assert network.encode(x.clone()) is not z
        with torch.no_grad():
            assert not network.encode(x).requires_grad
        assert network.eval().encode(x) is not z
    network.train()
    assert network.encode(x) is not z
    assert len(passes) == 5


def test_samples_given_together_are_encoded_as_one_batch():
    network, x, y = small("rows", (6,)).train(), torch.randn(5, 6), torch.randn(3, 6)
    whole = network.encode(torch.cat([x, y]))  # batch norm goes by all eight rows
    passes = []
    network.encoder.register_forward_hook(lambda *_: passes.append(1))
    with network.once(x, y):
        torch.testing.assert_close(torch.cat([network.encode(x), network.encode(y)]), whole)
        network.encode(x).sum().backward()
    assert len(passes) == 1
    assert all(weight.grad is not None for weight in network.encoder.parameters())
