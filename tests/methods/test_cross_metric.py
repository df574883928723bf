"""What is particular to CrossMetric: its start, its stop rule, its rates, the frequencies it keeps, its switches."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from scipy.stats import entropy
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

import diffclust
from conftest import SEED, quick_settings
from diffclust import CrossMetric
from diffclust.engine.data import Batch, Data
from diffclust.engine.rows import TensorRows
from diffclust.methods.cross_metric import CrossMetricModel
from diffclust.nn import DenseAutoencoder, kl_divergence
from diffclust.nn.ops import METRICS

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
CPU = torch.device("cpu")


def quick(n_clusters=3, **settings):
    return CrossMetric(n_clusters, **{**quick_settings("CrossMetric"), "features": "reconstruction", **settings})


def model_of(estimator, x, hidden=(16,)):
    torch.manual_seed(0)
    model = estimator.build_model(DenseAutoencoder(x.shape[1:], 4, hidden=hidden), len(x))
    data = Data(TensorRows(x), CPU, 16)
    model.before_training(data)
    return model, data


@pytest.mark.parametrize("metric", METRICS)
def test_every_variant_finds_blobs(blobs, metric):
    X, y = blobs
    assert adjusted_rand_score(y, quick(metric=metric, pretrain_epochs=40, epochs=20).fit_predict(X)) > 0.95


@pytest.mark.parametrize("metric", METRICS)
def test_training_brings_the_assignments_together(metric):
    X, _ = make_blobs(150, 6, centers=3, cluster_std=3, random_state=3 + SEED)  # they overlap: there is something to do
    model = quick(metric=metric, pretrain_epochs=10, epochs=15, lr=0.003, matched=False).fit(X)
    losses = [record["clustering"] for record in model.history_ if record["phase"] == "clustering"]
    assert losses[-1] < losses[0]


def test_several_metrics_divergences_and_sides(digits, tmp_path):
    settings = {"network": "dense"}
    metrics = ("euclidean", "cosine", "cityblock")
    model = quick(4, metric=metrics, divergence="hellinger", **settings).fit(digits[0])
    assert model.model_.clusters.frequencies.shape == (4, 4)
    model.save(tmp_path / "m")
    again = diffclust.load(tmp_path / "m", device="cpu")
    assert (again.predict(digits[0]) == model.labels_).all()
    assert np.allclose(again.predict_proba(digits[0]), model.predict_proba(digits[0]), atol=1e-6)
    for detach in ("target", "prediction"):
        other = quick(4, metric="cosine", detach=detach, **settings).fit(digits[0])
        assert (other.predict(digits[0]) == other.labels_).all()


def entropies(p):
    return float(np.mean(entropy(p.detach().numpy(), axis=1)))


def test_the_loss_is_that_of_the_batch_and_counts_rows_put_elsewhere():
    x = torch.randn(40, 6)
    model, _ = model_of(quick(metric="cosine"), x)
    batch = Batch(x, x, torch.arange(40))
    model.before_epoch(0, None)
    loss = model.loss(batch)
    p1, p2 = model.clusters.assignments(model.embed(x))
    assert loss.keys() == {"clustering"}  # the decoder is left behind
    assert loss["clustering"].item() == pytest.approx(kl_divergence(p2, p1).mean().item(), rel=1e-5)
    share = (p1.argmax(1) != p2.argmax(1)).double().mean().item()
    expected = {"disagreement": share, "entropy": entropies(p1), "target_entropy": entropies(p2)}
    assert model.extra_metrics() == pytest.approx(expected, rel=1e-5)


def test_frequencies_are_those_of_all_rows_when_the_fit_ends(digits):
    """Also behind batch norm, whose statistics are settled after the last step."""
    model = quick(4, metric="cosine").fit(digits[0])
    layer = model.model_.clusters
    z = torch.from_numpy(model.transform(digits[0])).double()
    for kept, q in zip(layer.frequencies, layer.closeness(z), strict=True):
        torch.testing.assert_close(kept.double(), q.detach().mean(0), rtol=1e-4, atol=1e-6)
    p1 = layer.assignments(z)[0].detach().numpy()
    assert (p1.argmax(1) == model.labels_).all()
    assert np.allclose(p1, model.predict_proba(digits[0]), atol=1e-4)


def test_the_target_can_answer_and_training_is_the_same(digits, tmp_path):
    images, _ = digits
    settings = {"metric": "cosine", "network": "dense"}
    first, second = (quick(4, inference=who, **settings).fit(images) for who in ("prediction", "target"))
    assert (first.transform(images) == second.transform(images)).all()
    z = torch.from_numpy(second.transform(images)).double()
    p2 = second.model_.clusters.assignments(z, second.model_.clusters.frequencies)[1].detach().numpy()
    assert (p2.argmax(1) == second.labels_).all()
    assert (second.predict(images) == second.labels_).all()
    assert np.allclose(p2, second.predict_proba(images), atol=1e-6)
    before, model = first.predict(images), first.model_
    assert (first.set_params(inference="target").predict(images) == second.labels_).all()
    assert (first.labels_ == second.labels_).all()
    assert first.diagnostics_["sizes"] == second.diagnostics_["sizes"]
    assert (first.inertia_, first.clustering_loss_) == (second.inertia_, second.clustering_loss_)
    assert (first.outlier_score(images) == second.outlier_score(images)).all()
    assert model.clusters.answer == "prediction"  # other threads may be asking it
    first.save(tmp_path / "m")
    again = diffclust.load(tmp_path / "m")
    assert (again.predict(images) == second.labels_).all()
    assert (again.set_params(inference="prediction").predict(images) == before).all()
    assert not hasattr(again, "labels_")  # which would need the training rows
    assert (first.set_params(inference="prediction").predict(images) == before).all()
    assert (first.labels_ == before).all()
    with pytest.raises(ValueError, match="inference"):
        first.set_params(inference="P2")


def test_two_clusters_are_all_or_nothing(digits):
    model = quick(2, network="dense").fit(digits[0])
    p = model.predict_proba(digits[0])
    assert np.isfinite(p).all()
    assert np.allclose(p.max(1), 1)


def test_it_ends_when_labels_settle(blobs):
    settled = quick(pretrain_epochs=20, epochs=30, tolerance=0.1, lr=1e-4).fit(blobs[0])
    assert 1 <= settled.n_iter_ < 30
    assert settled.explain_model().stopped == "fewer labels changed than tolerance=0.1"
    assert quick(pretrain_epochs=20, epochs=8, lr=1e-4).fit(blobs[0]).n_iter_ == 8


def test_labels_that_change_are_counted_against_the_epoch_before():
    x = torch.randn(50, 6)
    model, data = model_of(quick(tolerance=0.5), x)
    before = model.labels.clone()
    model.after_epoch(0, data)
    assert model.changed == 0
    assert model.finished
    with torch.no_grad():
        model.clusters.weight.copy_(model.clusters.weight.roll(1, 0))
    model.after_epoch(1, data)
    assert model.changed == 1  # every cluster has another's rows now
    assert not model.finished
    assert (model.labels != before).all()


def test_a_look_at_rows_that_are_not_finite_changes_nothing():
    x = torch.randn(50, 6)
    model, data = model_of(quick(), x)
    kept = model.clusters.frequencies.clone()
    with torch.no_grad():
        model.clusters.weight[0] = torch.nan
    model.refresh_labels(data)
    assert torch.equal(model.clusters.frequencies, kept)


def test_the_rate_is_multiplied_by_its_decay():
    model, _ = model_of(quick(decay=0.9, decay_every=300), torch.randn(20, 6))
    assert [model.lr_factor(e) for e in (0, 299, 300, 900)] == pytest.approx([1, 1, 0.9, 0.729])


def test_pretraining_hides_values_and_zero_is_their_mean_when_the_mean_is_removed():
    X = np.random.default_rng(0).normal(5, 1, (60, 6)).astype(np.float32)
    estimator = quick(noise=1.0, rescale="mean", network="dense")
    model = estimator.build_model(estimator.build_autoencoder(Data(TensorRows(torch.from_numpy(X)), CPU)), 60)
    assert model.autoencoder.output == "linear"
    torch.testing.assert_close(model.autoencoder.shift, torch.from_numpy(X.mean(0)), rtol=1e-5, atol=1e-5)
    stage = estimator.pretraining(model)
    x = torch.from_numpy(X)
    loss = stage.loss(stage.prepare(Batch(x, x, torch.arange(60))))["reconstruction"].item()
    hidden = model.embed(model.autoencoder.shift.expand(60, 6))
    assert loss == pytest.approx(model.autoencoder.reconstruction_loss(x, hidden).item(), rel=1e-5)


def test_angles_are_seen_from_the_mean_unless_told_otherwise(blobs):
    seen = quick(metric="cosine", epochs=0).fit(blobs[0])
    mean = seen.transform(blobs[0]).mean(0)
    assert np.allclose(seen.model_.clusters.origin, mean, atol=1e-4)
    assert (quick(metric="cosine", epochs=0, centered=False).fit(blobs[0]).model_.clusters.origin == 0).all()


def test_distances_are_spread_before_clustering_unless_told_otherwise(blobs, tmp_path):
    model = quick(metric=("cosine", "cityblock"), spread=6.0).fit(blobs[0])
    start = quick(metric=("cosine", "cityblock"), spread=6.0, epochs=0).fit(blobs[0])
    layer, z = start.model_.clusters, torch.from_numpy(start.transform(blobs[0])).double()
    seen, centers = z - layer.origin, layer.centers.double() - layer.origin
    means = torch.stack([METRICS[metric](seen, centers).mean() for metric in layer.metrics])
    torch.testing.assert_close(layer.stretch.double(), (6 / means).clamp_min(1), rtol=1e-4, atol=0)
    assert (model.model_.clusters.stretch == layer.stretch).all()  # it stays while the network learns
    model.save(tmp_path / "m")
    assert (diffclust.load(tmp_path / "m", device="cpu").model_.clusters.stretch == layer.stretch).all()
    assert (quick(metric="cosine", epochs=0, spread=0).fit(blobs[0]).model_.clusters.stretch == 1).all()


def test_small_embeddings_are_made_larger_and_else_the_centres_slower(blobs):
    small = quick(epochs=0, spread=0).fit(blobs[0])
    large = quick(epochs=0, spread=60.0).fit(blobs[0])
    z, centers = large.transform(blobs[0]), large.cluster_centers_
    factor = 60 / cdist(small.transform(blobs[0]), small.cluster_centers_).mean()
    assert cdist(z, centers).mean() == pytest.approx(60, rel=1e-4)
    assert np.allclose(z, factor * small.transform(blobs[0]), rtol=1e-3, atol=1e-3)
    assert np.allclose(centers, factor * small.cluster_centers_, rtol=1e-3, atol=1e-3)
    seen = small.inverse_transform(small.cluster_centers_)
    assert np.allclose(large.inverse_transform(centers), seen, rtol=1e-3, atol=1e-3)
    assert large.model_.clusters.pace == pytest.approx(1, abs=1e-4)
    near = quick(epochs=0, spread=1.5 * 60 / factor).fit(blobs[0])  # not that small
    assert (near.transform(blobs[0]) == small.transform(blobs[0])).all()
    assert near.model_.clusters.pace == 1
    squashed = DenseAutoencoder((6,), 4, hidden=(16,), bottleneck="sigmoid")
    bounded = quick(epochs=0, spread=6.0, network=squashed).fit(blobs[0])
    apart = cdist(bounded.transform(blobs[0]), bounded.cluster_centers_).mean()
    assert apart < 2
    assert bounded.model_.clusters.pace == pytest.approx((apart / 6) ** 2, rel=1e-3)


def test_the_target_is_as_decided_as_the_prediction_before_clustering_unless_told_otherwise(digits, tmp_path):
    start = quick(4, pretrain_epochs=10, epochs=0, spread=2.0).fit(digits[0])  # near rows: a flat target
    layer, z = start.model_.clusters, torch.from_numpy(start.transform(digits[0])).double()
    assert layer.powers[0] == 2
    p1, p2 = map(entropies, layer.assignments(z))
    assert p2 <= p1 * 1.001 or layer.powers[1] == pytest.approx(8)  # the most
    assert p2 >= p1 / 1.001 or layer.powers[1] == 2  # the least
    start.save(tmp_path / "m")
    assert (diffclust.load(tmp_path / "m", device="cpu").model_.clusters.powers == layer.powers).all()
    assert (quick(4, epochs=0, matched=False).fit(digits[0]).model_.clusters.powers == 2).all()


def test_adam_pretrains_and_the_optimiser_is_for_the_clustering():
    estimator = quick(optimizer="momentum", lr=0.02)
    model, _ = model_of(estimator, torch.randn(20, 6))
    assert isinstance(estimator.build_optimizer(estimator.pretraining(model)), torch.optim.Adam)
    optimizer = estimator.build_optimizer(model)
    assert isinstance(optimizer, torch.optim.SGD)
    assert (optimizer.defaults["momentum"], optimizer.defaults["lr"]) == (0.9, 0.02)


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("metric", "manhattan"),
        ("metric", ()),
        ("metric", ("cosine", "cosine")),
        ("metric", ("cosine", 3)),
        ("metric", 3),
        ("metric", [["cosine"]]),
        ("divergence", "tv"),
        ("detach", "both"),
        ("detach", None),
        ("inference", "P1"),
        ("power", 0.0),
        ("noise", 1.5),
        ("decay", 0.0),
        ("decay", 1.1),
        ("decay_every", 0),
        ("tolerance", -1),
        ("centered", "yes"),
        ("spread", -1),
        ("matched", "yes"),
        ("rescale", "median"),
    ],
)
def test_bad_settings_are_named(blobs, knob, value):
    with pytest.raises(ValueError, match=knob):
        quick(**{knob: value}).fit(blobs[0])


def test_papers_settings_are_the_papers():
    paper = CrossMetric.paper("mnist", metric="correlation")
    assert (paper.metric, paper.embedding_dim, paper.batch_size, paper.epochs) == ("correlation", 10, 256, 4500)
    assert (paper.noise, paper.decay, paper.decay_every, paper.tolerance) == (0.3, 0.9, 300, 0.0003)
    assert (paper.detach, paper.divergence, paper.power, paper.inference) == ("none", "kl", 2.0, "prediction")
    assert CrossMetric.paper("mnist-cnn").network == "conv-pool"
    assert CrossMetric.paper("cifar10-test").embedding_dim == 100
    assert CrossMetric.paper("reuters10k").lr == 1.0


def test_the_state_that_goes_on_after_a_kill_has_the_labels():
    model, data = model_of(quick(), torch.randn(30, 6))
    other = CrossMetricModel(model.autoencoder, model.clusters, quick(repair=False))
    other.load_training_state(model.training_state())
    other.after_epoch(0, data)
    assert other.changed == 0
