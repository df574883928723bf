"""`deterministic=True`: torch's switches while a fit runs, and on a GPU the same bits."""

import os

import numpy as np
import pytest
import torch

import diffclust
from diffclust.engine.runtime import CUBLAS_VARIABLE, learning


def switches():
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cudnn.deterministic,
        torch.backends.cudnn.benchmark,
        torch.utils.deterministic.fill_uninitialized_memory,
        os.environ.get(CUBLAS_VARIABLE),
    )


@pytest.fixture
def with_gpu(monkeypatch):
    """As far as the switches are concerned."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


def test_the_switches_are_on_inside_and_as_before_outside(with_gpu, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    before = switches()
    with learning(deterministic=True):
        inside = switches()
        with learning(deterministic=True):
            pass
        assert switches() == inside  # another fit that ends leaves them on
        with learning():
            assert switches() == inside
    assert inside[:5] == (True, False, True, False, False)
    assert inside[5]
    assert switches() == before
    with learning():
        assert switches() == before


def test_what_cannot_be_is_a_clear_error(with_gpu):
    before = switches()
    told = "foo_cuda does not have a deterministic implementation"
    with pytest.raises(RuntimeError, match=f"deterministic=True: {told}"), learning(deterministic=True):
        raise RuntimeError(f"{told}, but you set 'x'. You can ...")
    with pytest.raises(RuntimeError, match="other"), learning(deterministic=True):
        raise RuntimeError("other")
    assert switches() == before


def test_a_fit_on_the_cpu_leaves_the_switches_alone(blobs):
    X = np.asarray(blobs[0], dtype=np.float32)
    before, seen = switches(), []
    settings = {"device": "cpu", "random_state": 0, "pretrain_epochs": 1, "epochs": 1}
    look = [lambda progress: seen.append(switches())]
    exact = diffclust.TELL(3, **settings, deterministic=True, callbacks=look).fit(X)
    usual = diffclust.TELL(3, **settings).fit(X)
    assert exact.get_params()["deterministic"] is True
    assert np.array_equal(exact.cluster_centers_, usual.cluster_centers_)
    if not torch.cuda.is_available():
        assert set(seen) == {before}
    assert switches() == before


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["TELL", "CrossMetric", "SSCNet"])
def test_on_a_gpu_the_same_bits_twice(method, digits):
    X = np.asarray(digits[0], dtype=np.float32)
    settings = {"device": "cuda", "random_state": 0, "epochs": 30, "deterministic": True}
    first, second = (getattr(diffclust, method)(10, **settings).fit(X) for _ in range(2))
    assert np.array_equal(first.labels_, second.labels_)
    for a, b in zip(first.model_.parameters(), second.model_.parameters(), strict=True):
        assert torch.equal(a, b)
