"""On a GPU the recorded step computes what the plain one computes."""

import threading
from dataclasses import fields

import numpy as np
import pytest
import torch
from torch import nn

import diffclust
from conftest import OWN_STOP, train
from diffclust import DCN, DEC, IDEC, TELL, AEKMeans, CrossMetric, DeepKMeans, SSCNet, VaDE, callbacks, fit_together
from diffclust.engine.accelerate import capture
from diffclust.engine.accelerate.stack import Stack
from diffclust.engine.data import Data
from diffclust.engine.optimizers import OPTIMIZERS, make_optimizer
from diffclust.engine.phase import Phase
from diffclust.engine.pretraining import NeighbourPretraining
from diffclust.engine.rows import TensorRows
from diffclust.estimator.restarts import neighbour_graph
from diffclust.methods import METHODS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


@pytest.fixture
def images():
    generator = torch.Generator().manual_seed(0)
    kinds = torch.rand(4, 1, 12, 12, generator=generator)
    which = torch.randint(4, (640,), generator=generator)
    return (255 * (kinds[which] + 0.2 * torch.rand(640, 1, 12, 12, generator=generator)).clamp(0, 1)).byte()


@pytest.fixture
def exact(monkeypatch):
    """The same bits from the same numbers."""
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.fixture
def counted(monkeypatch):
    """How many steps were recorded."""
    made = []
    record = capture.StepRunner._record
    monkeypatch.setattr(
        capture.StepRunner, "_record", lambda self, members: made.append(len(members)) or record(self, members)
    )
    return made


def test_steps_by_neighbours_agree(counted, exact):
    """In both phases, with batches that are part of the rows and with all rows in one."""
    rows = torch.randn(300, 8, generator=torch.Generator().manual_seed(0))
    rows[100:200] += 4

    def learnt(batch_size, captured):
        estimator = TELL(3, device="cuda", features="neighbours", batch_size=batch_size, random_state=0)
        data = Data(TensorRows(rows), torch.device("cuda"), batch_size)
        data.graph = neighbour_graph(data)
        torch.manual_seed(1)
        model = estimator.build_model(estimator.build_autoencoder(data), len(data)).cuda()
        histories = []
        for learner in (NeighbourPretraining(model), model):
            histories += train(
                [Phase("any", learner, data, make_optimizer(learner, "adam", 1e-4), 20)], capture=captured
            )
        assert bool(counted) is captured
        counted.clear()
        return np.array([record["neighbours"] for history in histories for record in history])

    for batch_size in (50, 300):
        plain, recorded = learnt(batch_size, False), learnt(batch_size, True)
        assert recorded == pytest.approx(plain, rel=1e-3)
        assert plain[-1] < plain[0]


def losses(method, images, counted, *, captured, **settings):
    estimator = method(4, device="cuda", batch_size=64, random_state=0, **settings)
    data = Data(TensorRows(images, 255.0), torch.device("cuda"), 64, estimator._augmentation((1, 12, 12)))
    torch.manual_seed(1)
    model = estimator.build_model(estimator.build_autoencoder(data), len(data)).cuda()
    optimizer = estimator.build_optimizer(model)
    before = [p.detach().clone() for p in model.parameters()]
    (history,) = train([Phase("clustering", model, data, optimizer, 6)], [2], capture=captured)
    assert bool(counted) is captured
    counted.clear()
    assert not all(p.equal(old) for p, old in zip(model.parameters(), before, strict=True))  # something was learnt
    unequal = ("phase", "epoch", "disagreement")  # the last is a count of samples, some of them on the edge
    return np.array([[value for name, value in record.items() if name not in unequal] for record in history])


def agree(method, images, counted, network, optimizer):
    # small steps, so that last bits stay last bits: in sixty larger ones even plain runs of CrossMetric part, and a row
    # of DCN may go to another centre
    lr = OPTIMIZERS[optimizer][1] / (1000 if method in (CrossMetric, DCN, SSCNet) else 10)
    settings = {"network": network, "optimizer": optimizer, "lr": lr}
    if "repair" in {field.name for field in fields(method)}:
        settings["repair"] = False
    plain = losses(method, images, counted, captured=False, **settings)
    recorded = losses(method, images, counted, captured=True, **settings)
    assert recorded == pytest.approx(plain, rel=1e-2, abs=1e-4)


