"""Layers, losses and networks for one's own model: pure torch, no scikit-learn, no training loop."""

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
from .eigenvectors import EigenvectorLayer, smallest_eigenvectors, top_singular_vectors
from .graph import affinity, laplacian
from .kmeans import KMeansResult, kmeans, kmeans_plus_plus, lloyd
from .ladmm import LADMMBlock, LADMMState, shrink, shrink_samples
from .mixture import GaussianMixture
from .ops import hard, log_student_t, sharpen, softmax, sparsemax, squared_distances
from .self_expression import SelfExpression, self_expression

__all__ = [
    "Autoencoder",
    "ClusterLayer",
    "ConvAutoencoder",
    "ConvDictionary",
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
    "hard",
    "kmeans",
    "kmeans_plus_plus",
    "laplacian",
    "lloyd",
    "log_student_t",
    "self_expression",
    "sharpen",
    "shrink",
    "shrink_samples",
    "smallest_eigenvectors",
    "softmax",
    "sparsemax",
    "squared_distances",
    "top_singular_vectors",
]
