"""Against clusters that die, one after the other, while the loss falls."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .model import Trainable

SOUND = 0.8  # of the effective number of clusters at the start


class Guard:
    """Keeps a model's last sound state: one in which the effective number of clusters, exp of the entropy of their
    sizes, is near the first."""

    def __init__(self, model: "Trainable") -> None:
        self.model = model
        self.first = 0.0
        self.state: dict[str, Tensor] = {}

    def look(self, sizes: Tensor) -> bool:
        """Whether a model with clusters of these sizes is sound; if so, keep it."""
        shares = sizes.double() / sizes.sum()
        count = (-torch.xlogy(shares, shares).sum()).exp().item()
        self.first = self.first or count
        sound = count >= SOUND * self.first
        if sound:
            self.state = {name: value.clone() for name, value in self.model.state_dict().items()}
        return sound

    def go_back(self, epoch: int) -> None:
        """To the last sound state, and stop there."""
        self.model.load_state_dict(self.state)
        self.model.finished = True
        self.model.note(
            "collapse",
            f"Clusters began to die in epoch {epoch}: went back to the last sound epoch and stopped. "
            "A smaller lr than now, or longer pretraining, may help.",
        )

    def training_state(self) -> dict[str, Any]:
        return {"first": self.first, "state": self.state}

    def load_training_state(self, state: dict[str, Any]) -> None:
        self.first, self.state = state["first"], state["state"]
