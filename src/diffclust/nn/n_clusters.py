"""The number of clusters, by the agreement of two encoders that are trained on different halves of the rows.

The embedding of a single encoder does not show it: encoders form clumps of rows which look like clusters. Two encoders,
each trained on its own half of the rows, have clumps in different places, so clusters that both show are in the data.
So rows are embedded twice, as z and z'. For each k, k-means on one half gives clusters of all rows, and their
silhouette is computed in the *other* embedding::

    s(k) = mean_i (b_i - a_i) / max(a_i, b_i),   a_i the mean distance to the own cluster, b_i to the nearest other

The score of k is s(k) m(k) (1 - Σ_j p_j²). m(k) is the share of rows that are in the same cluster for both encoders,
after their clusters are matched. p_j is the share of rows in cluster j, and the last factor the probability that two
rows are in different clusters; without it, two clusters would be preferred. The result is the smallest k whose score is
at least `NEXT_TO_BEST` times the best.

Clusters touch in the embedding of an encoder trained by reconstruction, as for images. Such embeddings are first laid
out, each half by its own neighbour graph, and other rows are placed near their neighbours (see `nn.layout`). Then the
result is the best k.

The rows themselves, without an encoder, are measured in the same way, and they decide if their s(k) is larger: rows of
one or two columns need no encoder.

There is one cluster if s(k) < `NOTHING` for the best k, or if no cluster has a valley around it for any k. There is a
valley between two clusters if, in the embedding of the other encoder, the density half way between their centres is
lower than at the centres. The first is the case for a Gaussian of some dimensions, the second for a square or a cube,
for which both halves may agree on four parts. All k are searched for a valley, because clusters that touch may be right
too.

Rows that vary in many directions, such as texts, need no valley if the two encoders agree: a single cloud of them can
be divided in so many ways that two halves do not find the same one. If the `breadth` of the rows is at least `BROAD`,
agreement beyond chance (see `shared_information`) of at least `AGREED` is evidence, for any k above `FEW_CLUSTERS`,
because both divide a long cloud across its length.

Where the valley is shallow, the rows are compared with rows without clusters that have the same columns and rank
correlations (see `without_clusters`). There, too, the k-means clusters of two halves agree to some degree. If those of
the rows agree by `SURPLUS` more, that is evidence.

If half of the rows is too little to learn from, both encoders may be trained on more. Then all this is measured on rows
that at most one of them was trained on: on common rows they also agree about chance.
"""

from typing import NamedTuple

import torch
from scipy.cluster.hierarchy import linkage
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from .hierarchy import cut_tree
from .kmeans import lloyd
from .ops import squared_distances

NOTHING = 0.15  # a lower silhouette means that no clusters were found
NOTHING_IN_ROWS = 0.25  # the same for the rows without an encoder: uniform noise has up to 0.2
NEXT_TO_BEST = 0.97  # a smaller number is taken if its score is at least this share of the best
VALLEY = 0.5  # a cluster is separate if the density between it and every other is below this share of theirs
BROAD, FEW_CLUSTERS = 10.0, 4  # for rows of at least this breadth, agreement on more than 4 clusters is evidence
AGREED = 0.5  # smallest such agreement: single clouds of such breadth have up to 0.26
SHALLOW = 0.65  # a valley below this is evidence together with a surplus of agreement
SURPLUS, DRAWS = 0.1, 3  # smallest surplus, a mean of 3 draws: single clouds of 200 rows or more have up to 0.09
SURPLUS_STEP = 4  # every fourth number of clusters is measured
MIN_SHARE_APART = 0.1  # smallest share of rows inside separate clusters, and outside of them: outliers do not count
VALLEY_WIDTH = 0.15  # half the width in which densities are counted, relative to the distance of two centres
MAX_ROWS = 1_000  # largest sample to find clusters on, and to measure them on: the cost grows with its square


class Choice(NamedTuple):
    """The number of clusters, and the evidence for it."""

    n_clusters: int
    candidates: list[int]
    silhouettes: list[float]  # s(k) of each candidate
    agreements: list[float]  # m(k)
    scores: list[float]  # s(k) m(k) (1 - Σ p²)
    valley: float  # of the best separated clusters, the smallest over all candidates


UNDECIDED = Choice(1, [], [], [], [], 1.0)


class View(NamedTuple):
    """All rows, embedded by one encoder."""

    z: Tensor  # (n, d) all rows
    trained_on: Tensor  # positions of the rows that it was trained on


