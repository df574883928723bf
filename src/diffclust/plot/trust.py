"""Whether to trust the clusters: restarts, the number of clusters, their tree."""

from typing import Any

import numpy as np
from scipy.cluster.hierarchy import dendrogram
from sklearn.utils.validation import check_is_fitted

from ..report import trust
from .common import AGAINST, FOR, GREY, PALETTE, graph_objects

DOUBTFUL = "#b98000"


def stability(estimator: Any) -> Any:
    """How much of each cluster the other restarts find again; needs `n_init` > 1."""
    check_is_fitted(estimator)
    found = estimator.stability_
    tones = [FOR if share >= 0.75 else DOUBTFUL if share >= 0.5 else AGAINST for share in found]
    names = [f"cluster {j}" for j in range(len(found))]
    figure = graph_objects().Figure()
    figure.add_bar(x=found, y=names, orientation="h", marker_color=tones, texttemplate="%{x:.2f}")
    figure.update_xaxes(range=[0, 1], title="found again in the other runs (1: the same rows)")
    figure.update_yaxes(autorange="reversed", type="category")
    return figure.update_layout(title="Stability of the clusters", template="plotly_white")


def number_of_clusters(estimator: Any) -> Any:
    """The scores by which `n_clusters="auto"` chose among numbers of clusters; a dotted line marks the number
    that was chosen, or the best one if that is one cluster."""
    check_is_fitted(estimator)
    found = trust.number_of_clusters(estimator)
    if not found or not found["candidates"]:
        raise ValueError('The number of clusters was not chosen among several: that is what n_clusters="auto" does.')
    figure, candidates = graph_objects().Figure(), found["candidates"]
    for name, tone, width in (
        ("score", PALETTE[0], 3),
        ("silhouette", PALETTE[1], 1.5),
        ("agreement", PALETTE[2], 1.5),
    ):
        values = found["agreements" if name == "agreement" else f"{name}s"]
        figure.add_scatter(
            x=candidates, y=values, name=name, mode="lines+markers", line={"color": tone, "width": width}
        )
    several = found["n_clusters"] in candidates
    marked = found["n_clusters"] if several else candidates[int(np.argmax(found["scores"]))]
    figure.add_vline(marked, line_dash="dot", line_color=GREY)
    return figure.update_layout(title="Number of clusters", xaxis_title="clusters", template="plotly_white")


def tree(estimator: Any) -> Any:
    """The tree of the clusters (`hierarchy_`): those that merge at a low height are closest."""
    check_is_fitted(estimator)
    merges = trust.tree(estimator)
    if merges is None:
        raise ValueError("There is no tree: it needs cluster centres, and at least two clusters.")
    drawn = dendrogram(counting_clusters(np.asarray(merges)), no_plot=True)
    figure = graph_objects().Figure()
    for x, y in zip(drawn["icoord"], drawn["dcoord"], strict=True):
        figure.add_scatter(
            x=x, y=y, mode="lines", line_color=PALETTE[0], hovertemplate="height %{y:.4g}<extra></extra>"
        )
    places = 5 + 10 * np.arange(len(drawn["ivl"]))  # of the leaves, in scipy's units
    figure.update_xaxes(tickvals=places, ticktext=[f"cluster {j}" for j in drawn["ivl"]], showgrid=False)
    figure.update_xaxes(range=[0, 10 * len(places)])
    figure.update_yaxes(title="height", rangemode="tozero")
    return figure.update_layout(title="Which clusters are close", template="plotly_white", showlegend=False)


def counting_clusters(merges: np.ndarray) -> np.ndarray:
    """Merges that count their rows -> merges that count their clusters, which is what scipy's `dendrogram` takes."""
    clusters = np.ones(2 * len(merges) + 1)
    for step, (i, j) in enumerate(merges[:, :2].astype(int), len(merges) + 1):
        clusters[step] = clusters[i] + clusters[j]
    return np.column_stack([merges[:, :3], clusters[len(merges) + 1 :]])
