"""Hostile models, checkpoints and records of training, from the fixtures of `tests/saving`."""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import torch
from damage import BYTES, as_json, bent, declared, forged, odd
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

import diffclust
from diffclust.callbacks import TrainingRecord
from diffclust.engine.checkpoint import Checkpoint, CheckpointFolder, pack, unpack
from diffclust.saving.folder import SETTINGS, SUMS, TENSORS, sums_of

SAVING = Path(__file__).parents[1] / "saving"
FIXTURES = SAVING / "fixtures"
sys.path.insert(0, str(SAVING))
from make_fixtures import NARROW, ROWS, inputs, narrow  # noqa: E402


class Models:
    """Folders with a model, of all formats and methods."""

    def __init__(self):
        self.whole = []
        for home in sorted(FIXTURES.glob("format-*")):
            known = inputs(home)
            for name, expected in json.loads((home / "expected.json").read_text()).items():
                if name != "checkpoint":
                    blobs = {each: (home / name / each).read_bytes() for each in (SETTINGS, TENSORS)}
                    self.whole.append((blobs, known[expected["input"]][:8]))

    def make(self, rng, folder):
        blobs, X = rng.choice(self.whole)
        blobs = dict(blobs)
        kind = rng.choice(
            ["bytes", "sealed bytes", "settings", "settings", "tensors", "tensors", "header", "swap", "odd"]
        )
        if kind in ("bytes", "sealed bytes"):
            name = rng.choice(list(blobs))
            blobs[name], sums = rng.choice(BYTES)(rng, blobs[name]), sums_of(blobs)
            sums = sums_of(blobs) if kind == "sealed bytes" else sums
        elif kind == "settings":
            blobs[SETTINGS] = as_json(forged(rng, json.loads(blobs[SETTINGS]))).encode()
        elif kind == "tensors":
            tensors = bent(rng, load_tensors(blobs[TENSORS]))
            blobs[TENSORS] = save_tensors({name: value.contiguous() for name, value in tensors.items()})
        elif kind == "header":
            blobs[TENSORS] = declared(rng, blobs[TENSORS])
        elif kind == "swap":
            blobs[TENSORS] = rng.choice(self.whole)[0][TENSORS]
        folder.mkdir()
        for name, blob in blobs.items():
            (folder / name).write_bytes(blob)
        (folder / SUMS).write_bytes(sums if kind == "bytes" else sums_of(blobs))
        if kind == "odd":
            odd(rng, folder / rng.choice([SETTINGS, TENSORS, SUMS]))
        return f"model: {kind}", lambda: self.read(folder, X)

    def read(self, folder, X):
        model = diffclust.load(folder, device="cpu")
        if isinstance(X, np.ndarray) and X.ndim == 2:
            X = X[:, : model.n_features_in_]
        labels, chances = model.predict(X), model.predict_proba(X)
        assert np.isfinite(chances).all(), "an answer that is not a number"
        assert np.abs(chances.sum(1) - 1).max() < 1e-3, "probabilities that do not sum to one"
        assert labels.min() >= 0, "a label that is none"
        assert labels.max() < chances.shape[1], "a label that is none"
        assert np.isfinite(model.transform(X)).all(), "an embedding that is not a number"


class Checkpoints:
    def __init__(self):
        self.whole = [path.read_bytes() for path in sorted(FIXTURES.glob("format-*/checkpoint/*.ckpt"))]
        self.rows = np.load(FIXTURES / "format-1" / "inputs.npz")["rows"]

    def make(self, rng, folder):
        content = rng.choice(self.whole)
        kind = rng.choice(["bytes", "sealed bytes", "state", "header", "odd"])
        blob = content[32:]
        if kind == "bytes":
            content = rng.choice(BYTES)(rng, content)
        else:
            if kind == "state":
                tensors, header = load_tensors(blob), json.loads(blob[8 : 8 + int.from_bytes(blob[:8], "little")])
                state = as_json(forged(rng, json.loads(header["__metadata__"]["state"])))
                blob = save_tensors(tensors, metadata={"state": state})
            elif kind == "header":
                blob = declared(rng, blob)
            elif kind == "sealed bytes":
                blob = rng.choice(BYTES)(rng, blob)
            content = hashlib.sha256(blob).digest() + blob
        folder.mkdir()
        path = folder / "diffclust-00000004.ckpt"
        path.write_bytes(content)
        if kind == "odd":
            odd(rng, path)
        if kind in ("sealed bytes", "state") and rng.random() < 0.1:
            return f"checkpoint: {kind}, resumed", lambda: self.resume(folder)
        return f"checkpoint: {kind}", lambda: Checkpoint(CheckpointFolder(folder), 1, {}, [0])

    def resume(self, folder):
        """The fit that the checkpoint is of."""
        before = {network: network.__init__.__defaults__ for network in NARROW}
        narrow()
        try:
            model = diffclust.TELL(3, **{**ROWS, "epochs": 5}, checkpoint=folder).fit(self.rows)
        finally:
            for network, defaults in before.items():
                network.__init__.__defaults__ = defaults
        assert set(model.labels_) <= {0, 1, 2}, "a label that is none"
        assert np.isfinite(model.predict_proba(self.rows)).all(), "an answer that is not a number"


class Records:
    def __init__(self):
        record = TrainingRecord()
        record.rows, record.runs, record.seen = [0, 1], [[{"phase": "clustering", "z": torch.ones(2, 2)}]], [{"c": 1}]
        self.whole = pack(record.state_dict())

    def make(self, rng, folder):
        kind = rng.choice(["bytes", "state", "header"])
        if kind == "bytes":
            blob = rng.choice(BYTES)(rng, self.whole)
        elif kind == "header":
            blob = declared(rng, self.whole)
        else:
            state = unpack(self.whole)
            state[rng.choice(list(state))] = rng.choice([None, 5, "x", [], [1], {}, float("nan"), [[5]]])
            blob = pack(state)
        return f"record: {kind}", lambda: TrainingRecord.from_bytes(blob, "record")
