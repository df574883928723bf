"""Kill fits at random moments and go on: are the labels those of a fit left alone?

    python benchmarks/kills.py [--fits 50] [--methods all] [--jobs 8] [--out FILE]

Each fit runs in a process of its own, which gets SIGKILL at a moment drawn over the whole length of its training, up to
three times, until one process comes to its end. Counted: fits whose labels and centres are identical to those of the
undisturbed one, kills that left a checkpoint to go on from, and checkpoints found damaged. Few digits, few epochs,
pretraining and restarts included; every method on images and on rows, in turn. The exit status is 1 where a fit ended
otherwise.
"""

import argparse
import os
import random
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import sheet
import torch
from sklearn.datasets import load_digits

import diffclust
from diffclust.methods import METHODS

MOST_KILLS = 3
MOST_TRIES = 20  # until a fit is killed at all: the moment may come too late
FIELDS = ("fit", "case", "kills", "with_checkpoint", "damaged", "seconds", "labels", "centers")
FORK = get_context("fork")


class Case(NamedTuple):
    method: str
    images: bool  # else rows
    settings: dict[str, Any]

    def __str__(self) -> str:
        settings = "".join(f" {name}={value}" for name, value in self.settings.items())
        return f"{self.method} {'images' if self.images else 'rows'}{settings}"

    def fit(self, **more: Any) -> Any:
        X = load_digits().images[:150].astype("float32") / 16
        settings = {"pretrain_epochs": 5, "epochs": 6, "random_state": 0, "device": "cpu", **self.settings, **more}
        return getattr(diffclust, self.method)(5, **settings).fit(X if self.images else X.reshape(len(X), -1))


def cases(names: str) -> list[Case]:
    known = {method.name: method.estimator for method in METHODS}
    wanted = list(known) if names == "all" else names.split(",")
    found = [Case(known[name], images, {"n_init": 1 + images}) for name in wanted for images in (True, False)]
    if "tell" in wanted:
        found += [Case("TELL", True, {"joint": False}), Case("TELL", False, {"features": "reconstruction"})]
    return found


def work(case: Case, out: Path, folder: Path | None) -> None:
    """What a process does: the result appears at `out` whole or not at all, warnings beside it line by line."""

    def note(message: Any, *_: Any, **__: Any) -> None:
        with out.with_suffix(".said").open("a") as file:
            file.write(f"{message}\n")

    warnings.showwarning = note
    model = case.fit(checkpoint=folder, checkpoint_every=1)
    aside = out.with_suffix(".part.npz")
    np.savez(aside, labels=model.labels_, centers=model.cluster_centers_)
    aside.replace(out)


def ends(patience: float | None, *arguments: Any) -> bool:
    """A process of its own, killed when the patience is over. Whether it came to its end."""
    process = FORK.Process(target=work, args=arguments)
    process.start()
    process.join(patience)
    if process.is_alive():
        process.kill()
        process.join()
        return False
    if process.exitcode:
        raise RuntimeError(f"A fit ended with exit status {process.exitcode}: {arguments[0]}.")
    return True


def prepare() -> None:
    """What a first fit loads, so that kills hit training and not imports."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for images in (True, False):
        Case("TELL", images, {"pretrain_epochs": 1, "epochs": 1}).fit()


def undisturbed(case: Case, out: Path) -> float:
    """Its seconds."""
    began = time.monotonic()
    ends(None, case, out, None)
    return time.monotonic() - began


def killed(number: int, case: Case, whole: Path, length: float, seed: int) -> dict[str, Any]:
    """One fit, killed at least once, and what came out."""
    draw, began = random.Random(f"{seed} {number}"), time.monotonic()
    for attempt in range(MOST_TRIES):
        out = whole.with_name(f"fit{number}-{attempt}.npz")
        folder, kills, with_checkpoint = out.with_suffix(".checkpoint"), 0, 0
        while not ends(draw.uniform(0, length) if kills < MOST_KILLS else None, case, out, folder):
            kills += 1
            with_checkpoint += any(folder.glob("*.ckpt"))
        if kills:
            break
    said = out.with_suffix(".said")
    ours, theirs = np.load(out), np.load(whole)
    return {
        "fit": number,
        "case": str(case),
        "kills": kills,
        "with_checkpoint": with_checkpoint,
        "damaged": said.read_text().count("is damaged") if said.exists() else 0,
        "seconds": round(time.monotonic() - began, 2),
        **{name: "same" if np.array_equal(ours[name], theirs[name]) else "DIFFERENT" for name in ("labels", "centers")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=50, help="that are killed at least once")
    parser.add_argument("--methods", default="tell", help="names with commas between them, or all")
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a .csv file, a line a fit")
    wish = parser.parse_args()
    chosen, rows = cases(wish.methods), []
    with TemporaryDirectory() as scratch, ProcessPoolExecutor(wish.jobs, FORK, prepare) as pool:
        wholes = [Path(scratch) / f"whole{i}.npz" for i in range(min(len(chosen), wish.fits))]
        lengths = list(pool.map(undisturbed, chosen, wholes))
        places = [number % len(wholes) for number in range(wish.fits)]
        numbers, seeds = range(wish.fits), [wish.seed] * wish.fits
        given = zip(*((chosen[place], wholes[place], lengths[place]) for place in places), strict=True)
        for row in pool.map(killed, numbers, *given, seeds):
            rows.append(row)
            print(", ".join(f"{name} {row[name]}" for name in FIELDS), flush=True)
            if wish.out is not None:
                sheet.append(wish.out, FIELDS, [row])
    total = {name: sum(row[name] for row in rows) for name in ("kills", "with_checkpoint", "damaged")}
    same = sum(row["labels"] == row["centers"] == "same" for row in rows)
    print(
        f"{same} of {len(rows)} fits ended with identical labels and centres, killed {total['kills']} times in all, "
        f"{total['with_checkpoint']} times with a checkpoint to go on from; damaged checkpoints: {total['damaged']}"
    )
    sys.exit(same < len(rows))


if __name__ == "__main__":
    main()
