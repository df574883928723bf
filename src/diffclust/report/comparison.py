"""Compare two models on the same rows, or the rows of two dates: matched clusters, moves and drift."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from .. import metrics
from ..explain import words
from ..explain.clusters import Census, group_means
from ..explain.rows import Subject
from ..explain.tables import column_facts
from ..reading.tables import deviations
from .names import given_names

MOVES = 12  # the largest are described
NAMED = 8  # rows of a move
MAX_DIFFERENCES = 4  # columns that tell a move, or a drift
SLIGHTLY = 0.05  # standard deviations over all rows: within a cluster rows differ by less than among all
FAR = 0.99  # a row is far from its centre if it is beyond this share of the earlier rows
# Share of far rows beyond which they have moved away. Training rows lie closer to their centres than others of the same
# distribution: of these 2 to 10 % are far with a network, 1 % without one.
MOVED_AWAY = 0.1
BEYOND_CHANCE = 3.0  # standard errors


@dataclass(frozen=True)
class Pair:
    """A cluster of the first model and the one it is matched with; one side is None where there is no match.

    Attributes:
        shared: rows that both models put there.
        sizes: rows before and after.
        shares: of all rows before and after.
        drifted: whether the share changed by more than rows drawn by chance would change it; None on the same rows.
        distance: mean squared distance to the centre, of the later rows over that of the earlier ones; None on the
            same rows, or where there are none.
        far: share of the later rows that are farther from the centre than 99 % of the earlier ones were.
        said: how the later rows differ from the earlier ones, in the words of their table.
    """

    before: int | None
    after: int | None
    shared: int
    sizes: tuple[int, int]
    shares: tuple[float, float]
    drifted: bool | None = None
    distance: float | None = None
    far: float | None = None
    said: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Move:
    """Rows that did not stay with the matched cluster.

    Attributes:
        before: their cluster by the first model.
        after: their cluster by the second.
        size: how many.
        rows: some of them, those first of which both models are sure.
        said: what sets them apart within the cluster they leave.
    """

    before: int
    after: int
    size: int
    rows: list[int]
    said: list[str]


@dataclass(frozen=True, eq=False)
class Comparison:
    """What `compare_models` found.

    Attributes:
        names: what the two sides are called.
        totals: number of rows before and after.
        pairs: every cluster of either model, matched ones first, the largest first.
        flows: (k of a, k of b), how many rows go from which cluster to which; None for one model.
        moves: the largest flows that leave the matched cluster; none for one model.
        agreement: adjusted Rand index of the two models' labels; None for one model.
        stayed: share of rows that stay with the matched cluster; None for one model.
        far: share of the later rows that are far from every centre of the first model; None on the same rows.
        called: names of the clusters on both sides, by number, where the models were given names.
    """

    names: tuple[str, str]
    totals: tuple[int, int]
    pairs: list[Pair]
    flows: np.ndarray | None
    moves: list[Move]
    agreement: float | None
    stayed: float | None
    far: float | None
    called: tuple[dict[int, str], dict[int, str]]
    subject: Subject = field(repr=False)  # the rows that moves name, as the first model reads them

    @property
    def sentence(self) -> str:
        """A summary in words."""
        one, two = self.names
        said = []
        if self.stayed is not None and self.flows is not None:
            matched = sum(pair.before is not None and pair.after is not None for pair in self.pairs)
            said.append(
                f"{100 * self.stayed:.1f} % of {int(self.flows.sum()):,} rows stay with the matched cluster "
                f"(adjusted Rand index {self.agreement:.2f}). {matched} of the {self.flows.shape[0]} clusters of {one} "
                f"have a match among the {self.flows.shape[1]} of {two}."
            )
        if self.moves:
            most = self.moves[0]
            said.append(
                f"The largest move: {most.size:,} rows from {self._cluster(0, most.before)} of {one} "
                f"({self._match_of(most.before)}) to {self._cluster(1, most.after)} of {two}."
            )
        if self.far is not None:
            said += self._drift()
        return " ".join(said)

    def _cluster(self, side: int, j: int) -> str:
        """ "cluster 3", or "cluster 3 “students”" where it was given a name."""
        name = self.called[side].get(j)
        return f"cluster {j}" if name is None else f"cluster {j} “{name}”"

    def _match_of(self, before: int) -> str:
        after = next((pair.after for pair in self.pairs if pair.before == before), None)
        return "which has no match" if after is None else f"which is matched with {after}"

    @property
    def moved_away(self) -> bool | None:
        """Whether more of the later rows are far than a model that was not trained on them explains: more than 10 %."""
        return None if self.far is None else self.far > MOVED_AWAY

    def _drift(self) -> list[str]:
        drifting = [pair for pair in self.pairs if pair.drifted]
        most = max(drifting, key=lambda pair: abs(pair.shares[1] - pair.shares[0]), default=None)
        said = [f"{self.totals[1]:,} later rows and {self.totals[0]:,} earlier ones."]
        if most is None:
            said.append("No cluster changed its share by more than chance.")
        else:
            side, which = (0, most.before) if most.before is not None else (1, most.after)
            shares = f"from {100 * most.shares[0]:.1f} % to {100 * most.shares[1]:.1f} % of the rows"
            said.append(
                f"The share of {self._cluster(side, int(which or 0))} changed most, {shares}; {len(drifting)} of "
                f"{len(self.pairs)} clusters changed by more than chance."
            )
        verdict = "they have moved away" if self.moved_away else "no drift"
        said.append(
            f"{100 * (self.far or 0):.1f} % of the later rows are farther from their centre than 99 % of the earlier "
            f"ones: {verdict} (of rows that are new but not different up to {100 * MOVED_AWAY:.0f} % are)."
        )
        return said

    def __str__(self) -> str:
        return self.sentence

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain lists and numbers."""
        plain = ("names", "totals", "flows", "agreement", "stayed", "far", "moved_away", "called", "sentence")
        found = {name: words.plain(getattr(self, name)) for name in plain}
        parts = {name: [words.plain(asdict(each)) for each in getattr(self, name)] for name in ("pairs", "moves")}
        return {**found, **parts}

    def _repr_html_(self) -> str:
        head = ["cluster", "matched", *(f"share of {name}" for name in self.names)]
        shares = [[p.before, p.after, *(f"{100 * share:.1f} %" for share in p.shares)] for p in self.pairs[:20]]
        lines = [["–" if cell is None else cell for cell in line] for line in shares]
        return words.card(" and ".join(self.names), words.paragraph(self.sentence), words.table(head, lines))

    def report(
        self, path: str | os.PathLike[str], *, captions: Sequence[str] | None = None, title: str | None = None
    ) -> Path:
        """Write one self-contained HTML page, which opens offline.

        Args:
            captions: a text or a name for each row that was compared, the later ones where there are two dates.
            title: of the page.
        """
        from .comparison_page import write_comparison

        return write_comparison(self, path, captions=captions, title=title)


