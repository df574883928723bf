"""The same answer elsewhere? Labels from other thread counts, batches, processes, number formats and devices.

    python benchmarks/repeat.py [--methods all] [--data rows] [--jobs 4] [--device cuda] [--out FILE]

Every method is fitted to 500 handwritten digits, as images and as rows, with its usual settings on one thread of the
CPU. Beside that: `fit` again with more threads, in another process, with the same values in double precision, and on
the GPU; and the fitted model asked again, a row at a time, in another order, with more threads, after `save` and
`load`, and on the GPU. Counted: the share of rows with another label, after the best matching of clusters where a fit
was repeated, and how far probabilities moved at most where the model was the same.
"""

import argparse
import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

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


def differences(method: str, data: str, device: str | None, settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    X = samples(data).astype(np.float32)
    model = fitted(method, X, settings)
    labels, chances = model.predict(X), model.predict_proba(X)

    def refitted(what: str, other: np.ndarray) -> dict[str, Any]:
        return {"what": what, "differ": 1 - accuracy(labels, other), "moved": ""}

    def asked(what: str, other: Any, order: Any = slice(None)) -> dict[str, Any]:
        same, moved = np.asarray(other.predict(X[order])), np.asarray(other.predict_proba(X[order]))
        return {"what": what, "differ": (same != labels[order]).mean(), "moved": np.abs(moved - chances[order]).max()}

    alone = np.concatenate([model.predict_proba(X[i : i + 1]) for i in range(len(X))])
    one = np.concatenate([model.predict(X[i : i + 1]) for i in range(len(X))])
    yield {"what": "asked a row at a time", "differ": (one != labels).mean(), "moved": np.abs(alone - chances).max()}
    yield asked("asked in another order", model, np.random.default_rng(0).permutation(len(X)))
    torch.set_num_threads(THREADS[-1])
    yield asked(f"asked with {THREADS[-1]} threads", model)
    torch.set_num_threads(1)
    with TemporaryDirectory() as home:
        model.save(home)
        yield asked("asked after save and load", diffclust.load(home, device="cpu"))
        if device is not None:
            yield asked("asked on the GPU", diffclust.load(home, device=device))
    yield refitted("fitted again", fitted(method, X, settings).labels_)
    for threads in THREADS:
        yield refitted(f"fitted with {threads} threads", fitted(method, X, settings, threads=threads).labels_)
    with ProcessPoolExecutor(1, SPAWN) as other:
        yield refitted("fitted in another process", other.submit(labels_elsewhere, method, data, settings).result())
    yield refitted("fitted in double precision", fitted(method, samples(data), settings).labels_)
    if device is not None:
        single = {**settings, "precision": "float32"}
        first = fitted(method, X, single, device).labels_
        yield refitted("fitted on the GPU, float32", first)
        again = fitted(method, X, single, device).labels_
        yield {"what": "fitted twice on the GPU, float32", "differ": 1 - accuracy(first, again), "moved": ""}
        half = {**settings, "precision": "bf16"}
        first, again = (fitted(method, X, half, device).labels_ for _ in range(2))
        yield refitted("fitted on the GPU, bf16", first)
        yield {"what": "fitted twice on the GPU, bf16", "differ": 1 - accuracy(first, again), "moved": ""}
        exact = {**half, "deterministic": True}
        first, again = (fitted(method, X, exact, device).labels_ for _ in range(2))
        yield {"what": "the same, deterministic=True", "differ": (first != again).mean(), "moved": ""}


def case(method: str, data: str, device: str | None, settings: dict[str, Any], out: Path) -> None:
    """A line for each difference, as it is found."""
    torch.set_num_threads(1)
    done = {(row["method"], row["data"], row["what"]) for row in sheet.read(out)}
    for found in differences(method, data, device, settings):
        line = {"method": method, "data": data, **found}
        line |= {name: f"{line[name]:.3g}" for name in ("differ", "moved") if line[name] != ""}
        if (method, data, line["what"]) not in done:
            sheet.append(out, FIELDS, [line])
        print(*line.values(), sep="\t", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--methods", default="all")
    parser.add_argument("--data", default="images,rows")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--device", help="a GPU to compare with")
    parser.add_argument("--epochs", type=int, help="of both parts of the training, for a short look")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "repeat.csv")
    options = parser.parse_args()
    known = {method.name: method.estimator for method in METHODS}
    names = list(known) if options.methods == "all" else options.methods.split(",")
    settings = {} if options.epochs is None else {"epochs": options.epochs, "pretrain_epochs": options.epochs}
    sheet.append(options.out, FIELDS, [])  # the first line, before several want to write it
    with ProcessPoolExecutor(options.jobs, SPAWN) as pool:
        work = [
            pool.submit(case, known[name], data, options.device, settings, options.out)
            for data in options.data.split(",")
            for name in names
        ]
        for each in work:
            each.result()


if __name__ == "__main__":
    main()
