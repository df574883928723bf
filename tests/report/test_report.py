"""What goes into the report: the numbers behind the page, its size, and nothing that could run."""

import json
import re
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError

from diffclust import TELL, metrics
from diffclust.callbacks import TrainingRecord
from diffclust.report.layout import pca
from diffclust.report.payload import said_of
from diffclust.report.pictures import value_range

pytest.importorskip("plotly", reason="plotly is not installed: no report to write")
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

from plotly.offline import get_plotlyjs  # noqa: E402

HOSTILE = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def fitted(digits):
    return TELL(4, pretrain_epochs=6, epochs=4, random_state=0, device="cpu").fit(digits[0])


def content(path):
    """The data of a page, and the page without them and without plotly."""
    text = path.read_text(encoding="utf-8")
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
    return json.loads(found[1]), text.replace(found[1], "").replace(get_plotlyjs(), "")


def beyond_plotly(path):
    return path.stat().st_size - len(get_plotlyjs().encode())


def test_the_numbers_are_the_models_own(fitted, digits, tmp_path):
    X, y = digits
    data, _ = content(fitted.report(tmp_path / "new" / "r.html", X, y, layout="PCA"))
    assert data["map"]["row"] == list(range(80))
    assert data["map"]["cluster"] == fitted.labels_.tolist()
    assert np.allclose(data["map"]["probability"], fitted.predict_proba(X).max(1), atol=1e-3)
    explanations = fitted.explain(X)
    assert np.allclose(data["map"]["margin"], [e.margin for e in explanations], rtol=1e-3)
    assert data["map"]["exact"] is True
    for i in (0, 50, 79):
        parts = dict(zip(data["map"]["part"][i], data["map"]["part_value"][i], strict=True))
        for d, value in parts.items():
            named = explanations[i].contribution_names.index(data["map"]["parts"][d])
            assert value == pytest.approx(explanations[i].contributions[named], rel=1e-3)
    assert data["truth"]["scores"]["acc"] == pytest.approx(metrics.accuracy(y, fitted.labels_), abs=1e-3)
    table = np.array(data["truth"]["table"])
    assert table.sum() == 80
    assert np.trace(table) == pytest.approx(80 * metrics.accuracy(y, fitted.labels_))  # clusters beside their classes
    assert [c["size"] for c in data["clusters"]] == np.bincount(fitted.labels_, minlength=4).tolist()
    assert data["clusters"][1]["typical"] == fitted.explain_cluster(1, X, n=6).typical
    assert data["doubtful"] == sorted(range(80), key=lambda i: explanations[i].margin)[:24]
    assert [record for record in fitted.history_ if record["phase"] == "clustering"][2]["clustering"] == (
        data["losses"]["clustering"]["clustering"][2]
    )


def test_dark_images_are_not_shown_black():
    """Of 12 bits in 16, say."""
    assert value_range(np.array([0.0, 0.06])) == (0.0, 0.06)
    assert value_range(np.array([0.1, 0.9])) == (0.0, 1.0)
    assert value_range(np.array([-1.0, 1.0])) == (-1.0, 1.0)


