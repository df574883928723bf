"""The networks of the papers: dense, convolutional, for rows, dictionaries, and none at all.

An autoencoder takes values as the user has them. Its first act is `(x - shift) / scale`, its last the
reverse, so that training sees well-scaled numbers whatever the units; both are buffers, one number each
or one a feature, and travel with the weights.
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
