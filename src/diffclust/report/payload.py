"""Everything the page shows, as plain numbers and strings: what can be turned into JSON."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from .. import __version__, metrics
from ..callbacks import TrainingRecord
from ..engine.rows import SparseRows
from ..explain.clusters import Census
from ..explain.model import ModelExplanation, explain_model, why_no_network
from ..explain.pictures import displayable
from ..explain.rows import Subject, decoded_centers
from ..explain.tables import shown_cell
from ..explain.words import listing, plain
from .cards import cards
from .density import density_of
from .layout import Layout, follow, spread_out
from .material import DOUBTFUL, Material, ReportOptions, choose_rows, fingerprint, gather, number, numbers
from .names import given_names
from .pictures import CENTERS, pictures, value_range
from .sprites import sprite
from .trust import row_stability, trust, wandering

CAPTIONS = 400_000  # bytes of the page that captions may take
TOP = 10  # contributions and features listed for a row
WATCHED = 300  # rows on the map of an epoch
DOUBT = 0.6  # a row with less probability than this counts as doubtful


def build(estimator: Any, X: Any, y: Any, options: ReportOptions) -> dict[str, Any]:
    subject = Subject.of(estimator, X, options.feature_names)
    n = len(subject.data)
    options.check(n, y)
    census = Census.of(subject)
    stays = row_stability(estimator, census)
    wander = wandering(stays)
    rows = choose_rows(census, options.sample, wander)
    material = gather(census, rows, X, options)
    model = explain_model(estimator)
    named = given_names(estimator, options.names)
    return {
        "title": options.title or f"{type(estimator).__name__}: {len(census.means)} clusters of {n:,} rows",
        "version": __version__,
        "key": fingerprint(census),
        "names": {"clusters": named.clusters, "rows": named.rows},
        "kind": material.kind,
        "k": len(census.means),
        "baseline": "an empty row"
        if isinstance(subject.given.rows, SparseRows) or decoded_centers(estimator) is None
        else "the runner-up's decoded centre",
        "total": n,
        "summary": summary(material, model),
        "map": points(material, options.layout, stays),
        "pictures": pictures(material),
        **cards(material),
        "doubtful": [material.place[i] for i in census.doubtful(DOUBTFUL)],
        "trust": trust(estimator, census, stays),
        "wandering": [material.place[i] for i in wander],
        "frames": frames(material, options.record, options.layout),
        "losses": model.losses,
        "model": {name: model.to_dict()[name] for name in ("parts", "runs")},
        "settings": settings(estimator),
        "truth": None if y is None or not metrics.is_labelled(y).any() else truth(census.labels, y, rows),
    }


def summary(material: Material, model: ModelExplanation) -> dict[str, Any]:
    census = material.census
    doubtful = float((census.probability < DOUBT).mean())
    effective = metrics.effective_clusters(census.labels)
    sizes = np.bincount(census.labels, minlength=len(census.means))
    smallest, largest = int(sizes.argmin()), int(sizes.argmax())
    differ = (
        f"The largest is cluster {largest} with {sizes[largest]:,} rows, the smallest cluster {smallest} with "
        f"{sizes[smallest]:,}."
    )
    of_sizes = differ if sizes[smallest] < sizes[largest] else f"Each has {sizes[largest]:,} rows."
    sentence = (
        f"{len(census.labels):,} rows fall into {len(sizes)} cluster{'s' * (len(sizes) > 1)}. {of_sizes} "
        f"{100 * doubtful:.1f} % of the rows are doubtful, with a probability below {DOUBT}."
    )
    return {
        "sentence": sentence,
        "model": model.sentence,
        "warnings": said_of(material.estimator, "warnings"),
        "unchecked": said_of(material.estimator, "unchecked"),
        "fallback": model.fallback,
        "repaired": model.repaired,
        "tiles": [
            ["rows", f"{len(census.labels):,}", "all of them clustered"],
            ["clusters", str(len(sizes)), f"as even as {effective:.1f} equal ones"],
            ["mean probability", f"{census.probability.mean():.3f}", "of a row's own cluster"],
            ["in doubt", f"{100 * doubtful:.1f} %", f"with a probability below {DOUBT}"],
            ["clustering loss", f"{material.estimator.clustering_loss_:.4g}", "the method's own, of the fit"],
        ],
    }


def said_of(estimator: Any, name: str) -> list[str]:
    """Lines of `diagnostics_`; an older model may have none."""
    said = getattr(estimator, "diagnostics_", None)
    return [str(line) for line in said.get(name, [])] if isinstance(said, Mapping) else []


def points(material: Material, layout: Layout, stays: np.ndarray | None) -> dict[str, Any]:
    """The map: one column a fact, one entry a sampled row."""
    census, explained = material.census, material.explanations
    z = census.z.cpu().numpy()
    flat = spread_out(z[material.rows], layout)
    density = density_of(z, material.rows, flat)
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
        "density": None if density is None else density.to_dict(),
        **columns,
    }
    if stays is not None:
        facts["stability"] = numbers(stays[material.rows])
    if inputs is not None and explained[0].attributions is not None:
        facts |= features(material, [str(name) for name in inputs])
    if material.captions is not None:
        length = max(40, min(500, CAPTIONS // len(material.rows)))
        texts = [str(material.captions[i]) for i in material.rows]
        facts["caption"] = [text if len(text) <= length else text[: length - 1] + "…" for text in texts]
    return facts


def features(material: Material, names: list[str]) -> dict[str, Any]:
    """The features that count most for each row, with their weight and the row's own value; of a table of mixed
    columns, the columns and their cells."""
    weights = np.array([e.attributions.ravel() for e in material.explanations if e.attributions is not None])
    values = np.array([e.sample.ravel() for e in material.explanations])
    reading = getattr(material.estimator, "columns_", None) if material.kind == "table" else None
    if reading is not None:
        names, weights = [column.name for column in reading.used], reading.by_column(weights)
    heavy = np.argsort(-np.abs(weights), axis=1, kind="stable")[:, :TOP]
    shown = np.unique(heavy)
    told: list[Any]
    if reading is not None:
        blank = material.blank if material.blank is not None else [None] * len(values)
        told = [[shown_cell(reading, v, at, b) for at in line] for v, line, b in zip(values, heavy, blank, strict=True)]
    else:
        told = [numbers(line) for line in np.take_along_axis(values, heavy, axis=1)]
    return {
        "features": [names[i] for i in shown],
        "feature": np.searchsorted(shown, heavy).tolist(),
        "feature_weight": [numbers(line) for line in np.take_along_axis(weights, heavy, axis=1)],
        "feature_value": told,
    }


def frames(material: Material, record: TrainingRecord | None, layout: Layout) -> list[dict[str, Any]]:
    """Epochs on record: a map of watched rows with the centres among them, and the decoded centres. None of a network
    that was not kept, whose clusters are not those of the page."""
    if why_no_network(material.estimator) is not None:
        return []
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
            pictures = material.estimator._as_given(frame["decoded"]).numpy()
            entry["centers"] = sprite(displayable(pictures, low, high), CENTERS // len(kept))
        shown.append(entry)
    return shown


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
