"""Clusters: their centres, and what sets them apart."""

from html import escape
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..explain import ClusterExplanation
from ..explain.clusters import Census
from ..explain.pictures import displayable
from ..explain.rows import Subject, decoded_centers, names_of
from ..report.curves import curves_of
from ..report.material import NAMED
from ..report.spreads import distinctive, spreads
from .common import AGAINST, FOR, GREY, bars, colour, graph_objects, grid


def centers(estimator: Any, *, columns: int = 10) -> Any:
    """The decoded centre of each cluster, as images or as bars of features."""
    check_is_fitted(estimator)
    go = graph_objects()
    decoded = decoded_centers(estimator)
    if decoded is None:
        raise ValueError(f"{type(estimator).__name__} has no decoder to show its centres with.")
    decoded = estimator._as_given(decoded)
    k = len(decoded)
    columns = min(columns, k)
    figure = grid(-(-k // columns), columns, subplot_titles=[str(j) for j in range(k)])
    images = decoded.ndim == 4
    pictures = (
        displayable(decoded.numpy(), min(0.0, float(decoded.min())), max(1.0, float(decoded.max()))) if images else ()
    )
    names = names_of(estimator, None)
    names = None if names is None else [escape(name) for name in names]
    for j in range(k):
        where = {"row": j // columns + 1, "col": j % columns + 1}
        if images:
            picture = (np.broadcast_to(pictures[j], (*pictures[j].shape[:2], 3)) * 255).astype(np.uint8)
            figure.add_trace(go.Image(z=picture), **where)
        else:
            figure.add_trace(go.Bar(x=names, y=decoded[j].tolist(), marker_color=colour(j), showlegend=False), **where)
    if images:
        figure.update_xaxes(visible=False).update_yaxes(visible=False)
    return figure.update_layout(title="Decoded centres", template="plotly_white")


def curves(estimator: Any, X: Any, *, columns: int = 4) -> Any:
    """Of rows that are curves: the mean of each cluster, the band of 80 % of its rows, and in grey the mean of all
    rows."""
    go = graph_objects()
    found = curves_of(Census.of(Subject.of(estimator, X)))
    if found is None:
        raise ValueError("The rows are not curves, whose columns are alike where they stand side by side.")
    k, names = len(found.means), [escape(name) for name in found.names]
    wide = min(columns, k)
    titles = [f"Cluster {j}" for j in range(k)]
    figure = grid(-(-k // wide), wide, subplot_titles=titles, shared_yaxes="all")
    for j in range(k):
        place = {"row": j // wide + 1, "col": j % wide + 1}
        edges = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "x": names}
        figure.add_trace(go.Scatter(y=found.low[j], **edges), **place)
        figure.add_trace(
            go.Scatter(y=found.high[j], fill="tonexty", fillcolor="rgba(120, 120, 120, 0.2)", **edges), **place
        )
        figure.add_trace(go.Scatter(x=names, y=found.whole, name="all rows", line_color=GREY), **place)
        figure.add_trace(go.Scatter(x=names, y=found.means[j], name=titles[j], line_color=colour(j)), **place)
    return figure.update_layout(title="Curves", template="plotly_white", showlegend=False)


def cluster(explanation: ClusterExplanation) -> Any:
    """What distinguishes a cluster: its features, or for images its decoded centre and the difference from the
    others."""
    go = graph_objects()
    title = f"Cluster {explanation.cluster}: {explanation.size:,} rows"
    if explanation.features is not None:
        figure = grid(1, 1)
        bars(figure, explanation.features, 1)
        return figure.update_layout(title=title, template="plotly_white", showlegend=False)
    if explanation.decoded is None or explanation.difference is None:
        raise ValueError("There is neither a decoded centre nor a list of features to show.")
    figure = grid(1, 2, subplot_titles=["decoded centre", "more or less than the others"])
    for column, (values, scale) in enumerate(
        ((explanation.decoded, "Greys_r"), (explanation.difference, [[0, AGAINST], [0.5, "#ffffff"], [1, FOR]])), 1
    ):
        flat = values if values.ndim == 2 else values.mean(0 if values.shape[0] <= 4 else 2)
        most = float(np.abs(flat).max()) or 1.0
        span = {"zmin": -most, "zmax": most} if column == 2 else {}
        figure.add_trace(go.Heatmap(z=flat, colorscale=scale, showscale=False, **span), 1, column)
    figure.update_yaxes(autorange="reversed", visible=False).update_xaxes(visible=False)
    return figure.update_layout(title=title, template="plotly_white")


def distributions(estimator: Any, X: Any, j: int, *, n: int = NAMED, columns: int = 3) -> Any:
    """How the n columns that set cluster j apart are distributed in it, and in grey over all rows."""
    go, census = graph_objects(), Census.of(Subject.of(estimator, X))
    if not 0 <= j < len(census.means):
        raise ValueError(f"j={j} should be from 0 to {len(census.means) - 1}.")
    wanted = distinctive(census, j, n) if census.subject.feature_names else []
    measured = spreads(census, set(wanted))
    found = [measured[i] for i in wanted if i in measured]
    if not found:
        raise ValueError(f"No column sets cluster {j} apart.")
    wide = min(columns, len(found))
    titles = [escape(each.name) for each in found]
    figure = grid(-(-len(found) // wide), wide, subplot_titles=titles)
    for i, each in enumerate(found):
        where = {"row": i // wide + 1, "col": i % wide + 1}
        bins = [escape(place) for place in each.places]
        if each.is_range:
            bins = [f"part {at + 1} of {each.shares.shape[1]}" for at in range(each.shares.shape[1])]
            figure.update_xaxes(showticklabels=False, title=" to ".join(map(escape, each.places)), **where)
        figure.add_trace(go.Bar(x=bins, y=each.shares[-1], name="all rows", marker_color=GREY), **where)
        own = {"name": f"cluster {j}", "marker_color": colour(j), "opacity": 0.85, "width": 0.6}
        figure.add_trace(go.Bar(x=bins, y=each.shares[j], **own), **where)
    figure.update_yaxes(tickformat=".0%")
    title = f"Cluster {j} (in colour) and all rows (grey)"
    return figure.update_layout(title=title, barmode="overlay", template="plotly_white", showlegend=False)
