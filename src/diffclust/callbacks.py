"""Callbacks: functions of a `Progress`, called after each epoch, that watch training and may stop a phase."""

import inspect
import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Self

import torch

from .engine.checkpoint import pack, unpack
from .engine.data import Data
from .engine.disk import atomic_write, read_regular
from .engine.distributed import current_processes
from .engine.model import ClusterModel
from .engine.overclustering import OVERCLUSTERING
from .engine.phase import Callback, Progress
from .metrics import accuracy, ari, nmi
from .notebook_bar import NotebookBar, in_notebook

__all__ = [
    "Evaluate",
    "Progress",
    "StopWhenLabelsSettle",
    "StopWhenLossSettles",
    "TrainingRecord",
]


def _labels(model: ClusterModel, data: Data) -> torch.Tensor:
    """The labels that the estimator would have if training ended now."""
    with model.evaluating():
        return data.map(lambda x: model.answer(x).label)


SIDE_BY_SIDE = 32  # largest number of runs: more would only wait for the GPU's memory
PARALLEL = ("cuda",)  # devices on which that is faster than one run after the other


def runs_at_once(device: torch.device) -> int:
    """How many runs are trained side by side on a device."""
    return SIDE_BY_SIDE if device.type in PARALLEL else 1


class StopWhenLabelsSettle:
    """Stop clustering when at most a share of `tolerance` of the labels changed since the last check, `every` epochs
    ago."""

    def __init__(self, tolerance: float = 0.001, every: int = 10) -> None:
        self.tolerance, self.every = tolerance, every
        self.labels: torch.Tensor | None = None

    def __call__(self, progress: Progress) -> None:
        model = progress.model
        if not isinstance(model, ClusterModel):
            return
        if progress.epoch == 0 or progress.first:
            self.labels = None
        if (progress.epoch + 1) % self.every:
            return
        labels = _labels(model, progress.data).cpu()  # as a checkpoint gives them back
        if self.labels is not None and (labels != self.labels).double().mean() <= self.tolerance:
            progress.stop = True
        self.labels = labels

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint; `load_state_dict` goes back."""
        return {"labels": self.labels}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.labels = state["labels"]


class StopWhenLossSettles:
    """Stop a phase when the total loss changed by less than `tolerance` in each of the last `patience` epochs."""

    def __init__(self, tolerance: float = 1e-3, patience: int = 1) -> None:
        self.tolerance, self.patience = tolerance, patience
        self.last, self.calm = float("inf"), 0

    def __call__(self, progress: Progress) -> None:
        if progress.epoch == 0 or progress.first:
            self.last, self.calm = float("inf"), 0
        total = sum(progress.losses.values())
        self.calm = self.calm + 1 if abs(self.last - total) < self.tolerance else 0
        self.last = total
        progress.stop |= self.calm >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint; `load_state_dict` goes back."""
        return {"last": self.last, "calm": self.calm}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.last, self.calm = state["last"], state["calm"]


class Evaluate:
    """Compare the labels with known ones every `every` clustering epochs and after the last: ACC, NMI and ARI are
    added to the record of the epoch in `history_`. The fit is not influenced."""

    stateless = True

    def __init__(self, y: Any, every: int = 50) -> None:
        self.y, self.every = y, every

    def __call__(self, progress: Progress) -> None:
        model, done = progress.model, progress.epoch + 1
        if not isinstance(model, ClusterModel) or (done % self.every and done != progress.epochs):
            return
        labels = _labels(model, progress.data).cpu().numpy()
        progress.record.update(acc=accuracy(self.y, labels), nmi=nmi(self.y, labels), ari=ari(self.y, labels))


