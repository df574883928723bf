"""Working with a report in a real browser: select, name, filter, save, and read back what was saved."""

import csv
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from browser import missing

from diffclust import TELL, load_names

pytest.importorskip("plotly", reason="plotly is not installed: no report to look at")
pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"the report is not looked at: {missing()}"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

HOSTILE = '<img src=x onerror="document.title=\'broken into\'">, "quoted"'
CLEAR = "return document.getElementById('map').data[0].marker.opacity.filter(o => o > 0.5).length"
CHOSEN = "return document.getElementById('map').data[2].x.length"


def click(name):
    return f"document.getElementById('{name}').click()"


def put(name, value, event):
    return f"const e = document.getElementById('{name}'); e.value = '{value}'; e.dispatchEvent(new Event('{event}'))"


@pytest.fixture
def page(browser, images):
    """A fresh page: nothing is kept from the test before."""
    browser.open(images[0])
    if browser.run("const n = localStorage.length; localStorage.clear(); return n"):
        browser.open(images[0])
    yield browser
    assert browser.complaints() == []


def around(browser, rows):
    """A box on the map, in the window, with a little room around these rows."""
    browser.run("document.getElementById('map').scrollIntoView({block: 'center', behavior: 'instant'})")
    boxes = browser.run(
        """const points = document.querySelectorAll('#map .scatterlayer .trace')[0].querySelectorAll('path.point');
        return arguments[0].map(i => { const b = points[i].getBoundingClientRect();
            return [b.x + b.width / 2, b.y + b.height / 2] })""",
        rows,
    )
    (left, top), (right, bottom) = np.min(boxes, 0) - 4, np.max(boxes, 0) + 4
    return [[left, top], [right, top], [right, bottom], [left, bottom], [left, top + 1]]


@pytest.mark.parametrize("width", [1280, 390])
def test_a_lasso_selects_what_is_in_it(page, images, width):
    path, _, X = images
    page.open(path, width=width)
    page.run(click("lasso"))
    rows = page.run("return document.getElementById('map').data[0].x.map((x, i) => [x, i]).sort((a, b) => a[0] - b[0])")
    outer = [i for _, i in rows[:6]]
    page.drag(around(page, outer))
    page.until("return !document.getElementById('chosen').hidden")
    inside = page.run(CHOSEN)
    assert 6 <= inside < len(X)
    assert page.run("return document.getElementById('chosen-count').textContent") == f"{inside} rows selected"
    page.run(click("chosen-clear"))
    assert page.run(CHOSEN) == 0
    assert page.run("return document.getElementById('chosen').hidden")
    assert page.run("return document.documentElement.scrollWidth <= innerWidth")


def test_keys_alone_select_and_name(page, images, tmp_path):
    _, model, _ = images
    page.run("document.getElementById('map').focus()")
    first = page.run("return document.getElementById('panel').dataset.row")
    page.press(" ")
    assert page.run(CHOSEN) == 1
    for key in ("ArrowLeft", "ArrowUp", "ArrowRight", "ArrowDown"):
        page.press(key, shift=True)
    assert page.run(CHOSEN) > 1
    page.press("Escape")
    assert page.run(CHOSEN) == 0
    page.run("document.querySelector('.chip[data-cluster=\"2\"]').focus()")
    page.press("Enter")
    page.run("document.getElementById('map').focus()")
    page.press("a")
    assert page.run(CHOSEN) == (model.labels_ == 2).sum()
    page.run("document.getElementById('chosen-name').focus()")
    page.type("good ones")
    page.press("Enter")
    saved = page.download(tmp_path, click("names-csv"))
    names = load_names(saved)
    assert names.rows == {int(i): "good ones" for i in np.flatnonzero(model.labels_ == 2)}
    assert names.clusters == {}
    assert [name is not None for name in names.labels(len(model.labels_))] == (model.labels_ == 2).tolist()
    assert first.isdecimal()


def test_names_that_are_cut_alike_have_their_number_on_the_map(page):
    for j, name in enumerate(
        ("older than the others, newsletter = no", "older than the others, newsletter = yes", "young")
    ):
        page.run(
            f"const field = document.querySelector('input[data-name=\"{j}\"]'); field.value = '{name}';"
            "field.dispatchEvent(new Event('change'))"
        )
    notes = page.run("return document.getElementById('map').layout.annotations.map(a => a.text)")
    assert len(set(notes)) == len(notes)
    assert {note[:8] for note in notes} >= {"0 older ", "1 older ", "young"}


def test_names_are_kept_shown_saved_and_read_back(page, images, tmp_path):
    path, model, X = images
    field = "document.querySelector('input[data-name=\"1\"]')"
    page.run(f"{field}.focus()")
    page.type(HOSTILE)
    page.run(f"{field}.blur()")
    assert HOSTILE[:20] in page.run("return document.querySelector('.chip[data-cluster=\"1\"]').textContent")
    page.open(path)  # again: the browser has kept it
    assert page.run(f"return {field}.value") == HOSTILE
    notes = page.run("return document.getElementById('map').layout.annotations.map(a => a.text)")
    assert any(note.startswith("&lt;img") for note in notes)
    row = int(np.flatnonzero(model.labels_ == 1)[0])
    page.run(put("row-number", row, "change"))
    assert f"is in cluster 1, {HOSTILE}" in page.run("return document.getElementById('panel').textContent")
    assert page.run("return document.querySelectorAll('img').length") == 0
    assert page.run("return document.title") != "broken into"
    for kind in ("json", "csv"):
        names = load_names(page.download(tmp_path, click(f"names-{kind}")))
        assert names.clusters == {1: HOSTILE}
    again = model.report(tmp_path / "again.html", X, layout="PCA", names=tmp_path / "names.json")
    page.run("localStorage.clear()")
    page.open(again)
    assert page.run(f"return {field}.value") == HOSTILE
    page.run(f"{field}.value = ''; {field}.dispatchEvent(new Event('change'))")
    page.open(again)
    assert page.run(f"return {field}.value") == ""  # taken away by the reader, and that is kept
    page.driver.find_element("id", "names-read").send_keys(str(tmp_path / "names.json"))
    page.until(f"return {field}.value !== ''")
    assert page.run(f"return {field}.value") == HOSTILE
    (tmp_path / "other.json").write_text("no names")
    page.driver.find_element("id", "names-read").send_keys(str(tmp_path / "other.json"))
    page.until("return document.getElementById('names-said').textContent.startsWith('other.json is not a file')")


