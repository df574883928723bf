"""Plots for notebooks: plotly figures, to be shown as they are or restyled.

They need `diffclust[report]`::

    from diffclust import plot

    plot.embedding(model, X).show()
    plot.row(model.explain(X[:1])[0]).update_layout(template="plotly_dark")
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from . import metrics
from .callbacks import TrainingRecord
from .explain import ClusterExplanation, RowExplanation
from .explain.clusters import Census
from .explain.pictures import displayable
from .explain.rows import Subject, decoded_centers, names_of
from .explain.words import heaviest
from .extras import extra
from .report.curves import curves_of
from .report.layout import Layout, follow, spread_out

__all__ = ["centers", "cluster", "comparison", "confusion", "curves", "embedding", "losses", "row", "training"]

FOR, AGAINST = "#1a7f5a", "#b3402a"
PALETTE = (
    "#3b76b5", "#e8862e", "#4a9d5b", "#d1495b", "#7d5ba6", "#9a6b4b", "#d977a8", "#7a7f87", "#a9a12f", "#2ba6b5",
)  # fmt: skip


def _go() -> Any:
    return extra("plotly.graph_objects", "report", "A plot", package="plotly")


def _colour(j: int) -> str:
    return PALETTE[j] if j < len(PALETTE) else f"hsl({j * 137.508 % 360:.0f}, 60%, 50%)"


def _plane(figure: Any, title: str) -> Any:
    axis = {"showgrid": False, "zeroline": False, "showticklabels": False}
    figure.update_layout(title=title, xaxis=axis, yaxis={**axis, "scaleanchor": "x"}, template="plotly_white")
    return figure


def embedding(
    estimator: Any,
    X: Any,
    *,
    color: Literal["cluster", "probability"] | Sequence[Any] = "cluster",
    captions: Sequence[str] | None = None,
    sample: int = 2000,
    layout: Layout = "t-SNE",
) -> Any:
    """The rows of X on a map of the embedding; of more than `sample`, evenly spaced ones.

    Args:
        color: "cluster", "probability", or a label for each row, such as the true ones.
        captions: a text for each row, shown when it is pointed at.
    """
    go = _go()
    census = Census.of(Subject.of(estimator, X))
    n = len(census.labels)
    for name, given in (("color", color if not isinstance(color, str) else None), ("captions", captions)):
        if given is not None and len(given) != n:
            raise ValueError(f"{name} has {len(given)} entries for {n} rows.")
    rows = np.linspace(0, n - 1, min(n, sample)).astype(int)
    flat = spread_out(census.z.cpu().numpy()[rows], layout)
    words = [
        f"row {i}, cluster {census.labels[i]}, probability {census.probability[i]:.3f}"
        + (f"<br>{escape(str(captions[i])[:200])}" if captions is not None else "")
        for i in rows
    ]
    figure = go.Figure()
    shown = {"mode": "markers", "hoverinfo": "text"}
    if isinstance(color, str) and color == "probability":
        marker = {"color": census.probability[rows], "colorscale": "Viridis", "showscale": True, "size": 6}
        figure.add_trace(go.Scatter(x=flat[:, 0], y=flat[:, 1], text=words, marker=marker, **shown))
    else:
        if isinstance(color, str) and color != "cluster":
            raise ValueError(f"color={color!r} should be 'cluster', 'probability' or a label for each row.")
        labels = census.labels[rows] if isinstance(color, str) else np.asarray(color)[rows]
        for j, label in enumerate(np.unique(labels)):
            own = np.flatnonzero(labels == label)
            marker = {"color": _colour(j), "size": 6}
            text = [words[i] for i in own]
            name = escape(str(label))
            figure.add_trace(go.Scatter(x=flat[own, 0], y=flat[own, 1], text=text, name=name, marker=marker, **shown))
    return _plane(figure, f"{type(estimator).__name__}: {len(rows):,} rows by {layout}")


def centers(estimator: Any, *, columns: int = 10) -> Any:
    """The decoded centre of each cluster, as images or as bars of features."""
    check_is_fitted(estimator)
    go, subplots = _go(), extra("plotly.subplots", "report", "A plot", package="plotly")
    decoded = decoded_centers(estimator)
    if decoded is None:
        raise ValueError(f"{type(estimator).__name__} has no decoder to show its centres with.")
    decoded = estimator._as_given(decoded)
    k = len(decoded)
    columns = min(columns, k)
    grid = subplots.make_subplots(-(-k // columns), columns, subplot_titles=[str(j) for j in range(k)])
    images = decoded.ndim == 4
    pictures = (
        displayable(decoded.numpy(), min(0.0, float(decoded.min())), max(1.0, float(decoded.max()))) if images else ()
    )
    names = names_of(estimator, None)
    for j in range(k):
        where = {"row": j // columns + 1, "col": j % columns + 1}
        if images:
            picture = (np.broadcast_to(pictures[j], (*pictures[j].shape[:2], 3)) * 255).astype(np.uint8)
            grid.add_trace(go.Image(z=picture), **where)
        else:
            grid.add_trace(go.Bar(x=names, y=decoded[j].tolist(), marker_color=_colour(j), showlegend=False), **where)
    if images:
        grid.update_xaxes(visible=False).update_yaxes(visible=False)
    return grid.update_layout(title="Decoded centres", template="plotly_white")


def curves(estimator: Any, X: Any, *, columns: int = 4) -> Any:
    """Of rows that are curves: the mean of each cluster, the band of 80 % of its rows, and in grey the mean of all
    rows."""
    go, subplots = _go(), extra("plotly.subplots", "report", "A plot", package="plotly")
    found = curves_of(Census.of(Subject.of(estimator, X)))
    if found is None:
        raise ValueError("The rows are no curves: of these, columns that stand side by side are alike.")
    k = len(found.means)
    wide = min(columns, k)
    titles = [f"Cluster {j}" for j in range(k)]
    grid = subplots.make_subplots(-(-k // wide), wide, subplot_titles=titles, shared_yaxes="all")
    for j in range(k):
        place = {"row": j // wide + 1, "col": j % wide + 1}
        edges = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "x": found.names}
        grid.add_trace(go.Scatter(y=found.low[j], **edges), **place)
        grid.add_trace(
            go.Scatter(y=found.high[j], fill="tonexty", fillcolor="rgba(120, 120, 120, 0.2)", **edges), **place
        )
        grid.add_trace(go.Scatter(x=found.names, y=found.whole, name="all rows", line_color="#b5b9c0"), **place)
        grid.add_trace(go.Scatter(x=found.names, y=found.means[j], name=titles[j], line_color=_colour(j)), **place)
    return grid.update_layout(title="Curves", template="plotly_white", showlegend=False)


def row(explanation: RowExplanation, *, n: int = 12) -> Any:
    """Why a row is in its cluster: its heat map, for an image, and the contributions to the margin."""
    go, subplots = _go(), extra("plotly.subplots", "report", "A plot", package="plotly")
    heat = explanation.attributions is not None and explanation.feature_names is None
    if explanation.feature_names is not None and explanation.attributions is not None:
        pairs = explanation.top(n)
    else:
        pairs = heaviest(explanation.contribution_names, explanation.contributions, n)
    figure = subplots.make_subplots(1, 1 + heat, column_widths=[0.4, 0.6] if heat else None)
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
    _bars(figure, pairs, 1 + heat)
    title = f"Row {explanation.row}: cluster {explanation.cluster}, probability {explanation.probability:.3f}"
    return figure.update_layout(title=title, template="plotly_white", showlegend=False)


def cluster(explanation: ClusterExplanation) -> Any:
    """What distinguishes a cluster: its features, or for images its decoded centre and the difference from the
    others."""
    go, subplots = _go(), extra("plotly.subplots", "report", "A plot", package="plotly")
    title = f"Cluster {explanation.cluster}: {explanation.size:,} rows"
    if explanation.features is not None:
        figure = subplots.make_subplots(1, 1)
        _bars(figure, explanation.features, 1)
        return figure.update_layout(title=title, template="plotly_white", showlegend=False)
    if explanation.decoded is None or explanation.difference is None:
        raise ValueError("There is neither a decoded centre nor a list of features to show.")
    figure = subplots.make_subplots(1, 2, subplot_titles=["decoded centre", "more or less than the others"])
    for column, (values, scale) in enumerate(
        ((explanation.decoded, "Greys_r"), (explanation.difference, [[0, AGAINST], [0.5, "#ffffff"], [1, FOR]])), 1
    ):
        flat = values if values.ndim == 2 else values.mean(0 if values.shape[0] <= 4 else 2)
        most = float(np.abs(flat).max()) or 1.0
        span = {"zmin": -most, "zmax": most} if column == 2 else {}
        figure.add_trace(go.Heatmap(z=flat, colorscale=scale, showscale=False, **span), 1, column)
    figure.update_yaxes(autorange="reversed", visible=False).update_xaxes(visible=False)
    return figure.update_layout(title=title, template="plotly_white")


def _bars(figure: Any, pairs: Sequence[tuple[str, float]], column: int) -> None:
    names, values = [escape(name) for name, _ in pairs][::-1], [value for _, value in pairs][::-1]
    colours = [FOR if value >= 0 else AGAINST for value in values]
    figure.add_trace(_go().Bar(x=values, y=names, orientation="h", marker_color=colours), 1, column)


def losses(estimator: Any) -> Any:
    """Every recorded curve over the epochs, phase after phase."""
    check_is_fitted(estimator)
    go, figure = _go(), _go().Figure()
    curves: dict[tuple[str, str], tuple[list[int], list[float]]] = {}
    for number, record in enumerate(estimator.history_, 1):
        for name, value in record.items():
            if name not in ("phase", "epoch"):
                x, y = curves.setdefault((record["phase"], name), ([], []))
                x.append(number)
                y.append(value)
    for (phase, name), (x, y) in curves.items():
        figure.add_trace(go.Scatter(x=x, y=y, name=f"{phase}: {name}", mode="lines"))
    return figure.update_layout(title="Losses", xaxis_title="epoch", template="plotly_white")


def training(record: TrainingRecord, estimator: Any, *, sample: int = 300, layout: Layout = "t-SNE") -> Any:
    """The watched rows over the epochs, with a slider; the centres are stars."""
    check_is_fitted(estimator)
    go, kept = _go(), record.of(estimator)
    if not kept:
        raise ValueError("The record has no frames of this fit: give it to the estimator as a callback before `fit`.")
    watch = np.linspace(0, len(kept[0]["embedding"]) - 1, min(len(kept[0]["embedding"]), sample)).astype(int)
    last = kept[-1].get("centers")
    stars = [frame.get("centers", last) for frame in kept]
    clouds = [
        np.concatenate([frame["embedding"].numpy()[watch], *([] if c is None else [c.numpy()])])
        for frame, c in zip(kept, stars, strict=True)
    ]
    final = kept[-1].get("labels")
    frames = []
    for frame, flat in zip(kept, follow(clouds, layout), strict=True):
        labels = frame.get("labels", final)
        colours = [_colour(int(j)) for j in labels.numpy()[watch]] if labels is not None else FOR
        marks = flat[len(watch) :] if "centers" in frame else np.empty((0, 2))
        star = {"symbol": "star", "size": 15, "color": [_colour(j) for j in range(len(marks))], "line": {"width": 1}}
        frames.append(
            go.Frame(
                name=f"{frame['phase']} {frame['epoch'] + 1}",
                data=[
                    go.Scatter(
                        x=flat[: len(watch), 0], y=flat[: len(watch), 1], mode="markers", marker={"color": colours}
                    ),
                    go.Scatter(x=marks[:, 0], y=marks[:, 1], mode="markers", marker=star),
                ],
            )
        )
    steps = [{"method": "animate", "label": f.name, "args": [[f.name], {"mode": "immediate"}]} for f in frames]
    figure = go.Figure(data=frames[-1].data, frames=frames)
    figure.update_layout(sliders=[{"steps": steps, "active": len(steps) - 1}], showlegend=False)
    return _plane(figure, "How the clusters formed")


def comparison(runs: Sequence[Mapping[str, Any]]) -> Any:
    """Every run of `diffclust compare` as a dot, its score over its seconds; the methods with the best runs first.

    Args:
        runs: the lines of its .csv file, numbers as numbers; the score is ACC where there are labels, else silhouette.
    """
    score = "ACC" if "ACC" in runs[0] else "silhouette"
    by_method: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        if run[score] is not None:
            by_method.setdefault(run["method"], []).append(run)
    figure = _go().Figure()
    for j, (name, own) in enumerate(sorted(by_method.items(), key=lambda item: -max(run[score] for run in item[1]))):
        figure.add_scatter(
            x=[run["seconds"] for run in own],
            y=[100 * run[score] for run in own],
            mode="markers",
            marker={"color": _colour(j), "size": 10},
            name=escape(name),
        )
    figure.update_layout(xaxis={"title": "seconds", "type": "log"}, yaxis={"title": score}, template="plotly_white")
    return figure


def confusion(y: Any, labels: Any) -> Any:
    """True classes against clusters, each cluster next to its best matching class."""
    go = _go()
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
