"""The same answer elsewhere? Labels from other thread counts, batches, processes, number formats and devices.

    python benchmarks/repeat.py [--methods all] [--data rows] [--jobs 4] [--device cuda] [--only GPU] [--out FILE]

Every method is fitted to 500 handwritten digits, as images and as rows, with its usual settings on one thread of the
CPU. Beside that: `fit` again with more threads, in another process, as an older processor computes, with the same
values in double precision, and on the GPU; and the fitted model asked again, a row at a time, in another order, with
more threads, after `save` and `load`, and on the GPU. Counted: the share of rows with another label, after the best
matching of clusters where a fit was repeated, and how far probabilities moved at most where the model was the same. A
line that is in the file is not measured again, so that a run that was cut off goes on.
"""

import argparse
import os
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import cached_property, partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import sheet
import torch
from sklearn.datasets import load_digits

import diffclust
from diffclust.methods import METHODS
from diffclust.metrics import accuracy

FIELDS = ("method", "data", "what", "differ", "moved")
THREADS = (2, 4)
ROWS = 500
SPAWN = get_context("spawn")
# With it Torch, MKL, oneDNN and OpenBLAS use few instructions of the processor, and so sum in another order.
OLDER_PROCESSOR = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "OPENBLAS_CORETYPE": "Nehalem",
}

Answer = tuple[float, float | None]  # the share of rows with another label; how far a probability moved


def samples(data: str) -> np.ndarray:
    """In double precision, and not to be had exactly in single."""
    images = load_digits().images[:ROWS] / 17
    return images if data == "images" else images.reshape(len(images), -1)


def fitted(method: str, X: np.ndarray, settings: dict[str, Any], device: str = "cpu", threads: int = 1) -> Any:
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")
    try:
        return getattr(diffclust, method)(10, random_state=0, device=device, **settings).fit(X)
    finally:
        torch.set_num_threads(1)


def labels_elsewhere(method: str, data: str, settings: dict[str, Any]) -> np.ndarray:
    return fitted(method, samples(data).astype(np.float32), settings).labels_


