"""Rows laid out by their neighbours: near one another where they are neighbours, away from all others.

UMAP with free coordinates (see `nn.neighbours`): each row has a place u of its own, and the places minimise the loss
that a network by neighbours learns from. In an embedding that was learnt by reconstruction classes are long and touch:
k-means cuts the long ones and joins those that touch. Laid out, they are clumps with room between them.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .cluster import ClusterLayer
from .kmeans import kmeans
from .neighbours import NeighbourGraph, neighbour_loss
from .ops import one_hot

STEPS = 300  # at most; few rows need no more steps than they are
RATE = 0.5  # the first step's, in units in which neighbours are about one apart; it falls to nothing
DRAWN, FAR = 3, 6  # neighbours and others that a row meets in a step
AMONG = 5  # rows that one which was not laid out is put among
BLOCK = 2**24  # distances held at a time

Find = Callable[[Tensor], tuple[Tensor, Tensor]]  # rows (n, d) to centres (k, d) and labels (n,)


def laid_out(z: Tensor, graph: NeighbourGraph | None = None) -> Tensor:
    """Places u (n, d) of the rows z (n, d), which begin at the rows in units of their deviation. `graph` is that of z,
    where it is known."""
    n = len(z)
    steps = min(STEPS, n)
    graph = graph or NeighbourGraph.of(z, metric="euclidean")
    with torch.enable_grad():
        places = ((z - z.mean(0)) / z.std().clamp_min(torch.finfo(z.dtype).tiny)).detach().requires_grad_()
        optimizer = torch.optim.Adam([places], RATE)
        everyone = torch.arange(n, device=z.device)
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = RATE * (1 - step / steps)
            near = places[graph.draw(everyone, torch.rand(n, DRAWN, device=z.device))]
            far = torch.stack([places.roll(shift, 0) for shift in torch.randint(1, n, (FAR,)).tolist()], 1)
            (places.grad,) = torch.autograd.grad(neighbour_loss(places, near, far), places)
            optimizer.step()
    return places.detach()


@torch.no_grad()
def place_laid_out(clusters: ClusterLayer, z: Tensor, find: Find | None = None) -> Tensor | None:
    """Centres at the means of the clusters that k-means, or `find`, finds where the rows z (n, d) are laid out; which
    these are (n,). Where they cut no fewer neighbours apart than those it finds in z itself, as with few rows in plain
    clusters, which a layout may tear, the centres are the latter's, and there is nothing to say of the rows."""
    if not bool(z.isfinite().all()):
        raise ValueError("The rows contain NaN or infinity: no centres can be placed on them.")
    k, graph = clusters.n_clusters, NeighbourGraph.of(z, metric="euclidean")

    def by_kmeans(rows: Tensor) -> tuple[Tensor, Tensor]:
        found = kmeans(rows, k, n_init=30)
        return found.centers, found.labels

    find = find or by_kmeans
    _, labels = find(laid_out(z, graph))
    with torch.random.fork_rng([z.device] if z.is_cuda else []):
        torch.manual_seed(0)
        centers, plain = find(z)
    if graph.cut(plain, k) <= graph.cut(labels, k):
        clusters.set_centers(centers)
        return None
    member = one_hot(labels, k).to(z)
    clusters.set_centers(member.T @ z / member.sum(0).clamp_min(1)[:, None])
    return labels


@torch.no_grad()
def laid_out_by(z: Tensor, some: Tensor) -> Tensor:
    """Places of all rows z (n, d) where those at the positions `some` are laid out: every other one is among the
    `AMONG` of these that are nearest to it, the more so the nearer."""
    known, places = z[some], laid_out(z[some])
    near = min(AMONG, len(known))
    result = []
    for part in z.split(BLOCK // len(known) + 1):
        distance, index = torch.cdist(part, known).topk(near, largest=False)
        weight = 1 / distance.clamp_min(1e-6)
        result.append((weight[..., None] * places[index]).sum(1) / weight.sum(1, keepdim=True))
    return torch.cat(result).index_copy(0, some, places)
