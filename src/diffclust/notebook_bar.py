"""A progress bar in the cell of a notebook; rich draws one only where ipywidgets is installed."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

INTERVAL = 0.2  # seconds between drawings, at least


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None


@dataclass
class BarLine:
    """One bar: what it is of, how much of the total is done, and words beside it."""

    description: str
    total: float
    said: str = ""
    completed: float = 0.0

    @property
    def html(self) -> str:
        name = escape(self.description)
        bar = f'<progress max="{self.total:g}" value="{self.completed:g}" aria-label="{name}"></progress>'
        cell = '<td style="text-align:left">'
        return f"<tr>{cell}{name}</td>{cell}{bar}</td>{cell}{escape(self.said)}</td></tr>"

    @property
    def text(self) -> str:
        return f"{self.description} {100 * self.completed / max(self.total, 1e-9):.0f} %  {self.said}"


class NotebookBar:
    """Bars one below the other, drawn anew in the same place; with the methods of rich's `Progress` that we use."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.tasks: list[BarLine] = []
        self.clock, self.drawn = clock, -INTERVAL
        self.place: Any = None

    def start(self) -> None:
        from IPython.display import display

        self.place = display(self._content(), raw=True, display_id=True)

    def add_task(self, description: str, total: float, said: str = "") -> int:
        self.tasks.append(BarLine(description, total, said))
        return len(self.tasks) - 1

    def update(self, task: int, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(self.tasks[task], name, value)
        if self.clock() - self.drawn >= INTERVAL:
            self._draw()

    def stop(self) -> None:
        self._draw()

    def _draw(self) -> None:
        self.drawn = self.clock()
        self.place.update(self._content(), raw=True)

    def _content(self) -> dict[str, str]:
        lines = "".join(line.html for line in self.tasks)
        return {"text/html": f"<table>{lines}</table>", "text/plain": "\n".join(line.text for line in self.tasks)}
