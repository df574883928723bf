"""CrossMetric: which side of the loss should learn, at what rate, and what the paper's sweeps look like.

    python benchmarks/cross_metric.py --study gradients --data usps --seeds 5 --device cuda
    python benchmarks/cross_metric.py --study rates --data mnist-test --seeds 2 --device cuda
    python benchmarks/cross_metric.py --show

Studies: gradients (HOMO and HOE; nothing, the target or the prediction detached), variants (all four), metrics (also
with angles seen from zero, and two at once), spread (distances as they are, or multiplied), matched (the target's power
raised until it is as decided as the prediction, or not), rates (1e-2 to 1e-5, angles seen from zero as in the paper's
settings), cnn (its CNN: 1e-3 and 1e-4, angles seen from zero or from the mean), pretraining (for how many epochs),
divergences, units (values as they are, brought to the network's units, or less their means), and the paper's Figures 4
to 6 with HOE: noise, decay, size.

Within a seed all settings begin with one denoising autoencoder and its k-means centres, whose accuracy is in the same
row, by the nearest centre and by P₁; where a setting is the network's, with one of its own. No early stop, so that all
have as many epochs. What can be chosen by without labels is in the row, too: the loss, the share of rows assigned
differently, how decided P₁ and P₂ are (mean entropy, before and after), the effective number of clusters, the variance
left inside them, and how near the two nearest centres are, before and after. Labels only score, but whoever takes a
default from the scores has chosen it by labels. Finished runs are in the CSV, and not run again.
"""

import argparse
import copy
import json
import statistics
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import sheet
import torch
from scipy.spatial.distance import cdist, pdist

import diffclust
from diffclust import CrossMetric, fit_together
from diffclust.datasets import load
from diffclust.engine.runtime import choose_device
from diffclust.metrics import accuracy, ari, nmi, pair_precision
from diffclust.nn.ops import METRICS

HERE = Path(__file__).parent
BOTH = ("euclidean", "cosine")
STUDIES: dict[str, list[dict[str, Any]]] = {
    "gradients": [{"metric": m, "detach": d} for m in BOTH for d in ("none", "target", "prediction")],
    "variants": [{"metric": m} for m in METRICS],
    "metrics": [
        {"metric": "euclidean"},
        {"metric": "cityblock"},
        *({"metric": m, "centered": c} for m in ("cosine", "correlation") for c in (True, False)),
        {"metric": ["euclidean", "cityblock"]},
    ],
    "spread": [{"metric": m, "spread": s} for m in (*BOTH, "correlation") for s in (0.0, 3.0, 6.0, 12.0)],
    "matched": [{"metric": m, "matched": on} for m in METRICS for on in (True, False)],
    "rates": [{"metric": m, "lr": float(f"1e-{p}"), "centered": False} for m in BOTH for p in range(2, 6)],
    "cnn": [
        {"network": "conv-pool", "metric": m, "lr": float(f"1e-{p}"), "centered": c}
        for m, c in (("euclidean", False), ("cosine", False), ("cosine", True))
        for p in range(3, 5)
    ],
    "pretraining": [{"metric": m, "pretrain_epochs": n} for n in (10, 20, 50, 100, 300) for m in BOTH],
    "divergences": [{"metric": m, "divergence": d} for m in BOTH for d in ("kl", "jensen-shannon", "hellinger")],
    "units": [{"metric": m, "rescale": r} for m in BOTH for r in (True, False, "mean")],
    "noise": [{"metric": "cosine", "noise": p / 10} for p in (2, 3, 4, 6, 8, 10)],
    "decay": [{"metric": "cosine", "decay": p / 10} for p in (1, 3, 5, 7, 9, 10)],
    "size": [{"metric": "cosine", "embedding_dim": d} for d in (5, 10, 20, 50, 100)],
}
OF_THE_NETWORK = (
    "network",
    "noise",
    "embedding_dim",
    "rescale",
    "pretrain_epochs",
)  # settings that pretraining depends on
DECAYS = 5  # in a run, whatever its length
FIELDS = (
    "study", "data", "setting", "seed", "pretrain_epochs", "epochs", "acc", "nmi", "ari", "precision", "start_acc",
    "start_nmi", "start_p1_acc", "first_loss", "last_loss", "disagreement", "effective_clusters", "start_entropies",
    "entropies", "start_scatter", "scatter", "start_nearest_centers", "nearest_centers", "seconds", "device",
    "diffclust", "torch",
)  # fmt: skip


