"""SIGTERM: what `kill`, `timeout` and schedulers send to end a command."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

TERMINATED = 128 + signal.SIGTERM  # the exit code, as shells have it
TWICE = 1.0  # seconds: `timeout` sends it to the command and then to its group


class Terminated(BaseException):
    """Stop now; with what the user can do next. Not an Exception, which many would take for a failure of their own."""


@contextlib.contextmanager
def sigterm_raises() -> Iterator[None]:
    """Inside, SIGTERM raises `Terminated`, and so half-written files are removed on the way out. Not where the caller
    decided otherwise, and not in several processes: one that waits for the others would hear it too late."""
    if int(os.environ.get("WORLD_SIZE", 1)) > 1 or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    last = -TWICE

    def stop(*_: Any) -> None:
        nonlocal last
        before, last = last, time.monotonic()
        if last - before > TWICE:
            raise Terminated

    try:
        signal.signal(signal.SIGTERM, stop)
    except ValueError:  # in a thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
