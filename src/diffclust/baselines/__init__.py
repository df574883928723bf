"""The classical methods that papers compare with: a file each, and the list of them, which imports none of them.

Each is a scikit-learn estimator, and one call by its name::

    BASELINES["lsc-k"](X, k, seed) -> labels (n,)

X is (n, d) in floating point; flatten images first. Only k-means takes sparse rows.
"""

import numbers
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array


class Baseline(NamedTuple):
    """A classical method by its name on the command line; calling it gives labels."""

    name: str
    estimator: str
    module: str
    title: str
    paper: str
    settings: Mapping[str, Any] = {}

    def load(self) -> Any:
        """The estimator's class."""
        return getattr(import_module(self.module, __name__), self.estimator)

    def build(self, k: int, seed: int | None = None, **settings: Any) -> Any:
        """The estimator with its settings, and with others on top of them."""
        return self.load()(k, random_state=seed, **{**self.settings, **settings})

    def __call__(self, X: Any, k: int, seed: int, **settings: Any) -> NDArray[np.int64]:
        """Labels of the rows X (n, d)."""
        from ..reading.inputs import in_numbers

        kinds: dict[str, Any] = {"dtype": [np.float64, np.float32], "ensure_min_samples": 2}
        kinds["accept_sparse"] = "csr" if self.name == "kmeans" else False
        X = in_numbers(lambda X: check_array(X, **kinds), X)
        n = X.shape[0]
        if isinstance(k, bool) or not isinstance(k, numbers.Integral):
            raise TypeError(f"k={k!r:.50} should be an integer.")
        if not 1 <= k <= n:
            raise ValueError(f"k={k} should be from 1 to the number of rows, {n}.")
        return np.asarray(self.build(k, seed, **settings).fit_predict(X), dtype=np.int64)

    def needs(self, n: int, k: int) -> float:
        """Bytes needed for n rows, besides what grows linearly with n."""
        estimator = self.build(k)
        return float(estimator.needs(n)) if hasattr(estimator, "needs") else 0.0


NG = "Ng, Jordan and Weiss, On Spectral Clustering: Analysis and an Algorithm, NeurIPS 2001"
LANDMARKS = "Chen and Cai, Large Scale Spectral Clustering with Landmark-Based Representation, AAAI 2011"
REGRESSION = "Lu et al., Robust and Efficient Subspace Segmentation via Least Squares Regression, ECCV 2012"
BY_LANDMARKS = "W = ZD^-1Zᵀ, z_ij = K(x_i, u_j) / Σ_l K(x_i, u_l) over the nearest landmarks u"
LINKS = "Jain, Murty and Flynn, Data Clustering: A Review, ACM Computing Surveys 1999"

