"""The loop, the data and the runtime, apart from any method."""

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from conftest import train
from diffclust import IIC, TELL
from diffclust.engine.data import Batch, Data
from diffclust.engine.feed import shuffled
from diffclust.engine.last_finite import LastFinite
from diffclust.engine.model import Trainable
from diffclust.engine.phase import Phase, set_rate
from diffclust.engine.rows import ArrayRows, TensorRows
from diffclust.engine.runtime import choose_device, restart_seeds, seeded
from diffclust.estimator.base import PrototypeClusterer

CPU = torch.device("cpu")


def run(model, data, optimizer, epochs):
    return train([Phase("line", model, data, optimizer, epochs)])[0]


def data(n=100, batch_size=16, **options):
    return Data(TensorRows(torch.arange(n, dtype=torch.float32)[:, None]), CPU, batch_size, **options)


@pytest.mark.parametrize(
    ("n", "wanted", "steps", "size"),
    [
        (70000, 256, 273, 256),
        (500, 256, 2, 250),
        (100, 256, 1, 100),
        (1797, 128, 14, 128),
        (380, 256, 2, 190),
        (3, 2, 1, 2),
    ],
)
def test_batches_have_one_size_and_cover_nine_tenths(n, wanted, steps, size):
    rows = data(n, wanted)
    assert (rows.steps, rows.batch_size) == (steps, size)
    batches = list(shuffled(rows))
    assert {len(batch.x) for batch in batches} == {size}
    seen = torch.cat([batch.index for batch in batches])
    assert len(seen.unique()) == len(seen) == steps * size
    assert all((batch.x[:, 0] == batch.index).all() for batch in batches)


def test_augmentation_changes_what_training_sees_and_nothing_else():
    rows = data(augment=lambda x: -x)
    batch = next(shuffled(rows))
    assert (batch.x == -batch.clean).all()
    assert (rows.map(lambda x: x)[:, 0] == torch.arange(100)).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_augmentation_in_place_leaves_the_clean_samples(digits):
    settings = {"pretrain_epochs": 2, "epochs": 2, "random_state": 0, "device": "cpu"}
    anew, in_place = (IIC(4, augment=fn, **settings).fit(digits[0]) for fn in (torch.neg, torch.neg_))
    assert in_place.history_ == anew.history_


@pytest.mark.parametrize("n", [1, 15, 16, 1024, 2500])
def test_map_keeps_order_and_length(n):
    assert (data(n).map(lambda x: 2 * x)[:, 0] == 2 * torch.arange(n)).all()


def test_integer_images_are_scaled_in_the_batch():
    rows = Data(TensorRows(torch.full((4, 1, 2, 2), 255, dtype=torch.uint8), 255.0), CPU, 2)
    assert rows.rows.take(torch.tensor([0])).dtype == torch.uint8
    assert (next(shuffled(rows)).x == 1).all()


def test_a_summary_is_numpys(tmp_path):
    X = np.random.default_rng(0).normal(3, 2, (3000, 5)).astype(np.float32)
    mapped = np.memmap(tmp_path / "x", dtype="float32", mode="w+", shape=X.shape)
    mapped[:] = X
    summary = Data(ArrayRows(mapped, (5,), lambda x: x), CPU).summary
    assert (summary.low, summary.high) == (X.min(), X.max())
    assert np.allclose(summary.mean, X.mean(0), atol=1e-5)
    assert summary.spread == pytest.approx(np.sqrt(X.astype(float).var(0).mean()), rel=1e-5)
    assert np.allclose(summary.reach, np.ptp(X, axis=0))
    lengths = np.linalg.norm(X, axis=1)
    assert (summary.shortest, summary.longest) == pytest.approx((lengths.min(), lengths.max()), rel=1e-5)


class Line(Trainable):
    """Fits y = 3x; counts its hooks."""

    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.zeros(()))
        self.norm = nn.BatchNorm1d(1)
        self.calls = []

    def loss(self, batch: Batch):
        self.calls.append("loss")
        x = batch.x / 100
        return {"fit": (self.slope * x - 3 * x).square().mean(), "size": 1e-6 * self.slope.square()}

    def reconstruct(self, x):
        return self.norm(x)

    def before_training(self, data):
        self.calls.append("before_training")

    def before_epoch(self, epoch, data):
        self.calls.append(f"before_epoch {epoch}")

    def after_backward(self):
        self.calls.append("after_backward")

    def after_step(self, batch):
        self.calls.append("after_step")

    def after_epoch(self, epoch, data):
        self.calls.append(f"after_epoch {epoch}")


