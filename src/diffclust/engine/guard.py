"""Detects clusters that empty or dissolve while the loss falls, and goes back."""

import math
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..metrics import effective_number

if TYPE_CHECKING:
    from .model import Trainable

MIN_EFFECTIVE_SHARE = 0.8  # clusters have died if their effective number falls below this share of that at the start
RISE, SLACK = 1.15, 0.01  # if the scatter rises above RISE times the smallest + SLACK, clusters have dissolved


class Guard:
    """Keeps the last good state of a model, to go back to. Clusters can fail in two ways: they merge, and the effective
    number of clusters falls below that at the start; or the centres drift together, and the scatter (the share of
    the embedding's variance within clusters) rises.

    Args:
        keep_from: keep a state only if its effective number of clusters is at least this share of the first.
        advice: what the warning tells the user to try.
    """

    def __init__(
        self,
        model: "Trainable",
        *,
        keep_from: float = MIN_EFFECTIVE_SHARE,
        advice: str = "A smaller lr than now, or longer pretraining, may help.",
    ) -> None:
        self.model, self.keep_from, self.advice = model, keep_from, advice
        self.first = 0.0  # effective number of clusters at the first check
        self.least_scatter = math.inf
        self.state: dict[str, Tensor] = {}
        self.trouble = ""

    def check(self, sizes: Tensor, scatter: float | None = None) -> bool:
        """Whether the model is good, given its cluster sizes, and its scatter if the method computes it. The state is
        kept if it is good and no earlier one had less scatter."""
        number = effective_number(sizes.double().cpu().numpy())
        self.first = self.first or number
        self.trouble = ""
        if scatter is not None and scatter > RISE * self.least_scatter + SLACK:
            self.trouble = f"variance left inside rose from {self.least_scatter:.3f} to {scatter:.3f} of the whole"
        elif number < MIN_EFFECTIVE_SHARE * self.first:
            self.trouble = f"effective clusters fell from {self.first:.1f} to {number:.1f}"
        elif number >= self.keep_from * self.first and (scatter is None or scatter <= self.least_scatter):
            self.least_scatter = math.inf if scatter is None else scatter
            self.state = {name: value.clone() for name, value in self.model.state_dict().items()}
        return not self.trouble

    def restore(self, epoch: int) -> None:
        """Restore the kept state, and end training."""
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
