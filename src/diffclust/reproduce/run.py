"""Run what a table lacks: a fit after another, each from its checkpoint where there is one."""

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import sklearn
import torch

from .. import __version__, datasets
from ..baselines import BASELINES
from ..callbacks import Evaluate
from ..engine.checkpoint import CheckpointFolder
from ..engine.loop import Progress
from ..engine.runtime import choose_device, choose_precision
from ..metrics import accuracy, effective_clusters, scores
from ..persistence import SUMS
from ..persistence import load as load_estimator
from .record import LABEL_FREE, SCORES, Outcome, Records
from .search import SEARCH_SEEDS, candidates, chosen, named
from .spec import Row, Spec, Table

EVERY = 50  # epochs between two points of a curve, as in the authors' code; short runs have twenty
BATCH = 256  # rows of a stream that arrive together, as many as the papers have in a batch
MANY_ROWS = 10_000  # from there on an epoch of a network on a CPU is worth a checkpoint
RARELY = 100  # epochs between checkpoints else: half a minute of five networks on a GPU, whose checkpoint is 200 MB
FEW_VALUES = 10**8  # up to there sparse rows are made dense, to lie on the device whole: all text sets of the papers


class OutOfTime(Exception):
    """The minutes are over."""


@dataclass
class Clock:
    """Notes in the record how long each epoch took, so that a fit in several pieces adds up; stops at the deadline."""

    deadline: float
    last: float = field(default_factory=lambda: time.monotonic())
    stateless: ClassVar = True  # restarts side by side share the time

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        progress.record["seconds"] = now - self.last
        self.last = now
        if now >= self.deadline:
            raise OutOfTime


