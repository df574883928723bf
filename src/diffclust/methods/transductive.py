"""Shared by SSC and DSCNet: they label only the rows they are fitted on."""

import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning

from ..engine.distributed import current_processes
from ..estimator.knobs import check_knobs
from ..estimator.state import fitted_names, set_attributes
from ..metrics import effective_clusters
from ..reading.inputs import UserInput, read_rows

ABSENT_METHODS = ("predict", "predict_proba", "transform", "partial_fit", "score", "save")


class TransductiveClusterer(ClusterMixin, BaseEstimator):
    n_clusters: int

    def _read(self, X: Any) -> UserInput:
        """Settings and data, checked."""
        check_knobs(self)
        name = type(self).__name__
        if not current_processes().alone:
            raise ValueError(
                f"{name} cannot be shared by several processes: every row is reconstructed from all others."
            )
        given = read_rows(self, X, fitting=True)
        n = len(given.rows)
        if n < 2:
            raise ValueError(f"Found array with {n} sample(s) while a minimum of 2 is required by {name}.")
        if n < self.n_clusters:
            raise ValueError(f"n_samples={n} should be >= n_clusters={self.n_clusters}.")
        return given

    def _adopt(
        self, given: UserInput, labels: np.ndarray, messages: list[str], diagnostics: dict[str, Any], **fitted: Any
    ) -> None:
        """Keep the result, nothing of an earlier fit, and warn the caller of `fit`."""
        sizes = np.bincount(labels, minlength=self.n_clusters)
        if not sizes.all():
            messages = [*messages, f"{(sizes == 0).sum()} of {self.n_clusters} clusters are empty."]
        common = {"sizes": sizes.tolist(), "effective_clusters": effective_clusters(labels)}
        fitted |= {"labels_": labels, "diagnostics_": {**common, **diagnostics, "warnings": messages}}
        set_attributes(self, {**given.attributes, **fitted}, without=fitted_names(self))
        for message in messages:
            warnings.warn(message, ConvergenceWarning, stacklevel=3)

    def __getattr__(self, name: str) -> Any:
        if name in ABSENT_METHODS:
            raise AttributeError(
                f"{type(self).__name__} has no {name!r}: it is transductive and labels only the rows it was fitted on "
                "(labels_, fit_predict). SSCNet answers for new rows."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.three_d_array = True
        return tags
