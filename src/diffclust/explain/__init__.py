"""Explanations: why a row is in its cluster, what a cluster is, why two rows are together, what the model is."""

from .clusters import ClusterExplanation
from .model import ModelExplanation
from .pairs import PairExplanation
from .rows import Explanations, RowExplanation

__all__ = [
    "ClusterExplanation",
    "Explanations",
    "ModelExplanation",
    "PairExplanation",
    "RowExplanation",
]
