"""What a method's page has beside its docstring: a picture of the idea, when to use it, pitfalls, results."""

import csv
import html
import math
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"
IMAGES, SCORES = ("digits", "usps"), ("acc", "nmi")
COLOURS = ("#3b76b5", "#e8862e", "#4a9d5b")
WIDE, TALL = 560, 190


# --- pictures: what goes through the network on the left, what the loss does to the embedding on the right


def dot(x: float, y: float, colour: str, r: float = 3.5) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}" fill="{colour}"/>'


def star(x: float, y: float, colour: str) -> str:
    turns = [(math.pi * i / 5 - math.pi / 2, 9 if i % 2 == 0 else 4) for i in range(10)]
    points = " ".join(f"{x + r * math.cos(t):.1f},{y + r * math.sin(t):.1f}" for t, r in turns)
    return f'<polygon points="{points}" fill="{colour}" stroke="currentColor" stroke-width="1"/>'


def line(x0: float, y0: float, x1: float, y1: float, more: str = "") -> str:
    return f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="currentColor" {more}/>'


def arrow(x0: float, y0: float, x1: float, y1: float) -> str:
    return line(x0, y0, x1, y1, 'stroke-width="1.3" marker-end="url(#tip)" opacity=".75"')


def words(x: float, y: float, text: str, size: int = 12, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{html.escape(text)}</text>'


def box(x: float, y: float, text: str, wide: int = 62) -> str:
    frame = f'<rect x="{x}" y="{y}" width="{wide}" height="30" rx="6" fill="none" stroke="currentColor" opacity=".6"/>'
    return frame + words(x + wide / 2, y + 20, text)


def network(decodes: bool = True, layer: str = "centres") -> str:
    """x to z to the clusters, and back to x."""
    parts = [words(24, 80, "x", 15), arrow(34, 75, 54, 75), box(58, 60, "encoder"), arrow(122, 75, 142, 75)]
    parts += [words(152, 80, "z", 15), arrow(162, 75, 182, 75), box(186, 60, layer, 84)]
    if decodes:
        parts += [arrow(152, 90, 152, 128), box(121, 132, "decoder"), arrow(119, 147, 60, 147), words(46, 152, "x̂", 15)]
    return "".join(parts)


CENTRES = ((350, 60), (480, 70), (415, 145))
AROUND = ((-26, -12), (20, -20), (26, 12), (-10, 22), (-30, 14), (6, -30))


def clouds(pull: bool, soft: bool = False) -> str:
    """Rows around three centres, pulled to their own or, softly, to all."""
    parts = []
    for (x, y), colour in zip(CENTRES, COLOURS, strict=True):
        for dx, dy in AROUND:
            parts.append(dot(x + dx, y + dy, colour))
            if pull:
                parts.append(arrow(x + 0.8 * dx, y + 0.8 * dy, x + 0.42 * dx, y + 0.42 * dy))
        parts.append(star(x, y, colour))
    if soft:
        parts.append(dot(415, 92, "currentColor", 4.5))
        for (x, y), weight in zip(CENTRES, (2.6, 1.4, 0.8), strict=True):
            parts.append(line(415, 92, x, y, f'stroke-width="{weight}" stroke-dasharray="3 3" opacity=".8"'))
    return "".join(parts)


def sphere(soft: bool) -> str:
    """Rows and centres on a circle."""
    x, y, r = 415, 95, 72
    parts = [f'<circle cx="{x}" cy="{y}" r="{r}" fill="none" stroke="currentColor" opacity=".5"/>']
    for angle, colour in zip((-1.9, 0.1, 2.0), COLOURS, strict=True):
        at = (x + r * math.cos(angle), y + r * math.sin(angle))
        for step in (-0.38, -0.22, -0.1, 0.12, 0.25, 0.4):
            parts.append(dot(x + r * math.cos(angle + step), y + r * math.sin(angle + step), colour))
        parts.append(line(x, y, *at, f'stroke-width="{1.2 if soft else 2}" opacity=".6"'))
        parts.append(star(*at, colour))
    said = "soft assignment to all centres" if soft else "the largest W·z is the cluster"
    return "".join(parts) + words(x, y + r + 20, said)


def sharpening(keeps: bool) -> str:
    """Soft shares, and the sharper target that they follow."""
    parts = [words(355, 30, "q, soft assignment"), words(490, 30, "p, its target")]
    for left, shares in ((315, (0.55, 0.3, 0.15)), (450, (0.8, 0.15, 0.05))):
        for i, share in enumerate(shares):
            place = f'x="{left + 28 * i}" y="{145 - 105 * share:.0f}" width="22" height="{105 * share:.0f}"'
            parts.append(f'<rect {place} rx="3" fill="{COLOURS[i]}"/>')
    said = "q moves towards p; rows still decode" if keeps else "q moves towards p"
    return "".join([*parts, arrow(412, 95, 438, 95), words(415, 172, said)])


def mixture() -> str:
    parts = []
    for (x, y), (a, b, turn), colour in zip(CENTRES, ((46, 22, 20), (26, 40, 0), (40, 18, -25)), COLOURS, strict=True):
        for scale, opacity in ((1, 0.16), (0.62, 0.22), (0.3, 0.35)):
            shape = f'rx="{a * scale:.0f}" ry="{b * scale:.0f}" transform="rotate({turn} {x} {y})"'
            parts.append(f'<ellipse cx="{x}" cy="{y}" {shape} fill="{colour}" opacity="{opacity}"/>')
    return "".join(parts) + words(415, 184, "each cluster has a weight, a mean and a width")


def table_of_pairs() -> str:
    """The joint table P of IIC: two versions of a row agree, and clusters are of equal size."""
    parts = [words(310, 100, "Φ(x)"), words(415, 22, "Φ(x′)")]
    for i in range(3):
        for j in range(3):
            place = f'x="{346 + 46 * i}" y="{32 + 46 * j}" width="42" height="42" rx="5"'
            parts.append(f'<rect {place} fill="{COLOURS[i]}" opacity="{0.9 if i == j else 0.12}"/>')
    return "".join(parts) + words(415, 186, "two versions of a row agree; sizes are even")


def pushes() -> str:
    """Rows perturbed in the direction that changes their cluster first."""
    parts = [clouds(pull=False)]
    for (x, y), (dx, dy) in zip(CENTRES, ((28, 6), (-28, 10), (-8, -26)), strict=True):
        parts.append(arrow(x + dx, y + dy, x + 1.9 * dx, y + 1.9 * dy))
    return "".join(parts) + words(415, 186, "a perturbed row keeps its cluster")


def metrics() -> str:
    x, y = 415, 90
    corners = f"{x},{y - 78} {x + 78},{y} {x},{y + 78} {x - 78},{y}"
    parts = [f'<circle cx="{x}" cy="{y}" r="62" fill="none" stroke="{COLOURS[0]}" stroke-width="2"/>']
    parts.append(f'<polygon points="{corners}" fill="none" stroke="{COLOURS[1]}" stroke-width="2"/>')
    parts += [star(x, y, COLOURS[2]), *(dot(x + dx, y + dy, "currentColor") for dx, dy in AROUND)]
    return "".join(parts) + words(x, 186, "two distances, the same assignment")


def planes() -> str:
    x, y = 415, 95
    parts = []
    for turn, colour in zip((-0.5, 0.35, 1.45), COLOURS, strict=True):
        dx, dy = math.cos(turn), math.sin(turn)
        parts.append(line(x - 85 * dx, y - 85 * dy, x + 85 * dx, y + 85 * dy, 'opacity=".35"'))
        for along, off in ((-70, 3), (-48, -3), (-26, 2), (24, -2), (45, 3), (66, -3)):
            parts.append(dot(x + along * dx - off * dy, y + along * dy + off * dx, colour))
    return "".join(parts) + words(x, 186, "few rows of its own plane reconstruct a row")


def rings() -> str:
    x, y = 415, 90
    parts = []
    for radius, count, colour in ((66, 22, COLOURS[0]), (26, 10, COLOURS[1])):
        turns = [2 * math.pi * i / count for i in range(count)]
        places = [(x + radius * math.cos(turn), y + radius * math.sin(turn)) for turn in turns]
        for (x0, y0), (x1, y1) in zip(places, [*places[1:], places[0]], strict=True):
            parts += [line(x0, y0, x1, y1, 'opacity=".35"'), dot(x0, y0, colour)]
    return "".join(parts) + words(x, 184, "neighbours get the same coordinates")


class Idea(NamedTuple):
    """A method in a picture and a few sentences."""

    left: str
    right: Callable[[], str]
    said: str
    when: tuple[str, ...]
    pitfalls: tuple[str, ...]


NO_NETWORK = words(150, 80, "rows", 15) + arrow(175, 75, 250, 75) + words(212, 64, "reconstruct one another")
IDEAS = {
    "tell": Idea(
        network(layer="W = 2 Ω"),
        lambda: sphere(soft=False),
        "Rows and centres lie on a sphere, and the weights of the last layer are the centres.",
        ("as the first choice: images, tables, embeddings, streams", "when you must explain every assignment exactly"),
        (
            "the sphere drops the length of a row: rows that differ only in size fall together (beyond 16 columns)",
            "runs with different seeds can differ: use `n_init=5` and check `stability_`",
        ),
    ),
    "kmeansnet": Idea(
        network(layer="softmax"),
        lambda: sphere(soft=True),
        "k-means as a layer: every row is softly assigned to all centres, and gradients flow through the assignment.",
        ("as a layer of your own network (`nn.ClusterLayer`)", "when you want soft assignments rather than labels"),
        (
            "the loss as printed in the paper has no lower bound: use `decoupled=True` only to study it",
            "with a small `alpha` all assignments become equal and the clusters dissolve",
        ),
    ),
    "dkm": Idea(
        network(layer="softmax"),
        lambda: clouds(pull=False, soft=True),
        "A softmax over distances that becomes harder during training, until it equals k-means.",
        ("to train the network and the centres together by gradients alone", "without pretraining: `annealing=True`"),
        ("results depend on `weight`", "nothing in the loss fixes the scale of the embedding: see `l2`"),
    ),
    "aekmeans": Idea(
        network(),
        lambda: clouds(pull=False),
        "First train the autoencoder, then run k-means on its embedding. The network is not trained for clusters.",
        ("as the baseline that every joint method has to beat", "when one embedding serves several clusterings"),
        ("the embedding is trained for reconstruction: what separates clusters may be a small part of it",),
    ),
    "dcn": Idea(
        network(),
        lambda: clouds(pull=True),
        "In turn: rows are pulled to their centre, then each centre becomes the running mean of its rows.",
        ("when k-means on the embedding is nearly right and clusters should be tighter",),
        ("too large a `weight` pulls all rows together", "a centre that has seen many rows hardly moves any more"),
    ),
    "dec": Idea(
        network(decodes=False),
        lambda: sharpening(keeps=False),
        "Soft assignments are trained towards a sharper version of themselves; the decoder is dropped.",
        ("when an initial clustering is mostly right and you want to sharpen it",),
        (
            "wrong assignments are sharpened too, so the result depends on the initial clustering",
            "the target evens out cluster sizes, which is wrong if clusters are uneven",
        ),
    ),
    "idec": Idea(
        network(),
        lambda: sharpening(keeps=True),
        "DEC with a decoder, so that the embedding keeps the information about the row.",
        ("instead of DEC when you want to decode the centres",),
        ("the target evens out cluster sizes, as in DEC", "results depend on `weight`"),
    ),
    "vade": Idea(
        network(layer="mixture"),
        mixture,
        "A variational autoencoder whose prior is a Gaussian mixture: each cluster has its own weight and width.",
        ("when clusters differ in spread, or to generate rows", "when you need a likelihood"),
        (
            "it depends on its initialisation: use several seeds",
            "components can become empty; training then stops at the last epoch before that",
        ),
    ),
    "cross-metric": Idea(
        network(decodes=False),
        metrics,
        "An embedding in which two distances assign every row to the same cluster.",
        ("to study metrics, or where the Euclidean distance may be wrong",),
        (
            "cosine and correlation distances are small, so the target is nearly flat; `spread` multiplies them",
            "results depend strongly on the settings: {doc}`../invariance` has the measurements",
        ),
    ),
    "spectralnet": Idea(
        network(layer="orthonormal", decodes=False),
        rings,
        "A network learns the first eigenvectors of the neighbour graph, and k-means clusters them.",
        ("for connected clusters of any shape: rings, arcs, threads", "when new rows must be labelled, too"),
        (
            "a connected group of outliers becomes a cluster",
            "each row needs neighbours of its own cluster in the batch: use large batches for many small clusters",
        ),
    ),
    "iic": Idea(
        network(layer="softmax", decodes=False),
        table_of_pairs,
        "The network maximises the mutual information between the clusters of two versions of a row.",
        ("for images whose class does not change under augmentation", "for clusters of similar size"),
        (
            "clusters of very different sizes are pushed towards equal size",
            "a batch must hold many rows of every cluster: use larger batches for many clusters",
        ),
    ),
    "imsat": Idea(
        network(layer="softmax", decodes=False),
        pushes,
        "A row keeps its cluster under the worst small perturbation; assignments are confident and sizes even.",
        ("for rows and images with clusters of similar size", "when you know no augmentation that keeps the class"),
        (
            "clusters of very different sizes are pushed towards equal size: lower `balance`",
            "each step needs two backward passes, so it is slower than the other methods",
        ),
    ),
    "sscnet": Idea(
        network(layer="eigenvectors"),
        planes,
        "Unrolled layers compute sparse codes, then the eigenvectors of their graph, and a classifier reads these.",
        (
            "for images or rows near subspaces (planes through the origin) rather than balls",
            "when new rows must be labelled, too",
        ),
        (
            "it takes longer than the other methods",
            "the paper's literal pipeline (`SSCNet.paper`) does not train here: see {doc}`../papers`",
        ),
    ),
    "ssc": Idea(
        NO_NETWORK,
        planes,
        "Each row is reconstructed from few other rows; spectral clustering cuts the graph of these coefficients.",
        ("for rows near subspaces, when you do not need to label new rows",),
        ("there is no `predict` for new rows", "every row is regressed on all others: time grows quadratically"),
    ),
    "dscnet": Idea(
        network(layer="z = C z"),
        planes,
        "Embeddings reconstruct one another with coefficients C; spectral clustering cuts the graph of these.",
        ("for up to a few thousand images near subspaces",),
        ("one coefficient per pair of rows: memory grows quadratically", "there is no `predict` for new rows"),
    ),
}


def picture(name: str) -> str:
    idea = IDEAS[name]
    tip = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
    tip += '<path d="M0,0 L8,4 L0,8 z" fill="currentColor"/></marker>'
    drawn = f'<svg viewBox="0 0 {WIDE} {TALL}" role="img" aria-label="{html.escape(idea.said)}">'
    drawn += f"<defs>{tip}</defs>{idea.left}{idea.right()}</svg>"
    said = f"<figcaption>{html.escape(idea.said)}</figcaption>"
    return f'```{{raw}} html\n<figure class="idea">{drawn}{said}</figure>\n```\n'


def advice(name: str) -> str:
    """When to use a method, and its pitfalls."""
    idea = IDEAS[name]
    when, pitfalls = ("\n".join(f"- {each}" for each in part) for part in (idea.when, idea.pitfalls))
    return f"## When to use it\n\n{when}\n\n## Pitfalls\n\n{pitfalls}\n"


# --- numbers, from the recorded runs


def numbers(name: str, estimator: str) -> str:
    """Accuracy and NMI of the defaults beside k-means; nothing where nothing was run."""
    lines = [*on_images(name), *on_rows(estimator)]
    if not lines:
        return ""
    head = "| data | seeds | ACC | NMI | k-means ACC | k-means NMI |\n|---|---|---|---|---|---|\n"
    said = "Default settings, one run each, true number of clusters given. Labels are used only to score.\n"
    said += "More: {doc}`../results`, {doc}`../rows`."
    return f"## Results\n\n{said}\n\n{head}" + "\n".join(lines) + "\n"


def read(file: str) -> list[dict[str, str]]:
    with (RESULTS / file).open() as lines:
        return list(csv.DictReader(lines))


def spread(values: list[float]) -> str:
    return f"{mean(values):.1f} ± {stdev(values):.1f}" if len(values) > 1 else f"{values[0]:.1f}"


def on_images(name: str) -> list[str]:
    """A line for each set of images, from `defaults.csv`."""
    runs = [run for run in read("defaults.csv") if run["restart"] == "0" and not run["settings"]]
    lines = []
    for data in IMAGES:
        of_data = [run for run in runs if run["data"] == data]
        own, plain = ([run for run in of_data if run["method"] == each] for each in (name, "kmeans"))
        if own:
            cells = [spread([float(run[score]) for run in part]) for part in (own, plain) for score in SCORES]
            lines.append(f"| {data} | {len(own)} | {' | '.join(cells)} |")
    return lines


def on_rows(estimator: str) -> list[str]:
    """One line: the mean over all sets of rows, from `rows.csv`; k-means in the better of two scalings."""
    runs = read("rows.csv")
    sets = sorted({run["data"] for run in runs if run["method"] == estimator})
    if not sets:
        return []

    def of(method: str, data: str, score: str) -> float:
        return mean(float(run[score]) for run in runs if run["method"] == method and run["data"] == data)

    seeds = min(sum(run["method"] == estimator and run["data"] == data for run in runs) for data in sets)
    own = [mean(of(estimator, data, score) for data in sets) for score in SCORES]
    plain = []
    for data in sets:
        scalings = [(of(each, data, "acc"), of(each, data, "nmi")) for each in ("k-means", "k-means, standardised")]
        plain.append(max(scalings))
    beside = [mean(pair[i] for pair in plain) for i in range(2)]
    cells = " | ".join(f"{value:.1f}" for value in (*own, *beside))
    return [f"| mean of {len(sets)} sets of rows | {seeds} | {cells} |"]
