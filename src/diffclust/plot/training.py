"""Training: losses, and how the clusters formed."""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..callbacks import TrainingRecord
from ..report.layout import Layout, follow
from .common import FOR, colour, graph_objects, plane


def losses(estimator: Any) -> Any:
    """Every recorded curve over the epochs, phase after phase."""
    check_is_fitted(estimator)
    go, figure = graph_objects(), graph_objects().Figure()
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
    go, kept = graph_objects(), record.of(estimator)
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
    frames, maps = [], follow(clouds, layout)
    for frame, flat in zip(kept, maps, strict=True):
        labels = frame.get("labels", final)
        colours = [colour(int(j)) for j in labels.numpy()[watch]] if labels is not None else FOR
        marks = flat[len(watch) :] if "centers" in frame else np.empty((0, 2))
        star = {"symbol": "star", "size": 15, "color": [colour(j) for j in range(len(marks))], "line": {"width": 1}}
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
    figure = plane(figure, "How the clusters formed")
    whole = np.concatenate(maps)  # an axis keeps its range from frame to frame
    low, high, margin = whole.min(0), whole.max(0), 0.05 * np.ptp(whole, 0)
    for axis, start, end in zip((figure.layout.xaxis, figure.layout.yaxis), low - margin, high + margin, strict=True):
        axis.range = [float(start), float(end)]
    return figure
