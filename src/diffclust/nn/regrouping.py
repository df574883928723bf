"""Merged and split clusters of a trained model: layers around a cluster layer.

The logit of merged clusters i and j is the larger of the two, so all boundaries to other clusters stay the same. If i
is split between the centres a and b, the nearer part gets the logit of i, and the other a logit that is smaller by the
difference of the squared distances. The larger of the two is the logit of i, so rows of other clusters keep theirs.
Log-probabilities and distances are regrouped in the same way, so that the most probable cluster is the nearest.
"""

from typing import Any

import torch
from torch import Tensor, nn

from .cluster import ClusterLayer

MAX_LAYERS = 100  # largest number of merges and splits of one model


class RegroupedLayer(ClusterLayer):
    """A layer that derives its logits and probabilities from those of `inner`, which does not change."""

    weight: nn.Parameter

    def __init__(self, inner: ClusterLayer, n_clusters: int) -> None:
        super().__init__(n_clusters, inner.embedding_dim, alpha=inner.alpha)
        self.inner = inner
        self.tied, self.sphere, self.assignment = inner.tied, inner.sphere, inner.assignment
        self.temperature = inner.temperature
        # these centres are only shown; logits come from `inner`
        means = torch.zeros(n_clusters, inner.embedding_dim, dtype=inner.weight.dtype, device=inner.weight.device)
        self.weight = nn.Parameter(means, requires_grad=False)

    def reset_parameters(self) -> None:
        """Do nothing: `show` sets the centres."""

    def normalize(self, x: Tensor) -> Tensor:
        return self.inner.normalize(x)

    @property
    def original(self) -> ClusterLayer:
        return self.inner.original

    def regroup(self, scores: Tensor, z: Tensor, scale: float) -> Tensor:
        """Scores of these clusters, from the scores of those of `inner` (larger is nearer). One unit of squared
        distance corresponds to `scale`."""
        raise NotImplementedError

    def logits(self, z: Tensor) -> Tensor:
        return self.regroup(self.inner.logits(z), z, self.alpha)

    def distances(self, z: Tensor) -> Tensor:
        return -self.regroup(-self.inner.distances(z), z, 1.0)

    def read_distances(self, z: Tensor, logits: Tensor) -> Tensor:
        return self.distances(z)

    def probabilities(self, z: Tensor, temperature: float) -> Tensor:
        p = self.inner.probabilities(z, temperature)
        logs = p.clamp_min(torch.finfo(p.dtype).tiny).log()
        return torch.softmax(self.regroup(logs, z, 1 / temperature), dim=1)

    def forward(self, x: Tensor) -> Tensor:
        if self.temperature is None:
            return super().forward(x)
        return self.probabilities(self.normalize(x), self.temperature)  # these are the assignment

    @torch.no_grad()
    def show(self, centers: Tensor) -> None:
        """Set the displayed centres (k, d)."""
        self.weight.copy_(2 * self.alpha * centers)


class MergedClusters(RegroupedLayer):
    """Clusters i < j merged into cluster i; the last cluster gets the number j."""

    def __init__(self, inner: ClusterLayer, i: int, j: int) -> None:
        super().__init__(inner, inner.n_clusters - 1)
        self.i, self.j = i, j

    def regroup(self, scores: Tensor, z: Tensor, scale: float) -> Tensor:
        both = torch.maximum(scores[:, self.i], scores[:, self.j])
        return torch.stack([both if old == self.i else scores[:, old] for old in self.sources()], dim=1)

    def sources(self) -> list[int]:
        """The cluster of `inner` that each cluster comes from."""
        return renumbered(self.inner.n_clusters, self.j)


class SplitCluster(RegroupedLayer):
    """Cluster i split into cluster i and a new last one, by the nearer of two centres `parts` (2, d)."""

    parts: Tensor

    def __init__(self, inner: ClusterLayer, i: int) -> None:
        super().__init__(inner, inner.n_clusters + 1)
        self.i = i
        self.register_buffer("parts", torch.zeros(2, inner.embedding_dim, dtype=inner.weight.dtype))

    def regroup(self, scores: Tensor, z: Tensor, scale: float) -> Tensor:
        parts = self.parts.to(scores)
        nearness = scale * (2 * z.to(scores) @ parts.T - parts.square().sum(1))
        ahead = nearness[:, 0] - nearness[:, 1]
        own = scores[:, self.i]
        columns = list(scores.unbind(1))
        columns[self.i] = own + ahead.clamp_max(0)
        return torch.stack([*columns, own - ahead.clamp_min(0)], dim=1)


def renumbered(k: int, j: int) -> list[int]:
    """The numbers of k clusters after cluster j is removed: the last one gets its number."""
    kept = list(range(k - 1))
    if j < k - 1:
        kept[j] = k - 1
    return kept


def replay_regrouping(inner: ClusterLayer, steps: list[list[Any]]) -> ClusterLayer:
    """Apply merges and splits to a layer, in order: ["merge", i, j] and ["split", i]."""
    if len(steps) > MAX_LAYERS:
        raise ValueError(f"its clusters were merged and split {len(steps)} times: at most {MAX_LAYERS} can be read")
    for what, *which in steps:
        if what not in ("merge", "split") or any(type(i) is not int or not 0 <= i < inner.n_clusters for i in which):
            raise ValueError(f"{[what, *which]} is not a cluster merged or split")
        if what == "merge" and (len(which) != 2 or which[0] >= which[1]):
            raise ValueError(f"{which} are not two clusters to merge")
        if what == "split" and len(which) != 1:
            raise ValueError(f"{which} is not one cluster to split")
        inner = MergedClusters(inner, *which) if what == "merge" else SplitCluster(inner, *which)
    return inner
