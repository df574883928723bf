"""Plots hold the numbers they claim to show."""

import sys
from html import escape

import numpy as np
import pandas as pd
import pytest

from diffclust import TELL, KMeansNet, compare_models, metrics
from diffclust.callbacks import TrainingRecord
from diffclust.report.density import density_of
from diffclust.report.layout import spread_out

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


def test_embedding_takes_columns_of_a_part_of_a_table(table, frame):
    part = frame[::2]
    known = pd.Series(["old", "new", None] * 50, dtype=object)[::2]
    figure = plot.embedding(table, part, layout="PCA", color=known, captions=pd.Series(range(150))[::2])
    assert {trace.name: len(trace.x) for trace in figure.data} == dict.fromkeys(["old", "new", "None"], 25)
    assert sorted(int(text.split("<br>")[1]) for trace in figure.data for text in trace.text) == list(part.index)


def test_a_cluster_has_its_colour_whatever_the_rows(table, frame):
    def colours(rows):
        data = plot.embedding(table, rows, layout="PCA").data
        return {trace.name: trace.marker.color for trace in data}

    without_first = frame[table.labels_ != 0]
    assert colours(without_first) == {name: tone for name, tone in colours(frame).items() if name != "0"}


def test_the_shade_is_that_of_the_report(model, digits, tmp_path):
    X, _ = digits
    figure = plot.embedding(model, X, layout="PCA", sample=40)
    shade = figure.data[-1]
    assert shade.type == "contour"
    assert sum(len(trace.x) for trace in figure.data[:-1]) == 40
    rows = np.linspace(0, 79, 40).astype(int)
    z = model.transform(X)
    assert np.array_equal(shade.z, density_of(z, rows, spread_out(z[rows], "PCA")).sparser)
    assert all(trace.type == "scatter" for trace in plot.embedding(model, X, layout="PCA").data)


def test_stability(digits, model):
    X, _ = digits
    restarted = TELL(4, n_init=3, pretrain_epochs=1, epochs=1, random_state=0, device="cpu").fit(X)
    (bars,) = plot.stability(restarted).data
    assert np.allclose(bars.x, restarted.stability_)
    assert list(bars.y) == [f"cluster {j}" for j in range(4)]
    steady = plot.embedding(restarted, X, layout="PCA", color="stability")
    assert np.allclose(steady.data[0].marker.color, restarted.row_stability_)
    with pytest.raises(AttributeError, match="n_init > 1"):
        plot.stability(model)
    with pytest.raises(ValueError, match="n_init > 1"):
        plot.embedding(model, X, layout="PCA", color="stability")


def test_the_tree(table, digits):
    figure = plot.tree(table)
    assert sorted(max(line.y) for line in figure.data) == pytest.approx(sorted(table.hierarchy_[:, 2]))
    leaves = dict(zip(figure.layout.xaxis.ticktext, figure.layout.xaxis.tickvals, strict=True))
    a, b = table.hierarchy_[0, :2].astype(int)  # the first merge stands on its two clusters
    lowest = min(figure.data, key=lambda line: max(line.y))
    assert {lowest.x[0], lowest.x[-1]} == {leaves[f"cluster {a}"], leaves[f"cluster {b}"]}
    start, end = figure.layout.xaxis.range
    assert all(start < x < end for line in figure.data for x in line.x)
    with pytest.raises(ValueError, match="no tree"):
        plot.tree(TELL(1, network="identity", epochs=1, random_state=0).fit(np.eye(5, dtype=np.float32)))


def test_the_number_of_clusters(blobs, table):
    found = TELL("auto", max_clusters=5, pretrain_epochs=2, epochs=2, random_state=0, device="cpu").fit(blobs[0])
    said = found.diagnostics_["number"]
    score, silhouette, agreement = plot.number_of_clusters(found).data
    assert list(score.x) == said["candidates"]
    for line, name in ((score, "scores"), (silhouette, "silhouettes"), (agreement, "agreements")):
        assert list(line.y) == said[name]
    best = said["candidates"][int(np.argmax(said["scores"]))]
    for chosen, marked in ((1, best), (2, 2), (5, 5)):
        found.diagnostics_ = {"number": {**said, "n_clusters": chosen}}
        assert plot.number_of_clusters(found).layout.shapes[0].x0 == marked
    with pytest.raises(ValueError, match="not chosen"):
        plot.number_of_clusters(table)


