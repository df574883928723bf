"""A phase with extra clusters, which are merged at its end."""

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
    """Clustering with extra centres, which are merged at its end (see `nn.merging`). The means of the merged clusters
    become the initial centres of `final_model`, which has the same network."""

    places_centers = True

    def __init__(
        self,
        name: str,
        model: ClusterModel,
        final_model: ClusterModel,
        data: Data,
        optimizer: Optimizer | None,
        epochs: int,
        **options: Any,
    ) -> None:
        super().__init__(name, model, data, optimizer, epochs, **options)
        self.over_model, self.final_model = model, final_model

    @torch.no_grad()
    def finish(self) -> None:
        super().finish()
        wanted = self.final_model.clusters.n_clusters
        z = self.over_model.sample_embedding(self.data)
        labels = largest(self.over_model.clusters.logits(z))
        member = one_hot(merge_clusters(z, labels, self.over_model.clusters.n_clusters, wanted), wanted).to(z)
        self.final_model.clusters.set_centers(member.T @ z / member.sum(0).clamp_min(1)[:, None])
