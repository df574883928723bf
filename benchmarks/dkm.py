"""Tables 1 and 2 of Deep k-Means, re-run: one trained autoencoder, one start, one order of batches for all methods.

    python benchmarks/dkm.py --data usps --methods ae-km,dkm-p --seeds 2
    python benchmarks/dkm.py --device cuda --data mnist,usps,20news
    python benchmarks/dkm.py --device cuda --data usps --methods dkm-p --search     # λ chosen by validation labels

The paper's rules. Its ten seeds; per seed one autoencoder (trained once, kept in --cache) and one batch order for all
pretrained methods. All rows are trained on; scores are of the 90 % test part of one split, drawn once with seed 0 (the
authors ship another). Methods run at their default λ; --search adds the paper's line search by the accuracy on the
10 % validation part: labels choose λ then, and the rows say so. Finished runs are in the CSV and are not run again.
"""

import argparse
import statistics
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import sheet
import torch

import diffclust
from diffclust.baselines import BASELINES
from diffclust.datasets import load
from diffclust.metrics import accuracy, ari, nmi

HERE = Path(__file__).parent
SEEDS = (8905, 9129, 291, 4012, 1256, 6819, 4678, 6971, 1362, 575)  # the authors'
LAMBDAS = tuple(10.0**p for p in range(-4, 4))
DATA = {  # name of the data set, of the paper settings, steps between targets
    "mnist": ("mnist", "mnist", 140),
    "usps": ("usps-signed", "usps", 30),
    "20news": ("20newsgroups", "20newsgroups", 30),
    "rcv1": ("rcv1", "rcv1", 30),
}
PAPER = {  # ACC, its deviation, NMI, its deviation
    "mnist": {
        "km": (53.5, 0.3, 49.8, 0.5), "ae-km": (80.8, 1.8, 75.2, 1.1), "dcn-np": (34.8, 3.0, 18.1, 1.0),
        "dkm-a": (82.3, 3.2, 78.0, 1.9), "dcn-p": (81.1, 1.9, 75.7, 1.1), "dkm-p": (84.0, 2.2, 79.6, 0.9),
        "idec-np": (61.8, 3.0, 62.4, 1.6), "idec-p": (85.7, None, 86.4, None),
    },
    "usps": {
        "km": (67.3, 0.1, 61.4, 0.1), "ae-km": (72.9, 0.8, 71.7, 1.2), "dcn-np": (36.4, 3.5, 16.9, 1.3),
        "dkm-a": (75.5, 6.8, 73.0, 2.3), "dcn-p": (73.0, 0.8, 71.9, 1.2), "dkm-p": (75.7, 1.3, 77.6, 1.1),
        "idec-np": (53.9, 5.1, 50.0, 3.8), "idec-p": (75.2, None, 74.9, None),
    },
    "20news": {
        "km": (23.2, 1.5, 21.6, 1.8), "ae-km": (49.0, 2.9, 44.5, 1.5), "dcn-np": (17.9, 1.0, 9.8, 0.5),
        "dkm-a": (44.8, 2.4, 42.8, 1.1), "dcn-p": (49.2, 2.9, 44.7, 1.5), "dkm-p": (51.2, 2.8, 46.7, 1.2),
        "idec-np": (22.3, 1.5, 22.3, 1.5), "idec-p": (40.5, None, 38.2, None),
    },
    "rcv1": {
        "km": (50.8, 2.9, 31.3, 5.4), "ae-km": (56.7, 3.6, 31.5, 4.3), "dcn-np": (41.3, 4.0, 6.9, 1.8),
        "dkm-a": (53.8, 5.5, 28.0, 5.8), "dcn-p": (56.7, 3.6, 31.6, 4.3), "dkm-p": (58.3, 3.8, 33.1, 4.9),
        "idec-np": (56.7, 5.3, 31.4, 2.8), "idec-p": (59.5, None, 34.7, None),
    },
}  # fmt: skip
METHODS = (
    "km", "ae-km", "dcn-np", "dcn-p", "dkm-a", "dkm-p", "dkm-p-cosine", "idec-np", "idec-p", "dec", "vade",
)  # fmt: skip
TUNED = ("dcn-np", "dcn-p", "dkm-a", "dkm-p", "dkm-p-cosine", "idec-np", "idec-p")  # those with a λ or γ
FIELDS = (
    "data", "method", "seed", "weight", "weight_by", "pretrain_epochs", "epochs", "acc", "nmi_geometric", "nmi", "ari",
    "acc_all", "acc_validation", "seconds", "warnings", "device", "diffclust", "torch",
)  # fmt: skip


