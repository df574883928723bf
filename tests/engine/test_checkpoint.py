"""A killed fit goes on as if nothing had happened; a damaged or foreign checkpoint is noticed."""

import contextlib
import errno
import functools
import hashlib
import json
import os
import shutil
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save as save_tensors
from sklearn.exceptions import ConvergenceWarning
from torch import nn

import diffclust
from conftest import ESTIMATORS, two_methods, ways
from diffclust import TELL
from diffclust.callbacks import StopWhenLabelsSettle
from diffclust.engine import checkpoint
from diffclust.engine.checkpoint import CheckpointFolder, comparable, pack, unpack
from diffclust.estimator import n_clusters
from diffclust.nn.n_clusters import Choice
from processes import PROCESSES

sys.path.insert(0, str(Path(__file__).parent))
import shared_fits

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


class Killed(Exception):
    pass


def killer(run, phase, epoch, error=Killed):
    """Raises at one moment of a fit, and never again."""
    seen = {"run": -1, "done": False}

    def watch(progress):
        if progress.epoch == 0 and progress.phase == "pretraining":
            seen["run"] += 1
        if not seen["done"] and (seen["run"], progress.phase, progress.epoch) == (run, phase, epoch):
            seen["done"] = True
            raise error

    return watch


def test_any_state_comes_back_as_it_was():
    state = {
        "weights": {"a": torch.randn(3, 4), "b": torch.arange(5)},
        0: {"step": torch.tensor(3.0), "nothing": None, "flags": (True, 1.5, "x")},
        "history": [{"loss": float("inf")}, []],
        "empty": {},
    }
    again = unpack(pack(state))
    assert again.keys() == state.keys()
    assert (again["weights"]["a"] == state["weights"]["a"]).all()
    assert again["weights"]["b"].dtype == torch.int64
    assert again[0]["flags"] == (True, 1.5, "x")
    assert again["history"] == state["history"]


@pytest.fixture(scope="module")
def without_caller_modes():
    """Fits that nothing disturbed, by method and settings."""
    return {}


# what a method remembers is asked for in the clustering; restarts and other moments are the engine's business, tried
# with one method, and with KMeansNet, whose first run is over too soon
MOMENT, OF_RESTARTS = (0, "clustering", 2), (1, "clustering", 2)
OTHERS = [(0, "pretraining", 0), (0, "pretraining", 2), (1, "pretraining", 1), OF_RESTARTS]
KILLS = [
    *((name, way, OF_RESTARTS if name == "KMeansNet" else MOMENT) for name in ESTIMATORS for way in ways(name)),
    *(("TELL", True, moment) for moment in OTHERS),
]


@pytest.mark.parametrize(("method", "joint", "moment"), KILLS, indirect=["method"])
def test_a_killed_fit_ends_with_the_labels_it_would_have_had(
    method, quick, digits, without_caller_modes, tmp_path, moment, joint
):
    X = digits[0][:48]
    network = "auto" if method is diffclust.KMeansNet else "dense"  # with which it ends before the last moment
    n_init = 2 if method in (TELL, diffclust.KMeansNet) else 1
    settings = {"network": network, "pretrain_epochs": 3, "epochs": 4, "n_init": n_init, "batch_size": 24}
    settings |= {} if joint is None else {"joint": joint}
    if (method, joint) not in without_caller_modes:
        without_caller_modes[method, joint] = quick(4, **settings).fit(X)
    whole = without_caller_modes[method, joint]
    model = quick(4, **settings, checkpoint=tmp_path, checkpoint_every=2, callbacks=[killer(*moment)])
    with pytest.raises(Killed):
        model.fit(X)
    assert not hasattr(model, "labels_")
    model.fit(X)
    assert (model.labels_ == whole.labels_).all()
    assert (model.transform(X) == whole.transform(X)).all()
    assert model.history_ == whole.history_
    assert [run["clustering_loss"] for run in model.runs_] == [run["clustering_loss"] for run in whole.runs_]
    assert not list(tmp_path.iterdir())  # nothing is left to go on with


@two_methods
def test_without_a_seed_the_seeds_are_kept(quick, blobs, tmp_path):
    model = quick(random_state=None, checkpoint=tmp_path, checkpoint_every=1, callbacks=[killer(0, "clustering", 1)])
    with pytest.raises(Killed):
        model.fit(blobs[0])
    kept = CheckpointFolder(tmp_path).read()["seeds"]
    assert [model.fit(blobs[0]).seed_] == kept


