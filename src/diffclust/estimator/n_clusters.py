"""n_clusters="auto": estimate the number of clusters before the method is trained."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from ..engine.checkpoint import CheckpointFolder, restoring
from ..engine.data import Data, batches
from ..engine.distributed import alone, current_processes
from ..engine.loop import train
from ..engine.restart import Restart
from ..engine.rows import TensorRows
from ..engine.runtime import choose_device, restart_seeds, seeded
from ..nn.layout import extend_layout
from ..nn.n_clusters import MIN_SILHOUETTE_OF_ROWS, NEXT_TO_BEST, UNDECIDED, Choice, View, choose_number, clearer
from ..reading.inputs import UserInput
from . import networks
from .restarts import build_restarts
from .state import snapshot

if TYPE_CHECKING:
    from .base import PrototypeClusterer

E = TypeVar("E", bound="PrototypeClusterer")

MAX_ROWS, MAX_VALUES = 10_000, 2**26  # largest sample of rows, and its largest number of values
MIN_ROWS = 20  # with fewer rows nothing can be estimated
VIEW_GROUPS = 6  # of images that are views of the same objects, each network leaves out one in this many
AUTO_AT_LEAST, AUTO_AT_MOST = 10, 50  # limits of max_clusters="auto"


def with_n_clusters(estimator: E, given: UserInput, least: int = 1) -> tuple[E, Choice | None]:
    """The estimator with a number for n_clusters (at least `least`), and how it was estimated, or None if it was
    given."""
    if not estimator._n_clusters_is_auto:
        return estimator, None
    choice = current_processes().broadcast(lambda: _found_before(estimator) or _estimate(estimator, given))
    settled = snapshot(estimator)
    settled.n_clusters = max(choice.n_clusters, least)
    return settled, choice


def _found_before(estimator: "PrototypeClusterer") -> Choice | None:
    """The number that a resumed fit found when it began: computed again, it might differ with other seeds."""
    kept = None if estimator.checkpoint is None else CheckpointFolder(estimator.checkpoint).read()
    found = kept.get("found") if isinstance(kept, dict) else None
    with restoring():
        return None if found is None else Choice(*found)


def most_clusters(estimator: "PrototypeClusterer", n: int) -> int:
    """The largest number considered for n rows: by default their square root, within limits."""
    most = (
        min(AUTO_AT_MOST, max(AUTO_AT_LEAST, round(math.sqrt(n))))
        if estimator.max_clusters == "auto"
        else estimator.max_clusters
    )
    return min(most, n)


def _estimate(estimator: "PrototypeClusterer", given: UserInput) -> Choice:
    """Estimate the number from two pretrained networks of the method, each trained on half of the rows: see
    `nn.n_clusters`."""
    device = choose_device(estimator.device)
    data = Data(given.rows, device)
    n = len(data)
    if n < MIN_ROWS:
        return UNDECIDED
    seeds = restart_seeds(estimator.random_state, 2)
    with alone():
        with seeded(seeds[0], device):
            x = data.map(
                lambda rows: rows, data.draw(max(MIN_ROWS, min(MAX_ROWS, MAX_VALUES // math.prod(data.row_shape))))
            )
            halves = torch.randperm(len(x), device=device).tensor_split(2)
        first, second = _views(estimator, given, x, halves, seeds)
        plain = Data(TensorRows(x.flatten(1)), device)
        plain.scale = given.scale
        with seeded(seeds[1], device):
            u = plain.map(networks.scaled_rows(plain).to(device).scaled)
            most = most_clusters(estimator, n)
            images = len(data.row_shape) == 3
            strict, rows = (1.0, None) if images else (NEXT_TO_BEST, u)
            return clearer(
                choose_number((first, second), most, next_to_best=strict, rows=rows),
                choose_number((View(u, halves[0]), View(u, halves[1])), most, MIN_SILHOUETTE_OF_ROWS),
            )


def _views(
    estimator: "PrototypeClusterer", given: UserInput, x: Tensor, halves: Sequence[Tensor], seeds: Sequence[int]
) -> list[View]:
    """Embed all rows x by two networks, each trained on half of them. If images are views of the same objects, half of
    the views may be too far apart to be connected: then each network is trained on most of the images, and the number
    is measured on those that only one of them was trained on."""
    device = choose_device(estimator.device)
    undivided = snapshot(estimator)
    undivided.n_clusters = 1
    neighbours = undivided._by_neighbours(given.rows)
    parts = halves
    if neighbours and x.ndim == 4 and networks.are_views(given.rows):
        order, left_out = torch.cat(tuple(halves)), len(x) // VIEW_GROUPS
        parts = (order[left_out:], order[:-left_out])
    epochs = _half_the_work(estimator, given, len(parts[0]), neighbours)
    restarts: list[Restart] = []
    for seed, part in zip(seeds, parts, strict=True):
        half_fit = _without_clustering(estimator, seed, epochs, neighbours)
        rows = replace(given, rows=TensorRows(x[part]))
        # by the cosine alone, with which the thresholds of `nn.n_clusters` were chosen
        (restart,) = build_restarts(half_fit, rows, quiet=len(restarts) > 0, directions_alone=True)
        restarts.append(restart)
    train(restarts)
    views = []
    for restart, part in zip(restarts, parts, strict=True):
        if restart.result is None:
            raise KeyboardInterrupt
        model = restart.result.model
        z = Data(TensorRows(x), device).map(model.embed)
        if model.network_learns and restart.data.graph is None:
            with seeded(restart.seed, device):
                z = extend_layout(z, part)
        views.append(View(z, part))
    return views


def _half_the_work(estimator: "PrototypeClusterer", given: UserInput, rows: int, neighbours: bool) -> int:
    """The epochs of each network on this many rows. Together they take no more steps than the pretraining of the fit;
    but if a batch is all rows, each has its usual epochs."""
    if estimator.pretrain_epochs not in ("auto", 0):
        return int(estimator.pretrain_epochs)
    sizes = len(given.rows), rows
    whole, half = (batches(n, estimator._batch_size(n, neighbours))[0] for n in sizes)
    of_the_fit = estimator._usual_epochs(0, sizes[0], whole, neighbours)
    usual = estimator._usual_epochs(0, rows, half, neighbours)
    return usual if half == 1 and neighbours else min(usual, math.ceil(of_the_fit * whole / (2 * half)))


def _without_clustering(estimator: E, seed: int, epochs: int, neighbours: bool) -> E:
    """The estimator with pretraining only: its network as it is before centres are placed."""
    settings = estimator.get_params(deep=False)
    settings |= {
        "n_clusters": 1,
        "n_init": 1,
        "overcluster": 1,
        "epochs": 0,
        "random_state": seed,
        "callbacks": (),
        "checkpoint": None,
    }
    settings["pretrain_epochs"] = epochs
    settings["features"] = "neighbours" if neighbours else "reconstruction"  # "auto" may differ on half of the rows
    if "init" in settings:
        settings["init"] = "k-means"
    return type(estimator)(**settings)
