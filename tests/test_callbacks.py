import sys
import xml.etree.ElementTree as ET
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from conftest import two_methods
from diffclust import TELL, AEKMeans, KMeansNet, callbacks, metrics
from diffclust.callbacks import (
    Evaluate,
    ProgressBar,
    StopWhenLabelsSettle,
    StopWhenLossSettles,
    TimeLeft,
    TrainingRecord,
    duration,
)
from diffclust.engine.phase import Progress
from diffclust.methods.tell import TELLModel
from diffclust.notebook_bar import NotebookBar

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def test_settled_labels_stop_the_clustering(blobs):
    X = blobs[0] - blobs[0].mean(0)
    model = TELL(3, network="identity", epochs=200, random_state=0, callbacks=[StopWhenLabelsSettle(0.0, every=5)])
    assert model.fit(X).n_iter_ == 10
    assert model.fit(X).n_iter_ == 10  # a callback starts afresh with every fit


def test_a_settled_loss_stops_the_phase(blobs):
    X = blobs[0] - blobs[0].mean(0)
    stop = StopWhenLossSettles(tolerance=1.0, patience=3)
    model = TELL(3, network="identity", epochs=200, random_state=0, callbacks=[stop])
    assert model.fit(X).n_iter_ == 4


def test_scores_go_into_the_history_and_change_nothing(digits):
    X, y = digits
    settings = {"pretrain_epochs": 2, "epochs": 5, "random_state": 0, "device": "cpu"}
    plain = TELL(4, **settings).fit(X)
    watched = TELL(4, **settings, callbacks=[Evaluate(y, every=2)]).fit(X)
    assert (plain.labels_ == watched.labels_).all()
    clustering = [record for record in watched.history_ if record["phase"] == "clustering"]
    assert [record["epoch"] for record in clustering if "acc" in record] == [1, 3, 4]  # every second, and the last
    assert not any("acc" in record for record in watched.history_ if record["phase"] == "pretraining")
    losses = [{key: record[key] for key in old} for old, record in zip(plain.history_, watched.history_, strict=True)]
    assert losses == plain.history_


def test_the_last_score_is_that_of_the_fitted_labels(blobs):
    X, y = blobs
    model = TELL(3, network="identity", epochs=3, random_state=0, callbacks=[Evaluate(y, every=50)]).fit(X)
    assert model.history_[-1]["acc"] == metrics.accuracy(y, model.labels_)
    assert model.history_[-1]["nmi"] == metrics.nmi(y, model.labels_)
    assert model.history_[-1]["ari"] == metrics.ari(y, model.labels_)


def test_scores_survive_a_checkpoint(digits, tmp_path):
    X, y = digits

    class Killed(Exception):
        pass

    def kill(progress):
        if progress.phase == "clustering" and progress.epoch == 3:
            raise Killed

    def build(*more):
        settings = {"pretrain_epochs": 1, "epochs": 6, "random_state": 0, "device": "cpu", "n_init": 2}
        callbacks = [Evaluate(y, every=1), *more]
        return TELL(4, **settings, callbacks=callbacks, checkpoint=tmp_path, checkpoint_every=1)

    with pytest.raises(Killed):
        build(kill).fit(X)
    model = build().fit(X)
    assert all(sum("acc" in record for record in run["history"]) == 6 for run in model.runs_)


@two_methods
def test_watching_changes_nothing_and_the_last_frame_is_the_model(quick, fitted_images, digits):
    images, _ = digits
    record = TrainingRecord(frames=3, sample=50)
    watched = quick(4, callbacks=[record]).fit(images)
    assert (watched.labels_ == fitted_images.labels_).all()
    frames = record.of(watched)
    marks = [(frame["phase"], frame["epoch"]) for frame in frames]
    assert marks == [("pretraining", i) for i in (0, 1, 2)] + [("clustering", i) for i in (0, 2, 3)]
    assert len(record.rows) == 50
    assert all(frame["embedding"].shape == (50, 10) for frame in frames)
    assert "centers" not in frames[0]
    last = frames[-1]
    assert np.allclose(last["centers"], watched.cluster_centers_, atol=1e-6)
    assert last["losses"].items() <= watched.history_[-1].items()
    assert (frames[0]["embedding"] != last["embedding"]).any()


def test_decoded_centres_are_of_the_network_at_that_epoch(digits):
    record = TrainingRecord(epochs=[0, 5])
    model = TELL(4, pretrain_epochs=2, epochs=6, random_state=0, callbacks=[record]).fit(digits[0])
    first, last = (frame for frame in record.of(model) if frame["phase"] == "clustering")
    assert first["decoded"].shape == (4, 1, 8, 8)
    later = model.inverse_transform(first["centers"].numpy())
    assert np.abs(first["decoded"][:, 0].numpy() - later).max() > 1e-3
    assert (first["labels"].shape, last["epoch"]) == ((80,), 5)