class TrainingRecord:
    """Records the state of a fit at chosen epochs, to show how clusters form.

    A frame is a dict of phase, epoch, losses, and the embedding of the watched rows (s, d); in the clustering phase
    also the labels of these rows, the centres (k, d), and the centres decoded by the network of that epoch (k, ...),
    except for clusters that are merged later (`overcluster`). `runs` has one list of frames for each restart of the
    last fit. Recording draws no random numbers, so it does not change the labels.

    Args:
        frames: number of frames per phase, evenly spaced, including the first and the last epoch.
        epochs: record these epochs of each phase instead.
        sample: number of watched rows: the same evenly spaced ones at every epoch, `rows`.
    """

    def __init__(self, frames: int = 12, epochs: Collection[int] | None = None, sample: int = 1000) -> None:
        if frames < 1 or sample < 1:
            raise ValueError(f"frames={frames} and sample={sample} should be >= 1.")
        self.frames, self.epochs, self.sample = frames, epochs, sample
        self.rows: list[int] = []
        self.runs: list[list[dict[str, Any]]] = []
        self.seen: list[dict[str, int]] = []  # the last epoch of each phase, for each run
        self.restart = 0

    def __call__(self, progress: Progress) -> None:
        self.restart = progress.restart
        self._make_room(self.restart + 1)
        self.seen[self.restart][progress.phase] = progress.epoch
        model = getattr(progress.model, "model", progress.model)
        if not isinstance(model, ClusterModel) or not self.wants(progress.epoch, progress.epochs):
            return
        n = len(progress.data)
        index = torch.linspace(0, n - 1, min(n, self.sample), dtype=torch.float64).long()
        self.rows = index.tolist()
        with progress.model.evaluating(), torch.no_grad():
            z = progress.data.map(model.embed, index.to(progress.data.device))
            frame = {"phase": progress.phase, "epoch": progress.epoch, "losses": progress.losses, "embedding": z.cpu()}
            if model is progress.model and progress.phase != OVERCLUSTERING:
                centers = model.clusters.centers
                frame["labels"] = model.clusters.logits(z.double()).argmax(1).cpu()
                frame["centers"] = centers.detach().cpu().clone()
                whole: Any = progress.whole or model
                frame["decoded"] = whole.decode(centers).cpu()
        self.runs[self.restart].append(frame)

    def begin(self) -> None:
        """Forget the last fit."""
        self.runs, self.seen = [], []

    def _make_room(self, n_runs: int) -> None:
        for _ in range(len(self.runs), n_runs):
            self.runs.append([])
            self.seen.append({})

    def wants(self, epoch: int, epochs: int) -> bool:
        """Whether this epoch of a phase with `epochs` epochs becomes a frame."""
        if self.epochs is not None:
            return epoch in self.epochs
        last = max(epochs - 1, 1)
        marks = {round(i * last / max(self.frames - 1, 1)) for i in range(self.frames)}
        return epoch in marks

    def of(self, estimator: Any) -> list[dict[str, Any]]:
        """The frames of the restart that the fitted estimator kept."""
        which = next((i for i, run in enumerate(estimator.runs_) if run["seed"] == estimator.seed_), 0)
        return self.runs[which] if which < len(self.runs) else []

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save to one file of tensors and JSON, without pickle."""
        with atomic_write(path) as part:
            part.write_bytes(self.to_bytes())

    def to_bytes(self) -> bytes:
        """The contents of the file that `save` writes."""
        return pack(self.state_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load a file that `save` wrote."""
        return cls.from_bytes(read_regular(Path(path)), path)

    @classmethod
    def from_bytes(cls, blob: bytes, path: str | os.PathLike[str]) -> Self:
        """The reverse of `to_bytes`.

        Args:
            blob: the bytes.
            path: the name used for them in an error message.
        """
        record = cls()
        try:
            record.load_state_dict(unpack(blob))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a record of training, or is damaged ({error}).") from error
        return record

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint; `load_state_dict` goes back."""
        return {"rows": self.rows, "runs": self.runs, "seen": self.seen, "restart": self.restart}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the run that the state belongs to, and others only if they are unknown here: runs side by side
        have states of their own."""
        self.rows, self.restart = state["rows"], state["restart"]
        self._make_room(len(state["runs"]))
        for i, (run, seen) in enumerate(zip(state["runs"], state["seen"], strict=True)):
            if i == self.restart or not self.seen[i]:
                self.runs[i], self.seen[i] = run, seen


class TimeLeft:
    """Estimates the time left of a fit: the remaining epochs of each phase, in all runs, times the mean duration of the
    epochs of that phase so far, or of all epochs if the phase has not begun.

    Args:
        plan: the largest number of epochs of each phase of a run.
        n_runs: number of runs, one after the other or side by side.
        clock: returns the time in seconds.
    """

    def __init__(self, plan: Mapping[str, int], n_runs: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.plan, self.clock = dict(plan), clock
        self.done = [dict.fromkeys(plan, 0) for _ in range(n_runs)]
        self.spent, self.counted = dict.fromkeys(plan, 0.0), dict.fromkeys(plan, 0)
        self.last = clock()

    def after(self, progress: Progress) -> float:
        """Seconds left after an epoch. When a phase stops early, its remaining epochs count as done."""
        now = self.clock()
        self.spent[progress.phase] += now - self.last
        self.counted[progress.phase] += 1
        self.last = now
        names = list(self.plan)
        here, own = names.index(progress.phase), self.done[progress.restart]
        over = names[: here + progress.stop]
        own |= {progress.phase: progress.epoch + 1} | {name: self.plan[name] for name in over}
        mean = sum(self.spent.values()) / sum(self.counted.values())
        each = {name: self.spent[name] / self.counted[name] if self.counted[name] else mean for name in names}
        return sum(each[name] * (self.plan[name] - run[name]) for run in self.done for name in names)

    @property
    def share(self) -> float:
        """The share of all epochs that are done."""
        return sum(sum(run.values()) for run in self.done) / max(1, len(self.done) * sum(self.plan.values()))


def duration(seconds: float) -> str:
    """Rounded, because it is an estimate: "40 s", "3 min", "2 h 10 min"."""
    if seconds < 99.5:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def terminal_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}")
    return Progress(*columns, console=Console(stderr=True))


