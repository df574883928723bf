"""The fitted state of an estimator: seen and changed at one moment, whatever other threads do."""

import os
import threading
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

E = TypeVar("E")

_locks: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()
_door = threading.Lock()


def learns_alone(estimator: Any) -> "threading.RLock":
    """Inside, no other thread changes the estimator; those that only ask it do not wait."""
    with _door:
        return _locks.setdefault(estimator, threading.RLock())


def as_it_is(estimator: E) -> E:
    """A view of the estimator, which stays what it is now: nothing fitted is ever changed in place."""
    view = object.__new__(type(estimator))
    view.__dict__ = vars(estimator).copy()
    return view


def become(estimator: Any, fitted: dict[str, Any], *, without: tuple[str, ...] = ()) -> None:
    """Give the estimator new attributes, and take away `without`, at one moment."""
    kept = {name: value for name, value in vars(estimator).copy().items() if name not in without}
    estimator.__dict__ = {**kept, **fitted}


def fitted_names(estimator: Any) -> tuple[str, ...]:
    return tuple(name for name in vars(estimator).copy() if name.endswith("_") and not name.startswith("__"))


def _forget_locks() -> None:
    """In a fork: whoever held them is not there."""
    global _locks, _door
    _locks, _door = WeakKeyDictionary(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)