@pytest.fixture(params=[False, True], ids=["in turn", "side by side"])
def beside(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(callbacks, "PARALLEL_DEVICES", ("cpu", "cuda"))


@pytest.mark.usefixtures("beside")
def test_the_record_follows_the_chosen_restart(digits, tmp_path):
    record = TrainingRecord(frames=2, sample=20)
    settings = {"network": "dense", "pretrain_epochs": 2, "epochs": 2, "random_state": 0}
    model = TELL(4, n_init=3, callbacks=[record], **settings).fit(digits[0])
    assert len(record.runs) == 3
    assert np.allclose(record.of(model)[-1]["centers"], model.cluster_centers_, atol=1e-6)
    others = [run for run in record.runs if run is not record.of(model)]
    assert all(not np.allclose(run[-1]["centers"], model.cluster_centers_, atol=1e-6) for run in others)
    record.save(tmp_path / "record")
    again = TrainingRecord.load(tmp_path / "record")
    assert again.rows == record.rows
    assert torch.equal(again.of(model)[-1]["decoded"], record.of(model)[-1]["decoded"])
    model.set_params(n_init=2, random_state=5).fit(digits[0])  # the last fit counts
    assert len(record.runs) == 2
    assert all(len(run) == 4 for run in record.runs)
    assert np.allclose(record.of(model)[-1]["centers"], model.cluster_centers_, atol=1e-6)


def test_a_record_is_of_one_fit_whatever_its_phases(digits):
    record = TrainingRecord(frames=2, sample=20)
    model = TELL(4, epochs=2, random_state=0, device="cpu", callbacks=[record])
    for pretrain_epochs, phases in ((0, ["clustering"]), (2, ["pretraining", "clustering"]), (0, ["clustering"])):
        model.set_params(pretrain_epochs=pretrain_epochs).fit(digits[0])
        assert [frame["phase"] for frame in record.of(model)] == [phase for phase in phases for _ in range(2)]


@pytest.mark.parametrize("method", [AEKMeans, KMeansNet])
def test_centres_among_embeddings_are_decoded_by_the_network(digits, method):
    record = TrainingRecord(frames=2)
    model = method(4, pretrain_epochs=2, epochs=2, random_state=0, device="cpu", callbacks=[record]).fit(digits[0])
    assert record.of(model)[-1]["decoded"].shape == (4, 1, 8, 8)


def test_labels_to_evaluate_by_are_counted_before_training(digits):
    X, y = digits
    with pytest.raises(ValueError, match="Evaluate has 9 labels, expected one for each of the 80 rows"):
        TELL(4, callbacks=[Evaluate(y[:9])]).fit(X)


def test_a_rule_forgets_the_last_phase_though_an_epoch_was_not_finite(digits):
    """Its first call may be of a later epoch than the first."""
    rule = StopWhenLossSettles(tolerance=1e9, patience=3)
    told = []

    def watch(progress):
        told.append((progress.phase, progress.epoch, progress.first, rule.calm))

    def spoil(progress):
        if progress.phase == "pretraining" and progress.epoch == 1:
            progress.stop = True

    model = TELL(4, pretrain_epochs=3, epochs=6, random_state=0, device="cpu", callbacks=[rule, watch, spoil])
    loss, calls = TELLModel.loss, []

    def once_not_finite(self, batch):
        calls.append(self.epochs)
        factor = float("nan") if len(calls) == 1 else 1.0
        return {name: factor * value for name, value in loss(self, batch).items()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TELLModel, "loss", once_not_finite)
        model.fit(digits[0])
    clustering = [each for each in told if each[0] == "clustering"]
    assert clustering[0] == ("clustering", 1, True, 0)


def test_a_record_that_is_none(tmp_path):
    (tmp_path / "record").write_bytes(b"{}" * 20)
    with pytest.raises(ValueError, match="not a record of training"):
        TrainingRecord.load(tmp_path / "record")
    with pytest.raises(ValueError, match="frames=0"):
        TrainingRecord(frames=0)


@pytest.mark.usefixtures("beside")
@pytest.mark.parametrize("fresh", [True, False], ids=["in another process", "in the same one"])
def test_a_record_survives_a_kill(digits, tmp_path, fresh):
    """Stopped half-way and resumed, the record has the frames of a whole fit, of every restart."""

    class Killed(Exception):
        pass

    def kill(progress):
        if progress.phase == "clustering" and progress.epoch == 2 and progress.restart == 1:
            raise Killed

    settings = {"network": "dense", "pretrain_epochs": 2, "epochs": 4, "n_init": 2, "random_state": 0}
    settings |= {"checkpoint_every": 1}
    whole = TrainingRecord(frames=9)
    TELL(4, **settings, callbacks=[whole]).fit(digits[0][:48])
    begun = TrainingRecord(frames=9)
    model = TELL(4, **settings, checkpoint=tmp_path / "ckpt", callbacks=[begun, kill])
    with pytest.raises(Killed):
        model.fit(digits[0][:48])
    resumed = TrainingRecord(frames=9) if fresh else begun
    model.set_params(callbacks=[resumed, lambda progress: None]).fit(digits[0][:48])
    assert len(resumed.runs) == 2
    for ours, other in zip(whole.runs, resumed.runs, strict=True):
        assert [(f["phase"], f["epoch"]) for f in ours] == [(f["phase"], f["epoch"]) for f in other]
        assert all(torch.equal(a["embedding"], b["embedding"]) for a, b in zip(ours, other, strict=True))


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_the_time_left_by_hand():
    clock = Clock()
    left = TimeLeft({"pretraining": 10, "clustering": 5}, 2, clock)
    expected = {
        ("pretraining", 0): 29 * 2.0,  # all epochs are as long as this one
        ("pretraining", 1): 28 * 2.0,
        ("clustering", 0): 10 * 2.0 + 9 * 2.0,  # the rest of pretraining was not needed: it had stopped
    }
    for (phase, epoch), seconds in expected.items():
        clock.now += 2
        assert left.after(progress(phase, epoch)) == pytest.approx(seconds)
    clock.now += 4
    assert left.after(progress("clustering", 1)) == pytest.approx(10 * 2.0 + 8 * 3.0)
    assert left.share == pytest.approx(12 / 30)
    for epoch in range(10):
        clock.now += 2
        left.after(progress("pretraining", epoch, restart=1))
    for epoch in range(5):
        clock.now += 3
        last = left.after(progress("clustering", epoch, restart=1))
    assert last == pytest.approx(3 * 3.0)
    stopped = progress("clustering", 2)
    stopped.stop = True
    assert left.after(stopped) == 0
    assert left.share == 1
    assert TimeLeft({}, 1, clock).share == 0


def progress(phase, epoch, restart=0):
    return Progress(phase, epoch, 10, {"loss": 1.0}, None, None, {}, restart)


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.2, "1 s"), (99, "99 s"), (100, "2 min"), (5900, "98 min"), (7800, "2 h 10 min")]
)
def test_durations(seconds, said):
    assert duration(seconds) == said


