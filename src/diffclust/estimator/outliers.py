"""What belongs nowhere: rows that are odder than those of their cluster were in the fit.

Two quantities are taken of a row: its squared distance to its centre in the embedding, and the mean square of what the
decoder gets wrong of it, in the network's units. A network that keeps neighbours together maps what is strange to it
into some cluster all the same, and only the second shows it. Their logarithms are set against the median of the row's
cluster, in units of 1.48 times its median deviation; the score is the larger of the two.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ..engine.data import Data
from ..engine.model import ClusterModel
from ..engine.runtime import seeded

SAMPLE = 10_000  # rows of the fit at most that the others are compared with
FEW = 10  # rows of a cluster: fewer say little, and all rows stand in for them
NARROWEST = 0.05  # a width at least, in logarithms
LEVELS = 1_001  # quantiles kept of the scores in the fit
TINY = 1e-12


class Oddness(NamedTuple):
    """What the rows of the fit were like."""

    middle: Tensor  # (k, 2) medians of the logarithms
    width: Tensor  # (k, 2)
    levels: Tensor  # (LEVELS,) quantiles of the scores

    def score(self, label: Tensor, logs: Tensor) -> Tensor:
        """(b,), of rows of these clusters."""
        return ((logs - self.middle.to(logs)[label]) / self.width.to(logs)[label]).amax(1)

    def level(self, share: float) -> float:
        """The score that this share of the fit's rows is above."""
        return torch.quantile(self.levels, 1 - share).item()


def _logs(model: ClusterModel, x: Tensor) -> tuple[Tensor, Tensor]:
    """The cluster of each row and both quantities, (b,) and (b, 2)."""
    z, _, label = model.answer(x)
    apart = (z - model.clusters.centers.to(z.dtype)[label]).square().sum(1)
    wrong = (model.decode(z.to(x.dtype)) - x) / model.autoencoder.scale
    return label, (torch.stack([apart, wrong.flatten(1).square().mean(1).to(z.dtype)], 1) + TINY).log()


def measure_oddness(model: ClusterModel, data: Data, seed: int) -> Oddness:
    """Of the rows of a fit, or of some of them."""

    def both(x: Tensor) -> Tensor:
        label, logs = _logs(model, x)
        return torch.cat([label[:, None].to(logs.dtype), logs], dim=1)

    with seeded(seed, data.device):
        found = data.map(both, data.draw(SAMPLE)).cpu()
    label, logs = found[:, 0].long(), found[:, 1:]
    middle, width = [], []
    for j in range(len(model.clusters.weight)):
        own = logs[label == j] if int((label == j).sum()) >= FEW else logs
        middle.append(own.median(0).values)
        width.append((1.4826 * (own - middle[-1]).abs().median(0).values).clamp_min(NARROWEST))
    odd = Oddness(torch.stack(middle), torch.stack(width), torch.zeros(LEVELS))
    scores = odd.score(label, logs)
    return odd._replace(levels=torch.quantile(scores, torch.linspace(0, 1, LEVELS, dtype=scores.dtype)))


class Rejecting:
    """`outlier_score`, and what `predict` needs to reject rows."""

    if TYPE_CHECKING:
        model_: ClusterModel

        def _answer(self, X: Any, ask: Any, settle: Any = None) -> Any: ...

    def outlier_score(self, X: Any) -> Any:
        """How odd each row is (n,), in the form X came in: about 0 for the middle row of a cluster, larger for rows
        that are far from their centre, or that the network cannot decode, by the measure of their cluster's rows."""
        return self._answer(X, lambda fitted: lambda x: fitted._known_oddness().score(*_logs(fitted.model_, x)))

    def _labels_or_none(self, X: Any, reject: float) -> Any:
        """Labels, and -1 for rows odder than all but the share `reject` of the fit's."""
        if isinstance(reject, bool) or not isinstance(reject, (int, float)) or not 0 <= reject < 1:
            raise ValueError(f"reject={reject!r} should be a share of rows, from 0 to less than 1.")

        def ask(fitted: Any, x: Tensor) -> Tensor:
            label, logs = _logs(fitted.model_, x)
            odd = fitted._known_oddness()
            return label.where(odd.score(label, logs) <= odd.level(reject), len(fitted.cluster_centers_))

        return self._answer(
            X,
            lambda fitted: partial(ask, fitted),
            lambda fitted, labels: labels.where(labels < len(fitted.cluster_centers_), -1),
        )

    def _known_oddness(self) -> Oddness:
        oddness: Oddness | None = vars(self).get("_oddness")
        if oddness is None:
            raise ValueError(
                "This model has no measure of outliers, since its clusters were merged or split, or an older version "
                "saved it: fit it again."
            )
        return oddness