def compare_models(a: Any, b: Any, X: Any, new: Any = None, *, names: tuple[str, str] | None = None) -> Comparison:
    """Compare two models on the same rows X, or, with `new`, the rows of two dates.

    Clusters are matched one to one, so that as many rows as possible stay (the Hungarian method), on the rows that both
    models label: `new` if given, otherwise X. With `new`, shares are those of X under `a` and of `new` under `b`, and
    distances are those of `a` for both. To compare new rows with the training rows of one model, pass it twice.

    Args:
        a: a fitted estimator with `predict`.
        b: another, or the same.
        X: rows, as for `predict`.
        new: rows of a later date.
        names: names of the two sides; by default "A" and "B", or "before" and "after" with `new`.
    """
    for model in (a, b):
        check_is_fitted(model)
        if not hasattr(model, "predict"):
            raise TypeError(
                f"{type(model).__name__} cannot label rows that it was not fitted on: there is nothing to compare."
            )
    if a is b and new is None:
        raise ValueError("A model cannot be compared with itself on the same rows: give another model, or new rows.")
    names = names or (("A", "B") if new is None else ("before", "after"))
    before = Census.of(Subject.of(a, X))
    here = before if new is None else Census.of(Subject.of(a, new))
    there = here if a is b else Census.of(Subject.of(b, X if new is None else new))
    matched = {j: j for j in range(len(here.means))} if a is b else matching(here.labels, there.labels)
    flows = np.zeros((len(here.means), len(there.means)), dtype=np.int64)
    np.add.at(flows, (here.labels, there.labels), 1)
    far = None if new is None else is_far(before, here)
    pairs = [
        pair(i, j, before, here, there, flows, far)
        for i, j in [
            *matched.items(),
            *((i, None) for i in range(len(flows)) if i not in matched),
            *((None, j) for j in range(flows.shape[1]) if j not in matched.values()),
        ]
    ]
    moves = [] if a is b else find_moves(here, there, flows, matched)
    stays = sum(flows[i, j] for i, j in matched.items()) / flows.sum()
    return Comparison(
        names=names,
        totals=(len(before.labels), len(there.labels)),
        pairs=sorted(pairs, key=lambda p: (p.before is None, p.after is None, -p.sizes[0], -p.sizes[1])),
        flows=None if a is b else flows,
        moves=moves,
        agreement=None if a is b else float(metrics.ari(here.labels, there.labels)),
        stayed=None if a is b else float(stays),
        far=None if far is None else float(far.mean()),
        called=(given_names(a, None).clusters, given_names(b, None).clusters),
        subject=here.subject,
    )