def test_without_a_seed_the_number_of_clusters_is_kept(digits, tmp_path, little_training, monkeypatch):
    settings = {"pretrain_epochs": 1, "epochs": 4, "device": "cpu", "checkpoint": tmp_path, "checkpoint_every": 1}
    looks = iter([Choice(3, [2, 3], [0.1, 0.2], [0.1, 0.2], [0.1, 0.2], 1.0), Choice(2, [], [], [], [], 1.0)])
    monkeypatch.setattr(n_clusters, "_estimate", lambda estimator, given: next(looks))
    with pytest.raises(Killed):
        diffclust.TELL("auto", **settings, callbacks=[killer(0, "clustering", 1)]).fit(digits[0])
    model = diffclust.TELL("auto", **settings).fit(digits[0])
    assert model.n_clusters_ == 3
    assert model.diagnostics_["number"]["candidates"] == [2, 3]


def test_numpys_numbers_may_be_recorded(digits, tmp_path):
    def record(progress):
        progress.record |= {"watched": np.float32(0.5), "counted": np.int64(3), "sound": np.bool_(True)}

    settings = {"pretrain_epochs": 1, "epochs": 4, "device": "cpu", "checkpoint": tmp_path, "checkpoint_every": 1}
    with pytest.raises(Killed):
        diffclust.TELL(3, **settings, callbacks=[record, killer(0, "clustering", 2)]).fit(digits[0])
    model = diffclust.TELL(3, **settings, callbacks=[record]).fit(digits[0])
    assert [(r["watched"], r["counted"], r["sound"]) for r in model.history_] == [(0.5, 3, True)] * 5


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_stop_rule_goes_on_where_it_was(digits, tmp_path, device):
    def build(**settings):
        stop = StopWhenLabelsSettle(0.05, every=2)
        callbacks = [stop, *settings.pop("callbacks", [])]
        training = {"pretrain_epochs": 8, "epochs": 40, "network": "dense", "random_state": 0, "device": device}
        return diffclust.TELL(4, **training, callbacks=callbacks, **settings)

    whole = build().fit(digits[0])
    assert 4 <= whole.n_iter_ < 40
    model = build(checkpoint=tmp_path, checkpoint_every=1, callbacks=[killer(0, "clustering", whole.n_iter_ - 2)])
    with pytest.raises(Killed):
        model.fit(digits[0])
    fresh = build(checkpoint=tmp_path, checkpoint_every=1)  # as a new process would have it
    assert fresh.fit(digits[0]).n_iter_ == whole.n_iter_
    assert (fresh.labels_ == whole.labels_).all()


@pytest.fixture(scope="module")
def folders(digits, tmp_path_factory):
    """Checkpoint folders of a fit that was killed, by its method: to be copied."""
    return functools.cache(lambda name: (tmp_path_factory.mktemp(name), []))


@pytest.fixture
def interrupted(method, quick, digits, folders, tmp_path):
    """A fit that was killed in its third epoch of clustering, with a folder of its own."""
    folder, done = folders(method.__name__)
    if not done:
        settings = {"checkpoint": folder, "checkpoint_every": 1, "callbacks": [killer(0, "clustering", 2)]}
        with pytest.raises(Killed):
            quick(4, **settings).fit(digits[0])
        done.append(True)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return quick(4, checkpoint=tmp_path, checkpoint_every=1)


@two_methods
def test_a_damaged_checkpoint_is_passed_over(interrupted, fitted_images, digits, tmp_path):
    model = interrupted
    newest = CheckpointFolder(tmp_path).files()[0]
    blob = bytearray(newest.read_bytes())
    blob[len(blob) // 2] ^= 1
    newest.write_bytes(bytes(blob))
    with pytest.warns(UserWarning, match=f"{newest.name} is damaged"):
        model.fit(digits[0])
    assert (model.labels_ == fitted_images.labels_).all()


@two_methods
def test_with_every_checkpoint_damaged_the_fit_starts_afresh(interrupted, fitted_images, digits, tmp_path):
    model = interrupted
    for path in CheckpointFolder(tmp_path).files():
        path.write_bytes(path.read_bytes()[:100])
    with pytest.warns(UserWarning, match="damaged"):
        model.fit(digits[0])
    assert (model.labels_ == fitted_images.labels_).all()


@two_methods
def test_a_checkpoint_of_another_fit_is_refused(interrupted, digits, tmp_path):
    model = interrupted
    lr = model.lr
    with pytest.raises(ValueError, match="another fit: lr differ"):
        model.set_params(lr=0.02).fit(digits[0])
    with pytest.raises(ValueError, match="another fit: data differ"):
        model.set_params(lr=lr).fit(digits[0] * 0.9)
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="is a file"):
        model.set_params(checkpoint=tmp_path / "file").fit(digits[0])


