"""A layout of the neighbour graph: neighbours are close together, other rows far apart.

This is UMAP with free coordinates (see `nn.neighbours`): each row has its own position u, and the positions minimise
the loss that a network for `features="neighbours"` is trained on. In an embedding learnt by reconstruction, classes are
elongated and touch one another: k-means splits the long ones and merges those that touch. In the layout they are
compact and separated.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .cluster import ClusterLayer
from .kmeans import kmeans
from .neighbours import NeighbourGraph, neighbour_loss
from .ops import one_hot
from .optimizers import Adam

MAX_STEPS = 300  # largest number of steps; n rows get at most n
FIRST_LR = 0.5  # learning rate of the first step, in units of about the distance of neighbours; it falls to zero
NEAR_PER_ROW, FAR_PER_ROW = 3, 6  # neighbours and random other rows per row and step
PLACING_NEIGHBOURS = 5  # a row outside of the layout is placed at the weighted mean of this many of its rows
DISTANCES_AT_ONCE = 2**24  # distances held at a time

Find = Callable[[Tensor], tuple[Tensor, Tensor]]  # rows (n, d) to centres (k, d) and labels (n,)


def compute_layout(z: Tensor, graph: NeighbourGraph | None = None) -> Tensor:
    """Positions u (n, d) of the rows z (n, d), starting from the standardised rows. `graph` is the neighbour graph of
    z, if known."""
    n = len(z)
    steps = min(MAX_STEPS, n)
    graph = graph or NeighbourGraph.of(z, metric="euclidean")
    with torch.enable_grad():
        places = ((z - z.mean(0)) / z.std().clamp_min(torch.finfo(z.dtype).tiny)).detach().requires_grad_()
        optimizer = Adam([places], FIRST_LR)
        everyone = torch.arange(n, device=z.device)
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = FIRST_LR * (1 - step / steps)
            near = places[graph.draw(everyone, torch.rand(n, NEAR_PER_ROW, device=z.device))]
            far = torch.stack([places.roll(shift, 0) for shift in torch.randint(1, n, (FAR_PER_ROW,)).tolist()], 1)
            (places.grad,) = torch.autograd.grad(neighbour_loss(places, near, far), places)
            optimizer.step()
    return places.detach()


@torch.no_grad()
def place_by_layout(clusters: ClusterLayer, z: Tensor, find: Find | None = None) -> Tensor | None:
    """The means in z of the clusters that k-means, or `find`, finds in the layout of the rows z (n, d), and the cluster
    of each row (n,). If these clusters do not separate fewer neighbours than k-means on z itself (few rows in simple
    clusters, which a layout may tear apart), the centres of the latter are returned, without labels."""
    if not bool(z.isfinite().all()):
        raise ValueError("The rows contain NaN or infinity: no centres can be placed on them.")
    k, graph = clusters.n_clusters, NeighbourGraph.of(z, metric="euclidean")

    def by_kmeans(rows: Tensor) -> tuple[Tensor, Tensor]:
        found = kmeans(rows, k, n_init=30)
        return found.centers, found.labels

    find = find or by_kmeans
    _, labels = find(compute_layout(z, graph))
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
def extend_layout(z: Tensor, some: Tensor) -> Tensor:
    """Positions of all rows z (n, d) from a layout of the rows at the positions `some`: every other row is placed at
    the weighted mean of its `PLACING_NEIGHBOURS` nearest of these."""
    known, places = z[some], compute_layout(z[some])
    near = min(PLACING_NEIGHBOURS, len(known))
    result = []
    for part in z.split(DISTANCES_AT_ONCE // len(known) + 1):
        distance, index = torch.cdist(part, known).topk(near, largest=False)
        weight = 1 / distance.clamp_min(1e-6)
        result.append((weight[..., None] * places[index]).sum(1) / weight.sum(1, keepdim=True))
    return torch.cat(result).index_copy(0, some, places)