def settings(data: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    k = {"reuters-r8": 8, "coil20": 20}.get(data, 10)
    paper = CrossMetric.papers.get(data, CrossMetric.papers["mnist-test"])
    paper = {**paper, "n_clusters": k, "centered": True, "tolerance": 0, "lr": 0.001}
    every = max(1, options.epochs // DECAYS)
    return {**paper, "epochs": options.epochs, "decay_every": every, "random_state": seed, "device": options.device}


def pretrain_epochs(change: dict[str, Any], options: argparse.Namespace) -> int:
    return change.get("pretrain_epochs", options.pretrain_epochs)


def label_free(model: CrossMetric, X: Any) -> dict[str, str]:
    """How decided P₁ and P₂ are, the share of the variance inside clusters, and the distance of the nearest centres as
    a share of the mean one."""
    z, centers = model.transform(X).astype(float), model.cluster_centers_.astype(float)
    layer = copy.deepcopy(model.model_.clusters).cpu().double()
    with torch.no_grad():
        found = layer.assignments(torch.from_numpy(z))[:2]
    entropies = [-torch.xlogy(p, p).sum(1).mean().item() for p in found]
    inside = ((z - centers[model.labels_]) ** 2).sum() / ((z - z.mean(0)) ** 2).sum()
    apart = pdist(centers)
    return {
        "entropies": " ".join(f"{h:.3f}" for h in entropies),
        "scatter": f"{inside:.4f}",
        "nearest_centers": f"{apart.min() / apart.mean():.4f}",
    }


def start_of(data: str, seed: int, change: dict[str, Any], options: Any) -> CrossMetric:
    """The network that a setting begins with, to be pretrained, and the centres on it."""
    own = {name: value for name, value in change.items() if name in OF_THE_NETWORK}
    kept = {**settings(data, seed, options), "pretrain_epochs": options.pretrain_epochs, **own, "epochs": 0}
    return CrossMetric(**kept)


def run(X: Any, y: Any, data: str, wanted: list[tuple[str, dict[str, Any], int]], options: Any) -> list[Any]:
    """Rows of the CSV: studies, settings and seeds, which on a GPU learn side by side."""
    every = [start_of(data, seed, change, options) for _, change, seed in wanted]
    networks = {describe(start): start for start in every}
    fit_together(list(networks.values()), X)
    starts = [networks[describe(start)] for start in every]

    def build(start: CrossMetric, change: dict[str, Any], seed: int, **more: Any) -> CrossMetric:
        begin = {"network": start.model_.autoencoder, "init": start.cluster_centers_, "pretrain_epochs": 0}
        return CrossMetric(**{**settings(data, seed, options), **change, **begin, **more})

    each = [(start, change, seed) for start, (_, change, seed) in zip(starts, wanted, strict=True)]
    before = fit_together([build(*run, epochs=0) for run in each], X)
    began = time.perf_counter()
    after = fit_together([build(*run) for run in each], X)
    seconds = (time.perf_counter() - began) / len(wanted)
    return [
        line(X, y, (study, data, seed), change, fits, seconds, options)
        for (study, change, seed), *fits in zip(wanted, starts, before, after, strict=True)
    ]


def describe(estimator: CrossMetric) -> str:
    return json.dumps({name: str(value) for name, value in estimator.get_params().items()})


def line(X: Any, y: Any, what: Any, change: dict[str, Any], fits: Any, seconds: float, options: Any) -> dict[str, Any]:
    (study, data, seed), (start, before, model) = what, fits
    nearest = cdist(start.transform(X), start.cluster_centers_).argmin(1)
    labels, first, last = model.labels_, model.history_[0], model.history_[-1]
    cuda = model.model_.clusters.weight.is_cuda
    return {
        "study": study, "data": data, "setting": json.dumps(change), "seed": seed,
        "pretrain_epochs": pretrain_epochs(change, options), "epochs": options.epochs,
        "acc": f"{100 * accuracy(y, labels):.2f}", "nmi": f"{100 * nmi(y, labels):.2f}",
        "ari": f"{100 * ari(y, labels):.2f}", "precision": f"{100 * pair_precision(y, labels):.2f}",
        "start_acc": f"{100 * accuracy(y, nearest):.2f}", "start_nmi": f"{100 * nmi(y, nearest):.2f}",
        "start_p1_acc": f"{100 * accuracy(y, before.labels_):.2f}",
        "first_loss": f"{first['clustering']:.4f}", "last_loss": f"{last['clustering']:.4f}",
        "disagreement": f"{last['disagreement']:.4f}",
        "effective_clusters": f"{model.diagnostics_['effective_clusters']:.2f}",
        **{f"start_{name}": value for name, value in label_free(before, X).items()}, **label_free(model, X),
        "seconds": f"{seconds:.1f}",
        "device": torch.cuda.get_device_name() if cuda else f"cpu, {torch.get_num_threads()} threads",
        "diffclust": diffclust.__version__, "torch": torch.__version__,
    }  # fmt: skip


def table(rows: list[dict[str, str]]) -> str:
    """Mean ± deviation over the seeds: Markdown."""
    groups = defaultdict(list)
    for row in rows:
        epochs = f"{row['pretrain_epochs']} + {row['epochs']}"
        groups[row["study"], row["data"], row["setting"], epochs].append(row)

    def cell(group: list[dict[str, str]], name: str, digits: int = 1) -> str:
        values = [float(row[name]) for row in group]
        spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
        return f"{statistics.mean(values):.{digits}f}{spread}"

    lines = [
        "| study | data | setting | epochs | seeds | ACC | NMI | AE + k-means | NMI | first loss | last | clusters |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (study, data, setting, epochs), group in groups.items():
        said = ", ".join(f"{name} {value}" for name, value in json.loads(setting).items())
        scores = " | ".join(cell(group, name) for name in ("acc", "nmi", "start_acc", "start_nmi"))
        losses = " | ".join(cell(group, name, 2) for name in ("first_loss", "last_loss"))
        clusters = cell(group, "effective_clusters")
        lines.append(f"| {study} | {data} | {said} | {epochs} | {len(group)} | {scores} | {losses} | {clusters} |")
    return "\n".join(lines)


def main() -> None:
    names = lambda text: tuple(text.split(","))  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", type=names, default=("gradients",), help=", ".join(STUDIES))
    parser.add_argument("--data", type=names, default=("usps",))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--pretrain-epochs", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "cross_metric.csv")
    parser.add_argument("--show", action="store_true", help="only print the table of what has been run")
    options = parser.parse_args()
    if unknown := set(options.study) - set(STUDIES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(STUDIES)}")
    warnings.simplefilter("ignore")  # collapses are in the CSV
    rows = sheet.read(options.out)
    key = FIELDS[:6]
    done = {tuple(row[name] for name in key) for row in rows}
    for data in () if options.show else options.data:
        X, y = load(data)
        X = X.toarray() if hasattr(X, "toarray") else X
        cuda = choose_device(options.device).type == "cuda"
        for seeds in [range(options.seeds)] if cuda else [range(seed, seed + 1) for seed in range(options.seeds)]:
            wanted = []
            for study, change in [(name, change) for name in options.study for change in STUDIES[name]]:
                for seed in seeds:
                    known = (study, data, json.dumps(change), seed, pretrain_epochs(change, options), options.epochs)
                    if tuple(map(str, known)) not in done:
                        wanted.append((study, change, seed))
            for row in run(X, np.asarray(y), data, wanted, options) if wanted else []:
                sheet.append(options.out, FIELDS, [row])
                rows.append({name: str(value) for name, value in row.items()})
                print(*(row[name] for name in FIELDS[:7]), row["start_acc"], row["seconds"], flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
