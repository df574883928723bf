"""What the theme leaves out for those who read by ear or by key: levels of headings, lists, a way into what scrolls.

And for tables: which cells are figures, which must not break, and which are sentences, which need room.
"""

import re
from typing import Any

MENDED = {
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    "<pre>": '<pre tabindex="0">',
    '<div class="table-wrapper': '<div tabindex="0" role="region" aria-label="Table" class="table-wrapper',
    '<dl class="field-list simple">\n</dl>\n': "",
}
CELL = re.compile(r"<td>(.*?)</td>", re.DOTALL)
FIGURES = re.compile(r"(?:[\d.,±/ ()%]|&lt;|(?<= )(?:s|MB)\b)+")
SENTENCE = 60  # characters
# Sphinx writes a long signature as definitions without terms; a list is what it is.
SIGNATURE = re.compile(r"<dl>\n((?:<dd>.*</dd>\n)+)</dl>")


def mend(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """For html-page-context, after the theme."""
    for part in ("body", "furo_navigation_tree"):
        context[part] = mended(context.get(part, ""))


def mended(html: str) -> str:
    for found, better in MENDED.items():
        html = html.replace(found, better)
    return SIGNATURE.sub(as_list, CELL.sub(by_kind, html))


def by_kind(cell: re.Match[str]) -> str:
    text = re.sub("<[^>]*>", "", cell[1]).strip()
    kind = "figures" if FIGURES.fullmatch(text) else "sentence" if len(text) > SENTENCE else ""
    return f'<td class="{kind}">{cell[1]}</td>' if kind else cell[0]


def as_list(signature: re.Match[str]) -> str:
    items = signature[1].replace("<dd>", "<li>").replace("</dd>", "</li>")
    return f'<ul class="parameters">\n{items}</ul>'
