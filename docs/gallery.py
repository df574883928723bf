"""The gallery: a page for every example, with its code, what it printed and a picture of what came out.

Examples train, so they are not run by every build: `python docs/gallery.py [NAME ...]` runs them and keeps what they
print and their pictures in docs/_static/gallery, and the build writes the pages from these. `sources.json` has a hash
of the script that each was made by; a test compares. `python docs/gallery.py epochs` draws the two pictures of
docs/explain.head.md, which need MNIST.
"""

import ast
import contextlib
import hashlib
import html
import inspect
import io
import json
import os
import runpy
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

DOCS = Path(__file__).parent
EXAMPLES = DOCS.parent / "examples"
KEPT = DOCS / "_static" / "gallery"
SOURCES = KEPT / "sources.json"
GROUPS = {
    "First steps": ("quickstart", "explain", "curves"),
    "Your data": ("customers", "months", "own_embedding", "some_labels", "stream"),
    "Your own network": ("own_network", "eigenvectors", "subspaces"),
    "From the papers": ("papers_figures", "tsne", "invariance"),
    "Many machines": ("several_processes",),
}
ARGUMENTS = {"papers_figures": ["--data", "digits", "--rows", "1000"]}
PICTURES = {  # in words, for those who do not see them
    "quickstart": "The ten decoded centres: each looks like a digit",
    "explain": "A digit, a heat map of the pixels for and against its cluster, and the contributions to its margin",
    "curves": "Accuracy and NMI over the epochs",
    "customers": "Customers by income and number of orders, coloured by cluster",
    "months": "The share of each cluster in January and in February",
    "own_embedding": "The embedding on the plane by t-SNE, coloured by cluster",
    "some_labels": "Accuracy without labels, with ten labels per class and with 200 pairs",
    "stream": "How far the centre of each cluster moved",
    "own_network": "Rows on the plane by t-SNE, coloured by cluster",
    "eigenvectors": "Two moons, and the learnt weight of each column: small for the two noise columns",
    "subspaces": "Five subspaces seen from the side, and the cosines of rows ordered by cluster: five blocks",
    "papers_figures": "Decoded centres over the epochs, from noise to digits",
    "tsne": "Four embeddings by t-SNE, coloured by class: AE, DCN, DKM-a, DKM-p",
    "invariance": "Which rows two distances assign differently, before and after training",
    "several_processes": "Rows on the plane by t-SNE, coloured by cluster",
}
LARGE = 100_000  # bytes of a picture
PALETTE = (
    "#3b76b5", "#e8862e", "#4a9d5b", "#d1495b", "#7d5ba6", "#9a6b4b", "#d977a8", "#7a7f87", "#a9a12f", "#2ba6b5",
)  # fmt: skip


# --- pages


def write(docs: Path) -> None:
    """The index and a page for every example, into docs/examples."""
    folder = docs / "examples"
    folder.mkdir(exist_ok=True)
    for name in names():
        (folder / f"{name}.md").write_text(page(name))
    (folder / "index.md").write_text(index())


def names() -> list[str]:
    return [name for group in GROUPS.values() for name in group]


def told(name: str) -> tuple[str, str]:
    """The first sentence of an example's docstring, and the rest of it."""
    said = ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text())) or ""
    first, _, rest = said.partition("\n\n")
    return " ".join(first.split()), rest


def title(name: str) -> str:
    return {"tsne": "t-SNE of four methods", "papers_figures": "The papers' figures"}.get(
        name, name.replace("_", " ").capitalize()
    )


def index() -> str:
    parts = [
        "# Examples",
        "Short scripts, one per question. Run one with `python examples/quickstart.py`; the tests run all of them.",
    ]
    for group, members in GROUPS.items():
        parts += [f"## {group}", cards(members)]
    listed = "\n".join(names())
    return "\n\n".join([*parts, f"```{{toctree}}\n:hidden:\n\n{listed}\n```\n"])


def cards(members: tuple[str, ...], to_pages: str = "", to_static: str = "../") -> str:
    """Pictures that lead to the pages of examples."""
    lines = []
    for name in members:
        image = f'<img src="{to_static}_static/gallery/{name}.png" alt="" loading="lazy">' if has_run(name) else ""
        said = f"<b>{title(name)}</b><span>{html.escape(told(name)[0])}</span>"
        lines.append(f'<a class="example" href="{to_pages}{name}.html">{image}{said}</a>')
    return "```{raw} html\n" + '<div class="gallery">' + "\n".join(lines) + "</div>\n```"


def has_run(name: str) -> bool:
    return (KEPT / f"{name}.png").exists()


def source(name: str) -> str:
    """A hash of what makes an example's picture: its script, its arguments and how it is drawn."""
    drawn = inspect.getsource(RECIPES[name]) if name in RECIPES else WRITTEN[name]
    made_by = [(EXAMPLES / f"{name}.py").read_text(), *ARGUMENTS.get(name, []), drawn]
    return hashlib.sha256("\n".join(made_by).encode()).hexdigest()[:16]


