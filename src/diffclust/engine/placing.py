"""Where the centres of a model begin."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..nn.cluster import Start
from ..nn.knowledge import Knowledge, place_known, place_linked
from ..nn.layout import place_laid_out
from .data import Data

if TYPE_CHECKING:
    from .model import ClusterModel

LAID_OUT = 20_000  # rows at most that are laid out by their neighbours


def place_centers(model: "ClusterModel", data: Data, start: Start | Tensor) -> Tensor | None:
    """Put the centres where `start` says. Of rows that were laid out for it, the cluster (n,) that each begins in; -1
    for all others. What is known of some rows comes before a start by name, but for "kept"."""
    known = data.knowledge
    if isinstance(start, Tensor):
        model.clusters.set_centers(start.to(model.clusters.weight))
    elif known is not None and start != "kept":
        _place_by_knowledge(model, data, known)
    elif start == "neighbours" and model.network_learns and data.graph is None:
        return _place_by_neighbours(model, data)
    else:  # a network that has learnt by neighbours has laid them out already
        model.clusters.place(model.sample_embedding(data), "k-means" if start == "neighbours" else start)
    return None


@torch.no_grad()
def _place_by_neighbours(model: "ClusterModel", data: Data) -> Tensor | None:
    some = data.draw(LAID_OUT)
    with model.evaluating():
        found = place_laid_out(model.clusters, data.map(model.embed, some))
    return found if found is None else found.new_full((len(data),), -1).index_copy(0, some, found)


def _place_by_knowledge(model: "ClusterModel", data: Data, known: Knowledge) -> None:
    z = model.sample_embedding(data)
    with model.evaluating():
        told = [data.map(model.embed, part) for part in (known.rows, *known.pairs.T) if len(part)]
    if len(known.rows):
        place_known(model.clusters, z, told[0], known.codes)
    else:
        place_linked(model.clusters, z, (told[-2], told[-1]), known.together)
