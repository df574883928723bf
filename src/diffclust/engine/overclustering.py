"""A phase with more clusters than are wanted, which are joined at its end."""

from typing import Any

import torch
from torch.optim import Optimizer

from ..nn.merging import merge_clusters
from ..nn.ops import largest, one_hot
from .data import Data
from .model import ClusterModel
from .phase import Phase

OVERCLUSTERING = "over-clustering"  # its name in the history


class OverclusteringPhase(Phase):
    """Clustering with more centres than are wanted, which are joined at its end (see `nn.merging`): `narrow`, a model
    with the same network, begins with the means of what was joined."""

    places_centers = True

    def __init__(
        self,
        name: str,
        model: ClusterModel,
        narrow: ClusterModel,
        data: Data,
        optimizer: Optimizer | None,
        epochs: int,
        **options: Any,
    ) -> None:
        super().__init__(name, model, data, optimizer, epochs, **options)
        self.wide, self.narrow = model, narrow

    @torch.no_grad()
    def finish(self) -> None:
        super().finish()
        wanted = self.narrow.clusters.n_clusters
        z = self.wide.sample_embedding(self.data)
        labels = largest(self.wide.clusters.logits(z))
        member = one_hot(merge_clusters(z, labels, self.wide.clusters.n_clusters, wanted), wanted).to(z)
        self.narrow.clusters.set_centers(member.T @ z / member.sum(0).clamp_min(1)[:, None])