@pytest.mark.parametrize("network", ["conv", "dense"])
def test_losses_agree_over_sixty_steps(method, images, counted, network, exact):
    if method is AEKMeans:
        pytest.skip("its clustering takes no gradient steps; its pretraining is everyone's")
    agree(method, images, counted, network, "adam")


@pytest.mark.parametrize("network", ["conv", "dense"])
@pytest.mark.parametrize("optimizer", sorted(set(OPTIMIZERS) - {"adam"}))
def test_losses_agree_with_every_optimizer(images, counted, network, optimizer, exact):
    agree(TELL, images, counted, network, optimizer)


def test_restarts_side_by_side_give_what_they_give_alone(method, images, counted, monkeypatch, exact):
    settings = {"n_init": 3, "epochs": 12, "pretrain_epochs": 12, "device": "cuda", "random_state": 0, "batch_size": 64}
    settings["precision"] = "float32"
    together = method(4, **settings).fit(images)
    assert max(counted) == 3
    monkeypatch.setattr(callbacks, "PARALLEL_DEVICES", ())
    alone = method(4, **settings).fit(images)
    assert max(counted[-2:]) == 1
    for one, other in zip(together.runs_, alone.runs_, strict=True):
        first, second = ([r.get("reconstruction", 0) for r in run["history"][:12]] for run in (one, other))
        assert first == pytest.approx(second, rel=2e-2)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("kind", [CrossMetric, DCN, DEC, IDEC, DeepKMeans])
def test_stacked_runs_learn_what_they_learn_alone(kind, precision, images, counted, monkeypatch, exact):
    settings = {"n_init": 3, "network": "dense", "epochs": 6, "pretrain_epochs": 25, "device": "cuda", "batch_size": 64}
    settings |= {
        "random_state": 0,
        "precision": precision,
        "augment": None,
        "lr": 1e-5,
        **OWN_STOP.get(kind.__name__, {}),
    }
    made, build = [], Stack.__init__
    monkeypatch.setattr(Stack, "__init__", lambda self, party: made.append(len(party)) or build(self, party))
    together = kind(4, **settings).fit(images)
    assert set(made) == {3}
    assert max(counted) == 3
    monkeypatch.setattr(callbacks, "PARALLEL_DEVICES", ())
    alone = kind(4, **settings).fit(images)
    for one, other in zip(together.runs_, alone.runs_, strict=True):
        pairs = list(zip(one["history"], other["history"], strict=True))
        for ours, theirs in pairs[12:]:  # before, the loss falls so fast that rounding shows
            for name in ("reconstruction", "clustering"):
                assert ours.get(name) == pytest.approx(
                    theirs.get(name), rel=0.25, abs=3e-3
                )  # rounding, from a start that differs by it


def test_different_estimators_side_by_side(images, counted, monkeypatch, exact):
    settings = {"epochs": 12, "pretrain_epochs": 12, "device": "cuda", "precision": "float32"}

    def build():
        return [
            TELL(4, random_state=0, batch_size=64, **settings),
            TELL(4, random_state=1, batch_size=128, weight=0.5, n_init=2, **settings),
            VaDE(4, random_state=0, batch_size=64, network="dense", repair=False, **settings),
        ]

    together = fit_together(build(), images)
    assert max(counted) == 4
    for ours, other in zip(together, build(), strict=True):
        for one, alone in zip(ours.runs_, other.fit(images).runs_, strict=True):
            first, second = ([r.get("reconstruction", 0) for r in run["history"][:12]] for run in (one, alone))
            assert first == pytest.approx(second, rel=2e-2)


