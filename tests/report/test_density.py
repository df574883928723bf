"""The shade on a map of some rows: it is where most of all rows are."""

import numpy as np
import pytest
from browser import missing

from diffclust import TELL
from diffclust.report.density import density_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
SEEN = pytest.mark.skipif(bool(missing()), reason=f"the report is not looked at: {missing()}")
SHADES = (
    "return [...document.querySelectorAll('#map .contourlayer .contourfill path')].map(p => getComputedStyle(p).fill)"
)
POINTS = "return document.querySelectorAll('#map .scatterlayer .trace')[0].querySelectorAll('path.point').length"
CLICK = "document.getElementById('density').click()"


@pytest.fixture(scope="module")
def uneven():
    """Two balls of rows: nine in ten are in the first."""
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(0, 1, (3600, 2)), rng.normal(12, 1, (400, 2))]).astype("float32")


def inside(density, rows, least):
    """The share of rows where `sparser` is at least this."""
    column, line = (np.abs(axis[:, None] - rows[:, i]).argmin(0) for i, axis in enumerate((density.x, density.y)))
    return (density.sparser[line, column] >= least).mean()


@pytest.mark.parametrize("least", [10, 30, 50, 70, 90])
def test_a_line_leaves_out_as_many_rows_as_it_says(uneven, least):
    drawn = np.arange(0, 4000, 4)
    density = density_of(uneven, drawn, uneven[drawn])
    assert inside(density, uneven, least) == pytest.approx(1 - least / 100, abs=0.06)


def test_all_rows_count_whichever_are_drawn(uneven):
    drawn = np.r_[np.arange(0, 3600, 18), np.arange(3600, 4000, 2)]  # as many of each ball
    density = density_of(uneven, drawn, uneven[drawn])
    assert inside(density, uneven, 50) == pytest.approx(0.5, abs=0.06)
    assert inside(density, uneven[3600:], 50) < 0.05
    assert inside(density, uneven[:3600], 50) > 0.45


def test_a_map_of_every_row_has_no_shade(uneven):
    assert density_of(uneven, np.arange(4000), uneven) is None


@pytest.mark.parametrize("z", [np.zeros((50, 2)), np.arange(50.0)[:, None] * [1, 0]], ids=["one point", "a line"])
def test_rows_without_an_area(z):
    density = density_of(z, np.arange(0, 50, 2), z[::2])
    assert np.isfinite(density.sparser).all()
    assert density.sparser.max() == 100


@pytest.fixture(scope="module")
def sampled(uneven, tmp_path_factory):
    """A report that shows a sample, and its model."""
    pytest.importorskip("plotly", reason="plotly is not installed: no report to look at")
    model = TELL(2, network="identity", epochs=1, random_state=0, device="cpu").fit(uneven)
    folder = tmp_path_factory.mktemp("sampled")
    return model.report(folder / "report.html", uneven, layout="PCA", sample=400), model


def brightness(colours):
    """Of CSS colours, from 0 to 255."""
    return [np.mean([float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]) for colour in colours]


@SEEN
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_shades_in_both_themes(browser, sampled, width, dark):
    browser.open(sampled[0], width=width, dark=dark)
    assert browser.complaints() == []
    shades = browser.run(SHADES)
    assert len(shades) == 5
    assert (min(brightness(shades)) > 200) if dark else (max(brightness(shades)) < 60)
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")


@SEEN
def test_it_lies_where_most_rows_are(browser, sampled):
    """The deepest shade holds the middle of the larger ball, and nothing of the other."""
    path, model = sampled
    browser.open(path)
    large = int(np.bincount(model.labels_).argmax())
    held = browser.run(
        """const M = Page.data.map, boxes = [...document.querySelectorAll('#map .contourlayer .contourfill path')]
            .map(p => p.getBoundingClientRect());
        const points = document.querySelectorAll('#map .scatterlayer .trace')[0].querySelectorAll('path.point');
        const counts = [0, 0], deepest = boxes[boxes.length - 1];
        points.forEach((point, i) => {
            const b = point.getBoundingClientRect(), x = b.x + b.width / 2, y = b.y + b.height / 2;
            const within = x > deepest.left && x < deepest.right && y > deepest.top && y < deepest.bottom;
            if (within) counts[M.cluster[i]] += 1;
        });
        return counts"""
    )
    assert held[large] > 10
    assert held[1 - large] == 0


@SEEN
def test_it_is_in_nobodys_way(browser, sampled, tmp_path):
    path, _ = sampled
    browser.open(path)
    n = browser.run(POINTS)
    assert 390 <= n <= 410
    note = browser.run("return document.getElementById('map-note').textContent")
    assert "its steps hold 90, 70, 50, 30 and 10 % of them" in note
    browser.run("document.getElementById('lasso').click()")
    browser.run("document.getElementById('map').scrollIntoView({block: 'center', behavior: 'instant'})")
    left, top, right, bottom = browser.run(
        """const b = document.querySelector('#map .nsewdrag').getBoundingClientRect();
        return [b.left, b.top, b.right, b.bottom]"""
    )
    corners = [
        [left + 2, top + 2],
        [right - 2, top + 2],
        [right - 2, bottom - 2],
        [left + 2, bottom - 2],
        [left + 2, top + 3],
    ]
    browser.drag(corners)
    browser.until("return !document.getElementById('chosen').hidden")
    assert browser.run("return document.getElementById('chosen-count').textContent") == f"{n} rows selected"
    number = browser.run("return Page.data.map.row[5]")
    browser.run(
        "const e = document.getElementById('search'); e.value = arguments[0]; e.dispatchEvent(new Event('input'))",
        str(number),
    )
    assert (
        1 <= browser.run("return document.getElementById('map').data[0].marker.opacity.filter(o => o > 0.5).length") < n
    )
    assert len(browser.run(SHADES)) == 5
    browser.run("document.getElementById('search').value = ''")
    saved = browser.download(tmp_path, "document.querySelector('#save-map button:last-child').click()")
    assert "contourlayer" in saved.read_text()
    browser.run(CLICK)
    browser.until("return document.querySelectorAll('#map .contourfill path').length === 0")
    assert browser.run("return document.getElementById('density').getAttribute('aria-pressed')") == "false"
    assert browser.run(POINTS) == n
    browser.run(CLICK)
    browser.until("return document.querySelectorAll('#map .contourfill path').length === 5")
    assert browser.complaints() == []


@SEEN
def test_a_page_of_every_row_offers_none(browser, images):
    browser.open(images[0])
    assert browser.run(SHADES) == []
    assert browser.run("return document.getElementById('density').hidden")
