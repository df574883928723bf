"""k-means: `nn.lloyd`, `nn.kmeans`, `partial_fit` and `predict` beside scikit-learn, and steps on a GPU beside the
times that flash-kmeans prints (128 columns, k = sqrt(n), one H200).

    python benchmarks/kmeans.py                    # on a CPU, one thread
    python benchmarks/kmeans.py --best             # only how soon each comes near the smallest inertia
    python benchmarks/kmeans.py --short            # in a minute; warns where a ratio is 20 % below the one that is kept
    python benchmarks/kmeans.py --short --keep     # and keeps these ratios
    python benchmarks/kmeans.py --device cuda

Seconds are of the processor, on one thread; both sides take turns, and the median of the ratios counts: theirs by ours,
so that more than 1 is faster. "To 0.1 %" is the time in which one start after another is expected to come within 0.1 %
of the smallest inertia that any start of any method found: the time of a start by the share of starts that do. Where
faiss is installed, its k-means (25 steps from random rows, its defaults) is there, too.
"""

import argparse
import csv
import importlib.util
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans, MiniBatchKMeans
from streams import mixture
from threadpoolctl import threadpool_limits

from diffclust import TELL, nn

RESULTS = Path(__file__).parent / "results"
SHAPES = ((10, 10, 200_000), (100, 64, 50_000), (10, 784, 20_000))  # clusters, columns, rows
PRINTED = {2**18: 3.0, 2**20: 12.1, 2**22: 42.7, 2**24: 159.5}  # rows: ms a step, fp32 on the GPU
PRINTED_HOST, PRINTED_HALF = 979.0, 1.6  # 2**26 rows in pinned memory; 8 x 131,072 rows in fp16, k = 1024
WITHIN = 1.001


def seconds(work: Callable[[], Any]) -> float:
    begin = time.thread_time()
    work()
    return time.thread_time() - begin


def ratio(ours: Callable[[], Any], theirs: Callable[[], Any], turns: int) -> tuple[float, float, float]:
    """Median seconds of both, and the median of theirs by ours."""
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(turns + 1)][1:]
    return median(a for a, _ in pairs), median(b for _, b in pairs), median(b / a for a, b in pairs)


# ---- on a CPU