def choose_number(
    views: tuple[View, View],
    most: int,
    nothing: float = NOTHING,
    next_to_best: float = NEXT_TO_BEST,
    rows: Tensor | None = None,
) -> Choice:
    """The number of clusters, from 1 to `most`, on which the two views agree best. Without the rows themselves, `rows`
    (n, d), only a valley is evidence of several."""
    both = torch.isin(views[0].trained_on, views[1].trained_on)
    asked = torch.ones(len(views[0].z), dtype=torch.bool, device=both.device)
    asked[views[0].trained_on[both]] = False
    fair = asked.nonzero()[:, 0]
    most = min(most, len(fair), *(len(view.trained_on) for view in views))
    candidates = list(range(2, most + 1))
    if not candidates:
        return UNDECIDED
    measured = fair[torch.randperm(len(fair), device=fair.device)[:MAX_ROWS]]
    seen = [view.z[measured] for view in views]
    apart = [torch.cdist(z, z) for z in seen]
    found = [_clusters(view, candidates) for view in views]
    broad = rows is not None and breadth(rows) >= BROAD
    silhouettes, agreements, scores, valleys, evident = [], [], [], [], False
    for i, k in enumerate(candidates):
        labels = [squared_distances(z, each[i]).argmin(1) for z, each in zip(seen, found, strict=True)]
        crossed = list(zip(labels, reversed(seen), reversed(apart), strict=True))  # each in the other view
        told_apart = [1 - (torch.bincount(each) / len(each)).square().sum() for each in labels]
        silhouettes.append(torch.stack([silhouette(far, each, k).mean() for each, _, far in crossed]).mean().item())
        agreements.append(agreement(labels[0], labels[1], k))
        scores.append(silhouettes[-1] * agreements[-1] * torch.stack(told_apart).mean().item())
        valleys.append(torch.stack([_separation(valley(z, each, k), each) for each, z, _ in crossed]).mean().item())
        if k > FEW_CLUSTERS and broad:
            evident |= shared_information(labels[0], labels[1], k) >= AGREED
    best = int(torch.tensor(scores).argmax())
    evident |= min(valleys) < VALLEY
    if rows is not None and silhouettes[best] >= nothing and not evident and min(valleys) < SHALLOW:
        evident = surplus(rows, most) >= SURPLUS
    if silhouettes[best] >= nothing and evident:
        n_clusters = next(
            k for k, score in zip(candidates, scores, strict=True) if score >= next_to_best * scores[best]
        )
    else:
        n_clusters = 1
    return Choice(n_clusters, candidates, silhouettes, agreements, scores, min(valleys))


def clearer(*choices: Choice) -> Choice:
    """The choice whose best candidate has the largest silhouette, preferring those with several clusters."""

    def clarity(choice: Choice) -> tuple[bool, float]:
        best = max(zip(choice.scores, choice.silhouettes, strict=True), default=(0.0, -1.0))
        return choice.n_clusters > 1, best[1]

    return max(choices, key=clarity)


def _clusters(view: View, candidates: list[int]) -> list[Tensor]:
    """The centres for each number of clusters, by k-means on rows that the encoder was trained on, starting from cuts
    of their Ward tree: with random starts, the clusters of two views would differ by chance."""
    known = view.z[view.trained_on]
    some = known[torch.randperm(len(known), device=known.device)[:MAX_ROWS]]
    tree = linkage(some.double().cpu().numpy(), "ward")
    centers = []
    for k in candidates:
        cut = torch.from_numpy(cut_tree(tree, k)).to(some.device)
        member = torch.nn.functional.one_hot(cut, k).to(some.dtype)
        centers.append(lloyd(some, member.T @ some / member.sum(0)[:, None], max_iter=20).centers)
    return centers


def agreement(a: Tensor, b: Tensor, k: int) -> float:
    """The share of rows in the same of k clusters by labels a and b (n,), after one-to-one matching of the clusters."""
    table = torch.bincount(k * a + b, minlength=k * k).view(k, k).cpu().numpy()
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / len(a))


def shared_information(a: Tensor, b: Tensor, k: int) -> float:
    """The adjusted mutual information of labels a and b (n,) from 0 to k - 1: (I - E) / (mean entropy - E), with the
    expectation E of I by chance (Vinh, Epps, Bailey: "Information theoretic measures for clusterings comparison", JMLR
    2010). By chance, the number of common rows of two clusters of r and c rows has a hypergeometric distribution. 0 if
    a or b has a single cluster."""
    n = len(a)
    table = torch.bincount(k * a + b, minlength=k * k).view(k, k).double().cpu()
    sizes = table.sum(1), table.sum(0)
    r, c = sizes[0][sizes[0] > 0][:, None, None], sizes[1][sizes[1] > 0][:, None]
    if len(r) == 1 or len(c) == 1:
        return 0.0
    entropy = -(torch.xlogy(r / n, r / n).sum() + torch.xlogy(c / n, c / n).sum()) / 2
    information = torch.xlogy(table / n, n * table / (sizes[0][:, None] * sizes[1]).clamp_min(1)).sum()
    m = torch.arange(1, 1 + min(int(r.max()), int(c.max())), dtype=torch.double)
    of_n = torch.tensor(n + 1, dtype=torch.double).lgamma()
    log_chance = sum((x + 1).lgamma() for x in (r, c, n - r, n - c)) - of_n
    log_chance = log_chance - sum((x + 1).clamp_min(1).lgamma() for x in (m, r - m, c - m, n - r - c + m))
    possible = (m <= r) & (m <= c) & (m >= r + c - n)
    expected = (log_chance.exp() * possible * torch.xlogy(m / n, n * m / (r * c))).sum()
    return ((information - expected) / (entropy - expected).clamp_min(torch.finfo(torch.double).eps)).item()


