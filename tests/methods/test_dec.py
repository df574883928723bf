"""What is particular to DEC and IDEC: the Student-t kernel, the target over all rows, its interval, the stop rule."""

import numpy as np
import pytest
import torch

from conftest import quick_settings
from diffclust import DEC, IDEC
from diffclust.engine.data import Batch, Data
from diffclust.engine.rows import TensorRows
from diffclust.nn import DenseAutoencoder, Identity, log_student_t, sharpen

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
CPU = torch.device("cpu")


@pytest.fixture(params=[DEC, IDEC])
def cls(request):
    return request.param


def data(x, batch_size=16):
    return Data(TensorRows(x), CPU, batch_size)


def test_the_target_of_three_rows_by_hand():
    """q = (2/3, 1/3), (1/2, 1/2), (1/4, 3/4): f = 17/12, 19/12; q²/f and its rows brought to one."""
    q = torch.tensor([[2 / 3, 1 / 3], [1 / 2, 1 / 2], [1 / 4, 3 / 4]], dtype=torch.float64)
    expected = torch.tensor([[76 / 93, 17 / 93], [19 / 36, 17 / 36], [19 / 172, 153 / 172]], dtype=torch.float64)
    assert torch.allclose(sharpen(q, q.sum(0)), expected)
    assert torch.allclose(sharpen(q, q.mean(0)), expected)  # the scale of f does not matter


def test_student_t_by_loops():
    distances = torch.tensor([[0.0, 1.0, 3.0], [2.0, 2.0, 5.0]], dtype=torch.float64)
    for row, given in zip(log_student_t(distances).exp(), distances, strict=True):
        kernel = [1 / (1 + float(d)) for d in given]
        assert row.tolist() == pytest.approx([value / sum(kernel) for value in kernel])


def test_gradcheck():
    d = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(log_student_t, d)
    model = IDEC(3).build_model(Identity((4,)), 5).double()
    z = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    p = torch.softmax(torch.randn(5, 3, dtype=torch.float64), dim=1)
    assert torch.autograd.gradcheck(lambda z: torch.nn.functional.kl_div(model.log_q(z), p, reduction="batchmean"), z)


def test_the_loss_by_loops(cls):
    estimator = cls(3)
    model = estimator.build_model(DenseAutoencoder((6,), 4, hidden=(8,)), 40)
    x = torch.randn(40, 6)
    model.before_training(data(x))
    model.refresh(data(x))
    z = model.embed(x)
    q = torch.zeros(40, 3, dtype=torch.float64)
    for i in range(40):
        for j in range(3):
            q[i, j] = 1 / (1 + (z[i] - model.clusters.centers[j]).double().square().sum()).detach()
    q /= q.sum(1, keepdim=True)
    p = q**2 / q.sum(0)
    p /= p.sum(1, keepdim=True)
    index = torch.tensor([3, 30, 7])
    total = sum(float(p[i, j] * torch.log(p[i, j] / q[i, j])) for i in index for j in range(3)) / 3
    losses = model.loss(Batch(x[index], x[index], index))
    weight = 1.0 if cls is DEC else 0.1
    assert float(losses["clustering"].detach()) == pytest.approx(weight * total, rel=1e-4)
    assert ("reconstruction" in losses) == (cls is IDEC)
    if cls is IDEC:
        error = (model.autoencoder.decode(z[index]) - x[index]).square().mean()  # per value
        assert float(losses["reconstruction"].detach()) == pytest.approx(float(error.detach()), rel=1e-5)
    everything = model.clustering_loss(z.double()).mean()
    expected = float((p * torch.log(p / q)).sum(1).mean())
    assert float(everything.detach()) == pytest.approx(expected, rel=1e-4)


def test_the_target_is_over_all_rows_and_kept_for_its_interval(cls, digits, monkeypatch):
    """Three steps an epoch, an interval of five: before steps 0, 5, 10; then once at the end."""
    moments, steps = [], []
    model_class = type(cls(4).build_model(Identity((4,)), 5))
    refresh, loss = model_class.refresh, model_class.loss
    monkeypatch.setattr(model_class, "refresh", lambda self, data: (moments.append(len(steps)), refresh(self, data))[1])
    monkeypatch.setattr(model_class, "loss", lambda self, batch: (steps.append(0), loss(self, batch))[1])
    cls(4, **quick_settings(cls.__name__), interval=5, network="dense", batch_size=26).fit(digits[0])
    assert len(steps) == 12
    assert moments == [0, 5, 10, 12]


