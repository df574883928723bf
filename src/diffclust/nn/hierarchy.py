"""Clusters as a tree: which are joined first, and what joining them costs (Ward, 1963).

Joining clusters i and j, with n_i and n_j rows around the centres c_i and c_j, raises the sum of squared distances by

    Δ_ij = n_i n_j / (n_i + n_j) |c_i - c_j|²

so that centres and sizes are all that is needed; the new centre is the mean of both, weighted by size.
"""

import numpy as np
from numpy.typing import NDArray


def ward_tree(centers: NDArray[np.floating], sizes: NDArray[np.integer]) -> NDArray[np.float64]:
    """The merges, cheapest first, (k - 1, 4), as scipy's `linkage` has them: the two clusters, the height √(2 Δ), and
    the rows of both. 0 to k - 1 are the given clusters, k is the first merge. An empty cluster is merged at height
    0."""
    k = len(centers)
    c = np.concatenate([np.asarray(centers, np.float64), np.zeros((k - 1, centers.shape[1]))])
    n = np.concatenate([np.asarray(sizes, np.float64), np.zeros(k - 1)])
    cost = np.full((2 * k - 1, 2 * k - 1), np.inf)

    def price(i: int, others: NDArray[np.integer]) -> NDArray[np.float64]:
        weight = n[i] * n[others] / np.maximum(n[i] + n[others], 1)
        return weight * np.square(c[i] - c[others]).sum(1)

    alive = np.arange(k)
    for i in range(k):
        cost[i, :i] = price(i, alive[:i])
    tree = np.zeros((k - 1, 4))
    for step in range(k - 1):
        among = np.minimum(cost[np.ix_(alive, alive)], cost[np.ix_(alive, alive)].T)
        i, j = sorted(alive[list(np.unravel_index(among.argmin(), among.shape))])
        new = k + step
        n[new] = n[i] + n[j]
        c[new] = (n[i] * c[i] + n[j] * c[j]) / n[new] if n[new] else (c[i] + c[j]) / 2
        tree[step] = i, j, np.sqrt(2 * among.min()), n[new]
        alive = alive[(alive != i) & (alive != j)]
        cost[new, alive] = price(new, alive)
        alive = np.append(alive, new)
    return tree


def cut_tree(tree: NDArray[np.floating], k: int) -> NDArray[np.int64]:
    """The labels of the leaves, (leaves,), if the tree is cut into k clusters; numbered in order of their first
    leaf."""
    leaves = len(tree) + 1
    if not 1 <= k <= leaves:
        raise ValueError(f"k={k} should be from 1 to {leaves}, the number of clusters.")
    root = np.arange(2 * leaves - 1)
    for step, (i, j) in enumerate(tree[: leaves - k, :2].astype(int)):
        root[[i, j]] = leaves + step
    while not np.array_equal(root, root[root]):
        root = root[root]
    _, first, codes = np.unique(root[:leaves], return_index=True, return_inverse=True)
    return first.argsort().argsort()[codes]
