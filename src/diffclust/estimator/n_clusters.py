"""n_clusters="auto": the number of clusters, found before the method begins."""

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
from ..nn.n_clusters import NEXT_TO_BEST, NOTHING_IN_ROWS, UNDECIDED, Choice, View, breadth, choose_number, clearer
from ..reading.inputs import UserInput
from . import networks
from .restarts import build_restarts
from .state import snapshot

if TYPE_CHECKING:
    from .base import PrototypeClusterer

E = TypeVar("E", bound="PrototypeClusterer")

MAX_ROWS, MAX_VALUES = 10_000, 2**26  # rows at most that the number is told from, and the values they have together
MIN_ROWS = 20  # rows at least: fewer say nothing
LEFT_OUT_OF = 6  # of views of the same things, each network leaves out one in so many
AUTO_AT_LEAST, AUTO_AT_MOST = 10, 50  # max_clusters="auto": at least, where there are as many rows, and at most


def with_n_clusters(estimator: E, given: UserInput, least: int = 1) -> tuple[E, Choice | None]:
    """The estimator as it builds models: with a number of clusters, `least` at least, and how it was found where it was
    not given."""
    if not estimator._n_clusters_is_auto:
        return estimator, None
    choice = current_processes().broadcast(lambda: _found_before(estimator) or _estimate(estimator, given))
    counted = snapshot(estimator)
    counted.n_clusters = max(choice.n_clusters, least)
    return counted, choice


def _found_before(estimator: "PrototypeClusterer") -> Choice | None:
    """What a fit that goes on from a checkpoint found when it began: other seeds might give another number."""
    kept = None if estimator.checkpoint is None else CheckpointFolder(estimator.checkpoint).read()
    found = kept.get("found") if isinstance(kept, dict) else None
    with restoring():
        return None if found is None else Choice(*found)


def most_clusters(estimator: "PrototypeClusterer", n: int) -> int:
    """How many are looked for, in n rows: by default their root, within limits."""
    most = (
        min(AUTO_AT_MOST, max(AUTO_AT_LEAST, round(math.sqrt(n))))
        if estimator.max_clusters == "auto"
        else estimator.max_clusters
    )
    return min(most, n)


def _estimate(estimator: "PrototypeClusterer", given: UserInput) -> Choice:
    """Two networks as the method has them before it begins, each trained on a half of the rows: see `nn.n_clusters`."""
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
            strict, broad = (1.0, 0.0) if images else (NEXT_TO_BEST, breadth(u))
            return clearer(
                choose_number((first, second), most, next_to_best=strict, breadth=broad),
                choose_number((View(u, halves[0]), View(u, halves[1])), most, NOTHING_IN_ROWS),
            )


def _views(
    estimator: "PrototypeClusterer", given: UserInput, x: Tensor, halves: Sequence[Tensor], seeds: Sequence[int]
) -> list[View]:
    """All of the rows x, as embedded by networks that were each trained on a half of them. Half of the views of a thing
    may be too far apart to follow it through: of images that are views each network learns from most, and those that
    only one has learnt from are asked."""
    device = choose_device(estimator.device)
    undivided = snapshot(estimator)
    undivided.n_clusters = 1
    neighbours = undivided._by_neighbours(given.rows)
    parts = halves
    if neighbours and x.ndim == 4 and networks.are_views(given.rows):
        order, left_out = torch.cat(tuple(halves)), len(x) // LEFT_OUT_OF
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
    """Epochs of each of the two networks on so many rows. Together they take no more steps than the pretraining of the
    fit; but where a batch is all rows, each has its usual epochs."""
    if estimator.pretrain_epochs not in ("auto", 0):
        return int(estimator.pretrain_epochs)
    sizes = len(given.rows), rows
    whole, half = (batches(n, estimator._batch_size(n, neighbours))[0] for n in sizes)
    of_the_fit = estimator._usual_epochs(0, sizes[0], whole, neighbours)
    usual = estimator._usual_epochs(0, rows, half, neighbours)
    return usual if half == 1 and neighbours else min(usual, math.ceil(of_the_fit * whole / (2 * half)))


def _without_clustering(estimator: E, seed: int, epochs: int, neighbours: bool) -> E:
    """The method with its pretraining alone: the network as it is before centres are placed."""
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
    settings["features"] = "neighbours" if neighbours else "reconstruction"  # half of the rows may look otherwise
    if "init" in settings:
        settings["init"] = "k-means"
    return type(estimator)(**settings)
