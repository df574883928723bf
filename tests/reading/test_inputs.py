"""The same values mean the same, whatever they come in; what single precision cannot hold is said."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs
from torch.utils.data import Dataset, IterableDataset

from diffclust import TELL, fit_together

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SHORT = {"pretrain_epochs": 2, "epochs": 2, "random_state": 0, "device": "cpu"}


class Items(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class Stream(IterableDataset):
    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(self.items)


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
    with pytest.raises(ValueError, match=r"divided by 255; these are no integers and reach"):
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


@pytest.fixture
def blobs_at():
    def build(offset, columns=slice(None)):
        X = make_blobs(200, n_features=4, centers=3, cluster_std=0.6, random_state=0)[0]
        X[:, columns] += offset
        return X

    return build


@pytest.mark.parametrize(("offset", "columns", "network", "said"), [
    (1e8, slice(2, 3), "auto", "Column 2 is .* times its spread away from zero"),
    (1e8, slice(None), "identity", "times its spread away from zero"),
    (1e5, slice(None), "identity", "The rows are .* times their spread away from zero"),
])  # fmt: skip
def test_rows_too_far_from_zero_for_single_precision(blobs_at, offset, columns, network, said):
    with pytest.warns(UserWarning, match=said):
        TELL(3, network=network, **SHORT).fit(blobs_at(offset, columns))


@pytest.mark.parametrize(("offset", "network"), [(0, "identity"), (100, "identity"), (1e3, "auto"), (0, "auto")])
def test_ordinary_rows_are_nothing_to_speak_of(blobs_at, offset, network):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", category=Warning, module="sklearn")
        TELL(3, network=network, **SHORT).fit(blobs_at(offset))
        rows = np.hstack([blobs_at(0), np.full((200, 1), 7.0)])  # a constant column has no spread to lose
        fit_together([TELL(3, network=network, **SHORT)], rows)
