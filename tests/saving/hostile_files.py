"""Hostile files by the thousand: `python tests/saving/hostile_files.py --cases 50000`, or `make fuzz`.

From saved models, checkpoints, records of training and data files that are whole, others are made that are not: bytes
flipped, ends cut off, files swapped, settings and tensors forged with checksums that fit, huge shapes declared, names
that lead out of the folder, links, pipes, deep JSON, NaN and infinity in numbers that steer. Each is read. What must
hold: an answer without NaN or a clear error of a known kind; never another exception, ten seconds of work, a minute of
waiting, or a gigabyte.

A case is made from its number and the seed alone: `--only 1234 --seed 0` does it again.
"""

import argparse
import contextlib
import copy
import gzip
import hashlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from make_fixtures import NARROW, ROWS, narrow
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

import diffclust
from diffclust.callbacks import TrainingRecord
from diffclust.engine.checkpoint import Checkpoint, CheckpointFolder, pack, unpack
from diffclust.reading import files
from diffclust.saving.folder import SETTINGS, SUMS, TENSORS, sums_of

FIXTURES = Path(__file__).parent / "fixtures"
SECONDS, WAITING, MEGABYTES = 10, 60, 1024  # of work, of the clock on a busy machine, of memory
NUMBERS = [0, -1, 1, 2, 3, 10**8, 10**12, 10**30, -(10**9), 0.0, 1e-320, 1e308, 0.5, True, False]
NUMBERS += [float("nan"), float("inf"), float("-inf")]
THINGS = [None, "", "x", "rows", "../../etc/passwd", "é" * 50, [], {}, [None], [[]], {"a": 1}, [1] * 5000, "9" * 5000]


DEEP = "a deep list"


class TooLong(BaseException):
    pass


# --- making files that are not whole


def flipped(rng, blob):
    blob = bytearray(blob)
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        if blob:
            blob[rng.randrange(len(blob))] = rng.randrange(256)
    return bytes(blob)


def cut(rng, blob):
    return blob[: rng.randrange(len(blob) + 1)]


def stretched(rng, blob):
    return blob + rng.randbytes(rng.choice([1, 8, 1000]))


def shuffled(rng, blob):
    """A piece moved to another place."""
    a, b = sorted(rng.randrange(len(blob) + 1) for _ in range(2))
    piece, rest = blob[a:b], blob[:a] + blob[b:]
    place = rng.randrange(len(rest) + 1)
    return rest[:place] + piece + rest[place:]


BYTES = [flipped, flipped, cut, stretched, shuffled]


def places(value, path=()):
    """Ways to every value of nested JSON, those of long lists by a few."""
    yield path
    if len(path) > 10:
        return
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for i in range(min(len(value), 4)):
            yield from places(value[i], (*path, i))


def hostile(rng):
    if rng.random() < 0.02:
        return DEEP
    return copy.deepcopy(rng.choice(NUMBERS if rng.random() < 0.6 else THINGS))


def as_json(value):
    return json.dumps(value).replace(f'"{DEEP}"', "[" * 100_000 + "]" * 100_000)


def forged(rng, settings):
    """Some values of the settings are others, or gone."""
    for _ in range(rng.choice([1, 1, 2, 5])):
        ways = [path for path in places(settings) if path]
        if not ways:
            break
        way = rng.choice(ways)
        home = settings
        for step in way[:-1]:
            home = home[step]
        what = rng.random()
        if what < 0.15:
            del home[way[-1]]
        elif what < 0.25 and isinstance(home, dict):
            home[rng.choice(["new", "n_clusters", "format", ""])] = hostile(rng)
        elif what < 0.35 and isinstance(home[way[-1]], list):
            home[way[-1]] = home[way[-1]] * rng.choice([0, 2, 100])
        else:
            home[way[-1]] = hostile(rng)
    return settings


def bent(rng, tensors):
    """Some tensors have other values, shapes, kinds, or are gone."""
    for _ in range(rng.choice([1, 1, 2])):
        name = rng.choice(list(tensors))
        value = tensors[name].clone()
        what = rng.randrange(7)
        if what == 0:
            del tensors[name]
            continue
        if what == 1 and value.numel():
            value.view(-1)[rng.randrange(value.numel())] = _fitting(rng, value)
        elif what == 2:
            value = value.double() if value.is_floating_point() else value.float()
        elif what == 3:
            value = value.flatten()[: rng.randrange(value.numel() + 1)]
        elif what == 4:
            value = value[None].repeat(rng.choice([1, 2, 50]), *[1] * value.ndim)
        elif what == 5 and value.is_floating_point():
            value = value * rng.choice([0.0, -1.0, 1e10, 1e30, 1e38])
        else:
            tensors[rng.choice(["model.new", "stream.counts", "params.init", "runs.9.labels", name + "x"])] = value
            continue
        tensors[name] = value
    return tensors


