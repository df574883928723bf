"""Fit several estimators at once."""

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeGuard, TypeVar

from ..callbacks import TrainingRecord
from ..engine.distributed import current_processes
from ..engine.loop import train
from ..engine.runtime import choose_device, learning
from ..reading.inputs import UserInput, read_rows
from .base import PrototypeClusterer
from .n_clusters import with_n_clusters
from .restarts import build_restarts
from .selection import choose_run

E = TypeVar("E")


def fit_together(estimators: Iterable[E], X: Any) -> list[E]:
    """Fit every estimator to the same samples.

    On a GPU up to 32 estimators train side by side, as restarts do; each ends with the result it would have alone, up
    to rounding. Elsewhere they are fitted one after the other. ::

        models = fit_together([TELL(10, weight=w, random_state=0) for w in (0.01, 0.1, 1)], X)
    """
    listed = [] if hasattr(estimators, "fit") else list(estimators)
    if hasattr(estimators, "fit") or any(isinstance(each, type) or not hasattr(each, "fit") for each in listed):
        raise TypeError("fit_together takes a list of estimators, and then the samples: fit_together([a, b], X).")
    return fit_each([(estimator, X) for estimator in listed])


def fit_each(pairs: Sequence[tuple[E, Any]]) -> list[E]:
    """Fit every estimator to its own samples."""
    estimators = [estimator for estimator, _ in pairs]
    if len({id(estimator) for estimator in estimators}) < len(estimators):
        raise ValueError("An estimator is in the list twice: its second fit would overwrite the first.")
    beside = [(estimator, X) for estimator, X in pairs if _may_be_beside(estimator)]
    for estimator, _ in beside:
        estimator._check_settings()
    folders = [os.path.abspath(estimator.checkpoint) for estimator, _ in beside if estimator.checkpoint is not None]
    if len(set(folders)) < len(folders):
        raise ValueError("Estimators that are fitted together need a checkpoint folder each.")
    records = [id(c) for estimator, _ in beside for c in estimator.callbacks if isinstance(c, TrainingRecord)]
    if len(set(records)) < len(records):
        raise ValueError("A TrainingRecord watches one fit: give every estimator its own.")
    given: dict[tuple[int, str], UserInput] = {}  # by data and `columns`, which may read a table in different ways
    keys = [(id(X), repr(estimator.columns)) for estimator, X in beside]
    for key, (estimator, X) in zip(keys, beside, strict=True):
        if key not in given:
            with learning():
                one = read_rows(estimator, X, fitting=True)
                given[key] = replace(one, rows=one.rows.to(choose_device(estimator.device)))  # one copy for all
    exact = any(estimator.deterministic for estimator, _ in beside)
    with learning(exact), contextlib.ExitStack() as reserved:
        for estimator, _ in beside:
            reserved.enter_context(estimator._reserved())
        settled = [
            with_n_clusters(estimator, estimator._read(given[key]))
            for key, (estimator, _) in zip(keys, beside, strict=True)
        ]
        fits = [
            build_restarts(each, given[key], quiet=i > 0, choice=choice)
            for i, (key, (each, choice)) in enumerate(zip(keys, settled, strict=True))
        ]
        train([restart for restarts in fits for restart in restarts])
        for (estimator, _), (each, choice), restarts in zip(beside, settled, fits, strict=True):
            estimator._adopt(restarts, choose_run(each, restarts), choice)
    for estimator, _ in beside:
        estimator._warn(stacklevel=3)
    for other, X in pairs:
        if not _may_be_beside(other):
            other.fit(X)  # type: ignore[attr-defined]
    return estimators


def _may_be_beside(estimator: Any) -> TypeGuard[PrototypeClusterer]:
    """Whether other fits may run at the same time: not if scikit-learn's callbacks watch, or several processes share
    the fit."""
    ours = isinstance(estimator, PrototypeClusterer)
    return ours and not hasattr(estimator, "_skl_callbacks") and current_processes().alone
