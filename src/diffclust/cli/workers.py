"""Runs of methods in parallel processes, each with a time limit. A crash ends only its own run."""

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

POLL_SECONDS = 0.2  # how often the time limit is checked


class Task(NamedTuple):
    method: str
    seed: int


class RunResult(NamedTuple):
    """The labels of a run, or why there are none."""

    labels: Any = None
    seconds: float = 0.0
    memory: float = 0.0  # bytes that the run allocated at most
    failure: str = ""


@dataclass(frozen=True)
class RunInputs:
    """What all runs share: the data, the rows for the classical methods, and the number of clusters."""

    data: Any
    rows: Any
    k: int
    device: str = "auto"
    columns: dict[str, str] | None = None

    def run(self, task: Task) -> RunResult:
        """Run a task in this process. An error becomes the `failure` of its result."""
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
            return RunResult(seconds=time.perf_counter() - began, failure=why)
        return RunResult(labels, time.perf_counter() - began, max(0.0, peak() - before))

    def unread(self) -> Any:
        """The data for methods that do not scale columns: images and sparse rows as they are, otherwise `rows`."""
        return self.data if hasattr(self.data, "toarray") or getattr(self.data, "ndim", 2) > 2 else self.rows


def resident() -> float:
    """Bytes in use now. Linux can also reset the peak, which is done."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _status("VmRSS")
    except (OSError, ValueError):
        return peak()


def peak() -> float:
    """The largest number of bytes in use since the last reset."""
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
    """Import everything that runs need, so that the time of the first run does not include it."""
    from ..baselines import BASELINES
    from ..methods import METHODS, TRANSDUCTIVE

    for module in {baseline.module for baseline in BASELINES.values()}:
        import_module(module, "diffclust.baselines")
    for method in {method.module for method in (*METHODS, *TRANSDUCTIVE)}:
        import_module(f".{method}", "diffclust.methods")


def work(connection: Connection, inputs: RunInputs) -> None:
    """The main function of a process: receives tasks, sends results. Torch has one thread, because there is a process
    for each processor."""
    import torch

    import_methods()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    connection.send(None)  # ready
    while True:
        connection.send(inputs.run(connection.recv()))


@dataclass
class Worker:
    """A process and its current task."""

    inputs: RunInputs
    task: Task | None = None
    deadline: float = float("inf")
    ready: bool = False
    process: Any = field(init=False)
    connection: Connection = field(init=False)

    def __post_init__(self) -> None:
        context = multiprocessing.get_context("spawn")  # a forked process cannot use torch's threads or a GPU
        self.connection, other = context.Pipe()
        self.process = context.Process(target=work, args=(other, self.inputs), daemon=True)
        self.process.start()
        other.close()

    def give(self, task: Task, limit: float) -> None:
        self.task, self.deadline = task, time.monotonic() + limit
        self.connection.send(task)

    def answer(self) -> RunResult:
        """The message of a worker, or a failure if its process has ended."""
        try:
            return self.connection.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            code = self.process.exitcode
            return RunResult(
                failure=f"its process was ended by signal {-code}" if code < 0 else f"its process ended ({code})"
            )

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def run_all(inputs: RunInputs, tasks: Sequence[Task], jobs: int, limit: float) -> Iterator[tuple[Task, RunResult]]:
    """Every task with its result, in the order in which they finish.

    Args:
        jobs: number of processes; 0: run in this process.
        limit: seconds that a run may take. After a run that takes longer, other seeds of its method are skipped.
    """
    if jobs == 0:
        import_methods()
        yield from ((task, inputs.run(task)) for task in tasks)
        return
    waiting, slow = deque(tasks), set[str]()
    workers = [Worker(inputs) for _ in range(min(jobs, len(tasks)))]
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
                task, result = finished
                if worker.task is None and not worker.process.is_alive():
                    workers[place] = Worker(inputs)
                yield task, result
                if result.failure.startswith("longer than"):
                    slow.add(task.method)
            for task in [task for task in waiting if task.method in slow]:
                waiting.remove(task)
                yield task, RunResult(failure="skipped: another seed took too long")
    finally:
        for worker in workers:
            worker.end()


def _look(worker: Worker, limit: float) -> tuple[Task, RunResult] | None:
    """The task and result of a worker that has finished, failed or reached the limit."""
    task = worker.task
    if worker.connection.poll():
        result = worker.answer()
        if not worker.ready:
            if isinstance(result, RunResult):  # its process ended while it started
                raise RuntimeError(f"A process could not be started: {result.failure}.")
            worker.ready = True
            return None
        worker.task = None
        if not result.seconds:
            worker.end()
        return (task, result) if task else None
    if task and time.monotonic() > worker.deadline:
        worker.end()
        worker.task = None
        return task, RunResult(seconds=limit, failure=f"longer than {limit:g} seconds")
    return None
