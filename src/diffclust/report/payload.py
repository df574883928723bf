"""Everything the page shows, as plain numbers and strings: what can be turned into JSON.

The page is for one fitted estimator and the rows X. Of many rows a sample is drawn: every row that a card names, and
evenly spaced others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import torch

from .. import __version__, metrics
from ..callbacks import TrainingRecord
from ..engine.rows import SparseRows
from ..explain.clusters import Census, describe_cluster
from ..explain.model import explain_model
from ..explain.pictures import displayable
from ..explain.rows import Explanations, Subject, decoded_centers, explain_subject
from ..explain.words import listing, plain
from .layout import Layout, follow, spread_out
from .sprites import heat_sprite, sprite
from .trust import stability, trust, wandering

# Bytes of the page that each kind of picture or text may take; together with the numbers they stay below 3 MB.
THUMBNAILS, HEAT, CENTERS, CAPTIONS = 1_100_000, 600_000, 300_000, 400_000
CARDS = 100  # clusters with a card of their own
NAMED = 6  # typical and doubtful rows on a card
DOUBTFUL = 24  # rows listed as most doubtful of all
TOP = 10  # contributions and features listed for a row
WATCHED = 300  # rows on the map of an epoch
DOUBT = 0.6  # a row with less probability than this counts as doubtful

SampleKind = Literal["image", "text", "table"]


@dataclass(frozen=True)
class Material:
    """What a report is made from, measured once."""

    estimator: Any
    census: Census
    rows: list[int]  # the sample, as row numbers of X
    explanations: Explanations  # of the sample
    kind: SampleKind
    captions: Sequence[str] | None

    @property
    def place(self) -> dict[int, int]:
        """Row number -> position in the sample."""
        return {row: i for i, row in enumerate(self.rows)}


def build(
    estimator: Any,
    X: Any,
    *,
    y: Any,
    record: TrainingRecord | None,
    captions: Sequence[str] | None,
    feature_names: Sequence[str] | None,
    title: str | None,
    sample: int,
    layout: Layout,
) -> dict[str, Any]:
    subject = Subject.of(estimator, X, feature_names)
    n = len(subject.data)
    if captions is not None and len(captions) != n:
        raise ValueError(f"captions has {len(captions)} entries for {n} rows.")
    if y is not None and len(y) != n:
        raise ValueError(f"y has {len(y)} labels for {n} rows.")
    census = Census.of(subject)
    stays = stability(estimator, census)
    wander = wandering(stays)
    rows = choose_rows(census, sample, wander)
    sparse = isinstance(subject.given.rows, SparseRows)
    images = len(subject.data.row_shape) == 3
    kind: SampleKind = "image" if images else "text" if sparse and captions is not None else "table"
    material = Material(estimator, census, rows, explain_subject(subject.at(rows)), kind, captions)
    model = explain_model(estimator)
    return {
        "title": title or f"{type(estimator).__name__}: {len(census.means)} clusters of {n:,} rows",
        "version": __version__,
        "kind": kind,
        "k": len(census.means),
        "baseline": "an empty row"
        if sparse or decoded_centers(estimator) is None
        else "the runner-up's decoded centre",
        "total": n,
        "summary": summary(material, model.sentence, model.repaired),
        "map": points(material, layout),
        "pictures": pictures(material) if images else None,
        "clusters": [card(material, j) for j in shown_clusters(census)],
        "doubtful": [material.place[i] for i in census.doubtful(DOUBTFUL)],
        "trust": trust(estimator, census, stays, np.stack([e.sample for e in material.explanations]), rows),
        "wandering": [[material.place[i], number(float(stays[i]))] for i in wander] if stays is not None else [],
        "frames": frames(material, record, layout),
        "losses": model.losses,
        "model": {name: model.to_dict()[name] for name in ("parts", "runs")},
        "settings": settings(estimator),
        "truth": None if y is None or not metrics.is_labelled(y).any() else truth(census.labels, y, rows),
    }


def choose_rows(census: Census, sample: int, also: Sequence[int] = ()) -> list[int]:
    """Every row that a card names, and `also` these, then evenly spaced others, in order."""
    n, shown = len(census.labels), shown_clusters(census)
    each = max(1, min(NAMED, sample // (4 * len(shown))))
    named = {i for j in shown for i in (*census.typical(j, each), *census.doubtful(each, j))}
    named |= {*census.doubtful(DOUBTFUL), *also}
    others = np.linspace(0, n - 1, min(n, sample)).astype(int)
    others = others[~np.isin(others, list(named))]
    keep = max(0, sample - len(named))
    spread = others[np.linspace(0, len(others) - 1, keep).astype(int)] if keep < len(others) else others
    return sorted(named | set(spread.tolist()))


def shown_clusters(census: Census) -> list[int]:
    """All clusters, or the largest where there are very many; in their order."""
    sizes = np.bincount(census.labels, minlength=len(census.means))
    return sorted(np.argsort(-sizes, kind="stable")[:CARDS].tolist())


def number(value: float) -> float:
    return float(f"{value:.4g}")


def numbers(values: Any) -> list[float]:
    return [number(v) for v in np.asarray(values, dtype=float).ravel().tolist()]


def summary(material: Material, about_model: str, repaired: int) -> dict[str, Any]:
    census, found = material.census, material.estimator.diagnostics_
    doubtful = float((census.probability < DOUBT).mean())
    effective = metrics.effective_clusters(census.labels)
    sizes = np.bincount(census.labels, minlength=len(census.means))
    smallest, largest = int(sizes.argmin()), int(sizes.argmax())
    sentence = (
        f"{len(census.labels):,} rows fall into {len(sizes)} clusters. The largest is cluster {largest} with "
        f"{sizes[largest]:,} rows, the smallest cluster {smallest} with {sizes[smallest]:,}. "
        f"{100 * doubtful:.1f} % of the rows are in doubt, with a probability below {DOUBT}."
    )
    return {
        "sentence": sentence,
        "model": about_model,
        "warnings": list(found["warnings"]),
        "repaired": repaired,
        "tiles": [
            ["rows", f"{len(census.labels):,}", "all of them clustered"],
            ["clusters", str(len(sizes)), f"as even as {effective:.1f} equal ones"],
            ["mean probability", f"{census.probability.mean():.3f}", "of a row's own cluster"],
            ["in doubt", f"{100 * doubtful:.1f} %", f"with a probability below {DOUBT}"],
            ["clustering loss", f"{material.estimator.clustering_loss_:.4g}", "the method's own, of the fit"],
        ],
    }


def points(material: Material, layout: Layout) -> dict[str, Any]:
    """The map: one column a fact, one entry a sampled row."""
    census, explained = material.census, material.explanations
    flat = spread_out(census.z.cpu().numpy()[material.rows], layout)
    names = [str(name) for name in explained[0].contribution_names]
    inputs = explained[0].feature_names
    columns: dict[str, Any] = {
        "x": numbers(flat[:, 0]),
        "y": numbers(flat[:, 1]),
        "row": material.rows,
        "cluster": [e.cluster for e in explained],
        "probability": numbers([e.probability for e in explained]),
        "rival": [e.runner_up for e in explained],
        "rival_probability": numbers([e.runner_up_probability for e in explained]),
        "margin": numbers([e.margin for e in explained]),
        "bias": numbers([e.bias for e in explained]),
    }
    parts = np.array([e.contributions for e in explained])
    heavy = np.argsort(-np.abs(parts), axis=1, kind="stable")[:, :TOP]
    chosen = np.take_along_axis(parts, heavy, axis=1)
    shown = np.unique(heavy)
    columns["part"] = np.searchsorted(shown, heavy).tolist()
    columns["part_value"] = [numbers(line) for line in chosen]
    columns["part_rest"] = numbers(parts.sum(1) - chosen.sum(1))
    columns["error"] = numbers([e.completeness_error or 0.0 for e in explained])
    facts = {
        "layout": layout,
        "exact": all(e.exact for e in explained),
        "parts": [names[i] for i in shown],
        "n_parts": len(names),
        "of_inputs": explained[0].of_inputs,
        **columns,
    }
    if inputs is not None and explained[0].attributions is not None:
        facts |= features(material, [str(name) for name in inputs])
    if material.captions is not None:
        length = max(40, min(500, CAPTIONS // len(material.rows)))
        texts = [str(material.captions[i]) for i in material.rows]
        facts["caption"] = [text if len(text) <= length else text[: length - 1] + "…" for text in texts]
    return facts


def features(material: Material, names: list[str]) -> dict[str, Any]:
    """The features that count most for each row, with their weight and the row's own value."""
    weights = np.array([e.attributions.ravel() for e in material.explanations if e.attributions is not None])
    values = np.array([e.sample.ravel() for e in material.explanations])
    heavy = np.argsort(-np.abs(weights), axis=1, kind="stable")[:, :TOP]
    shown = np.unique(heavy)
    return {
        "features": [names[i] for i in shown],
        "feature": np.searchsorted(shown, heavy).tolist(),
        "feature_weight": [numbers(line) for line in np.take_along_axis(weights, heavy, axis=1)],
        "feature_value": [numbers(line) for line in np.take_along_axis(values, heavy, axis=1)],
    }


