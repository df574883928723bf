"""The command when a disk is full, a process is killed, a file is a stranger's, or the user has had enough."""

import csv
import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest
from PIL import Image

import diffclust
from diffclust import cli
from diffclust.cli import fitting
from diffclust.engine import checkpoint
from diffclust.saving import folder as saving_folder
from diffclust.saving.folder import (
    BESIDE,
    CLUSTERS,
    LABELS,
    MODEL,
    RECORD,
    SETTINGS,
    SOURCE,
    SUMS,
    TENSORS,
    WORDS,
    read_folder,
)
from processes import PROCESSES, command, command_that_waits

SHORT = ("--epochs", "2", "--set", "pretrain_epochs=2", "--quiet", "--device", "cpu")

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # training is far too short


@pytest.fixture
def full_disk():
    """Files can have no more than some bytes: real faults of real writes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))

    yield fill
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def rows(tmp_path, blobs):
    np.save(tmp_path / "x.npy", blobs[0])
    return tmp_path / "x.npy"


@pytest.fixture
def model(tmp_path, blobs):
    diffclust.TELL(3, epochs=2, pretrain_epochs=2, random_state=0, device="cpu").fit(blobs[0]).save(tmp_path / "model")
    return tmp_path / "model"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# --- one transaction


class Killed(BaseException):
    pass


OLD = {SETTINGS: b"{1}", TENSORS: b"one" * 100, WORDS: b"old words", RECORD: b"r", SOURCE: b"s", LABELS: b"l"}
NEW = {SETTINGS: b"{2}", TENSORS: b"two" * 100, WORDS: b"new words", RECORD: b"R", LABELS: b"l"}
MOMENTS = [("write_flushed", i) for i in range(5)] + [("_link", i) for i in range(6)]
MOMENTS += [("flush", i) for i in range(3)] + [("replace", i) for i in range(5)] + [("unlink", 6)]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("operation", "which"), MOMENTS)
def test_killed_at_any_moment_all_files_are_of_one_save(tmp_path, monkeypatch, operation, which, after):
    saving_folder.write_folder(tmp_path, OLD)
    owner = type(tmp_path) if operation in ("replace", "unlink") else saving_folder
    original, calls = getattr(owner, operation), []

    def call(*args, **options):
        calls.append(args)
        if len(calls) == which + 1 and not after:
            raise Killed
        answer = original(*args, **options)
        if len(calls) == which + 1:
            raise Killed
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(owner, operation, call)
        patch.setattr(saving_folder._Replacement, "_roll_back", lambda self: None)  # who is killed does nothing more
        patch.setattr(saving_folder._Replacement, "_clean", lambda self: None)
        with pytest.raises(Killed):
            saving_folder.write_folder(tmp_path, NEW)
    found = read_folder(tmp_path, BESIDE)
    assert found.blobs in (OLD, NEW)
    assert not found.damaged
    saving_folder.write_folder(tmp_path, OLD)  # the next save tidies up
    assert read_folder(tmp_path, BESIDE).blobs == OLD
    assert names(tmp_path) == sorted([*OLD, SUMS])
    saving_folder.write_folder(tmp_path, NEW)
    assert read_folder(tmp_path, BESIDE).blobs == NEW
    assert names(tmp_path) == sorted([*NEW, SUMS])


@pytest.mark.parametrize("which", range(8))
def test_a_full_disk_at_any_file_leaves_the_former_save(tmp_path, monkeypatch, which):
    saving_folder.write_folder(tmp_path, OLD)
    original, calls = saving_folder.write_flushed, []

    def call(path, blob):
        calls.append(path)
        if len(calls) == which + 1:
            path.write_bytes(blob[:1])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(path, blob)

    monkeypatch.setattr(saving_folder, "write_flushed", call)
    if which < 5:  # the files that are new, and the checksums
        with pytest.raises(OSError, match=r"No space left on device: '[^.]") as caught:
            saving_folder.write_folder(tmp_path, NEW)
        assert ".part" not in str(caught.value)
        assert read_folder(tmp_path, BESIDE).blobs == OLD
        assert names(tmp_path) == sorted([*OLD, SUMS])
    else:
        saving_folder.write_folder(tmp_path, NEW)


def test_a_fit_saves_everything_together(run, tmp_path):
    for name, animals in (("old", ("cat", "dog")), ("new", ("ant", "bee"))):
        texts = [f"{animal} {verb} {i % 3}x" for i in range(6) for animal in animals for verb in ("sat", "ran")]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    assert run("fit", "old.jsonl", "-k", 2, "--out", "a", *SHORT)[0] == 0
    files = read_folder(tmp_path / "a", BESIDE)
    assert files.blobs.keys() == {*MODEL, RECORD, SOURCE, LABELS, CLUSTERS}
    check = subprocess.run(["sha256sum", "-c", SUMS], cwd=tmp_path / "a", capture_output=True, text=True)
    assert check.returncode == 0
    assert check.stdout.count(": OK") == 6
    # words of another model beside this one, as a kill between two saves once left them
    (tmp_path / "a" / WORDS).write_bytes(json.dumps({"terms": ["zebra"], "weights": [1.0]}).encode())
    assert run("predict", "a", "old.jsonl", "--out", "p.csv")[0] == 0
    assert (tmp_path / "p.csv").read_bytes() == (tmp_path / "a" / LABELS).read_bytes()
    assert run("fit", "new.jsonl", "-k", 2, "--out", "a", *SHORT)[0] == 0
    assert "ant" in diffclust.load("a").columns_.features
    (tmp_path / "a" / CLUSTERS).write_bytes(b"cluster,rows\n")
    assert run("predict", "a", "new.jsonl", "--out", "p.csv")[0] == 0


def test_labels_are_the_users_to_change(run, rows, tmp_path):
    run("fit", rows, "-k", 3, "--out", "a", *SHORT)
    (tmp_path / "a" / LABELS).unlink()
    (tmp_path / "a" / SOURCE).unlink()
    assert run("predict", "a", rows, "--out", "p.csv")[0] == 0


# --- full disks


def test_training_survives_a_full_disk(run, rows, tmp_path, monkeypatch):
    """The checkpoint stays until the model is on the disk."""
    words = ("fit", rows, "-k", "3", *SHORT, "--out", "a", "--checkpoint", "ckpt")

    def full(path, blob):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(saving_folder, "write_flushed", full)
        code, out, err = run(*words)
    assert (code, out) == (1, "")
    assert "not saved, but the training is in ckpt: add --resume" in err
    assert err.splitlines()[-1] == f"diffclust: a/{SUMS}: No space left on device"
    assert list((tmp_path / "ckpt").iterdir())
    assert not list((tmp_path / "a").iterdir())
    assert run(*words, "--resume")[0] == 0
    assert not list((tmp_path / "ckpt").iterdir())
    run("fit", rows, "-k", "3", *SHORT, "--out", "whole")
    assert (tmp_path / "a" / LABELS).read_bytes() == (tmp_path / "whole" / LABELS).read_bytes()


@pytest.fixture
def read_only(monkeypatch):
    """A folder is made read-only for a user who is not root."""

    def forbid(folder):
        may = os.access

        def access(path, mode, **options):
            return not (mode & os.W_OK and os.path.abspath(path) == str(folder)) and may(path, mode, **options)

        monkeypatch.setattr(os, "access", access)

    return forbid


@pytest.mark.parametrize(
    ("option", "folder", "says"),
    [
        ("--out", "there", "--out there: there cannot be written to."),
        ("--out", "there/new", "--out there/new: there cannot be written to."),
        ("--checkpoint", "there", "--checkpoint there: there cannot be written to."),
        ("--checkpoint", "there/new", "--checkpoint there/new: there cannot be written to."),
        ("--checkpoint", "x.npy", "--checkpoint x.npy is a file, not a folder."),
        ("--out", "link", "--out link is a link to what is not there."),
        ("--checkpoint", "link", "--checkpoint link is a link to what is not there."),
    ],
)
def test_a_place_that_cannot_be_written_to_is_said_before_the_work(
    run, rows, tmp_path, monkeypatch, read_only, option, folder, says
):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    read_only(tmp_path / "there")
    monkeypatch.setattr(diffclust.TELL, "fit", None)
    places = {"--out": "a", "--checkpoint": "c", option: folder}
    words = [word for pair in places.items() for word in pair]
    assert run("fit", "x.npy", "-k", 3, *words, *SHORT) == (2, "", f"diffclust: {says}\n")
    assert names(tmp_path) == ["link", "there", "x.npy"]


def test_an_out_folder_that_vanished_is_made_again(run, rows, tmp_path, monkeypatch):
    """With the folders above it; and where that cannot be, the training is kept."""
    (tmp_path / "runs" / "a").mkdir(parents=True)
    words = ("fit", rows, "-k", 3, "--out", "runs/a", "--checkpoint", "c", *SHORT)
    save, what_happens = fitting._save, []

    def later(*args):
        what_happens.pop()()
        save(*args)

    monkeypatch.setattr(fitting, "_save", later)
    what_happens.append(lambda: (shutil.rmtree("runs"), (tmp_path / "runs").write_text("a file")))
    code, _, err = run(*words)
    assert code
    assert "not saved, but the training is in c: add --resume" in err
    (tmp_path / "runs").unlink()
    (tmp_path / "runs").mkdir()
    what_happens.append(lambda: shutil.rmtree("runs"))
    assert run(*words, "--resume")[0] == 0
    assert diffclust.load("runs/a").n_clusters == 3


def test_a_checkpoint_that_stays_spoils_no_saved_model(run, rows, tmp_path, monkeypatch):
    def refuse(folder):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "c")

    monkeypatch.setattr(checkpoint.CheckpointFolder, "clear", refuse)
    code, out, err = run("fit", rows, "-k", 3, "--out", "a", "--checkpoint", "c", *SHORT)
    assert code == 0
    assert "Saved to a" in out
    assert "the model is saved, but its checkpoint in c was not removed: Permission denied" in err


@pytest.mark.parametrize("ending", ["csv", "npy", "parquet"])
def test_predict_on_a_full_disk(run, model, rows, tmp_path, full_disk, ending):
    (tmp_path / f"p.{ending}").write_text("former")
    before = names(tmp_path)
    full_disk(100)
    code, out, err = run("predict", "model", rows, "--out", f"p.{ending}")
    full_disk(resource.RLIM_INFINITY)
    assert (code, out) == (1, "")
    assert f"p.{ending}" in err
    assert ".part" not in err
    assert (tmp_path / f"p.{ending}").read_text() == "former"
    assert names(tmp_path) == before
    assert run("predict", "model", rows, "--out", f"p.{ending}")[0] == 0
    assert names(tmp_path) == before


def test_labels_as_numpy_has_them(run, model, rows, tmp_path):
    run("predict", "model", rows, "--out", "p.npy")
    labels = np.load(tmp_path / "p.npy")
    assert labels.dtype == np.int64
    assert (labels == diffclust.load(model).labels_).all()


def test_a_report_on_a_full_disk_leaves_the_former(run, model, rows, tmp_path, full_disk):
    (tmp_path / "page.html").write_text("former")
    full_disk(10_000)
    code, _, err = run("report", "model", rows, "--out", "page.html", "--layout", "PCA", "--sample", 20)
    full_disk(resource.RLIM_INFINITY)
    assert (code, err) == (1, "diffclust: page.html: File too large\n")
    assert (tmp_path / "page.html").read_text() == "former"
    assert names(tmp_path) == ["model", "page.html", "x.npy"]


# --- a stranger's folder


def test_report_does_not_read_what_a_stranger_names(run, rows, tmp_path, blobs):
    run("fit", rows, "-k", 3, "--out", "a", *SHORT)
    np.save(tmp_path / "secret.npy", blobs[0] + 1)
    blobs_there = read_folder(tmp_path / "a", BESIDE).blobs
    said = json.loads(blobs_there[SOURCE])
    for lie in (
        {"data": str(tmp_path / "secret.npy")},
        {**said, "data": str(tmp_path / "secret.npy")},
        {"data": "secret.npy"},
        {"data": "~/secret.npy"},
        {"data": 5},
        {"data": str(tmp_path)},
    ):
        saving_folder.write_folder(tmp_path / "a", {**blobs_there, SOURCE: json.dumps(lie).encode()})
        code, out, err = run("report", "a", "--layout", "PCA", "--sample", 20)
        assert (code, out) == (2, "")
        assert "diffclust report a DATA" in err
        assert not (tmp_path / "a" / "report.html").exists()
    assert run("report", "a", "secret.npy", "--layout", "PCA", "--sample", 20)[0] == 0
    saving_folder.write_folder(tmp_path / "a", blobs_there)
    assert run("report", "a", "--layout", "PCA", "--sample", 20)[0] == 0
    np.save(rows, blobs[0] * 2)
    code, _, err = run("report", "a", "--layout", "PCA", "--sample", 20)
    assert code == 2
    assert "no longer, what a was fitted on" in err


def test_the_pictures_of_a_folder_are_known_again(run, tmp_path):
    (tmp_path / "pictures").mkdir()
    rng = np.random.default_rng(0)
    for name in ("=1+1", "+a", "-b", "@c", "d", "e"):
        Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8)).save(tmp_path / "pictures" / f"{name}.png")
    assert run("fit", "pictures", "-k", 2, "--out", "a", *SHORT)[0] == 0
    assert run("explain", "a", "--row", 0)[0] == 0
    run("predict", "a", "pictures", "--out", "p.csv")
    for path in (tmp_path / "a" / LABELS, tmp_path / "p.csv"):
        with path.open(newline="") as file:
            found = [line["file"] for line in csv.DictReader(file)]
        assert {*found} == {"./=1+1.png", "./+a.png", "./-b.png", "./@c.png", "d.png", "e.png"}
        assert all((tmp_path / "pictures" / name).exists() for name in found)
    (tmp_path / "pictures" / "d.png").write_bytes(b"another")
    assert run("explain", "a", "--row", 0)[0] == 2


# --- Ctrl-C


def test_ctrl_c_on_the_way_out_changes_nothing(run, monkeypatch):
    before = signal.getsignal(signal.SIGINT)

    def again(text):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)

    def ctrl_c(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "app", ctrl_c)
    monkeypatch.setattr(cli, "say", again)
    try:
        assert run("methods")[0] == 1
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("ends", "code"), [(0, 0), (3, 3), (cli.TYPER_INTERRUPTED, 1)])
def test_ctrl_c_when_all_is_done_leaves_the_code(run, monkeypatch, ends, code):
    late, ignore = [KeyboardInterrupt], cli._no_more_ctrl_c

    def ctrl_c():
        for error in late[:]:
            late.clear()
            raise error
        ignore()

    monkeypatch.setattr(cli, "_run", lambda: ends)
    monkeypatch.setattr(cli, "_no_more_ctrl_c", ctrl_c)
    assert run("methods")[0] == code
    assert late == []


def test_two_ctrl_c_end_with_one(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(500, 20)))
    words = ("fit", "x.npy", "-k", "3", "--out", "a", "--checkpoint", "c", "--set", "checkpoint_every=1")
    words += ("--epochs", "100000", "--set", "network=dense", "--device", "cpu")
    process = PROCESSES.Process(target=command, args=[tmp_path, words])
    process.start()
    try:
        while process.is_alive() and not list(tmp_path.glob("c/*.ckpt")):
            time.sleep(0.02)
        for _ in range(2):
            os.kill(process.pid, signal.SIGINT)
        process.join(60)
    finally:
        process.kill()
    said = (tmp_path / "err").read_text()
    assert "Traceback" not in said
    if process.exitcode == 0:  # the first ended the training, and the second came when all was saved
        assert diffclust.load(tmp_path / "a").n_iter_ < 100_000
    else:
        assert process.exitcode == 1
        assert "stopped" in said


# --- SIGTERM


@pytest.mark.full_size  # as in the other process
def test_sigterm_leaves_a_word_and_a_whole_checkpoint(run, rows, tmp_path):
    words = ("fit", "x.npy", "-k", "3", "--epochs", "5", "--set", "network=identity", "--device", "cpu")
    kept = (*words, "--out", "a", "--checkpoint", "c", "--set", "checkpoint_every=1")
    process = PROCESSES.Process(target=command_that_waits, args=[tmp_path, kept])
    process.start()
    try:
        while process.is_alive() and not list(tmp_path.glob("c/*2.part")):
            time.sleep(0.01)
        for _ in range(2):  # as `timeout` sends it
            os.kill(process.pid, signal.SIGTERM)
        process.join(60)
    finally:
        process.kill()
    assert process.exitcode == 143
    assert (tmp_path / "err").read_text() == "diffclust: stopped by SIGTERM. Add --resume to continue from c.\n"
    assert (tmp_path / "said").read_text() == ""
    assert names(tmp_path / "c") == ["diffclust-00000000.ckpt", "diffclust-00000001.ckpt"]
    assert not (tmp_path / "a").exists()
    assert run(*kept, "--resume")[0] == 0
    run(*words, "--out", "whole")
    assert (tmp_path / "a" / LABELS).read_bytes() == (tmp_path / "whole" / LABELS).read_bytes()


def test_sigterm_while_a_model_is_saved_leaves_the_former(run, rows, tmp_path, monkeypatch):
    run("fit", rows, "-k", 3, "--out", "a", *SHORT)
    former = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}

    def stop(path):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.05)

    with monkeypatch.context() as patch:
        patch.setattr(saving_folder, "flush", stop)
        code, _, err = run("fit", rows, "-k", 2, "--out", "a", "--checkpoint", "c", *SHORT)
    assert (code, err) == (143, "diffclust: stopped by SIGTERM. Add --resume to continue from c.\n")
    assert {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()} == former
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_sigterm_is_left_to_the_caller(run, monkeypatch):
    """To one that ignores it, and in one of several processes, where torchrun waits for the end."""
    seen = []
    monkeypatch.setattr(cli, "app", lambda *_, **__: seen.append(signal.getsignal(signal.SIGTERM)))
    monkeypatch.setenv("WORLD_SIZE", "2")
    run("methods")
    monkeypatch.delenv("WORLD_SIZE")
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        run("methods")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [signal.SIG_DFL, signal.SIG_IGN]
