"""Label-free checks of a fit. Each reason to doubt the result is added to the events of the run.

Four checks are made if the fit had enough epochs or ended by itself: whether the loss had stopped falling; whether the
other restarts find the same clusters; and, on a sample of rows in the units of the network, whether neighbouring rows
share a cluster more often than the cluster sizes alone would give, and about as often as with k-means on the same
values. What could not be checked is listed as well.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..engine.data import Data
from ..engine.model import Event
from ..engine.run import Run, last_change
from ..nn.kmeans import kmeans
from .stability import compared

MIN_EPOCHS = 20  # fits with fewer epochs, of all phases together, are not checked unless they ended by themselves
ENDED = {"settled", "stopped", "fallback"}  # events of a fit that did not need all its epochs
STILL_FALLING = 0.05  # relative fall of the loss between the last two tenths of the epochs: training ended too early
DISSOLVED = 0.5  # a cluster with less stability is not found again (Hennig)
MAX_ROWS, MAX_VALUES = 1000, 4_000_000  # largest sample of rows, and its largest number of values
N_NEIGHBOURS = 3  # nearest rows that count as neighbours
NEAR_CHANCE = 0.1  # share of neighbours together, beyond chance: with less, clusters say next to nothing
MIN_OF_KMEANS = 0.8  # share of what k-means keeps together: with less, the network has lost structure
KMEANS_INIT = 4  # n_init of that k-means
ROWS_PER_CLUSTER = 10  # sampled rows per cluster: with fewer, most neighbours are in other clusters anyway


class Checks(NamedTuple):
    """`diagnostics_["soundness"]` and `diagnostics_["unchecked"]`."""

    soundness: dict[str, Any]
    unchecked: list[str]  # what was not checked, and why


def check_result(best: Run, runs: Sequence[Run], data: Data, *, by_distance: bool) -> Checks:
    """Compute the figures, and add the resulting warnings to the events of the run.

    Args:
        best: the run that was kept.
        runs: all restarts.
        data: the training rows.
        by_distance: whether clusters of the method are neighbourhoods, so that a comparison with k-means makes sense.
    """
    found: dict[str, Any] = {"change": None, "stability": None, "together": None, "kmeans": None}
    kinds = {event.kind for event in best.events}
    if best.collapsed:
        return Checks(found, ["anything beyond cluster sizes, because the clusters collapsed"])
    if len(best.history) < MIN_EPOCHS and not kinds & ENDED:
        few = f"{len(best.history)} epochs are fewer than {MIN_EPOCHS}"
        return Checks(found, [f"convergence, stability and neighbouring rows, because {few}"])
    unchecked = []
    if not kinds & {"fallback", "settled", "collapse", "interrupted"}:
        found["change"] = last_change(best.history, best.terms)
        if found["change"] is None:
            unchecked.append("convergence, because there were too few epochs of clustering")
    others = [run.labels for run in runs if run.seed != best.seed]
    if others:
        found["stability"] = compared(best.labels, others, len(best.centers)).clusters.tolist()
    else:
        unchecked.append("stability, because there was one restart (see n_init)")
    beside = compare_with_kmeans(best.model, data, best.labels, len(best.centers), best.seed) if by_distance else None
    if beside is not None:
        found["together"], found["kmeans"] = beside.together
    elif not by_distance:
        unchecked.append("neighbouring rows, because clusters of this method are subspaces")
    elif len(best.centers) > 1:
        unchecked.append(f"neighbouring rows, because there are fewer than {ROWS_PER_CLUSTER} rows per cluster")
    best.events.extend(_doubts(found, best.sizes.tolist()))
    return Checks(found, unchecked)


def _doubts(found: dict[str, Any], sizes: list[int]) -> list[Event]:
    """The warnings that follow from the figures."""
    doubts = []
    change, together, plain = found["change"], found["together"], found["kmeans"]
    if change is not None and change < -STILL_FALLING:
        text = "Training ended while the loss was still falling, by {:.0%} in its last tenth: more epochs may help."
        doubts.append(Event("unfinished", text.format(-change)))
    lost = [j for j, stays in enumerate(found["stability"] or []) if sizes[j] and stays < DISSOLVED]
    if lost:
        named = ", ".join(map(str, lost[:10])) + (", ..." if len(lost) > 10 else "")
        text = "Unstable: {} of {} clusters are not found by the other restarts ({}; see stability_)."
        doubts.append(Event("unstable", text.format(len(lost), len(sizes), named)))
    if together is not None and together < NEAR_CHANCE:
        text = "No better than chance: neighbouring rows share a cluster hardly more often than by chance ({:.2f})."
        doubts.append(Event("chance", text.format(together)))
    elif together is not None and together < MIN_OF_KMEANS * plain:
        text = (
            "Worse than k-means, which keeps more neighbouring rows together on the same values ({:.2f}, here {:.2f})."
        )
        doubts.append(Event("worse", text.format(plain, together)))
    return doubts


class KMeansComparison(NamedTuple):
    """A sample of rows in the units of the network (n, d), with our labels and those of k-means."""

    rows: Tensor
    labels: Tensor
    plain: Tensor

    @property
    def together(self) -> tuple[float, float]:
        """The share of neighbouring rows in one cluster, for our labels and for k-means."""
        near = torch.cdist(self.rows, self.rows).fill_diagonal_(torch.inf).topk(N_NEIGHBOURS, largest=False).indices
        return share_together(near, self.labels), share_together(near, self.plain)


@torch.no_grad()
def compare_with_kmeans(model: Any, data: Data, labels: np.ndarray, k: int, seed: int) -> KMeansComparison | None:
    """The labels of a model with an autoencoder beside those of k-means with as many clusters; None if there are too
    few rows."""
    width = max(1, math.prod(data.rows.row_shape))
    index = data.spaced(min(MAX_ROWS, max(MAX_VALUES // width, ROWS_PER_CLUSTER * k)))
    if k < 2 or len(index) < ROWS_PER_CLUSTER * k:
        return None
    x = data.map(lambda x: model.autoencoder.normalize(x).flatten(1).float(), index)
    generator = torch.Generator(x.device).manual_seed(seed)
    plain = kmeans(x, k, n_init=KMEANS_INIT, generator=generator).labels
    return KMeansComparison(x, torch.from_numpy(labels).to(x.device)[index], plain)


def share_together(near: Tensor, labels: Tensor) -> float:
    """The share of neighbouring rows in one cluster, beyond what the cluster sizes alone would give: 1 is all of them,
    0 is chance."""
    chance = (labels.bincount() / len(labels)).square().sum().item()
    kept = (labels[near] == labels[:, None]).float().mean().item()
    return (kept - chance) / (1 - chance) if chance < 1 else 0.0
