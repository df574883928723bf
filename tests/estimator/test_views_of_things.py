"""Images that are views of the same things, as frames of films are: they learn by neighbours."""

import numpy as np
import pytest
import torch

import diffclust
from conftest import SEED
from diffclust import TELL, metrics
from diffclust.engine.rows import TensorRows
from diffclust.estimator import n_clusters
from diffclust.estimator.networks import are_views
from diffclust.nn.autoencoders import ConvAutoencoder, RowAutoencoder
from diffclust.nn.autoencoders.rows import ScaledRows

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SHORT = {"pretrain_epochs": 2, "epochs": 2, "device": "cpu", "random_state": 0}


def as_rows(images):
    x = torch.as_tensor(np.array(images))
    return TensorRows(x[:, None] if x.ndim == 3 else x.permute(0, 3, 1, 2))


@pytest.fixture(scope="module")
def fitted(views):
    return TELL(5, device="cpu", random_state=0).fit(views[0])


def test_who_is_told_to_be_a_view(views, digits):
    images = views[0]
    generator = np.random.default_rng(0)
    assert are_views(as_rows(images))
    assert are_views(as_rows(images.astype(np.float32) * 1e-3 + 5))  # in any units
    assert are_views(as_rows(np.clip(images + generator.normal(0, 4, images.shape), 0, 255)))
    assert are_views(as_rows(images.repeat(4, 1).repeat(4, 2)))  # of any size
    assert are_views(as_rows(np.stack([images, images // 2, 255 - images], 3)))
    assert not are_views(as_rows(digits[0]))
    assert not are_views(as_rows(generator.random((150, 8, 8))))
    assert not are_views(as_rows(np.ones((150, 8, 8))))
    assert not are_views(as_rows(images[:99]))
    assert not are_views(as_rows(np.full((150, 8, 8), np.nan)))


def test_things_are_found_from_all_sides(fitted, views):
    """k-means on the pixels has 0.4 to 0.8, from seed to seed."""
    assert "neighbours" in fitted.history_[0]
    assert metrics.accuracy(views[1], fitted.labels_) > (0.8 if SEED else 0.95)


@pytest.mark.parametrize(
    ("settings", "network"),
    [
        ({}, (RowAutoencoder, ScaledRows)),
        ({"augment": 0.5}, (RowAutoencoder, ScaledRows)),
        ({"features": "reconstruction"}, ConvAutoencoder),
        ({"network": "conv"}, ConvAutoencoder),
    ],
)
def test_a_chosen_way_is_taken(views, settings, network):
    model = TELL(5, **SHORT, **settings).fit(views[0])
    assert isinstance(model.model_.autoencoder, network)
    assert ("neighbours" in model.history_[0]) is (network is not ConvAutoencoder)


def test_few_neighbours_count(views, monkeypatch):
    """Of 24 views of a thing, as many neighbours as rows have would be all sides at once."""
    seen = []
    keep = diffclust.estimator.restarts.NeighbourGraph.of
    monkeypatch.setattr(
        diffclust.estimator.restarts.NeighbourGraph, "of", lambda *given: seen.append(given[1]) or keep(*given)
    )
    TELL(5, **SHORT).fit(views[0])
    TELL(5, **SHORT).fit(views[0].reshape(120, -1))
    assert seen == [4, 12]  # of rows, half of those in a cluster


def test_pictures_of_centres(fitted, views):
    images, _ = views
    decoded = fitted.inverse_transform(fitted.cluster_centers_)
    assert decoded.shape == (5, 10, 12)
    means = np.stack([images[fitted.labels_ == j].mean(0) for j in range(5)]) / 255
    assert np.abs(decoded - means).mean() < 0.1


def test_one_answer_for_integers_and_numbers(fitted, views):
    images, _ = views
    assert (fitted.predict(images) == fitted.labels_).all()
    assert (fitted.predict((images / 255).astype(np.float32)) == fitted.labels_).all()
    assert np.allclose(fitted.transform(images), fitted.transform(images / 255.0), atol=1e-3)


def test_a_file_and_a_program(fitted, views, tmp_path):
    images, _ = views
    fitted.save(tmp_path / "kept")
    again = diffclust.load(tmp_path / "kept")
    assert (again.predict(images) == fitted.labels_).all()
    assert again.inverse_transform(again.cluster_centers_).shape == (5, 10, 12)
    labels, _ = fitted.export_program().module()(torch.from_numpy(images.astype(np.float32)))
    assert (labels.numpy() == fitted.labels_).all()


def test_explanations_and_a_report(fitted, views, tmp_path, little_training):
    images, _ = views
    for explanation in fitted.explain(images[:2]):
        assert explanation.attributions.shape == (10, 12)
        assert np.isfinite(explanation.attributions).all()
    fitted.report(tmp_path / "page.html", X=images)
    assert "data:image" in (tmp_path / "page.html").read_text()


def test_a_stream_goes_on(views):
    images, _ = views
    model = TELL(5, **SHORT, features="neighbours").fit(images)
    model.partial_fit(images[:30])
    model.partial_fit(images[30:60], learn_network=True)
    assert model.predict(images).shape == (120,)


def test_both_parts_are_seen_as_the_whole_is(views, monkeypatch):
    """Of views each network leaves out other ones, a sixth; of rows, one half each."""
    built = []
    keep = n_clusters.build_restarts
    monkeypatch.setattr(
        n_clusters, "build_restarts", lambda *given, **more: built.append(keep(*given, **more)) or built[-1]
    )
    TELL("auto", max_clusters=8, **SHORT).fit(views[0])
    assert [restarts[0].data.graph is not None for restarts in built] == [True, True]
    first, second = ({x.numpy().tobytes() for x in each.data.map(lambda rows: rows)} for [each] in built)
    images = {x.tobytes() for x in (views[0] / np.float32(255))}
    assert len(first) == len(second) == len(images) * 5 // 6
    assert first | second == images
    del built[:]
    TELL("auto", max_clusters=8, **SHORT).fit(views[0].reshape(120, -1))
    assert [len(each.data) for [each] in built] == [60, 60]
