"""What the classical methods share: they check settings, rows and free memory before they start."""

import warnings
from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import validate_data
from torch import Tensor

from ..engine.runtime import choose_device, free_memory, restart_seeds
from ..estimator.knobs import check_knobs, check_seed, knob
from ..estimator.settings import check_device, hyperparameters
from ..methods.ssc import unit_length
from ..metrics import effective_clusters
from ..reading.inputs import in_numbers
from .cut import cut

__all__ = ["AffinityClusterer", "ClassicalClusterer", "check_device", "free_memory", "hyperparameters", "knob"]

Rows = NDArray[np.float64]
Labels = NDArray[np.int64]

GB = 1e9
SCALES = "LSC ('lsc-k') and 'spectral' grow linearly with n"


@hyperparameters
class ClassicalClusterer(ClusterMixin, BaseEstimator):
    """A method without a network. It labels the rows it is given; some methods also have `predict`.

    Args:
        n_clusters: number of clusters.
        random_state: an int for reproducible results.

    Attributes:
        labels_: the cluster of each row of X (n,).
        diagnostics_: cluster sizes and warnings.
    """

    squares: ClassVar[float] = 0  # number of n x n matrices in float64 that are in memory at the same time
    signed: ClassVar[bool] = True  # whether X may have negative values

    n_clusters: int = knob(8, low=1, kw_only=False)
    random_state: int | np.random.RandomState | None = knob(None, check=check_seed)

    @abstractmethod
    def label(self, X: Rows, seed: int) -> Labels:
        """The cluster of each row. A method may also set further attributes."""

    def fit(self, X: Any, y: object = None) -> Self:
        """Label the rows X; y is ignored."""
        check_knobs(self)
        X = in_numbers(lambda X: validate_data(self, X, dtype=np.float64, ensure_min_samples=2), X)
        if not X.flags.writeable:  # torch.from_numpy would warn
            X = X.copy()
        n = len(X)
        if n < self.n_clusters:
            raise ValueError(f"n_samples={n} should be >= n_clusters={self.n_clusters}.")
        if not self.signed and X.min() < 0:
            # the first words are those that scikit-learn's checks look for
            raise ValueError(
                f"Negative values in data passed to {type(self).__name__}: the smallest is {X.min():g}, and the method "
                "needs values >= 0."
            )
        self.check_memory(n)
        (seed,) = restart_seeds(self.random_state, 1)
        self.labels_ = np.asarray(self.label(X, seed), dtype=np.int64)
        self._report_empty_clusters()
        return self

    def _report_empty_clusters(self) -> None:
        sizes = np.bincount(self.labels_, minlength=self.n_clusters)
        empty = int((sizes == 0).sum())
        messages = [f"{empty} of {self.n_clusters} clusters are empty."] if empty else []
        self.diagnostics_ = {
            "sizes": sizes.tolist(),
            "effective_clusters": effective_clusters(self.labels_),
            "warnings": messages,
        }
        for message in messages:
            warnings.warn(message, ConvergenceWarning, stacklevel=3)

    def needs(self, n: int) -> float:
        """Bytes needed for n rows, besides the rows themselves and what grows linearly with n."""
        return 8 * self.squares * n**2

    def check_memory(self, n: int) -> None:
        """Raise a ValueError if n rows need more memory than is free."""
        free = free_memory(getattr(self, "device", "cpu"))
        if self.needs(n) > free:
            raise ValueError(
                f"{type(self).__name__} on {n} rows needs {self.needs(n) / GB:.1f} GB, as it compares all pairs, and "
                f"{free / GB:.1f} GB are free. Give fewer rows, or take a method that needs no pairs: {SCALES}."
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = not self.signed
        return tags


@hyperparameters
class AffinityClusterer(ClassicalClusterer):
    """A method that builds a graph of the rows and cuts it.

    Args:
        device: device of the computation: "auto", "cpu", "cuda", ...
    """

    unit_rows: ClassVar[bool] = True  # whether rows are scaled to length one first

    device: str = knob("auto", check=check_device)

    @abstractmethod
    def affinity(self, x: Tensor) -> Tensor:
        """W (n, n) of the rows x (n, d): symmetric, non-negative, dense or sparse."""

    def label(self, X: Rows, seed: int) -> Labels:
        x = torch.from_numpy(X).to(choose_device(self.device))
        if self.unit_rows:
            x = unit_length(x)
        return cut(self.affinity(x), self.n_clusters, seed)