@two_methods
def test_how_often_checkpoints_are_written_may_change(interrupted, fitted_images, digits):
    model = interrupted
    seen = []
    callbacks = [lambda progress: seen.append((progress.phase, progress.epoch))]
    model.set_params(checkpoint_every=3, callbacks=callbacks).fit(digits[0])
    assert seen[0] == ("clustering", 2)  # not from the beginning
    assert (model.labels_ == fitted_images.labels_).all()


@pytest.mark.parametrize("call", ["write", "fsync", "replace", "unlink"])
@pytest.mark.parametrize("which", [0, 1, 2, 3])
def test_a_fault_at_any_write_leaves_a_whole_checkpoint(tmp_path, monkeypatch, call, which):
    """The disk fails at the which-th call: what was whole before still is, and nothing newer lies."""
    folder = CheckpointFolder(tmp_path)
    folder.write({"number": -1})
    owner, name = {
        "write": (Path, "open"),
        "fsync": (os, "fsync"),
        "replace": (Path, "replace"),
        "unlink": (Path, "unlink"),
    }[call]
    real, count = getattr(owner, name), {"calls": -1}

    def faulty(*args, **kwargs):
        count["calls"] += 1
        if count["calls"] == which:
            if call == "write":  # half a file, as after a power cut
                Path(args[0]).write_bytes(b"half")
            raise OSError("disk")
        return real(*args, **kwargs)

    done = -1
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, faulty)
        for number in range(4):
            try:
                folder.write({"number": number})
                done = number
            except OSError:
                break
    kept = folder.read()["number"]
    assert kept in (done, done + 1)  # a fault after the rename leaves the newer one, whole
    folder.write({"number": 99})
    assert folder.read()["number"] == 99


@pytest.mark.full_size  # as in the other process
def test_a_process_killed_for_good_is_resumed(digits, tmp_path):
    X = digits[0][:64]
    np.save(tmp_path / "x.npy", X)
    process = PROCESSES.Process(target=shared_fits.fit_and_wait, args=[tmp_path])
    process.start()
    while process.is_alive() and not (tmp_path / "waits").exists():
        time.sleep(0.01)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    seen, settings = [], shared_fits.ALONE
    model = TELL(4, **settings, checkpoint=tmp_path / "checkpoint", checkpoint_every=1, callbacks=[seen.append]).fit(X)
    assert len(seen) == 2  # epochs, and not all of them
    assert (model.labels_ == TELL(4, **settings).fit(X).labels_).all()


@two_methods
@pytest.mark.parametrize("phase", ["pretraining", "clustering"])
def test_control_c_leaves_a_usable_estimator_and_a_checkpoint(quick, fitted_images, digits, tmp_path, phase):
    stop = killer(0, phase, 1, KeyboardInterrupt)
    model = quick(4, n_init=1, checkpoint=tmp_path, checkpoint_every=1, callbacks=[stop])
    with pytest.warns(Warning, match=f"Stopped by the user .* of {phase}"):
        model.fit(digits[0])
    assert (model.predict(digits[0]) == model.labels_).all()
    model.save(tmp_path / "saved")
    assert (diffclust.load(tmp_path / "saved").predict(digits[0]) == model.labels_).all()
    assert (model.fit(digits[0]).labels_ == fitted_images.labels_).all()


def test_settings_that_are_code_are_told_apart():
    rates = [functools.partial(torch.optim.SGD, lr=lr) for lr in (0.1, 0.1, 0.2)]
    assert comparable(rates[0]) == comparable(rates[1]) != comparable(rates[2])


def test_other_files_of_the_folder_are_left_alone(tmp_path, blobs):
    others = ["10.ckpt", "00000005.ckpt", "epoch=1-step=200.ckpt", "data.zip.part", "readme.txt"]
    for name in others:
        (tmp_path / name).write_text("mine")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # nothing of ours is damaged
        warnings.simplefilter("ignore", ConvergenceWarning)
        TELL(3, checkpoint=tmp_path, checkpoint_every=1, epochs=2, pretrain_epochs=2, device="cpu").fit(blobs[0])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)
    assert all((tmp_path / name).read_text() == "mine" for name in others)


