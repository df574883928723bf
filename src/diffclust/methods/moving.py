"""Shared by k-meansNet and TELL: centres that move by their own steps, together or in alternation with the network."""

from typing import Literal

from torch import Tensor

from ..engine.data import Data
from ..engine.model import ClusterModel
from ..nn.autoencoders import Autoencoder
from ..nn.cluster import ClusterLayer, Start

CenterUpdate = Literal["normalized", "optimizer", "unnormalized"]


class MovingCenters(ClusterModel):
    """Centres that move by their own steps. In alternation, the centres move in even epochs, without an effect on the
    network, and are fixed in odd epochs, in which the network is pulled towards them.

    Args:
        update: how W moves. "normalized": a step in closed form. "optimizer": by the optimiser, after its gradient was
            scaled to the length `step · |W_j|`. "unnormalized": by the optimiser.
        start: initial centres.
        alternate: alternate with the network, if that is trained.
    """

    step: float | Tensor  # of a centre, as a share of its length
    z: Tensor  # the embedded batch

    def __init__(
        self,
        autoencoder: Autoencoder,
        clusters: ClusterLayer,
        update: CenterUpdate,
        start: Start | Tensor,
        alternate: bool = True,
    ) -> None:
        super().__init__(autoencoder, clusters)
        self.center_update, self.start = update, start
        self.closed_form = update == "normalized"
        self.in_turns = alternate and self.network_learns
        self.moving_centers = True
        clusters.weight.requires_grad_(not self.closed_form)

    def before_training(self, data: Data) -> None:
        self.place_centers(data, self.start)

    def before_epoch(self, epoch: int, data: Data) -> None:
        self.let_centers(move=epoch % 2 == 0 or not self.in_turns)

    def freeze_centers(self) -> None:
        self.let_centers(move=False)

    def let_centers(self, move: bool) -> None:
        self.moving_centers = self.graph_key = move
        self.frozen_parts = () if move else ("clusters",)

    def pulled(self, z: Tensor) -> Tensor:
        """The embeddings that the clustering loss sees: detached from the network in epochs that move the centres."""
        return z.detach() if self.in_turns and self.moving_centers else z

    def after_training(self, data: Data) -> None:
        super().after_training(data)
        for name in ("z", "owner"):  # of the last batch
            vars(self).pop(name, None)

    def after_backward(self) -> None:
        if self.moving_centers and self.center_update == "optimizer":
            self.clusters.normalize_gradient_(self.step)

    def move_centers(self, sums: tuple[Tensor, Tensor] | None = None) -> None:
        """Move the centres after the optimiser's step. `sums` are the sums of each centre's rows, by default by the
        layer's own assignment."""
        if not self.closed_form:
            self.clusters.bound_()
        elif self.moving_centers and sums is None:
            self.clusters.move_(self.z, self.step)
        elif self.moving_centers and sums is not None:
            self.clusters.step_together_(*sums, self.step)
