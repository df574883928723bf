import pytest
import torch
from sklearn.datasets import load_digits, make_blobs

import diffclust
from diffclust.methods import METHODS

torch.set_num_threads(1)

ESTIMATORS = [method.estimator for method in METHODS]
QUICK = {"pretrain_epochs": 3, "epochs": 4, "random_state": 0, "device": "cpu"}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(params=ESTIMATORS)
def method(request):
    """Every estimator class in turn."""
    return getattr(diffclust, request.param)


@pytest.fixture
def quick(method):
    """An estimator of every method, with little training; keyword arguments change its settings."""
    return lambda n_clusters=3, **settings: method(n_clusters, **{**QUICK, **settings})


@pytest.fixture(scope="session")
def blobs():
    return make_blobs(150, 6, centers=3, cluster_std=0.5, random_state=3)


@pytest.fixture(scope="session")
def digits():
    data = load_digits(n_class=4)
    return (data.images[:200] / 16).astype("float32"), data.target[:200]
