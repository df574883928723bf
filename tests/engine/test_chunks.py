"""How many rows are computed at a time: what suits the network's widest layer. A row's answer does not depend on it."""

import numpy as np
import pytest
import torch

from diffclust import TELL
from diffclust.engine.data import Data
from diffclust.engine.rows import TensorRows
from diffclust.nn.autoencoders import ConvAutoencoder, DenseAutoencoder, Identity, RowAutoencoder

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
    monkeypatch.setattr("diffclust.engine.data.CHUNKS", {"cpu": (1, 64, 64)})
    assert (model.predict(X) == labels).all()
    np.testing.assert_allclose(model.transform(X), embedding, atol=1e-5)
