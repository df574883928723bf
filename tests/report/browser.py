"""A headless Chromium for the tests of the report, or the reason why there is none."""

import json
import os
import shutil
import time
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
AXE = Path(__file__).parents[2] / "build/axe/node_modules/axe-core/axe.min.js"  # put there by `make axe`
NO_AXE = "" if AXE.exists() else "pages are not looked at by axe-core, which `make axe` fetches from npm"


def missing() -> str:
    """What keeps the browser tests from running; an empty string if nothing does."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed"
    if not any(map(shutil.which, BROWSERS)):
        return f"no browser: none of {', '.join(BROWSERS)} is installed"
    return "" if shutil.which("chromedriver") else "no chromedriver is installed"


class Browser:
    """One page at a time, with what it logged and what it asked the network for."""

    def __init__(self) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = next(filter(None, map(shutil.which, BROWSERS)))
        for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        service = Service(shutil.which("chromedriver"), log_output=os.devnull)
        self.driver = webdriver.Chrome(options=options, service=service)

    def open(self, path, width: int = 1280, height: int = 900, dark: bool = False, ours: bool = True) -> None:
        send = self.driver.execute_cdp_cmd
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        send("Emulation.setDeviceMetricsOverride", size)
        wish = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        send("Emulation.setEmulatedMedia", {"features": [wish]})
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)  # of the page before
        self.driver.get(path.as_uri())
        ready = "document.documentElement.dataset.ready === 'yes'" if ours else "document.readyState === 'complete'"
        self.until(f"return {ready}")

    def open_framed(self, html: str, place: Path) -> None:
        """A page of a notebook's kind, written to `place`; scripts then run in the frame that `html` is."""
        ready = "<script>document.documentElement.dataset.ready = 'yes'</script>"
        place.write_text(f"<!doctype html><meta charset=utf-8><p>a cell</p>{html}{ready}")
        self.open(place)
        self.driver.switch_to.frame(0)
        self.until("return document.documentElement.dataset.ready === 'yes'")

    def run(self, script: str, *arguments):
        return self.driver.execute_script(script, *arguments)

    def until(self, script: str, seconds: float = 60):
        end = time.monotonic() + seconds
        while not (value := self.run(script)):
            assert time.monotonic() < end, f"never came true: {script}; console: {self.driver.get_log('browser')}"
            time.sleep(0.05)
        return value

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses asked for, other than the page itself and data inside it."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        pages = [url for url in sent if url.startswith("file:")]
        return [url for url in sent if not url.startswith(("data:", "blob:", "file:"))] + pages[1:]

    def move_to(self, x: float, y: float) -> None:
        self._mouse("mouseMoved", x - 30, y - 30)
        self._mouse("mouseMoved", x, y)

    def click(self, x: float, y: float) -> None:
        """Where the pointer already is."""
        self._mouse("mousePressed", x, y, button="left", clickCount=1)
        self._mouse("mouseReleased", x, y, button="left", clickCount=1)

    def drag(self, places, shift: bool = False) -> None:
        """The left button down at the first place, up at the last."""
        more = {"button": "left", "buttons": 1, "modifiers": 8 * shift}
        self._mouse("mouseMoved", *places[0])
        self._mouse("mousePressed", *places[0], clickCount=1, **more)
        for place in places[1:]:
            self._mouse("mouseMoved", *place, **more)
        self._mouse("mouseReleased", *places[-1], clickCount=1, **more)

    def press(self, key: str, shift: bool = False) -> None:
        more = {"Enter": {"text": "\r", "windowsVirtualKeyCode": 13}, " ": {"text": " ", "code": "Space"}}.get(key, {})
        for kind in ("keyDown", "keyUp"):
            event = {"type": kind, "key": key, "code": key, "modifiers": 8 * shift, **more}
            self.driver.execute_cdp_cmd("Input.dispatchKeyEvent", event)

    def download(self, folder, start: str):
        """The file that a script makes the browser save."""
        behaviour = {"behavior": "allow", "downloadPath": str(folder)}
        self.driver.execute_cdp_cmd("Page.setDownloadBehavior", behaviour)
        before, end = set(folder.iterdir()), time.monotonic() + 30
        self.run(start)
        while time.monotonic() < end:
            new = [path for path in set(folder.iterdir()) - before if path.suffix != ".crdownload"]
            if new and new[0].stat().st_size:
                return new[0]
            time.sleep(0.05)
        raise AssertionError(f"nothing was saved by {start}")

    def axe(self) -> list[str]:
        """What axe-core finds that is serious or critical."""
        if not self.run("return 'axe' in window"):
            self.run(AXE.read_text())
        found = self.driver.execute_async_script(
            """const done = arguments[arguments.length - 1];
            axe.run().then(found => done(found.violations.filter(each => ['serious', 'critical'].includes(each.impact))
                .map(each => `${each.id}: ${each.help}: ${each.nodes.slice(0, 3).map(n => n.html.slice(0, 200))}`)))"""
        )
        return found

    def type(self, text: str) -> None:
        """Into what has the focus."""
        self.driver.execute_cdp_cmd("Input.insertText", {"text": text})

    def _mouse(self, kind: str, x: float, y: float, **more) -> None:
        self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **more})

    def close(self) -> None:
        self.driver.quit()
