"""Runs of methods in processes of their own: side by side, each within its time, and none ends another."""

import multiprocessing
import sys
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

IMPORTED_LATE = ("torch.optim", "torch._dynamo")  # by the first optimizer
POLL_SECONDS = 0.2  # how often the time limit is checked


class Task(NamedTuple):
    method: str
    seed: int


class Ran(NamedTuple):
    """How a run went: its labels, or why there are none."""

    labels: Any = None
    seconds: float = 0.0
    memory: float = 0.0  # bytes it took beyond what was there
    failure: str = ""


@dataclass(frozen=True)
class Contest:
    """What all runs share: the data as read, its rows for the classical methods, and the number of clusters."""

    data: Any
    rows: Any
    k: int
    device: str = "auto"
    columns: dict[str, str] | None = None

    def run(self, task: Task) -> Ran:
        """Here and now; an error is an answer."""
        from ..baselines import BASELINES
        from ..methods import TRANSDUCTIVE
        from .options import estimator_of

        before = resident()
        began = time.perf_counter()
        try:
            alone = {method.name: method for method in TRANSDUCTIVE if method.name not in BASELINES}
            if task.method in alone:
                settings = {"random_state": task.seed, "device": self.device}
                labels = alone[task.method].load()(self.k, **settings).fit_predict(self.unread())
            elif task.method in BASELINES:
                labels = BASELINES[task.method](self.rows, self.k, task.seed)
            else:
                wishes = {"random_state": task.seed, "device": self.device, "columns": self.columns}
                labels = estimator_of(task.method, self.k, wishes).fit_predict(self.data)
        except Exception as error:
            why = " ".join(str(error).split()) or type(error).__name__
            return Ran(seconds=time.perf_counter() - began, failure=why)
        return Ran(labels, time.perf_counter() - began, max(0.0, peak() - before))

    def unread(self) -> Any:
        """For methods that have no units of their own: images and sparse rows as they are, others as all see them."""
        return self.data if hasattr(self.data, "toarray") or getattr(self.data, "ndim", 2) > 2 else self.rows


def resident() -> float:
    """Bytes in use now; the peak begins anew, where Linux lets it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _status("VmRSS")
    except (OSError, ValueError):
        return peak()


def peak() -> float:
    """The most bytes there were."""
    try:
        return _status("VmHWM")
    except (OSError, ValueError):
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return float(unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _status(name: str) -> float:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return 1024 * float(line.split()[1])


def import_methods() -> None:
    """All that a run imports, so that the first is not charged for it."""
    from ..baselines import BASELINES
    from ..methods import METHODS, TRANSDUCTIVE

    for module in {baseline.module for baseline in BASELINES.values()}:
        import_module(module, "diffclust.baselines")
    for method in {method.module for method in (*METHODS, *TRANSDUCTIVE)}:
        import_module(f".{method}", "diffclust.methods")
    for module in IMPORTED_LATE:
        import_module(module)


def work(connection: Connection, contest: Contest) -> None:
    """A process: tasks in, runs out. Torch has one thread, as there are as many processes as processors."""
    import torch

    import_methods()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    connection.send(None)  # ready
    while True:
        connection.send(contest.run(connection.recv()))


@dataclass
class Worker:
    """A process, and the run that it works on."""

    contest: Contest
    task: Task | None = None
    deadline: float = float("inf")
    ready: bool = False
    process: Any = field(init=False)
    connection: Connection = field(init=False)

    def __post_init__(self) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would inherit the threads of torch, or a GPU
        self.connection, other = context.Pipe()
        self.process = context.Process(target=work, args=(other, self.contest), daemon=True)
        self.process.start()
        other.close()

    def give(self, task: Task, limit: float) -> None:
        self.task, self.deadline = task, time.monotonic() + limit
        self.connection.send(task)

    def answer(self) -> Ran:
        """Of a worker that has something to say, or has died."""
        try:
            return self.connection.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            code = self.process.exitcode
            return Ran(
                failure=f"its process was ended by signal {-code}" if code < 0 else f"its process ended ({code})"
            )

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def run_all(contest: Contest, tasks: Sequence[Task], jobs: int, limit: float) -> Iterator[tuple[Task, Ran]]:
    """Every task with its run, as they come; `jobs` at once, 0 for here. A run may take `limit` seconds; where it takes
    longer, other seeds of the method are not begun."""
    if jobs == 0:
        import_methods()
        yield from ((task, contest.run(task)) for task in tasks)
        return
    waiting, slow = deque(tasks), set[str]()
    workers = [Worker(contest) for _ in range(min(jobs, len(tasks)))]
    try:
        while waiting or any(worker.task for worker in workers):
            for worker in [worker for worker in workers if worker.ready and worker.task is None]:
                if waiting:
                    worker.give(waiting.popleft(), limit)
            wait([worker.connection for worker in workers], timeout=POLL_SECONDS)
            for place, worker in enumerate(workers):
                finished = _look(worker, limit)
                if finished is None:
                    continue
                task, ran = finished
                if worker.task is None and not worker.process.is_alive():
                    workers[place] = Worker(contest)
                yield task, ran
                if ran.failure.startswith("longer than"):
                    slow.add(task.method)
            for task in [task for task in waiting if task.method in slow]:
                waiting.remove(task)
                yield task, Ran(failure="skipped: another seed took too long")
    finally:
        for worker in workers:
            worker.end()


def _look(worker: Worker, limit: float) -> tuple[Task, Ran] | None:
    """What a worker has come to, if anything."""
    task = worker.task
    if worker.connection.poll():
        ran = worker.answer()
        if not worker.ready:
            if isinstance(ran, Ran):  # it died on its way
                raise RuntimeError(f"A process could not be started: {ran.failure}.")
            worker.ready = True
            return None
        worker.task = None
        if not ran.seconds:
            worker.end()
        return (task, ran) if task else None
    if task and time.monotonic() > worker.deadline:
        worker.end()
        worker.task = None
        return task, Ran(seconds=limit, failure=f"longer than {limit:g} seconds")
    return None
