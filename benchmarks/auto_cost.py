"""What it costs to choose the number of clusters: seconds of TELL("auto") beside TELL(k), one after the other.

    python benchmarks/auto_cost.py --data FOLDER [--sets coil20,umist] [--seeds 1]
    python benchmarks/auto_cost.py --show

FOLDER as for `auto.py`. Processor seconds of one thread, both fits in one process; the first fit of all is of a few
rows, so that nothing is imported or compiled within a time. Results are appended to benchmarks/results/auto_cost.csv;
what is there is not run again.
"""

import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import auto
import numpy as np
import sweep

RESULTS = Path(__file__).parent / "results" / "auto_cost.csv"
COLUMNS = ("data", "seed", "found", "auto", "k given", "acc", "acc k given", "device")
SETS = "acsf1,bbc,breast_cancer,gtzan30,italy_power,mice_protein,movement_libras,pbmc4k,pendigits,penguins,satimage"
SETS += ",segment,vowel,wine,worm_neuron,coil20,umist"


def run(folder: Path, device: str, name: str, seed: int) -> list[dict[str, Any]]:
    from diffclust import TELL, metrics

    X, y = auto.load(folder, name)
    k = len(np.unique(y))
    TELL(2, random_state=0, device=device).fit(X[:: max(1, len(X) // 200)])
    clock = time.process_time if device == "cpu" else time.perf_counter
    seconds, models = [], []
    for number in ("auto", k):
        start = clock()
        models.append(TELL(number, random_state=seed, device=device).fit(X))
        seconds.append(f"{clock() - start:.2f}")
    scores = [f"{100 * metrics.accuracy(y, model.labels_):.2f}" for model in models]
    return [dict(zip(COLUMNS, (name, seed, models[0].n_clusters_, *seconds, *scores, device), strict=True))]


def show(lines: list[dict[str, str]]) -> None:
    groups = defaultdict(list)
    for line in lines:
        groups[line["data"]].append(line)
    for name, own in groups.items():
        searched, fitted = (statistics.mean(float(line[what]) for line in own) for what in ("auto", "k given"))
        print(f"{name:18}{searched:8.1f} / {fitted:6.1f} = {searched / fitted:.1f}")


def main() -> None:
    wish = sweep.options(__doc__, sets=SETS, seeds=1, results=RESULTS).parse_args()
    show(sweep.sweep(run, sweep.sets_by_seed(wish), wish, keys=("data", "seed"), columns=COLUMNS))


if __name__ == "__main__":
    main()
