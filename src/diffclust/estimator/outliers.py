"""Outliers: rows that are unusual for their cluster, compared with the training rows.

Two quantities are computed for a row: its squared distance to its centre in the embedding, and the mean squared error
of its reconstruction, in the units of the network. Both are needed: a network that keeps neighbours together maps an
unusual row into some cluster anyway, and only its reconstruction error shows it. The logarithm of each quantity is
standardised by the median and 1.48 times the median absolute deviation within the cluster; the score is the larger of
the two.
"""

from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ..engine.data import Data
from ..engine.model import ClusterModel
from ..engine.runtime import seeded

MAX_ROWS = 10_000  # largest sample of training rows
MIN_MEMBERS = 10  # a cluster with fewer sampled rows gets the statistics of all rows
MIN_WIDTH = 0.05  # smallest width, in logarithms
N_QUANTILES = 1_001  # quantiles that are kept of the training scores
LOG_FLOOR = 1e-12  # added before taking logarithms: a row may lie on its centre


class OutlierStatistics(NamedTuple):
    """The statistics of the training rows that outlier scores are relative to."""

    middle: Tensor  # (k, 2) medians of the logarithms
    width: Tensor  # (k, 2)
    levels: Tensor  # (N_QUANTILES,) quantiles of the scores

    def score(self, label: Tensor, logs: Tensor) -> Tensor:
        """Scores (b,) of rows in these clusters."""
        return ((logs - self.middle.to(logs)[label]) / self.width.to(logs)[label]).amax(1)

    def level(self, share: float) -> float:
        """The score that this share of the training rows exceeds."""
        return torch.quantile(self.levels, 1 - share).item()


def _logs(model: ClusterModel, x: Tensor) -> tuple[Tensor, Tensor]:
    """The cluster of each row (b,), and the logarithms of both quantities (b, 2)."""
    z, _, label = model.answer(x)
    apart = (z - model.clusters.centers.to(z.dtype)[label]).square().sum(1)
    wrong = (model.decode(z.to(x.dtype)) - x) / model.autoencoder.scale
    return label, (torch.stack([apart, wrong.flatten(1).square().mean(1).to(z.dtype)], 1) + LOG_FLOOR).log()


def measure_outliers(model: ClusterModel, data: Data, seed: int) -> OutlierStatistics:
    """The statistics of the training rows, or of a sample of them."""

    def both(x: Tensor) -> Tensor:
        label, logs = _logs(model, x)
        return torch.cat([label[:, None].to(logs.dtype), logs], dim=1)

    with seeded(seed, data.device):
        found = data.map(both, data.draw(MAX_ROWS)).cpu()
    label, logs = found[:, 0].long(), found[:, 1:]
    middle, width = [], []
    for j in range(len(model.clusters.weight)):
        own = logs[label == j] if int((label == j).sum()) >= MIN_MEMBERS else logs
        middle.append(own.median(0).values)
        width.append((1.4826 * (own - middle[-1]).abs().median(0).values).clamp_min(MIN_WIDTH))
    statistics = OutlierStatistics(torch.stack(middle), torch.stack(width), torch.zeros(N_QUANTILES))
    scores = statistics.score(label, logs)
    return statistics._replace(levels=torch.quantile(scores, torch.linspace(0, 1, N_QUANTILES, dtype=scores.dtype)))


class RejectionMixin:
    """`outlier_score`, and the rejection of outliers in `predict`."""

    if TYPE_CHECKING:
        model_: ClusterModel

        def _answer(self, X: Any, ask: Any, settle: Any = None) -> Any: ...

    def outlier_score(self, X: Any) -> Any:
        """How unusual each row is for its cluster (n,), in the form of X: about 0 for a typical row, larger for rows
        that are far from their centre or badly reconstructed, compared with the training rows of that cluster."""
        return self._answer(X, lambda fitted: lambda x: fitted._statistics().score(*_logs(fitted.model_, x)))

    def _labels_or_none(self, X: Any, reject: float) -> Any:
        """Labels, and -1 for rows more unusual than all but the share `reject` of the training rows."""
        if isinstance(reject, bool) or not isinstance(reject, Real) or not 0 <= reject < 1:
            raise ValueError(f"reject={reject!r} should be a share of rows, from 0 to less than 1.")

        def ask(fitted: Any, x: Tensor) -> Tensor:
            label, logs = _logs(fitted.model_, x)
            statistics = fitted._statistics()
            return label.where(statistics.score(label, logs) <= statistics.level(reject), len(fitted.cluster_centers_))

        return self._answer(
            X,
            lambda fitted: partial(ask, fitted),
            lambda fitted, labels: labels.where(labels < len(fitted.cluster_centers_), -1),
        )

    def _statistics(self) -> OutlierStatistics:
        statistics: OutlierStatistics | None = vars(self).get("_outlier_statistics")
        if statistics is None:
            raise ValueError(
                "This model has no outlier scores, because its clusters were merged or split, or an older version "
                "saved it: fit it again."
            )
        return statistics
