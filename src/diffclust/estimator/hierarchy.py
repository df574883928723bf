"""The tree of clusters of a fitted estimator."""

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ..nn.hierarchy import cut_tree, ward_tree
from .state import snapshot


class HierarchyMixin:
    """`n_clusters_`, `hierarchy_` and `cut`, computed from the current centres and sizes, also after `partial_fit`."""

    if TYPE_CHECKING:
        labels_: np.ndarray
        cluster_centers_: np.ndarray
        diagnostics_: dict[str, Any]

        def predict(self, X: Any) -> Any: ...

    @property
    def n_clusters_(self) -> int:
        """The number of clusters."""
        return len(self.cluster_centers_)

    @property
    def hierarchy_(self) -> np.ndarray:
        """The tree of clusters by Ward linkage (k - 1, 4), as scipy's `linkage`, but the last column counts rows, not
        clusters. `diffclust.plot.tree` draws it."""
        return ward_tree(self.cluster_centers_, np.asarray(self.diagnostics_["sizes"]))

    def cut(self, k: int, X: Any = None) -> Any:
        """Labels with fewer clusters, k of them, without training: the tree is cut into k parts.

        Args:
            k: number of clusters, from 1 to `n_clusters_`.
            X: rows to label; by default the training rows.
        """
        fitted = snapshot(self)
        check_is_fitted(fitted)
        coarse = cut_tree(fitted.hierarchy_, k)
        labels = fitted.labels_ if X is None else fitted.predict(X)
        return labels.new_tensor(coarse)[labels] if isinstance(labels, Tensor) else coarse[labels]