class Comparison:
    """A method fitted once on one thread of the CPU, and what is asked beside it; a fit waits until it is wanted."""

    def __init__(self, method: str, data: str, settings: dict[str, Any], device: str | None) -> None:
        self.method, self.data, self.settings, self.device = method, data, settings, device
        self.X = samples(data).astype(np.float32)
        self.firsts: dict[str, np.ndarray] = {}  # labels of the first fit on the GPU

    @cached_property
    def model(self) -> Any:
        return fitted(self.method, self.X, self.settings)

    @cached_property
    def labels(self) -> np.ndarray:
        return self.model.predict(self.X)

    @cached_property
    def chances(self) -> np.ndarray:
        return self.model.predict_proba(self.X)

    def questions(self) -> dict[str, Callable[[], Answer]]:
        """What is asked, and how; the GPU comes before the many fits on the CPU."""
        found: dict[str, Callable[[], Answer]] = {
            "asked a row at a time": self.row_by_row,
            "asked in another order": lambda: self.asked(self.model, np.random.default_rng(0).permutation(ROWS)),
            f"asked with {THREADS[-1]} threads": lambda: self.asked(self.model, threads=THREADS[-1]),
            "asked after save and load": lambda: self.asked(self.loaded("cpu")),
        }
        if self.device is not None:
            found["asked on the GPU"] = lambda: self.asked(self.loaded(self.device))
            for precision in ("float32", "bf16"):
                found[f"fitted on the GPU, {precision}"] = partial(self.on_gpu, precision)
                found[f"fitted twice on the GPU, {precision}"] = partial(self.twice_on_gpu, precision)
            found["the same on the GPU, deterministic=True"] = self.twice_exactly
        found["fitted again"] = lambda: self.refitted(fitted(self.method, self.X, self.settings).labels_)
        for n in THREADS:
            found[f"fitted with {n} threads"] = partial(self.with_threads, n)
        found["fitted in another process"] = self.in_another_process
        found["fitted as by an older processor"] = partial(self.in_another_process, OLDER_PROCESSOR)
        found["fitted in double precision"] = self.in_double_precision
        return found

    def asked(self, other: Any, order: Any = slice(None), threads: int = 1) -> Answer:
        labels, chances = self.labels[order], self.chances[order]
        torch.set_num_threads(threads)
        try:
            same, moved = np.asarray(other.predict(self.X[order])), np.asarray(other.predict_proba(self.X[order]))
        finally:
            torch.set_num_threads(1)
        return (same != labels).mean(), np.abs(moved - chances).max()

    def row_by_row(self) -> Answer:
        alone = [(self.model.predict(row), self.model.predict_proba(row)) for row in self.X[:, None]]
        labels, chances = (np.concatenate(part) for part in zip(*alone, strict=True))
        return (labels != self.labels).mean(), np.abs(chances - self.chances).max()

    def loaded(self, device: str | None) -> Any:
        with TemporaryDirectory() as home:
            self.model.save(home)
            return diffclust.load(home, device=device)

    def refitted(self, labels: np.ndarray) -> Answer:
        return 1 - accuracy(self.labels, labels), None

    def with_threads(self, n: int) -> Answer:
        return self.refitted(fitted(self.method, self.X, self.settings, threads=n).labels_)

    def in_another_process(self, environment: Mapping[str, str] = MappingProxyType({})) -> Answer:
        with patch.dict(os.environ, environment), ProcessPoolExecutor(1, SPAWN) as other:
            return self.refitted(other.submit(labels_elsewhere, self.method, self.data, self.settings).result())

    def in_double_precision(self) -> Answer:
        return self.refitted(fitted(self.method, samples(self.data), self.settings).labels_)

    def gpu_labels(self, precision: str, **more: Any) -> np.ndarray:
        settings = {**self.settings, "precision": precision, **more}
        return fitted(self.method, self.X, settings, self.device or "cuda").labels_

    def first_on_gpu(self, precision: str) -> np.ndarray:
        if precision not in self.firsts:
            self.firsts[precision] = self.gpu_labels(precision)
        return self.firsts[precision]

    def on_gpu(self, precision: str) -> Answer:
        return self.refitted(self.first_on_gpu(precision))

    def twice_on_gpu(self, precision: str) -> Answer:
        return 1 - accuracy(self.first_on_gpu(precision), self.gpu_labels(precision)), None

    def twice_exactly(self) -> Answer:
        first, again = (self.gpu_labels("bf16", deterministic=True) for _ in range(2))
        return (first != again).mean(), None


def case(method: str, data: str, device: str | None, settings: dict[str, Any], out: Path, word: str) -> None:
    """A line for each difference, as it is found; those that are there are not looked for again.

    word: only questions that have it.
    """
    torch.set_num_threads(1)
    done = {row["what"] for row in sheet.read(out) if (row["method"], row["data"]) == (method, data)}
    for what, ask in Comparison(method, data, settings, device).questions().items():
        if what not in done and word in what:
            differ, moved = ask()
            line = {"method": method, "data": data, "what": what, "differ": f"{differ:.3g}"}
            line["moved"] = "" if moved is None else f"{moved:.3g}"
            sheet.append(out, FIELDS, [line])
            print(*line.values(), sep="\t", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--methods", default="all")
    parser.add_argument("--data", default="images,rows")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--device", help="a GPU to compare with")
    parser.add_argument("--only", default="", help="what has this word in it, as GPU")
    parser.add_argument("--epochs", type=int, help="of both parts of the training, for a short look")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "repeat.csv")
    options = parser.parse_args()
    known = {method.name: method.estimator for method in METHODS}
    names = list(known) if options.methods == "all" else options.methods.split(",")
    settings = {} if options.epochs is None else {"epochs": options.epochs, "pretrain_epochs": options.epochs}
    sheet.append(options.out, FIELDS, [])  # the first line, before several want to write it
    with ProcessPoolExecutor(options.jobs, SPAWN) as pool:
        work = [
            pool.submit(case, known[name], data, options.device, settings, options.out, options.only)
            for data in options.data.split(",")
            for name in names
        ]
        for each in work:
            each.result()


if __name__ == "__main__":
    main()
