"""Functions of a `Progress`, called after each epoch: they watch, and may stop a phase."""

from typing import Any

import torch

from .engine.loop import Progress
from .engine.model import ClusterModel


class StopWhenLabelsSettle:
    """Stop clustering when at most `tolerance` of the labels changed since the last look, `every` epochs ago."""

    def __init__(self, tolerance: float = 0.001, every: int = 10) -> None:
        self.tolerance, self.every = tolerance, every
        self.labels: torch.Tensor | None = None

    def __call__(self, progress: Progress) -> None:
        model = progress.model
        if not isinstance(model, ClusterModel):
            return
        if progress.epoch == 0:
            self.labels = None
        if (progress.epoch + 1) % self.every:
            return
        model.eval()
        labels = progress.data.map(lambda x: model.clusters.logits(model.embed(x)).argmax(1))
        if self.labels is not None and (labels != self.labels).double().mean() <= self.tolerance:
            progress.stop = True
        self.labels = labels


class StopWhenLossSettles:
    """Stop a phase when the total loss changed by less than `tolerance` in each of the last `patience` epochs."""

    def __init__(self, tolerance: float = 1e-3, patience: int = 1) -> None:
        self.tolerance, self.patience = tolerance, patience
        self.last, self.calm = float("inf"), 0

    def __call__(self, progress: Progress) -> None:
        if progress.epoch == 0:
            self.last, self.calm = float("inf"), 0
        total = sum(progress.losses.values())
        self.calm = self.calm + 1 if abs(self.last - total) < self.tolerance else 0
        self.last = total
        progress.stop |= self.calm >= self.patience


class ProgressBar:
    """Epoch, losses and time left on the terminal; the default when `verbose` is on."""

    def __init__(self) -> None:
        self.bar: Any = None
        self.tasks: dict[str, Any] = {}
        self.restart = 0

    def start(self, n_init: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.n_init, self.restart, self.tasks = n_init, 0, {}
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[losses]}"),
            TimeRemainingColumn(),
        )
        self.bar.start()

    def next_restart(self) -> None:
        self.restart += 1
        self.tasks = {}

    def __call__(self, progress: Progress) -> None:
        name = progress.phase
        if name not in self.tasks:
            which = f" {self.restart}/{self.n_init}" if self.n_init > 1 else ""
            self.tasks[name] = self.bar.add_task(name + which, total=progress.epochs, losses="")
        losses = "  ".join(f"{key} {value:.4g}" for key, value in progress.losses.items())
        self.bar.update(self.tasks[name], completed=progress.epoch + 1, losses=losses)

    def stop(self) -> None:
        self.bar.stop()
