"""The clusters of a fitted estimator as a tree."""

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ..nn.hierarchy import cut_tree, ward_tree
from .state import snapshot


class Hierarchical:
    """`n_clusters_`, `hierarchy_` and `cut`: read off the centres and sizes as they are, after a stream's steps too."""

    if TYPE_CHECKING:
        labels_: np.ndarray
        cluster_centers_: np.ndarray
        diagnostics_: dict[str, Any]

        def predict(self, X: Any) -> Any: ...

    @property
    def n_clusters_(self) -> int:
        """How many clusters there are."""
        return len(self.cluster_centers_)

    @property
    def hierarchy_(self) -> np.ndarray:
        """Which clusters are joined first, and at what height: a tree by Ward's rule (k - 1, 4), as scipy's `linkage`
        writes it and its `dendrogram` draws it."""
        return ward_tree(self.cluster_centers_, np.asarray(self.diagnostics_["sizes"]))

    def cut(self, k: int, X: Any = None) -> Any:
        """Labels with k clusters, fewer than there are, without training: those that the tree joins first are one.

        Args:
            k: how many, from 1 to `n_clusters_`.
            X: rows to label; by default those of the fit.
        """
        fitted = snapshot(self)
        check_is_fitted(fitted)
        coarse = cut_tree(fitted.hierarchy_, k)
        labels = fitted.labels_ if X is None else fitted.predict(X)
        return labels.new_tensor(coarse)[labels] if isinstance(labels, Tensor) else coarse[labels]
