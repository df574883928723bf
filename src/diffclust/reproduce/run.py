"""Run the fits that a table lacks, each from its checkpoint if there is one."""

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count, groupby, islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
import sklearn
import torch

from .. import __version__, datasets
from ..baselines import BASELINES
from ..callbacks import Evaluate, runs_at_once
from ..engine.checkpoint import CheckpointFolder
from ..engine.phase import Progress
from ..engine.runtime import choose_device, choose_precision
from ..estimator.together import fit_each
from ..metrics import accuracy, effective_clusters, scores
from ..saving.folder import SUMS
from ..saving.load import load as load_estimator
from .record import LABEL_FREE, RECORDED_SCORES, Outcome, Records
from .search import SEARCH_SEEDS, candidates, chosen, named
from .spec import PaperTable, Row, Spec

CURVE_EVERY = 50  # epochs between two points of a curve, as in the authors' code; short runs have twenty points
STREAM_BATCH = 256  # rows of a stream that arrive together: the batch size of the papers
SLOW_FROM_ROWS = 10_000  # from which on a network on a CPU writes a checkpoint every epoch
CHECKPOINT_EVERY = 100  # epochs otherwise: half a minute for five networks on a GPU, whose checkpoint has 200 MB
CPU = f"cpu, {platform.machine()}"
MAX_DENSE_VALUES = 10**8  # up to which sparse rows are made dense, to fit on the device: all text sets of the papers


class OutOfTime(Exception):
    """The time limit is reached."""


@dataclass
class Clock:
    """Records the duration of each epoch, so that a resumed fit has its total time; stops at the deadline."""

    deadline: float
    last: float = field(default_factory=lambda: time.monotonic())
    stateless: ClassVar = True  # runs that are trained together share the time

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        progress.record["seconds"] = now - self.last
        self.last = now
        if now >= self.deadline:
            raise OutOfTime


class PlannedRun(NamedTuple):
    """One run of a row."""

    spec: Spec
    seed: int
    label: str = ""