def pictures(material: Material) -> dict[str, Any]:
    """Thumbnails of the sample, their heat maps, and the decoded centres."""
    samples = np.stack([e.sample for e in material.explanations])  # (n, c, h, w)
    low, high = value_range(samples)
    found: dict[str, Any] = {"thumbnails": sprite(displayable(samples, low, high), THUMBNAILS)}
    if material.explanations[0].attributions is not None:
        shape = material.explanations[0].shape
        heat = np.stack([e.attributions for e in material.explanations if e.attributions is not None])
        heat = heat if shape.layout == "grey" else heat.sum(1 if shape.layout == "channels-first" else 3)
        found["heat"] = heat_sprite(heat, HEAT)
    centers = decoded_centers(material.estimator)
    if centers is not None:
        found["centers"] = sprite(displayable(material.estimator._as_given(centers).numpy(), low, high), CENTERS)
    return found


def value_range(samples: np.ndarray) -> tuple[float, float]:
    """What is black and what is white: 0 and 1 where the values fill that, as the networks judge it."""
    low, high = float(samples.min()), float(samples.max())
    return (0.0, 1.0) if low >= 0 and 0.5 <= high <= 1 else (low, high)


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


def frames(material: Material, record: TrainingRecord | None, layout: Layout) -> list[dict[str, Any]]:
    """Epochs on record: a map of watched rows with the centres among them, and the decoded centres."""
    kept = record.of(material.estimator) if record is not None else []
    if not kept:
        return []
    watch = np.linspace(0, len(kept[0]["embedding"]) - 1, min(len(kept[0]["embedding"]), WATCHED)).astype(int)
    k = len(material.estimator.cluster_centers_)
    clouds = []
    last = next((f["centers"].numpy() for f in reversed(kept) if "centers" in f), material.estimator.cluster_centers_)
    for frame in kept:
        z = frame["embedding"].numpy()[watch]
        # before there are centres, the last ones hold their places on the map, unseen
        centers = frame["centers"].numpy() if "centers" in frame else last
        clouds.append(np.concatenate([z, centers]) if centers.shape[1] == z.shape[1] else z)
    maps = follow(clouds, layout)
    final = kept[-1].get("labels")
    images = len(material.estimator.shape_.row) == 3
    low, high = value_range(np.stack([e.sample for e in material.explanations])) if images else (0.0, 1.0)
    before, shown = None, []
    for frame, flat in zip(kept, maps, strict=True):
        labels = frame.get("labels")
        entry: dict[str, Any] = {
            "phase": frame["phase"],
            "epoch": frame["epoch"] + 1,
            "losses": {name: number(value) for name, value in frame["losses"].items()},
            "x": numbers(flat[: len(watch), 0]),
            "y": numbers(flat[: len(watch), 1]),
            "cluster": None if labels is None else labels.numpy()[watch].tolist(),
            "later": None if final is None else final.numpy()[watch].tolist(),
        }
        if "centers" in frame and len(flat) == len(watch) + k:
            entry["center_x"], entry["center_y"] = numbers(flat[len(watch) :, 0]), numbers(flat[len(watch) :, 1])
        if labels is not None:
            entry["moved"] = None if before is None else number(float((labels != before).double().mean()))
            before = labels
        if images and "decoded" in frame:
            entry["centers"] = sprite(displayable(_pictures_of(material, frame), low, high), CENTERS // len(kept))
        shown.append(entry)
    return shown


def _pictures_of(material: Material, frame: dict[str, Any]) -> np.ndarray:
    """Decoded centres of a frame; where the centres were trained on embeddings, the resting network decodes them."""
    decoded = frame["decoded"].numpy()
    if decoded.shape[1:] == tuple(material.estimator.shape_.row):
        return material.estimator._as_given(frame["decoded"]).numpy()
    again = torch.from_numpy(np.asarray(material.estimator.inverse_transform(frame["centers"].numpy())))
    return material.estimator.shape_.arrange(again).numpy()


def settings(estimator: Any) -> list[list[str]]:
    """Name, value and default of every setting, those that were changed first."""
    lines = []
    for knob in fields(estimator):
        value = getattr(estimator, knob.name)
        if knob.name == "callbacks":
            value = listing(type(callback).__name__ for callback in value) or "none"
        lines.append([knob.name, str(value)[:120], str(knob.default)[:120]])
    return sorted(lines, key=lambda line: line[1] == line[2])


def truth(labels: np.ndarray, y: Any, rows: list[int]) -> dict[str, Any]:
    """Scores against true labels, and the confusion matrix with clusters beside the classes they match; rows without
    a label are counted, and count for nothing else."""
    there, given = metrics.is_labelled(y), np.asarray(y, dtype=object)
    known = given[there].tolist()
    classes, clusters, table = metrics.confusion(known, labels[there])
    found = metrics.scores(known, labels[there])
    code = {name: i for i, name in enumerate(classes)}
    return plain(
        {
            "scores": {name: number(found[name]) for name in ("acc", "nmi", "ari", "purity")},
            "classes": [str(c) for c in classes],
            "clusters": clusters,
            "table": table,
            "label": [code[given[i]] if there[i] else None for i in rows],
            "unlabelled": int((~there).sum()),
        }
    )
