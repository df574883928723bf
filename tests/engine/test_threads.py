"""Fits in several threads of one process give what they give alone, and nobody waits for ever."""

import os
import signal
import sys
import threading

import numpy as np
import pytest
import torch

import diffclust
from diffclust.engine import rows
from diffclust.engine.runtime import Randomness

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

CPU = torch.device("cpu")


@pytest.fixture
def restless():
    """Threads change places often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(before)


def in_threads(*works):
    errors = []

    def guarded(work):
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=[work], daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not errors


@pytest.mark.parametrize("method", ["TELL", "VaDE"], indirect=True)
def test_fits_give_what_they_give_alone(quick, blobs, restless):
    X = blobs[0]
    alone = [quick(random_state=seed, batch_size=30).fit(X) for seed in range(3)]
    before = torch.get_rng_state()
    beside = [quick(random_state=seed, batch_size=30) for seed in range(3)]
    in_threads(*(lambda model=model: model.fit(X) for model in beside))
    assert torch.equal(torch.get_rng_state(), before)
    for one, other in zip(alone, beside, strict=True):
        assert one.history_ == other.history_
        assert (one.labels_ == other.labels_).all()


def test_loading_beside_a_fit_does_not_disturb_it(blobs, tmp_path, restless):
    def build():
        return diffclust.KMeansNet(3, pretrain_epochs=2, epochs=5, random_state=0, device="cpu", batch_size=16)

    alone = build().fit(blobs[0])
    alone.save(tmp_path / "m")
    model = build()
    in_threads(lambda: model.fit(blobs[0]), lambda: [diffclust.load(tmp_path / "m") for _ in range(15)])
    assert model.history_ == alone.history_


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_gives_the_turn_back(error):
    randomness = Randomness(0, CPU)
    with pytest.raises(error), randomness.borrowed(), Randomness(1, CPU).borrowed():
        raise error

    def work():
        with randomness.borrowed():
            torch.rand(1)

    in_threads(work)


def test_a_generator_that_is_closed_gives_the_turn_back():
    def drawing():
        with Randomness(0, CPU).borrowed():
            yield torch.rand(1)

    before = torch.get_rng_state()
    generator = drawing()
    next(generator)
    generator.close()
    assert torch.equal(torch.get_rng_state(), before)

    def work():
        next(drawing())

    in_threads(work)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_does_not_wait_for_a_thread_it_has_not():
    holds, done = threading.Event(), threading.Event()

    def hold():
        with Randomness(0, CPU).borrowed():
            holds.set()
            done.wait(60)

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    assert holds.wait(60)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        with Randomness(1, CPU).borrowed():
            os._exit(7)
    _, status = os.waitpid(child, 0)
    done.set()
    holder.join(60)
    assert os.WIFEXITED(status)
    assert os.WEXITSTATUS(status) == 7


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_reads_a_memory_map_by_a_thread_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "BLOCK_BYTES", 64)  # so that rows are read ahead, as those of a large map are
    monkeypatch.setattr(rows, "SHUFFLED_BLOCKS", 2)
    X = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", X)

    def fit():
        model = diffclust.TELL(2, network="dense", pretrain_epochs=1, epochs=1, random_state=0, device="cpu")
        return model.fit(np.load(tmp_path / "x.npy", mmap_mode="r")).labels_

    expected = fit()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)
        os._exit(7 if (fit() == expected).all() else 1)
    _, status = os.waitpid(child, 0)
    assert os.WIFEXITED(status)
    assert os.WEXITSTATUS(status) == 7
