"""The networks of the papers: dense, convolutional, for rows, dictionaries, and none at all.

An autoencoder takes values in the user's units. It first computes `(x - shift) / scale` and reverses this at the end,
so that training sees well-scaled numbers. Both are buffers, with one number or one per feature, and are saved with the
weights.
"""

from .base import Autoencoder, Identity, Wrapped
from .dense import DenseAutoencoder, DropoutAt
from .dictionaries import ConvDictionary, RowDictionary
from .images import ConvAutoencoder, PoolingAutoencoder, ResidualAutoencoder
from .rows import RowAutoencoder, ScaledRows

__all__ = [
    "NETWORKS",
    "Autoencoder",
    "ConvAutoencoder",
    "ConvDictionary",
    "DenseAutoencoder",
    "DropoutAt",
    "Identity",
    "PoolingAutoencoder",
    "ResidualAutoencoder",
    "RowAutoencoder",
    "RowDictionary",
    "ScaledRows",
    "Wrapped",
]

NETWORKS: dict[str, type[Autoencoder]] = {
    "dense": DenseAutoencoder,
    "dictionary": RowDictionary,
    "conv": ConvAutoencoder,
    "conv-dictionary": ConvDictionary,
    "conv-pool": PoolingAutoencoder,
    "identity": Identity,
    "residual": ResidualAutoencoder,
    "rows": RowAutoencoder,
    "scaled": ScaledRows,
}
