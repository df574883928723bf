"""How many rows are computed at a time: what suits the network's widest layer. A row's answer does not depend on it."""

import numpy as np
import pytest
import torch

from diffclust import TELL
from diffclust.engine.data import Data
from diffclust.engine.rows import TensorRows
from diffclust.nn.autoencoders import ConvAutoencoder, DenseAutoencoder, Identity, RowAutoencoder, Wrapped

CPU = torch.device("cpu")


def rows_at_once(network, n_clusters=10):
    data = Data(TensorRows(torch.zeros(300, *network.input_shape)), CPU)
    data.fit_chunks_to(TELL(n_clusters).build_model(network, 300))
    return data.chunk


@pytest.mark.parametrize(
    ("network", "widest"),
    [
        (Identity((10,)), 10),
        (RowAutoencoder((5,)), 128),
        (DenseAutoencoder((784,), 10, hidden=(500, 2000)), 2000),
        (ConvAutoencoder((1, 28, 28), 10, "sigmoid"), 16 * 28 * 28),
        (ConvAutoencoder((3, 64, 64), 10, "sigmoid", shrink=2), 16 * 32 * 32),
    ],
)
def test_the_widest_layer(network, widest):
    assert network.widest == widest


def test_wide_layers_have_few_rows_at_once():
    assert rows_at_once(Identity((10,))) == 2**15  # no more than that
    assert rows_at_once(Identity((10,)), n_clusters=256) == 2**12
    assert rows_at_once(DenseAutoencoder((784,), 10, hidden=(500, 2000))) == 512
    assert rows_at_once(ConvAutoencoder((1, 28, 28), 10, "sigmoid")) == 256  # no fewer than that


def test_answers_do_not_depend_on_the_chunks(monkeypatch):
    X = np.random.default_rng(0).normal(size=(700, 5)).astype(np.float32)
    model = TELL(4, epochs=2, pretrain_epochs=2, random_state=0, device="cpu").fit(X)
    labels, embedding = model.predict(X), model.transform(X)
    monkeypatch.setattr("diffclust.engine.data.CHUNKS_OF_OURS", (1, 64, 64))
    assert (model.predict(X) == labels).all()
    np.testing.assert_allclose(model.transform(X), embedding, atol=1e-5)


@pytest.fixture
def seen(monkeypatch):
    """The numbers of rows that were computed at a time."""
    found, parts = set(), Data.parts

    def watched(self, *arguments, **options):
        found.add(self.chunk)
        return parts(self, *arguments, **options)

    monkeypatch.setattr(Data, "parts", watched)
    return found


def test_fits_and_predictions_use_them(seen):
    images = np.random.default_rng(0).random((300, 28, 28)).astype(np.float32)
    model = TELL(3, epochs=1, pretrain_epochs=1, random_state=0, device="cpu", network="conv")
    model.fit(images)
    assert 256 in seen
    for ask in (
        model.predict,
        model.transform,
        lambda X: model.inverse_transform(model.cluster_centers_.repeat(100, 0)),
    ):
        seen.clear()
        ask(images)
        assert seen == {256}


def test_of_other_networks_nothing_is_known(seen):
    """They keep the few rows at a time that suit rows of so many values."""
    network = Wrapped(torch.nn.Identity(), (10,), 10)
    assert rows_at_once(network) == 8192
    assert rows_at_once(Wrapped(torch.nn.Identity(), (10_000,), 10)) == 256