def split(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Validation 10 %, test 90 %: the same for every seed and method."""
    order = np.random.default_rng(0).permutation(n)
    return np.sort(order[: n // 10]), np.sort(order[n // 10 :])


def budget(method: str, options: argparse.Namespace) -> tuple[int, int]:
    """Epochs of pretraining and of the method: the paper's, unless told otherwise."""
    if method == "km":
        return 0, 0
    pretraining = 0 if method in ("dkm-a", "dcn-np", "idec-np") else 50
    if pretraining and options.pretrain_epochs is not None:
        pretraining = options.pretrain_epochs
    if method == "ae-km":
        return pretraining, diffclust.AEKMeans.papers["mnist"]["epochs"]
    epochs = {"dkm-a": 200, "dcn-np": 200, "idec-np": 200, "vade": 300}.get(method, 100)
    return pretraining, epochs if options.epochs is None else options.epochs


def trained(X: Any, data: str, seed: int, options: argparse.Namespace) -> Any:
    """The seed's AE + k-means, from the cache if it is there: its network and centres are everyone's start."""
    settings = {"random_state": seed, "device": options.device, "pretrain_epochs": budget("ae-km", options)[0]}
    estimator = diffclust.AEKMeans.paper(DATA[data][1], **settings)
    folder = options.cache / f"{data}-{seed}-{estimator.pretrain_epochs}"
    if (folder / "SHA256SUMS").exists():
        return diffclust.load(folder, device=options.device)
    estimator.fit(X)
    estimator.save(folder)
    return estimator


def estimator(X: Any, data: str, method: str, seed: int, weight: float | None, options: argparse.Namespace) -> Any:
    """A method as the paper's comparison has it, ready to fit; AE + k-means comes fitted."""
    if method == "ae-km":
        return trained(X, data, seed, options)
    _, name, interval = DATA[data]
    pretraining, epochs = budget(method, options)
    settings: dict[str, Any] = {"random_state": seed, "device": options.device, "pretrain_epochs": 0, "epochs": epochs}
    if method in ("dcn-p", "dkm-p", "idec-p", "dec"):
        start = trained(X, data, seed, options)
        settings |= {"network": start.model_.autoencoder, "init": start.cluster_centers_}
    elif method in ("dkm-p-cosine", "vade"):
        # their embeddings are another's: of unit length, or drawn; so they pretrain their own network
        settings["pretrain_epochs"] = pretraining
    if weight is not None:
        settings["weight"] = weight
    if method == "dkm-a":
        return diffclust.DeepKMeans.paper(f"{name}-a", **settings)
    if method == "dkm-p":
        return diffclust.DeepKMeans.paper(name, **settings)
    if method == "dkm-p-cosine":
        return diffclust.DeepKMeans.paper(name, distance="cosine", reconstruction="cosine", **settings)
    if method in ("dcn-p", "dcn-np"):
        return diffclust.DCN.paper(f"{name}-dkm", **settings)
    common = {k: v for k, v in diffclust.AEKMeans.papers[name].items() if k not in ("pretrain_epochs", "epochs")}
    if method in ("idec-p", "idec-np"):
        return diffclust.IDEC(**{**common, "interval": interval, **settings})
    if method == "dec":
        sgd = diffclust.DEC.papers["mnist"]["optimizer"]
        return diffclust.DEC(**{**common, "interval": interval, "optimizer": sgd, **settings})
    return diffclust.VaDE.paper("mnist", **{**common, "rescale": True, "batch_size": 100, **settings})


def run(X: Any, y: np.ndarray, data: str, method: str, seed: int, weight: float | None, by: str, options: Any) -> Any:
    """One row of the CSV."""
    began = time.perf_counter()
    if method == "km":
        rows = np.asarray(X, np.float64).reshape(len(X), -1)
        labels, settings, said = BASELINES["kmeans"](rows, len(np.unique(y)), seed), {}, []
    else:
        model = estimator(X, data, method, seed, weight, options)
        if method != "ae-km":
            model.fit(X)
        labels, settings, said = model.labels_, model.get_params(), model.diagnostics_["warnings"]
    validation, test = split(len(y))
    return {
        "data": data, "method": method, "seed": seed, "weight": settings.get("weight", ""), "weight_by": by,
        "pretrain_epochs": budget(method, options)[0], "epochs": budget(method, options)[1],
        "acc": f"{100 * accuracy(y[test], labels[test]):.2f}",
        "nmi_geometric": f"{100 * nmi(y[test], labels[test], average='geometric'):.2f}",
        "nmi": f"{100 * nmi(y[test], labels[test]):.2f}", "ari": f"{100 * ari(y[test], labels[test]):.2f}",
        "acc_all": f"{100 * accuracy(y, labels):.2f}",
        "acc_validation": f"{100 * accuracy(y[validation], labels[validation]):.2f}",
        "seconds": f"{time.perf_counter() - began:.1f}", "warnings": " ".join(said),
        "device": device_name(options.device),
        "diffclust": diffclust.__version__, "torch": torch.__version__,
    }  # fmt: skip


def device_name(wish: str) -> str:
    cuda = wish.startswith("cuda") or (wish == "auto" and torch.cuda.is_available())
    return torch.cuda.get_device_name() if cuda else f"cpu, {torch.get_num_threads()} threads"


def jobs(options: argparse.Namespace, rows: list[dict[str, str]]) -> Iterator[tuple[str, str, int, float | None, str]]:
    """What there is to do, in order; the search looks at the rows as they come."""
    for data in options.data:
        for method in options.methods:
            for seed in SEEDS[: options.seeds]:
                yield data, method, seed, None, "default"
            if not options.search or method not in TUNED:
                continue
            for weight in options.weights:
                for seed in SEEDS[: options.search_seeds]:
                    yield data, method, seed, weight, "search"
            tried = defaultdict(list)
            for row in rows:
                if (row["data"], row["method"], row["weight_by"]) == (data, method, "search"):
                    tried[float(row["weight"])].append(float(row["acc_validation"]))
            best = max(options.weights, key=lambda weight: statistics.mean(tried[weight]))
            for seed in SEEDS[: options.seeds]:
                yield data, method, seed, best, "validation labels"


def table(rows: list[dict[str, str]]) -> str:
    """ACC and geometric NMI of the test part, mean ± deviation, beside the paper's: Markdown."""
    groups = defaultdict(list)
    for row in rows:
        if row["weight_by"] != "search":
            epochs = f"{row['pretrain_epochs']} + {row['epochs']}"
            groups[row["data"], row["method"], row["weight"], row["weight_by"], epochs].append(row)

    def cell(group: list[dict[str, str]], name: str) -> str:
        values = [float(row[name]) for row in group]
        return f"{statistics.mean(values):.1f}" + (f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else "")

    def published(mean: float | None, deviation: float | None) -> str:
        return "" if mean is None else f"{mean}" + ("" if deviation is None else f" ± {deviation}")

    lines = [
        "| data | method | λ or γ | chosen by | epochs | seeds | ACC | paper | NMI | paper |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (data, method, weight, by, epochs), group in groups.items():
        acc, acc_std, score, score_std = PAPER[data].get(method, (None,) * 4)
        lines.append(
            f"| {data} | {method} | {weight} | {by if weight else ''} | {epochs} | {len(group)} | {cell(group, 'acc')} "
            f"| {published(acc, acc_std)} | {cell(group, 'nmi_geometric')} | {published(score, score_std)} |"
        )
    return "\n".join(lines)


def main() -> None:
    names = lambda text: tuple(text.split(","))  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=names, default=("mnist", "usps", "20news"), help=", ".join(DATA))
    parser.add_argument("--methods", type=names, default=METHODS, help=", ".join(METHODS))
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many of the ten")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--search", action="store_true", help="choose λ by the labels of the validation part, too")
    parser.add_argument("--search-seeds", type=int, default=2)
    parser.add_argument("--weights", type=lambda text: tuple(map(float, text.split(","))), default=LAMBDAS)
    parser.add_argument("--pretrain-epochs", type=int, help="another number than the paper's 50")
    parser.add_argument("--epochs", type=int, help="another number than the paper's 100 or 200")
    parser.add_argument("--cache", type=Path, default=HERE / "cache")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "dkm.csv")
    parser.add_argument("--show", action="store_true", help="only print the table of what has been run")
    options = parser.parse_args()
    for given, known in ((options.data, DATA), (options.methods, METHODS)):
        if unknown := set(given) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    warnings.simplefilter("ignore")  # what went wrong is in the CSV
    rows = sheet.read(options.out)
    known: dict[str, Any] = {}
    for data, method, seed, weight, by in () if options.show else jobs(options, rows):
        wanted = (data, method, str(seed), by, *map(str, budget(method, options)))
        if any(
            tuple(row[key] for key in ("data", "method", "seed", "weight_by", "pretrain_epochs", "epochs")) == wanted
            and (weight is None or float(row["weight"]) == weight)
            for row in rows
        ):
            continue
        if data not in known:
            X, y = load(DATA[data][0])
            known[data] = X.toarray() if hasattr(X, "toarray") else X, y  # small enough to sit on the device whole
        row = run(*known[data], data, method, seed, weight, by, options)
        sheet.append(options.out, FIELDS, [row])
        rows.append({key: str(value) for key, value in row.items()})
        print(*(row[key] for key in FIELDS[:9]), row["seconds"], flush=True)
    print(table([row for row in rows if row["data"] in options.data and row["method"] in options.methods]))


if __name__ == "__main__":
    main()
