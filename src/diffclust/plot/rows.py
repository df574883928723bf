"""Rows: all of them on a map, and why one is in its cluster."""

from collections.abc import Sequence
from html import escape
from typing import Any, Literal

import numpy as np

from ..explain import RowExplanation
from ..explain.clusters import Census
from ..explain.rows import Subject
from ..explain.words import heaviest
from ..report.density import LEVELS, density_of
from ..report.layout import Layout, spread_out
from ..report.trust import row_stability
from .common import AGAINST, FOR, bars, colour, graph_objects, grid, plane

SHADE = [[0, "rgba(29,36,48,0)"], [1, "rgba(29,36,48,0.22)"]]


def embedding(
    estimator: Any,
    X: Any,
    *,
    color: Literal["cluster", "probability", "stability"] | Sequence[Any] = "cluster",
    captions: Sequence[str] | None = None,
    sample: int = 2000,
    layout: Layout = "t-SNE",
) -> Any:
    """The rows of X on a map of the embedding; of more than `sample`, evenly spaced ones, and a shade where most of all
    rows are.

    Args:
        color: "cluster", "probability", "stability" (over the restarts of the fit; X are its rows), or a label for each
            row, such as the true ones.
        captions: a text for each row, shown when it is pointed at.
    """
    go = graph_objects()
    census = Census.of(Subject.of(estimator, X))
    n = len(census.labels)
    for name, given in (("color", color if not isinstance(color, str) else None), ("captions", captions)):
        if given is not None and len(given) != n:
            raise ValueError(f"{name} has {len(given)} entries for {n} rows.")
    rows = np.linspace(0, n - 1, min(n, sample)).astype(int)
    z = census.z.cpu().numpy()
    flat = spread_out(z[rows], layout)
    captions = None if captions is None else list(captions)  # by position, also of a Series
    words = [
        f"row {i}, cluster {census.labels[i]}, probability {census.probability[i]:.3f}"
        + (f"<br>{escape(str(captions[i])[:200])}" if captions is not None else "")
        for i in rows
    ]
    figure = go.Figure()
    shown = {"mode": "markers", "hoverinfo": "text"}
    if isinstance(color, str) and color in ("probability", "stability"):
        values = census.probability if color == "probability" else row_stability(estimator, census)
        if values is None:
            raise ValueError("Stability is that of rows over the restarts of a fit: set n_init > 1, and give its rows.")
        marker = {"color": values[rows], "colorscale": "Viridis", "showscale": True, "size": 6}
        figure.add_trace(go.Scatter(x=flat[:, 0], y=flat[:, 1], text=words, marker=marker, **shown))
    else:
        if isinstance(color, str) and color != "cluster":
            raise ValueError(
                f"color={color!r} should be 'cluster', 'probability', 'stability' or a label for each row."
            )
        labels = census.labels if isinstance(color, str) else np.asarray(color)
        labels = labels.astype(str) if labels.dtype.kind == "O" else labels  # None and words have no order
        for j, label in enumerate(np.unique(labels)):
            own = np.flatnonzero(labels[rows] == label)
            if not len(own):
                continue
            marker = {"color": colour(int(label) if isinstance(color, str) else j), "size": 6}
            text = [words[i] for i in own]
            name = escape(str(label))
            figure.add_trace(go.Scatter(x=flat[own, 0], y=flat[own, 1], text=text, name=name, marker=marker, **shown))
    density = density_of(z, rows, flat)
    if density is not None:
        lines = {"start": LEVELS[0], "end": LEVELS[-1], "size": LEVELS[1] - LEVELS[0], "showlines": False}
        shade = {"colorscale": SHADE, "zmin": 0, "zmax": 100, "showscale": False, "hoverinfo": "skip"}
        place = {"x": density.x, "y": density.y, "z": density.sparser}
        figure.add_trace(go.Contour(**place, contours=lines, autocontour=False, line_width=0, **shade))
    return plane(figure, f"{type(estimator).__name__}: {len(rows):,} rows by {layout}")


def row(explanation: RowExplanation, *, n: int = 12) -> Any:
    """Why a row is in its cluster: its heat map, for an image, and the contributions to the margin."""
    go = graph_objects()
    heat = explanation.attributions is not None and explanation.feature_names is None
    if explanation.feature_names is not None and explanation.attributions is not None:
        pairs = explanation.top(n)
    else:
        pairs = heaviest(explanation.contribution_names, explanation.contributions, n)
    figure = grid(1, 1 + heat, column_widths=[0.4, 0.6] if heat else None)
    if heat:
        values = explanation.attributions
        assert values is not None
        channels = {"channels-first": 0, "channels-last": 2}.get(explanation.shape.layout)
        values = values if channels is None else values.sum(channels)
        most = float(np.abs(values).max()) or 1.0
        scale = [[0, AGAINST], [0.5, "#ffffff"], [1, FOR]]
        figure.add_trace(go.Heatmap(z=values, zmin=-most, zmax=most, colorscale=scale, showscale=False), 1, 1)
        figure.update_yaxes(autorange="reversed", scaleanchor="x", visible=False, row=1, col=1)
        figure.update_xaxes(visible=False, row=1, col=1)
    bars(figure, pairs, 1 + heat)
    title = f"Row {explanation.row}: cluster {explanation.cluster}, probability {explanation.probability:.3f}"
    return figure.update_layout(title=title, template="plotly_white", showlegend=False)