@pytest.mark.parametrize("kind", [each.estimator for each in METHODS])
def test_steps_of_every_method_can_be_recorded(kind, images, counted):
    estimator = getattr(diffclust, kind)(4, random_state=0, device="cuda")
    wishes = {"batch_size": 64, "pretrain_epochs": 25, "siamese_epochs": 25, "epochs": 25}
    estimator.set_params(**{name: value for name, value in wishes.items() if name in estimator.get_params()})
    estimator.fit(images)
    assert not [text for event, text in estimator.diagnostics_["events"] if event == "not-captured"]
    assert counted


class Stubborn(nn.Module):
    """Looks at a value in the middle of a step, which no recording allows."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(144, 10)
        self.outer = nn.Linear(10, 144)

    def encode(self, x):
        return self.inner(x.flatten(1)) * (1 if x.mean().item() > -1 else 2)

    def decode(self, z):
        return self.outer(z).view(len(z), 1, 12, 12)


def test_a_module_that_cannot_be_recorded_runs_as_it_is(method, images):
    torch.manual_seed(0)
    settings = {"pretrain_epochs": 12, "epochs": 12, "random_state": 0, "augment": None, "batch_size": 64}
    model = method(4, network=Stubborn(), device="cuda", **settings).fit(images / 255)
    assert any(kind == "not-captured" for kind, _ in model.diagnostics_["events"])
    torch.manual_seed(0)
    on_cpu = method(4, network=Stubborn(), device="cpu", **settings).fit(images / 255)
    assert model.history_[-1]["epoch"] == on_cpu.history_[-1]["epoch"]


def test_predicting_in_another_thread_does_not_disturb_recording(images, counted):
    """The other thread takes new memory from the device and waits for it all the time."""
    settings = {"pretrain_epochs": 25, "epochs": 25, "random_state": 0, "device": "cuda", "batch_size": 64}
    other = TELL(4, **settings | {"epochs": 2, "pretrain_epochs": 2}).fit(images)
    expected, ended, errors = other.predict(images), threading.Event(), []

    def predict():
        try:
            while not ended.is_set():
                torch.cuda.empty_cache()
                assert (other.predict(images) == expected).all()
        except BaseException as error:
            errors.append(error)

    reader = threading.Thread(target=predict, daemon=True)
    reader.start()
    for network in ("dense", "conv", "dense", "conv"):
        model = TELL(4, network=network, **settings).fit(images)
        assert not [event for event in model.diagnostics_["events"] if event[0] == "not-captured"]
    ended.set()
    reader.join(60)
    assert not errors
    assert counted


def test_short_fits_are_not_recorded(method, images, counted):
    method(4, device="cuda", pretrain_epochs=2, epochs=2, batch_size=64).fit(images)
    assert not counted


def test_the_callers_random_numbers_are_left_alone(method, images):
    torch.cuda.manual_seed(5)
    expected = torch.rand(3, device="cuda")
    torch.cuda.manual_seed(5)
    method(4, device="cuda", pretrain_epochs=25, epochs=12, batch_size=64, n_init=2).fit(images)
    assert torch.rand(3, device="cuda").equal(expected)


def test_a_killed_run_goes_on(method, images, tmp_path, exact):
    settings = {"pretrain_epochs": 12, "epochs": 12, "n_init": 2, "random_state": 0, "device": "cuda", "batch_size": 64}
    settings |= {"precision": "float32", **OWN_STOP.get(method.__name__, {})}
    settings |= {"lr": 1e-5} if method is CrossMetric else {}  # at its own, rounding shows
    whole = method(4, **settings).fit(images)
    left = ["once"]

    def kill(progress):
        if left and progress.phase == "clustering" and progress.epoch == 4:
            left.clear()
            raise RuntimeError("killed")

    model = method(4, **settings, checkpoint=tmp_path, checkpoint_every=3, callbacks=[kill])
    with pytest.raises(RuntimeError, match="killed"):
        model.fit(images)
    model.fit(images)
    for one, other in zip(model.runs_, whole.runs_, strict=True):
        totals = [[r.get("reconstruction", 0) + r.get("clustering", 0) for r in run["history"]] for run in (one, other)]
        assert totals[0] == pytest.approx(totals[1], rel=5e-2)