def test_distributions(table, frame):
    figure = plot.distributions(table, frame, 1, n=2, columns=2)
    whole, own = figure.data[:2]
    names = [name for name, _ in table.explain_cluster(1, frame).features[:2]]
    assert [title.text for title in figure.layout.annotations] == [escape(name) for name in names]
    values = frame[names[0]].to_numpy()
    low, high = np.quantile(values, [0.005, 0.995])
    for bars, rows in ((whole, values), (own, values[table.labels_ == 1])):
        counts, _ = np.histogram(np.clip(rows, low, high), bins=20, range=(low, high))
        assert np.allclose(bars.y, counts / len(rows), atol=1.5 / len(rows))  # a value on an edge may go either way
    assert len(figure.data) == 4
    with pytest.raises(ValueError, match="from 0 to 2"):
        plot.distributions(table, frame, 3)


def test_distributions_need_columns(model, digits):
    with pytest.raises(ValueError, match="No column"):
        plot.distributions(model, digits[0], 0)


def test_flows_and_shares(table, frame):
    other = TELL(2, network="identity", epochs=2, random_state=0).fit(frame)
    found = compare_models(table, other, frame, names=("<old>", "new"))
    (sankey,) = plot.flows(found).data
    drawn = np.zeros_like(found.flows)
    for i, j, n in zip(sankey.link.source, sankey.link.target, sankey.link.value, strict=True):
        drawn[i, j - 3] = n
    assert np.array_equal(drawn, found.flows)
    assert list(sankey.node.label) == ["&lt;old&gt;: 0", "&lt;old&gt;: 1", "&lt;old&gt;: 2", "new: 0", "new: 1"]
    for pair in found.pairs:
        if pair.before is not None and pair.after is not None:
            assert sankey.node.color[pair.before] == sankey.node.color[3 + pair.after]
    before, after = plot.shares(found).data
    assert list(before.x) == [pair.shares[0] for pair in found.pairs]
    assert list(after.x) == [pair.shares[1] for pair in found.pairs]
    assert sum(before.x) == pytest.approx(1)


def test_changes_beyond_chance_have_a_star(table, frame):
    found = compare_models(table, table, frame, frame[table.labels_ != 0])
    stars = [name.endswith("*") for name in plot.shares(found).data[0].y]
    assert stars == [bool(pair.drifted) for pair in found.pairs]
    assert any(stars)
    with pytest.raises(ValueError, match="see `shares`"):
        plot.flows(found)


def test_centers(model, table):
    pictures = plot.centers(model, columns=3)
    shown = np.array([np.asarray(trace.z)[:, :, 0] for trace in pictures.data]) / 255
    assert np.allclose(shown, model.inverse_transform(model.cluster_centers_), atol=1 / 255)
    bars = plot.centers(table)
    assert np.allclose(bars.data[1].y, table.cluster_centers_[1], rtol=1e-4)
    assert list(bars.data[0].x) == [escape(name) for name in table.feature_names_in_]


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
    for axis, name in ((figure.layout.xaxis, "x"), (figure.layout.yaxis, "y")):
        shown = np.concatenate([points[name] for frame in figure.frames for points in frame.data])
        assert axis.range[0] < shown.min() < shown.max() < axis.range[1]
    other = KMeansNet(4, pretrain_epochs=1, epochs=1, random_state=0).fit(digits[0])
    with pytest.raises(ValueError, match="no frames of this fit"):
        plot.training(TrainingRecord(), other)


def test_confusion():
    y, labels = ["a", "b", "b", "c", "c", "c"], [2, 0, 0, 1, 1, 0]
    figure = plot.confusion(y, labels)
    assert np.array(figure.data[0].z).tolist() == [[1, 0, 0], [0, 2, 0], [0, 1, 2]]
    assert list(figure.data[0].x) == ["cluster 2", "cluster 0", "cluster 1"]
    assert f"{100 * metrics.accuracy(y, labels):.1f} %" in figure.layout.title.text


def test_runs_that_failed_have_no_dot(tmp_path):
    lines = "method,seed,silhouette,seconds\nslow,0,,60\nkmeans,0,0.25,0.1\nkmeans,1,0.24,0.1\nother,0,,60\n"
    (tmp_path / "runs.csv").write_text(lines)
    runs = pd.read_csv(tmp_path / "runs.csv").to_dict("records")
    (dots,) = plot.comparison(runs).data
    assert (dots.name, list(dots.y)) == ("kmeans", [25, 24])
    with pytest.raises(ValueError, match="No run has a score"):
        plot.comparison(runs[:1])


def test_a_missing_extra_is_named(model, digits, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(ImportError, match=r'A plot needs plotly: pip install "diffclust\[report\]"'):
        plot.losses(model)
