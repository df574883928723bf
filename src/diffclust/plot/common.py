"""What all figures share."""

from collections.abc import Sequence
from html import escape
from typing import Any

from ..extras import extra

FOR, AGAINST = "#1a7f5a", "#b3402a"
GREY = "#b5b9c0"
PALETTE = (
    "#3b76b5", "#e8862e", "#4a9d5b", "#d1495b", "#7d5ba6", "#9a6b4b", "#d977a8", "#7a7f87", "#a9a12f", "#2ba6b5",
)  # fmt: skip


def graph_objects() -> Any:
    return extra("plotly.graph_objects", "report", "A plot", package="plotly")


def grid(lines: int, columns: int, **how: Any) -> Any:
    """A figure of several."""
    return extra("plotly.subplots", "report", "A plot", package="plotly").make_subplots(lines, columns, **how)


def colour(j: int) -> str:
    return PALETTE[j] if j < len(PALETTE) else f"hsl({j * 137.508 % 360:.0f}, 60%, 50%)"


def plane(figure: Any, title: str) -> Any:
    axis = {"showgrid": False, "zeroline": False, "showticklabels": False}
    figure.update_layout(title=title, xaxis=axis, yaxis={**axis, "scaleanchor": "x"}, template="plotly_white")
    return figure


def bars(figure: Any, pairs: Sequence[tuple[str, float]], column: int) -> None:
    names, values = [escape(name) for name, _ in pairs][::-1], [value for _, value in pairs][::-1]
    colours = [FOR if value >= 0 else AGAINST for value in values]
    figure.add_trace(graph_objects().Bar(x=values, y=names, orientation="h", marker_color=colours), 1, column)
