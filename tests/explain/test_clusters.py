"""Clusters and pairs against naive counting; the model against its own weights."""

import json
import re
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.exceptions import NotFittedError

from diffclust import TELL

pytestmark = [
    pytest.mark.usefixtures("usual_integrals"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]
NAMES = ["age", "height", "weight", "pulse", "<i>rate</i>", "dose"]


@pytest.fixture(scope="module")
def frame(blobs):
    return pd.DataFrame(blobs[0], columns=NAMES)


@pytest.fixture(scope="module")
def table(frame):
    return TELL(3, pretrain_epochs=10, epochs=6, random_state=0, device="cpu").fit(frame)


@pytest.fixture(scope="module")
def pictures(digits):
    return TELL(4, pretrain_epochs=10, epochs=6, random_state=0, device="cpu").fit(digits[0])


# ---- clusters


def test_one_other_cluster_is_one(blobs, table, frame):
    two = TELL(2, pretrain_epochs=2, epochs=2, random_state=0, device="cpu").fit(blobs[0])
    assert re.search(r"Its nearest cluster is 1 \(at [^)]+\)\.", two.explain_cluster(0, blobs[0]).sentence)
    assert re.search(r"Its nearest clusters are \d \(at [^)]+\) and \d", table.explain_cluster(0, frame).sentence)


def test_a_cluster_by_naive_counting(table, frame):
    X, z = frame.to_numpy(), table.transform(frame)
    for j in range(3):
        cluster = table.explain_cluster(j, frame, n=5)
        own = np.flatnonzero(table.labels_ == j)
        away = ((z - table.cluster_centers_[table.labels_]).astype(float) ** 2).sum(1)
        assert cluster.size == len(own)
        assert cluster.share == len(own) / len(X)
        assert cluster.tightness == pytest.approx(away[own].mean(), rel=1e-5)
        assert cluster.relative_tightness == pytest.approx(away[own].mean() / away.mean(), rel=1e-5)
        assert cluster.typical == own[np.argsort(away[own], kind="stable")[:5]].tolist()
        explained = table.explain(frame, attributions=False)
        margins = {e.row: e.margin for e in explained if e.cluster == j}
        assert [row for row, _, _ in cluster.doubtful] == sorted(margins, key=margins.get)[:5]
        least = min(margins.values())
        assert cluster.doubt == np.mean([each.margin > least for each in explained])
        assert f"smaller than that of {100 * cluster.doubt:.0f} % of all rows" in cluster.sentence
        rest = np.setdiff1d(np.arange(len(X)), own)
        apart = (X[own].mean(0) - X[rest].mean(0)) / X.std(0)
        for name, value in cluster.features:
            assert value == pytest.approx(apart[NAMES.index(name)], rel=1e-4)
        assert cluster.features[0][0] == NAMES[np.abs(apart).argmax()]
        gaps = {i: np.linalg.norm(table.cluster_centers_[i] - table.cluster_centers_[j]) for i in range(3) if i != j}
        assert [i for i, _ in cluster.neighbours] == sorted(gaps, key=gaps.get)
        assert cluster.neighbours[0][1] == pytest.approx(min(gaps.values()), rel=1e-5)


def test_a_cluster_without_rows(table):
    cluster = table.explain_cluster(1)
    assert cluster.size == (table.labels_ == 1).sum()
    assert cluster.typical is cluster.doubtful is cluster.tightness is None
    decoded = table.inverse_transform(table.cluster_centers_)
    assert np.allclose(cluster.decoded, decoded[1])
    scale = table.model_.autoencoder.scale.numpy()  # a unit of the network
    apart = (decoded[1] - (decoded[0] + decoded[2]) / 2) / scale
    assert cluster.features[0] == (
        NAMES[np.abs(apart).argmax()],
        pytest.approx(apart[np.abs(apart).argmax()], rel=1e-5),
    )
    assert "Pass rows X" in cluster.sentence


def test_without_rows_features_are_ranked_in_comparable_units():
    rng, y = np.random.default_rng(0), np.arange(120) % 2
    X = np.stack([20 * y + rng.normal(0, 1, 120), rng.normal(0, 1e4, 120)], axis=1)
    model = TELL(2, random_state=0, device="cpu", epochs=2, pretrain_epochs=2).fit(X)
    said = model.explain_cluster(0)
    (_, first), (_, second) = said.features
    scale = model.model_.autoencoder.scale.numpy()
    assert dict(said.features) == pytest.approx({f"x{i}": said.difference[i] / scale[i] for i in range(2)}, rel=1e-4)
    assert abs(first) >= abs(second)


def test_clusters_of_images_have_pictures(pictures, digits):
    cluster = pictures.explain_cluster(2, digits[0])
    assert cluster.features is None
    assert cluster.decoded.shape == cluster.difference.shape == (8, 8)
    assert cluster._repr_html_().count("data:image/png;base64,") == 2


def test_sparse_rows_give_the_same_cluster(blobs):
    X = blobs[0].astype(np.float32)
    model = TELL(3, pretrain_epochs=3, epochs=3, random_state=0).fit(X)
    dense, sparse = model.explain_cluster(0, X), model.explain_cluster(0, sp.csr_array(X))
    assert dense.typical == sparse.typical
    assert [name for name, _ in dense.features] == [name for name, _ in sparse.features]


def test_words_and_plain_objects(table, frame):
    cluster = table.explain_cluster(0, frame)
    whole = cluster.to_dict()
    assert json.loads(json.dumps(whole)) == whole
    assert str(cluster).startswith(f"Cluster 0 has {cluster.size} rows")
    html = cluster._repr_html_()
    assert "<i>" not in html
    assert "&lt;i&gt;rate&lt;/i&gt;" in html


def test_an_empty_cluster_is_described(blobs):
    X = np.repeat(blobs[0][:2], 20, axis=0)
    model = TELL(3, network="identity", epochs=1, repair=False, random_state=0).fit(X)
    empty = int(np.flatnonzero(np.bincount(model.labels_, minlength=3) == 0)[0])
    cluster = model.explain_cluster(empty, X)
    assert (cluster.size, cluster.typical, cluster.doubtful, cluster.tightness) == (0, [], [], None)
    assert json.dumps(cluster.to_dict())


def test_the_only_cluster_is_compared_with_nothing(blobs):
    model = TELL(1, pretrain_epochs=1, epochs=1, random_state=0).fit(blobs[0])
    cluster = model.explain_cluster(0, blobs[0])
    rows = ", ".join(map(str, cluster.typical[:2]))
    assert cluster.doubtful == []
    assert cluster.sentence == (
        f"Cluster 0 has {len(blobs[0])} rows, 100.0 % of all. Most typical are rows {rows} and {cluster.typical[2]}."
    )


@pytest.mark.parametrize(("j", "error"), [(3, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)])
def test_clusters_that_are_none(table, j, error):
    with pytest.raises(error, match=f"cluster={j}"):
        table.explain_cluster(j)


# ---- pairs


def test_rows_apart(table, frame):
    a, b = (int(np.flatnonzero(table.labels_ == j)[0]) for j in (0, 1))
    pair = table.explain_pair(frame.iloc[a], frame.iloc[b])
    z = table.transform(frame.iloc[[a, b]]).astype(float)
    p = table.predict_proba(frame.iloc[[a, b]]).astype(float)
    assert not pair.together
    assert pair.clusters == pair.versus == (0, 1)
    assert pair.together_probability == pytest.approx((p[0] * p[1]).sum(), abs=1e-6)
    assert pair.distance == pytest.approx(((z[0] - z[1]) ** 2).sum(), rel=1e-5)
    assert pair.distance_parts.sum() == pytest.approx(pair.distance)
    with torch.no_grad():
        s = table.model_.clusters.logits(torch.from_numpy(z)).numpy()
    assert pair.evidence == pytest.approx((s[0, 0] - s[0, 1]) - (s[1, 0] - s[1, 1]), rel=1e-5)
    assert pair.contributions.sum() + pair.bias == pytest.approx(pair.evidence, abs=1e-9)
    assert pair.bias == pytest.approx(0, abs=1e-9)
    assert pair.attributions.sum() == pytest.approx(pair.evidence, rel=0.02)
    assert pair.completeness_error <= 0.01
    assert pair.sentence.startswith("The rows are in different clusters, 0 and 1")


def test_rows_together(table, frame):
    """With one runner-up in common, the evidence for a pair is the sum of both margins."""
    members = [e for e in table.explain(frame) if e.cluster == 2]
    one, two = [e for e in members if e.runner_up == members[0].runner_up][:2]
    pair = table.explain_pair(frame.iloc[[one.row]], frame.iloc[[two.row]])
    assert pair.together
    assert pair.versus == (2, one.runner_up)
    assert pair.contributions.sum() + pair.bias == pytest.approx(pair.evidence, abs=1e-9)
    assert pair.evidence == pytest.approx(one.margin + two.margin, rel=1e-5)
    assert np.allclose(pair.attributions, one.attributions + two.attributions, atol=1e-4)
    assert json.dumps(pair.to_dict())
    assert "<i>" not in pair._repr_html_()


def test_without_a_network_a_pair_is_told_apart_by_its_features(frame):
    model = TELL(3, network="identity", epochs=3, random_state=0).fit(frame)
    a, b = (int(np.flatnonzero(model.labels_ == j)[0]) for j in (0, 1))
    pair = model.explain_pair(frame.iloc[a], frame.iloc[b])
    c = model.cluster_centers_.astype(float)
    x = frame.to_numpy(np.float32).astype(float)
    assert np.allclose(pair.attributions, 2 * (c[0] - c[1]) * (x[a] - x[b]), rtol=1e-4, atol=1e-4)
    assert list(pair.contribution_names) == NAMES


def test_kinds_of_pairs(pictures, digits, blobs):
    a, b = digits[0][:2]
    expected = pictures.explain_pair(a, b)
    for one, two in ((a[None], b[None]), (torch.from_numpy(a), torch.from_numpy(b)), (a.tolist(), b.tolist())):
        assert pictures.explain_pair(one, two).evidence == pytest.approx(expected.evidence, rel=1e-5)
    assert expected.attributions.shape == (8, 8)
    assert expected._repr_html_().count("data:image/png;base64,") == 1
    assert pictures.explain_pair(a, a).distance == 0
    rows = TELL(3, pretrain_epochs=1, epochs=1, random_state=0).fit(sp.csr_array(blobs[0]))
    X = sp.csr_array(blobs[0])
    assert rows.explain_pair(X[[0]], X[[1]]).evidence == pytest.approx(
        rows.explain_pair(blobs[0][0], blobs[0][1]).evidence, rel=1e-4
    )
    with pytest.raises(ValueError, match=r"a has shape \(8, 8\) but b has shape \(2, 8, 8\)"):
        pictures.explain_pair(a, digits[0][:2])
    with pytest.raises(ValueError, match="one row each; together they have 4"):
        rows.explain_pair(X[:2], X[:2])


def test_one_cluster_holds_every_pair(blobs):
    model = TELL(1, pretrain_epochs=1, epochs=1, random_state=0).fit(blobs[0])
    pair = model.explain_pair(blobs[0][0], blobs[0][1])
    assert pair.together
    assert pair.versus is None
    assert pair.evidence == 0


# ---- the model


def test_every_method_describes_itself(quick, digits):
    model = quick(4, network="dense", n_init=2).fit(digits[0][:80])
    said = model.explain_model()
    assert said.method == type(model).__name__
    assert [part["name"] for part in said.parts][:2] == ["encoder", "cluster layer"]
    assert sum(part["numbers"] for part in said.parts) == sum(p.numel() for p in model.model_.parameters())
    assert said.epochs == Counter(record["phase"] for record in model.history_)
    for phase, terms in said.losses.items():
        for name, values in terms.items():
            assert values == [record[name] for record in model.history_ if record["phase"] == phase and name in record]
    assert said.centers_read_from_weights == pytest.approx(0, abs=1e-5)
    assert [run["chosen"] for run in said.runs].count(True) == 1
    assert said.repaired == model.diagnostics_["repaired"]
    assert json.dumps(said.to_dict())
    assert "decoder" in said._repr_html_()


def with_losses(values, model):
    model.history_ = [{"phase": "clustering", "epoch": i, "clustering": v} for i, v in enumerate(values)]
    return model.explain_model()


def test_whether_training_converged(table):
    import copy

    model = copy.copy(table)
    model.diagnostics_ = {**table.diagnostics_, "events": [], "unchecked": []}
    flat = with_losses([1.0] * 20 + [0.5] * 20, model)
    assert (flat.converged, flat.change) == (True, 0.0)
    falling = with_losses(list(np.linspace(2, 1, 40)), model)
    assert falling.converged is False
    assert falling.change == pytest.approx(-0.1026 / 1.1282, rel=0.05)
    assert "still moving" in falling.sentence
    model.diagnostics_ = {**model.diagnostics_, "unchecked": ["convergence, because the epochs were few"]}
    assert "too early to say whether it converged" in with_losses([1.0] * 40, model).sentence
    turns = with_losses([1.0, 2.0] * 20, model)  # methods that alternate
    assert turns.converged
    assert with_losses([1.0, 2.0], model).converged is None
    assert with_losses([], model).converged is None


def test_a_network_that_was_not_kept(table):
    import copy

    model, why = copy.copy(table), "k-means was as good."
    model.diagnostics_ = {**table.diagnostics_, "events": [("repaired", "one centre")]}
    assert with_losses([1.0] * 40, model).fallback is None
    model.diagnostics_ = {**table.diagnostics_, "events": [("repaired", "one centre"), ("fallback", why)]}
    said = with_losses([1.0] * 40, model)
    assert said.fallback == said.to_dict()["fallback"] == why
    assert "settled" not in said.sentence
    assert f"the network was not kept. {why}" in said.sentence


def test_a_model_that_is_not_fitted():
    for ask in (lambda m: m.explain_model(), lambda m: m.explain_cluster(0), lambda m: m.explain_pair([1], [2])):
        with pytest.raises(NotFittedError):
            ask(TELL(2))
