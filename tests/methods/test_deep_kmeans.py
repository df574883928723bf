"""What is particular to Deep k-Means: its soft objective, its annealing, and its indifference to scale."""

import math
import pickle

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from torch.nn import functional as F

import diffclust
from diffclust import DeepKMeans
from diffclust.engine.data import Batch, Data
from diffclust.engine.rows import TensorRows
from diffclust.methods.deep_kmeans import annealing_schedule
from diffclust.nn import DenseAutoencoder, Identity

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def batch(x):
    return Batch(x, x, torch.arange(len(x)))


def small(**settings):
    """A model, its rows, and their embeddings."""
    model = DeepKMeans(3, **settings).build_model(DenseAutoencoder((6,), 4, hidden=(8,)), 20)
    x = torch.randn(20, 6)
    return model, x, model.embed(x)


@pytest.mark.parametrize("alpha", [0.1, 1.0, 1000.0])
def test_the_loss_is_the_papers_by_loops(alpha):
    model, x, h = small(weight=0.7, alphas=[alpha])
    back, centers = model.autoencoder.decode(h), model.clusters.centers
    centers, h, back = centers.detach(), h.detach(), back.detach()
    reconstruction = clustering = 0.0
    for i in range(20):
        reconstruction += sum((float(x[i, v]) - float(back[i, v])) ** 2 for v in range(6))
        f = [sum((float(h[i, v]) - float(centers[k, v])) ** 2 for v in range(4)) for k in range(3)]
        powers = [math.exp(-alpha * (d - min(f))) for d in f]
        clustering += sum(p / sum(powers) * d for p, d in zip(powers, f, strict=True))
    losses = model.loss(batch(x))
    assert float(losses["reconstruction"].detach()) == pytest.approx(reconstruction / 20, rel=1e-5)
    assert float(losses["clustering"].detach()) == pytest.approx(0.7 * clustering / 20, rel=1e-4)
    assert set(losses) == {"reconstruction", "clustering"}


