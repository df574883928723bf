"""llms.txt: the pages of the documentation with a sentence each, for readers that are programs."""

import re
from pathlib import Path

ABOUT = """# diffclust

> Deep clustering for PyTorch, with the scikit-learn API: estimators with fit, predict, explain and report, whose
> cluster layer is k-means written as a linear layer.

Install from a clone: `pip install ".[report,data]"`. `from diffclust import TELL`, then
`TELL(n_clusters=10, random_state=0).fit(X)` as with scikit-learn's KMeans. Labels are never used by `fit`.
"""


def page(docs: Path) -> str:
    """Every page that the front page's tables of contents name, under their captions."""
    index = (docs / "index.md").read_text()
    told = dict(re.findall(r"^\| \[[^]]*\]\(([\w/-]+)\.(?:md|rst)\) \| ([^|[]*)", index, re.MULTILINE))
    parts = [ABOUT]
    for caption, names in contents(index):
        parts.append(f"## {caption}\n\n" + "".join(f"- {entry(docs, name, told.get(name, ''))}\n" for name in names))
    return "\n".join(parts)


def contents(index: str) -> list[tuple[str, list[str]]]:
    """Caption and page names of every table of contents."""
    found = []
    for block in re.findall(r"```\{toctree\}\n(.*?)```", index, re.DOTALL):
        options, _, names = block.partition("\n\n")
        found.append((re.search(r":caption: (.*)", options)[1], names.split()))
    return found


def entry(docs: Path, name: str, told: str) -> str:
    """A page with what the front page says of it, else with its own first paragraph."""
    path = next(path for path in (docs / f"{name}.md", docs / f"{name}.rst") if path.exists())
    title, _, rest = path.read_text().partition("\n")
    about = told.strip(" ;") or " ".join(rest.strip().split("\n\n")[0].split())
    return f"[{title.removeprefix('# ')}]({name}.html): {about}"
