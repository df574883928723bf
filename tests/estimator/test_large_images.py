"""Convolutions see large images smaller; everything else has them in their own size."""

import numpy as np
import pytest

import diffclust
from conftest import SEED
from diffclust import TELL
from diffclust.estimator.networks import shrink

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def images():
    """Noisy squares on the left or on the right of images of 52x70 pixels in colour."""
    generator = np.random.default_rng(SEED)
    X = generator.integers(0, 60, (40, 52, 70, 3), dtype=np.uint8)
    X[:20, 10:40, 5:30] += 150
    X[20:, 10:40, 40:65] += 150
    return X


@pytest.fixture(scope="module")
def model(images):
    return TELL(2, network="conv", pretrain_epochs=2, epochs=2, device="cpu", random_state=0).fit(images)


@pytest.mark.parametrize(
    ("size", "times"), [((8, 8), 1), ((28, 28), 1), ((32, 32), 1), ((47, 200), 1), ((64, 64), 2), ((130, 96), 3)]
)
def test_how_many_times_smaller(size, times):
    assert shrink((3, *size)) == times


def test_the_fitted_model_has_images_of_their_own_size(model, images):
    assert model.model_.autoencoder.seen == (3, 26, 35)
    assert (model.predict(images) == model.labels_).all()
    assert model.inverse_transform(model.cluster_centers_).shape == (2, 52, 70, 3)
    found = model.explain(images[:1])[0].to_dict()
    assert sum(found["contributions"]) + found["bias"] == pytest.approx(found["margin"])


def test_it_is_saved_with_the_model(model, images, tmp_path):
    model.save(tmp_path / "m")
    again = diffclust.load(tmp_path / "m")
    assert (again.predict_proba(images) == model.predict_proba(images)).all()