@pytest.mark.parametrize("distance", ["cosine", lambda h, r: (h[:, None] - r).abs().sum(-1)])
@pytest.mark.parametrize("reconstruction", ["cosine", lambda x, back: (x - back).abs().sum(1)])
def test_other_distances_by_loops(distance, reconstruction):
    model, x, h = small(distance=distance, reconstruction=reconstruction, alphas=[2.0], weight=1.0)
    centers, back = model.clusters.centers, model.autoencoder.decode(h)

    def apart(a, b):
        """1 - cosine, or city block."""
        return 1 - a @ b / (a.norm() * b.norm()) if kind == "cosine" else (a - b).abs().sum()

    kind = distance
    f = torch.stack([torch.stack([apart(h[i], centers[k]) for k in range(3)]) for i in range(20)])
    kind = reconstruction
    g = torch.stack([apart(x[i], back[i]) for i in range(20)])
    losses = model.loss(batch(x))
    expected = (F.softmax(-2 * f, dim=1) * f).sum(1).mean()
    assert float(losses["clustering"].detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    assert float(losses["reconstruction"].detach()) == pytest.approx(float(g.mean().detach()), rel=1e-5)


def test_a_large_alpha_is_hard_k_means():
    """With no network and α large, the objective is k-means' own, to the last digits."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    reference = KMeans(4, n_init=1, random_state=0).fit(X)
    estimator = DeepKMeans(4, alphas=[1e7], init=reference.cluster_centers_, network="identity", epochs=0)
    model = estimator.fit(X)
    assert model.clustering_loss_ * 200 == pytest.approx(reference.inertia_, rel=1e-5)
    assert model.inertia_ == pytest.approx(reference.inertia_, rel=1e-5)
    assert (model.labels_ == reference.labels_).all()
    soft = DeepKMeans(4, alphas=[0.1], init=reference.cluster_centers_, network="identity", epochs=0).fit(X)
    assert soft.clustering_loss_ > model.clustering_loss_


def test_gradient_steps_on_the_sharp_objective_find_k_means():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(center, 0.3, size=(50, 2)) for center in ([0, 0], [4, 0], [0, 4])])
    settings = {"network": "identity", "lr": 0.05, "epochs": 200, "random_state": 0, "init": X[[0, 60, 120]]}
    model = DeepKMeans(3, **settings).fit(X)
    assert model.inertia_ == pytest.approx(KMeans(3, n_init=5, random_state=0).fit(X).inertia_, rel=1e-2)


@pytest.mark.parametrize("alpha", [0.5, 1000.0])
def test_centres_and_network_receive_gradient(alpha):
    model, x, _ = small(alphas=[alpha], weight=1.0)
    model.loss(batch(x))["clustering"].backward()
    assert model.clusters.weight.grad.abs().sum() > 0
    assert model.autoencoder.encoder[1].weight.grad.abs().sum() > 0


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_gradcheck(distance):
    estimator = DeepKMeans(3, alphas=[0.7], distance=distance)
    model = estimator.build_model(Identity((4,)), 5).double()
    h = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda h: model.clustering_loss(model.clusters.normalize(h)), h)
    weight = model.clusters.weight

    def of_centers(values):
        f = torch.cdist(h.detach(), values).square()
        return (torch.softmax(-0.7 * f, dim=1) * f).sum()

    if distance == "euclidean":
        (ours,) = torch.autograd.grad(model.clustering_loss(h.detach()).sum(), weight)
        (theirs,) = torch.autograd.grad(of_centers(weight), weight)
        assert torch.allclose(ours, theirs)


def test_the_schedule_is_the_authors():
    alphas = annealing_schedule()
    assert len(alphas) == 40
    assert alphas[:5] == pytest.approx([0.1, 0.423, 0.752, 1.078, 1.409], abs=1e-3)
    assert alphas[-1] == pytest.approx(28.13, abs=0.01)


def test_annealing_goes_through_the_schedule_in_equal_shares(digits):
    seen = []

    def watch(progress):
        seen.append(float(progress.model.alpha))

    alphas = (0.1, 1.0, 10.0)
    model = DeepKMeans(4, annealing=True, alphas=alphas, epochs=7, random_state=0, callbacks=[watch])
    model.fit(digits[0][:64])
    assert seen == pytest.approx([0.1, 0.1, 0.1, 1, 1, 10, 10])
    assert {record["phase"] for record in model.history_} == {"clustering"}  # no pretraining
    assert float(model.model_.alpha) == 10


def test_the_annealed_start_is_uniform():
    model = DeepKMeans(200, annealing=True).build_model(DenseAutoencoder((6,), 50, hidden=(8,)), 500)
    model.before_training(Data(TensorRows(torch.randn(500, 6)), torch.device("cpu")))
    centers = model.clusters.centers.detach()
    assert float(centers.abs().max()) <= 1
    assert float(centers.mean()) == pytest.approx(0, abs=0.03)
    assert float(centers.std()) == pytest.approx(1 / math.sqrt(3), abs=0.02)
    assert DeepKMeans(3).build_model(DenseAutoencoder((6,), 4, hidden=(8,)), 500).start == "k-means"


@pytest.mark.full_size
def test_annealing_finds_clusters_from_nothing(blobs):
    model = DeepKMeans(3, annealing=True, weight=0.1, epochs=100, random_state=0).fit(blobs[0])
    assert adjusted_rand_score(blobs[1], model.labels_) > 0.95


def test_annealing_takes_as_many_steps_however_few_the_rows():
    assert [DeepKMeans(3, annealing=True).auto_epochs(1, steps) for steps in (2, 72, 273)] == [2100, 59, 40]
    assert DeepKMeans(3, annealing=True).auto_epochs(0, 72) == 0


def test_lengths_are_logged_and_a_shrinking_embedding_is_reported(digits):
    quick = {"pretrain_epochs": 5, "random_state": 0, "augment": None, "network": "dense"}
    calm = DeepKMeans(4, **quick, epochs=5).fit(digits[0])
    lengths = [record["embedding length"] for record in calm.history_ if record["phase"] == "clustering"]
    mean = np.linalg.norm(calm.transform(digits[0]), axis=1).mean()
    assert lengths[-1] == pytest.approx(mean, rel=0.2)
    assert not calm.diagnostics_["events"]
    quick["network"] = "conv"
    with pytest.warns(ConvergenceWarning, match="embedding shrank"):
        DeepKMeans(1, **quick, epochs=60, weight=1e4, lr=0.01).fit(digits[0])  # all rows are drawn to one point


def test_l2_holds_the_weights(digits):
    quick = {"pretrain_epochs": 2, "epochs": 10, "batch_size": 16, "random_state": 0, "network": "dense"}

    def size(model):
        return sum(float(p.detach().square().sum()) for p in model.model_.autoencoder.parameters() if p.ndim > 1)

    free, held = DeepKMeans(4, **quick).fit(digits[0]), DeepKMeans(4, l2=1.0, **quick).fit(digits[0])
    assert size(held) < 0.7 * size(free)
    assert "l2" in held.history_[-1]


def test_cosine_ignores_length(digits):
    model = DeepKMeans(4, distance="cosine", pretrain_epochs=2, epochs=2, random_state=0).fit(digits[0])
    assert np.allclose(np.linalg.norm(model.cluster_centers_, axis=1), 1, atol=1e-5)
    assert np.allclose(np.linalg.norm(model.transform(digits[0]), axis=1), 1, atol=1e-5)


def city_block(h, r):
    return (h[:, None] - r).abs().sum(-1)


def test_a_distance_of_ones_own_decides_and_cannot_be_saved(blobs, tmp_path):
    model = DeepKMeans(3, distance=city_block, pretrain_epochs=20, epochs=5, random_state=0).fit(blobs[0])
    z, centers = model.transform(blobs[0]), model.cluster_centers_
    assert (model.labels_ == np.abs(z[:, None] - centers).sum(2).argmin(1)).all()
    assert adjusted_rand_score(blobs[1], model.labels_) > 0.95
    assert (pickle.loads(pickle.dumps(model)).predict(blobs[0]) == model.labels_).all()
    with pytest.raises(TypeError, match="distance is your own function"):
        model.save(tmp_path / "m")


def test_a_reconstruction_of_ones_own_cannot_be_saved(blobs, tmp_path):
    def between(x, y):
        return (x - y).abs().flatten(1).sum(1)

    model = DeepKMeans(3, reconstruction=between, pretrain_epochs=1, epochs=1, random_state=0).fit(blobs[0])
    with pytest.raises(TypeError, match="reconstruction is your own function"):
        model.save(tmp_path / "m")


def test_the_schedule_survives_saving(blobs, tmp_path):
    model = DeepKMeans(3, alphas=(1.0, 2.5), pretrain_epochs=1, epochs=2, random_state=0).fit(blobs[0])
    model.save(tmp_path / "m")
    again = diffclust.load(tmp_path / "m")
    assert list(again.alphas) == [1.0, 2.5]
    assert again.score(blobs[0]) == model.score(blobs[0])


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("alphas", "slow"),
        ("alphas", ()),
        ("alphas", (1.0, -1.0)),
        ("alphas", ("a",)),
        ("alphas", 3.0),
        ("distance", "manhattan"),
        ("reconstruction", None),
        ("annealing", "yes"),
        ("l2", -1.0),
        ("init", "best"),
    ],
)
def test_bad_settings_are_named(blobs, knob, value):
    with pytest.raises(ValueError, match=knob):
        DeepKMeans(3, **{knob: value}).fit(blobs[0])


@pytest.mark.full_size
def test_the_papers_settings(digits):
    pretrained, annealed = DeepKMeans.paper("20newsgroups"), DeepKMeans.paper("mnist-a")
    assert (pretrained.n_clusters, pretrained.embedding_dim, pretrained.epochs) == (20, 20, 100)
    assert (annealed.annealing, annealed.pretrain_epochs, annealed.epochs) == (True, 0, 200)
    model = DeepKMeans.paper("mnist", n_clusters=4, pretrain_epochs=1, epochs=1).fit(digits[0])
    network = model.model_.autoencoder
    assert network.output == "linear"
    assert (float(network.shift), float(network.scale)) == (0, 1)
    widths = [layer.out_features for layer in network.encoder if isinstance(layer, torch.nn.Linear)]
    assert widths == [500, 500, 2000, 10]
