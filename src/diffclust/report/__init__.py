"""The report: one self-contained HTML file about a fitted estimator, which opens offline."""

import html
import json
import math
import os
import re
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sklearn.utils.validation import check_is_fitted

from ..callbacks import TrainingRecord
from ..engine.disk import atomic_write
from ..extras import extra
from .material import ReportOptions
from .payload import build

LAYOUTS = ("t-SNE", "PCA")
SCRIPTS = {  # of each page, in their order
    "page": ("common", "names", "rows", "map", "clusters", "trust", "page"),
    "compare": ("common", "compare"),
}


def write_report(
    estimator: Any, path: str | os.PathLike[str], X: Any, y: Any = None, options: ReportOptions | None = None
) -> Path:
    """Write the page and say where it is."""
    options = options or ReportOptions()
    check_is_fitted(estimator)
    if options.layout not in LAYOUTS:
        raise ValueError(f"layout={options.layout!r} should be one of {', '.join(LAYOUTS)}.")
    if options.sample < 10:
        raise ValueError(f"sample={options.sample} should be >= 10.")
    path = page_at(path)
    offline = extra("plotly.offline", "report", "A report", package="plotly")
    if options.layout == "t-SNE":
        extra("openTSNE", "report", "A t-SNE map")
    if options.record is None:
        own = next((c for c in estimator.callbacks if isinstance(c, TrainingRecord)), None)
        options = replace(options, record=own)
    return write_page(path, page("page", build(estimator, X, y, options), plotly=offline.get_plotlyjs()))


@dataclass(frozen=True)
class InlineReport:
    """A page for a notebook, in a frame of its own: its scripts see nothing of the notebook."""

    page: str = field(repr=False)
    height: int = 820  # pixels

    def _repr_html_(self) -> str:
        source = html.escape(self.page, quote=True)
        style = f"width:100%;height:{self.height}px;border:1px solid #8886;border-radius:8px"
        sandbox = "allow-scripts allow-downloads"
        return f'<iframe sandbox="{sandbox}" title="diffclust report" style="{style}" srcdoc="{source}"></iframe>'


def inline_report(estimator: Any, X: Any, y: Any = None, options: ReportOptions | None = None) -> InlineReport:
    """The same page, not written to a file."""
    with TemporaryDirectory() as folder:
        path = write_report(estimator, Path(folder) / "report.html", X, y, options)
        return InlineReport(path.read_text(encoding="utf-8"))


def page_at(path: str | os.PathLike[str]) -> Path:
    """Where a page may be written."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give a file such as {path / 'report.html'}.")
    return path


def write_page(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as part:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")  # names of folders are in any encoding
    return path


def page(name: str, content: dict[str, Any], plotly: str = "") -> str:
    """The frame that all pages share, with the sections of NAME.html and the scripts of that page. Data go in as JSON
    in which nothing can end the script they stand in, and the page puts them on show as text, never as HTML."""

    def part(file: str) -> str:
        return files(__package__).joinpath(file).read_text(encoding="utf-8")

    data = json.dumps(finite(content), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    pieces = {
        "title": html.escape(content["title"]),
        "style": part("page.css"),
        "sections": part(f"{name}.html"),
        "data": data.replace("<", "\\u003c"),
        "scripts": "\n".join(part(f"{script}.js") for script in SCRIPTS[name]),
        "library": "<script>" + plotly.replace("</script", "<\\/script") + "</script>" if plotly else "",
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda place: pieces[place[1]], part("frame.html"))


def finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: null stands for them."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
