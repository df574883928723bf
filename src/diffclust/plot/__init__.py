"""Plots for notebooks: the figures of the report as plotly figures, to be shown as they are or restyled.

They need `diffclust[report]`::

    from diffclust import plot

    plot.embedding(model, X).show()
    plot.row(model.explain(X[:1])[0]).update_layout(template="plotly_dark")
"""

from .clusters import centers, cluster, curves, distributions
from .compare import comparison, confusion, flows, shares
from .rows import embedding, row
from .training import losses, training
from .trust import number_of_clusters, stability, tree

__all__ = [
    "centers",
    "cluster",
    "comparison",
    "confusion",
    "curves",
    "distributions",
    "embedding",
    "flows",
    "losses",
    "number_of_clusters",
    "row",
    "shares",
    "stability",
    "training",
    "tree",
]
