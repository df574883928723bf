"""Against clusters that die or dissolve while the loss falls."""

import math
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..metrics import effective_number

if TYPE_CHECKING:
    from .model import Trainable

SOUND = 0.8  # of the effective number of clusters at the start: with fewer, clusters have died
RISE, SLACK = 1.15, 0.01  # more scatter than RISE times the least plus SLACK: clusters have dissolved


class Guard:
    """Keeps a model's last sound state, to go back to. Clusters go wrong in two ways: they merge, and the effective
    number of clusters falls below that at the start; or the centres drift together, and the scatter rises, the share
    of the embedding's variance left inside clusters.

    Args:
        keep_from: a state is kept where its effective number is at least this share of the first.
        advice: what the user is told to try.
    """

    def __init__(
        self,
        model: "Trainable",
        *,
        keep_from: float = SOUND,
        advice: str = "A smaller lr than now, or longer pretraining, may help.",
    ) -> None:
        self.model, self.keep_from, self.advice = model, keep_from, advice
        self.first = 0.0  # effective number of clusters at the first look
        self.least_scatter = math.inf
        self.state: dict[str, Tensor] = {}
        self.trouble = ""

    def look(self, sizes: Tensor, scatter: float | None = None) -> bool:
        """Whether a model with clusters of these sizes, and of this scatter where the method knows it, is sound. It is
        kept if so, and if no state before had less scatter."""
        number = effective_number(sizes.double().cpu().numpy())
        self.first = self.first or number
        self.trouble = ""
        if scatter is not None and scatter > RISE * self.least_scatter + SLACK:
            self.trouble = f"variance left inside rose from {self.least_scatter:.3f} to {scatter:.3f} of the whole"
        elif number < SOUND * self.first:
            self.trouble = f"effective clusters fell from {self.first:.1f} to {number:.1f}"
        elif number >= self.keep_from * self.first and (scatter is None or scatter <= self.least_scatter):
            self.least_scatter = math.inf if scatter is None else scatter
            self.state = {name: value.clone() for name, value in self.model.state_dict().items()}
        return not self.trouble

    def go_back(self, epoch: int) -> None:
        """To the state that was kept, and stop there."""
        self.model.load_state_dict(self.state)
        self.model.finished = True
        what, where = ("die", "last sound epoch") if self.least_scatter == math.inf else ("dissolve", "best partition")
        self.model.note(
            "collapse",
            f"Clusters began to {what} in epoch {epoch} ({self.trouble}): went back to the {where} and stopped. "
            f"{self.advice}",
        )

    def training_state(self) -> dict[str, Any]:
        return {"first": self.first, "least_scatter": self.least_scatter, "state": self.state}

    def load_training_state(self, state: dict[str, Any]) -> None:
        self.first, self.least_scatter, self.state = state["first"], state["least_scatter"], state["state"]
