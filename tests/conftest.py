import os
from dataclasses import fields

import pytest
import torch
from sklearn.datasets import load_digits, make_blobs

import diffclust
from diffclust.engine.accelerate.capture import Steps
from diffclust.engine.runtime import Randomness
from diffclust.methods import METHODS

torch.set_num_threads(1)
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # kernels run on the CPU then, slowly; read when Triton is first imported

ESTIMATORS = [method.estimator for method in METHODS]
QUICK = {"pretrain_epochs": 3, "epochs": 4, "random_state": 0, "device": "cpu"}
# rules by which a method ends early: off, where tests count epochs
OWN_STOP = {
    "DEC": {"tolerance": 0},
    "IDEC": {"tolerance": 0},
    "CrossMetric": {"tolerance": 0, "repair": False},
    "VaDE": {"repair": False},
}


def train(phases, seeds=(0,), *, capture=None, stack=None):
    """Phases to their ends, side by side, each with the random numbers of its seed; their histories."""
    steps = Steps(phases[0].data.device, capture=capture, stack=stack)
    members = [(phase, Randomness(seed, phase.data.device)) for phase, seed in zip(phases, seeds, strict=True)]
    for phase, randomness in members:
        with randomness.borrowed():
            phase.start()
    while running := [(phase, randomness) for phase, randomness in members if not phase.over]:
        for phase, randomness in running:
            with randomness.borrowed():
                phase.begin_epoch()
        steps.epoch(running)
        for phase, randomness in running:
            with randomness.borrowed():
                phase.end_epoch()
        for phase, randomness in running:
            if phase.over:
                with randomness.borrowed():
                    phase.finish()
    return [phase.history for phase in phases]


def quick_settings(name):
    return {**QUICK, **OWN_STOP.get(name, {})}


def pytest_collection_modifyitems(items):
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(params=ESTIMATORS)
def method(request):
    """Every estimator class in turn."""
    return getattr(diffclust, request.param)


@pytest.fixture
def quick(method):
    """An estimator of every method, with little training; keyword arguments change its settings. A test of a setting
    that a method does not have is skipped for it."""

    def build(n_clusters=3, **settings):
        missing = settings.keys() - {field.name for field in fields(method)}
        if missing:
            pytest.skip(f"{method.__name__} has no {', '.join(missing)}")
        return method(n_clusters, **{**quick_settings(method.__name__), **settings})

    return build


@pytest.fixture(scope="session")
def blobs():
    return make_blobs(150, 6, centers=3, cluster_std=0.5, random_state=3)


@pytest.fixture(scope="session")
def digits():
    data = load_digits(n_class=4)
    return (data.images[:200] / 16).astype("float32"), data.target[:200]
