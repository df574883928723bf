"""Layers, losses and networks for one's own model: pure torch, no scikit-learn, no training loop."""

from .autoencoders import Autoencoder, ConvAutoencoder, DenseAutoencoder, Identity, PoolingAutoencoder
from .cluster import ClusterLayer, DistanceLayer
from .kmeans import KMeansResult, kmeans, kmeans_plus_plus, lloyd
from .mixture import GaussianMixture
from .ops import hard, log_student_t, sharpen, softmax, sparsemax, squared_distances

__all__ = [
    "Autoencoder",
    "ClusterLayer",
    "ConvAutoencoder",
    "DenseAutoencoder",
    "DistanceLayer",
    "GaussianMixture",
    "Identity",
    "KMeansResult",
    "PoolingAutoencoder",
    "hard",
    "kmeans",
    "kmeans_plus_plus",
    "lloyd",
    "log_student_t",
    "sharpen",
    "softmax",
    "sparsemax",
    "squared_distances",
]
