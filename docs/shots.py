"""Pictures of a report for the README and the docs: `python docs/shots.py`, which needs chromium and chromedriver.

They show the report of the front page (docs/live.py), and are kept in docs/_static because a build has no browser. Draw
them again when the page looks different.
"""

import base64
import io
import sys
from pathlib import Path

from PIL import Image

DOCS = Path(__file__).parent
sys.path.append(str(DOCS.parent / "tests" / "report"))

import live  # noqa: E402  (docs/live.py)
from browser import Browser, missing  # noqa: E402  (tests/report/browser.py)

KEPT = DOCS / "_static"
DESKTOP, PHONE = 1280, 390
IMAGES = "document.getElementById('thumbnails').click()"
SHOTS = {  # name: width, dark, what is pressed, where the picture begins, its height
    "report-desktop": (DESKTOP, False, "", "#map-section", 1035),
    "report-dark": (DESKTOP, True, IMAGES, "#map-section", 1035),
    "report-trust": (DESKTOP, False, "", "#trust-section", 1162),
    "report-phone": (PHONE, False, "", "#map-section .split", 1000),
}
# Twice, for what a first frame starts: figures that follow a new size, images that are placed on the map.
SETTLED = "const done = arguments[0]; setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 1500)"


def draw(browser: Browser, page: Path, name: str) -> Path:
    """One picture, from the top of an element, to docs/_static."""
    width, dark, press, begin, height = SHOTS[name]
    browser.open(page, width=width, dark=dark, height=1200)
    browser.run(f"document.documentElement.style.scrollBehavior = 'auto'; {press}")
    browser.driver.execute_async_script(SETTLED)
    top = browser.run("return document.querySelector(arguments[0]).getBoundingClientRect().top + scrollY", begin)
    clip = {"x": 0, "y": max(0, top - 6), "width": width, "height": height, "scale": 1}
    shot = browser.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    with Image.open(io.BytesIO(base64.b64decode(shot["data"]))) as image:
        image.convert("RGB").save(KEPT / f"{name}.png", optimize=True)
    return KEPT / f"{name}.png"


if __name__ == "__main__":
    if missing():
        sys.exit(missing())
    (DOCS / "extra").mkdir(exist_ok=True)
    live.write(DOCS)
    chromium = Browser()
    try:
        for each in sys.argv[1:] or SHOTS:
            made = draw(chromium, DOCS / "extra" / "report.html", each)
            print(f"{made}: {made.stat().st_size / 1000:.0f} kB")
    finally:
        chromium.close()