def stale() -> list[str]:
    """Examples that were changed after their picture was kept, or have none: `python docs/gallery.py NAME`."""
    kept = json.loads(SOURCES.read_text())
    return [name for name in names() if not has_run(name) or kept.get(name) != source(name)]


def remember(name: str) -> None:
    kept = json.loads(SOURCES.read_text()) if SOURCES.exists() else {}
    SOURCES.write_text(json.dumps({**kept, name: source(name)}, indent=1, sort_keys=True) + "\n")


def page(name: str) -> str:
    first, rest = told(name)
    said = [
        f"```text\n{part.strip()}\n```" if part.startswith(("    ", "python ")) else part for part in rest.split("\n\n")
    ]
    code = f"```{{literalinclude}} ../../examples/{name}.py\n:language: python\n```"
    picture, printed = f"![{PICTURES[name]}](../_static/gallery/{name}.png)", f"../_static/gallery/{name}.txt"
    output = f"## Output\n\n```{{literalinclude}} {printed}\n:language: text\n```"
    shown = [picture, code, output] if has_run(name) else [code]
    return "\n\n".join([f"# {title(name)}", first, *filter(None, said), *shown]) + "\n"


# --- pictures, drawn from what an example leaves behind

Names = dict[str, Any]


def figure(columns: int = 1, width: float = 6.0) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(width, 3.6), layout="constrained")
    return drawn, drawn.subplots(1, columns)


def bare(*axes: Any) -> None:
    for axis in axes:
        axis.set_xticks([])
        axis.set_yticks([])


def scatter(points: np.ndarray, labels: np.ndarray) -> Any:
    """Rows on the plane by t-SNE, in the colour of their cluster."""
    from diffclust.report.layout import spread_out

    drawn, axis = figure()
    flat = spread_out(points, "t-SNE")
    axis.scatter(flat[:, 0], flat[:, 1], s=7, c=[PALETTE[j % 10] for j in labels], linewidths=0)
    bare(axis)
    return drawn


def plane(points: np.ndarray) -> np.ndarray:
    from sklearn.decomposition import PCA

    return PCA(2, random_state=0).fit_transform(points)


def quickstart(ns: Names) -> Any:
    drawn, _ = figure()
    drawn.clear()
    axes = drawn.subplots(2, 5)
    centers = ns["model"].inverse_transform(ns["model"].cluster_centers_)
    for axis, center in zip(axes.ravel(), centers, strict=True):
        axis.imshow(center, cmap="gray")
    bare(*axes.ravel())
    return drawn


def explain(ns: Names) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    why = ns["why"]
    drawn, (row, heat, parts) = figure(3, 8.0)
    row.imshow(ns["X"][7], cmap="gray")
    row.set_title("the row")
    most = np.abs(why.attributions).max()
    colours = LinearSegmentedColormap.from_list("", ["#b3402a", "#ffffff", "#1a7f5a"])
    heat.imshow(why.attributions, cmap=colours, vmin=-most, vmax=most)
    heat.set_title(f"for cluster {why.cluster}, not {why.runner_up}")
    bare(row, heat)
    order = np.argsort(np.abs(why.contributions))
    values = why.contributions[order]
    parts.barh([why.contribution_names[i] for i in order], values, color=np.where(values > 0, "#1a7f5a", "#b3402a"))
    parts.set_title("the margin")
    return drawn


def curves(ns: Names) -> Any:
    scored = [record for record in ns["model"].history_ if "acc" in record]
    drawn, axis = figure()
    for name, color in (("acc", PALETTE[0]), ("nmi", PALETTE[1])):
        axis.plot([r["epoch"] + 1 for r in scored], [r[name] for r in scored], "o-", color=color, label=name.upper())
    axis.set(xlabel="epoch", ylim=(0.5, 1))
    axis.grid(alpha=0.3)
    axis.legend()
    return drawn


def customers(ns: Names) -> Any:
    table = ns["customers"]()
    table.pop("kind")
    labels = ns["TELL"](4, random_state=0).fit(table).labels_
    income = table["income"].str.replace(",", "").astype(float)
    drawn, axis = figure()
    axis.scatter(income, table["orders"].astype(float) + 1, s=8, c=[PALETTE[j] for j in labels], linewidths=0)
    axis.set(xscale="log", yscale="log", xlabel="income", ylabel="orders + 1")
    return drawn


def months(ns: Names) -> Any:
    january, february = ns["month"](600, 1, (0.5, 0.3, 0.2)), ns["month"](500, 2, (0.3, 0.3, 0.4), 1.2)
    model = ns["TELL"](3, random_state=0).fit(january)
    drift = ns["diffclust"].compare_models(model, model, january, february)
    drawn, axis = figure()
    for at, (name, color) in enumerate((("January", PALETTE[7]), ("February", PALETTE[0]))):
        places = np.arange(len(drift.pairs)) + 0.4 * at
        axis.bar(places, [100 * pair.shares[at] for pair in drift.pairs], 0.38, color=color, label=name)
    axis.set_xticks(np.arange(len(drift.pairs)) + 0.2, [f"cluster {pair.before}" for pair in drift.pairs])
    axis.set_ylabel("% of the rows")
    axis.legend()
    return drawn