def _fitting(rng, value):
    if value.is_floating_point():
        return rng.choice([float("nan"), float("inf"), -1.0, 0.0, 1e38, 1e-38])
    return rng.choice([0, 1]) if value.dtype == torch.bool else rng.choice([-1, 3, 10**9, -(2**62)])


def declared(rng, blob):
    """A safetensors header whose shapes and places are lies."""
    size = int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8 : 8 + size])
    name = rng.choice([name for name in header if name != "__metadata__"] or [None])
    if name is None:
        return flipped(rng, blob)
    entry = header[name]
    what = rng.randrange(4)
    if what == 0:
        entry["shape"] = rng.choice([[2**40], [2**33, 2**33], [0], [-1], [], [1] * 300])
    elif what == 1:
        entry["data_offsets"] = rng.choice([[0, 2**50], [8, 0], [-8, 8], [0, 0]])
    elif what == 2:
        entry["dtype"] = rng.choice(["F64", "I8", "BOOL", "F8_E4M3", "BF16", "U64", "X"])
    else:
        header[name] = hostile(rng)
    text = as_json(header).encode()
    return rng.choice([len(text), 2**40, 0, len(text) - 1]).to_bytes(8, "little") + text + blob[8 + size :]


# --- saved models


class Models:
    """Folders with a model, of all formats and methods."""

    def __init__(self):
        self.whole = []
        for home in sorted(FIXTURES.glob("format-*")):
            inputs = np.load(home / "inputs.npz")
            for name, expected in json.loads((home / "expected.json").read_text()).items():
                if name != "checkpoint":
                    blobs = {each: (home / name / each).read_bytes() for each in (SETTINGS, TENSORS)}
                    self.whole.append((blobs, inputs[expected["input"]][:8]))

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
        X = X[:, : model.n_features_in_] if X.ndim == 2 else X
        labels, chances = model.predict(X), model.predict_proba(X)
        assert np.isfinite(chances).all(), "an answer that is not a number"
        assert np.abs(chances.sum(1) - 1).max() < 1e-3, "probabilities that do not sum to one"
        assert labels.min() >= 0, "a label that is none"
        assert labels.max() < chances.shape[1], "a label that is none"
        assert np.isfinite(model.transform(X)).all(), "an embedding that is not a number"


def odd(rng, path):
    """Something that is no file, or another one, in a file's place."""
    whole = path.read_bytes()
    path.unlink()
    what = rng.randrange(8)
    if what == 0:
        os.mkfifo(path)
    elif what == 1:
        path.symlink_to("/dev/zero")
    elif what == 2:
        path.symlink_to(path)
    elif what == 3:
        path.mkdir()
    elif what == 4:
        path.symlink_to("/etc/passwd")
    elif what == 5:
        lines = [b"0" * 64 + b"  ../../../etc/passwd\n", b"0" * 64 + b"  /dev/zero\n", b"\xff\n", b"  \n", b"\0" * 100]
        path.write_bytes(whole + rng.choice(lines))
    elif what == 6:
        path.symlink_to("nothing")


# --- checkpoints and records


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


# --- data


class Tables:
    """Data files of every kind."""

    def __init__(self):
        import pandas as pd
        from PIL import Image

        rng = np.random.default_rng(0)
        X = rng.normal(size=(20, 4)).astype(np.float32)
        frame = pd.DataFrame(X, columns=list("abcd")).assign(label=["u", "v"] * 10)
        npz, npy, parquet, png = io.BytesIO(), io.BytesIO(), io.BytesIO(), io.BytesIO()
        np.savez_compressed(npz, X=X, y=np.arange(20))
        np.save(npy, X)
        frame.to_parquet(parquet)
        Image.fromarray(rng.integers(0, 255, (8, 8), dtype=np.uint8)).save(png, "PNG")
        lines = "".join(json.dumps({"text": f"word{i % 3} other{i % 5}", "label": i % 2}) + "\n" for i in range(20))
        self.whole = {
            "x.npy": npy.getvalue(),
            "x.npz": npz.getvalue(),
            "x.parquet": parquet.getvalue(),
            "x.csv": frame.to_csv(index=False).encode(),
            "x.jsonl": lines.encode(),
            "x.jsonl.gz": gzip.compress(lines.encode()),
            "x.png": png.getvalue(),
        }

    def make(self, rng, folder):
        name = rng.choice(list(self.whole))
        blob, kind = self.whole[name], rng.choice(["bytes", "bytes", "particular", "odd"])
        if kind == "bytes":
            blob = rng.choice(BYTES)(rng, blob)
        elif kind == "particular":
            blob = self.particular(rng, name, blob)
        folder.mkdir()
        path = folder / name
        if name == "x.png":
            path = folder / "pictures" / name
            path.parent.mkdir()
            (path.parent / "whole.png").write_bytes(self.whole[name])
        path.write_bytes(blob)
        if kind == "odd":
            odd(rng, path)
        place = path.parent if name == "x.png" else path
        return f"data: {name} {kind}", lambda: self.read(place)

    def particular(self, rng, name, blob):
        if name == "x.npy":
            shape = rng.choice(
                ["(-20, 4)", "(20, 4000000000)", "(99999999999999,)", "(20, 4, 0)", "()", "(True,)", "[1]"]
            )
            return blob.replace(b"(20, 4)", shape.encode())
        if name == "x.npz":
            flag = blob.index(b"PK\x01\x02") + 8
            return blob[:flag] + b"\x01" + blob[flag + 1 :]  # encrypted
        if name == "x.csv":
            return rng.choice(
                [
                    b'"' * 1001,
                    b"a,b\n" + b"1," * 5000,
                    blob.replace(b",", b"\0"),
                    b"\xff\xfe" + blob,
                    b"a,b\nnan,inf\n1,2\n",
                ]
            )
        if name.startswith("x.jsonl"):
            text = b'{"text": ' + rng.choice([b"[" * 100_000, b'"a"', b"1", b"NaN", b'"\\ud800"', b"9" * 5000]) + b"}\n"
            return gzip.compress(text) if name.endswith("gz") else text
        return rng.choice(BYTES)(rng, rng.choice(list(self.whole.values())))

    def read(self, path):
        table = files.read(path)
        assert len(table.X.shape) >= 1


