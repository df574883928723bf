"""Methods, models, dates and true classes beside each other."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from .. import metrics
from ..report.comparison import Comparison
from .common import GREY, colour, graph_objects


def comparison(runs: Sequence[Mapping[str, Any]]) -> Any:
    """Every run of `diffclust compare` as a dot, its score over its seconds; the methods with the best runs first.

    Args:
        runs: the lines of its .csv file, such as `pandas.read_csv(file).to_dict("records")`; the score is ACC where
            there are labels, else silhouette.
    """
    score = "ACC" if runs and "ACC" in runs[0] else "silhouette"
    by_method: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        if run[score] is not None and not np.isnan(run[score]):  # of a run that failed
            by_method.setdefault(run["method"], []).append(run)
    if not by_method:
        raise ValueError("No run has a score.")
    figure = graph_objects().Figure()
    for j, (name, own) in enumerate(sorted(by_method.items(), key=lambda item: -max(run[score] for run in item[1]))):
        figure.add_scatter(
            x=[run["seconds"] for run in own],
            y=[100 * run[score] for run in own],
            mode="markers",
            marker={"color": colour(j), "size": 10},
            name=escape(name),
        )
    figure.update_layout(xaxis={"title": "seconds", "type": "log"}, yaxis={"title": score}, template="plotly_white")
    return figure


def confusion(y: Any, labels: Any) -> Any:
    """True classes against clusters, each cluster next to its best matching class."""
    go = graph_objects()
    classes, clusters, table = metrics.confusion(y, labels)
    figure = go.Figure(
        go.Heatmap(
            z=table,
            x=[f"cluster {escape(str(j))}" for j in clusters],
            y=[f"class {escape(str(c))}" for c in classes],
            colorscale="Blues",
            texttemplate="%{z}",
        )
    )
    figure.update_yaxes(autorange="reversed")
    accuracy = 100 * metrics.accuracy(y, labels)
    return figure.update_layout(title=f"Classes and clusters: {accuracy:.1f} % matched", template="plotly_white")


def flows(found: Comparison) -> Any:
    """How many rows go from each cluster of the first model to each of the second; matched ones share a colour."""
    if found.flows is None:
        raise ValueError("One model has no flows between clusters: see `shares`.")
    before, after = found.flows.shape
    first = {pair.after: pair.before for pair in found.pairs if pair.before is not None}
    tones = [colour(i) for i in range(before)]
    tones += [GREY if first.get(j) is None else colour(first[j]) for j in range(after)]
    names = [_said(found, side, j) for side, k in enumerate((before, after)) for j in range(k)]
    i, j = np.nonzero(found.flows)
    link = {"source": i, "target": before + j, "value": found.flows[i, j], "color": "rgba(120, 120, 120, 0.25)"}
    figure = graph_objects().Figure(graph_objects().Sankey(node={"label": names, "color": tones}, link=link))
    return figure.update_layout(
        title=f"From {escape(found.names[0])} to {escape(found.names[1])}", template="plotly_white"
    )


def shares(found: Comparison) -> Any:
    """The share of each cluster before and after; a star marks a change beyond chance."""
    names = [
        _said(found, *((0, pair.before) if pair.before is not None else (1, pair.after))) + " *" * bool(pair.drifted)
        for pair in found.pairs
    ]
    figure = graph_objects().Figure()
    for side, tone in enumerate((GREY, colour(0))):
        own = [pair.shares[side] for pair in found.pairs]
        figure.add_bar(x=own, y=names, orientation="h", name=escape(found.names[side]), marker_color=tone)
    figure.update_yaxes(autorange="reversed", type="category")
    return figure.update_layout(title="Shares of the clusters", xaxis_tickformat=".0%", template="plotly_white")


def _said(found: Comparison, side: int, j: int | None) -> str:
    name = found.called[side].get(-1 if j is None else j)
    return f"{escape(found.names[side])}: {j}" + (f" {escape(name)}" if name else "")
