"""Does anything pile up in a process that lives long? Fits one after the other, and a stream batch by batch.

    python benchmarks/long_life.py [--fits 500] [--batches 1000000] [--out FILE]

Every method in turn is fitted to rows and to images, with a checkpoint, saved, loaded and asked; then single batches
reach a fitted model. Counted along the way: memory, threads, open files, tensors alive. The exit status is 1 where more
of them are there at the end than after the first tenth: 32 MB of memory, or one of the others.
"""

import argparse
import gc
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import sheet
import torch
from sklearn.datasets import load_digits

import diffclust
from diffclust.methods import METHODS
from diffclust.nn.autoencoders import DenseAutoencoder

LOOKS = 50  # at the counts, over the whole
MEGABYTES = 32  # more than after the first tenth
FIELDS = ("what", "done", "seconds", "megabytes", "threads", "files", "tensors")
SHORT = {"pretrain_epochs": 2, "epochs": 2, "random_state": 0, "device": "cpu"}
STREAMS = ("TELL", "KMeansNet", "DCN", "AEKMeans")


def counts() -> dict[str, int]:
    """What the process holds now."""
    gc.collect()
    status = Path("/proc/self/status").read_text().splitlines()
    said = dict(line.split(":", 1) for line in status)
    return {
        "megabytes": int(said["VmRSS"].split()[0]) // 1024,
        "threads": int(said["Threads"]),
        "files": len(os.listdir("/proc/self/fd")),
        "tensors": sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects()),
    }


def fits(n: int) -> Iterator[int]:
    images = (load_digits().images[:120] / 16).astype("float32")
    rows = images.reshape(len(images), -1)
    for done in range(n):
        one_fit(METHODS[done % len(METHODS)].load(), images if done // len(METHODS) % 2 else rows)
        yield done + 1


def one_fit(method: type[Any], X: np.ndarray) -> None:
    with TemporaryDirectory() as home:
        model = method(4, **SHORT, checkpoint=Path(home) / "state").fit(X)
        model.save(Path(home) / "model")
        diffclust.load(Path(home) / "model").explain(X[:3])


def batches(n: int) -> Iterator[int]:
    """Batches of eight rows, for several methods in turn; a step of the network with one in a hundred."""
    rows = (load_digits().data / 16).astype("float32")
    network = DenseAutoencoder(rows.shape[1:], 4, hidden=(16,))  # calls are counted, and not what a large network costs
    models = [getattr(diffclust, name)(4, network=network, **SHORT).fit(rows[:120]) for name in STREAMS]
    order = np.random.default_rng(0).integers(0, len(rows), (1000, 8))
    for done in range(n):
        model = models[done % len(models)]
        model.partial_fit(rows[order[done % len(order)]], learn_network=done % 100 < len(models))
        yield done + 1


def live(what: str, n: int, work: Iterator[int], out: Path | None) -> bool:
    """Whether the counts stay as they are after the first tenth."""
    began, every, seen = time.perf_counter(), max(1, n // LOOKS), []
    for done in work:
        if done % every == 0 or done == n:
            seen.append({"what": what, "done": done, "seconds": round(time.perf_counter() - began, 1), **counts()})
            if out is not None:
                sheet.append(out, FIELDS, seen[-1:])
    early, last = seen[len(seen) // 10], seen[-1]
    for name in FIELDS[3:]:
        print(f"{what:8} {name:10} {early[name]:8} after {early['done']}, {last[name]:8} after {last['done']}")
    more = {name: last[name] - early[name] for name in FIELDS[3:]}
    return more["megabytes"] <= MEGABYTES and max(more["threads"], more["files"], more["tensors"]) <= 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fits", type=int, default=500)
    parser.add_argument("--batches", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    flat = [live("fits", options.fits, fits(options.fits), options.out)] if options.fits else []
    flat += [live("batches", options.batches, batches(options.batches), options.out)] if options.batches else []
    sys.exit(not all(flat))


if __name__ == "__main__":
    main()
