"""k-meansNet over the paper's grid of α on the digits: does any α collapse?

    python benchmarks/alpha_grid.py

Two stages, as by default: the network is trained once a seed, then every α clusters the same embedding, with the guard
(`repair=True`, the default) and, beside it, without. Prints the mean over seeds and writes a CSV.
"""

import argparse
import warnings
from pathlib import Path

import sheet
import torch

from diffclust import KMeansNet, datasets
from diffclust.metrics import accuracy, nmi

ALPHA_GRID = tuple(m * 10.0**p for p in range(-5, 1) for m in (1, 5))  # the paper's
SEEDS = range(2)  # each costs half a minute of pretraining


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    X, y = datasets.load("digits")
    rows = []
    for seed in SEEDS:
        Z = KMeansNet(10, epochs=0, random_state=seed).fit(X).transform(X)
        for alpha in (*ALPHA_GRID, 20.0):  # and the default
            for repair in (True, False):
                model = KMeansNet(10, alpha=alpha, network="identity", random_state=seed, repair=repair).fit(Z)
                used = 10 - len(model.diagnostics_["empty_clusters"])
                score = {"acc": 100 * accuracy(y, model.labels_), "nmi": 100 * nmi(y, model.labels_)}
                rows.append({"alpha": alpha, "repair": repair, "seed": seed, "used": used, **score})
    sheet.write(Path(__file__).parent / "results" / "alpha_grid.csv", list(rows[0]), rows)
    for alpha in (*ALPHA_GRID, 20.0):
        for repair in (True, False):
            own = [row for row in rows if (row["alpha"], row["repair"]) == (alpha, repair)]
            means = {key: sum(row[key] for row in own) / len(own) for key in ("acc", "nmi", "used")}
            word = "guarded" if repair else "unguarded"
            print(f"alpha {alpha:g} {word}: ACC {means['acc']:.1f} NMI {means['nmi']:.1f} used {means['used']:.1f}")


if __name__ == "__main__":
    main()