def some_labels(ns: Names) -> Any:
    drawn, axis = figure()
    bars = axis.barh(list(ns["accuracies"]), ns["accuracies"].values(), color=[PALETTE[7], PALETTE[0], PALETTE[0]])
    axis.bar_label(bars, fmt="%.3f", padding=4)
    axis.set(xlabel="accuracy on the rows without a label", xlim=(0, 1.1))
    axis.invert_yaxis()
    return drawn


def own_embedding(ns: Names) -> Any:
    return scatter(ns["embedding"], ns["model"].predict(ns["embedding"]))


def own_network(ns: Names) -> Any:
    z = ns["encoder"](ns["x"]).detach()
    return scatter(z.numpy(), ns["clusters"](z).argmax(1).numpy())


def eigenvectors(ns: Names) -> Any:
    drawn, (moons, weights) = figure(2, 7.0)
    moons.scatter(*ns["moons"].T, s=8, c=[PALETTE[j] for j in ns["y"]], linewidths=0)
    bare(moons)
    weights.bar(["x", "y", "noise", "noise "], np.abs(ns["net"].weigh.detach().numpy()), color=PALETTE[7])
    weights.set_title("how much each column counts")
    return drawn


def stream(ns: Names) -> Any:
    drawn, axis = figure()
    drift = ns["stream"]["drift"]
    axis.bar([f"cluster {j}" for j in range(len(drift))], drift, color=PALETTE[: len(drift)])
    axis.set_ylabel("how far its centre moved")
    return drawn


def subspaces(ns: Names) -> Any:
    X = ns["X"][np.argsort(ns["model"].labels_, kind="stable")]
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    drawn, (plain, sorted_rows) = figure(2, 7.0)
    plain.scatter(*plane(ns["X"]).T, s=8, c=[PALETTE[j] for j in ns["y"]], linewidths=0)
    plain.set_title("five subspaces, seen from the side")
    sorted_rows.imshow(np.abs(X @ X.T), cmap="magma")
    sorted_rows.set_title("cosines of rows, by cluster")
    bare(plain, sorted_rows)
    return drawn


def several_processes(ns: Names) -> Any:
    return scatter(ns["model"].transform(ns["X"]), ns["model"].labels_)


RECIPES: dict[str, Callable[[Names], Any]] = {
    recipe.__name__: recipe
    for recipe in (
        quickstart, explain, curves, customers, months, some_labels, own_embedding, own_network, eigenvectors, stream,
        subspaces, several_processes,
    )
}  # fmt: skip
# Those that draw their own.
WRITTEN = {"papers_figures": "centres_over_epochs.png", "tsne": "tsne.png", "invariance": "invariance.png"}


@contextlib.contextmanager
def at_work(arguments: list[str]) -> Iterator[None]:
    """In a folder of its own, with these arguments and without warnings."""
    home, before = Path.cwd(), sys.argv
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.chdir(folder)
        sys.argv = arguments
        try:
            yield
        finally:
            os.chdir(home)
            sys.argv = before


def run(name: str) -> None:
    """Run an example in a folder of its own; keep what it prints, and its picture."""
    KEPT.mkdir(parents=True, exist_ok=True)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), at_work([name, *ARGUMENTS.get(name, [])]):
        ns = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        if name in RECIPES:
            RECIPES[name](ns).savefig(KEPT / f"{name}.png", dpi=110)
            lightened(KEPT / f"{name}.png")
        else:
            shrunk(Path(WRITTEN[name]), KEPT / f"{name}.png")
    (KEPT / f"{name}.txt").write_text(said.getvalue())
    remember(name)


def epochs() -> None:
    """The figures of the TELL paper with the defaults of their example, in docs/_static."""
    with at_work(["papers_figures"]):
        runpy.run_path(str(EXAMPLES / "papers_figures.py"), run_name="__main__")
        for name in ("centres_over_epochs", "tsne_over_epochs"):
            kept = DOCS / "_static" / f"{name.replace('_', '-')}.png"
            shrunk(Path(f"{name}.png"), kept, widest=1100)
            lightened(kept)


def lightened(picture: Path) -> None:
    """With fewer colours, if the file is large."""
    from PIL import Image

    if picture.stat().st_size > LARGE:
        with Image.open(picture) as image:
            few = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        few.save(picture, optimize=True)


def shrunk(picture: Path, to: Path, widest: int = 900) -> None:
    from PIL import Image

    with Image.open(picture) as image:
        image.thumbnail((widest, widest))
        image.save(to, optimize=True)


if __name__ == "__main__":
    for each in sys.argv[1:] or names():
        if each == "epochs":
            epochs()
        else:
            run(each)
        print(each)
