"""Kill fits at random moments and go on: are the labels those of a fit left alone?

    python benchmarks/kills.py [--fits 50]

Each fit runs in a process of its own, which gets SIGKILL at a moment drawn over the whole length of the fit, again and
again until one process comes to its end. Counted: fits whose labels are identical to the undisturbed one's, and
checkpoints found damaged. Digits, small networks, pretraining and restarts included; methods and networks in turn.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

IMPORT = 2.0  # seconds in which no process has begun to train
CASES = [
    ("TELL", {"network": "conv", "n_init": 2}),
    ("TELL", {"network": "dense", "n_init": 1, "augment": None}),
    ("KMeansNet", {"network": "dense", "n_init": 2, "augment": None}),
    ("TELL", {"network": "conv", "n_init": 1, "joint": False}),
]
FIT = """
import json, os, sys
import numpy as np, torch
from sklearn.datasets import load_digits
import diffclust
method, settings, out, folder = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3], sys.argv[4] or None
torch.set_num_threads(1)
X = load_digits().images[:300].astype("float32") / 16
settings = {"pretrain_epochs": 5, "epochs": 6, "random_state": 0, "device": "cpu", **settings}
model = getattr(diffclust, method)(10, **settings, checkpoint=folder, checkpoint_every=1).fit(X)
np.save(out + ".part.npy", model.labels_)
os.replace(out + ".part.npy", out)
"""


def fit(case: int, out: Path, folder: str, patience: float | None = None) -> tuple[bool, str]:
    """One process; killed when the patience is over. Whether it came to its end, and what it said."""
    method, settings = CASES[case]
    command = [sys.executable, "-c", FIT, method, json.dumps(settings), str(out), folder]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        _, said = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        _, said = process.communicate()
    if process.returncode not in (0, -signal.SIGKILL):
        raise RuntimeError(said)
    return process.returncode == 0, said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=50, help="each is killed up to three times")
    parser.add_argument("--seed", type=int, default=0)
    wish = parser.parse_args()
    draw = random.Random(wish.seed)
    with tempfile.TemporaryDirectory() as scratch:
        undisturbed, lengths = [], []
        for case in range(len(CASES)):
            out = Path(scratch) / f"whole{case}.npy"
            began = time.monotonic()
            fit(case, out, "")
            lengths.append(time.monotonic() - began)
            undisturbed.append(np.load(out))
        tested = same = kills = damaged = attempts = 0
        while tested < wish.fits:
            case = attempts % len(CASES)
            folder, out = Path(scratch) / f"checkpoint{attempts}", Path(scratch) / f"labels{attempts}.npy"
            attempts += 1
            killed, rounds, done = 0, 0, False
            while not done:
                patience = draw.uniform(IMPORT, lengths[case]) if rounds < 3 else None
                done, said = fit(case, out, str(folder), patience)
                damaged += said.count("is damaged")
                rounds += 1
                killed += not done and folder.exists()  # else it had not yet begun to train
            if killed:
                tested, kills = tested + 1, kills + killed
                same += bool((np.load(out) == undisturbed[case]).all())
        print(f"{same} of {tested} fits, killed {kills} times in all, ended with identical labels")
        print(f"damaged checkpoints: {damaged}")


if __name__ == "__main__":
    main()