def test_functions_and_networks_are_told_apart():
    def optimizer(lr):
        return lambda parameters: torch.optim.SGD(parameters, lr=lr)

    def network(width, dropout=0.1):
        return nn.Sequential(nn.Linear(4, width), nn.Dropout(dropout))

    assert comparable(optimizer(0.1)) == comparable(optimizer(0.1)) != comparable(optimizer(0.2))
    torch.manual_seed(0)
    first, again = network(3), network(3)  # with other weights: a script draws them anew when it goes on
    assert comparable(first) == comparable(again)
    assert comparable(first) != comparable(network(5))
    assert comparable(first) != comparable(network(3, 0.5))
    assert json.loads(json.dumps(comparable(first))) == comparable(first)


def test_a_folder_is_for_one_fit_at_a_time(blobs, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "LOCK_SECONDS", 0.05)
    settings = {"pretrain_epochs": 1, "epochs": 2, "device": "cpu", "checkpoint": tmp_path, "random_state": 0}
    said = []

    def beside(progress):
        with pytest.raises(ValueError, match="another fit is at work in this folder") as caught:
            TELL(3, **settings).fit(blobs[0])
        said.append(caught)

    model = TELL(3, **settings, callbacks=[beside]).fit(blobs[0])
    assert len(said) == 3
    assert (TELL(3, **settings).fit(blobs[0]).labels_ == model.labels_).all()  # and free again
    with pytest.raises(Killed):
        TELL(3, **settings, callbacks=[killer(0, "clustering", 1)]).fit(blobs[0])
    assert (TELL(3, **settings).fit(blobs[0]).labels_ == model.labels_).all()  # after an error, too


# --- a folder that fails during a fit

SHORT = {"network": "identity", "pretrain_epochs": 0, "epochs": 6, "random_state": 0, "device": "cpu"}


def short(X, folder, *callbacks):
    """A fit that writes a checkpoint after every epoch but the last."""
    return TELL(3, **SHORT, checkpoint=folder, checkpoint_every=1, callbacks=callbacks).fit(X)


@pytest.fixture
def whole(blobs):
    """The same fit without checkpoints."""
    return TELL(3, **SHORT).fit(blobs[0])


def at(epoch, act):
    return lambda progress: act() if progress.epoch == epoch else None


def test_a_folder_that_vanished_is_made_again(blobs, whole, tmp_path):
    folder, seen = tmp_path / "a" / "ckpt", []
    vanish = at(2, lambda: shutil.rmtree(tmp_path / "a"))
    with pytest.raises(Killed):
        short(blobs[0], folder, vanish, killer(-1, "clustering", 4))
    model = short(blobs[0], folder, seen.append)
    assert len(seen) == 2  # epochs that were left
    assert (model.labels_ == whole.labels_).all()
    assert not list(folder.iterdir())
    vanish = at(5, lambda: shutil.rmtree(tmp_path / "a"))
    assert (short(blobs[0], folder, vanish).labels_ == whole.labels_).all()


@pytest.mark.parametrize(("call", "faults"), [("write_flushed", 1), ("write_flushed", 99), ("flush", 99)])
def test_a_fit_outlives_a_full_disk(blobs, whole, tmp_path, monkeypatch, call, faults):
    """With one word, however many checkpoints fail; where there is room again, they are written again."""
    real, count = getattr(checkpoint, call), {"faults": 0}

    def full(*args):
        if count["faults"] < faults:
            count["faults"] += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args)

    monkeypatch.setattr(checkpoint, call, full)
    seen = []
    keep = at(5, lambda: seen.extend(tmp_path.glob("*.ckpt")))
    with pytest.warns(UserWarning, match=rf"checkpoint={tmp_path}: .* not be written .*No space left") as said:
        model = short(blobs[0], tmp_path, keep)
    assert sum(each.category is UserWarning for each in said) == 1
    assert count["faults"] == min(faults, 6)  # the last is written before the fit is done, and then removed
    assert bool(seen) == (faults == 1 or call == "flush")
    assert (model.labels_ == whole.labels_).all()
    assert not list(tmp_path.iterdir())


