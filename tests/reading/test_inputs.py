"""The same values mean the same, whatever they come in."""

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from conftest import Stream
from diffclust import TELL

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SHORT = {"pretrain_epochs": 2, "epochs": 2, "random_state": 0, "device": "cpu"}


class Items(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


@pytest.fixture
def pictures(digits):
    """(n, 8, 8), whole numbers from 0 to 240."""
    return (digits[0][:120] * (15 if digits[0].max() > 1 else 240)).astype(np.uint8)


def forms(images):
    """The same images in everything that holds images."""
    tensor = torch.from_numpy(images)[:, None]
    return {"array": images, "tensor": tensor, "dataset": Items(tensor), "stream": Stream(tensor)}


@pytest.mark.parametrize("fitted", ["array", "tensor", "dataset", "stream"])
def test_integer_images_are_scaled_in_every_form(pictures, fitted):
    model = TELL(4, **SHORT).fit(forms(pictures)[fitted])
    assert model.image_divisor_ == 255
    expected = model.predict(pictures)
    for asked in forms(pictures).values():
        assert (np.asarray(model.predict(asked)) == expected).all()
    for asked in forms((pictures / 255).astype(np.float32)).values():
        assert (np.asarray(model.predict(asked)) == expected).mean() > 0.98  # to rounding


@pytest.mark.parametrize("form", ["array", "tensor", "dataset", "stream"])
def test_images_that_are_not_in_the_units_of_the_fit_are_refused(pictures, form):
    model = TELL(4, **SHORT).fit(pictures)
    with pytest.raises(ValueError, match=r"divided by 255; these are not integers and reach"):
        model.predict(forms(pictures.astype(np.float32))[form])


@pytest.mark.parametrize("form", ["array", "tensor", "stream"])
def test_integers_mean_what_the_floats_of_the_fit_meant(pictures, form):
    own = pictures // 15  # from 0 to 16
    model = TELL(4, **SHORT).fit(forms(own.astype(np.float32))[form])
    expected = model.predict(own.astype(np.float32))
    assert (np.asarray(model.predict(forms(own)[form])) == expected).all()
    unit = TELL(4, **SHORT).fit(forms((pictures / 255).astype(np.float32))[form])
    expected = unit.predict((pictures / 255).astype(np.float32))
    assert (np.asarray(unit.predict(forms(pictures)[form])) == expected).mean() > 0.98


@pytest.mark.parametrize("kind", ["M8[s]", "m8[s]"])
def test_dates_are_no_numbers(kind):
    X = np.arange(12).reshape(6, 2).astype(kind)
    X[0, 0] = "NaT"
    with pytest.raises(ValueError, match="no numbers: give dates as columns of a DataFrame"):
        TELL(2, **SHORT).fit(X)


def test_a_number_larger_than_any():
    X = np.arange(12.0).reshape(6, 2).astype(object)
    X[2, 1] = 10**400
    with pytest.raises(ValueError, match="too large for float64"):
        TELL(2, **SHORT).fit(X)


@pytest.mark.parametrize("form", [Items, Stream])
@pytest.mark.parametrize("shape", [(6, 2), (6, 1, 8, 8)])
def test_complex_samples_of_a_dataset_are_refused(form, shape):
    with pytest.raises(ValueError, match="Complex data not supported"):
        TELL(2, **SHORT).fit(form(torch.ones(shape, dtype=torch.complex64)))


def test_embeddings_to_decode_are_checked_as_rows_are(blobs):
    model = TELL(3, network="dense", embedding_dim=2, **SHORT).fit(blobs[0])
    Z = np.ones((3, 2))
    Z_too_large = Z.astype(object)
    Z_too_large[1, 1] = 10**400
    with pytest.raises(ValueError, match="Input Z holds a number too large"):
        model.inverse_transform(Z_too_large)
    with pytest.raises(TypeError, match=r"layout torch.sparse_coo is not supported"):
        model.inverse_transform(torch.from_numpy(Z).to_sparse())
    with pytest.raises(ValueError, match="Complex data not supported"):
        model.inverse_transform(torch.ones(3, 2, dtype=torch.complex64))
