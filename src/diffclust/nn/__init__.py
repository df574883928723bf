"""Layers, losses and networks for your own model: pure PyTorch, no scikit-learn, no training loop."""

from .autoencoders import (
    Autoencoder,
    ConvAutoencoder,
    ConvDictionary,
    DenseAutoencoder,
    Identity,
    PoolingAutoencoder,
    RowDictionary,
)
from .cluster import ClusterLayer, DistanceLayer
from .cross_metric import CrossMetricLayer
from .eigenvectors import EigenvectorLayer, smallest_eigenvectors, top_singular_vectors
from .graph import affinity, laplacian
from .kmeans import KMeansResult, kmeans, kmeans_plus_plus, lloyd
from .ladmm import LADMMBlock, LADMMState, shrink, shrink_samples
from .mixture import GaussianMixture
from .nearest import member_sums, nearest
from .ops import (
    cityblock,
    correlation,
    cosine,
    euclidean,
    hard,
    jensen_shannon,
    kl_divergence,
    log_balance,
    log_student_t,
    sharpen,
    softmax,
    sparse_closeness,
    sparsemax,
    squared_distances,
    squared_hellinger,
)
from .self_expression import SelfExpression, self_expression

__all__ = [
    "Autoencoder",
    "ClusterLayer",
    "ConvAutoencoder",
    "ConvDictionary",
    "CrossMetricLayer",
    "DenseAutoencoder",
    "DistanceLayer",
    "EigenvectorLayer",
    "GaussianMixture",
    "Identity",
    "KMeansResult",
    "LADMMBlock",
    "LADMMState",
    "PoolingAutoencoder",
    "RowDictionary",
    "SelfExpression",
    "affinity",
    "cityblock",
    "correlation",
    "cosine",
    "euclidean",
    "hard",
    "jensen_shannon",
    "kl_divergence",
    "kmeans",
    "kmeans_plus_plus",
    "laplacian",
    "lloyd",
    "log_balance",
    "log_student_t",
    "member_sums",
    "nearest",
    "self_expression",
    "sharpen",
    "shrink",
    "shrink_samples",
    "smallest_eigenvectors",
    "softmax",
    "sparse_closeness",
    "sparsemax",
    "squared_distances",
    "squared_hellinger",
    "top_singular_vectors",
]
