"""Scores of a clustering, against known labels and without labels."""

from .label_free import (
    calinski_harabasz,
    davies_bouldin,
    effective_clusters,
    label_free_scores,
    scatter,
    silhouette,
)
from .label_free import effective_number as effective_number  # for sizes, inside the package
from .labelled import (
    accuracy,
    ami,
    ari,
    completeness,
    confusion,
    homogeneity,
    match,
    nmi,
    pair_precision,
    purity,
    scores,
    v_measure,
)
from .labels import is_labelled as is_labelled

__all__ = [
    "accuracy",
    "ami",
    "ari",
    "calinski_harabasz",
    "completeness",
    "confusion",
    "davies_bouldin",
    "effective_clusters",
    "homogeneity",
    "label_free_scores",
    "match",
    "nmi",
    "pair_precision",
    "purity",
    "scatter",
    "scores",
    "silhouette",
    "v_measure",
]
