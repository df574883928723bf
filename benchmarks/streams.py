"""Streams: rows a second beside MiniBatchKMeans and River, and the papers' online MNIST.

    python benchmarks/streams.py speed [--rows 200000]
    python benchmarks/streams.py mnist [--seeds 5]

`speed` feeds the same batches of 1024 rows to each in turn, batch by batch, so that a busy machine is busy for all of
them; seconds are of the processor, on one thread. MiniBatchKMeans labels each batch after learning from it unless told
not to; ours do so when `labels_` is read. `mnist` follows the papers: 1,000 rows to start, 60,000 in a stream,
raw pixels, labelled as they arrive after the batch was learnt from, and again by the last model; then the same with the
classes in order. Labels are used for scoring alone, and to bring the classes into order.
"""

import argparse
import csv
import sys
import time
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from diffclust import DCN, TELL, AEKMeans, DeepKMeans, KMeansNet, datasets, metrics

RESULTS = Path(__file__).parent / "results"
SHAPES = ((100, 64), (10, 784), (10, 10))  # clusters, features


class River:
    """River's k-means, which learns a row at a time from a dict."""

    def __init__(self, k: int) -> None:
        from river import cluster

        self.model = cluster.KMeans(n_clusters=k, halflife=0.1, seed=0)

    def partial_fit(self, X: np.ndarray) -> None:
        for row in X:
            self.model.learn_one(dict(enumerate(row.tolist())))


def mixture(k: int, d: int, n: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    centers = 3 * rng.normal(size=(k, d))
    return (centers[rng.integers(k, size=n)] + rng.normal(size=(n, d))).astype(np.float32)


def speed(rows: int, batch: int = 1024) -> None:
    torch.set_num_threads(1)
    ours = {"network": "identity", "init": "k-means++", "epochs": 0, "random_state": 0, "device": "cpu"}
    lines = []
    for k, d in SHAPES:
        X = mixture(k, d, rows)
        models = {
            "MiniBatchKMeans": MiniBatchKMeans(k, random_state=0, batch_size=batch),
            "MiniBatchKMeans, no labels": MiniBatchKMeans(k, random_state=0, batch_size=batch, compute_labels=False),
            "TELL, labels read": TELL(k, **ours),
        }
        models |= {cls.__name__: cls(k, **ours) for cls in (TELL, KMeansNet, DCN, AEKMeans, DeepKMeans)}
        try:
            models["River KMeans"] = River(k)
        except ImportError:
            print("river is not installed: left out", file=sys.stderr)
        seconds, done, start = dict.fromkeys(models, 0.0), dict.fromkeys(models, 0), {}
        for i in range(0, rows - batch + 1, batch):
            for name, model in models.items():
                if name == "River KMeans" and i > 4 * batch:
                    continue
                begin = time.thread_time()
                model.partial_fit(X[i : i + batch])
                if name == "TELL, labels read":
                    _ = model.labels_
                passed = time.thread_time() - begin
                if i == 0:
                    start[name] = passed  # the first call places the centres
                else:
                    seconds[name] += passed
                    done[name] += batch
        for name in models:
            line = {"k": k, "d": d, "batch": batch, "method": name, "rows": done[name]}
            line |= {"rows_per_second": round(done[name] / seconds[name]), "first_call_seconds": round(start[name], 4)}
            lines.append(line)
            print(line, flush=True)
    write("streams_speed.csv", lines)


def mnist(seeds: int, batch: int = 256) -> None:
    images, digits = datasets.load("mnist")
    pixels = (images.reshape(len(images), -1) / 255).astype(np.float32)
    methods = {
        "k-means of the start": lambda s: KMeans(10, n_init=10, random_state=s),
        "MiniBatchKMeans": lambda s: MiniBatchKMeans(10, n_init=10, random_state=s),
        "TELL": lambda s: TELL(10, network="identity", random_state=s),
        "TELL, sphere": lambda s: TELL(10, network="identity", sphere=True, random_state=s),
        "KMeansNet": lambda s: KMeansNet(10, network="identity", random_state=s),
        "DCN": lambda s: DCN(10, network="identity", random_state=s),
    }
    lines = []
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(pixels))[:61_000]
        for stream in ("shuffled", "classes in order"):
            start, rest = order[:1000], order[1000:]
            rest = rest if stream == "shuffled" else rest[np.argsort(digits[rest], kind="stable")]
            for name, build in methods.items():
                begin = time.perf_counter()
                model = build(seed).fit(pixels[start])
                arrived = []
                for i in range(0, len(rest), batch):
                    rows = pixels[rest[i : i + batch]]
                    if name != "k-means of the start":
                        model.partial_fit(rows)
                    arrived.append(model.predict(rows))
                seconds = time.perf_counter() - begin
                for when, labels in (
                    ("on arrival", np.concatenate(arrived)),
                    ("at the end", model.predict(pixels[rest])),
                ):
                    line = {"stream": stream, "method": name, "seed": seed, "labels": when}
                    line |= scores(digits[rest], labels) | {"seconds": round(seconds, 1)}
                    lines.append(line)
                    print(line, flush=True)
        write("streams_mnist.csv", lines)
    for key in dict.fromkeys((x["stream"], x["method"], x["labels"]) for x in lines):
        own = [x for x in lines if (x["stream"], x["method"], x["labels"]) == key]
        print(*key, *(f"{mean(x[score] for x in own):.2f}" for score in ("acc", "nmi", "ari")), sep="\t")


def scores(truth: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    found = (
        metrics.accuracy(truth, labels),
        normalized_mutual_info_score(truth, labels),
        adjusted_rand_score(truth, labels),
    )
    return {name: round(100 * value, 2) for name, value in zip(("acc", "nmi", "ari"), found, strict=True)}


def write(name: str, lines: list[dict[str, object]]) -> None:
    with (RESULTS / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, lines[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "mnist"))
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    speed(args.rows) if args.what == "speed" else mnist(args.seeds)
