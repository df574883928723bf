"""ZAC: agglomerative clustering by the cycles of a graph.

Zhao, Tang: "Cyclizing Clusters via Zeta Function of a Graph", NeurIPS 2008. On the directed graph of nearest rows, with
steps P = D^-1 W, `W_ij = exp(-|x_i - x_j|² / σ²)`, the zeta function of a cluster C gathers all its cycles::

    log ζ_C(z) = -log det(I - z P_C),     log ζ_C - log ζ_{C less i} = log [(I - z P_C)^-1]_ii =: l_i(C)

The popularity of a cluster is the mean of l_i(C) over its rows. The first clusters are the rows together with their
nearest rows; then the two clusters merge that gain most popularity::

    mean_{i in a} l_i(a ∪ b) - l_i(a)   +   mean_{i in b} l_i(a ∪ b) - l_i(b)

With z = 0.01 cycles of five and more steps have a weight below 1e-10, so [(I - zP)^-1]_ii = 1 + z²(P²)_ii + z³(P³)_ii +
z⁴(P⁴)_ii. Only clusters with an edge between them can gain.
"""

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.special import softmax

from ..engine.runtime import seeded
from ..nn.neighbours import nearest_neighbours
from .clusterer import ClassicalClusterer, Labels, Rows, hyperparameters, knob

Z = 0.01  # z, as in the authors' code
# σ²: two rows whose squared distance is the mean of those to the SCALE_NEIGHBOURS nearest have the weight SCALE_WEIGHT
SCALE_NEIGHBOURS, SCALE_WEIGHT = 3, 0.95
DENSE_UP_TO = 300  # rows of a cluster up to which P_C is a dense matrix


@hyperparameters
class ZAC(ClassicalClusterer):
    """Agglomerative clustering by the zeta function of a graph. It draws no random numbers.

    Args:
        n_neighbors: number of neighbours in the graph.
    """

    n_neighbors: int = knob(20, low=1)

    def label(self, X: Rows, seed: int) -> Labels:
        graph = Walk.of(X, self.n_neighbors, seed)
        parts = graph.nearest_components()
        if parts.max() + 1 < self.n_clusters:
            parts = np.arange(len(X))
        merging = Merging(graph, [np.flatnonzero(parts == c) for c in range(parts.max() + 1)])
        merging.until(self.n_clusters)
        join_apart(X, merging.members, self.n_clusters)
        labels = np.empty(len(X), dtype=np.int64)
        for label, members in enumerate(sorted(merging.members.values(), key=lambda m: int(m.min()))):
            labels[members] = label
        return labels


@dataclass
class Walk:
    """The random walk P: the nearest rows of each row (n, m), nearest first, and the probabilities of steps to them."""

    places: NDArray[np.int64]
    values: NDArray[np.float64]

    def __post_init__(self) -> None:
        self.position = np.full(len(self.places), -1)  # scratch space of `within`: positions of rows in a cluster

    @classmethod
    def of(cls, X: Rows, n_neighbors: int, seed: int) -> "Walk":
        x = torch.from_numpy(X)
        with seeded(seed, x.device):  # with many rows the search uses k-means, which draws random numbers
            near = nearest_neighbours(x, min(n_neighbors, len(X) - 1))
        squared = near.distance.square().numpy()
        sigma = squared[:, :SCALE_NEIGHBOURS].mean() / -np.log(SCALE_WEIGHT) or 1.0
        return cls(near.places.numpy(), softmax(-squared / sigma, axis=1))

    def nearest_components(self) -> NDArray[np.int64]:
        """The component of each row in the graph that links each row with its nearest row."""
        n = len(self.places)
        links = sp.csr_array((np.ones(n), self.places[:, 0].copy(), np.arange(n + 1)), shape=(n, n))
        return connected_components(links, directed=False)[1].astype(np.int64)

    def within(self, rows: NDArray[np.int64]) -> Any:
        """P_C (m, m) of the cluster of these rows, sparse if the cluster is large."""
        m = len(rows)
        self.position[rows] = np.arange(m)
        columns = self.position[self.places[rows]]
        self.position[rows] = -1
        here, there = np.nonzero(columns >= 0)
        if m <= DENSE_UP_TO:
            dense = np.zeros((m, m))
            dense[here, columns[here, there]] = self.values[rows][here, there]
            return dense
        return sp.csr_array((self.values[rows][here, there], (here, columns[here, there])), shape=(m, m))

    def popularity(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """l_i of all rows of a cluster."""
        p = self.within(rows)
        two = p @ p
        cycles = Z**2 * p * p.T + Z**3 * two * p.T + Z**4 * two * two.T
        return np.log1p(np.asarray(cycles.sum(1)).ravel())


@dataclass
class Merging:
    """Clusters by number, the popularity of each, which of them share an edge, and a heap of the gains of pairs."""

    steps: Walk
    first: list[NDArray[np.int64]]

    def __post_init__(self) -> None:
        self.members = dict(enumerate(self.first))
        self.alone = {c: self.steps.popularity(rows).mean() for c, rows in self.members.items()}
        owner = np.empty(len(self.steps.places), dtype=np.int64)
        for c, rows in self.members.items():
            owner[rows] = c
        self.beside: dict[int, set[int]] = {c: set() for c in self.members}
        ends = np.stack([np.broadcast_to(owner[:, None], self.steps.places.shape), owner[self.steps.places]], axis=-1)
        for a, b in np.unique(ends.reshape(-1, 2), axis=0).tolist():
            if a != b:
                self.beside[a].add(b)
                self.beside[b].add(a)
        self.gains = [(-self.gain(a, b), a, b) for a in self.members for b in self.beside[a] if a < b]
        heapq.heapify(self.gains)

    def gain(self, a: int, b: int) -> float:
        """What a and b gain if they merge."""
        both = self.steps.popularity(np.concatenate([self.members[a], self.members[b]]))
        size = len(self.members[a])
        return float(both[:size].mean() - self.alone[a] + both[size:].mean() - self.alone[b])

    def until(self, k: int) -> None:
        """Merge until k clusters are left, or none that share an edge."""
        number = len(self.first)
        while len(self.members) > k and self.gains:
            _, a, b = heapq.heappop(self.gains)
            if a not in self.members or b not in self.members:
                continue
            rows = np.concatenate([self.members.pop(a), self.members.pop(b)])
            others = (self.beside.pop(a) | self.beside.pop(b)) - {a, b}
            self.members[number], self.beside[number] = rows, others
            self.alone[number] = self.steps.popularity(rows).mean()
            for other in others:
                self.beside[other] -= {a, b}
                self.beside[other].add(number)
                heapq.heappush(self.gains, (-self.gain(other, number), other, number))
            number += 1


def join_apart(X: Rows, members: dict[int, NDArray[np.int64]], k: int) -> None:
    """While there are more than k clusters, the smallest joins the one with the nearest mean."""
    means = {c: X[rows].mean(0) for c, rows in members.items()}
    while len(members) > k:
        small = min(members, key=lambda c: len(members[c]))
        rows, mean = members.pop(small), means.pop(small)
        near = min(members, key=lambda c: float(((means[c] - mean) ** 2).sum()))
        members[near] = np.concatenate([members[near], rows])
        means[near] = X[members[near]].mean(0)