def test_cards_say_what_sets_a_cluster_apart(blobs, tmp_path):
    """Two columns of one name are two columns."""
    X = blobs[0].astype(np.float32)
    model = TELL(3, network="identity", epochs=2, random_state=0).fit(X)
    data, _ = content(model.report(tmp_path / "r.html", X, layout="PCA", feature_names=["a", "a", "b", "c", "d", "e"]))
    for card in data["clusters"]:
        inside = model.labels_ == card["cluster"]
        away = (X[inside].mean(0) - X[~inside].mean(0)) / X.std(0)
        order = np.argsort(-np.abs(away))
        assert [name for name, _, _ in card["features"]] == [["a", "a", "b", "c", "d", "e"][i] for i in order]
        assert np.allclose([value for _, value, _ in card["features"]], away[order], rtol=1e-3)
        assert np.allclose([mean for _, _, mean in card["features"]], X[inside].mean(0)[order], rtol=1e-3)


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return np.dot(
        [0.2126, 0.7152, 0.0722], [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    )


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_can_be_read_on_their_ground(theme):
    """Contrast of at least 4.5 to 1, as WCAG asks of text."""
    from importlib.resources import files

    css = files("diffclust.report").joinpath("page.css").read_text()
    block = css.split(":root")[1 if theme == "light" else 2]
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", block))
    grounds = {"warn": ["warn-back"], "for": ["page", "card"], "against": ["page", "card"]}
    for ink in ("ink", "quiet", "accent", "for", "against", "warn"):
        for ground in grounds.get(ink, ["page", "card", "soft"]):
            low, high = sorted(luminance(colours[name]) for name in (ink, ground))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (theme, ink, ground)


def test_thumbnails_are_the_rows(fitted, digits, tmp_path):
    import base64
    import io

    from PIL import Image

    data, _ = content(fitted.report(tmp_path / "r.html", digits[0], layout="PCA"))
    for name, n in (("thumbnails", 80), ("heat", 80), ("centers", 4)):
        sprite = data["pictures"][name]
        sheet = np.asarray(Image.open(io.BytesIO(base64.b64decode(sprite["png"]))))
        assert (sprite["w"], sprite["h"], sprite["n"]) == (8, 8, n)
        if name == "thumbnails":
            top, left = 8 * (77 // sprite["columns"]), 8 * (77 % sprite["columns"])
            assert np.allclose(sheet[top : top + 8, left : left + 8] / 255, digits[0][77], atol=1 / 255)


@pytest.mark.parametrize("shape", [(300, 10), (20, 300), (30, 1), (3, 2)])
def test_principal_components_are_scikit_learns(shape):
    z = np.random.default_rng(0).normal(size=shape) * np.linspace(3, 1, shape[1])
    k = min(2, *shape)
    ours, theirs = pca(z), PCA(k).fit_transform(z)
    assert ours.shape == (len(z), 2)
    assert np.allclose(np.abs(ours[:, :k]), np.abs(theirs), atol=1e-9)
    assert (ours[:, k:] == 0).all()


@pytest.mark.parametrize("shape", [(2, 5), (2, 9), (6, 9), (9, 6), (50, 3)])
def test_rows_on_a_line_stay_on_it(shape):
    n, d = shape
    along = np.random.default_rng(0).normal(size=n)
    points = pca((along[:, None] * np.arange(1, d + 1)).astype(np.float32))
    assert np.allclose(points[:, 0], (along - along.mean()) * np.linalg.norm(np.arange(1, d + 1)), rtol=1e-4, atol=1e-4)
    assert np.allclose(points[:, 1], 0, atol=1e-4)


@pytest.mark.parametrize("shape", [(10, 4), (4, 10), (1, 4)])
def test_rows_that_are_all_one_are_one_point_of_the_map(shape):
    assert (pca(np.ones(shape, np.float32)) == 0).all()


def test_a_large_set_is_sampled_and_stays_small(tmp_path):
    """Noise in colour packs worse than any photograph."""
    X = np.random.default_rng(0).integers(0, 256, (2100, 20, 20, 3), dtype=np.uint8)
    record = TrainingRecord(frames=2)
    model = TELL(12, network="identity", init="random", epochs=2, random_state=0, callbacks=[record]).fit(X)
    path = model.report(tmp_path / "r.html", X, captions=["a long name " * 100] * 2100, layout="PCA")
    data, _ = content(path)
    assert beyond_plotly(path) <= 3_000_000
    assert 1900 <= len(data["map"]["row"]) <= 2000
    assert len(data["frames"]) == 2
    named = {i for c in data["clusters"] for i in c["typical"] + c["doubtful"]}
    assert max(named) < len(data["map"]["row"])
    assert [c["size"] for c in data["clusters"]] == np.bincount(model.labels_, minlength=12).tolist()  # of all rows


def test_frames_follow_the_record(digits, tmp_path):
    record = TrainingRecord(frames=2, sample=50)
    model = TELL(4, pretrain_epochs=2, epochs=4, random_state=0, callbacks=[record]).fit(digits[0])
    data, _ = content(model.report(tmp_path / "r.html", digits[0], sample=40))
    marks = [(frame["phase"], frame["epoch"]) for frame in data["frames"]]
    assert marks == [("pretraining", 1), ("pretraining", 2), ("clustering", 1), ("clustering", 4)]
    assert ["centers" in frame for frame in data["frames"]] == [False, False, True, True]
    first, last = record.of(model)[2], record.of(model)[3]
    assert data["frames"][2]["moved"] is None
    assert data["frames"][3]["moved"] == pytest.approx(
        float((first["labels"] != last["labels"]).double().mean()), abs=1e-3
    )
    assert data["frames"][3]["cluster"] == last["labels"].tolist()
    assert data["map"]["layout"] == "t-SNE"


def test_a_resting_network_decodes_the_centres_of_every_frame(digits, tmp_path):
    from diffclust import KMeansNet

    record = TrainingRecord(frames=2, sample=50)
    model = KMeansNet(4, pretrain_epochs=2, epochs=3, random_state=0, callbacks=[record]).fit(digits[0])
    data, _ = content(model.report(tmp_path / "r.html", digits[0], layout="PCA", sample=40))
    assert data["frames"][-1]["centers"]["w"] == 8


def test_nothing_in_the_data_can_end_its_script(digits, fitted, tmp_path):
    path = fitted.report(tmp_path / "r.html", digits[0], captions=[HOSTILE] * 80, title=HOSTILE, layout="PCA")
    data, page = content(path)
    assert data["title"] == data["map"]["caption"][0] == HOSTILE
    assert HOSTILE not in page
    assert "&lt;/script&gt;&lt;script&gt;" in page
    assert page.count("</script>") == 3  # plotly, the data, the page's own


def test_a_template_mark_in_the_data_stays_what_it_is(digits, fitted, tmp_path):
    data, _ = content(fitted.report(tmp_path / "r.html", digits[0], title="{{script}} {{data}}", layout="PCA"))
    assert data["title"] == "{{script}} {{data}}"


def test_loss_that_was_not_finite(digits, fitted, tmp_path):
    import copy

    model = copy.copy(fitted)
    model.history_ = [*fitted.history_, {"phase": "clustering", "epoch": 9, "clustering": float("nan")}]
    data, _ = content(model.report(tmp_path / "r.html", digits[0], layout="PCA"))
    assert data["losses"]["clustering"]["clustering"][-1] is None


def test_what_a_model_says_of_itself(fitted, digits, tmp_path):
    from types import SimpleNamespace

    assert said_of(SimpleNamespace(), "warnings") == []
    assert said_of(SimpleNamespace(diagnostics_={"warnings": ["a"]}), "warnings") == ["a"]
    assert said_of(SimpleNamespace(diagnostics_={"warnings": ["a"]}), "unchecked") == []  # as older models have it
    data, _ = content(fitted.report(tmp_path / "r.html", digits[0], layout="PCA"))
    assert data["summary"]["warnings"] == fitted.diagnostics_["warnings"]
    assert data["summary"]["unchecked"] == fitted.diagnostics_["unchecked"] != []


@pytest.mark.parametrize("kind", ["rows", "sparse", "tensor", "one cluster", "few rows", "colour"])
def test_every_kind_of_data(kind, blobs, tmp_path):
    X, settings = blobs[0].astype(np.float32), {}
    if kind == "sparse":
        X = sp.csr_array(np.abs(X))
    elif kind == "tensor":
        X = torch.from_numpy(X)
    elif kind == "one cluster":
        settings = {"n_clusters": 1}
    elif kind == "few rows":
        X = X[:4]
    elif kind == "colour":
        X = np.random.default_rng(0).random((30, 3, 9, 11), dtype=np.float32)
    model = TELL(**{"n_clusters": 3, "pretrain_epochs": 1, "epochs": 1, "random_state": 0, **settings}).fit(X)
    n = X.shape[0]
    data, _ = content(model.report(tmp_path / "r.html", X, captions=[str(i) for i in range(n)]))
    assert len(data["map"]["row"]) == n
    assert data["kind"] == {"sparse": "text", "colour": "image"}.get(kind, "table")
    assert np.isfinite(data["map"]["x"] + data["map"]["y"]).all()


def test_labels_of_any_kind(fitted, digits, tmp_path):
    X, y = digits
    for labels in (y.astype(str), [f"class {i}" for i in y], y.astype(object), [f"{i}" if i else 0 for i in y]):
        data, _ = content(fitted.report(tmp_path / "r.html", X, labels, layout="PCA", sample=20))
        assert data["truth"]["scores"]["acc"] == pytest.approx(metrics.accuracy(y, fitted.labels_), abs=1e-3)


@pytest.mark.parametrize("name", ["captions", "texts"])
def test_captions_and_texts_may_be_a_column_of_a_part_of_a_table(fitted, digits, tmp_path, name):
    column = pd.Series([f"number {i}" for i in range(80)])[::2]
    data, _ = content(fitted.report(tmp_path / "r.html", digits[0][::2], layout="PCA", **{name: column}))
    assert data["map"]["caption"] == column.tolist()


@pytest.mark.parametrize(("absent", "says"), [("plotly", "A report needs plotly"), ("openTSNE", "needs openTSNE")])
def test_a_missing_extra_is_named(fitted, digits, tmp_path, monkeypatch, absent, says):
    monkeypatch.setitem(sys.modules, absent, None)
    monkeypatch.setitem(sys.modules, f"{absent}.offline", None)
    with pytest.raises(ImportError, match=rf'{says}: pip install "diffclust\[report\]"'):
        fitted.report(tmp_path / "r.html", digits[0])
    assert not (tmp_path / "r.html").exists()
    assert len(fitted.explain(digits[0][:2])) == 2  # explaining needs neither


def test_bad_questions(fitted, digits, tmp_path):
    X, y = digits
    with pytest.raises(NotFittedError):
        TELL(3).report(tmp_path / "r.html", X)
    with pytest.raises(ValueError, match="captions has 3 entries for 80 rows"):
        fitted.report(tmp_path / "r.html", X, captions=["a"] * 3)
    with pytest.raises(ValueError, match="texts has 3 entries for 80 rows"):
        fitted.report(tmp_path / "r.html", X, texts=["a"] * 3)
    with pytest.raises(ValueError, match="thumbnails should be images"):
        fitted.report(tmp_path / "r.html", X, thumbnails=np.zeros((80, 4)), layout="PCA")
    with pytest.raises(TypeError, match="caption"):
        fitted.report(tmp_path / "r.html", X, caption=["a"] * 80)
    with pytest.raises(ValueError, match="y has 3 labels for 80 rows"):
        fitted.report(tmp_path / "r.html", X, y[:3])
    with pytest.raises(ValueError, match="layout='globe' should be one of"):
        fitted.report(tmp_path / "r.html", X, layout="globe")
    with pytest.raises(ValueError, match="sample=2 should be >= 10"):
        fitted.report(tmp_path / "r.html", X, sample=2)
    with pytest.raises(IsADirectoryError, match="give a file"):
        fitted.report(tmp_path, X)