KINDS = {"models": Models, "checkpoints": Checkpoints, "records": Records, "tables": Tables}
SHARES = {"models": 6, "checkpoints": 2, "records": 1, "tables": 4}
ALLOWED = {"model": (ValueError, OSError), "checkpoint": (ValueError, OSError), "record": ValueError}
ALLOWED["data"] = (ValueError, TypeError, OSError)


# --- running them


def _too_long(*_):
    raise TooLong


@contextlib.contextmanager
def in_time():
    """Inside, too much work and too much waiting end in an error."""
    kinds = (signal.SIGPROF, signal.ITIMER_PROF, SECONDS), (signal.SIGALRM, signal.ITIMER_REAL, WAITING)
    before = [signal.signal(number, _too_long) for number, _, _ in kinds]
    for _, timer, seconds in kinds:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(kinds, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def try_one(makers, names, seed, number, home):
    """Its kind, how it ended, and what is wrong with that, where something is."""
    rng = random.Random(f"{seed}-{number}")
    name = rng.choices(names, [SHARES[each] for each in names])[0]
    folder = home / "case"
    shutil.rmtree(folder, ignore_errors=True)
    kind, read = makers[name].make(rng, folder)
    try:
        with in_time():
            read()
    except ALLOWED[kind.split(":")[0]] as error:
        return kind, type(error).__name__, None
    except (Exception, TooLong):
        return kind, "failed", traceback.format_exc(limit=-4)
    return kind, "read", None


def fuzz(cases, seed=0, names=tuple(KINDS), say=None):
    """Counts of (kind, end), and what failed: (number, kind, traceback)."""
    makers = {name: KINDS[name]() for name in names}
    counts, failures = Counter(), []
    where = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=where) as home, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for warm in range(-20, 0):  # what is imported and cached once is not a case's memory
            try_one(makers, names, seed, warm, Path(home))
        least = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in cases:
            kind, end, wrong = try_one(makers, names, seed, number, Path(home))
            counts[kind, end] += 1
            if wrong is not None:
                failures.append((number, kind, wrong))
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            if most - least > 1024 * MEGABYTES:
                failures.append((number, kind, f"{(most - least) // 1024} MB more than before"))
                least = most
            if say is not None:
                say(number, failures, most - least)
        shutil.rmtree(Path(home) / "case", ignore_errors=True)
    return counts, failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", type=int, help="this case alone")
    parser.add_argument("--kinds", default=",".join(KINDS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()

    def say(number, failures, grown):
        if failures and failures[-1][0] == number:
            print(f"case {number} failed", flush=True)
        if number % 5000 == 4999:
            spent = time.monotonic() - began
            print(f"{number + 1:,}: {len(failures)} failed, {spent:.0f} s, {grown / 1024:.0f} MB more", flush=True)

    cases = range(options.first, options.first + options.cases) if options.only is None else [options.only]
    counts, failures = fuzz(cases, options.seed, tuple(options.kinds.split(",")), say)
    for kind in sorted({kind for kind, _ in counts}):
        ends = ", ".join(f"{n:,} {end}" for (k, end), n in sorted(counts.items()) if k == kind)
        print(f"{kind:30} {ends}")
    alike = {
        (kind.split(":")[0], wrong.splitlines()[-1][:60]): (number, kind, wrong) for number, kind, wrong in failures
    }
    for number, kind, wrong in alike.values():  # one of each sort
        print(f"\n--- case {number}, {kind}\n{wrong}")
    seconds = time.monotonic() - began
    print(f"{sum(counts.values()):,} cases with seed {options.seed}: {len(failures)} failed, {seconds:.0f} s")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
