"""Write the saved models that every later version must read: `python tests/saving/make_fixtures.py`.

A folder for each format number, made once, when that number is new: never again, or nothing old would be tested. A
method that is younger than the format is added to it: `python tests/saving/make_fixtures.py SpectralNet`.
"""

import inspect
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits, make_blobs

import diffclust
from diffclust.engine.checkpoint import CheckpointFolder
from diffclust.methods import METHODS
from diffclust.nn.autoencoders import ConvAutoencoder, DenseAutoencoder, RowAutoencoder
from diffclust.saving.save import FORMAT

FIXTURES = Path(__file__).parent / "fixtures"
NARROW = {DenseAutoencoder: (8,), RowAutoencoder: (8, 8), ConvAutoencoder: 8}  # `hidden`: a few kB a model
TRAINING = {"pretrain_epochs": 3, "epochs": 3, "random_state": 0, "device": "cpu"}
ROWS = {**TRAINING, "network": "dense", "embedding_dim": 3}


class Killed(Exception):
    pass


def narrow():
    for network, hidden in NARROW.items():
        parameters = inspect.signature(network.__init__).parameters.values()
        network.__init__.__defaults__ = tuple(
            hidden if p.name == "hidden" else p.default for p in parameters if p.default is not p.empty
        )


def models(rows, images):
    """Every method on rows; and what else a folder may hold: images, a stream, other networks, a given start."""
    special = {"SSCNet": {"network": "dictionary", "embedding_dim": 16}, "SpectralNet": {"width": 8}}
    for method in METHODS:
        own = special.get(method.estimator, {})
        yield method.estimator, getattr(diffclust, method.estimator)(3, **{**ROWS, **own}).fit(rows), rows
    yield "images", diffclust.TELL(4, network="conv", embedding_dim=3, **TRAINING).fit(images), images
    yield "neighbours", diffclust.TELL(3, features="neighbours", embedding_dim=3, **TRAINING).fit(rows), rows
    yield "fallback", diffclust.KMeansNet(3, **TRAINING).fit(rows), rows
    yield "stream", diffclust.TELL(3, **ROWS).fit(rows).partial_fit(rows[:20]), rows
    start = np.eye(3, dtype=np.float32)
    yield "start", diffclust.KMeansNet(3, init=start, n_init=2, **ROWS).fit(rows), rows


def interrupted(rows, folder):
    """A checkpoint of a fit on its way, and the labels it would have had."""

    def kill(progress):
        if (progress.phase, progress.epoch) == ("clustering", 2):
            raise Killed

    settings = {**ROWS, "epochs": 5}
    try:
        diffclust.TELL(3, **settings, checkpoint=folder, checkpoint_every=1, callbacks=[kill]).fit(rows)
    except Killed:
        for older in CheckpointFolder(folder).files()[1:]:
            older.unlink()
    return diffclust.TELL(3, **settings).fit(rows).labels_.tolist()


def add(name):
    """A method to the fixtures of the present format."""
    home = FIXTURES / f"format-{FORMAT}"
    narrow()
    inputs, expected = np.load(home / "inputs.npz"), json.loads((home / "expected.json").read_text())
    for each, model, X in models(inputs["rows"], inputs["images"]):
        if each == name:
            keep(home, name, model, X, expected)
    (home / "expected.json").write_text(json.dumps(expected))


def keep(home, name, model, X, expected):
    model.save(home / name)
    expected[name] = {
        "input": "images" if X.ndim == 3 else "rows",
        "labels": model.predict(X).tolist(),
        "probabilities": model.predict_proba(X).max(1).round(4).tolist(),
    }


def main():
    home = FIXTURES / f"format-{FORMAT}"
    if home.exists():
        sys.exit(f"{home} is there: what an older version wrote is not to be written again.")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    narrow()
    rows = make_blobs(60, 6, centers=3, random_state=3)[0].astype(np.float32)
    digits = load_digits(n_class=4)
    images = (digits.images[:40] / 16).astype(np.float32)
    home.mkdir(parents=True)
    np.savez_compressed(home / "inputs.npz", rows=rows, images=images)
    expected = {}
    for name, model, X in models(rows, images):
        keep(home, name, model, X, expected)
    expected["checkpoint"] = {"input": "rows", "labels": interrupted(rows, home / "checkpoint")}
    model = diffclust.load(home / "TELL", device="cpu")
    model.export_onnx(home / "TELL.onnx")
    (home / "expected.json").write_text(json.dumps(expected))
    size = sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
    print(f"{home}: {len(expected)} fixtures, {size / 1e3:.0f} kB")


if __name__ == "__main__":
    add(sys.argv[1]) if len(sys.argv) > 1 else main()
