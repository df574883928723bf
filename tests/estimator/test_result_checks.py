"""What speaks against a result is said, and nothing is said of a good one."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import normalize

from conftest import SEED
from diffclust import DEC, TELL, CrossMetric, SSCNet, load
from diffclust.callbacks import StopWhenLabelsSettle
from diffclust.engine.data import Data
from diffclust.engine.rows import TensorRows
from diffclust.engine.run import last_change
from diffclust.estimator.result_checks import _doubts, compare_with_kmeans, share_together
from diffclust.nn.autoencoders import Autoencoder

CPU = torch.device("cpu")
SETTINGS = {"network": "identity", "random_state": SEED, "device": "cpu"}


def records(*losses, phase="clustering"):
    return [{"phase": phase, "epoch": i, "a": loss / 2, "b": loss / 2, "rate": 7.0} for i, loss in enumerate(losses)]


def test_the_last_change_by_hand():
    history = records(9, 9, phase="pretraining") + records(10, 8, 4, 2)  # two windows of two: 9 and 3
    assert last_change(history, ["a", "b"]) == pytest.approx(-6 / 9)
    assert last_change(records(*range(40, 0, -1)), ["a", "b"]) == pytest.approx((2.5 - 6.5) / 6.5)  # windows of four
    assert last_change(records(1, 2, 3), ["a", "b"]) is None
    assert last_change(records(1, 2, 3, np.inf), ["a", "b"]) is None
    assert last_change([], ["a", "b"]) is None


def test_the_share_of_near_rows_together_by_hand():
    near = torch.tensor([[1], [0], [3], [2]])
    assert share_together(near, torch.tensor([0, 0, 1, 1])) == 1
    assert share_together(near, torch.tensor([0, 1, 0, 1])) == -1  # chance is a half
    assert share_together(near, torch.tensor([0, 0, 0, 1])) == pytest.approx((0.5 - 10 / 16) / (1 - 10 / 16))
    assert share_together(near, torch.tensor([2, 2, 2, 2])) == 0


def test_labels_beside_those_of_k_means(blobs):
    X, y = blobs
    data = Data(TensorRows(torch.tensor(X)), CPU)

    model = SimpleNamespace(autoencoder=SimpleNamespace(normalize=lambda x: x))
    together, plain = compare_with_kmeans(model, data, y, 3, 0).together
    assert together == pytest.approx(1)
    assert plain == pytest.approx(1)
    shuffled = np.random.default_rng(SEED).permutation(y)
    together, plain = compare_with_kmeans(model, data, shuffled, 3, 0).together
    assert abs(together) < 0.2
    assert plain == pytest.approx(1)
    assert compare_with_kmeans(model, data, y, 16, 0) is None  # fewer than ten rows a cluster


@pytest.mark.parametrize(
    ("figures", "kinds"),
    [
        ({"change": -0.04, "stability": [0.9, 0.5], "together": 0.9, "kmeans": 1.0}, []),
        ({"change": 0.3}, []),  # a target that sharpens lets the loss rise
        ({"change": -0.06}, ["unfinished"]),
        ({"stability": [0.9, 0.4]}, ["unstable"]),
        ({"stability": [0.9, 0.9, 0.0]}, []),  # an empty one is told of otherwise
        ({"together": 0.05, "kmeans": 0.06}, ["chance"]),
        ({"together": 0.7, "kmeans": 0.9}, ["worse"]),
        (
            {"change": -0.5, "stability": [0.1, 0.1], "together": 0.0, "kmeans": 0.9},
            ["unfinished", "unstable", "chance"],
        ),
    ],
)
def test_what_the_figures_say(figures, kinds):
    found = {"change": None, "stability": None, "together": None, "kmeans": None, **figures}
    assert [doubt.kind for doubt in _doubts(found, [5, 5, 0])] == kinds


def test_a_good_fit_is_silent_and_has_its_figures(blobs):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = TELL(3, **SETTINGS, n_init=2, epochs=20).fit(blobs[0])
    assert model.diagnostics_["warnings"] == []
    found = model.diagnostics_["soundness"]
    assert found["together"] > 0.95
    assert min(found["stability"]) > 0.95
    assert model.diagnostics_["unchecked"] == []
    assert "Not checked" not in model.explain_model().sentence


def test_a_short_look_is_not_judged(blobs):
    model = TELL(3, **SETTINGS, epochs=2).fit(blobs[0])
    assert set(model.diagnostics_["soundness"].values()) == {None}
    assert model.diagnostics_["unchecked"] == [
        "convergence, stability and neighbouring rows, because 2 epochs are fewer than 20"
    ]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_what_was_not_checked_is_said(blobs):
    X = blobs[0]
    alone = TELL(3, **SETTINGS, epochs=20).fit(X)
    assert alone.diagnostics_["unchecked"] == ["stability, because there was one restart (see n_init)"]
    assert "Not checked: stability, because there was one restart" in alone.explain_model().sentence
    trained = {**SETTINGS, "network": "auto", "features": "reconstruction"}
    pretrained = TELL(3, **trained, pretrain_epochs=20, epochs=2).fit(X)
    assert "convergence, because there were too few epochs of clustering" in pretrained.diagnostics_["unchecked"]
    few = TELL(3, **SETTINGS, n_init=2, epochs=20).fit(X[:25])
    assert few.diagnostics_["unchecked"] == ["neighbouring rows, because there are fewer than 10 rows per cluster"]
    subspaces = SSCNet(3, random_state=SEED, device="cpu", epochs=20, n_init=2).fit(X)
    assert "neighbouring rows, because clusters of this method are subspaces" in subspaces.diagnostics_["unchecked"]
    collapsed = TELL(3, **SETTINGS, epochs=20).fit(np.repeat(X[:1], 60, axis=0))
    assert collapsed.diagnostics_["collapsed"]
    assert collapsed.diagnostics_["unchecked"] == ["anything beyond cluster sizes, because the clusters collapsed"]


def test_a_short_fit_that_ended_by_itself_is_judged():
    X = np.random.default_rng(SEED).random((200, 10))
    settings = {**SETTINGS, "n_init": 3, "epochs": 60}
    callbacks = [StopWhenLabelsSettle(tolerance=1.0, every=3)]
    for kind, more in ((TELL, {"callbacks": callbacks}), (DEC, {"tolerance": 0.9, "interval": 1})):
        with pytest.warns(ConvergenceWarning, match="Unstable"):
            model = kind(8, **settings, **more).fit(X)
        assert len(model.history_) < 20
        assert {"stopped", "settled"} & {event for event, _ in model.diagnostics_["events"]}
        assert not any("stability" in what for what in model.diagnostics_["unchecked"])


def test_a_callback_that_ends_the_last_epoch_ends_nothing(blobs):
    model = TELL(3, **SETTINGS, epochs=3, callbacks=[lambda progress: setattr(progress, "stop", progress.epoch == 2)])
    assert model.fit(blobs[0]).diagnostics_["events"] == []


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of the loss, as some seeds have it
def test_what_a_callback_records_is_no_loss(blobs, tmp_path):
    def watch(progress):
        progress.record["watched"] = -1e6 * progress.epoch

    settings = {**SETTINGS, "pretrain_epochs": 3, "epochs": 20}
    plain = CrossMetric(3, **settings, tolerance=0).fit(blobs[0])
    watched = CrossMetric(3, **settings, tolerance=0, callbacks=[watch]).fit(blobs[0])
    assert watched.history_[-1]["watched"] == -19e6
    assert watched.diagnostics_["soundness"] == plain.diagnostics_["soundness"]
    watched.save(tmp_path / "m")
    for each in (watched, load(tmp_path / "m")):
        assert each.explain_model().change == plain.explain_model().change


class Times(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.zeros(()))

    def forward(self, z):
        return self.factor * z


class OneWeight(Autoencoder):
    """Gives back its codes times a weight that begins at zero: Adam moves it by `lr` a step, whatever the rows are."""

    def __init__(self, n_columns):
        super().__init__((n_columns,), n_columns, "linear")
        self.encoder, self.decoder = torch.nn.Identity(), Times()


def test_training_that_was_cut_off_is_told(blobs):
    X = 20 * normalize(blobs[0])  # an embedding has length 1, so that 20 is the weight's place
    settings = {**SETTINGS, "network": OneWeight(6), "embedding_dim": 6, "init": "k-means", "pretrain_epochs": 0}
    with pytest.warns(ConvergenceWarning, match="still falling"):  # sixty steps of 0.2, of the hundred it would need
        model = TELL(3, **settings, batch_size=50, epochs=20, lr=0.2).fit(X)
    assert "unfinished" in [kind for kind, _ in model.diagnostics_["events"]]


def test_clusters_of_noise_are_not_found_again():
    X = np.random.default_rng(SEED).random((200, 10))
    with pytest.warns(ConvergenceWarning, match=r"Unstable: \d of 8 clusters"):
        model = TELL(8, **SETTINGS, n_init=3, epochs=20).fit(X)
    assert model.diagnostics_["soundness"]["stability"] == pytest.approx(model.stability_.tolist())
