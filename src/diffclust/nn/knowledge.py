"""A loss for knowledge about some rows: known clusters, must-links and cannot-links.

With p_i the probabilities of row i, `softmax_j(-|z_i - Ω_j|² / T)`, the loss is the mean over all known facts of::

    -log p_ic                 row i is in cluster c
    -log Σ_j p_ij p_lj        rows i and l are in the same cluster
    -log (1 - Σ_j p_ij p_lj)  rows i and l are in different clusters

The last two are the likelihood of Hsu et al., "Multi-class classification without multi-class labels" (ICLR 2019). T is
that of `predict_proba`, estimated from the batch. Facts that hold with certainty have no gradient.
"""

import hashlib
from typing import NamedTuple

import torch
from torch import Tensor

from .cluster import ClusterLayer
from .kmeans import draw_proportional, kmeans, lloyd
from .ops import one_hot, squared_distances

MIN_TEMPERATURE = 1e-3  # smallest T, as a share of the mean distance
PIECES = 5  # k-means finds this many pieces per cluster, which are then merged with the help of the links


class Knowledge(NamedTuple):
    """What is known about some rows of a data set, by their positions."""

    rows: Tensor  # (m,) positions of rows whose cluster is known
    labels: Tensor  # (m,) their clusters
    pairs: Tensor  # (p, 2) positions of linked rows
    same_cluster: Tensor  # (p,) True: must-link, False: cannot-link

    def to(self, device: torch.device) -> "Knowledge":
        return Knowledge(*(part.to(device) for part in self))

    def digest(self) -> str:
        """A hash of these tensors."""
        parts = (repr(part.tolist()).encode() for part in self)
        return hashlib.sha256(b"/".join(parts)).hexdigest()

    def share_satisfied(self, labels: Tensor) -> float:
        """The share of these facts that the labels (n,) satisfy."""
        alike = labels[self.pairs[:, 0]] == labels[self.pairs[:, 1]]
        holds = torch.cat([labels[self.rows] == self.labels, alike == self.same_cluster])
        return holds.double().mean().item()


def knowledge_loss(clusters: ClusterLayer, z: Tensor, labels: Tensor, same_cluster: Tensor) -> Tensor:
    """The loss of embedded rows z (m + 2 p, d): m rows with known `labels`, then the first rows of p pairs, then the
    second."""
    logits = clusters.logits(z)
    temperature: float | Tensor | None = clusters.temperature
    if temperature is None:
        distances = clusters.read_distances(z, logits).detach()
        width = 2 / (clusters.embedding_dim - clusters.sphere or 1) * distances.amin(1).mean()
        temperature = torch.maximum(width, MIN_TEMPERATURE * distances.abs().mean())
    log_p = torch.log_softmax(logits / (clusters.alpha * temperature), dim=1)
    m, p = len(labels), len(same_cluster)
    of_rows = -log_p[:m].gather(1, labels[:, None])[:, 0]
    alike = torch.logsumexp(log_p[m : m + p] + log_p[m + p :], dim=1).clamp_max(-1e-6)
    of_pairs = -torch.where(same_cluster, alike, torch.log(-torch.expm1(alike)))
    return torch.cat([of_rows, of_pairs]).mean()


def clusters_of(known: Knowledge, n_clusters: int, z: Tensor, rows: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
    """Centres (k, d) and labels (n,) of the rows z (n, d): from known clusters if there are any, otherwise from links.
    `rows` (m, d) and `pairs` (p, 2, d) are the embeddings of the rows in `known`."""
    if len(known.rows):
        return clusters_of_known(z, n_clusters, rows, known.labels)
    return clusters_of_links(z, n_clusters, (pairs[:, 0], pairs[:, 1]), known.same_cluster)


@torch.no_grad()
def clusters_of_known(z: Tensor, n_clusters: int, known: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Centres (k, d) and labels (n,) of the rows z (n, d); the rows `known` (m, d) are in the clusters `labels`, 0 to
    c.

    k-means (Lloyd) starts from the means of these rows, and for other clusters from rows drawn as in k-means++ (Basu et
    al.: "Semi-supervised clustering by seeding", ICML 2002). Cluster j keeps its number.
    """
    member = one_hot(labels, int(labels.max()) + 1).to(z.dtype)
    centers = member.T @ known / member.sum(0)[:, None]
    nearest = squared_distances(z, centers).amin(1)
    for _ in range(n_clusters - len(centers)):
        new = z[draw_proportional(nearest, 1, None)]
        nearest = torch.minimum(nearest, squared_distances(z, new)[:, 0])
        centers = torch.cat([centers, new])
    found = lloyd(z, centers)
    return found.centers, found.labels


@torch.no_grad()
def clusters_of_links(
    z: Tensor, n_clusters: int, pairs: tuple[Tensor, Tensor], same_cluster: Tensor
) -> tuple[Tensor, Tensor]:
    """Centres (k, d) and labels (n,) of the rows z (n, d), with links between the rows of `pairs`, (p, d) twice.

    k-means finds `PIECES` pieces per cluster, and the two that are cheapest to merge are merged until `n_clusters` are
    left. The cost is that of Ward's rule, times (1 + a) / (1 + t): t and a are the numbers of must-links and
    cannot-links between the two, relative to the number expected by chance for pieces of their sizes. A loss alone
    would bring linked rows to one centre, and leave another centre without rows.
    """
    found = kmeans(z, min(len(z), PIECES * n_clusters), n_init=10)
    ends = [squared_distances(part, found.centers).argmin(1) for part in pairs]
    links = found.centers.new_zeros(2, len(found.centers), len(found.centers)).double()
    ones = torch.ones(len(same_cluster), dtype=torch.double, device=z.device)
    links.index_put_((same_cluster.long(), ends[0], ends[1]), ones, accumulate=True)
    apart, linked = links + links.transpose(1, 2)
    size = torch.bincount(found.labels, minlength=len(found.centers)).double().clamp_min(1)
    center, alive = found.centers.double(), torch.ones(len(size), dtype=torch.bool, device=z.device)
    piece_of = torch.arange(len(size), device=z.device)  # the piece that each original piece was merged into
    for _ in range(len(size) - n_clusters):
        weight = size[:, None] * size / (size[:, None] + size)
        chance = len(same_cluster) * size[:, None] * size / (len(z) ** 2 / 2)
        cost = weight * squared_distances(center, center) * (chance + apart) / (chance + linked)
        cost = cost.masked_fill(~(alive[:, None] & alive), torch.inf).fill_diagonal_(torch.inf)
        i, j = divmod(int(cost.argmin()), len(size))
        center[i] = (size[i] * center[i] + size[j] * center[j]) / (size[i] + size[j])
        size[i] += size[j]
        for table in (apart, linked):
            table[i] += table[j]
            table[:, i] += table[:, j]
        alive[j] = False
        piece_of[piece_of == j] = i
    number = alive.cumsum(0) - 1
    return center[alive].to(z.dtype), number[piece_of[found.labels]]
