"""Short steps use one CPU thread, and the process has its own number again afterwards."""

import threading

import numpy as np
import pytest
import torch
from torch import nn

from diffclust import TELL
from diffclust.engine.threads import OneThread, has_short_steps, multiply_adds
from diffclust.nn import ConvAutoencoder, DenseAutoencoder
from diffclust.nn.autoencoders import Identity, Wrapped

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture
def two_threads():
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def seen_in(fit, X, **settings):
    """The numbers of threads after each epoch of a fit, and after the fit."""
    seen = []
    settings = {"epochs": 2, "pretrain_epochs": 2, "random_state": 0, "device": "cpu", **settings}
    fit(3, callbacks=[lambda progress: seen.append(torch.get_num_threads())], **settings).fit(X)
    return set(seen), torch.get_num_threads()


def test_multiply_adds_of_linear_layers():
    network = DenseAutoencoder((7,), 3, hidden=(5,))
    assert multiply_adds(network, torch.zeros(1, 7)) == 2 * (7 * 5 + 5 * 3)


def test_multiply_adds_of_convolutions():
    """A convolution has nine taps a pixel of its output, a transposed one nine a pixel of its input."""
    network = ConvAutoencoder((1, 8, 8), 10, "sigmoid", hidden=32)
    pixels = {8: 64, 4: 16, 2: 4}
    down = 9 * (pixels[8] * 1 * 16 + pixels[4] * 16 * 32 + pixels[4] * 32 * 32 + pixels[2] * 32 * 16)
    up = 9 * (pixels[2] * 16 * 32 + pixels[4] * 32 * 32 + pixels[4] * 32 * 16 + pixels[8] * 16 * 1)
    dense = 2 * (64 * 32 + 32 * 10)
    assert multiply_adds(network, torch.zeros(1, 1, 8, 8)) == down + up + dense


def test_counting_leaves_no_trace():
    network = ConvAutoencoder((1, 8, 8), 10, "sigmoid").train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    multiply_adds(network, torch.zeros(1, 1, 8, 8))
    assert network.training
    assert not any(module._forward_hooks for module in network.modules())
    assert all(value.equal(before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize(("shape", "short"), [((1, 14, 14), True), ((1, 28, 28), False)])
def test_large_images_are_worth_all_threads(shape, short):
    assert has_short_steps(ConvAutoencoder(shape, 10, "sigmoid"), shape, 64) is short


def test_of_other_networks_nothing_is_known():
    class Own(nn.Module):
        def encode(self, x):
            raise AssertionError("it was run")

    assert not has_short_steps(Wrapped(Own(), (4,), 2), (4,), 1)
    assert not has_short_steps(nn.Linear(4, 2), (4,), 1)


def test_a_fit_of_rows_trains_on_one_thread(two_threads):
    X = np.random.default_rng(0).normal(size=(60, 4))
    assert seen_in(TELL, X) == ({1}, 2)


def test_a_network_of_the_users_keeps_the_threads(two_threads):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = nn.Linear(4, 2), nn.Linear(2, 4)

        def encode(self, x):
            return self.inner(x)

        def decode(self, z):
            return self.outer(z)

    X = np.random.default_rng(0).normal(size=(60, 4))
    assert seen_in(TELL, X, network=Own()) == ({2}, 2)


def test_an_error_gives_the_threads_back(two_threads):
    def fail(progress):
        raise RuntimeError("of the user")

    X = np.random.default_rng(0).normal(size=(60, 4))
    with pytest.raises(RuntimeError, match="of the user"):
        TELL(3, epochs=2, pretrain_epochs=2, callbacks=[fail], device="cpu").fit(X)
    assert torch.get_num_threads() == 2


def number_in_a_new_thread():
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join(60)
    return seen[0]


def test_other_python_threads_keep_their_number(two_threads):
    """Those that run already, and those that begin inside or later."""
    one, inside, leave, seen = OneThread(), threading.Event(), threading.Event(), []

    def other():
        torch.set_num_threads(3)
        with one:
            seen.append(torch.get_num_threads())
            inside.set()
            leave.wait(60)
        seen.append(torch.get_num_threads())
        torch.set_num_threads(2)

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(60)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(2)
    with one:
        assert torch.get_num_threads() == 1
        assert number_in_a_new_thread() == 2
        leave.set()
        thread.join(60)
    assert seen == [1, 3]
    assert torch.get_num_threads() == number_in_a_new_thread() == 2


def test_a_fit_within_a_fit_ends_with_one_thread(two_threads):
    one = OneThread()
    with one:
        with one:
            pass
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


def test_a_network_of_another_package_is_not_counted():
    class Own(DenseAutoencoder):
        pass

    assert has_short_steps(DenseAutoencoder((4,), 2), (4,), 10)
    assert not has_short_steps(Own((4,), 2), (4,), 10)


def test_torchs_default_type_does_not_matter():
    network = DenseAutoencoder((4,), 2)
    torch.set_default_dtype(torch.float64)
    try:
        assert has_short_steps(network, (4,), 10)
    finally:
        torch.set_default_dtype(torch.float32)


def test_many_centres_are_work():
    model = TELL(1000, network="identity").build_model(Identity((64,)), 5000)
    assert has_short_steps(model, (64,), 256)
    assert not has_short_steps(model, (64,), 4096)
