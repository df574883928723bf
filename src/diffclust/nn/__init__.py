"""Layers, losses and networks for one's own model: pure torch, no scikit-learn, no training loop."""

from .autoencoders import Autoencoder, ConvAutoencoder, DenseAutoencoder, Identity, PoolingAutoencoder
from .cluster import ClusterLayer
from .kmeans import KMeansResult, kmeans, kmeans_plus_plus, lloyd
from .ops import hard, softmax, sparsemax, squared_distances

__all__ = [
    "Autoencoder",
    "ClusterLayer",
    "ConvAutoencoder",
    "DenseAutoencoder",
    "Identity",
    "KMeansResult",
    "PoolingAutoencoder",
    "hard",
    "kmeans",
    "kmeans_plus_plus",
    "lloyd",
    "softmax",
    "sparsemax",
    "squared_distances",
]
