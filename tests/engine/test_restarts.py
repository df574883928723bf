"""Restarts side by side give what they give alone, and survive what a single one survives."""

import numpy as np
import pytest

from diffclust import TELL, callbacks
from diffclust.callbacks import StopWhenLabelsSettle

pytestmark = [
    # turns of two steps; a target refreshed between steps; a decaying rate and drawn embeddings
    pytest.mark.parametrize("method", ["TELL", "DEC", "VaDE"], indirect=True),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


@pytest.fixture
def together(monkeypatch):
    """Side by side on the CPU too, where it does not pay but can be tested."""
    return lambda: monkeypatch.setattr(callbacks, "PARALLEL_DEVICES", ("cpu", "cuda"))


def same(a, b):
    assert len(a.runs_) == len(b.runs_)
    for one, other in zip(a.runs_, b.runs_, strict=True):
        assert one["seed"] == other["seed"]
        assert one["history"] == other["history"]
        assert (one["labels"] == other["labels"]).all()
    assert (a.labels_ == b.labels_).all()


@pytest.mark.parametrize("settings", [{}, {"network": "dense", "joint": False}, {"network": "dense", "augment": None}])
def test_each_gives_what_it_gives_alone(quick, digits, together, settings):
    settings = {"n_init": 2, **settings}
    alone = quick(4, **settings).fit(digits[0][:64])
    together()
    same(quick(4, **settings).fit(digits[0][:64]), alone)


def test_more_than_fit_at_once_come_in_turns(quick, blobs, together, monkeypatch):
    alone = quick(n_init=3).fit(blobs[0])
    together()
    monkeypatch.setattr(callbacks, "MAX_RUNS_AT_ONCE", 2)
    same(quick(n_init=3).fit(blobs[0]), alone)


class Counting:
    """Stops the first restart after two epochs, the next after three, and so on; counts in a state of its own."""

    def __init__(self):
        self.count = 0

    def __call__(self, progress):
        self.count = 1 if progress.epoch == 0 else self.count + 1
        progress.stop |= self.count == 2 + progress.restart

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


@pytest.mark.parametrize("rule", [Counting, lambda: StopWhenLabelsSettle(0.02, every=1)])
def test_each_stops_when_it_would_alone(quick, digits, together, rule):
    settings = {"n_init": 2, "epochs": 8, "pretrain_epochs": 4, "network": "dense"}
    alone = quick(4, **settings, callbacks=[rule()]).fit(digits[0][:64])
    if rule is Counting:
        assert [len(run["history"]) for run in alone.runs_] == [4, 6]
    together()
    same(quick(4, **settings, callbacks=[rule()]).fit(digits[0][:64]), alone)


def test_a_callback_that_could_mistake_one_for_another_sees_them_in_turn(quick, blobs, together):
    class Recorder:
        def __init__(self):
            self.seen = []

        def __call__(self, progress):
            self.seen.append((progress.restart, progress.phase, progress.epoch))

    together()
    recorder, seen = Recorder(), []
    quick(n_init=2, callbacks=[recorder]).fit(blobs[0])
    assert recorder.seen == sorted(recorder.seen, key=lambda s: s[0])
    quick(n_init=2, callbacks=[lambda p: seen.append((p.restart, p.phase, p.epoch))]).fit(blobs[0])
    assert seen != recorder.seen
    assert sorted(seen) == sorted(recorder.seen)


class Killed(Exception):
    pass


@pytest.fixture(scope="module")
def without_caller_modes():
    """Fits that nothing disturbed, by method and settings."""
    return {}


MOMENTS = [(0, "pretraining", 1), (1, "pretraining", 2), (0, "clustering", 0), (1, "clustering", 2)]


@pytest.mark.parametrize(("joint", "moment"), [*((None, m) for m in MOMENTS), (False, MOMENTS[-1])])
def test_a_kill_at_any_moment(method, quick, digits, together, without_caller_modes, tmp_path, moment, joint):
    if method is not TELL and moment not in MOMENTS[-2:]:
        pytest.skip("moments of pretraining are the engine's business, tried with one method")
    settings = {"network": "dense", "n_init": 2, "pretrain_epochs": 3, "epochs": 4}
    settings |= {} if joint is None else {"joint": joint}
    if (method, joint) not in without_caller_modes:
        without_caller_modes[method, joint] = quick(4, **settings).fit(digits[0][:64])
    together()
    left = [moment]

    def kill(progress):
        if left and (progress.restart, progress.phase, progress.epoch) == left[0]:
            left.clear()
            raise Killed

    model = quick(4, **settings, checkpoint=tmp_path, checkpoint_every=1, callbacks=[kill])
    with pytest.raises(Killed):
        model.fit(digits[0][:64])
    assert list(tmp_path.iterdir())
    same(model.fit(digits[0][:64]), without_caller_modes[method, joint])
    assert not list(tmp_path.iterdir())


def test_ctrl_c_stops_all_and_leaves_a_usable_estimator(quick, digits, together, tmp_path):
    together()

    def interrupt(progress):
        if (progress.restart, progress.phase, progress.epoch) == (1, "clustering", 1):
            raise KeyboardInterrupt

    model = quick(
        4, n_init=3, epochs=50, network="dense", checkpoint=tmp_path, checkpoint_every=1, callbacks=[interrupt]
    )
    model.fit(digits[0][:64])
    assert len(model.runs_) == 3
    assert all(1 <= sum(r["phase"] == "clustering" for r in run["history"]) <= 3 for run in model.runs_)
    assert "Stopped by the user" in " ".join(model.diagnostics_["warnings"])
    assert len(np.unique(model.predict(digits[0][:64]))) > 1
    assert list(tmp_path.iterdir())  # there is something to go on with
