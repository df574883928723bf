"""Plots hold the numbers they claim to show."""

import sys

import numpy as np
import pandas as pd
import pytest

from diffclust import TELL, KMeansNet, metrics
from diffclust.callbacks import TrainingRecord

pytest.importorskip("plotly", reason="plotly is not installed: nothing to plot with")
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

from diffclust import plot  # noqa: E402


@pytest.fixture(scope="module")
def record():
    return TrainingRecord(frames=2, sample=40)


@pytest.fixture(scope="module")
def model(digits, record):
    return TELL(4, pretrain_epochs=3, epochs=3, random_state=0, device="cpu", callbacks=[record]).fit(digits[0])


@pytest.fixture(scope="module")
def frame(blobs):
    return pd.DataFrame(blobs[0], columns=["age", "height", "weight", "pulse", "<b>rate</b>", "dose"])


@pytest.fixture(scope="module")
def table(frame):
    return TELL(3, network="identity", epochs=2, random_state=0).fit(frame)


def test_embedding(model, digits):
    X, y = digits
    figure = plot.embedding(model, X, layout="PCA", captions=["<i>a</i>"] * 80)
    assert [len(trace.x) for trace in figure.data] == np.bincount(model.labels_, minlength=4).tolist()
    assert "&lt;i&gt;a" in figure.data[0].text[0]
    assert [trace.name for trace in plot.embedding(model, X, layout="PCA", color=y).data] == ["0", "1", "2", "3"]
    sure = plot.embedding(model, X, layout="PCA", color="probability", sample=50)
    rows = np.linspace(0, 79, 50).astype(int)
    assert np.allclose(sure.data[0].marker.color, model.predict_proba(X).max(1)[rows], atol=1e-5)
    assert len(plot.embedding(model, X[:40]).data) <= 4  # t-SNE
    with pytest.raises(ValueError, match="captions has 1 entries for 80 rows"):
        plot.embedding(model, X, captions=["a"])
    with pytest.raises(ValueError, match="color='size' should be"):
        plot.embedding(model, X, color="size", layout="PCA")


def test_centers(model, table):
    pictures = plot.centers(model, columns=3)
    shown = np.array([np.asarray(trace.z)[:, :, 0] for trace in pictures.data]) / 255
    assert np.allclose(shown, model.inverse_transform(model.cluster_centers_), atol=1 / 255)
    bars = plot.centers(table)
    assert np.allclose(bars.data[1].y, table.cluster_centers_[1], rtol=1e-4)
    assert list(bars.data[0].x) == list(table.feature_names_in_)


def test_row_and_cluster(model, table, digits, frame):
    explanation = model.explain(digits[0][:1])[0]
    heat, bars = plot.row(explanation).data
    assert np.allclose(heat.z, explanation.attributions)
    assert sorted(bars.x) == pytest.approx(sorted(explanation.contributions))
    (bars,) = plot.row(table.explain(frame[:1])[0]).data
    assert "&lt;b&gt;rate&lt;/b&gt;" in bars.y
    centre, difference = plot.cluster(model.explain_cluster(1)).data
    assert np.allclose(centre.z, model.explain_cluster(1).decoded)
    assert difference.zmin == -difference.zmax
    (bars,) = plot.cluster(table.explain_cluster(0, frame)).data
    assert dict(zip(bars.y, bars.x, strict=True))["age"] == pytest.approx(
        dict(table.explain_cluster(0, frame).features)["age"]
    )


def test_losses(model):
    figure = plot.losses(model)
    assert {trace.name for trace in figure.data} >= {"pretraining: reconstruction", "clustering: clustering"}
    last = next(trace for trace in figure.data if trace.name == "clustering: clustering")
    assert list(last.x) == [4, 5, 6]
    assert last.y[-1] == model.history_[-1]["clustering"]


def test_training(model, record, digits):
    figure = plot.training(record, model, layout="PCA")
    assert [frame.name for frame in figure.frames] == ["pretraining 1", "pretraining 3", "clustering 1", "clustering 3"]
    assert [len(frame.data[1].x) for frame in figure.frames] == [0, 0, 4, 4]
    assert figure.frames[-1].data[1].marker.symbol == "star"
    assert len(figure.layout.sliders[0].steps) == 4
    other = KMeansNet(4, pretrain_epochs=1, epochs=1, random_state=0).fit(digits[0])
    with pytest.raises(ValueError, match="no frames of this fit"):
        plot.training(TrainingRecord(), other)


def test_confusion():
    y, labels = ["a", "b", "b", "c", "c", "c"], [2, 0, 0, 1, 1, 0]
    figure = plot.confusion(y, labels)
    assert np.array(figure.data[0].z).tolist() == [[1, 0, 0], [0, 2, 0], [0, 1, 2]]
    assert list(figure.data[0].x) == ["cluster 2", "cluster 0", "cluster 1"]
    assert f"{100 * metrics.accuracy(y, labels):.1f} %" in figure.layout.title.text


def test_a_missing_extra_is_named(model, digits, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(ImportError, match=r'A plot needs plotly: pip install "diffclust\[report\]"'):
        plot.losses(model)
