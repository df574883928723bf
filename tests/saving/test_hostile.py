"""A stranger's folder: sizes are compared with the bytes first, odd files are not waited for, numbers are checked."""

import contextlib
import json
import os
import resource
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from forging import forge, write

import diffclust
from diffclust.engine.disk import read_regular
from diffclust.saving.folder import SETTINGS, SUMS, TENSORS

FIXTURES = Path(__file__).parent / "fixtures" / "format-2"


@contextlib.contextmanager
def bounded(seconds=20, megabytes=300):
    """What is inside neither waits for ever nor takes much memory."""

    def over(*_):
        raise TimeoutError(f"over {seconds} s")

    before, handler = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, signal.signal(signal.SIGALRM, over)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1024 * megabytes


def copied(name, tmp_path):
    shutil.copytree(FIXTURES / name, tmp_path / "m")
    return tmp_path / "m"


@pytest.fixture
def tell(tmp_path):
    return copied("TELL", tmp_path)


def refused(folder, says="cannot be read as a diffclust model"):
    with bounded(), pytest.raises(ValueError, match=says):
        diffclust.load(folder, device="cpu")


def config(**changes):
    return lambda settings: settings["network"]["config"].update(changes)


def knobs(**changes):
    return lambda settings: [settings[part].update(changes) for part in ("params", "fitted_with")]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("TELL", knobs(n_clusters=10**8)),
        ("TELL", config(hidden=[1] * 300_000)),
        ("TELL", config(hidden=[10**5, 10**5])),
        ("TELL", config(embedding_dim=10**9)),
        ("TELL", config(input_shape=[10**9])),
        ("neighbours", config(components=10**8)),
        ("neighbours", config(hidden=[2] * 100_000)),
        ("images", config(hidden=10**9)),
        ("images", config(input_shape=[1, 10**6, 10**6])),
        ("fallback", config(components=10**8)),
        ("VaDE", knobs(n_clusters=10**8)),
        ("CrossMetric", knobs(n_clusters=10**8)),
        ("DCN", knobs(n_clusters=10**9)),
        ("SSCNet", knobs(n_layers=10**7)),
        ("SSCNet", knobs(n_blocks=10**7)),
        ("SSCNet", knobs(n_clusters=10**5)),
        ("SSCNet", config(embedding_dim=10**9)),
    ],
)
def test_numbers_do_not_take_memory_or_time(tmp_path, name, change):
    folder = copied(name, tmp_path)
    forge(folder, change)
    refused(folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("name", [SETTINGS, TENSORS, SUMS])
def test_only_regular_files_are_read(tell, name):
    whole = (tell / name).read_bytes()
    (tell / name).unlink()
    os.mkfifo(tell / name)
    refused(tell, "not a regular file")
    (tell / name).unlink()
    (tell / name).symlink_to("/dev/zero")
    refused(tell, "not a regular file")
    (tell / name).unlink()
    (tell / name).mkdir()
    refused(tell, "not a regular file")
    (tell / name).rmdir()
    (tell / name).symlink_to(tell / name)  # a loop
    with bounded(), pytest.raises(OSError, match="symbolic links"):
        diffclust.load(tell)
    (tell / name).unlink()
    (tell.parent / "elsewhere").write_bytes(whole)
    (tell / name).symlink_to(tell.parent / "elsewhere")  # as caches of models have it
    assert diffclust.load(tell, device="cpu").n_clusters == 3


def test_a_long_list_of_checksums_is_not_read(tell):
    with (tell / SUMS).open("r+b") as file:
        file.truncate(1 << 40)  # of holes: no bytes on the disk
    refused(tell, "more than the")
    with pytest.raises(ValueError, match="more than the 10"):
        read_regular(tell / TENSORS, most=10)


@pytest.mark.parametrize("place", ["../secret", "/etc/passwd", "..", ".hidden", "a/b", ""])
def test_checksums_lead_out_of_no_folder(tell, place):
    with (tell / SUMS).open("ab") as file:
        file.write(b"0" * 64 + b"  " + place.encode() + b"\n")
    refused(tell, "damaged")


def test_deep_settings_are_refused(tell):
    tensors = (tell / TENSORS).read_bytes()
    write(tell, b"[" * 200_000, tensors)
    refused(tell)
    deep = json.loads((FIXTURES / "TELL" / SETTINGS).read_bytes())
    text = json.dumps(deep).replace('"history_": [', '"history_": [' + "[" * 100_000 + "]" * 100_000 + ", ", 1)
    write(tell, text.encode(), tensors)
    refused(tell)


def too_large(tensors):
    """Finite weights, and a product that is not."""
    for name in ("encoder.2.bias", "encoder.5.weight"):
        tensors[f"model.autoencoder.{name}"].fill_(1e30)


def tensor(name, value):
    def change(tensors):
        tensors[name].view(-1)[0] = value

    return change


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("TELL", tensor("model.clusters.weight", torch.nan), "NaN or infinity"),
        ("TELL", tensor("model.autoencoder.encoder.2.weight", torch.inf), "NaN or infinity"),
        ("TELL", tensor("cluster_centers_", torch.nan), "NaN or infinity"),
        ("TELL", tensor("model.autoencoder.scale", 0), "scale should be > 0"),
        ("TELL", tensor("labels_", 3), "labels reach from"),
        ("TELL", tensor("labels_", -1), "labels reach from"),
        ("TELL", tensor("runs.0.labels", 99), "labels reach from"),
        ("images", tensor("model.autoencoder.encoder.1.running_var", -1), "negative variance"),
        ("TELL", too_large, "NaN or infinite"),
        ("stream", tensor("stream.counts", torch.nan), "NaN or infinity"),
        ("TELL", lambda tensors: tensors.update(labels_=tensors["labels_"].float()), "whole numbers"),
        ("TELL", lambda tensors: tensors.update(cluster_centers_=torch.zeros(2, 3)), "its centres have shape"),
        ("TELL", lambda tensors: tensors.pop("labels_"), "missing"),
        ("TELL", lambda tensors: tensors.update({"model.surprise": torch.ones(1)}), "different models: surprise"),
        ("TELL", lambda tensors: tensors.update({"model.autoencoder.shift": torch.zeros(7, 6)}), "shift has shape"),
        ("TELL", lambda tensors: tensors.update({"model.clusters.weight": torch.ones(3, 4)}), "should have shape"),
    ],
)
def test_tensors_are_checked(tmp_path, name, change, says):
    folder = copied(name, tmp_path)
    forge(folder, tensors=change)
    refused(folder, says)


