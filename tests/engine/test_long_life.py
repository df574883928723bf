"""Nothing piles up in a process that fits again and again; `benchmarks/long_life.py` is the long form."""

import gc
import os
import threading

import pytest
import torch

import diffclust
from conftest import quick_settings, two_methods

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def counts():
    gc.collect()
    tensors = sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())
    files = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    return {"tensors": tensors, "threads": threading.active_count(), "files": files}


@two_methods
def test_fits_leave_nothing_behind(method, blobs, tmp_path):
    X = blobs[0][:60].astype("float32")
    settings = {**quick_settings(method.__name__), "network": "dense", "pretrain_epochs": 1, "epochs": 1}

    def live(fits):
        for _ in range(fits):
            model = method(3, **settings, checkpoint=tmp_path / "state").fit(X)
            model.save(tmp_path / "model")
            diffclust.load(tmp_path / "model").explain(X[:2])
        if hasattr(model, "partial_fit"):
            for i in range(20):
                model.partial_fit(X[i : i + 8], learn_network=i % 10 == 0)

    live(2)  # what is imported and cached once
    before = counts()
    live(3)
    assert counts() == before
