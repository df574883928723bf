"""The report as people meet it: in a real browser, offline."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from browser import NO_AXE, missing

from diffclust import TELL, compare_models
from diffclust.callbacks import TrainingRecord

pytest.importorskip("plotly", reason="plotly is not installed: no report to look at")
pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"the report is not looked at: {missing()}"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

FRONT = Path(__file__).parents[2] / "docs/_build/html/index.html"
HOSTILE = (
    "<img src=x onerror=\"document.title='broken into'\"></script><script>document.title='broken into'</script>&amp;"
)


@pytest.fixture(scope="module")
def texts(blobs, tmp_path_factory):
    """A report of texts that are out to break the page."""
    X = np.abs(blobs[0]).astype(np.float32)
    captions = [f"{HOSTILE} text {i}" for i in range(len(X))]
    names = [f"{HOSTILE}{i}" for i in range(6)]
    model = TELL(3, pretrain_epochs=3, epochs=3, random_state=0, device="cpu").fit(sp.csr_array(X))
    return model.report(
        tmp_path_factory.mktemp("texts") / "report.html",
        sp.csr_array(X),
        np.array([HOSTILE, "b", "c"])[model.labels_],
        captions=captions,
        feature_names=names,
        title=f"All about {HOSTILE}",
        layout="PCA",
    )


def place_of(browser, i):
    """Where the i-th point of the map is in the window."""
    browser.run("document.getElementById('map').scrollIntoView({block: 'center', behavior: 'instant'})")
    return browser.run(
        """const points = document.querySelectorAll('#map .scatterlayer .trace')[0].querySelectorAll('path.point');
        const point = points[arguments[0]];
        const box = point.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]""",
        i,
    )


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_opens_in_silence(browser, images, texts, width, dark):
    for path in (images[0], texts):
        browser.open(path, width=width, dark=dark)
        assert browser.complaints() == []
        assert browser.requests() == []
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
        back = browser.run("return getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, back[4:-1].split(","))) < 200) == dark


def test_the_head_says_what_was_not_checked(browser, images):
    path, model, _ = images
    browser.open(path)
    said = browser.run("return document.getElementById('warnings').textContent")
    assert model.diagnostics_["unchecked"]
    for what in model.diagnostics_["unchecked"]:
        assert f"Not checked: {what}." in said


def test_the_map_has_every_row(browser, images):
    path, model, X = images
    browser.open(path)
    count = "return document.querySelectorAll('#map .scatterlayer .trace')[0].querySelectorAll('path.point').length"
    assert browser.run(count) == len(X)
    assert [
        int(n) for n in browser.run("return JSON.parse(document.getElementById('data').textContent).map.cluster")
    ] == (model.labels_.tolist())
    assert browser.run("return document.querySelectorAll('#cards .card').length") == 4


def test_pointing_shows_the_row_and_choosing_it_its_explanation(browser, images):
    path, model, X = images
    browser.open(path)
    shown = 0
    for i in (3, 40, 70):
        place = place_of(browser, i)
        browser.move_to(*place)
        browser.until("return !document.getElementById('tip').hidden")
        time.sleep(0.3)  # plotly looks at most every twentieth of a second where the pointer is
        row = int(
            browser.run("return document.getElementById('tip').dataset.row")
        )  # of those in one place, the top one
        text = browser.run("return document.getElementById('tip').textContent")
        assert f"Row {row} · cluster {model.labels_[row]}" in text
        browser.until("return document.querySelector('#tip canvas').dataset.drawn === 'yes'")
        browser.click(*place)
        browser.until(f"return document.getElementById('panel').dataset.row === '{row}'")
        said = browser.run("return document.getElementById('panel').textContent")
        explanation = model.explain(X[[row]])[0]
        assert f"Row {row} is in cluster {explanation.cluster}" in said
        assert f"the runner-up is cluster {explanation.runner_up}" in said
        cells = browser.run(
            """return [...document.querySelectorAll('#panel .bars tr')].map(
                row => [row.cells[0].textContent, row.cells[2].textContent])"""
        )
        found = {name: float(value.replace("−", "-")) for name, value in cells}
        assert found["margin"] == pytest.approx(explanation.margin, rel=1e-3, abs=1e-6)
        parts = sum(value for name, value in found.items() if name != "margin")
        assert parts == pytest.approx(found["margin"], abs=2e-3)
        shown += 1
    assert shown == 3
    assert browser.complaints() == []


def test_the_slider_changes_the_centres(browser, images):
    browser.open(images[0])
    pixels = """return [...document.querySelectorAll('#epoch-centers canvas')].map(
        c => Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).join())"""
    drawn = """const all = [...document.querySelectorAll('#epoch-centers canvas')];
        return all.length === 4 && all.every(c => c.dataset.drawn === 'yes')"""
    browser.until(drawn)
    last = browser.run(pixels)
    stars = "return document.querySelectorAll('#epoch-map .trace')[1].querySelectorAll('path.point').length"
    assert browser.run(stars) == 4
    label = browser.run("return document.getElementById('epoch-label').textContent")
    assert label == "clustering, epoch 6"
    browser.run("document.getElementById('epoch').focus()")
    for _ in range(2):
        browser.press("ArrowLeft")
    browser.until("return document.getElementById('epoch-label').textContent === 'clustering, epoch 1'")
    browser.until(drawn)
    first = browser.run(pixels)
    assert all(a != b for a, b in zip(first, last, strict=True))
    browser.run("document.getElementById('epoch').value = 0")
    browser.run("document.getElementById('epoch').dispatchEvent(new Event('input'))")
    assert "no centres yet" in browser.run("return document.getElementById('epoch-note').textContent")
    assert browser.complaints() == []


def test_everything_is_within_reach_of_the_keyboard(browser, images):
    path, _, _ = images
    browser.open(path)
    row = "return document.getElementById('panel').dataset.row"
    browser.run("document.getElementById('map').focus()")
    before = browser.run(row)
    for key in ("ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"):
        browser.press(key)
    seen = {before, browser.run(row)}
    browser.press("ArrowLeft")
    seen.add(browser.run(row))
    assert len(seen) > 1
    browser.run("""const box = document.getElementById('row-number'); box.value = 17;
        box.dispatchEvent(new Event('change'))""")
    assert browser.run(row) == "17"
    unreachable = browser.run(
        "return [...document.querySelectorAll('button, input, select, a')].filter(e => e.tabIndex < 0).length"
    )
    assert unreachable == 0
    unnamed = browser.run(
        """return [...document.querySelectorAll('button, input, select')].filter(
            e => !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length)).map(e => e.id)"""
    )
    assert unnamed == []
    button = "document.querySelector('#doubtful button')"
    browser.run(f"{button}.focus(); {button}.click()")
    most = browser.run(
        "const d = JSON.parse(document.getElementById('data').textContent); return d.map.row[d.doubtful[0]]"
    )
    assert browser.run(row) == str(most)


def test_the_tab_key_comes_to_every_control(browser, images):
    browser.open(images[0])
    browser.run("document.querySelector('.skip').focus()")
    reached = []
    for _ in range(60):
        reached.append(browser.run("const e = document.activeElement; return e.id || e.className || e.textContent"))
        if reached[-1] == "epoch":
            break
        browser.press("Tab")
    wanted = [
        "skip", "theme", "Map of the data", "colour-by", "row-number", "search", "chip", "most", "label", "show-all",
        "lasso", "choose-shown", "thumbnails", "map", "play", "epoch",
    ]  # fmt: skip
    assert [place for place in dict.fromkeys(reached) if place in wanted] == wanted


def test_one_cluster_can_be_singled_out(browser, images):
    path, model, _ = images
    browser.open(path)
    browser.run("document.querySelector('.chip[data-cluster=\"2\"]').click()")
    clear = "return document.getElementById('map').data[0].marker.opacity.filter(o => o > 0.5).length"
    assert browser.run(clear) == (model.labels_ == 2).sum()
    browser.run("document.querySelector('.chip[data-cluster=\"2\"]').click()")
    assert browser.run(clear) == len(model.labels_)


def test_texts_and_names_are_shown_as_text(browser, texts):
    browser.open(texts)
    assert browser.run("return document.title") == f"All about {HOSTILE}"
    assert browser.run("return document.querySelectorAll('img').length") == 0
    said = browser.run("return document.getElementById('panel').textContent")
    assert HOSTILE in said
    assert HOSTILE in browser.run("return document.getElementById('cards').textContent")
    assert HOSTILE in browser.run("return document.getElementById('confusion').textContent")
    browser.move_to(*place_of(browser, 5))
    browser.until("return !document.getElementById('tip').hidden")
    assert HOSTILE[:40] in browser.run("return document.getElementById('tip').textContent")
    assert browser.run("return document.querySelectorAll('img').length") == 0
    assert browser.complaints() == []


def test_names_of_files_are_shown_as_text(browser, digits, tmp_path):
    X = digits[0][:40]
    model = TELL(3, network="identity", epochs=2, random_state=0).fit(X)
    names = [f"{HOSTILE}/{i}.png" for i in range(40)]
    browser.open(model.report(tmp_path / "r.html", X, captions=names, title=names[0], layout="PCA"))
    row = int(browser.run("return document.getElementById('panel').dataset.row"))
    assert names[row] in browser.run("return document.getElementById('panel').textContent")
    assert HOSTILE in browser.run("return document.querySelector('#cards .thumb').title")
    browser.move_to(*place_of(browser, 5))
    browser.until("return !document.getElementById('tip').hidden")
    assert HOSTILE[:40] in browser.run("return document.getElementById('tip').textContent")
    assert browser.run("return document.querySelectorAll('img').length") == 0
    assert browser.run("return document.title") == names[0]
    assert browser.complaints() == []


@pytest.mark.parametrize("width", [1280, 390])
def test_long_names_stay_in_their_column(browser, tmp_path, width):
    names = [
        f"a_rather_long_name_of_a_feature_with_its_units_{i} (mg per litre of something or other)" for i in range(200)
    ]
    X = np.concatenate([np.random.default_rng(j).normal(j, 1, (40, 200)) for j in range(2)])
    frame = pd.DataFrame(X, columns=names)
    model = TELL(2, network="identity", epochs=2, random_state=0).fit(frame)
    browser.open(model.report(tmp_path / "r.html", frame, layout="PCA"), width=width)
    heights = browser.run("return [...document.querySelectorAll('.bars tr')].map(row => row.offsetHeight)")
    bars = browser.run("return [...document.querySelectorAll('.bars .track i')].map(bar => bar.offsetHeight)")
    assert max(heights) < 80
    assert max(bars) < 15
    wide = browser.run(
        """return [...document.querySelectorAll('.bars')].filter(
            table => table.scrollWidth > table.parentElement.clientWidth).length"""
    )
    assert wide == 0
    named = browser.run("return document.querySelector('#panel .bars .name span').title")
    assert named in names
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.complaints() == []


def test_numbers_on_the_map_do_not_cover_each_other(browser, digits, tmp_path):
    X = digits[0].reshape(80, -1)
    model = TELL(40, network="identity", epochs=2, random_state=0).fit(X)
    browser.open(model.report(tmp_path / "r.html", X, layout="PCA"))
    boxes = browser.run(
        """return [...document.querySelectorAll('#map .annotation rect.bg')].map(
            r => { const b = r.getBoundingClientRect(); return [b.left, b.right, b.top, b.bottom] })"""
    )
    assert 5 < len(boxes) <= 40
    for i, (left, right, top, bottom) in enumerate(boxes):
        for a, b, c, d in boxes[:i]:
            assert min(right, b) - max(left, a) <= 3 or min(bottom, d) - max(top, c) <= 3


def test_many_names_leave_the_map_to_the_rows(browser, digits, tmp_path):
    X = digits[0].reshape(80, -1)
    model = TELL(9, network="identity", epochs=2, random_state=0).fit(X)
    shown = "return [...document.querySelectorAll('#map .annotation-text')].map(t => t.textContent)"
    names = {j: f"{'abcdefghi'[j]}, a name with several words in it" for j in range(9)}
    browser.open(model.report(tmp_path / "all.html", X, names=names, layout="PCA"))
    assert {*browser.run(shown)} <= {*map(str, range(9))}
    for width, longest in ((1280, 24), (390, 14)):
        few = {j: names[j] for j in range(5)}
        browser.open(model.report(tmp_path / f"{width}.html", X, names=few, layout="PCA"), width=width)
        said = browser.run(shown)
        assert any(text.startswith(tuple(name[:6] for name in few.values())) for text in said)
        assert max(map(len, said)) <= longest
        boxes = browser.run(
            """return [...document.querySelectorAll('#map .annotation rect.bg')].map(
                r => { const b = r.getBoundingClientRect(); return [b.left, b.right, b.top, b.bottom] })"""
        )
        for i, (left, right, top, bottom) in enumerate(boxes):
            for a, b, c, d in boxes[:i]:
                assert min(right, b) - max(left, a) <= 3 or min(bottom, d) - max(top, c) <= 3


@pytest.mark.parametrize("width", [1280, 390])
def test_what_figures_say_is_inside_them(browser, digits, tmp_path, width):
    X = digits[0].reshape(80, -1)
    model = TELL(6, pretrain_epochs=2, epochs=3, random_state=0, device="cpu").fit(X)
    names = {j: f"{j} a rather long name of a cluster" for j in range(6)}
    browser.open(model.report(tmp_path / "r.html", X, names=names, layout="PCA"), width=width)
    outside = browser.run(
        """return [...document.querySelectorAll('#tree-plot text, #losses text')].filter(text => {
            const own = text.getBoundingClientRect(), box = text.closest('.plot').getBoundingClientRect();
            return own.width && (own.left < box.left || own.right > box.right || own.bottom > box.bottom)
        }).map(text => text.textContent)"""
    )
    assert outside == []
    leaves = browser.run("return [...document.querySelectorAll('#tree-plot .xtick text')].map(t => t.textContent)")
    assert sorted(leaf[0] for leaf in leaves) == ["0", "1", "2", "3", "4", "5"]


def test_a_network_that_was_not_kept(browser, digits, tmp_path):
    X, record = digits[0].reshape(80, -1), TrainingRecord(frames=2, sample=40)
    model = TELL(3, pretrain_epochs=2, epochs=2, random_state=0, device="cpu", callbacks=[record]).fit(X)
    hidden = "return document.getElementById('training-section').hidden"
    model.diagnostics_ = {**model.diagnostics_, "events": []}
    browser.open(model.report(tmp_path / "kept.html", X, record=record, layout="PCA"))
    assert not browser.run(hidden)
    model.diagnostics_ = {**model.diagnostics_, "events": [("fallback", "k-means on the rows is used.")]}
    browser.open(model.report(tmp_path / "not.html", X, record=record, layout="PCA"))
    assert browser.run(hidden)
    assert "k-means on the rows is used." in browser.run("return document.getElementById('warnings').textContent")
    assert "was not kept" in browser.run("return document.getElementById('model-sentence').textContent")


def test_restarts_are_listed(browser, digits, tmp_path):
    model = TELL(4, n_init=3, network="identity", epochs=2, random_state=0).fit(digits[0])
    browser.open(model.report(tmp_path / "r.html", digits[0], layout="PCA"))
    assert not browser.run("return document.getElementById('restarts').hidden")
    rows = browser.run("return [...document.querySelectorAll('#runs tbody tr')].map(row => row.textContent)")
    assert len(rows) == 3
    assert [str(model.seed_) in row and "kept" in row for row in rows].count(True) == 1


def test_a_table_shows_its_values(browser, blobs, tmp_path):
    frame = pd.DataFrame(blobs[0], columns=["age", "height", "weight", "pulse", "rate", "dose"])
    model = TELL(3, network="identity", epochs=3, random_state=0).fit(frame)
    browser.open(model.report(tmp_path / "r.html", frame, layout="PCA"), width=390)
    panel = browser.run("return document.getElementById('panel').textContent")
    assert all(name in panel for name in frame.columns)
    assert browser.run("return document.getElementById('training-section').hidden")
    assert browser.run("return document.getElementById('truth-section').hidden")
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.complaints() == []


def test_rows_without_a_label_are_counted_and_grey(browser, blobs, tmp_path):
    X, y = blobs[0], blobs[1].astype(object)
    y[:7] = None
    model = TELL(3, network="identity", epochs=3, random_state=0).fit(X)
    browser.open(model.report(tmp_path / "r.html", X, y, layout="PCA"))
    assert "7 rows have no label" in browser.run("return document.getElementById('truth-section').textContent")
    colours = browser.run(
        "const by = document.getElementById('colour-by'); by.value = 'truth'; by.dispatchEvent(new Event('change'));"
        "return document.getElementById('map').data[0].marker.color"
    )
    quiet = browser.run("return getComputedStyle(document.documentElement).getPropertyValue('--quiet').trim()")
    assert [colour == quiet for colour in colours] == [True] * 7 + [False] * (len(X) - 7)
    assert browser.complaints() == []


def test_searching(browser, texts):
    browser.open(texts)
    browser.run("document.getElementById('search').focus()")
    browser.type("TEXT 14")  # capitals do not matter: 14, and 140 to 149
    assert browser.run("return document.getElementById('search-found').textContent") == "11 of 150 rows on the map"
    clear = "return document.getElementById('map').data[0].marker.opacity.filter(o => o > 0.5).length"
    assert browser.run(clear) == 11
    seen = []
    for _ in range(12):
        browser.press("Enter")
        seen.append(int(browser.run("return document.getElementById('panel').dataset.row")))
    assert set(seen) == {14, *range(140, 150)}
    browser.run("const s = document.getElementById('search'); s.value = ''; s.dispatchEvent(new Event('input'))")
    assert browser.run(clear) == 150
    assert browser.complaints() == []


def test_a_report_inside_a_notebook(browser, digits, tmp_path):
    X = digits[0][:60]
    model = TELL(3, pretrain_epochs=1, epochs=1, random_state=0, device="cpu").fit(X)
    shown = model.report(X=X, layout="PCA")
    browser.open_framed(shown._repr_html_(), tmp_path / "notebook.html")
    assert browser.run("return document.querySelectorAll('#cards .card').length") == 3
    browser.driver.switch_to.default_content()
    assert "<iframe" not in repr(shown)
    with pytest.raises(TypeError, match="needs the rows"):
        model.report()


def test_whether_to_trust_it(browser, digits, tmp_path):
    X = digits[0][:120]
    model = TELL(4, n_init=3, pretrain_epochs=1, epochs=1, random_state=0, device="cpu").fit(X)
    browser.open(model.report(tmp_path / "r.html", X, layout="PCA"), width=390)
    said = browser.run("return document.getElementById('trust-section').textContent")
    assert "3 restarts agree with an adjusted Rand index of" in said
    assert "k-means on the same rows keeps" in said
    shares = browser.run("return [...document.querySelectorAll('#steadiness tbody td.wide')].map(c => c.textContent)")
    assert shares == [f"{share:.2f}" for share in model.stability_]
    lines = "document.querySelectorAll('#tree-table tbody tr')"
    joins = browser.run(f"return [...{lines}].map(line => line.cells[4].textContent)")
    assert joins == [f"{int(rows)}" for rows in model.hierarchy_[:, 3]]
    row = int(browser.run("return document.getElementById('panel').dataset.row"))
    others = [run["labels"] for run in model.runs_ if run["seed"] != model.seed_]
    agreed = round(model.row_stability_[row] * len(others))
    panel = browser.run("return document.getElementById('panel').textContent")
    assert f"in the same cluster in {agreed} of {len(others)} other runs" in panel
    wander = browser.run("return document.querySelectorAll('#wandering button').length")
    if wander:
        browser.run("document.querySelector('#wandering button').click()")
        label = browser.run("return document.querySelector('#wandering button').getAttribute('aria-label')")
        row = browser.run("return document.getElementById('panel').dataset.row")
        assert label.startswith(f"Row {row},")
    assert browser.complaints() == []


def test_how_the_number_was_found(browser, blobs, tmp_path):
    X = blobs[0].astype(np.float32)
    model = TELL("auto", max_clusters=5, network="identity", epochs=2, random_state=0, device="cpu").fit(X)
    browser.open(model.report(tmp_path / "r.html", X, layout="PCA"))
    said = browser.run("return document.getElementById('number-note').textContent")
    assert said.startswith("One cluster" if model.n_clusters_ == 1 else f"{model.n_clusters_} clusters: two networks")
    cells = browser.run("return [...document.querySelectorAll('#number-table tbody td')].map(c => c.textContent)")
    found = model.diagnostics_["number"]
    assert cells[::4] == [str(k) for k in found["candidates"]]
    assert cells[3::4] == [f"{score:.3f}" for score in found["scores"]]
    if model.n_clusters_ > 2:
        for name, value, event in (("cut", "2", "input"), ("colour-by", "cut", "change")):
            place = f"document.getElementById('{name}')"
            browser.run(f"{place}.value = '{value}'; {place}.dispatchEvent(new Event('{event}'))")
        colours = np.array(browser.run("return document.getElementById('map').data[0].marker.color"))
        coarse = model.cut(2)
        assert len({*zip(colours, coarse.tolist(), strict=True)}) == 2  # the same two groups
    assert browser.complaints() == []


def test_a_number_next_to_the_best(browser, blobs, tmp_path):
    X = blobs[0].astype(np.float32)
    model = TELL("auto", max_clusters=5, network="identity", epochs=2, random_state=0, device="cpu").fit(X)
    said = {
        "n_clusters": 3,
        "candidates": [2, 3, 4, 5],
        "silhouettes": [0.1, 0.31, 0.52, 0.3],
        "agreements": [0.5, 0.66, 0.77, 0.5],
        "scores": [0.1, 0.98, 1.0, 0.2],
        "valley": 0.1,
    }
    for chosen, silhouette, words in ((3, "0.31", "nearly as well as on 4"), (4, "0.52", "agree on it best")):
        model.diagnostics_ = {**model.diagnostics_, "number": {**said, "n_clusters": chosen}}
        browser.open(model.report(tmp_path / f"{chosen}.html", X, layout="PCA"))
        note = browser.run("return document.getElementById('number-note').textContent")
        assert words in note
        assert f"the silhouette is {silhouette}, and {100 * said['agreements'][chosen - 2]:.1f} %" in note
        assert browser.run("return document.getElementById('number-plot').layout.shapes[0].x0") == chosen


# --- what a reader of screens meets


@pytest.mark.skipif(bool(NO_AXE), reason=NO_AXE or "")
@pytest.mark.parametrize("width", [1280, 390])
def test_no_serious_finding_of_axe(browser, images, texts, compared, width):
    for path, dark in ((images[0], False), (texts, True), (compared[0], False)):
        browser.open(path, width=width, dark=dark)
        browser.run("document.getElementById('choose-shown')?.click()")
        browser.run("for (const each of document.querySelectorAll('details')) each.open = true")
        assert browser.axe() == []


@pytest.mark.skipif(bool(NO_AXE), reason=NO_AXE or "")
@pytest.mark.skipif(not FRONT.exists(), reason="the front page of the docs is not looked at: `make docs` builds it")
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_the_front_page_of_the_docs(browser, width, dark):
    browser.open(FRONT, width=width, dark=dark, ours=False)
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.axe() == []
    browser.run("document.querySelector('iframe.live').scrollIntoView()")
    browser.driver.switch_to.frame(browser.run("return document.querySelector('iframe.live')"))
    browser.until("return document.documentElement.dataset.ready === 'yes'")
    assert browser.run("return document.querySelectorAll('#cards .card').length") == 10
    browser.driver.switch_to.default_content()


@pytest.mark.skipif(bool(NO_AXE), reason=NO_AXE or "")
@pytest.mark.skipif(not FRONT.exists(), reason="the page of a method is not looked at: `make docs` builds it")
def test_the_page_of_a_method(browser):
    browser.open(FRONT.parent / "methods" / "tell.html", width=390, dark=True, ours=False)
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.axe() == []


@pytest.mark.skipif(bool(NO_AXE), reason=NO_AXE or "")
def test_axe_would_find_something(browser, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text("<html data-ready=yes><title>a</title><button></button><img src=''>")
    browser.open(page)
    assert {"button-name", "image-alt", "html-has-lang"} <= {finding.split(":")[0] for finding in browser.axe()}


# --- the page of a comparison


@pytest.fixture(scope="module")
def compared(images, tmp_path_factory):
    _, model, X = images
    other = TELL(3, pretrain_epochs=2, epochs=2, random_state=5, device="cpu").fit(X)
    found = replace(compare_models(model, other, X, names=(HOSTILE, "new")), called=({}, {0: HOSTILE}))
    return found.report(tmp_path_factory.mktemp("compared") / "comparison.html", captions=[HOSTILE] * len(X)), found


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_comparison_opens_in_silence(browser, compared, width, dark):
    browser.open(compared[0], width=width, dark=dark)
    assert browser.complaints() == []
    assert browser.requests() == []
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.run("return document.documentElement.dataset.theme") == ("dark" if dark else "light")
    assert browser.run("return document.title") == f"{HOSTILE} and new, compared"


def test_every_flow_is_a_band_and_a_band_leads_to_its_rows(browser, compared):
    path, found = compared
    browser.open(path)
    drawn = browser.run("return [...document.querySelectorAll('.band')].map(band => band.dataset.flow)")
    assert sorted(drawn) == sorted(f"{i}-{j}" for i, j in zip(*found.flows.nonzero(), strict=True))
    lines = browser.run("return [...document.querySelectorAll('#pairs tbody tr')].map(row => row.textContent)")
    assert len(lines) == len(found.pairs)
    most = found.moves[0]
    browser.run("document.querySelector('#flows a[href=\"#move-0\"]').focus()")
    browser.press("Enter")
    browser.until("return location.hash === '#move-0'")
    card = browser.run("return document.getElementById('move-0').textContent")
    after = f"{most.after} {HOSTILE}" if most.after == 0 else most.after
    assert f"{most.before} of {HOSTILE} → {after} of new" in card
    said = browser.run("return document.getElementById('pairs').textContent")
    assert f"0 {HOSTILE}" in said
    assert all(f"Row {row}" in card for row in most.rows)
    browser.until("return [...document.querySelectorAll('#move-0 canvas')].every(c => c.dataset.drawn === 'yes')")
