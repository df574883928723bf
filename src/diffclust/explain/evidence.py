"""A quantity split into contributions: shared by the explanations of rows and of pairs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch

from ..reading.inputs import Shape
from ..reading.tables import Columns
from . import words
from .gradients import MAX_POINTS

CAREFUL = 0.05  # an error worth a word


@dataclass(frozen=True, eq=False, kw_only=True)
class Evidence:
    """A quantity that is Σ contributions + bias, and that is attributed to the input.

    Attributes:
        contributions: of each dimension of the embedding; with network="identity" these are the input features.
        exact: the logits are linear in the embedding and the contributions are the terms of that sum. Otherwise they
            are integrated gradients from the origin, and the bias includes `contribution_error`, the share they miss.
        attributions: the quantity attributed to the input, in the shape of a row. `completeness_error` is the share
            they miss.
        stopped_early: an integral of one of them needed more than the 4,096 points that a row may have.
    """

    contributions: np.ndarray
    contribution_names: Sequence[str]
    of_inputs: bool  # the contributions are of the input itself
    bias: float
    exact: bool
    contribution_error: float
    attributions: np.ndarray | None
    completeness_error: float | None
    stopped_early: bool
    feature_names: Sequence[str] | None  # of rows; pixels have none
    shape: Shape = field(repr=False)
    reading: Columns | None = field(default=None, repr=False)  # of a table

    fields_of_dict: ClassVar[tuple[str, ...]]  # what `to_dict` gives

    @property
    def sentence(self) -> str:
        """The explanation in words."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.sentence

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain lists and numbers."""
        return {name: words.plain(getattr(self, name)) for name in self.fields_of_dict}

    def top(self, n: int = 5) -> list[tuple[str, float]]:
        """The inputs that count most, for (+) or against (-); of images, pixels by their place."""
        if self.attributions is None:
            return self.heaviest(n)
        flat = self.attributions.ravel()
        if self.feature_names is None:
            places = np.argsort(-np.abs(flat), kind="stable")[:n]
            spots = [", ".join(map(str, np.unravel_index(i, self.attributions.shape))) for i in places]
            return [(f"pixel ({spot})", float(flat[i])) for spot, i in zip(spots, places, strict=True)]
        return words.heaviest(self.feature_names, flat, n)

    def top_in_words(self, n: int) -> list[tuple[str, float]]:
        """`top`, by columns of a table, and with the row's values where they can be said."""
        if self.reading is None or self.reading.is_text or self.attributions is None:
            return self.top(n)
        names = [column.name for column in self.reading.used]
        return words.heaviest(names, self.reading.by_column(self.attributions[None])[0], n)

    def heaviest(self, n: int) -> list[tuple[str, float]]:
        """The largest contributions, for (+) or against (-)."""
        return words.heaviest(self.contribution_names, self.contributions, n)

    def reasons(self, figure: str) -> list[str]:
        """Sentences on how `figure` comes about, and on what of the input it comes from."""
        whole = "is the exact sum" if self.exact else "is, by integrated gradients, the sum"
        names = self.contribution_names
        span = f"{names[0]} to {names[-1]}" if len(names) > 1 else names[0]
        what = "features of the input" if self.of_inputs else f"numbers of the embedding ({span})"
        heavy = self.heaviest(4)
        sides = {
            "most for it are": [pair for pair in heavy if pair[1] > 0],
            "most against it": [pair for pair in heavy if pair[1] < 0],
        }
        said = ", ".join(f"{side} {words.weighted(pairs)}" for side, pairs in sides.items() if pairs)
        rounding = 1e-9 * float(np.abs(self.contributions).max(initial=0))
        bias = f" and a bias of {self.bias:.4g}" if abs(self.bias) > rounding else ""
        parts = [
            f"{figure} {whole} of what the {len(self.contributions)} {what} contribute{bias}"
            + (f": {said}." if said else ".")
        ]
        if self.attributions is not None and self.feature_names is not None:
            top = words.weighted(self.top_in_words(5))
            parts.append(f"The input features that matter most are {top}." if top else "No input feature matters.")
        for name, error in (("contributions", self.contribution_error), ("attributions", self.completeness_error)):
            if error is not None and error > CAREFUL:
                parts.append(f"The {name} miss {100 * error:.0f} % of the sum: use them with care.")
        if self.stopped_early:
            parts.append(f"Integration stopped at its limit of {MAX_POINTS:,} points.")
        return parts

    def pictures(self) -> list[str]:
        """For notebooks, of images: the heat map."""
        if self.attributions is None or self.feature_names is not None:
            return []
        heat = self.shape.arrange(torch.from_numpy(self.attributions)[None])[0].permute(1, 2, 0).numpy()
        return [words.picture(heat, "for (green), against (red)", signed=True)]

    def card(self, title: str) -> str:
        """For notebooks: the sentence, pictures, and bars."""
        tabular = self.attributions is not None and self.feature_names is not None
        bars = words.bars(self.top(10) if tabular else self.heaviest(10))
        return words.card(title, words.paragraph(self.sentence), "".join(self.pictures()), bars)
