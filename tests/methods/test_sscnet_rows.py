"""SSCNet of rows without subspaces: an encoder by neighbours, k-means pseudo-labels, and k-means as a floor."""

import math

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from diffclust import SSCNet
from diffclust.engine.data import Batch, Data
from diffclust.engine.phase import Phase
from diffclust.engine.rows import TensorRows
from diffclust.estimator import networks
from diffclust.methods.sscnet_rows import NeighbourModel
from diffclust.metrics import accuracy
from diffclust.nn.autoencoders import RowAutoencoder, ScaledRows

CPU = torch.device("cpu")


def blobs(n=90, k=3, d=6, spread=0.4, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % k
    return (4 * np.eye(k, d)[y] + spread * rng.normal(size=(n, d))).astype(np.float32), y


def model_of(kind, X, k=3, **settings):
    data = Data(TensorRows(torch.from_numpy(X)), CPU, len(X))
    estimator = SSCNet(k, **settings)
    model = estimator.build_model(networks.build(kind, data, estimator.embedding_dim, {}), len(X))
    assert isinstance(model, NeighbourModel)
    return model, data


def test_without_a_network_it_is_k_means_on_the_rows():
    X, _ = blobs(spread=1.5)
    model, data = model_of("scaled", X)
    phase = Phase("clustering", model, data, None, epochs=0)
    phase.start()
    phase.finish()
    rows = data.map(model.autoencoder.encode).numpy()
    found = model.eval().answer(torch.from_numpy(X)).label.numpy()
    again = KMeans(3, init=np.stack([rows[found == j].mean(0) for j in range(3)]), n_init=1).fit(rows)
    assert np.array_equal(again.labels_, found)  # where k-means rests
    centers = model.clusters.centers.detach().double()
    torch.testing.assert_close(model.decode(centers), model.autoencoder.double().decode(centers))


def test_pseudo_labels_are_those_of_lloyd_and_keep_their_numbers():
    X, y = blobs()
    model, data = model_of("scaled", X)
    model.before_training(data)
    first = model.pseudo.clone()
    assert accuracy(y, first.numpy()) == 1
    assert torch.equal(model.label(data), first)
    z = data.map(model.represent)
    means = torch.stack([z[first == j].mean(0) for j in range(3)])
    torch.testing.assert_close(model.basis, means, rtol=1e-4, atol=1e-4)


def test_its_loss_by_loops():
    X, _ = blobs(n=12)
    torch.manual_seed(0)
    model, data = model_of("rows", X, weight=0.7, embedding_dim=4)
    model.eval()
    model.before_training(data)
    x, index = torch.from_numpy(X), torch.arange(12)
    with torch.no_grad():
        torch.nn.init.normal_(model.classifier.out.weight)  # so that all of it counts
        found = model.loss(Batch(x, x, index))
        y = model.autoencoder.encode(x)
        c = model.classifier(y)
        error = model.autoencoder.scaled(x) - model.autoencoder.decoded(y)
    centers, alpha = model.clusters.centers.detach(), model.clusters.alpha
    total = 0.0
    for i in range(12):
        squared = [float((c[i] - centers[j]).square().sum()) for j in range(3)]
        logits = [-alpha * s for s in squared]
        largest = max(logits)
        total -= logits[model.pseudo[i]] - largest - math.log(sum(math.exp(v - largest) for v in logits))
    assert found["clustering"].item() == pytest.approx(0.7 * total / 12, rel=1e-4)
    assert found["reconstruction"].item() == pytest.approx(float(error.square().mean()), rel=1e-4)


def test_rows_like_texts_are_found_and_a_row_has_one_answer():
    """Words of three topics, few in each row: sparse, of length one."""
    rng = np.random.default_rng(0)
    y = np.arange(150) % 3
    X = np.zeros((150, 60))
    for i, topic in enumerate(y):
        X[i, rng.choice(20, 5, replace=False) + 20 * topic] = rng.random(5) + 0.5
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    model = SSCNet(3, features="neighbours", pretrain_epochs=60, epochs=8, random_state=0).fit(X)
    assert isinstance(model.model_.autoencoder, RowAutoencoder)
    assert accuracy(y, model.labels_) > 0.97
    assert np.array_equal(model.predict(X[:5]), [model.predict(X[i : i + 1])[0] for i in range(5)])


def test_k_means_is_kept_where_the_network_is_no_better():
    X, y = blobs(n=60, spread=1.0)
    model = SSCNet(3, pretrain_epochs=0, epochs=0, random_state=0).fit(X)  # a network that has learnt nothing
    assert isinstance(model.model_.autoencoder, ScaledRows)
    assert not isinstance(model.model_.autoencoder, RowAutoencoder)
    assert accuracy(y, model.labels_) > 0.9


@pytest.mark.parametrize("settings", [{}, {"pipeline": "references", "network": "dense"}])
def test_views_of_rows_are_refused(settings):
    with pytest.raises(ValueError, match=r"views=1 needs random augmentation"):
        SSCNet(3, views=1.0, **settings).fit(blobs()[0])
