"""What speaks against a result, found without labels, and noted where all else is noted: in the events of its run.

Four things are asked of a fit that had time to train: whether its loss had come to rest; whether the other restarts
find the same clusters; and, of some rows in the network's units, whether near ones share a cluster more often than the
sizes alone would give, and about as often as k-means on the same values would have it.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..engine.data import Data
from ..engine.model import Event
from ..engine.run import Run, last_change
from ..nn.kmeans import kmeans
from .stability import compared

ENOUGH = 20  # epochs of all phases: with fewer, nothing is asked
FALLING = 0.05  # of the loss, from the last tenth of the epochs but one to the last: training was cut off
DISSOLVED = 0.5  # stability below which a cluster is not found again (Hennig)
SAMPLE, VALUES = 1000, 4_000_000  # rows that are looked at, at most, and values of them
NEAREST = 3  # rows that count as near
CHANCE = 0.1  # of the way from chance to all near rows together: clusters say next to nothing
LEVEL = 0.8  # of what k-means keeps together: with less, the network has lost what was there
STARTS = 4  # of k-means
A_CLUSTER = 10  # rows of the sample for each cluster: with fewer, near rows are of other clusters anyway


def examine(best: Run, runs: Sequence[Run], data: Data, *, by_distance: bool) -> dict[str, Any]:
    """The figures, for `diagnostics_["soundness"]`; what they say against the run is noted in its events.

    Args:
        best: the run that was kept.
        runs: the restarts.
        data: the rows of the fit.
        by_distance: whether the method is for clusters of near rows, so that k-means may stand beside it.
    """
    found: dict[str, Any] = {"change": None, "stability": None, "together": None, "kmeans": None}
    if len(best.history) < ENOUGH or best.collapsed:
        return found
    if not {event.kind for event in best.events} & {"fallback", "settled", "collapse", "interrupted"}:
        found["change"] = last_change(best.history, best.model.figures())
    others = [run.labels for run in runs if run.seed != best.seed]
    if others:
        found["stability"] = compared(best.labels, others, len(best.centers)).clusters.tolist()
    if by_distance:
        found["together"], found["kmeans"] = beside_kmeans(best, data)
    best.events.extend(_doubts(found, best.sizes.tolist()))
    return found


def _doubts(found: dict[str, Any], sizes: list[int]) -> list[Event]:
    """What the figures say, in words."""
    doubts = []
    change, together, plain = found["change"], found["together"], found["kmeans"]
    if change is not None and change < -FALLING:
        text = "Training ended while the loss was still falling, by {:.0%} in its last tenth: more epochs may help."
        doubts.append(Event("unfinished", text.format(-change)))
    lost = [j for j, stays in enumerate(found["stability"] or []) if sizes[j] and stays < DISSOLVED]
    if lost:
        named = ", ".join(map(str, lost[:10])) + (", ..." if len(lost) > 10 else "")
        text = "Unstable: {} of {} clusters are not found again by the other restarts ({}; see stability_)."
        doubts.append(Event("unstable", text.format(len(lost), len(sizes), named)))
    if together is not None and together < CHANCE:
        text = "No better than chance: near rows share a cluster little more often than the sizes alone give ({:.2f})."
        doubts.append(Event("chance", text.format(together)))
    elif together is not None and together < LEVEL * plain:
        text = "Worse than k-means: on the same values it keeps more near rows together ({:.2f}, this {:.2f})."
        doubts.append(Event("worse", text.format(plain, together)))
    return doubts


@torch.no_grad()
def beside_kmeans(run: Run, data: Data) -> tuple[float, float] | tuple[None, None]:
    """How far near rows share a cluster, in the run and by k-means; None where the rows are too few to say."""
    k, width = len(run.centers), max(1, math.prod(data.rows.row_shape))
    index = data.spaced(min(SAMPLE, max(VALUES // width, A_CLUSTER * k)))
    if k < 2 or len(index) < A_CLUSTER * k:
        return None, None
    x = data.map(lambda x: run.model.autoencoder.normalize(x).flatten(1).float(), index)
    near = torch.cdist(x, x).fill_diagonal_(torch.inf).topk(NEAREST, largest=False).indices
    generator = torch.Generator(x.device).manual_seed(run.seed)
    plain = kmeans(x, k, n_init=STARTS, generator=generator).labels
    labels = torch.from_numpy(run.labels).to(x.device)[index]
    return share_together(near, labels), share_together(near, plain)


def share_together(near: Tensor, labels: Tensor) -> float:
    """The share of near rows in one cluster, beyond what the sizes alone would give: 1 is all of them, 0 is chance."""
    chance = (labels.bincount() / len(labels)).square().sum().item()
    kept = (labels[near] == labels[:, None]).float().mean().item()
    return (kept - chance) / (1 - chance) if chance < 1 else 0.0
