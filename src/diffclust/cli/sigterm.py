"""SIGTERM: what `kill`, `timeout` and schedulers send to end a command."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

TERMINATED = 128 + signal.SIGTERM  # the exit code of shells
REPEAT_SECONDS = 1.0  # a second SIGTERM within this time is ignored: `timeout` sends it to the command and to its group


class Terminated(BaseException):
    """Raised by SIGTERM, with a hint for the user. Not an Exception, so that no `except Exception` catches it."""


@contextlib.contextmanager
def sigterm_raises() -> Iterator[None]:
    """A context in which SIGTERM raises `Terminated`, so that incomplete files are removed. It does nothing if another
    handler is set, or if several processes share a fit: one that waits for the others would get it too late."""
    if int(os.environ.get("WORLD_SIZE", 1)) > 1 or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    last = -REPEAT_SECONDS

    def stop(*_: Any) -> None:
        nonlocal last
        before, last = last, time.monotonic()
        if last - before > REPEAT_SECONDS:
            raise Terminated

    try:
        signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
