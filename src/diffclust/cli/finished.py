"""A finished fit: what the command prints about it, and the tables it writes."""

import csv
import io
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .errors import EXIT_WARNINGS
from .tables import print_number, print_table, print_unlabelled

PRINTED_SCORES = ("acc", "nmi", "ari")  # --json has all scores
CLUSTER_COLUMNS = ["cluster", "name", "rows", "set apart by"]


@dataclass(frozen=True)
class FinishedFit:
    estimator: Any
    data: str
    out: Path
    seconds: float
    y: Any  # true labels, if there are any
    clusters: list[list[str]]  # size and description of each cluster, if the data are a table or texts

    @property
    def interrupted(self) -> bool:
        return any(kind == "interrupted" for run in self.estimator.runs_ for kind, _ in run["diagnostics"]["events"])

    @cached_property
    def scores(self) -> dict[str, float]:
        from ..metrics import is_labelled, scores

        if self.y is None:
            return {}
        known = is_labelled(self.y)
        return scores(self.y[known], self.estimator.labels_[known])

    def as_json(self) -> dict[str, Any]:
        from ..explain.model import why_no_network

        estimator, found = self.estimator, self.estimator.diagnostics_
        reading = getattr(estimator, "columns_", None)
        return {
            "data": self.data,
            "out": str(self.out),
            "method": type(estimator).__name__,
            "rows": len(estimator.labels_),
            "sizes": list(found["sizes"]),
            "names": estimator.names_,
            "number": found.get("number"),
            "fallback": why_no_network(estimator),
            "clustering_loss": estimator.clustering_loss_,
            "repaired": found["repaired"],
            "seconds": self.seconds,
            "scores": self.scores,
            "columns": None if reading is None else {each.name: each.description for each in reading.columns},
            "clusters": self.clusters,
            "soundness": found["soundness"],
            "unchecked": found["unchecked"],
            "warnings": found["warnings"],
        }

    def print(self) -> None:
        from ..explain.model import why_no_network

        estimator, found = self.estimator, self.estimator.diagnostics_
        rows = [
            ["rows", f"{len(estimator.labels_):,}"],
            ["cluster sizes", " ".join(str(size) for size in found["sizes"])],
            ["clustering loss", f"{estimator.clustering_loss_:.6g}"],
            *([["dead centres repaired", str(found["repaired"])]] if found["repaired"] else []),
            ["seconds", f"{self.seconds:.1f}"],
            *([name.upper(), f"{100 * self.scores[name]:.2f}"] for name in PRINTED_SCORES if name in self.scores),
        ]
        print_table(["", f"{type(estimator).__name__} on {self.data}"], rows)
        print_number(found.get("number"))
        if (why := why_no_network(estimator)) is not None:
            print(why)
        if self.clusters:
            print_table(CLUSTER_COLUMNS, self.named_clusters())
        print_unlabelled(self.y)
        out = self.out
        print(f"Saved to {out}: the cluster of every row is in labels.csv there.")
        print(f"Next: 'diffclust report {out}' writes a page about it, 'diffclust explain {out} --row 0' says why a")
        print(f"row is in its cluster, 'diffclust predict {out} NEW --out labels.csv' labels the rows of another file.")
        for what in found["unchecked"]:
            print(f"Not checked: {what}.")

    def named_clusters(self) -> list[list[str]]:
        named = zip(self.estimator.names_, self.clusters, strict=True)
        return [[str(j), name, *line] for j, (name, line) in enumerate(named)]

    def clusters_csv(self) -> bytes:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(CLUSTER_COLUMNS)
        writer.writerows(self.named_clusters())
        return text.getvalue().encode("utf-8", "surrogateescape")

    def warn(self) -> None:
        """Warn of the reasons to doubt the clusters."""
        from sklearn.exceptions import ConvergenceWarning

        for message in self.estimator.diagnostics_["warnings"]:
            warnings.warn(message, ConvergenceWarning, stacklevel=2)

    def exit_code(self, strict: bool) -> int:
        if self.interrupted:
            return 1
        return EXIT_WARNINGS if strict and self.estimator.diagnostics_["warnings"] else 0


def clusters_of(estimator: Any, given: Any, shown: Any) -> list[list[str]]:
    """The size and description of each cluster, if the data are a table or texts. Clusters without a given name are
    named by their description."""
    from ..explain.clusters import cluster_facts
    from ..explain.names import names_by_facts
    from ..explain.words import listing

    facts = cluster_facts(estimator, given, shown)
    if facts is None:
        return []
    found = {j: name for j, name in enumerate(names_by_facts(facts)) if any(fact.phrase for fact in facts[j])}
    estimator.names_ = {**found, **estimator.given_names_}
    told = [listing(fact.sentence for fact in own[:4]) or "no column" for own in facts]
    return [[str(size), text] for size, text in zip(estimator.diagnostics_["sizes"], told, strict=True)]