def test_the_loop_minimises_and_calls_the_hooks_in_order():
    line = Line()
    history = run(line, data(batch_size=50), torch.optim.Adam(line.parameters(), lr=0.3), 40)
    assert float(line.slope.detach()) == pytest.approx(3, abs=0.05)
    assert line.calls[:9] == [
        "before_training", "before_epoch 0", "loss", "after_backward", "after_step", "loss", "after_backward",
        "after_step", "after_epoch 0",
    ]  # fmt: skip
    assert [record["epoch"] for record in history] == list(range(40))
    assert set(history[0]) == {"phase", "epoch", "fit", "size"}
    assert not line.training


def test_batch_norm_ends_on_the_statistics_of_the_data():
    line = Line()
    run(line, data(), torch.optim.SGD(line.parameters(), lr=1e-3), 1)
    assert float(line.norm.running_mean) == pytest.approx(49.5, abs=2)
    assert line.norm.momentum == 0.1


def test_a_frozen_network_keeps_its_statistics(blobs):
    class Frozen(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(6, affine=False)

        def encode(self, x):
            return self.norm(x)

        def decode(self, z):
            return z

    model = TELL(3, network=Frozen(), embedding_dim=6, epochs=2, random_state=0, device="cpu").fit(blobs[0])
    assert (model.model_.autoencoder.module.norm.running_mean == 0).all()


class Exploding(Line):
    def loss(self, batch):
        bad = float("nan") if self.calls.count("after_epoch 10") and len(self.events) < self.most else 1.0
        self.calls.append("loss")
        return {"fit": bad * (self.slope - 3).square()}


@pytest.mark.parametrize(("most", "epochs_done"), [(2, 30), (99, 15)])
def test_a_run_falls_back_to_its_last_finite_state(most, epochs_done):
    line = Exploding()
    line.most = most
    optimizer = torch.optim.SGD(line.parameters(), lr=0.1)
    history = run(line, data(), optimizer, 30)
    assert len(history) == epochs_done
    assert np.isfinite(float(line.slope.detach()))
    assert [report.kind for report in line.events] == ["non-finite"] * min(most, 4)
    assert optimizer.param_groups[0]["lr"] < 0.1


class Decaying(Exploding):
    """The rate falls from epoch to epoch; what each epoch ran at is noted."""

    most = 1

    def __init__(self):
        super().__init__()
        self.rates = []

    def lr_factor(self, epoch):
        return 0.9**epoch

    def before_epoch(self, epoch, data):
        super().before_epoch(epoch, data)
        self.rates.append(self.optimizer.param_groups[0]["lr"])


def test_a_decaying_rate_lives_with_the_halving_after_a_failure():
    line = Decaying()
    line.optimizer = torch.optim.SGD(line.parameters(), lr=0.1)
    run(line, data(), line.optimizer, 20)
    # the loss is not finite in epoch 11, and from there on the rate is half of what it would have been
    expected = [0.1 * 0.9**epoch * (0.5 if epoch > 11 else 1) for epoch in range(20)]
    assert line.rates == pytest.approx(expected)


class Refreshing(Line):
    """Notes how many steps it had taken at each refresh."""

    def __init__(self, interval):
        super().__init__()
        self.interval, self.moments, self.taken = interval, [], 0

    def refresh(self, data):
        self.moments.append(self.taken)

    def after_step(self, batch):
        self.taken += 1

    def extra_metrics(self):
        return {"steps": self.taken}


def test_refreshes_come_at_their_interval_over_the_whole_run():
    line = Refreshing(interval=4)
    rows = data()  # six steps an epoch
    history = run(line, rows, torch.optim.SGD(line.parameters(), lr=0.1), 4)
    assert rows.steps == 6
    assert line.moments == [0, 4, 8, 12, 16, 20]
    assert line.epochs == 4
    assert [record["steps"] for record in history] == [6, 12, 18, 24]
    assert {"fit", "size", "steps"} <= set(history[0])


def test_without_an_interval_nothing_is_refreshed():
    line = Refreshing(interval=None)
    run(line, data(), torch.optim.SGD(line.parameters(), lr=0.1), 2)
    assert line.moments == []


def test_seeds_are_borrowed():
    before = torch.get_rng_state()
    with seeded(3, CPU):
        first = torch.rand(3)
    with seeded(3, CPU):
        assert (torch.rand(3) == first).all()
    assert (torch.get_rng_state() == before).all()


def test_the_first_restart_does_not_depend_on_how_many_follow():
    assert restart_seeds(7, 1) == restart_seeds(7, 5)[:1]
    assert len(set(restart_seeds(7, 5))) == 5
    assert restart_seeds(None, 2) != restart_seeds(None, 2)
    generator = np.random.RandomState(0)
    assert restart_seeds(generator, 1) != restart_seeds(generator, 1)


def test_a_missing_device_is_a_clear_error():
    with pytest.raises(ValueError, match="device='nonsense'"):
        choose_device("nonsense")


class UserKnowledge(nn.Linear):
    def note(self, kind, message):
        pass


@pytest.mark.parametrize(
    "build", [lambda p: torch.optim.Adam(p, lr=0.1, fused=True), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)]
)
def test_a_run_can_fall_back_twice_to_one_state(build):
    model = UserKnowledge(2, 1)
    optimizer = build(model.parameters())
    set_rate(optimizer, 1.0)

    def step(factor):
        optimizer.zero_grad()
        (factor * model(torch.ones(1, 2))).sum().backward()
        optimizer.step()

    step(1.0)
    kept = LastFinite(model, optimizer)
    for epoch in range(2):
        step(float("nan"))
        kept.restore("clustering", epoch)
        assert kept.is_finite()
        moments = [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
        assert all(value.isfinite().all() for value in moments)


def test_a_reader_comes_from_fit_to_the_gradients_in_five_calls(blobs, monkeypatch):
    """And none of them is a generator, in which it would be hard to say what runs when."""
    ways, backward = [], torch.autograd.backward

    def watched(*arguments, **options):
        calls = [frame for frame in inspect.stack() if "diffclust" in Path(frame.filename).parts][::-1]
        ways.append([frame.frame.f_code for frame in calls])
        backward(*arguments, **options)

    monkeypatch.setattr(torch.autograd, "backward", watched)
    TELL(3, pretrain_epochs=1, epochs=1, random_state=0, device="cpu").fit(blobs[0])
    assert all(way[0].co_name == "fit" and len(way) - 1 <= 5 for way in ways)
    assert not any(code.co_flags & inspect.CO_GENERATOR for way in ways for code in way)


def test_a_method_without_a_model_says_so(blobs):
    class Empty(PrototypeClusterer):
        pass

    with pytest.raises(NotImplementedError, match="Empty has no build_model"):
        Empty(3).fit(blobs[0])


class Turns(Trainable):
    """Takes turns by epochs, as a subclass says."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.turn = False

    def before_epoch(self, epoch, data):
        self.turn = self.graph_key = epoch % 2 == 1

    def loss(self, batch):
        own = self.layer(batch.x / 100).square().mean()
        return {"clustering": own, "reconstruction": own}


class NoGradient(Turns):
    """As a reconstruction alone, without a network."""

    def loss(self, batch):
        return {name: value.detach() if self.turn else value for name, value in super().loss(batch).items()}


class LeftOut(Turns):
    def loss(self, batch):
        losses = super().loss(batch)
        return {"reconstruction": losses["reconstruction"]} if self.turn else losses


class Unsaid(LeftOut):
    """As on a CPU, where nothing fails without a `graph_key`."""

    def before_epoch(self, epoch, data):
        self.turn = epoch % 2 == 1


class AtRest(Turns):
    def loss(self, batch):
        losses = super().loss(batch)
        return {**losses, "clustering": losses["clustering"].detach()} if self.turn else losses


def take_turns(toy, stack):
    """Two runs, one after the other or as one; an inherited `stack_key` would not do."""
    toy.stack_key = lambda model: toy.__name__
    models = [toy(), toy()]
    phases = [Phase("clustering", m, data(8), torch.optim.SGD(m.parameters(), 0.01), 3) for m in models]
    return train(phases, (0, 1), stack=stack)[0]


@pytest.mark.parametrize("stack", [False, True])
def test_a_loss_that_breaks_its_promise_is_told_which(stack):
    with pytest.raises(ValueError, match=r"no term of `loss` has a gradient: NoGradient .* epoch 1 .*`network_learns`"):
        take_turns(NoGradient, stack)
    with pytest.raises(ValueError, match="the same names in every epoch, one of them 'clustering': in epoch 1 "):
        take_turns(LeftOut, stack)
    with pytest.raises(ValueError, match="in epoch 1 of clustering, Unsaid returned reconstruction, before that clus"):
        take_turns(Unsaid, stack)
    assert all(record["clustering"] > 0 for record in take_turns(AtRest, stack))