def fitted(**changes):
    return lambda settings: settings["fitted"].update(changes)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (fitted(temperature_=0), "temperature_=0 should be > 0"),
        (fitted(temperature_=-1.0), "should be > 0"),
        (fitted(temperature_=float("nan")), "finite number"),
        (fitted(temperature_=float("inf")), "finite number"),
        (fitted(temperature_="warm"), "finite number"),
        (fitted(temperature_=True), "finite number"),
        (fitted(image_divisor_=0), "image_divisor_=0"),
        (fitted(n_features_in_="6"), "n_features_in_"),
        (fitted(seed_=1.5), "seed_"),
        (fitted(history_="long"), "history_"),
        (fitted(diagnostics_={}), "missing"),
        (lambda s: s["fitted"]["diagnostics_"].update(sizes=[1]), "3 sizes"),
        (lambda s: s.update(feature_names=["a"]), "1 feature names for 6"),
        (lambda s: s.update(feature_names=[1, 2, 3, 4, 5, 6]), "list of names"),
        (lambda s: s["shape"].update(layout="grey"), "cannot have the shape"),
        (lambda s: s["shape"].update(row=[5]), "its network takes"),
        (lambda s: s["shape"].update(row=[6.0]), "whole number"),
        (lambda s: s.update(runs=5), "model: "),
        (lambda s: s.update(params=[]), "model: "),
        (lambda s: s["fitted_with"].update(lr=float("nan")), "lr="),
        (lambda s: s["fitted_with"].update(center_step=float("inf")), "center_step"),
        (lambda s: s["fitted_with"].update(n_clusters=-3), "n_clusters"),
    ],
)
def test_numbers_that_steer_are_checked(tell, change, says):
    forge(tell, change)
    refused(tell, says)


def test_answers_that_are_not_numbers_are_refused(tell):
    """Weights may be finite, and rows too far away for them."""
    forge(tell, tensors=lambda tensors: tensors["model.autoencoder.encoder.2.weight"].fill_(1e30))
    try:
        model = diffclust.load(tell, device="cpu")
    except ValueError:
        return
    X = np.load(FIXTURES / "inputs.npz")["rows"]
    for ask in (model.predict, model.predict_proba, model.transform):
        with pytest.raises(ValueError, match="answer is NaN or infinite"):
            ask(X * 1e10)