def matching(before: np.ndarray, after: np.ndarray) -> dict[int, int]:
    """Cluster of the first -> cluster of the second; without pairs that share no row."""
    named = {int(i): int(j) for j, i in metrics.match(before, after).items()}
    return {i: j for i, j in sorted(named.items()) if ((before == i) & (after == j)).any()}


def is_far(before: Census, after: Census) -> np.ndarray:
    """Which later rows are beyond most earlier rows of their cluster; of a cluster that had none, of all."""
    limits = np.full(len(before.means), np.quantile(before.distance, FAR))
    for j in np.unique(before.labels):
        limits[j] = np.quantile(before.distance[before.labels == j], FAR)
    return after.distance > limits[after.labels]


def pair(
    i: int | None,
    j: int | None,
    before: Census,
    here: Census,
    there: Census,
    flows: np.ndarray,
    far: np.ndarray | None,
) -> Pair:
    """`before` and `here` are of the first model, on the earlier and on the later rows; `there` of the second."""
    sizes = (0 if i is None else int((before.labels == i).sum()), 0 if j is None else int((there.labels == j).sum()))
    totals = (len(before.labels), len(there.labels))
    shares = (sizes[0] / totals[0], sizes[1] / totals[1])
    shared = 0 if i is None or j is None else int(flows[i, j])
    if far is None:
        return Pair(i, j, shared, sizes, shares)
    own = here.labels == i
    earlier = before.distance[before.labels == i]
    known = bool(own.any()) and len(earlier) > 0
    return Pair(
        i,
        j,
        shared,
        sizes,
        shares,
        drifted=beyond_chance(sizes, totals),
        distance=float(here.distance[own].mean() / max(earlier.mean(), 1e-300)) if known else None,
        far=float(far[own].mean()) if own.any() else None,
        said=drift_of(int(i), before, here) if i is not None and known else [],
    )


def beyond_chance(sizes: tuple[int, int], totals: tuple[int, int]) -> bool:
    """Whether two shares differ by more than three standard errors of their difference."""
    p = sum(sizes) / sum(totals)
    error = np.sqrt(p * (1 - p) * (1 / totals[0] + 1 / totals[1]))
    return bool(abs(sizes[1] / totals[1] - sizes[0] / totals[0]) > BEYOND_CHANCE * error)


def drift_of(j: int, before: Census, after: Census) -> list[str]:
    """How the later rows of a cluster differ from the earlier ones."""
    return differences(before, np.stack([after.means[j], before.means[j]]), np.array([0, 1]))


def differences(census: Census, means: np.ndarray, weights: np.ndarray) -> list[str]:
    """How the first of two groups differs from the weighted mean of both, in the words of the table or the columns;
    nothing for images."""
    reading, names = getattr(census.subject.estimator, "columns_", None), census.subject.feature_names
    if reading is not None:
        return [
            fact.sentence
            for fact in column_facts(reading, means, census.spread, weights, 0, SLIGHTLY)[:MAX_DIFFERENCES]
        ]
    if names is None:
        return []
    whole = np.average(means, axis=0, weights=weights)
    away = (means[0] - whole) / np.where(census.spread > 0, census.spread, np.inf)
    heavy = words.heaviest(names, away, MAX_DIFFERENCES)
    return [f"{name} {deviations(value)}" for name, value in heavy if abs(value) > SLIGHTLY]


def find_moves(here: Census, there: Census, flows: np.ndarray, matched: dict[int, int]) -> list[Move]:
    """The largest flows that leave the matched cluster, described within the cluster they leave."""
    leaving = flows.copy()
    for i, j in matched.items():
        leaving[i, j] = 0
    order = np.argsort(-leaving, axis=None, kind="stable")[:MOVES]
    largest = [divmod(int(at), flows.shape[1]) for at in order if leaving.ravel()[at]]
    groups = len(largest) + here.labels  # the others, by the cluster they are in
    for number, (i, j) in enumerate(largest):
        groups[(here.labels == i) & (there.labels == j)] = number
    numbers = torch.from_numpy(groups).to(here.subject.data.device)
    means, _ = group_means(here.subject, numbers, len(largest) + len(flows))
    sizes = np.bincount(groups, minlength=len(means))
    sure = here.probability * there.probability
    moves = []
    for number, (i, j) in enumerate(largest):
        rows = np.flatnonzero(groups == number)
        first = rows[np.argsort(-sure[rows], kind="stable")[:NAMED]].tolist()
        rest = len(largest) + i
        weights = np.array([sizes[number], sizes[rest]])
        moves.append(Move(i, j, len(rows), first, differences(here, means[[number, rest]], weights)))
    return moves