def surplus(rows: Tensor, most: int) -> float:
    """How much more the k-means clusters of two halves of the rows (n, d) agree than they do for rows without clusters:
    by `shared_information`, in the mean over numbers of clusters up to `most`."""
    x = rows[torch.randperm(len(rows), device=rows.device)[: 2 * MAX_ROWS]]
    candidates = list(range(FEW_CLUSTERS + 1, min(most, len(x) // 2) + 1, SURPLUS_STEP))
    if not candidates:
        return 0.0

    def agreed(x: Tensor) -> float:
        first, second = (
            _clusters(View(x, half), candidates) for half in torch.randperm(len(x), device=x.device).tensor_split(2)
        )
        shared = 0.0
        for i, k in enumerate(candidates):
            a, b = (squared_distances(x, centers[i]).argmin(1) for centers in (first, second))
            shared += shared_information(a, b, k)
        return shared / len(candidates)

    return sum(agreed(x) - agreed(without_clusters(x)) for _ in range(DRAWS)) / DRAWS


def without_clusters(x: Tensor) -> Tensor:
    """Draw rows whose columns have the same values as those of x (n, d) and nearly the same rank correlations, but no
    other structure: a Gaussian copula. With the normal scores Z of x, by rank, the ranks are those of::

        G = E Z / sqrt(n),   E (n, n) of standard normal numbers, so that cov(G) = Zᵀ Z / n
    """
    n = len(x)
    columns = x.T.contiguous()
    ordered = columns.sort(1).values
    below, up_to = (torch.searchsorted(ordered, columns, right=right) for right in (False, True))
    scores = torch.special.ndtri((below + up_to).T / (2 * n))  # equal values have equal ranks
    drawn = torch.randn(n, n, dtype=scores.dtype, device=x.device) @ scores / n**0.5
    return ordered.T.gather(0, drawn.argsort(0).argsort(0))


def breadth(x: Tensor) -> float:
    """The number of directions in which rows x (n, d) vary: Σ λ / max λ, λ the variances along the principal
    directions. It is d if all λ are equal, and one on a line."""
    x = x.double() - x.double().mean(0)
    square = x.T @ x if x.shape[1] <= len(x) else x @ x.T
    return (square.trace() / torch.linalg.eigvalsh(square)[-1].clamp_min(torch.finfo(x.dtype).tiny)).item()


def silhouette(distances: Tensor, labels: Tensor, k: int) -> Tensor:
    """The silhouette of each row (n,), from the distances of all pairs (n, n); 0 for the only row of a cluster."""
    member = torch.nn.functional.one_hot(labels, k).to(distances.dtype)
    sizes = member.sum(0)
    sums = distances @ member  # (n, k)
    own = sums.gather(1, labels[:, None])[:, 0] / (sizes[labels] - 1).clamp_min(1)
    others = (sums / sizes).masked_fill((member > 0) | (sizes == 0), torch.inf)
    nearest = others.amin(1)
    values = (nearest - own) / torch.maximum(nearest, own).clamp_min(torch.finfo(distances.dtype).tiny)
    return torch.where((sizes[labels] > 1) & nearest.isfinite(), values, 0.0)


def valley(z: Tensor, labels: Tensor, k: int) -> Tensor:
    """For each pair of clusters (k, k): the number of rows half way between their means, along the line through both,
    divided by the number at the mean of the less dense one. One is added to both counts, so that few rows give a value
    near one. Below one there is a valley between the clusters."""
    member = torch.nn.functional.one_hot(labels, k).to(z.dtype)
    means = member.T @ z / member.sum(0).clamp_min(1)[:, None]
    inner = means @ means.T
    line = squared_distances(means, means).clamp_min(1e-30)
    toward = z @ means.T  # (n, k)
    # position of each row along the line from its own mean, at 0, to that of every other cluster, at 1
    place = (toward - toward.gather(1, labels[:, None]) - inner[labels] + inner.diagonal()[labels][:, None]) / line[
        labels
    ]
    own, middle, other = (member.T @ ((place - at).abs() < VALLEY_WIDTH).to(z.dtype) for at in (0.0, 0.5, 1.0))
    ends = torch.minimum(own + other.T, own.T + other)
    return ((middle + middle.T + 1) / (ends + 1)).fill_diagonal_(0)


def _separation(valleys: Tensor, labels: Tensor) -> Tensor:
    """The valley around the best separated clusters, taken until they have `MIN_SHARE_APART` of the rows; a cluster
    with more than half of the rows counts with the share of the others."""
    around, order = valleys.amax(1).sort()
    share = torch.bincount(labels, minlength=len(valleys))[order] / len(labels)
    reached = torch.minimum(share, 1 - share).cumsum(0) >= MIN_SHARE_APART
    return around[reached].amin() if bool(reached.any()) else around.new_ones(())