@dataclass
class Runner:
    """checkpoint: folder for what is begun and not finished, and for embeddings and starts that several rows share.
    together: the seeds of a row as restarts of one fit, which a GPU runs side by side; not where the seeds are the
        authors', or the start another's.
    say: called with a line for each finished run.
    """

    records: Records
    checkpoint: Path
    device: str = "auto"
    minutes: float = float("inf")
    together: bool = False
    verbose: bool = False
    say: Callable[[str], None] = print
    missing: dict[str, str] = field(default_factory=dict)  # data sets that could not be had, and why

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + 60 * self.minutes

    def run(self, table: Table, seeds: int, search: bool = False) -> bool:
        """Bring every row to `seeds` runs; with `search`, also those whose λ validation labels choose. False: the time
        was over before."""
        try:
            for row in table.rows:
                if row.spec is None:
                    continue
                self._complete(row.spec, row.wanted(seeds), table, row.label)
                if search and row.weights:
                    self._search(row, row.wanted(seeds), table)
        except OutOfTime:
            return False
        return True

    def _search(self, row: Row, seeds: int, table: Table) -> None:
        for spec in candidates(row):
            self._complete(spec, SEARCH_SEEDS, table, named(row.label, spec))
        choice = chosen(row, self.records, table.numbers(SEARCH_SEEDS))
        if choice is not None:
            self._complete(choice, seeds, table, f"{named(row.label, choice)} by validation labels")

    def _complete(self, spec: Spec, seeds: int, table: Table, label: str) -> None:
        authors = table.numbers(seeds) if table.random_states else []
        while spec.data not in self.missing:
            done = [run for run in self.records.of(spec) if not authors or run.seed in authors]
            lacking = seeds - len(done)
            if lacking <= 0:
                return
            seed = next(s for s in authors or count() if s not in {run.seed for run in done})
            if time.monotonic() >= self.deadline:
                raise OutOfTime
            try:
                X, y = load(spec)
            except FileNotFoundError as error:
                if str(error) not in self.missing.values():
                    self.say(f"Not run here: {error}")
                self.missing[spec.data] = str(error)
                return
            together = self.together and not authors and not spec.one_by_one
            outcomes = self._outcomes(spec, X, y, seed, lacking if together else 1)
            self.records.add(table.file, outcomes)
            for outcome in outcomes:
                figures = " / ".join(f"{outcome.figures[name]:.2f}" for name in ("acc", "nmi", "ari"))
                which = f"seed {outcome.seed}" + (f".{outcome.restart}" if len(outcomes) > 1 else "")
                self.say(f"{spec.data}: {label}, {which}: {figures}, {outcome.place['seconds']} s")

    def _outcomes(self, spec: Spec, X: Any, y: Any, seed: int, restarts: int) -> list[Outcome]:
        if spec.features is not None:
            X = self._embedding(spec.features, X, y, seed)
        if spec.arriving:
            return [self._streamed(spec, X, y, seed)]
        if not spec.is_ours:
            began = time.monotonic()
            labels = classical(spec, X, seed)
            seconds = time.monotonic() - began
            return [outcome(spec, seed, 0, y, {"labels": labels}, seconds, f"cpu, {platform.machine()}", "float64")]
        estimator = self._start(spec, X, y, seed) if spec.shared else self._fit(spec, X, y, seed, restarts)
        seconds = sum(record["seconds"] for run in estimator.runs_ for record in run["history"]) / restarts
        place = self._place(estimator)
        return [outcome(spec, seed, restart, y, run, seconds, *place) for restart, run in enumerate(estimator.runs_)]

    def _place(self, estimator: Any) -> tuple[str, str]:
        """Device and precision."""
        device = choose_device(self.device)
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device.type}, {platform.machine()}"
        return name, choose_precision(estimator.precision, device)

    def _streamed(self, spec: Spec, X: Any, y: Any, seed: int) -> Outcome:
        """Labels as they are given on arrival, by the model that has just learnt from the batch."""
        rng = np.random.default_rng(seed)
        start = spec.arriving + rng.choice(len(X) - spec.arriving, spec.start, replace=False)
        stream = rng.permutation(spec.arriving)
        if spec.is_ours:
            model = spec.estimator()(**spec.settings, random_state=seed, device=self.device, verbose=self.verbose)
            place = self._place(model)
        else:
            from sklearn.cluster import MiniBatchKMeans

            X = np.asarray(X, np.float64).reshape(len(X), -1)
            model = MiniBatchKMeans(**spec.settings, n_init=10, random_state=seed)
            place = f"cpu, {platform.machine()}", "float64"
        began = time.monotonic()
        model.fit(X[start])
        labels = []
        for batch in np.array_split(stream, -(-len(stream) // BATCH)):
            model.partial_fit(X[batch])
            labels.append(model.predict(X[batch]))
        run = {"labels": np.concatenate(labels)}
        return outcome(spec, seed, 0, y[stream], run, time.monotonic() - began, *place)

    def _fit(self, spec: Spec, X: Any, y: Any, seed: int, restarts: int) -> Any:
        settings = dict(spec.settings)
        if spec.begins is not None:
            start = self._start(spec.begins, X, y, seed)
            settings |= {"network": start.model_.autoencoder, "init": start.cluster_centers_}
        folder = self.checkpoint / f"{spec.key}-{seed}x{restarts}"
        epochs = spec.settings.get("epochs", "auto")
        every = EVERY if epochs == "auto" else max(1, min(EVERY, epochs // 20))
        curves = [] if spec.validation else [Evaluate(y, every)]  # they would be of all samples
        learns = spec.settings.get("network") != "identity"
        slow = learns and X.shape[0] >= MANY_ROWS and choose_device(self.device).type == "cpu"
        estimator = spec.estimator()(
            **settings,
            n_init=restarts,
            random_state=seed,
            device=self.device,
            verbose=self.verbose,
            callbacks=[*curves, Clock(self.deadline)],
            checkpoint=folder,
            checkpoint_every=1 if slow else RARELY,
        )
        try:
            estimator.fit(X)
        except OutOfTime:
            for older in CheckpointFolder(folder).files()[1:]:  # against a kill in mid-write; this was none
                older.unlink()
            raise
        if any(kind == "interrupted" for run in estimator.runs_ for kind, _ in run["diagnostics"]["reports"]):
            raise KeyboardInterrupt
        folder.rmdir()
        return estimator

    def _start(self, spec: Spec, X: Any, y: Any, seed: int) -> Any:
        """What others begin with, trained once for each seed: from its folder, so that all have the very same."""
        folder = self.checkpoint / f"{spec.key}-{seed}"
        if not (folder / SUMS).exists():
            self._fit(spec, X, y, seed, 1).save(folder)
        return load_estimator(folder, device=self.device)

    def _embedding(self, spec: Spec, X: Any, y: Any, seed: int) -> Any:
        """From the file of an earlier row, or learnt now."""
        path = self.checkpoint / f"{spec.key}-{seed}.npy"
        if not path.exists():
            embedded = self._fit(spec, X, y, seed, 1).transform(X)
            aside = path.with_suffix(".part")
            with aside.open("wb") as file:
                np.save(file, embedded)
            aside.replace(path)
        return np.load(path, allow_pickle=False)


@lru_cache(maxsize=1)
def _load(data: str, unit_length: bool, rows: int) -> tuple[Any, Any]:
    X, y = datasets.load(data)
    n = X.shape[0]  # sparse rows have no length
    if rows and rows < n:
        kept = np.sort(np.random.default_rng(0).permutation(n)[:rows])
        X, y = X[kept], y[kept]
    if sp.issparse(X) and X.shape[0] * X.shape[1] <= FEW_VALUES:
        X = X.toarray()
    if unit_length:
        flat = np.asarray(X, np.float32).reshape(len(X), -1)
        length = np.linalg.norm(flat, axis=1, keepdims=True)
        X = (flat / np.where(length > 0, length, 1)).reshape(X.shape)
    return X, y


def load(spec: Spec) -> tuple[Any, Any]:
    """The samples as the run sees them, and their labels. The network of a row of features prepares them its way."""
    source = spec.features or spec
    return _load(spec.data, source.unit_length, source.rows)


def classical(spec: Spec, X: Any, seed: int) -> Any:
    """Labels by a classical method; k-means with settings of its own is scikit-learn's."""
    settings = dict(spec.settings)
    k = settings.pop("n_clusters")
    X = X.astype(np.float64) if sp.issparse(X) else np.asarray(X, np.float64).reshape(len(X), -1)
    if settings:
        from sklearn.cluster import KMeans

        return KMeans(k, random_state=seed, **settings).fit_predict(X)
    return BASELINES[spec.method](X, k, seed)


def split(n: int, share: float) -> tuple[Any, Any]:
    """Samples for validation, and those that are scored: the same for every run."""
    order = np.random.default_rng(0).permutation(n)
    size = int(share * n)
    return np.sort(order[:size]), np.sort(order[size:])


def outcome(
    spec: Spec, seed: int, restart: int, y: Any, run: dict[str, Any], seconds: float, device: str, precision: str
) -> Outcome:
    """One run, scored; `run` as in an estimator's `runs_`, or labels alone."""
    labels = run["labels"]
    validation, scored = split(len(y), spec.validation)
    figures = {name: 100 * value for name, value in scores(y[scored], labels[scored]).items() if name in SCORES}
    if spec.validation:
        figures["acc_validation"] = 100 * accuracy(y[validation], labels[validation])
    figures |= {name: run[name] for name in LABEL_FREE if name in run}
    figures["effective_clusters"] = effective_clusters(labels)
    history = [record for record in run.get("history", []) if record["phase"] == "clustering"]
    curve = [
        {
            "epoch": record["epoch"] + 1,
            **{name: round(100 * record[name], 3) for name in ("acc", "nmi", "ari")},
            **{name: record[name] for name in ("reconstruction", "clustering") if name in record},
        }
        for record in history
        if "acc" in record
    ]
    place = {
        "epochs": str(len(run.get("history", []))),
        "seconds": f"{seconds:.1f}",
        "device": device,
        "threads": str(torch.get_num_threads()),
        "precision": precision,
        "diffclust": __version__,
        "torch": torch.__version__,
        "scikit-learn": sklearn.__version__,
    }
    return Outcome(spec.data, spec.method, spec.text, seed, restart, figures, place, curve)
