"""Place the initial centres of a model."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..nn.cluster import Start
from ..nn.knowledge import Knowledge, clusters_of
from ..nn.layout import place_by_layout
from .data import Data

if TYPE_CHECKING:
    from .model import ClusterModel

MAX_LAYOUT_ROWS = 20_000  # rows at most that are laid out by their neighbours


def place_centers(model: "ClusterModel", data: Data, start: Start | Tensor) -> Tensor | None:
    """Place the centres as `start` and the knowledge about some rows say. If a layout was used: the initial cluster of
    each row (n,), and -1 for rows that were not part of it."""
    known = data.knowledge
    if isinstance(start, Tensor):
        model.clusters.set_centers(start.to(model.clusters.weight))
    elif start == "neighbours" and model.network_learns and data.graph is None:
        return _place_by_neighbours(model, data, known)
    elif known is not None and start != "kept":
        _place_by_knowledge(model, data, known)
    else:  # a network that was trained on the neighbour graph needs no layout
        model.clusters.place(model.sample_embedding(data), "k-means" if start == "neighbours" else start)
    return None


@torch.no_grad()
def _place_by_neighbours(model: "ClusterModel", data: Data, known: Knowledge | None) -> Tensor | None:
    some, find = data.draw(MAX_LAYOUT_ROWS), None
    if known is not None:
        some = torch.cat([some, known.rows, known.pairs.flatten()]).unique()
        rows, pairs = (torch.searchsorted(some, part) for part in (known.rows, known.pairs))

        def find(z: Tensor) -> tuple[Tensor, Tensor]:
            centers, labels = clusters_of(known, model.clusters.n_clusters, z, z[rows], z[pairs])
            return centers, labels.index_copy(0, rows, known.labels)

    with model.evaluating():
        found = place_by_layout(model.clusters, data.map(model.embed, some), find)
    return found if found is None else found.new_full((len(data),), -1).index_copy(0, some, found)


@torch.no_grad()
def _place_by_knowledge(model: "ClusterModel", data: Data, known: Knowledge) -> None:
    rows = model.sample_embedding(data)
    with model.evaluating():
        z_known = data.map(model.embed, torch.cat([known.rows, known.pairs.flatten()]))
    z, z_known = model.clusters.normalize(rows), model.clusters.normalize(z_known)
    m = len(known.rows)
    pairs = z_known[m:].view(-1, 2, z.shape[1])
    centers, _ = clusters_of(known, model.clusters.n_clusters, z, z_known[:m], pairs)
    model.clusters.set_centers(centers)
