"""Words and pieces of HTML that the explanations share."""

import base64
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from .pictures import png, signed_colours

Weighted = Sequence[tuple[str, float]]


def plain(value: Any) -> Any:
    """Arrays and numpy numbers as lists and Python numbers, so that JSON can hold them."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return value


def listing(parts: Iterable[str]) -> str:
    """a, b and c"""
    *first, last = list(parts) or [""]
    return f"{', '.join(first)} and {last}" if first else last


def weighted(pairs: Weighted) -> str:
    return listing(f"{name} ({value:+.3g})" for name, value in pairs)


def heaviest(names: Sequence[str], values: np.ndarray, n: int) -> list[tuple[str, float]]:
    """The n names with the largest values, by size without sign; those of no weight are left out."""
    order = np.argsort(-np.abs(values), kind="stable")[:n]
    return [(str(names[i]), float(values[i])) for i in order if values[i] != 0]


# ---- for notebooks


def card(title: str, *parts: str) -> str:
    style = "font-family:system-ui,sans-serif;max-width:42rem;border:1px solid #8886;border-radius:8px;padding:.8em 1em"
    return f'<div style="{style}"><div style="font-weight:600">{escape(title)}</div>{"".join(parts)}</div>'


def paragraph(text: str) -> str:
    return f'<p style="margin:.5em 0">{escape(text)}</p>'


def bars(pairs: Weighted) -> str:
    """Names with bars to the right (for) and to the left (against)."""
    widest = max((abs(value) for _, value in pairs), default=0) or 1.0
    rows = []
    for name, value in pairs:
        colour, side = ("#1a7f5a", "left") if value >= 0 else ("#b3402a", "right")
        bar = f'<div style="width:{50 * abs(value) / widest:.1f}%;margin-{side}:50%;background:{colour};height:.8em">'
        bar = bar if value >= 0 else bar.replace("margin-right:50%", "margin-right:50%;margin-left:auto")
        rows.append(
            f'<tr><td style="text-align:left">{escape(name)}</td><td style="width:16em">{bar}</div></td>'
            f'<td style="text-align:right">{value:+.4g}</td></tr>'
        )
    return f'<table style="border-collapse:collapse">{"".join(rows)}</table>'


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    def line(cells: Iterable[Any], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag} style='text-align:left'>{escape(str(c))}</{tag}>" for c in cells) + "</tr>"

    return f"<table>{line(head, 'th')}{''.join(line(row, 'td') for row in rows)}</table>"


def picture(image: np.ndarray, title: str, *, signed: bool = False) -> str:
    """An image (h, w[, c]) in [0, 1], or one of signed values, as an <img>."""
    pixels = signed_colours(image) if signed else (np.clip(image, 0, 1) * 255).round().astype(np.uint8)
    zoom = max(1, 112 // pixels.shape[0])
    pixels = pixels.repeat(zoom, 0).repeat(zoom, 1)
    source = base64.b64encode(png(pixels)).decode()
    return (
        f'<img alt="{escape(title)}" title="{escape(title)}" src="data:image/png;base64,{source}" style="margin:4px">'
    )
