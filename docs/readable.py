"""What the theme leaves out for those who read by ear or by key: levels of headings, a way into what scrolls."""

from typing import Any

MENDED = {
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    "<pre>": '<pre tabindex="0">',
    '<div class="table-wrapper': '<div tabindex="0" role="region" aria-label="Table" class="table-wrapper',
}


def mend(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """For html-page-context, after the theme."""
    for part in ("body", "furo_navigation_tree"):
        for found, better in MENDED.items():
            context[part] = context.get(part, "").replace(found, better)
