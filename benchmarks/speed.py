"""Seconds an epoch of TELL: this library, a plain PyTorch loop doing the same work, and clustpy where it is installed.

    python benchmarks/speed.py --device cuda                     # MNIST's size, batch 256, one run and five restarts
    python benchmarks/speed.py --device cpu --rows 4096
    python benchmarks/speed.py --precisions bf16 --deterministic # the price of the same bits every time
    python benchmarks/speed.py --networks --methods dcn dkm      # other methods with their defaults, in bf16

All in one process, one after the other; the images are ten patterns and noise, since time does not depend on them. An
epoch's time is the median over the later half, so that warm-up is not in it (it has a column of its own); on a CPU,
which other work disturbs, the fastest.
"""

import argparse
import functools
import itertools
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import diffclust
from diffclust.engine.data import Data
from diffclust.engine.phase import Progress
from diffclust.engine.rows import TensorRows
from diffclust.engine.runtime import autocast
from diffclust.estimator.networks import build
from diffclust.methods import METHODS

BATCH = 256


class EndedEarly(RuntimeError):
    """Fewer epochs than a time can be read from."""


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def per_epoch(stamps: list[float], device: str) -> tuple[float, float]:
    """Seconds an epoch, and what the first epochs took beyond it. Two epochs are one turn of TELL."""
    if len(stamps) < 6:
        raise EndedEarly(f"the fit ended by itself after {len(stamps) - 1} epochs")
    turns = [(b - a) / 2 for a, b in zip(stamps[:-2], stamps[2:], strict=True)]
    settled = min(turns[2:]) if device == "cpu" else statistics.median(turns[len(turns) // 2 :])
    return settled, stamps[4] - stamps[0] - 4 * settled


def ours(
    images: Tensor, network: str, device: str, precision: str, restarts: int, epochs: int, **settings: Any
) -> list[float]:
    name = {"conv": "mnist", "dense": "mnist-dense"}[network]  # 3000 epochs, of which the first few are run
    settings |= {"n_init": restarts, "precision": precision, "device": device, "random_state": 0}
    return timed(functools.partial(diffclust.TELL.paper, name, **settings), images, restarts, epochs)


def our_dcn(images: Tensor, device: str, epochs: int) -> list[float]:
    settings = {"network": "dense", "pretrain_epochs": 0, "epochs": 3000, "augment": None, "precision": "float32"}
    build = functools.partial(diffclust.DCN, 10, batch_size=BATCH, device=device, random_state=0, **settings)
    return timed(build, images, 1, epochs)


def of_method(images: Tensor, estimator: str, device: str, epochs: int) -> list[float]:
    settings = {"pretrain_epochs": 20, "epochs": 3000, "precision": "bf16", "device": device, "random_state": 0}
    method = getattr(diffclust, estimator)
    for name in {"tolerance", "repair"} & method().get_params().keys():
        settings[name] = 0 if name == "tolerance" else False  # so that no method ends by itself
    return timed(functools.partial(method, 10, **settings), images, 1, epochs)


def timed(build: Callable[..., Any], images: Tensor, restarts: int, epochs: int) -> list[float]:
    """When each epoch of clustering of the last restart ended; the fit is broken off after `epochs`."""
    stamps = [time.perf_counter()]

    def note(progress: Progress) -> None:
        if progress.restart == restarts - 1 and progress.phase == "clustering":
            wait(progress.data.device.type)
            stamps.append(time.perf_counter())
        progress.stop = progress.epoch == epochs - 1

    build(callbacks=[note]).fit(images)
    return stamps


def plain(images: Tensor, network: str, device: str, precision: str, epochs: int) -> list[float]:
    """The same network and arithmetic, as one would write it in a notebook: rows on the device, nothing in Python but
    the loop over batches."""
    x = images.to(device)
    data = Data(TensorRows(x, 255.0), torch.device(device), BATCH)
    net = build(network, data, 10, {"dense": {"dropout": 0.2}}).to(device)
    centers = F.normalize(torch.randn(10, 10, device=device), dim=1)
    optimizer = torch.optim.Adadelta(net.parameters(), lr=1.0)
    stamps = [time.perf_counter()]
    for epoch in range(epochs):
        order = torch.randperm(len(x), device=device)
        total = torch.zeros((), device=device)
        for start in range(0, len(x) - BATCH + 1, BATCH):
            batch = x[order[start : start + BATCH]].float() / 255
            with autocast(torch.device(device), precision):
                h = F.normalize(net.encode(batch).float(), dim=1)
                reconstruction = net.reconstruction_loss(batch, h)
                score = (h.detach() if epoch % 2 == 0 else h) @ centers.T
                owner = score.detach().argmax(1)
                clustering = 0.02 - 0.002 * score.gather(1, owner[:, None]).mean()
                loss = reconstruction + clustering
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if epoch % 2 == 0:
                member = F.one_hot(owner, 10).float()
                centers = F.normalize(centers + 0.1 * F.normalize(member.T @ h.detach(), dim=1), dim=1)
            total += loss.detach()
        total.item()
        wait(device)
        stamps.append(time.perf_counter())
    return stamps


def clustpy(images: Tensor, device: str, epochs: int) -> list[float]:
    """DCN with clustpy's dense autoencoder of the same widths; per epoch of clustering."""
    from clustpy.deep import DCN
    from clustpy.deep.neural_networks import FeedforwardAutoencoder

    rows = images.flatten(1).float().div(255).numpy()
    stamps = []
    for clustering_epochs in (1, 1 + epochs):
        net = FeedforwardAutoencoder([784, 500, 500, 2000, 10]).to(device)
        net.fitted = True
        settings = {"pretrain_epochs": 0, "clustering_epochs": clustering_epochs, "batch_size": BATCH}
        start = time.perf_counter()
        DCN(10, **settings, neural_network=net, device=torch.device(device), random_state=0).fit(rows)
        wait(device)
        stamps.append(time.perf_counter() - start)
    each = (stamps[1] - stamps[0]) / epochs
    return [i * each for i in range(6)]


def measure(name: str, device: str, work: Callable[[], list[float]], yardstick: float) -> float:
    """Run, print a line, and return the seconds an epoch took; `yardstick` is what the ratio compares them with."""
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        seconds, warm_up = per_epoch(work(), device)
    except (ImportError, EndedEarly) as error:
        print(f"{name:34}not run: {error}")
        return float("inf")
    peak = f"{torch.cuda.max_memory_reserved() / 2**30:10.2f}" if device == "cuda" else ""
    ratio = f"{yardstick / seconds:8.2f}" if yardstick < float("inf") else " " * 8
    print(f"{name:34}{seconds:9.3f}{ratio}{warm_up:11.1f}{peak}", flush=True)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", type=int, default=70_000)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--networks", nargs="*", default=["conv", "dense"])
    parser.add_argument("--methods", nargs="*", default=[], help="names, as `diffclust methods` lists them")
    parser.add_argument("--restarts", nargs="+", type=int, default=[1, 5])
    parser.add_argument("--precisions", nargs="+", default=["float32", "bf16"])
    parser.add_argument("--deterministic", action="store_true", help="our runs once more with deterministic=True")
    wish = parser.parse_args()
    device, epochs = wish.device, wish.epochs
    warnings.simplefilter("ignore")  # fits that are broken off
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randint(0, 128, (10, 1, 28, 28), generator=generator)
    noise = torch.randint(0, 128, (wish.rows, 1, 28, 28), generator=generator)
    images = (patterns.repeat(-(-wish.rows // 10), 1, 1, 1)[: wish.rows] + noise).byte()
    where = torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} CPU threads"
    print(f"{wish.rows} images 28x28, batch {BATCH}, torch {torch.__version__}, {where}")
    print(f"{'':34}{'s/epoch':>9}{'ratio':>8}{'warm-up s':>11}{'peak GiB' if device == 'cuda' else '':>10}")
    for network in wish.networks:
        best = float("inf")
        for precision in wish.precisions:
            work = functools.partial(plain, images, network, device, precision, max(6, epochs // 2))
            best = min(best, measure(f"{network}, plain loop, {precision}", device, work, best))
        exact = (False, True) if wish.deterministic else (False,)
        for precision, restarts, same in itertools.product(wish.precisions, wish.restarts, exact):
            work = functools.partial(ours, images, network, device, precision, restarts, epochs, deterministic=same)
            name = (
                f"{network}, {'same bits' if same else 'diffclust'}, {precision}, {restarts} run{'s' * (restarts > 1)}"
            )
            measure(name, device, work, restarts * best)
        if network == "dense":
            work = functools.partial(clustpy, images, device, max(2, epochs // 2))
            peer = measure("dense, clustpy's DCN, float32", device, work, float("inf"))
            work = functools.partial(our_dcn, images, device, epochs)
            measure("dense, diffclust's DCN, float32", device, work, peer)
    estimators = {method.name: method.estimator for method in METHODS}
    for name in wish.methods:
        measure(
            f"{name}, defaults, bf16",
            device,
            functools.partial(of_method, images, estimators[name], device, epochs),
            float("inf"),
        )
    print("ratio: how many times faster than the fastest plain loop above, for as many runs; of DCN, than clustpy's")


if __name__ == "__main__":
    main()
