"""Write the saved models that every later version must read: `python tests/saving/make_fixtures.py`.

A folder for each format number, made once, when that number is new: never again, or nothing old would be tested. What
is younger than the format is added to it: `python tests/saving/make_fixtures.py SpectralNet table`.
"""

import inspect
import json
import sys
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_digits, make_blobs

import diffclust
from diffclust.engine.checkpoint import CheckpointFolder
from diffclust.methods import METHODS
from diffclust.nn.autoencoders import (
    ConvAutoencoder,
    ConvDictionary,
    DenseAutoencoder,
    ResidualAutoencoder,
    RowAutoencoder,
)
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


def inputs(home):
    """By name: what was kept beside the models, and what is made of it."""
    kept = np.load(home / "inputs.npz")
    rows, images = kept["rows"], kept["images"]
    table = pd.DataFrame(rows[:, :2], columns=["income", "age"])  # numbers, words, days and blanks
    table["plan"] = np.where(rows[:, 2] > 0, "premium", np.where(rows[:, 3] > 0, "basic", "free"))
    table["since"] = pd.date_range("2022-01-01", periods=len(rows)).strftime("%Y-%m-%d")
    table.loc[::7, "income"] = np.nan
    table.loc[3::9, "plan"] = None
    return {"rows": rows, "images": images, "far": rows.astype(np.float64) + 1e8, "table": table}


def models(known):
    """Every method on rows; and what else a folder may hold: images, tables, a stream, other networks, a given start.
    A name, that of its input, and what makes it."""
    rows, images, shape = known["rows"], known["images"], (1, *known["images"].shape[1:])
    special = {"SSCNet": {"network": "dictionary", "embedding_dim": 16}, "SpectralNet": {"width": 8}}
    for method in METHODS:
        made = getattr(diffclust, method.estimator)(3, **{**ROWS, **special.get(method.estimator, {})})
        yield method.estimator, "rows", partial(made.fit, rows)
    yield "images", "images", partial(diffclust.TELL(4, network="conv", embedding_dim=3, **TRAINING).fit, images)
    neighbours = diffclust.TELL(3, features="neighbours", embedding_dim=3, **TRAINING)
    yield "neighbours", "rows", partial(neighbours.fit, rows)
    yield "fallback", "rows", partial(diffclust.KMeansNet(3, **TRAINING).fit, rows)
    yield "stream", "rows", lambda: diffclust.TELL(3, **ROWS).fit(rows).partial_fit(rows[:20])
    start = np.eye(3, dtype=np.float32)
    yield "start", "rows", partial(diffclust.KMeansNet(3, init=start, n_init=2, **ROWS).fit, rows)
    yield "identity", "rows", partial(diffclust.KMeansNet(3, **{**ROWS, "network": "identity"}).fit, rows)
    residual = ResidualAutoencoder(shape, 3, maps=(4, 8, 8))
    yield "residual", "images", partial(diffclust.TELL(4, network=residual, embedding_dim=3, **TRAINING).fit, images)
    codes = ConvDictionary(shape, maps=(2, 4, 8))
    yield "conv-dictionary", "images", partial(diffclust.SSCNet(4, network=codes, **TRAINING).fit, images)
    yield "far", "far", partial(diffclust.TELL(3, **ROWS).fit, known["far"])
    yield "table", "table", partial(diffclust.TELL(3, **ROWS).fit, known["table"])
    yield "regrouped", "rows", partial(regrouped, rows)


def regrouped(rows):
    """Clusters merged, split and named."""
    model = diffclust.TELL(4, **ROWS).fit(rows).merge(0, 1)
    model.split(int(np.bincount(model.labels_).argmax()), rows)
    model.names_ = [f"group {j}" for j in range(4)]
    return model


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


def add(names):
    """To the fixtures of the present format."""
    home = FIXTURES / f"format-{FORMAT}"
    expected, known = json.loads((home / "expected.json").read_text()), inputs(home)
    for name, given, make in models(known):
        if name in names:
            keep(home, name, make(), given, known[given], expected)
    (home / "expected.json").write_text(json.dumps(expected))


def keep(home, name, model, given, X, expected):
    model.save(home / name)
    expected[name] = {
        "input": given,
        "labels": model.predict(X).tolist(),
        "probabilities": model.predict_proba(X).max(1).round(4).tolist(),
    }
    if name == "table":
        expected[name]["columns"] = model.columns_.describe()
    if name == "regrouped":
        expected[name]["names"] = model.names_


def main():
    home = FIXTURES / f"format-{FORMAT}"
    if home.exists():
        sys.exit(f"{home} is there: what an older version wrote is not to be written again.")
    rows = make_blobs(60, 6, centers=3, random_state=3)[0].astype(np.float32)
    digits = load_digits(n_class=4)
    images = (digits.images[:40] / 16).astype(np.float32)
    home.mkdir(parents=True)
    np.savez_compressed(home / "inputs.npz", rows=rows, images=images)
    expected, known = {}, inputs(home)
    for name, given, make in models(known):
        keep(home, name, make(), given, known[given], expected)
    expected["checkpoint"] = {"input": "rows", "labels": interrupted(rows, home / "checkpoint")}
    model = diffclust.load(home / "TELL", device="cpu")
    model.export_onnx(home / "TELL.onnx")
    (home / "expected.json").write_text(json.dumps(expected))
    size = sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
    print(f"{home}: {len(expected)} fixtures, {size / 1e3:.0f} kB")


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    narrow()
    add(sys.argv[1:]) if len(sys.argv) > 1 else main()