def test_labels_that_settled_within_an_epoch_end_the_training(cls):
    model = cls(3, tolerance=0.1).build_model(DenseAutoencoder((6,), 4, hidden=(8,)), 40)
    x = torch.randn(40, 6)
    rows = data(x)
    model.before_training(rows)
    model.before_epoch(0, rows)
    model.refresh(rows)
    assert not model.finished
    model.refresh(rows)
    assert model.finished
    model.labels.fill_(-1)  # others until the end of the epoch
    model.refresh(rows)
    assert model.finished
    model.before_epoch(1, rows)
    assert not model.finished


def test_a_resumed_fit_keeps_target_and_count(cls, digits, tmp_path):
    """The kill falls between two refreshes: the target goes on, and so does the count."""

    class Killed(Exception):
        pass

    settings = {**quick_settings(cls.__name__), "epochs": 7, "interval": 5, "network": "dense"}
    whole = cls(4, **settings).fit(digits[0])
    state = {"armed": True}

    def kill(progress):
        if state["armed"] and (progress.phase, progress.epoch) == ("clustering", 4):
            state["armed"] = False
            raise Killed

    model = cls(4, **settings, checkpoint=tmp_path, checkpoint_every=1, callbacks=[kill])
    with pytest.raises(Killed):
        model.fit(digits[0])
    model.fit(digits[0])
    assert model.history_ == whole.history_
    assert (model.transform(digits[0]) == whole.transform(digits[0])).all()


def test_the_stop_rule(cls, blobs):
    quick = {"pretrain_epochs": 20, "epochs": 15, "random_state": 0, "interval": 2, "features": "reconstruction"}
    settled, whole = (cls(3, **quick, **more).fit(blobs[0]) for more in ({}, {"tolerance": 0}))
    assert settled.n_iter_ < 10  # easy blobs settle at once
    assert [kind for kind, _ in settled.diagnostics_["events"]] == ["settled"]
    assert not settled.diagnostics_["warnings"]
    assert "stopped by its own rule: fewer labels changed than tolerance=0.001" in str(settled.explain_model())
    assert whole.n_iter_ == 15
    assert whole.explain_model().stopped is None


def test_the_rows_of_the_fit_are_not_kept(cls, blobs):
    model = cls(3, **quick_settings(cls.__name__)).fit(blobs[0])
    assert len(model.model_.target) == 0
    assert model.model_.frequency.sum().item() == pytest.approx(1, abs=1e-5)
    q = model.model_.assign(torch.from_numpy(blobs[0]).float())
    assert np.allclose(q.mean(0).detach(), model.model_.frequency, atol=1e-4)
    assert (q.argmax(1).numpy() == model.labels_).all()


def test_dec_leaves_the_decoder_alone_and_idec_does_not(digits):
    decoders = {}
    for cls in (DEC, IDEC):
        for epochs in (0, 3):
            settings = {**quick_settings(cls.__name__), "epochs": epochs, "augment": None, "network": "dense"}
            fitted = cls(4, **settings).fit(digits[0])
            decoders[cls, epochs] = fitted.model_.autoencoder.decoder[0].weight
    assert (decoders[DEC, 0] == decoders[DEC, 3]).all()
    assert (decoders[IDEC, 0] != decoders[IDEC, 3]).any()


def test_the_optimiser_is_the_clusterings(cls, digits):
    """Pretraining is Adam's whatever the optimiser of the clustering."""
    kinds = []
    estimator = cls(4, optimizer="sgd", lr=0.02)
    model = estimator.build_model(DenseAutoencoder((6,), 4, hidden=(8,)), 40)
    for learner in (estimator.pretraining(model), model):
        optimizer = estimator.build_optimizer(learner)
        kinds.append((type(optimizer).__name__, optimizer.param_groups[0]["lr"]))
    assert kinds == [("Adam", 1e-3), ("SGD", 0.02)]


@pytest.mark.parametrize("value", [0, -3, 2.5, "often"])
def test_bad_intervals_are_named(cls, blobs, value):
    with pytest.raises((TypeError, ValueError), match="interval"):
        cls(3, interval=value).fit(blobs[0])


def test_intervals_follow_the_number_of_rows():
    assert [IDEC(3).target_interval(n) for n in (100, 1797, 9298, 70000)] == [1, 7, 36, 140]
