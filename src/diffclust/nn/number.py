"""How many clusters there are: as many as two encoders see that have no row in common.

One encoder on all rows cannot tell. It spreads neighbours into clumps, and its clumps look like clusters. Two encoders,
each trained on its own half of the rows, have clumps in different places: what both see is in the data. So rows are
embedded twice, z and z'. For each k, k-means on the one half gives clusters of all rows, and their silhouette is taken
in the *other* embedding::

    s(k) = mean_i (b_i - a_i) / max(a_i, b_i),   a_i the mean distance to the own cluster, b_i to the nearest other

and the number is the k with the largest s(k) m(k) (1 - Σ_j p_j²). m(k) is the share of rows that are in the same
cluster for both encoders, once their clusters are matched. p_j is the share of rows in cluster j, and the last factor
the chance that two rows are told apart: a silhouette alone prefers two clusters.

The rows themselves, without an encoder, are looked at in the same way, and where their s(k) is larger they decide: rows
of one or two columns need none.

There is one cluster where even that k has s(k) < `NOTHING`, or where no cluster has a valley around it: along the line
from its centre to that of any other, again as the other encoder sees it, the middle is no emptier than the ends. The
first is so for a Gaussian of some dimensions, the second for a square or a cube, which halves can agree to cut in four.
"""

from typing import NamedTuple

import torch
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from .kmeans import lloyd
from .ops import squared_distances

NOTHING = 0.15  # silhouettes below say that nothing was found
NOTHING_IN_ROWS = 0.25  # of the rows themselves, which an encoder has not pulled apart: uniform noise has up to 0.2
VALLEY = 0.5  # a cluster is apart where the density between it and any other is less than this share of theirs
WINDOW = 0.15  # half the width in which that density is taken, as a share of the way between two centres
MEASURED = 1_500  # rows that silhouettes are taken of, and that the tree is built of: the cost grows with their square


class Choice(NamedTuple):
    """The number of clusters, and what spoke for it."""

    n_clusters: int
    candidates: list[int]
    silhouettes: list[float]  # s(k) of each candidate
    agreements: list[float]  # m(k)
    scores: list[float]  # s(k) m(k) (1 - Σ p²)
    valley: float  # of the cluster that is most apart, at the best candidate


UNDECIDED = Choice(1, [], [], [], [], 1.0)


class View(NamedTuple):
    """Rows as one encoder sees them."""

    z: Tensor  # (n, d) all rows
    trained_on: Tensor  # the positions of those it has learnt from


def choose_number(views: tuple[View, View], most: int, nothing: float = NOTHING) -> Choice:
    """The number of clusters of the rows, from 1 to `most`, as these two see them."""
    n = len(views[0].z)
    most = min(most, min(len(view.trained_on) for view in views))
    candidates = list(range(2, most + 1))
    if not candidates:
        return UNDECIDED
    measured = torch.randperm(n, device=views[0].z.device)[:MEASURED]
    labels = [_labels(view, candidates) for view in views]
    silhouettes, agreements, scores = [], [], []
    for i, k in enumerate(candidates):
        seen = [silhouette(other.z[measured], each[i][measured], k).mean() for each, other in _crossed(labels, views)]
        told_apart = [1 - (torch.bincount(each[i]) / n).square().sum() for each in labels]
        silhouettes.append(torch.stack(seen).mean().item())
        agreements.append(agreement(labels[0][i], labels[1][i], k))
        scores.append(silhouettes[-1] * agreements[-1] * torch.stack(told_apart).mean().item())
    best = int(torch.tensor(scores).argmax())
    k = candidates[best]
    valleys = [
        valley(other.z, each[best], k).fill_diagonal_(0).amax(1).amin() for each, other in _crossed(labels, views)
    ]
    depth = torch.stack(valleys).mean().item()
    found = k if silhouettes[best] >= nothing and depth < VALLEY else 1
    return Choice(found, candidates, silhouettes, agreements, scores, depth)


def clearer(*choices: Choice) -> Choice:
    """The one whose best candidate has the largest silhouette."""
    return max(choices, key=lambda choice: max(zip(choice.scores, choice.silhouettes, strict=True), default=(0, -1))[1])


def _crossed(labels: list[list[Tensor]], views: tuple[View, View]) -> list[tuple[list[Tensor], View]]:
    """The clusters that one encoder sees, and the other encoder."""
    return [(labels[0], views[1]), (labels[1], views[0])]


def _labels(view: View, candidates: list[int]) -> list[Tensor]:
    """Of all rows, for each number of clusters: by k-means on the rows that the encoder knows, begun where Ward's tree
    of some of them is cut. Starts at random would make clusters differ that need not."""
    known = view.z[view.trained_on]
    some = known[torch.randperm(len(known), device=known.device)[:MEASURED]]
    cuts = torch.from_numpy(cut_tree(linkage(some.double().cpu().numpy(), "ward"), candidates)).to(known.device)
    labels = []
    for i, k in enumerate(candidates):
        member = torch.nn.functional.one_hot(cuts[:, i].long(), k).to(some.dtype)
        centers = lloyd(known, member.T @ some / member.sum(0)[:, None], max_iter=20).centers
        labels.append(squared_distances(view.z, centers).argmin(1))
    return labels


def agreement(a: Tensor, b: Tensor, k: int) -> float:
    """The share of rows in the same of k clusters by labels a and b (n,), once clusters are matched one to one."""
    table = torch.bincount(k * a + b, minlength=k * k).view(k, k).cpu().numpy()
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / len(a))


def silhouette(z: Tensor, labels: Tensor, k: int) -> Tensor:
    """Of each row (n,), from distances of all pairs; 0 for a row that is alone in its cluster."""
    member = torch.nn.functional.one_hot(labels, k).to(z.dtype)
    sizes = member.sum(0)
    sums = torch.cdist(z, z) @ member  # (n, k)
    own = sums.gather(1, labels[:, None])[:, 0] / (sizes[labels] - 1).clamp_min(1)
    others = (sums / sizes).masked_fill((member > 0) | (sizes == 0), torch.inf)
    nearest = others.amin(1)
    values = (nearest - own) / torch.maximum(nearest, own).clamp_min(torch.finfo(z.dtype).tiny)
    return torch.where((sizes[labels] > 1) & nearest.isfinite(), values, 0.0)


def valley(z: Tensor, labels: Tensor, k: int) -> Tensor:
    """Of each two clusters (k, k): how many rows lie half way between their means, along the line through both, as a
    share of those that lie at the mean of the emptier one. Below one there is a valley between them."""
    member = torch.nn.functional.one_hot(labels, k).to(z.dtype)
    means = member.T @ z / member.sum(0).clamp_min(1)[:, None]
    depth = z.new_zeros(k, k)
    rows = [z[labels == j] for j in range(k)]
    for i in range(k):
        for j in range(i):
            line = means[j] - means[i]
            place = (torch.cat([rows[i], rows[j]]) - means[i]) @ line / line.square().sum().clamp_min(1e-30)
            start, middle, end = (((place - at).abs() < WINDOW).sum() for at in (0.0, 0.5, 1.0))
            depth[i, j] = depth[j, i] = middle / torch.minimum(start, end).clamp_min(1)
    return depth