def on_cpu(turns: int, share: float) -> dict[str, float]:
    """Lines of the table, and the ratios by name."""
    found = {}

    def line(name: str, ours: Callable[[], Any], theirs: Callable[[], Any]) -> None:
        a, b, times = ratio(ours, theirs, turns)
        found[name] = times
        print(f"{name:44s} {1000 * a:10.2f} ms {1000 * b:10.2f} ms {times:6.2f}", flush=True)

    print(f"{'':44s} {'ours':>13s} {'scikit-learn':>13s}  ratio")
    for k, d, n in SHAPES:
        X = mixture(k, d, int(share * n))
        x, start = torch.from_numpy(X), X[np.random.default_rng(1).permutation(len(X))[:k]]
        size = f"k={k} d={d} n={len(X)}"
        first = torch.from_numpy(start)
        line(
            f"Lloyd, 20 steps, {size}",
            lambda x=x, first=first: nn.lloyd(x, first, max_iter=20, tolerance=0),
            lambda X=X, start=start, k=k: KMeans(k, init=start, n_init=1, max_iter=20, tol=0, algorithm="lloyd").fit(X),
        )
        some = X[: int(10_000 * share)]
        line(
            f"k-means, 10 starts, k={k} d={d} n={len(some)}",
            lambda some=some, k=k: nn.kmeans(torch.from_numpy(some), k, n_init=10),
            lambda some=some, k=k: KMeans(k, n_init=10, algorithm="lloyd").fit(some),
        )
        ours = {"network": "identity", "init": "k-means++", "epochs": 0, "random_state": 0, "device": "cpu"}
        few = X[:2000]
        tell, peer = TELL(k, **ours).fit(few), KMeans(k, n_init=1).fit(few)
        rows = np.tile(X, (max(1, int(100_000 * share) // len(X)), 1))
        line(
            f"predict, k={k} d={d} n={len(rows)}",
            lambda tell=tell, rows=rows: tell.predict(rows),
            lambda peer=peer, rows=rows: peer.predict(rows),
        )
        line(
            f"predict, k={k} d={d}, 100 times one row",
            lambda tell=tell, X=X: [tell.predict(X[i : i + 1]) for i in range(100)],
            lambda peer=peer, X=X: [peer.predict(X[i : i + 1]) for i in range(100)],
        )
        batches = [X[i : i + 1024] for i in range(0, len(X) - 1023, 1024)]

        def feed(model: Any, batches: list[np.ndarray] = batches) -> None:
            for batch in batches:
                model.partial_fit(batch)

        tell, peer = TELL(k, **ours).fit(few), MiniBatchKMeans(k, batch_size=1024, n_init=1).fit(few)
        line(
            f"stream, batches of 1024, k={k} d={d}",
            lambda tell=tell, feed=feed: feed(tell),
            lambda peer=peer, feed=feed: feed(peer),
        )
    return found


def by_faiss(X: np.ndarray, k: int, seed: int) -> float:
    import faiss

    faiss.omp_set_num_threads(1)
    run = faiss.Kmeans(X.shape[1], k, seed=seed, max_points_per_centroid=len(X))
    run.train(X)
    return run.index.search(X, 1)[0].sum(dtype=np.float64)


def to_the_best(starts: int, share: float) -> None:
    """How soon each comes within 0.1 % of the smallest inertia."""
    print(f"\n{'to 0.1 % of the smallest inertia':44s} {'a start':>10s} {'reach it':>9s} {'expected':>10s}")
    for k, d, n in SHAPES:
        X = mixture(k, d, int(share * n)) / 3
        X = (X + np.random.default_rng(2).normal(size=X.shape)).astype(np.float32)
        x = torch.from_numpy(X)
        methods: dict[str, Callable[[int], float]] = {
            "nn.kmeans": lambda s, x=x, k=k: (
                nn.kmeans(x, k, n_init=1, generator=torch.Generator().manual_seed(s)).inertia
            ),
            "KMeans": lambda s, X=X, k=k: KMeans(k, n_init=1, random_state=s, algorithm="lloyd").fit(X).inertia_,
            "MiniBatchKMeans": lambda s, X=X, k=k: -MiniBatchKMeans(k, n_init=1, random_state=s).fit(X).score(X),
        }
        if importlib.util.find_spec("faiss"):
            methods["faiss.Kmeans"] = lambda s, X=X, k=k: by_faiss(X, k, s)
        reached: dict[str, list[tuple[float, float]]] = {name: [] for name in methods}
        for seed in range(starts):
            for name, run in methods.items():
                begin = time.thread_time()
                value = run(seed)
                reached[name].append((time.thread_time() - begin, float(value)))
        best = min(value for runs in reached.values() for _, value in runs)
        for name, runs in reached.items():
            each, hits = mean(t for t, _ in runs), mean(v <= WITHIN * best for _, v in runs)
            expected = f"{each / hits:8.2f} s" if hits else f"{'never':>10s}"
            print(f"{name + f', k={k} d={d} n={len(X)}':44s} {each:8.2f} s {hits:9.0%} {expected}", flush=True)


def compared_with_kept(found: dict[str, float], keep: bool) -> None:
    path = RESULTS / "kmeans_ratios.csv"
    if path.exists():
        with path.open() as file:
            for row in csv.DictReader(file):
                now, before = found.get(row["what"]), float(row["ratio"])
                if now is not None and now < 0.8 * before:
                    print(f"WARNING {row['what']}: {now:.2f} times as fast as scikit-learn, was {before:.2f}")
    if keep:
        with path.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["what", "ratio"])
            writer.writerows([what, f"{times:.2f}"] for what, times in found.items())


# ---- on a GPU


def step(x: torch.Tensor, centers: torch.Tensor) -> torch.Tensor:
    """A step of k-means for each of several problems (p, n, d), centres (p, k, d)."""
    labels, _ = nn.nearest(x, centers)
    sums, counts = nn.member_sums(x, labels, centers.shape[1])
    return torch.where(counts[..., None] > 0, sums / counts[..., None].clamp_min(1), centers)


def wall(work: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    begin = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def lloyd_ms(x: torch.Tensor, centers: torch.Tensor, steps: int, turns: int = 3) -> float:
    """Milliseconds a step of `nn.lloyd`: the difference between few and more of them, so that what comes before the
    first step and after the last does not count."""

    def run(n: int) -> float:
        return wall(lambda: nn.lloyd(x, centers, max_iter=n, tolerance=0))

    run(2)
    return 1000 * median((run(2 + steps) - run(2)) / steps for _ in range(turns))


def half_ms(generator: torch.Generator) -> float:
    """Milliseconds a step of eight problems in half precision, ten steps in a row."""
    x = torch.randn(8, 131_072, 128, device="cuda", generator=generator).half()
    centers = x[:, :1024].float()

    def ten() -> None:
        for _ in range(10):
            step(x, centers)

    ten()
    return 100 * median(wall(ten) for _ in range(5))


def on_gpu(host: bool) -> None:
    print(f"{torch.cuda.get_device_name()}\n{'':44s} {'ours':>11s} {'printed':>11s}  ours by printed")

    def line(name: str, ours: float, printed: float) -> None:
        print(f"{name:44s} {ours:8.2f} ms {printed:8.2f} ms {ours / printed:6.2f}", flush=True)

    generator = torch.Generator("cuda").manual_seed(0)
    for n, printed in PRINTED.items():
        x = torch.randn(n, 128, device="cuda", generator=generator)
        centers = x[torch.randperm(n, device="cuda", generator=generator)[: int(n**0.5)]].clone()
        line(f"fp32 n={n} k={len(centers)}", lloyd_ms(x, centers, 10 if n < 2**24 else 4), printed)
        del x
    line("fp16 8 x 131072 k=1024", half_ms(generator), PRINTED_HALF)
    if host:
        n, rows = 2**26, 2**21
        begin = time.perf_counter()
        x = torch.empty(n, 128, pin_memory=True)
        for part in x.split(rows):
            part.copy_(torch.randn(len(part), 128, device="cuda", generator=generator))
        print(f"{time.perf_counter() - begin:.1f} s to fill the pinned memory", flush=True)
        line(f"fp32 n={n} k=8192, in pinned memory", lloyd_ms(x, x[:8192].cuda(), 2, turns=1), PRINTED_HOST)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--short", action="store_true", help="a fifth of the rows, and no search for the best inertia")
    parser.add_argument("--keep", action="store_true", help="keep the ratios for later runs to be compared with")
    parser.add_argument("--best", action="store_true", help="only the search for the best inertia")
    parser.add_argument("--host", action="store_true", help="on a GPU: with 34 GB of rows in pinned memory, too")
    args = parser.parse_args()
    if args.device == "cuda":
        on_gpu(args.host)
    else:
        torch.set_num_threads(1)
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # twenty steps do not converge
            ratios = {} if args.best else on_cpu(3 if args.short else 7, 0.2 if args.short else 1.0)
            if args.short:
                compared_with_kept(ratios, args.keep)
            else:
                to_the_best(40, 0.2)
