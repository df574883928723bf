"""How large is a report, how long does it take to write, and when does a browser first show it?

A million rows of eight columns, and the 70,000 images of MNIST where they are to be had. Training is left out, as the
page does not depend on it: there is no network, and the centres are placed by k-means. First paint is Chromium's own
`first-contentful-paint`, the least of three openings from the disk, headless; it needs selenium and chromedriver.

    python benchmarks/page.py [--rows 1000000]
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from diffclust import TELL, datasets


def first_paint(page: Path, width: int = 1280, openings: int = 3) -> float:
    """Seconds from the request to the first text or picture."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome")
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", f"--window-size={width},900"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    painted = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    times = []
    try:
        for _ in range(openings):
            driver.get(page.as_uri())
            while not (found := driver.execute_script(painted)):
                time.sleep(0.05)
            times.append(found / 1000)
            driver.get("about:blank")
    finally:
        driver.quit()
    return min(times)


def measure(name: str, X: np.ndarray, k: int, **how: str) -> None:
    model = TELL(k, network="identity", epochs=0, random_state=0).fit(X)
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        page = model.report(Path(folder) / "report.html", X, **how)
        seconds = time.process_time() - began
        size = page.stat().st_size / 1e6
        print(f"{name}: {size:.1f} MB, written in {seconds:.0f} s of processor time, ", end="", flush=True)
        print(f"first paint after {first_paint(page):.2f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    rng = np.random.default_rng(0)
    blobs = 6 * rng.normal(size=(20, 8))[rng.integers(20, size=rows)] + rng.normal(size=(rows, 8))
    measure(f"{rows:,} rows of eight columns", blobs.astype(np.float32), 20, layout="PCA")
    try:
        measure("MNIST", datasets.load("mnist")[0], 10)
    except FileNotFoundError as error:
        print(error)
