"""The report: one self-contained HTML file about a fitted estimator, which opens offline."""

import html
import json
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sklearn.utils.validation import check_is_fitted

from ..callbacks import TrainingRecord
from ..engine.disk import written_whole
from ..extras import extra
from .layout import Layout
from .payload import build

LAYOUTS = ("t-SNE", "PCA")


def write_report(
    estimator: Any,
    path: str | os.PathLike[str],
    X: Any,
    y: Any = None,
    *,
    record: TrainingRecord | None = None,
    captions: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    title: str | None = None,
    sample: int = 2000,
    layout: Layout = "t-SNE",
) -> Path:
    """Write the page and say where it is."""
    check_is_fitted(estimator)
    if layout not in LAYOUTS:
        raise ValueError(f"layout={layout!r} should be one of {', '.join(LAYOUTS)}.")
    if sample < 10:
        raise ValueError(f"sample={sample} should be >= 10.")
    path = page_at(path)
    offline = extra("plotly.offline", "report", "A report", package="plotly")
    if layout == "t-SNE":
        extra("openTSNE", "report", "A t-SNE map")
    if record is None:
        record = next((c for c in estimator.callbacks if isinstance(c, TrainingRecord)), None)
    content = build(
        estimator,
        X,
        y=y,
        record=record,
        captions=captions,
        feature_names=feature_names,
        title=title,
        sample=sample,
        layout=layout,
    )
    return write_page(path, page("page", content, plotly=offline.get_plotlyjs()))


@dataclass(frozen=True)
class InlineReport:
    """A page for a notebook, in a frame of its own: its scripts see nothing of the notebook."""

    page: str = field(repr=False)
    height: int = 820  # pixels

    def _repr_html_(self) -> str:
        source = html.escape(self.page, quote=True)
        style = f"width:100%;height:{self.height}px;border:1px solid #8886;border-radius:8px"
        return f'<iframe sandbox="allow-scripts" title="diffclust report" style="{style}" srcdoc="{source}"></iframe>'


def inline_report(estimator: Any, X: Any, y: Any = None, **options: Any) -> InlineReport:
    """The same page, not written to a file."""
    with TemporaryDirectory() as folder:
        path = write_report(estimator, Path(folder) / "report.html", X, y, **options)
        return InlineReport(path.read_text(encoding="utf-8"))


def page_at(path: str | os.PathLike[str]) -> Path:
    """Where a page may be written."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give a file such as {path / 'report.html'}.")
    return path


def write_page(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as part:
        part.write_text(text, encoding="utf-8")
    return path


def page(name: str, content: dict[str, Any], **scripts: str) -> str:
    """The template NAME.html with everything in it. Data go in as JSON in which nothing can end the script they stand
    in, and the page puts them on show as text, never as HTML."""

    def part(file: str) -> str:
        return files(__package__).joinpath(file).read_text(encoding="utf-8")

    data = json.dumps(finite(content), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    pieces = {
        "title": html.escape(content["title"]),
        "style": part("page.css"),
        "data": data.replace("<", "\\u003c"),
        "common": part("common.js"),
        "script": part(f"{name}.js"),
        **{place: text.replace("</script", "<\\/script") for place, text in scripts.items()},
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda place: pieces[place[1]], part(f"{name}.html"))


def finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: null stands for them."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