def test_filters_by_cluster_doubt_label_and_name(page, images):
    _, model, X = images
    p, y = model.predict_proba(X).max(1), page.run("return Page.data.truth.label")
    for j in (0, 2):
        page.run(f"document.querySelector('.chip[data-cluster=\"{j}\"]').click()")
    assert page.run(CLEAR) == np.isin(model.labels_, (0, 2)).sum()
    page.run(click("show-all"))
    assert page.run(CLEAR) == len(X)
    limit = round(float(np.median(p)), 2)
    page.run(put("most", limit, "input"))
    shown = np.array(page.run("return Page.data.map.probability")) <= limit
    assert page.run(CLEAR) == (shown.sum() if limit < 1 else len(X))
    page.run(click("show-all"))
    page.run(put("label", "truth:3", "change"))
    assert page.run(CLEAR) == y.count(3)
    assert page.run("return document.getElementById('shown').textContent") == f"{y.count(3)} of 80 rows shown"
    page.run(click("choose-shown"))
    page.run("document.getElementById('chosen-name').value = 'threes'")
    page.run("document.getElementById('chosen-form').requestSubmit()")
    page.run(click("show-all"))
    page.run(put("label", "name:threes", "change"))
    assert page.run(CLEAR) == y.count(3)


def test_selected_rows_are_saved(page, images, tmp_path):
    _, model, X = images
    page.run("document.querySelector('.chip[data-cluster=\"3\"]').click()")
    page.run(click("choose-shown"))
    with page.download(tmp_path, click("chosen-save")).open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [int(line["row"]) for line in lines] == np.flatnonzero(model.labels_ == 3).tolist()
    assert {line["cluster"] for line in lines} == {"3"}
    sure = model.predict_proba(X).max(1)[model.labels_ == 3]
    assert np.allclose([float(line["probability"]) for line in lines], sure, atol=1e-3)


def test_figures_are_saved_as_pictures(page, tmp_path):
    for name, place in (("map", "save-map"), ("tree", "save-tree")):
        png = page.download(tmp_path, f"document.querySelector('#{place} button').click()")
        assert png.name == f"{name}.png"
        assert png.read_bytes().startswith(b"\x89PNG")
        svg = page.download(tmp_path, f"document.querySelectorAll('#{place} button')[1].click()")
        assert svg.name == f"{name}.svg"
        assert ET.parse(svg).getroot().tag.endswith("svg")


def test_pictures_on_the_map(page):
    shown = "return (document.getElementById('map').layout.images || []).length"
    assert page.run(shown) == 0
    page.run(click("thumbnails"))
    many = page.until(shown)
    assert 10 < many <= 80
    page.run("document.querySelector('.chip[data-cluster=\"1\"]').click()")
    page.until(f"return {shown.removeprefix('return ')} < {many}")
    page.run(click("thumbnails"))
    page.until(f"return {shown.removeprefix('return ')} === 0")


def test_columns_and_words_are_drawn(page, tmp_path):
    X = np.concatenate([np.random.default_rng(j).normal(8 * j, 1, (30, 4)) for j in range(2)]).astype(np.float32)
    model = TELL(2, network="identity", epochs=2, random_state=0, device="cpu").fit(X)
    page.open(model.report(tmp_path / "table.html", X, layout="PCA"), width=390)
    labels = page.run("return [...document.querySelectorAll('svg.spread')].map(s => s.getAttribute('aria-label'))")
    assert len(labels) == 8
    assert labels[0].startswith("x")
    assert page.run("return document.documentElement.scrollWidth <= innerWidth")
    texts = [f"a cup of {'green tea' if i < 30 else 'red wine'} {HOSTILE} {i}" for i in range(60)]
    page.open(model.report(tmp_path / "texts.html", X, layout="PCA", texts=texts))
    marks = page.run("return [...document.querySelectorAll('.context mark')].map(m => m.textContent)")
    assert {"green", "tea", "red", "wine"} <= set(marks)
    assert page.run("return document.querySelectorAll('img').length") == 0
    page.run("document.querySelector('.context').click()")
    said = page.run("return document.querySelector('.context').title")
    row = page.run("return document.getElementById('panel').dataset.row")
    assert said == f"Row {row}"


def test_a_page_in_a_frame_has_no_storage_and_says_so(page, images, tmp_path):
    _, model, X = images
    shown = model.report(X=X, layout="PCA")
    page.open_framed(shown._repr_html_(), tmp_path / "notebook.html")
    field = "document.querySelector('input[data-name]')"
    page.run(f"{field}.value = 'mine'; {field}.dispatchEvent(new Event('change'))")
    assert "mine" in page.run("return document.querySelector('.chip').textContent")
    assert "cannot remember" in page.run("return document.getElementById('names-note').textContent")
    page.driver.switch_to.default_content()
