"""Work of several scripts, done in processes of its own."""

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any, TypeVar

T = TypeVar("T")


def results_of(run: Callable[..., T], work: list[tuple[Any, ...]], jobs: int) -> Iterator[T]:
    """run(*each) of all work, as it is done; what fails is said, and the others go on. One job is done here."""
    if jobs == 1:
        yield from (run(*each) for each in work)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(run, *each) for each in work]):
            if done.exception() is None:
                yield done.result()
            else:
                print(done.exception(), flush=True)
