"""Kill fits at random moments and go on: are the labels those of a fit left alone?

    python benchmarks/kills.py [--fits 50]

Each fit runs in a process of its own, which gets SIGKILL at a moment drawn over the whole length of its training, up to
three times, until one process comes to its end. Counted: fits whose labels are identical to the undisturbed one's, and
checkpoints found damaged. Digits, small networks, pretraining and restarts included; methods and networks in turn.
"""

import argparse
import os
import random
import time
import warnings
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from sklearn.datasets import load_digits

import diffclust

MOST_KILLS = 3
CASES: list[tuple[str, dict[str, Any]]] = [
    ("TELL", {"network": "conv", "n_init": 2}),
    ("TELL", {"network": "dense", "n_init": 1, "augment": None}),
    ("KMeansNet", {"network": "dense", "n_init": 2, "augment": None}),
    ("TELL", {"network": "conv", "n_init": 1, "joint": False}),
]


def fit(case: int, X: np.ndarray, out: Path, folder: Path | None, said: Path) -> None:
    """What a process does: the labels appear at `out` whole or not at all, warnings at `said` line by line."""

    def note(message: Any, *_: Any, **__: Any) -> None:
        with said.open("a") as file:
            file.write(f"{message}\n")

    warnings.showwarning = note
    method, settings = CASES[case]
    settings = {"pretrain_epochs": 5, "epochs": 6, "random_state": 0, "device": "cpu", **settings}
    model = getattr(diffclust, method)(10, **settings, checkpoint=folder, checkpoint_every=1).fit(X)
    aside = out.with_suffix(".part.npy")
    np.save(aside, model.labels_)
    aside.replace(out)


def run(patience: float | None, *arguments: Any) -> bool:
    """A process of its own, killed when the patience is over. Whether it came to its end."""
    process = get_context("fork").Process(target=fit, args=arguments)
    process.start()
    process.join(patience)
    if process.is_alive():
        process.kill()
        process.join()
        return False
    if process.exitcode:
        raise RuntimeError(f"A fit ended with exit status {process.exitcode}.")
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=50, help="that are killed at least once")
    parser.add_argument("--seed", type=int, default=0)
    wish = parser.parse_args()
    torch.set_num_threads(1)
    draw = random.Random(wish.seed)
    X = load_digits().images[:300].astype("float32") / 16
    with TemporaryDirectory() as scratch:
        said = Path(scratch) / "said"
        undisturbed, lengths = [], []
        for case, (method, settings) in enumerate(CASES):
            out = Path(scratch) / f"whole{case}.npy"
            began = time.monotonic()
            run(None, case, X, out, None, said)
            lengths.append(time.monotonic() - began)
            undisturbed.append(np.load(out))
            print(f"undisturbed: {method} {settings}, {lengths[-1]:.1f} s", flush=True)
        tested = same = kills = attempts = 0
        while tested < wish.fits:
            case = attempts % len(CASES)
            folder, out = Path(scratch) / f"checkpoint{attempts}", Path(scratch) / f"labels{attempts}.npy"
            attempts += 1
            moments: list[float] = []
            while True:
                patience = draw.uniform(0, lengths[case]) if len(moments) < MOST_KILLS else None
                if run(patience, case, X, out, folder, said):
                    break
                assert patience is not None
                moments.append(patience)
            if moments:
                identical = bool((np.load(out) == undisturbed[case]).all())
                tested, kills, same = tested + 1, kills + len(moments), same + identical
                killed = ", ".join(f"{moment:.2f}" for moment in moments)
                print(f"{tested:3d} {CASES[case][0]}, killed after {killed} s: {'same' if identical else 'DIFFERENT'}")
        damaged = said.read_text().count("is damaged") if said.exists() else 0
    print(f"{same} of {tested} fits, killed {kills} times in all, ended with identical labels")
    print(f"damaged checkpoints: {damaged}")


if __name__ == "__main__":
    main()