class ProgressBar:
    """Epoch and losses of each phase, and the time left; shown in a terminal or a notebook if `verbose` is set. The
    estimate of the total time after the first epoch stays visible."""

    def __init__(self, plan: Mapping[str, int], n_runs: int) -> None:
        self.n_runs, self.time_left = n_runs, TimeLeft(plan, n_runs)
        self.tasks: dict[tuple[int, str], Any] = {}
        self.bar: Any = NotebookBar() if in_notebook() else terminal_bar()
        self.whole = self.bar.add_task("training", total=1.0, said="")
        self.bar.start()

    def __call__(self, progress: Progress) -> None:
        line = progress.restart, progress.phase
        left = duration(self.time_left.after(progress))
        if not self.tasks:
            self.bar.update(self.whole, description=f"training, about {left}")
        if line not in self.tasks:
            which = f" {progress.restart + 1}/{self.n_runs}" if self.n_runs > 1 else ""
            self.tasks[line] = self.bar.add_task(progress.phase + which, total=progress.epochs, said="")
        losses = "  ".join(f"{key} {value:.4g}" for key, value in progress.losses.items())
        epoch = progress.epoch + 1
        self.bar.update(self.tasks[line], completed=epoch, said=f"{epoch}/{progress.epochs}  {losses}")
        self.bar.update(
            self.whole, completed=self.time_left.share, said=f"{left} left" if self.time_left.share < 1 else ""
        )

    def stop(self) -> None:
        self.bar.stop()


class Watchers:
    """All callbacks of one fit: the user's, the progress bar, and those of scikit-learn's callback protocol."""

    def __init__(self, estimator: Any, quiet: bool = False) -> None:
        self.estimator = estimator
        self.shows_bar = estimator.verbose and current_processes().leads and not quiet
        self.bar: ProgressBar | None = None
        self.plan: Mapping[str, int] = {}
        self.callbacks: list[Callback] = list(estimator.callbacks)

    def expect(self, plan: Mapping[str, int]) -> None:
        """Set the largest number of epochs of each phase of a restart."""
        self.plan = plan

    def check(self, n: int) -> None:
        """Check the callbacks before training on n rows."""
        for callback in self.callbacks:
            if isinstance(callback, Evaluate) and len(callback.y) != n:
                raise ValueError(f"Evaluate has {len(callback.y)} labels, expected one for each of the {n} rows.")

    def __enter__(self) -> Self:
        estimator = self.estimator
        for callback in self.callbacks:
            if isinstance(callback, TrainingRecord):
                callback.begin()
        self.context = estimator._init_callback_context(max_subtasks=estimator.n_init * sum(self.plan.values()))
        self.context.call_on_fit_task_begin(estimator=estimator)
        if hasattr(estimator, "_skl_callbacks"):
            self.callbacks.append(self.tell_sklearn)
        if self.shows_bar:
            self.bar = ProgressBar(self.plan, estimator.n_init)
            self.callbacks.append(self.bar)
        return self

    def at_once(self, device: torch.device) -> int:
        """How many restarts run side by side: several on a GPU, unless a callback could mix them up. A function and an
        object with `stateless` have no state, and an object with a `state_dict` gets the state of each restart back."""

        def tells_apart(callback: Callback) -> bool:
            return inspect.isroutine(callback) or hasattr(callback, "state_dict") or hasattr(callback, "stateless")

        return runs_at_once(device) if all(map(tells_apart, self.estimator.callbacks)) else 1

    def tell_sklearn(self, progress: Progress) -> None:
        task = self.context.subcontext(task_name=progress.phase)
        task.call_on_fit_task_begin(estimator=self.estimator)
        progress.stop |= bool(task.call_on_fit_task_end(estimator=self.estimator))

    def __exit__(self, *error: object) -> None:
        if self.bar:
            self.bar.stop()
        if error[0] is None:
            self.context.call_on_fit_task_end(estimator=self.estimator)
