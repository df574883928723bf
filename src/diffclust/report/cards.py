"""The card of a cluster: its rows, its columns against the whole, its words where they stand."""

from typing import Any

import numpy as np

from ..explain.clusters import describe_cluster
from ..explain.names import names_by_facts
from ..explain.tables import NAMING
from .contexts import in_context, words_of_clusters
from .curves import curves_of
from .material import NAMED, Material, number, shown_clusters
from .spreads import Spread, distinctive, spreads


def cards(material: Material) -> dict[str, Any]:
    """A card for each cluster, and the columns whose values it shows."""
    shown = shown_clusters(material.census)
    found = [card(material, j) for j in shown]
    wanted: dict[int, list[int]] = {}
    columns: dict[int, Spread] = {}
    drawn = curves_of(material.census) if material.kind == "table" else None
    if material.kind == "table" and drawn is None:  # columns of a curve that stand side by side are spread alike
        wanted = {j: distinctive(material.census, j, NAMED) for j in shown}
        columns = spreads(material.census, {i for each in wanted.values() for i in each})
    words = telling(material)
    names = found_names(material, words)
    order = {i: number for number, i in enumerate(columns)}
    for j, each in zip(shown, found, strict=True):
        each["spreads"] = [[order[i], columns[i].of(j)] for i in wanted.get(j, []) if i in columns]
        each["words"] = words[j] if words else []
        each["name"] = names[j]
        each["curve"] = None if drawn is None else drawn.of(j)
        each["contexts"] = contexts(material, j, words[j]) if words else []
    return {
        "clusters": found,
        "spreads": [column.to_dict() for column in columns.values()],
        "curves": None if drawn is None else drawn.to_dict(),
    }


def found_names(material: Material, words: list[list[str]] | None) -> list[str]:
    """What each cluster may be called, by its columns or words; nothing for images and for columns without names."""
    census, k = material.census, len(material.census.means)
    facts = [census.facts(j) or [] for j in range(k)]
    if any(facts):
        return [name if own else "" for name, own in zip(names_by_facts(facts), facts, strict=True)]
    return [", ".join(own[:NAMING]) for own in words] if words else [""] * k


def telling(material: Material) -> list[list[str]] | None:
    """The words of each cluster, where rows are texts or have texts beside them."""
    if material.texts is None:
        return None
    return words_of_clusters(material.census, material.texts)


def contexts(material: Material, j: int, words: list[str]) -> list[list[Any]]:
    """Words of a cluster in the texts of its rows on the map, the most typical first."""
    assert material.texts is not None
    census, place = material.census, material.place
    mine = [row for row in material.rows if census.labels[row] == j]
    mine.sort(key=lambda row: census.distance[row])
    return [[place[row], *parts] for row, *parts in in_context(words, material.texts, mine)]


def card(material: Material, j: int) -> dict[str, Any]:
    names = [str(n) for n in material.explanations[0].feature_names or []] or None
    cluster = describe_cluster(material.estimator, j, material.census, names, NAMED)
    place, away, means = material.place, material.census.contrast(j), material.census.means[j]
    heavy = [i for i in np.argsort(-np.abs(away), kind="stable")[:NAMED].tolist() if away[i]]
    return {
        "cluster": j,
        "size": cluster.size,
        "share": number(cluster.share),
        "tightness": None if cluster.relative_tightness is None else number(cluster.relative_tightness),
        "neighbours": [[i, number(distance)] for i, distance in cluster.neighbours[:3]],
        "typical": [place[i] for i in cluster.typical or [] if i in place],
        "doubtful": [place[i] for i, _, _ in cluster.doubtful or [] if i in place],
        "features": [[names[i], number(away[i]), number(means[i])] for i in heavy] if names else [],
        "columns": [fact.sentence for fact in (cluster.columns or [])[:NAMED]],
    }
