"""Several processes on one fit: rows a second, and what they exchange in a step.

    python benchmarks/distributed.py [--processes 1,2] [--device cpu] [--only dense] [--epochs 6]

Every case is fitted by 1, 2, ... processes with the same global batch, one thread each on a CPU, one GPU each on CUDA.
One process is the library as it is without any of this (on a GPU: recorded steps); to see what the exchange itself
costs there, --uncaptured runs the steps of one process as they are. Rows a second are those of the fastest epoch of
training: where the machine has other work, the others say little, and the processor time that a step costs each process
says more. Bytes are what one process hands over in a step
(gradients, centre sums, batch-norm statistics forward and backward), before whatever gloo or nccl make of them.
Losses are those of the last epoch: as the number of processes changes, they should not.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import sheet
import torch
import torch.distributed as dist
from sklearn.exceptions import ConvergenceWarning

import diffclust
from diffclust.engine.accelerate.capture import StepRunner

RESULTS = Path(__file__).parent / "results" / "distributed.csv"
COMMON = {"random_state": 0, "augment": None, "pretrain_epochs": 0}


def cases(folder: Path) -> dict:
    """name -> (estimator, data, what it is)"""
    rng = np.random.default_rng(0)
    flat = rng.random((10_240, 784), dtype=np.float32)
    images = flat.reshape(-1, 28, 28)
    return {
        "dense": (diffclust.TELL(10, dropout=0.0, batch_size=256, **COMMON), flat, "784-500-500-2000-10, batch 256"),
        "dense, large batch": (
            diffclust.TELL(10, dropout=0.0, batch_size=2048, **COMMON),
            flat,
            "784-500-500-2000-10, batch 2048",
        ),
        "conv": (diffclust.TELL(10, batch_size=256, **COMMON), images[:5120], "28x28 images, batch 256"),
        "centres": (
            diffclust.TELL(100, network="identity", init="random", batch_size=4096, **COMMON),
            folder / "rows.npy",
            "no network, k = 100, 64 features, a memory map, batch 4096",
        ),
    }


def generate(folder: Path) -> None:
    rng = np.random.default_rng(0)
    rows = np.lib.format.open_memmap(folder / "rows.npy", mode="w+", dtype=np.float32, shape=(1 << 19, 64))
    for part in np.array_split(rows, 16):
        part[:] = 3 * rng.integers(-1, 2, size=(len(part), 1)) + rng.standard_normal(part.shape, dtype=np.float32)
    rows.flush()


class Traffic:
    """Counts what this process hands over."""

    def __init__(self) -> None:
        self.calls = self.bytes = 0
        for name, place in (("all_reduce", 0), ("all_gather", 1)):
            setattr(dist, name, self.counted(getattr(dist, name), place))

    def counted(self, exchange, place):
        def wrapped(*args, **options):
            self.calls += 1
            self.bytes += args[place].numel() * args[place].element_size()
            return exchange(*args, **options)

        return wrapped


def work(folder: Path, name: str, device: str, epochs: int, uncaptured: bool) -> None:
    """One case, in this process or in one of several."""
    warnings.filterwarnings("ignore", category=ConvergenceWarning)  # noise has no clusters
    if device == "cpu":
        torch.set_num_threads(1)
    if uncaptured:
        begin = StepRunner.__init__
        StepRunner.__init__ = lambda self, device, **options: begin(self, device, **{**options, "capture": False})
    estimator, X, about = cases(folder)[name]
    traffic, marks, shape = Traffic(), [], [0, 0]

    def mark(progress) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        marks.append((time.perf_counter(), time.process_time(), traffic.calls, traffic.bytes))
        shape[:] = progress.data.steps, progress.data.batch_size

    estimator.set_params(device=device, epochs=epochs, callbacks=[mark])
    with diffclust.distributed() as processes:
        estimator.fit(X)
    if not processes.leads:
        return
    spent = np.diff(np.array(marks), axis=0)
    (seconds, processor), (calls, size) = spent[:, :2].min(0), spent[:, 2:].max(0)
    steps, batch = shape
    print(
        json.dumps(
            {
                "case": name,
                "what": about,
                "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
                "processes": processes.size,
                "captured": device == "cuda" and processes.alone and not uncaptured,
                "rows_per_second": round(steps * batch / seconds),
                "ms_per_step": round(1000 * seconds / steps, 3),
                "processor_ms_per_step": round(1000 * processor / steps, 3),
                "exchanges_per_step": round(calls / steps, 1),
                "bytes_per_step": round(size / steps),
                "loss": round(sum(v for k, v in estimator.history_[-1].items() if k not in ("phase", "epoch")), 6),
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", default="1,2")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--uncaptured", action="store_true")
    parser.add_argument("--work", nargs=2, metavar=("FOLDER", "CASE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        return work(Path(given.work[0]), given.work[1], given.device, given.epochs, given.uncaptured)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        options = ["--device", given.device, "--epochs", str(given.epochs), *["--uncaptured"] * given.uncaptured]
        for name in cases(Path(folder)):
            for n in given.processes.split(","):
                if given.only in name:
                    start = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n}"]
                    command = [sys.executable, *start, __file__, "--work", folder, name, *options]
                    done = subprocess.run(
                        command,
                        env={**os.environ, "OMP_NUM_THREADS": "1"},
                        check=True,
                        stdout=subprocess.PIPE,
                        text=True,
                    )
                    rows.append(json.loads(done.stdout.splitlines()[-1]))
                    print(rows[-1], flush=True)
    if not given.only:
        sheet.write(RESULTS, list(rows[0]), rows)


if __name__ == "__main__":
    main()
