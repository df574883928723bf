"""A row's explanation is the model's own arithmetic: it sums up, and it agrees with naive loops."""

import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.exceptions import NotFittedError
from torch import nn

from diffclust import TELL, AEKMeans, KMeansNet
from diffclust.explain import gradients
from diffclust.explain.gradients import integrated_gradients
from diffclust.nn import ClusterLayer

pytestmark = [
    pytest.mark.usefixtures("usual_integrals"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


@pytest.fixture(scope="module")
def images(digits):
    return digits[0]


@pytest.fixture(scope="module")
def fitted(images):
    return TELL(4, pretrain_epochs=10, epochs=6, random_state=0, device="cpu").fit(images)


@pytest.fixture(scope="module")
def explained(fitted, images):
    return fitted.explain(images)


# ---- the exact decomposition


@pytest.mark.parametrize("network", ["auto", "identity"])
def test_every_method_sums_to_its_margin(quick, blobs, network):
    model = quick(network=network).fit(blobs[0])
    X = blobs[0][:24]
    explanations = model.explain(X)
    z = model.transform(X).astype(float)
    order = np.argsort(-model.predict_proba(X), axis=1, kind="stable")
    assert len(explanations) == len(X)
    linear = type(model.model_.clusters) is ClusterLayer
    for i, explanation in enumerate(explanations):
        assert explanation.exact == linear
        assert explanation.contribution_error < 0.01
        assert explanation.contributions.sum() + explanation.bias == pytest.approx(explanation.margin, abs=1e-9)
        assert explanation.cluster == model.labels_[i] == order[i, 0]
        assert explanation.probability == pytest.approx(model.predict_proba(X[i : i + 1])[0].max(), abs=1e-6)
        assert explanation.margin >= 0
        j, rival = explanation.cluster, explanation.runner_up
        with torch.no_grad():
            logits = model.model_.clusters.logits(torch.from_numpy(z[i : i + 1]))[0]
        assert explanation.margin == pytest.approx(float(logits[j] - logits[rival]), abs=1e-6)
        assert (logits <= logits[j]).all()
        assert (logits[[m for m in range(3) if m not in (j, rival)]] <= logits[rival] + 1e-9).all()


def test_contributions_by_hand(blobs):
    """margin = Σ_d (W_jd - W_ld) z_d + (b_j - b_l) with W = 2Ω and b = -|Ω|², feature by feature."""
    X = blobs[0].astype(np.float32)
    model = TELL(3, network="identity", epochs=4, random_state=0).fit(X)
    centers = model.cluster_centers_.astype(float)
    for explanation in model.explain(X[:20]):
        x = X[explanation.row].astype(float)
        j, rival = explanation.cluster, explanation.runner_up
        distances = [sum((x[d] - centers[c, d]) ** 2 for d in range(6)) for c in range(3)]
        assert (j, rival) == tuple(np.argsort(distances)[:2])
        assert explanation.margin == pytest.approx(distances[rival] - distances[j], rel=1e-5)
        for d in range(6):
            assert explanation.contributions[d] == pytest.approx(
                2 * (centers[j, d] - centers[rival, d]) * x[d], rel=1e-5
            )
            # of the input: how much nearer to its own centre this feature is
            gain = (x[d] - centers[rival, d]) ** 2 - (x[d] - centers[j, d]) ** 2
            assert explanation.attributions[d] == pytest.approx(gain, rel=1e-4, abs=1e-4)
        assert explanation.bias == pytest.approx((centers[rival] ** 2).sum() - (centers[j] ** 2).sum(), rel=1e-5)
        assert explanation.completeness_error == 0
        assert explanation.baseline_margin == pytest.approx(0, abs=1e-4)


def test_a_bias_is_spoken_of_where_there_is_one(fitted, images, blobs):
    assert "bias" not in str(fitted.explain(images[:1])[0])  # on the sphere there is none, but for rounding
    free = KMeansNet(3, decoupled=True, alpha=1.0, network="identity", epochs=6, random_state=0).fit(blobs[0])
    explanation = free.explain(blobs[0][:1])[0]
    assert abs(explanation.bias) > 1e-6
    assert f"a bias of {explanation.bias:.4g}" in str(explanation)


def test_free_biases_are_part_of_the_sum(blobs):
    X = blobs[0]
    model = KMeansNet(3, decoupled=True, alpha=1.0, network="identity", epochs=6, random_state=0).fit(X)
    for explanation in model.explain(X[:20]):
        assert explanation.exact
        assert explanation.contributions.sum() + explanation.bias == pytest.approx(explanation.margin, abs=1e-9)
        total = explanation.attributions.sum() + explanation.baseline_margin
        assert total == pytest.approx(explanation.margin, abs=1e-9)


class Bowls(nn.Module):
    """Logits that are not linear: -(z - c_j)² / s_j, each cluster with its own width."""

    def __init__(self, centers, widths):
        super().__init__()
        self.centers, self.widths = centers, widths
        self.alpha, self.sphere, self.embedding_dim = 1.0, False, centers.shape[1]

    def normalize(self, z):
        return z

    def logits(self, z):
        return -((z[:, None] - self.centers.to(z)) ** 2 / self.widths.to(z)).sum(2)

    def probabilities(self, z, temperature):
        return torch.softmax(self.logits(z) / temperature, dim=1)


def test_logits_that_are_not_linear_say_so(blobs):
    """Integrated gradients of a separable quadratic are the difference of its terms: known in closed form."""
    X = blobs[0]
    model = TELL(3, network="identity", epochs=2, random_state=0).fit(X)
    centers = torch.from_numpy(model.cluster_centers_).double()
    widths = torch.tensor([[0.5] * 6, [1.0] * 6, [3.0] * 6], dtype=torch.float64)
    model.model_.clusters = Bowls(centers, widths)
    for explanation in model.explain(X[:10]):
        x = torch.from_numpy(X[explanation.row].astype(np.float32)).double()
        j, rival = explanation.cluster, explanation.runner_up
        assert not explanation.exact
        assert "integrated gradients" in explanation.sentence
        assert explanation.contributions.sum() + explanation.bias == pytest.approx(explanation.margin, abs=1e-9)
        assert explanation.contribution_error < 1e-9
        terms = [-((x - centers[c]) ** 2 - centers[c] ** 2) / widths[c] for c in (j, rival)]
        assert np.allclose(explanation.contributions, (terms[0] - terms[1]).numpy(), rtol=1e-5, atol=1e-6)


def test_a_model_without_a_cluster_layer(blobs):
    """Log-probabilities of the samples stand for the logits, and contributions are of the features."""
    X = blobs[0]
    model = TELL(3, network="identity", epochs=2, random_state=0).fit(X)

    class Softmax(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def assign(self, x):
            return torch.softmax(self.layer(x), dim=1)

    layer = nn.Linear(6, 3)
    model.model_ = Softmax(layer)
    explanation = model.explain(X[:5])[3]
    logits = layer(torch.from_numpy(X[3:4]).float())[0].detach()
    j, rival = logits.argsort(descending=True)[:2].tolist()
    assert (explanation.cluster, explanation.runner_up, explanation.exact) == (j, rival, False)
    assert explanation.margin == pytest.approx(float(logits[j] - logits[rival]), rel=1e-4)
    naive = (layer.weight[j] - layer.weight[rival]).detach().numpy() * X[3]
    assert np.allclose(explanation.contributions, naive, rtol=1e-3, atol=1e-4)


# ---- carried back to the input


def test_integrated_gradients_of_known_functions():
    x = torch.tensor([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]], dtype=torch.float64)
    zero = torch.zeros_like(x)
    product = integrated_gradients(lambda s, i: s[:, 0] * s[:, 1] + 3 * s[:, 2], x, zero)
    assert torch.allclose(product.values, torch.tensor([[1.0, 1.0, -3.0], [0.0, 0.0, 9.0]], dtype=torch.float64))
    assert (product.error < 1e-9).all()
    cube = integrated_gradients(lambda s, i: (s**3).sum(1) * (1.0 + i), x, torch.ones_like(x))
    assert torch.allclose(cube.values, (x**3 - 1) * torch.tensor([[1.0], [2.0]], dtype=torch.float64))
    assert torch.allclose(cube.end - cube.start, cube.values.sum(1))


def test_a_kink_needs_more_points_and_the_error_says_what_is_left():
    x, zero = torch.ones(1, 2, dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64)
    bent = integrated_gradients(lambda s, i: torch.relu(s.sum(1) - 0.717), x, zero, tolerance=1e-3)
    assert bent.values.sum() == pytest.approx(2 - 0.717, rel=2e-3)
    assert bent.error[0] <= 1e-3

    many = integrated_gradients(  # a hundred kinks, each row at its own places
        lambda s, i: torch.relu(s.sum(1)[:, None] - torch.linspace(0, 2, 101)[1:] ** (1.0 + i[:, None])).sum(1),
        x.expand(5, 2), zero.expand(5, 2),
    )  # fmt: skip
    assert (many.error <= 0.005).all()
    assert torch.allclose(many.values[:, 0], many.values[:, 1])

    def step(s, i):  # has no slope anywhere: nothing can be attributed
        return (s.sum(1) > 1).double() + 0 * s.sum(1)

    assert integrated_gradients(step, x, zero).error[0] == pytest.approx(1)


@pytest.mark.parametrize("width", [1e-2, 1e-3, 3e-4])
def test_what_is_steep_but_smooth_is_refined_until_it_is_right(width):
    at = torch.linspace(0.1, 0.9, 100, dtype=torch.float64)
    found = integrated_gradients(
        lambda s, i: torch.sigmoid((s[:, 0] - at[i]) / width), torch.ones(100, 1).double(), torch.zeros(100, 1).double()
    )
    assert (found.error <= 0.005).float().mean() > 0.95
    assert found.error.max() < 0.1


def test_what_more_points_do_not_help_is_left_as_it_is():
    seen = []

    def jump(s, i):
        seen.append(len(s))
        return (s.sum(1) > 0.717).float() + 0.5 * s.sum(1)

    found = integrated_gradients(jump, torch.ones(1, 3) / 2, torch.zeros(1, 3))
    assert found.error[0] > 0.3
    assert sum(seen) < 1000  # of 8,160 in all


@pytest.mark.parametrize(
    "rounded",
    [lambda t: (1e6 * t.detach()).sin() + t, lambda t: (1e9 + t) - 1e9],
    ids=["values that are noise", "values that are lost"],
)
def test_what_is_all_rounding_is_given_up(rounded):
    seen = []

    def target(s, i):  # as margins of rows far from all others: differences of numbers too large to have any
        seen.append(len(s))
        return rounded(s.sum(1))

    found = integrated_gradients(target, torch.rand(3, 4), torch.zeros(3, 4))
    assert found.error.min() > 0.01
    assert sum(seen) < 3 * 2500  # of 3 * 8,432 in all


def test_what_has_many_kinks_is_not_given_up():
    draw = torch.Generator().manual_seed(0)
    at, bends = torch.rand(5, 300, generator=draw).double(), torch.randn(5, 300, generator=draw).double()
    down = (bends * (1 - at)).sum(1) - 0.5  # so that little is gained in all, after many ups and downs
    seen = []

    def zigzag(s, i):
        seen.append(len(s))
        return (bends[i] * torch.relu(s - at[i])).sum(1) - down[i] * s[:, 0]

    found = integrated_gradients(zigzag, torch.ones(5, 1).double(), torch.zeros(5, 1).double())
    assert sum(seen) > 5 * 1500  # more than what is given up costs
    assert torch.equal(found.stopped, found.error > 0.005)
    assert found.stopped.sum() <= 1
    assert found.error.max() <= 0.01
    assert torch.allclose(found.values, torch.full((5, 1), 0.5).double(), rtol=0.011)


def test_a_row_has_a_limited_number_of_points_and_says_when_they_run_short():
    """Thousands of ups and downs, more than panels; and one steep rise: each row on its own."""
    draw = torch.Generator().manual_seed(0)
    at, bends = torch.rand(3000, generator=draw).double(), torch.randn(3000, generator=draw).double()
    down = (bends * (1 - at)).sum() - 0.02
    points = torch.zeros(3, dtype=torch.long)

    def target(s, i):
        points.index_add_(0, i, torch.ones_like(i))
        rough = (bends * torch.relu(s - at)).sum(1) - down * s[:, 0]
        return torch.where(i == 1, torch.sigmoid((s[:, 0] - 0.3) / 1e-3), rough)

    ways = torch.ones(3, 1).double(), torch.zeros(3, 1).double()
    found = integrated_gradients(target, *ways)
    assert found.stopped.tolist() == [True, False, True]
    assert found.error[1] <= 0.005 < found.error[0]
    assert 2000 < points[0] < 1.1 * gradients.MAX_POINTS
    assert points[1] < 1000
    assert torch.equal(integrated_gradients(target, *(way[:1] for way in ways)).values, found.values[:1])


def test_points_that_run_short_go_where_most_is_missing(monkeypatch):
    """A hundred slight kinks and a steep rise."""
    kinks = torch.linspace(0, 1, 101, dtype=torch.float64)[1:]

    def target(s, i):
        return torch.sigmoid((s[:, 0] - 0.717) / 1e-3) + 1e-3 * torch.relu(s - kinks).sum(1) - 0.9 * s[:, 0]

    monkeypatch.setattr(gradients, "MAX_POINTS", 320)
    found = integrated_gradients(target, torch.ones(1, 1).double(), torch.zeros(1, 1).double(), tolerance=1e-4)
    assert found.error[0] < 0.01


def test_an_explanation_says_that_its_integral_stopped(fitted, images, monkeypatch):
    assert not any(e.stopped_early for e in fitted.explain(images[:5]))
    monkeypatch.setattr(gradients, "MAX_POINTS", 16)
    monkeypatch.setattr(gradients, "PANEL_POINTS", 1)
    short = fitted.explain(images[:5])
    assert any(e.stopped_early for e in short)
    for e in short:
        assert e.to_dict()["stopped_early"] is e.stopped_early is ("Integration stopped at its limit" in e.sentence)
    pair = fitted.explain_pair(images[0], images[1])
    assert pair.stopped_early
    assert "Integration stopped" in pair.sentence


def test_completeness_on_digits(explained):
    assert max(e.completeness_error for e in explained) < 0.01
    for e in explained:
        gap = abs(e.attributions.sum() - (e.margin - e.baseline_margin)) / abs(e.margin - e.baseline_margin)
        assert gap == pytest.approx(e.completeness_error, abs=1e-4)


def test_completeness_of_every_method_on_digits(fitted_images, images):
    explained = fitted_images.explain(images[::40])
    assert max(e.completeness_error for e in explained) < 0.01


@pytest.mark.parametrize("epochs", [1, 10])
@pytest.mark.parametrize("kind", [TELL, AEKMeans])
def test_an_embedding_of_one_dimension_is_soon_explained(images, monkeypatch, kind, epochs):
    """The slope of TELL's, which are -1 or 1, is zero, and no point finds the jump: that is said, and soon."""
    model = kind(4, embedding_dim=1, pretrain_epochs=epochs, epochs=epochs, random_state=0, device="cpu").fit(images)
    panels, integrate = [], gradients._integrate
    monkeypatch.setattr(gradients, "_integrate", lambda *args: panels.append(len(args[3])) or integrate(*args))
    explained = model.explain(images[:30])
    assert sum(panels) * gradients.PANEL_POINTS < 30 * 3000  # of 8,160 each
    for e in explained:
        assert e.contributions.shape == (1,)
        assert e.contributions.sum() + e.bias == pytest.approx(e.margin, abs=1e-9)
        gain = abs(e.margin - e.baseline_margin)
        gap = abs(e.attributions.sum() - (e.margin - e.baseline_margin))
        assert gap == pytest.approx(e.completeness_error * gain, abs=1e-4)
        assert kind is TELL or e.completeness_error < 0.01 or gain < 1e-3  # which is rounding


def test_attributions_have_the_shape_of_the_row(explained, images):
    assert all(e.attributions.shape == (8, 8) for e in explained)
    assert all(e.feature_names is None for e in explained)
    assert explained[0].top(1)[0][0].startswith("pixel (")
    colour = np.random.default_rng(0).random((40, 8, 10, 3), dtype=np.float32)
    model = TELL(2, pretrain_epochs=2, epochs=2, random_state=0).fit(colour)
    assert model.explain(colour[:2])[1].attributions.shape == (8, 10, 3)
    assert model.explain(colour[:2])._repr_html_().count("data:image/png") == 4


def test_baselines(fitted, images):
    x = images[:3]
    zero = fitted.explain(x, baseline="zero")
    black = fitted.explain(x, baseline=np.zeros((8, 8)))
    assert np.allclose(zero[0].attributions, black[0].attributions)
    itself = fitted.explain(x, baseline=x[0])
    assert np.abs(itself[0].attributions).max() == 0
    runner_up = fitted.explain(x)
    decoded = fitted.inverse_transform(fitted.cluster_centers_)
    by_hand = fitted.explain(x[1:2], baseline=decoded[runner_up[1].runner_up])
    assert np.allclose(by_hand[0].attributions, runner_up[1].attributions, atol=1e-6)
    assert fitted.explain(x, attributions=False)[0].attributions is None


def test_integer_images_are_explained_in_the_units_of_the_network(images):
    whole = (images * 255).round().astype(np.uint8)
    model = TELL(4, pretrain_epochs=4, epochs=4, random_state=0).fit(whole)
    a, b = (
        model.explain(whole[:2], baseline=np.full((8, 8), 255)),
        model.explain(whole[:2] / 255, baseline=np.ones((8, 8))),
    )
    assert np.allclose(a[1].attributions, b[1].attributions, rtol=1e-3, atol=1e-5)


def test_sparse_rows_start_from_nothing(blobs):
    X = np.abs(blobs[0]) * (np.abs(blobs[0]) > 1)
    model = TELL(3, features="reconstruction", pretrain_epochs=4, epochs=4, random_state=0).fit(sp.csr_array(X))
    explanation = model.explain(sp.csr_array(X)[:1])[0]
    assert (explanation.attributions[X[0] == 0] == 0).all()
    assert np.abs(explanation.attributions).max() > 0
    empty = model.explain(sp.csr_array((1, X.shape[1])))[0]
    assert "matter most are" in explanation.sentence
    assert empty.sentence.endswith("No input feature matters.")


# ---- how it behaves


def test_an_explanation_does_not_depend_on_its_company(fitted, explained, images):
    alone = fitted.explain(images[[17]])[0]
    assert alone.margin == pytest.approx(explained[17].margin, abs=1e-7)
    assert np.allclose(alone.contributions, explained[17].contributions, atol=1e-6)
    assert np.allclose(alone.attributions, explained[17].attributions, atol=1e-5)


def test_nobodys_random_state_moves(fitted, images):
    before, numbers = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    fitted.explain(images[:3])
    fitted.explain_cluster(0, images)
    assert (torch.get_rng_state() == before).all()
    assert (np.random.get_state()[1] == numbers).all()  # noqa: NPY002


def test_kinds_of_rows_agree(blobs):
    X = blobs[0].astype(np.float32)
    model = TELL(3, pretrain_epochs=3, epochs=3, random_state=0).fit(X)
    expected = model.explain(X[:4])[2]
    got = model.explain(torch.from_numpy(X[:4]))[2]
    assert np.allclose(got.attributions, expected.attributions)


def test_names_and_words(blobs):
    frame = pd.DataFrame(blobs[0], columns=["age", "height", "weight", "pulse", "<b>x</b>", "y"])
    model = TELL(3, network="identity", epochs=4, random_state=0).fit(frame)
    explanation = model.explain(frame)[0]
    assert list(explanation.contribution_names) == list(frame.columns)
    sentence = str(explanation)
    assert sentence == explanation.sentence
    assert sentence.startswith(f"Row 0 is in cluster {explanation.cluster} with probability ")
    assert f"the runner-up is cluster {explanation.runner_up}" in sentence
    heaviest = max(zip(explanation.feature_names, explanation.attributions, strict=True), key=lambda p: abs(p[1]))
    assert explanation.top(1) == [heaviest]
    assert f"The input features that matter most are {heaviest[0]}" in sentence
    html = explanation._repr_html_()
    assert "&lt;b&gt;x&lt;/b&gt;" in html
    assert "<b>" not in html
    renamed = model.explain(frame[:1], feature_names=list("abcdef"))[0]
    assert renamed.top(1)[0][0] == "abcdef"[list(frame.columns).index(heaviest[0])]


def test_plain_objects(explained, images):
    whole = explained[5].to_dict()
    assert json.loads(json.dumps(whole)) == whole
    assert {"cluster", "probability", "runner_up", "margin", "contributions", "bias"} <= set(whole)
    assert sum(whole["contributions"]) + whole["bias"] == pytest.approx(whole["margin"], abs=1e-12)
    assert np.array(whole["attributions"]).shape == (8, 8)
    assert len(explained.to_dict()) == 80
    assert "and 75 more" in explained._repr_html_()
    assert explained[5]._repr_html_().count("data:image/png;base64,") == 2


def test_one_cluster_has_no_runner_up(blobs):
    explanation = TELL(1, pretrain_epochs=1, epochs=1, random_state=0).fit(blobs[0]).explain(blobs[0][:1])[0]
    assert (explanation.cluster, explanation.runner_up, explanation.margin, explanation.bias) == (0, None, 0, 0)
    assert "there is no other" in explanation.sentence
    assert json.dumps(explanation.to_dict())


def test_bad_questions(fitted, images, blobs):
    with pytest.raises(NotFittedError):
        TELL(3).explain(images)
    with pytest.raises(ValueError, match=r"samples of shape \(1, 4, 4\)"):
        fitted.explain(images[:, :4, :4])
    with pytest.raises(ValueError, match="NaN"):
        fitted.explain(np.full((1, 8, 8), np.nan))
    with pytest.raises(ValueError, match="baseline='black' should be"):
        fitted.explain(images[:1], baseline="black")
    with pytest.raises(ValueError, match=r"baseline has shape \(4, 4\), expected \(8, 8\)"):
        fitted.explain(images[:1], baseline=np.zeros((4, 4)))
    with pytest.raises(ValueError, match="NaN"):
        fitted.explain(images[:1], baseline=np.full((8, 8), np.nan))
    rows = TELL(3, network="identity", epochs=1, random_state=0).fit(blobs[0])
    with pytest.raises(ValueError, match="2 names for 6 features"):
        rows.explain(blobs[0], feature_names=["a", "b"])