def test_the_estimate_stays_beside_the_bar():
    clock = Clock()
    bar = ProgressBar({"clustering": 10}, 1)
    bar.time_left = TimeLeft({"clustering": 10}, 1, clock)
    try:
        for epoch in range(5):
            clock.now += 60 if epoch == 0 else 30
            bar(progress("clustering", epoch))
        whole, phase = bar.bar.tasks
        assert whole.description == "training, about 9 min"
        assert whole.fields["said"] == "3 min left"
        assert whole.completed == 0.5
        assert phase.fields["said"] == "5/10  loss 1"
    finally:
        bar.stop()


class Kernel:
    """A faked notebook: what its cell shows now, and how often it was drawn."""

    def __init__(self):
        self.kernel, self.shown, self.drawings = object(), None, 0

    def display(self, content, raw, display_id):
        assert raw
        assert display_id
        self.update(content, raw)
        return self

    def update(self, content, raw):
        self.shown, self.drawings = content, self.drawings + 1


@pytest.fixture
def notebook(monkeypatch):
    kernel = Kernel()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: kernel))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=kernel.display))
    return kernel


def test_a_notebook_has_its_bar_in_the_cell(notebook, blobs, capsys):
    TELL(3, n_init=2, pretrain_epochs=4, epochs=3, random_state=0, verbose=True, device="cpu").fit(blobs[0])
    assert capsys.readouterr() == ("", "")
    rows = ET.fromstring(notebook.shown["text/html"]).findall("tr")
    names = ["training", "pretraining 1/2", "clustering 1/2", "pretraining 2/2", "clustering 2/2"]
    assert sorted(row[0].text.partition(",")[0] for row in rows) == sorted(names)
    assert rows[0][0].text.startswith("training, about ")
    for row in rows:
        (bar,) = row[1]
        assert bar.get("value") == bar.get("max")
        assert bar.get("aria-label") == row[0].text
    assert rows[0][2].text is None  # there is no time left
    epochs = [row[2].text.split()[0] for row in rows[1:]]
    assert sorted(epochs) == ["3/3", "3/3", "4/4", "4/4"]
    assert "clustering 2/2 100 %  3/3" in notebook.shown["text/plain"]


def test_a_notebook_is_not_drawn_after_every_step(notebook):
    clock = Clock()
    bar = NotebookBar(clock)
    task = bar.add_task("<i>phase</i>", total=100)
    bar.start()
    for epoch in range(100):
        clock.now += 0.01
        bar.update(task, completed=epoch + 1)
    assert notebook.drawings <= 7
    bar.stop()
    assert "100 %" in notebook.shown["text/plain"]
    assert "&lt;i&gt;" in notebook.shown["text/html"]


def test_a_terminal_has_its_own(notebook, blobs, capsys):
    notebook.kernel = None  # IPython in a terminal
    TELL(3, pretrain_epochs=1, epochs=1, random_state=0, verbose=True, device="cpu").fit(blobs[0])
    assert notebook.shown is None
    assert "clustering" in capsys.readouterr().err


def test_a_fit_that_is_not_verbose_shows_nothing(notebook, blobs, capsys):
    TELL(3, pretrain_epochs=1, epochs=1, random_state=0, device="cpu").fit(blobs[0])
    assert notebook.shown is None
    assert capsys.readouterr() == ("", "")