@dataclass
class Runner:
    """Runs the rows of tables.

    On a GPU the runs of a row are trained together, with the same results as alone, and so are those of the next rows
    if all start from the same networks.

    Args:
        checkpoint: folder for unfinished fits, and for embeddings and starting points that several rows share.
        say: function that is called with a line for each finished run.
    """

    records: Records
    checkpoint: Path
    device: str = "auto"
    minutes: float = float("inf")
    verbose: bool = False
    say: Callable[[str], None] = print
    missing: dict[str, str] = field(default_factory=dict)  # data sets that could not be had, and why

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + 60 * self.minutes

    def run(self, table: PaperTable, seeds: int, search: bool = False) -> bool:
        """Run until every row has `seeds` runs; with `search`, also the rows whose λ is chosen by validation labels.
        Returns False if the time limit was reached before."""
        try:
            for _, rows in groupby([row for row in table.rows if row.spec is not None], _alike):
                party = list(rows)
                self._complete(table, [job for row in party for job in self._lacking(table, row, seeds)])
                for row in party if search else ():
                    if row.weights:
                        self._search(row, seeds, table)
        except OutOfTime:
            return False
        return True

    def _search(self, row: Row, seeds: int, table: PaperTable) -> None:
        tried = [replace(row, spec=spec, label=named(row.label, spec)) for spec in candidates(row)]
        self._complete(table, [job for each in tried for job in self._lacking(table, each, SEARCH_SEEDS)])
        choice = chosen(row, self.records, table.numbers(SEARCH_SEEDS))
        if choice is not None:
            label = f"{named(row.label, choice)} by validation labels"
            self._complete(table, self._lacking(table, replace(row, spec=choice, label=label), seeds))

    def _lacking(self, table: PaperTable, row: Row, seeds: int) -> list[PlannedRun]:
        assert row.spec is not None
        wanted = row.wanted(seeds)
        authors = table.numbers(wanted) if table.random_states else []
        done = [run for run in self.records.of(row.spec) if not authors or run.seed in authors]
        used = {run.seed for run in done}
        fresh = (seed for seed in authors or count() if seed not in used)
        return [PlannedRun(row.spec, seed, row.label) for seed in islice(fresh, max(0, wanted - len(done)))]

    def _complete(self, table: PaperTable, jobs: list[PlannedRun]) -> None:
        """Run jobs on one data set, as many together as the device allows."""
        many = runs_at_once(choose_device(self.device))
        for first in range(0, len(jobs), many):
            if jobs[0].spec.data in self.missing:
                return
            if time.monotonic() >= self.deadline:
                raise OutOfTime
            try:
                X, y = load_samples(jobs[0].spec)
            except FileNotFoundError as error:
                if str(error) not in self.missing.values():
                    self.say(f"Not run here: {error}")
                self.missing[jobs[0].spec.data] = str(error)
                return
            for job, outcome in self._outcomes(jobs[first : first + many], X, y):
                self.records.add(table.file, [outcome])
                figures = " / ".join(f"{outcome.figures[column]:.2f}" for column in table.metrics.values())
                self.say(f"{job.spec.data}: {job.label}, seed {job.seed}: {figures}, {outcome.place['seconds']} s")

    def _outcomes(self, jobs: list[PlannedRun], X: Any, y: Any) -> Iterator[tuple[PlannedRun, Outcome]]:
        """Outcomes of jobs of one row, or of rows with the same start."""
        kind = jobs[0].spec
        samples = [X] * len(jobs)
        if kind.features is not None:
            samples = self._embeddings([PlannedRun(kind.features, job.seed) for job in jobs], X, y)
        if kind.arriving:
            for job, own in zip(jobs, samples, strict=True):
                yield job, self._streamed(job.spec, own, y, job.seed)
        elif not kind.is_ours:
            for job, own in zip(jobs, samples, strict=True):
                began = time.monotonic()
                labels = classical(job.spec, own, job.seed, self.device)
                seconds = time.monotonic() - began
                name = self._device_name() if takes_device(job.spec) else CPU
                yield job, outcome(job.spec, job.seed, y, {"labels": labels}, seconds, name, "float64")
        else:
            if kind.reads is not None:
                estimators = self._read(jobs, X, y)
            else:
                estimators = self._starts(jobs, X, y) if kind.shared else self._fit(jobs, samples, y)
            histories = [estimator.runs_[0]["history"] for estimator in estimators]
            # an epoch that was undone because its loss was not finite has no duration
            took = [record.get("seconds", 0.0) for each in histories for record in each]
            epoch = sum(took) / max(1, len(took))
            for job, estimator, history in zip(jobs, estimators, histories, strict=True):
                place = self._place(estimator)
                yield job, outcome(job.spec, job.seed, y, estimator.runs_[0], epoch * len(history), *place)

    def _place(self, estimator: Any) -> tuple[str, str]:
        """Device and precision."""
        return self._device_name(), choose_precision(estimator.precision, choose_device(self.device))

    def _device_name(self) -> str:
        device = choose_device(self.device)
        return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device.type}, {platform.machine()}"

    def _streamed(self, spec: Spec, X: Any, y: Any, seed: int) -> Outcome:
        """Labels at arrival: each batch is labelled after the model has learnt from it."""
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
            place = CPU, "float64"
        began = time.monotonic()
        model.fit(X[start])
        labels = []
        for batch in np.array_split(stream, -(-len(stream) // STREAM_BATCH)):
            model.partial_fit(X[batch])
            labels.append(model.predict(X[batch]))
        run = {"labels": np.concatenate(labels)}
        return outcome(spec, seed, y[stream], run, time.monotonic() - began, *place)

    def _fit(self, jobs: Sequence[PlannedRun], samples: Sequence[Any], y: Any) -> list[Any]:
        clock = Clock(self.deadline)
        begins = [PlannedRun(job.spec.begins, job.seed) for job in jobs if job.spec.begins is not None]
        starts = {job.seed: start for job, start in zip(begins, self._starts(begins, samples[0], y), strict=True)}
        estimators, folders = [], []
        for job, X in zip(jobs, samples, strict=True):
            spec, settings = job.spec, dict(job.spec.settings)
            if spec.begins is not None:
                start = starts[job.seed]
                settings |= {"network": start.model_.autoencoder, "init": start.cluster_centers_}
            epochs = spec.settings.get("epochs", "auto")
            every = CURVE_EVERY if epochs == "auto" else max(1, min(CURVE_EVERY, epochs // 20))
            curves = [] if spec.validation else [Evaluate(y, every)]  # scores would include the validation samples
            learns = settings.get("network") != "identity"
            slow = learns and X.shape[0] >= SLOW_FROM_ROWS and choose_device(self.device).type == "cpu"
            folders.append(self.checkpoint / f"{spec.key}-{job.seed}-begun")
            estimators.append(
                spec.estimator()(
                    **settings,
                    random_state=job.seed,
                    device=self.device,
                    verbose=self.verbose,
                    callbacks=[*curves, clock],
                    checkpoint=folders[-1],
                    checkpoint_every=1 if slow else CHECKPOINT_EVERY,
                )
            )
        try:
            fit_each(list(zip(estimators, samples, strict=True)))
        except OutOfTime:
            for folder in folders:
                for older in CheckpointFolder(folder).files()[1:]:  # only the newest is needed
                    older.unlink()
            raise
        events = [kind for e in estimators for kind, _ in e.runs_[0]["diagnostics"]["events"]]
        if "interrupted" in events:
            raise KeyboardInterrupt
        for folder in folders:
            folder.rmdir()
        return estimators

    def _starts(self, jobs: Sequence[PlannedRun], X: Any, y: Any) -> list[Any]:
        """The models that other rows start from, trained once for each seed. They are always loaded from their folder,
        so that all rows start from the same bits."""
        places = [self.checkpoint / f"{job.spec.key}-{job.seed}" for job in jobs]
        new = {place: job for place, job in zip(places, jobs, strict=True) if not (place / SUMS).exists()}
        for estimator, folder in zip(self._learnt(list(new.values()), X, y), new, strict=True):
            estimator.save(folder)
        return [load_estimator(place, device=self.device) for place in places]

    def _read(self, jobs: Sequence[PlannedRun], X: Any, y: Any) -> list[Any]:
        """Models of other rows, with their labels under the settings of these jobs."""
        sources = [job.spec.reads for job in jobs if job.spec.reads is not None]
        models = self._starts([PlannedRun(source, job.seed) for source, job in zip(sources, jobs, strict=True)], X, y)
        for model, source, job in zip(models, sources, jobs, strict=True):
            changed = {name: value for name, value in job.spec.settings.items() if source.settings.get(name) != value}
            model.runs_[0]["labels"] = model.set_params(**changed).predict(X)
        return models

    def _embeddings(self, jobs: Sequence[PlannedRun], X: Any, y: Any) -> list[Any]:
        """Embeddings from the files of earlier rows, or from networks trained for this."""
        places = {job.seed: (job, self.checkpoint / f"{job.spec.key}-{job.seed}.npy") for job in jobs}
        new = [place for place in places.values() if not place[1].exists()]
        fresh = [job for job, _ in new]
        learnt = self._starts(fresh, X, y) if jobs[0].spec.shared else self._learnt(fresh, X, y)
        for estimator, (_, path) in zip(learnt, new, strict=True):
            part = path.with_suffix(".part")
            with part.open("wb") as file:
                np.save(file, estimator.transform(X))
            part.replace(path)
        return [np.load(places[job.seed][1], allow_pickle=False) for job in jobs]

    def _learnt(self, new: Sequence[PlannedRun], X: Any, y: Any) -> list[Any]:
        return self._fit(new, [X] * len(new), y) if new else []


def _alike(row: Row) -> Any:
    """A key. Consecutive rows with the same key start from the same networks and can run together."""
    spec = row.spec
    source = spec and (spec.reads or spec)
    return (source.begins.key, source.shared, source is spec) if source and source.begins else id(row)


@lru_cache(maxsize=1)
def _load(data: str, unit_length: bool, rows: int) -> tuple[Any, Any]:
    X, y = datasets.load(data)
    n = X.shape[0]  # len() does not work for sparse rows
    if rows and rows < n:
        kept = np.sort(np.random.default_rng(0).permutation(n)[:rows])
        X, y = X[kept], y[kept]
    if sp.issparse(X) and X.shape[0] * X.shape[1] <= MAX_DENSE_VALUES:
        X = X.toarray()
    if unit_length:
        flat = np.asarray(X, np.float32).reshape(len(X), -1)
        length = np.linalg.norm(flat, axis=1, keepdims=True)
        X = (flat / np.where(length > 0, length, 1)).reshape(X.shape)
    return X, y


def load_samples(spec: Spec) -> tuple[Any, Any]:
    """The samples of a run, prepared, and their labels. A row of features uses the preparation of its network."""
    source = spec.features or spec
    return _load(spec.data, source.unit_length, source.rows)


def takes_device(spec: Spec) -> bool:
    """Whether a classical method can run on a GPU."""
    return "device" in BASELINES[spec.method].build(1).get_params()


def classical(spec: Spec, X: Any, seed: int, device: str = "auto") -> Any:
    """Labels by a classical method; k-means with further settings is scikit-learn's with its defaults."""
    settings = dict(spec.settings)
    k = settings.pop("n_clusters")
    X = X.astype(np.float64) if sp.issparse(X) else np.asarray(X, np.float64).reshape(len(X), -1)
    if settings and spec.method == "kmeans":
        from sklearn.cluster import KMeans

        return KMeans(k, random_state=seed, **settings).fit_predict(X)
    if takes_device(spec):
        settings["device"] = device
    return BASELINES[spec.method](X, k, seed, **settings)


def validation_split(n: int, share: float) -> tuple[Any, Any]:
    """Indices of the samples for validation and of the scored ones, the same for every run."""
    order = np.random.default_rng(0).permutation(n)
    size = int(share * n)
    return np.sort(order[:size]), np.sort(order[size:])


def outcome(spec: Spec, seed: int, y: Any, run: dict[str, Any], seconds: float, device: str, precision: str) -> Outcome:
    """The scores of a run; `run` is an entry of an estimator's `runs_`, or has only labels."""
    labels = run["labels"]
    validation, scored = validation_split(len(y), spec.validation)
    figures = {
        name: 100 * value for name, value in scores(y[scored], labels[scored]).items() if name in RECORDED_SCORES
    }
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
    return Outcome(spec.data, spec.method, spec.text, seed, 0, figures, place, curve)