def test_a_read_only_folder_is_refused_before_training(blobs, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(PermissionError, match=rf"checkpoint: .* cannot be written to: '{tmp_path}'"):
        short(blobs[0], tmp_path, at(0, pytest.fail))


def test_a_checkpoint_that_cannot_be_removed_ends_no_fit(blobs, whole, tmp_path, monkeypatch):
    def refuse(path, missing_ok=False):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    lock_up = at(5, lambda: monkeypatch.setattr(Path, "unlink", refuse))
    with pytest.warns(UserWarning, match="a checkpoint could not be .*Permission denied"):
        model = short(blobs[0], tmp_path, lock_up)
    assert (model.labels_ == whole.labels_).all()


def test_a_folder_of_the_same_name_may_be_another_fits(blobs, whole, tmp_path):
    """It is left to the other one, which has reserved it."""
    folder, others = tmp_path / "ckpt", contextlib.ExitStack()

    def replace():
        shutil.rmtree(folder)
        other = CheckpointFolder(folder)
        others.enter_context(other.reserved())
        other.write("of another fit")

    with others, pytest.warns(UserWarning, match="another fit is at work in this folder"):
        model = short(blobs[0], folder, at(2, replace))
    assert (model.labels_ == whole.labels_).all()
    assert CheckpointFolder(folder).read() == "of another fit"


def test_a_stop_while_a_checkpoint_is_written_leaves_no_half_file(tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    folder = CheckpointFolder(tmp_path)
    folder.write("first")
    monkeypatch.setattr(Path, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        folder.write("second")
    assert [path.name for path in tmp_path.iterdir()] == ["diffclust-00000000.ckpt"]


def test_a_checkpoint_waits_for_who_saves_what_came_out(blobs, tmp_path):
    settings = {"pretrain_epochs": 1, "epochs": 2, "device": "cpu", "checkpoint": tmp_path, "random_state": 0}
    seen = []
    with checkpoint.keeping_checkpoints():
        model = TELL(3, **settings).fit(blobs[0])
    assert list(tmp_path.iterdir())
    again = TELL(3, **settings, callbacks=[seen.append]).fit(blobs[0])
    assert not seen  # nothing was left to train
    assert (again.labels_ == model.labels_).all()
    assert not list(tmp_path.iterdir())


def seal(path, blob):
    path.write_bytes(hashlib.sha256(blob).digest() + blob)


@pytest.mark.parametrize("odd", ["fifo", "zeros", "deep", "other bytes", "link"])
def test_odd_files_are_passed_over(tmp_path, odd):
    folder = CheckpointFolder(tmp_path)
    folder.write({"number": 1})
    path = tmp_path / "diffclust-00000007.ckpt"
    if odd == "fifo":
        os.mkfifo(path)
    elif odd == "zeros":
        path.symlink_to("/dev/zero")
    elif odd == "deep":
        seal(path, save_tensors({}, metadata={"state": '{"list": [' * 5000 + "]}" * 5000}))
    elif odd == "link":
        path.symlink_to(tmp_path / "nothing")
    else:
        seal(path, b"nothing of ours")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert folder.read() == {"number": 1}
    assert len(said) == (odd != "link")


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.update(entries=[]),
        lambda s: s.update(seeds=["a"]),
        lambda s: s.pop("entries"),
        lambda s: s["entries"][0].pop("phases"),
        lambda s: s["entries"][0].update(current=5),
        lambda s: s["entries"][0].update(current={"phase": "clustering", "state": {}}),
        lambda s: s["entries"][0].update(phases={"pretraining": {"model": {}}}),
        lambda s: s["entries"][0].update(result={"model": {}}),
        lambda s: s["entries"][0]["current"]["state"]["optimizer"]["param_groups"][0].pop("lr"),
        lambda s: s["entries"][0]["current"]["state"]["optimizer"]["param_groups"][0].update(lr="fast"),
        lambda s: next(iter(s["entries"][0]["current"]["state"]["optimizer"]["state"].values())).popitem(),
        lambda s: s["entries"][0]["current"]["state"].update(model={"clusters.weight": torch.ones(9, 9)}),
    ],
)
@pytest.mark.parametrize("method", ["TELL"], indirect=True)
def test_a_checkpoint_that_does_not_fit_is_a_clear_error(interrupted, digits, tmp_path, change):
    path = CheckpointFolder(tmp_path).files()[0]
    state = unpack(path.read_bytes()[32:])
    change(state)
    seal(path, pack(state))
    with pytest.raises(ValueError, match=r"does not fit the model .* Give another folder, or remove it"):
        interrupted.fit(digits[0])
