"""Thread safety of the fitted state: attributes are replaced all at once, and read from a snapshot."""

import os
import threading
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

E = TypeVar("E")

_locks: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()
_locks_lock = threading.Lock()


def write_lock(estimator: Any) -> "threading.RLock":
    """The lock of an estimator that a thread must hold to change fitted attributes. Threads that only read do not wait
    for it."""
    with _locks_lock:
        return _locks.setdefault(estimator, threading.RLock())


def snapshot(estimator: E) -> E:
    """A shallow copy with the current attributes. Fitted attributes are replaced, never changed in place, so the copy
    is safe."""
    copied = object.__new__(type(estimator))
    copied.__dict__ = vars(estimator).copy()
    return copied


def set_attributes(estimator: Any, fitted: dict[str, Any], *, without: tuple[str, ...] = ()) -> None:
    """Set attributes and delete those in `without`, all at once: other threads see the old ones or the new ones."""
    kept = {name: value for name, value in vars(estimator).copy().items() if name not in without}
    estimator.__dict__ = {**kept, **fitted}


def fitted_names(estimator: Any) -> tuple[str, ...]:
    return tuple(name for name in vars(estimator).copy() if name.endswith("_") and not name.startswith("__"))


def _forget_locks() -> None:
    """After a fork: the threads that held the locks do not exist in the child."""
    global _locks, _locks_lock
    _locks, _locks_lock = WeakKeyDictionary(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)
