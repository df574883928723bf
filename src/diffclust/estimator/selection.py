"""The rules that choose one of several restarts, without labels."""

from collections.abc import Callable

import numpy as np
from sklearn.metrics import adjusted_rand_score

from ..engine.run import Run
from ..metrics import effective_number


def _smallest(value: Callable[[Run], float]) -> Callable[[list[Run]], int]:
    return lambda runs: min(range(len(runs)), key=lambda i: (not np.isfinite(value(runs[i])), value(runs[i])))


def agreement(runs: list[Run]) -> int:
    """The run whose labels agree best with the other runs' (mean adjusted Rand index); of two, the smaller loss."""
    sound = [i for i, run in enumerate(runs) if not run.collapsed]  # collapsed runs agree perfectly with one another
    sound = sound or list(range(len(runs)))
    if len(sound) < 3:
        return sound[RULES["loss"]([runs[i] for i in sound])]
    labels = [runs[i].labels for i in sound]
    scores = [np.mean([adjusted_rand_score(a, b) for b in labels if b is not a]) for a in labels]
    return sound[int(np.argmax(scores))]


RULES: dict[str, Callable[[list[Run]], int]] = {
    "loss": _smallest(lambda run: run.clustering_loss),  # TELL's
    "scatter": _smallest(lambda run: run.scatter),
    "agreement": agreement,
    "balance": _smallest(lambda run: -effective_number(run.sizes)),  # for clusters known to be about as large
}
