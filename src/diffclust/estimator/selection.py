"""Choose the result without labels: one of the restarts by a rule, or k-means on the rows."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from ..engine.data import Data
from ..engine.phase import Phase
from ..engine.restart import Restart
from ..engine.run import Run
from ..engine.runtime import seeded
from ..metrics import effective_number
from . import networks

if TYPE_CHECKING:
    from .base import PrototypeClusterer

# A network is kept if its clusters cut clearly fewer edges of the neighbour graph than k-means on the rows: less than
# CLEARLY_LESS - FEW_ROWS / √n times as many, since few rows are little evidence.
CLEARLY_LESS, FEW_ROWS = 0.95, 3.0
# If there are binary columns, with more than RARE of the rows on either side, neighbours share their values, and a cut
# along them costs almost nothing. Then k-means on the rows is kept unless it cuts more than WITH_CATEGORIES.
WITH_CATEGORIES, RARE = 0.1, 0.05
MIN_ROWS = 100  # fewer rows are too little evidence for a network


def _smallest(value: Callable[[Run], float]) -> Callable[[list[Run]], int]:
    return lambda runs: min(range(len(runs)), key=lambda i: (not np.isfinite(value(runs[i])), value(runs[i])))


def agreement(runs: list[Run]) -> int:
    """The run whose labels agree best with the other runs' (mean adjusted Rand index); with fewer than
    three sound runs, the one with the smallest loss."""
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


def choose_run(estimator: "PrototypeClusterer", restarts: list[Restart]) -> Run:
    """The result of a fit: the best run, also measured by the model's other assignment, if it has one."""
    return best_run(estimator, restarts).with_other_assignment(restarts[0].data)


def best_run(estimator: "PrototypeClusterer", restarts: list[Restart]) -> Run:
    """The best restart by the rule `select`; with features="auto", falls back to k-means on the rows if the network is
    not clearly better."""
    runs = [restart.result for restart in restarts if restart.result is not None]
    if not runs:
        raise KeyboardInterrupt  # before the first had anything to show
    best, data = runs[RULES[estimator.select](runs)], restarts[0].data
    if data.graph is None or estimator.features != "auto" or not estimator.can_fall_back:
        return best
    if estimator._has_given_centers:  # in the network's embedding
        return best
    if networks.compared_as_they_are(data) and not networks.are_choices(data.summary):
        return best  # texts of one topic share few words, so any clustering cuts many edges
    rows = _kmeans_on_rows(estimator, data, best)
    learnt_labels, rows_labels = (torch.from_numpy(run.labels).to(data.device) for run in (best, rows))
    known = data.knowledge
    if known is not None and known.share_satisfied(rows_labels) < known.share_satisfied(learnt_labels):
        return best
    learnt_cut, rows_cut = (data.graph.cut(labels, estimator.n_clusters) for labels in (learnt_labels, rows_labels))
    clearly_less = learnt_cut < (CLEARLY_LESS - FEW_ROWS / math.sqrt(len(data))) * rows_cut
    trusted = rows_cut > WITH_CATEGORIES or not _has_categories(data)
    n_neighbors = data.graph.index.shape[1]
    few = len(data) < max(MIN_ROWS, n_neighbors * estimator.n_clusters)  # most neighbours would be in other clusters
    return best if clearly_less and trusted and not few else rows


def _has_categories(data: Data) -> bool:
    """Whether a column is binary with neither value rare; pixels of black-and-white images do not count."""
    values = data.summary
    share = (values.mean - values.lows) / values.reach.clamp_min(1e-30)
    return len(data.row_shape) == 1 and bool((values.two_valued & (share > RARE) & (share < 1 - RARE)).any())


def _kmeans_on_rows(estimator: "PrototypeClusterer", data: Data, learnt: Run) -> Run:
    """The result without a network: k-means on the scaled rows."""
    with seeded(learnt.seed, data.device):
        plain = clone(estimator).set_params(**({"init": "k-means"} if hasattr(estimator, "init") else {}))
        model = plain.build_model(networks.build("scaled", data, 0, {}), len(data)).to(data.device)
        placing = Phase("clustering", model, data, None, epochs=0)
        placing.start()
        placing.finish()
        model.note(
            "fallback",
            "The network did not keep clearly more neighbours together than k-means on the rows: k-means is used.",
        )
        return learnt.with_model(model, data, model.events)
