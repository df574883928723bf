"""VaDE: does the network it begins with decide where it ends?

    python benchmarks/vade.py --data mnist --seeds 10 --device cuda
    python benchmarks/vade.py --show

Its authors ship pretrained weights, and not the training that made them. Here the autoencoder is trained end to end, or
layer by layer first; a mixture is fitted to its embeddings, and its accuracy stands beside that after the clustering.
Labels only score. Finished runs are in the CSV, and not run again.
"""

import argparse
import time
import warnings
from pathlib import Path
from statistics import correlation, mean, stdev
from typing import Any

import sheet
import torch

import diffclust
from diffclust import VaDE, fit_together
from diffclust.datasets import load
from diffclust.metrics import accuracy, nmi

HERE = Path(__file__).parent
STARTS: dict[str, dict[str, Any]] = {"end to end": {}, "layer by layer": {"layer_epochs": 10}}
FIELDS = (
    "data", "start", "seed", "pretrain_epochs", "epochs", "start_acc", "start_nmi", "acc", "nmi", "clustering_loss",
    "reconstruction", "effective_clusters", "seconds", "device", "diffclust", "torch",
)  # fmt: skip
KEY = FIELDS[:5]


def run(data: str, wanted: list[tuple[str, int]], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of the CSV: all of them learn side by side on a GPU."""
    X, y = load(data)
    common = {**VaDE.papers["mnist"], "device": options.device}
    first = {**common, "pretrain_epochs": options.pretrain_epochs, "epochs": 0}
    starts = [VaDE(**{**first, **STARTS[start]}, random_state=seed) for start, seed in wanted]
    fit_together(starts, X)
    began = time.perf_counter()
    then = {**common, "pretrain_epochs": 0, "epochs": options.epochs}
    ends = [
        VaDE(
            **{**then, "network": start.model_.autoencoder, "init": start.cluster_centers_},
            random_state=start.random_state,
        )
        for start in starts
    ]
    fit_together(ends, X)
    seconds = (time.perf_counter() - began) / len(wanted)
    rows = []
    for (how, seed), start, end in zip(wanted, starts, ends, strict=True):
        cuda = end.model_.clusters.weight.is_cuda
        rows.append({
            "data": data, "start": how, "seed": seed,
            "pretrain_epochs": options.pretrain_epochs, "epochs": options.epochs,
            "start_acc": f"{100 * accuracy(y, start.labels_):.2f}", "start_nmi": f"{100 * nmi(y, start.labels_):.2f}",
            "acc": f"{100 * accuracy(y, end.labels_):.2f}", "nmi": f"{100 * nmi(y, end.labels_):.2f}",
            "clustering_loss": f"{end.clustering_loss_:.4f}",
            "reconstruction": f"{end.history_[-1]['reconstruction']:.4f}",
            "effective_clusters": f"{end.diagnostics_['effective_clusters']:.2f}",
            "seconds": f"{seconds:.1f}", "device": torch.cuda.get_device_name() if cuda else "cpu",
            "diffclust": diffclust.__version__, "torch": torch.__version__,
        })  # fmt: skip
    return rows


def table(rows: list[dict[str, str]]) -> str:
    """Mean ± deviation over the seeds, and how far the start foretells the end: Markdown."""
    lines = [
        "| data | start | epochs | seeds | mixture at the start | VaDE | correlation |",
        "|---|---|---|---|---|---|---|",
    ]
    names = ("data", "start", "pretrain_epochs", "epochs")
    for key in dict.fromkeys(tuple(row[name] for name in names) for row in rows):
        group = [row for row in rows if tuple(row[name] for name in names) == key]
        before, after = ([float(row[name]) for row in group] for name in ("start_acc", "acc"))
        few = len(group) < 2
        cells = [f"{mean(values):.1f}" + ("" if few else f" ± {stdev(values):.1f}") for values in (before, after)]
        bond = "" if len(group) < 3 else f"{correlation(before, after):.2f}"
        data, start, first, then = key
        lines.append(f"| {data} | {start} | {first} + {then} | {len(group)} | {cells[0]} | {cells[1]} | {bond} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--pretrain-epochs", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "vade.csv")
    parser.add_argument("--show", action="store_true", help="only print the table of what has been run")
    options = parser.parse_args()
    rows = sheet.read(options.out)
    done = {tuple(row[name] for name in KEY) for row in rows}
    warnings.simplefilter("ignore")  # collapses are in the CSV
    wanted = []
    for start in () if options.show else STARTS:
        for seed in range(options.seeds):
            known = (options.data, start, seed, options.pretrain_epochs, options.epochs)
            if tuple(map(str, known)) not in done:
                wanted.append((start, seed))
    for row in run(options.data, wanted, options) if wanted else []:
        sheet.append(options.out, FIELDS, [row])
        rows.append({name: str(value) for name, value in row.items()})
    print(table(rows))


if __name__ == "__main__":
    main()
