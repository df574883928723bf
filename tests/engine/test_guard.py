"""Clusters that die are noticed, and undone."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from diffclust import TELL, CrossMetric, KMeansNet, VaDE
from diffclust.engine.data import Data
from diffclust.engine.guard import Guard
from diffclust.engine.model import Trainable
from diffclust.engine.rows import TensorRows

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
GUARDED = {VaDE: {}, CrossMetric: {"tolerance": 0}}
REPAIRED = "Clusters began to die"


@pytest.fixture(params=GUARDED, ids=lambda method: method.__name__)
def quick(request):
    settings = {"network": "identity", "epochs": 6, "random_state": 0, "device": "cpu", **GUARDED[request.param]}
    return lambda **changes: request.param(3, **{**settings, **changes})


class Counter(Trainable):
    def __init__(self):
        super().__init__()
        self.register_buffer("value", torch.zeros(()))

    def loss(self, batch):
        return {}


def test_sound_is_by_the_entropy_of_the_sizes():
    model = Counter()
    guard = Guard(model)
    assert guard.check(torch.tensor([10, 10, 10, 10]))
    assert guard.first == pytest.approx(4)
    model.value.fill_(1)
    shares = np.array([13, 12, 12, 3]) / 40
    assert np.exp(-(shares * np.log(shares)).sum()) > 3.2  # 0.8 of 4
    assert guard.check(torch.tensor([13, 12, 12, 3]))
    model.value.fill_(2)
    assert not guard.check(torch.tensor([20, 19, 1, 0]))
    assert not model.finished
    guard.restore(7)
    assert (model.value, model.finished) == (1, True)
    assert [(report.kind, "epoch 7" in report.message) for report in model.events] == [("collapse", True)]


def test_dying_clusters_are_undone(quick, blobs):
    model = quick(epochs=1).fit(blobs[0]).model_
    data = Data(TensorRows(torch.from_numpy(blobs[0]).float()), torch.device("cpu"), 50)
    model.events, model.guard = [], Guard(model)
    model.before_training(data)
    sound = model.clusters.weight.detach().clone()
    with torch.no_grad():
        model.clusters.weight[1:] += 1e3
    model.after_epoch(0, data)
    assert model.finished
    assert (model.clusters.weight == sound).all()
    model.after_training(data)
    assert [report.kind for report in model.events] == ["collapse"]  # and nothing that it had settled
    assert not model.guard.state


def test_it_survives_a_kill(quick, blobs, tmp_path):
    class Killed(Exception):
        pass

    whole = quick().fit(blobs[0])
    armed = [True]

    def kill(progress):
        if armed and (progress.phase, progress.epoch) == ("clustering", 3):
            armed.clear()
            raise Killed

    model = quick(checkpoint=tmp_path, checkpoint_every=1, callbacks=[kill])
    with pytest.raises(Killed):
        model.fit(blobs[0])
    model.fit(blobs[0])
    assert model.history_ == whole.history_
    assert (model.transform(blobs[0]) == whole.transform(blobs[0])).all()


def test_what_dies_without_it(digits):
    """The target detached: everything runs away from the centres."""
    settings = {"metric": "cosine", "detach": "target", "lr": 0.1, "tolerance": 0, "network": "dense"}
    settings |= {"pretrain_epochs": 5, "epochs": 8, "random_state": 0, "device": "cpu", "batch_size": 32}
    left = CrossMetric(4, **settings, repair=False).fit(digits[0])
    assert left.diagnostics_["effective_clusters"] < 2
    with pytest.warns(ConvergenceWarning, match=REPAIRED):
        kept = CrossMetric(4, **settings).fit(digits[0])
    assert kept.diagnostics_["effective_clusters"] > 3
    assert len(kept.history_) < len(left.history_)


def test_a_collapse_is_reported_to_the_user(blobs):
    with pytest.warns(ConvergenceWarning, match=f"{REPAIRED}|Collapse|empty|not finite"):
        VaDE(3, features="reconstruction", pretrain_epochs=5, epochs=30, lr=3.0, random_state=0).fit(blobs[0])


class Astray(torch.nn.Module):
    """A network that has diverged."""

    def __init__(self):
        super().__init__()
        self.layer, self.back = torch.nn.Linear(6, 2), torch.nn.Linear(2, 6)

    def encode(self, x):
        return self.layer(x) + (torch.nan if not self.training else 0)

    def decode(self, z):
        return self.back(z)


def test_what_a_network_makes_of_rows_is_not_said_of_the_rows(blobs):
    model = KMeansNet(3, joint=False, network=Astray(), pretrain_epochs=1, epochs=1, device="cpu")
    with pytest.raises(ValueError, match="Training diverged: the network's embedding is not finite, first in row 0"):
        model.fit(blobs[0])


def test_a_few_rows_far_out_are_no_collapse():
    rng = np.random.default_rng(0)
    X = np.concatenate([0.1 * rng.normal(size=(2000, 4)), 50 + 0.1 * rng.normal(size=(2, 4))])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = TELL(2, network="identity", random_state=0, epochs=3, device="cpu").fit(X)
    assert sorted(model.diagnostics_["sizes"]) == [2, 2000]
    assert not model.diagnostics_["collapsed"]