_ALL = (
    Baseline(
        "kmeans",
        "KMeans",
        "sklearn.cluster",
        "scikit-learn's k-means, the best of ten starts: min Σ_i |x_i - c_a(i)|²",
        "Lloyd, Least Squares Quantization in PCM, 1982",
        {"n_init": 10},
    ),
    Baseline(
        "gmm",
        "GMM",
        ".gmm",
        "a mixture of Gaussians: max Σ_i log Σ_j π_j N(x_i; m_j, diag(s_j²))",
        "Dempster, Laird and Rubin, Maximum Likelihood from Incomplete Data via the EM Algorithm, JRSS B 1977",
    ),
    Baseline(
        "fuzzy",
        "FuzzyCMeans",
        ".fuzzy",
        "soft memberships, fuzzy c-means (FCM): min Σ_ij u_ij² |x_i - c_j|²",
        "Bezdek, Pattern Recognition with Fuzzy Objective Function Algorithms, 1981",
    ),
    Baseline(
        "spectral",
        "Spectral",
        ".spectral",
        "normalised cuts of the graph W of ten nearest neighbours, for many rows: min tr(Fᵀ(I - D^-½WD^-½)F), FᵀF = I",
        "Shi and Malik, Normalized Cuts and Image Segmentation, TPAMI 2000",
    ),
    Baseline("njw", "NJW", ".spectral", "normalised cuts of all pairs, W_ij = exp(-|x_i - x_j|²/2σ²) (SC)", NG),
    Baseline("lsc-k", "LSC", ".lsc", f"spectral clustering with landmarks from k-means: {BY_LANDMARKS}", LANDMARKS),
    Baseline(
        "lsc-r",
        "LSC",
        ".lsc",
        f"spectral clustering with landmarks at random: {BY_LANDMARKS}",
        LANDMARKS,
        {"landmarks": "random"},
    ),
    Baseline(
        "sec",
        "SEC",
        ".sec",
        "spectral coordinates near a linear map of the rows: min tr(FᵀLF) + μ(|XV + 1bᵀ - F|² + γ|V|²)",
        "Nie et al., Spectral Embedded Clustering, TNN 2011",
    ),
    Baseline(
        "ssc",
        "SSC",
        "diffclust.methods.ssc",
        "sparse self-expression: min |C|_1 + λ/2 |X - XC|²",
        "Elhamifar and Vidal, Sparse Subspace Clustering: Algorithm, Theory, and Applications, TPAMI 2013",
        {"device": "cpu"},
    ),
    Baseline("lsr1", "LSR", ".lsr", "least-squares self-expression: min |X - XC|² + λ|C|², diag(C) = 0", REGRESSION),
    Baseline(
        "lsr2",
        "LSR",
        ".lsr",
        "least-squares self-expression, with the row itself: min |X - XC|² + λ|C|²",
        REGRESSION,
        {"zero_diagonal": False},
    ),
    Baseline(
        "lrr",
        "LRR",
        ".lrr",
        "low-rank self-expression: min |Z|_* + λ|E|_{2,1}, X = XZ + E",
        "Liu et al., Robust Recovery of Subspace Structures by Low-Rank Representation, TPAMI 2013",
    ),
    Baseline(
        "lrsc",
        "LRSC",
        ".lrsc",
        "low-rank self-expression in closed form: min |C|_* + τ/2 |X - XC|²",
        "Vidal and Favaro, Low Rank Subspace Clustering, Pattern Recognition Letters 2014",
    ),
    Baseline(
        "slrr",
        "SLRR",
        ".slrr",
        "LRR of a sample D; other rows by their codes c = (DDᵀ + γI)^-1 Dx: argmin_j |x - Dᵀδ_j(c)| / |δ_j(c)|",
        "Peng et al., A Unified Framework for Representation-Based Subspace Clustering, TNNLS 2016",
    ),
    Baseline(
        "smr",
        "SMR",
        ".smr",
        "smooth self-expression, similar for near rows: min α|X - XZ|² + tr(ZLZᵀ)",
        "Hu et al., Smooth Representation Clustering, CVPR 2014",
    ),
    Baseline(
        "nmf",
        "NMF",
        ".nmf",
        "additive parts: min |X - VH|², V and H >= 0",
        "Xu, Liu and Gong, Document Clustering Based on Non-negative Matrix Factorization, SIGIR 2003",
    ),
    Baseline(
        "nmf-lp",
        "NMFLP",
        ".nmf",
        "concepts made of rows, similar for near rows: min |X - VWᵀX|² + λ tr(VᵀLV)",
        "Cai, He and Han, Locally Consistent Concept Factorization for Document Clustering, TKDE 2011",
    ),
    Baseline(
        "zac",
        "ZAC",
        ".zac",
        "clusters merge by their shared cycles: log ζ_C(z) = -log det(I - zP_C)",
        "Zhao and Tang, Cyclizing Clusters via Zeta Function of a Graph, NeurIPS 2008",
    ),
    Baseline(
        "agglomerative-average",
        "Linkage",
        ".linkage",
        "merging by the mean distance of rows (ACAL): d(a ∪ b, c) = (|a| d(a, c) + |b| d(b, c)) / (|a| + |b|)",
        LINKS,
    ),
    Baseline(
        "agglomerative-weighted",
        "Linkage",
        ".linkage",
        "merging by the mean of the two parts' distances (ACWL): d(a ∪ b, c) = (d(a, c) + d(b, c)) / 2",
        LINKS,
        {"linkage": "weighted"},
    ),
)

#: Every method here by its name.
#:
#: :meta hide-value:
BASELINES: dict[str, Baseline] = {baseline.name: baseline for baseline in _ALL}

_OURS = {each.estimator: each for each in _ALL if each.module.startswith(".")}
__all__ = ["BASELINES", "Baseline", *_OURS]


def __getattr__(name: str) -> Any:
    if name in _OURS:
        return _OURS[name].load()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
