"""GMM: a mixture of Gaussians with diagonal covariances, by EM from a k-means start.

Dempster, Laird, Rubin: "Maximum Likelihood from Incomplete Data via the EM Algorithm", JRSS B 1977::

    max Σ_i log Σ_j π_j N(x_i; m_j, diag(s_j²))
"""

import numpy as np
from numpy.typing import NDArray
from sklearn.mixture import GaussianMixture
from sklearn.utils.validation import check_is_fitted, validate_data

from .clusterer import ClassicalClusterer, Labels, Rows, hyperparameters, knob

MIN_VARIANCE = 1e-3  # smallest variance, as a share of that of the data: pixels that are always black have none


@hyperparameters
class GMM(ClassicalClusterer):
    """Mixture of Gaussians with diagonal covariances.

    Args:
        max_iter: maximal number of EM iterations.
    """

    max_iter: int = knob(300, low=1)

    def label(self, X: Rows, seed: int) -> Labels:
        floor = max(MIN_VARIANCE * float(X.var(axis=0).mean()), 1e-12)
        self.mixture_ = GaussianMixture(
            self.n_clusters, covariance_type="diag", reg_covar=floor, max_iter=self.max_iter, random_state=seed
        )
        labels = self.mixture_.fit_predict(X)
        self.n_iter_ = self.mixture_.n_iter_
        return labels

    def predict(self, X: object) -> Labels:
        """The likeliest component of each row."""
        return np.asarray(self.predict_proba(X).argmax(1), dtype=np.int64)

    def predict_proba(self, X: object) -> NDArray[np.float64]:
        """The probability of each component."""
        check_is_fitted(self)
        return self.mixture_.predict_proba(validate_data(self, X, dtype=np.float64, reset=False))
