"""Learning from a stream: what every method that can promises, its rule by hand, and bad batches."""

import copy
import pickle
import threading

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score
from torch.utils.data import DataLoader, TensorDataset

import diffclust
from conftest import ESTIMATORS, SEED, Stream, learns_network_online, quick_settings
from diffclust import DCN, TELL, AEKMeans, DeepKMeans, KMeansNet, metrics
from diffclust.methods import Method
from diffclust.methods.deep_kmeans import DeepKMeansModel

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

OFFLINE = [name for name in ESTIMATORS if getattr(diffclust, name)().why_not_online()]
ONLINE = [name for name in ESTIMATORS if name not in OFFLINE]
# what is not a method's own is tried with a rule of a constant step and with one of running means
two_online = pytest.mark.parametrize("online", ["TELL", "DCN"], indirect=True)


@pytest.fixture(params=ONLINE)
def online(request):
    """A quick estimator of every method that learns online."""

    def build(n_clusters=3, **settings):
        return getattr(diffclust, request.param)(n_clusters, **{**quick_settings(request.param), **settings})

    return build


def state(model):
    tensors = {name: value.clone() for name, value in model.model_.state_dict().items()}
    return tensors, copy.deepcopy(model.diagnostics_), model.labels_.copy(), model.cluster_centers_.copy()


def same(a, b):
    tensors = all(torch.equal(a[0][name], b[0][name]) for name in b[0])
    return tensors and a[1] == b[1] and (a[2] == b[2]).all() and (a[3] == b[3]).all()


# ---- every method


def test_starts_and_goes_on(online, blobs):
    X, y = blobs
    model = online(pretrain_epochs=40, epochs=20).partial_fit(X[:100])
    before = model.predict(X)
    model.partial_fit(X[100:])
    assert adjusted_rand_score(y, model.predict(X)) > 0.95
    assert (model.predict(X) == before).mean() > 0.95  # cluster 3 stays cluster 3
    assert (model.predict(X[100:]) == model.labels_).all()
    z = model.transform(X[100:]).astype(float)
    own = ((z - model.cluster_centers_[model.labels_]) ** 2).sum()
    assert model.inertia_ == pytest.approx(own, rel=1e-5)
    assert model.clustering_loss_ == pytest.approx(-model.score(X[100:]), rel=1e-6)


@pytest.mark.parametrize("name", OFFLINE)
def test_the_others_say_that_they_do_not(name):
    model = getattr(diffclust, name)(3)
    assert not hasattr(model, "partial_fit")
    with pytest.raises(AttributeError, match=rf"{name} does not learn online: \w+"):
        _ = model.partial_fit


def test_settings_that_cannot_learn_online():
    assert not hasattr(KMeansNet(3, decoupled=True), "partial_fit")
    assert not hasattr(DeepKMeans(3, distance=lambda z, c: torch.cdist(z, c, p=1)), "partial_fit")
    assert hasattr(DeepKMeans(3, distance="cosine"), "partial_fit")
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = TELL(3).nonsense


def test_diagnostics_of_each_cluster(online, blobs):
    X, _ = blobs
    model = online(network="identity", epochs=4).fit(X[:100] - X.mean(0))
    origin, sizes = model.cluster_centers_.copy(), model.diagnostics_["sizes"]
    assert "stream" not in model.diagnostics_
    one = model.predict(X[100:] - X.mean(0)) == 0
    batch = (X[100:] - X.mean(0))[one]
    model.partial_fit(batch).partial_fit(batch)
    stream = model.diagnostics_["stream"]
    assert (stream["rows"], stream["batches"]) == (2 * one.sum(), 2)
    assert stream["counts"] == [sizes[0] + 2 * one.sum(), sizes[1], sizes[2]] == model.diagnostics_["sizes"]
    assert np.allclose(stream["drift"], np.linalg.norm(model.cluster_centers_ - origin, axis=1), atol=1e-6)
    assert stream["last_seen"][0] >= stream["last_seen"][1]
    assert stream["rows_since"] == [0, 2 * one.sum(), 2 * one.sum()]
    assert "stream" not in model.fit(X).diagnostics_


@two_online
def test_rows_are_kept_until_there_are_enough_distinct_ones(online, blobs):
    X, _ = blobs
    X = (X - X.mean(0)).astype(np.float32)
    model = online(3, network="identity", epochs=2)
    for batch in (X[:1], X[[0, 0, 0]], X[[0, 1, 1]]):
        model.partial_fit(batch)
        with pytest.raises(NotFittedError):
            model.predict(X)
    assert len(model._waiting.rows) == 2
    model.partial_fit(X[1:20])
    assert len(model.predict(X)) == 150
    assert sum(model.diagnostics_["sizes"]) == 2 + 19
    assert not hasattr(model, "_waiting")


@pytest.mark.parametrize("kept", [0, 2])
def test_the_start_answers_for_its_own_batch(online, blobs, kept, tmp_path):
    X = (blobs[0] - blobs[0].mean(0)).astype(np.float32)
    model = online(3, network="identity", epochs=2)
    if kept:
        model.partial_fit(X[:kept])
    batch = X[[9, 9, 30, 4, 70, 2, 2, 55]]
    model.partial_fit(batch)
    assert (model.labels_ == model.predict(batch)).all()
    assert len(np.unique(model.labels_)) > 1
    own = ((model.transform(batch).astype(float) - model.cluster_centers_[model.labels_]) ** 2).sum()
    assert model.inertia_ == pytest.approx(own, rel=1e-5)
    assert model.clustering_loss_ == pytest.approx(-model.score(batch), rel=1e-6)
    stream = model.diagnostics_["stream"]
    assert (stream["rows"], stream["batches"], sum(stream["counts"])) == (0, 0, kept + len(batch))
    assert stream["counts"] == model.diagnostics_["sizes"]
    assert stream["drift"] == stream["rows_since"] == [0, 0, 0]
    model.save(tmp_path / "m")
    again = diffclust.load(tmp_path / "m").partial_fit(X[100:110])
    assert len(again.labels_) == 10
    assert (again.labels_ == model.partial_fit(X[100:110]).labels_).all()
    assert again.diagnostics_["stream"]["batches"] == model.diagnostics_["stream"]["batches"] == 1


@two_online
@pytest.mark.parametrize("waiting", [True, False])
def test_bad_batches_change_nothing(online, blobs, waiting):
    X, _ = blobs
    model = online(5, epochs=2)
    model.partial_fit(X[[0, 1]] if waiting else X)
    if not waiting:
        model.partial_fit(X[:50])
        before = state(model)
    nan, huge = X[:9].copy(), np.full((2, 6), 1e300)
    nan[3, 2] = np.nan
    bad = {
        "NaN": nan,
        "(?i)nan": torch.from_numpy(nan),
        "0 sample": X[:0],
        r"\(0, 6\)": torch.zeros(0, 6),
        "5 features": X[:9, :5],
        "5 features, but": sp.csr_matrix(X[:9, :5]),
        "too large": huge,
        "row 3": TensorDataset(torch.from_numpy(nan)),
        "minimum of 1": TensorDataset(torch.zeros(0, 6)),
    }
    for message, batch in bad.items():
        with pytest.raises(ValueError, match=message):
            model.partial_fit(batch)
    with pytest.raises(TypeError):
        model.partial_fit(torch.zeros(3, 6).to_sparse())
    if waiting:
        assert len(model._waiting.rows) == 2
    else:
        assert same(before, state(model))
    model.partial_fit(X)


@two_online
def test_the_same_rows_in_any_form(online, blobs, tmp_path):
    X = (blobs[0] - blobs[0].mean(0)).astype(np.float32)
    np.save(tmp_path / "x.npy", X[80:])

    forms = [
        X[80:],
        X[80:].astype(np.float64),
        np.asfortranarray(X[80:]),
        X[80:].tolist(),
        torch.from_numpy(X[80:]),
        sp.csr_matrix(X[80:]),
        np.load(tmp_path / "x.npy", mmap_mode="r"),
        TensorDataset(torch.from_numpy(X[80:]), torch.arange(70)),
        DataLoader(TensorDataset(torch.from_numpy(X[80:]), torch.arange(70)), batch_size=70),
        Stream(torch.from_numpy(X[80:])),
    ]
    centers = []
    for form in forms:
        model = online(network="identity", epochs=2).partial_fit(X[:80]).partial_fit(form)
        centers.append(model.cluster_centers_)
        assert model.labels_.shape == (70,)
    assert all((other == centers[0]).all() for other in centers)


@two_online
def test_a_loader_is_a_stream(online, blobs):
    X = torch.from_numpy((blobs[0] - blobs[0].mean(0)).astype(np.float32))
    whole = online(network="identity", epochs=2).partial_fit(DataLoader(TensorDataset(X), batch_size=50))
    single = online(network="identity", epochs=2)
    for batch in X.split(50):
        single.partial_fit(batch)
    assert (whole.cluster_centers_ == single.cluster_centers_).all()
    assert whole.diagnostics_["stream"]["batches"] == 2  # the first was the fit


@two_online
def test_columns_keep_their_names(online, blobs):
    table = pd.DataFrame(blobs[0]).add_prefix("c")
    model = online(4, epochs=2).partial_fit(table[:2]).partial_fit(table[2:80]).partial_fit(table[80:])
    assert list(model.feature_names_in_) == list(table.columns)
    with pytest.raises(ValueError, match="feature names"):
        model.partial_fit(table.rename(columns={"c0": "other"}))


def test_a_saved_stream_goes_on(online, blobs, tmp_path):
    X = blobs[0] - blobs[0].mean(0)
    model = online(network="identity", epochs=2).fit(X[:50]).partial_fit(X[50:90])
    model.save(tmp_path / "m")
    for again in (diffclust.load(tmp_path / "m", device="cpu"), pickle.loads(pickle.dumps(model))):
        assert (again.labels_ == model.labels_).all()
        again.partial_fit(X[90:])
        other = copy.deepcopy(model).partial_fit(X[90:])
        assert np.allclose(again.cluster_centers_, other.cluster_centers_)
        ours, theirs = again.diagnostics_["stream"], other.diagnostics_["stream"]
        assert {k: v for k, v in ours.items() if k != "last_seen"} == {
            k: v for k, v in theirs.items() if k != "last_seen"
        }


def test_single_rows_do_not_carry_the_centres_away(online, digits):
    images, _ = digits
    model = online(4, pretrain_epochs=10, epochs=4).fit(images)
    before = model.predict(images)
    state = torch.get_rng_state()
    for i in range(60):
        model.partial_fit(images[i : i + 1])
    assert (model.predict(images) == before).mean() > 0.9
    assert (torch.get_rng_state() == state).all()
    assert not model.diagnostics_["collapsed"]


@two_online
def test_integer_images_keep_their_scale(online, digits):
    images = (digits[0] * 255).astype(np.uint8)
    model = online(4, network="identity", epochs=2).partial_fit(images[:2]).partial_fit(images[2:])
    assert model.image_divisor_ == 255
    assert np.abs(model.cluster_centers_).max() <= 3  # of values in [0, 1], or of directions


# ---- the rules


def by_hand_one_by_one(model, X, counts):
    """Running means, a row at a time, members as they were before the batch."""
    centers, counts = model.cluster_centers_.astype(float).copy(), counts.astype(float).copy()
    for row, j in zip(X.astype(float), model.predict(X), strict=True):
        counts[j] += 1
        centers[j] += (row - centers[j]) / counts[j]
    return centers


@pytest.mark.parametrize("method", [AEKMeans, DeepKMeans, DCN])
def test_running_means(method, blobs):
    X = blobs[0].astype(np.float32)
    model = method(3, network="identity", epochs=2, random_state=0, device="cpu").fit(X[:60])
    counts = model.model_.counts[:, 0].numpy().copy() if method is DCN else np.array(model.diagnostics_["sizes"])
    expected = by_hand_one_by_one(model, X[60:100] + 1, counts)
    model.partial_fit(X[60:100] + 1)
    assert np.allclose(model.cluster_centers_, expected, atol=1e-4)
    expected = by_hand_one_by_one(model, X[100:] + 2, counts + np.bincount(model.labels_, minlength=3))
    model.partial_fit(X[100:] + 2)
    assert np.allclose(model.cluster_centers_, expected, atol=1e-4)


def test_tell_takes_the_constant_step(blobs):
    X = (blobs[0] - blobs[0].mean(0)).astype(np.float32)
    model = TELL(3, network="identity", epochs=2, random_state=0, device="cpu").fit(X[:100])
    before, labels = model.cluster_centers_.copy(), model.predict(X[100:])
    model.partial_fit(X[100:])
    for j in range(3):
        assert np.allclose(model.cluster_centers_[j], 0.9 * before[j] + 0.1 * X[100:][labels == j].mean(0), atol=1e-5)


def test_kmeansnet_moves_by_the_soft_assignment(blobs):
    X = (blobs[0] - blobs[0].mean(0)).astype(np.float32)
    model = KMeansNet(3, network="identity", epochs=2, alpha=2.0, random_state=0, device="cpu").fit(X[:100])
    centers, z = torch.from_numpy(model.cluster_centers_), torch.from_numpy(model.transform(X[100:]))
    member = torch.softmax(-2.0 * torch.cdist(z, centers).square(), 1)
    expected = F.normalize(centers + 0.1 * F.normalize(member.T @ z, dim=1), dim=1)
    assert np.allclose(model.partial_fit(X[100:]).cluster_centers_, expected, atol=1e-5)


def test_a_cluster_that_had_no_rows_takes_its_first_as_it_is():
    layer = diffclust.nn.ClusterLayer(2, 2, alpha=0.5)
    layer.set_centers(torch.tensor([[0.0, 0.0], [5.0, 5.0]]))
    layer.average_(torch.tensor([[0.0, 0.0], [7.0, 8.0]]), torch.tensor([0.0, 1.0]), torch.tensor([0.0, 0.0]))
    assert layer.centers.tolist() == [[0.0, 0.0], [7.0, 8.0]]


def test_centres_follow_a_drifting_stream():
    rng = np.random.default_rng(0)
    centers = np.array([[0.0, 0], [20, 0], [0, 20]])
    model = TELL(3, network="identity", random_state=0, device="cpu")
    for t in range(80):
        labels = rng.integers(3, size=100)
        X = centers[labels] + rng.normal(size=(100, 2)) + 0.5 * t
        model.partial_fit(X)
        if t == 0:
            first = model.predict(X)
            numbers = [np.bincount(first[labels == j]).argmax() for j in range(3)]
    assert [np.bincount(model.predict(X)[labels == j]).argmax() for j in range(3)] == numbers
    assert metrics.accuracy(labels, model.predict(X)) > 0.95
    assert min(model.diagnostics_["stream"]["drift"]) > 40


# ---- the network learns too


def test_the_network_learns_where_wished(online, digits):
    images, _ = digits
    model = online(4).fit(images[:50])
    if not learns_network_online(model):
        with pytest.raises(ValueError, match=rf"learn_network=True: .*{type(model).__name__}"):
            model.partial_fit(images[50:], learn_network=True)
        return
    network = {n: v.clone() for n, v in model.model_.autoencoder.state_dict().items()}
    model.partial_fit(images[50:])
    assert all(torch.equal(v, network[n]) for n, v in model.model_.autoencoder.state_dict().items())
    labels = model.predict(images)

    def error():
        back = model.inverse_transform(model.transform(images))
        return float(((back - images) ** 2).mean())

    before = error()
    generator = torch.get_rng_state()
    for _ in range(12):
        model.partial_fit(images[50:], learn_network=True)
    assert error() < before
    assert (torch.get_rng_state() == generator).all()
    assert not model.model_.training
    assert adjusted_rand_score(labels, model.predict(images)) > 0.2
    assert (model.predict(images[50:]) == model.labels_).all()


@pytest.mark.parametrize("epochs", [3, 4])
def test_the_encoder_learns_whoever_had_the_last_turn(online, blobs, epochs):
    """A method in which network and centres take turns may have ended with either."""
    model = online(3, epochs=epochs, features="reconstruction").fit(blobs[0][:60])
    if not learns_network_online(model):
        pytest.skip("its network does not learn online")
    before = [weight.detach().clone() for weight in model.model_.autoencoder.encoder.parameters()]
    centers = model.model_.clusters.weight.detach().clone()
    model.partial_fit(blobs[0][60:90], learn_network=True)
    after = list(model.model_.autoencoder.encoder.parameters())
    assert not any(torch.equal(one, other) for one, other in zip(before, after, strict=True)), "see freeze_centers"
    assert model.model_.clusters.weight.shape == centers.shape


@pytest.fixture(scope="module")
def overlapping():
    """Rows of three clusters that overlap, so that soft assignments have gradients."""
    return make_blobs(120, 6, centers=3, cluster_std=4.0, center_box=(-4, 4), random_state=SEED)[0].astype(np.float32)


def learnt_differently(model, X, folder):
    """Names of the weights in which a fitted model and its saved copy differ after they learnt from the same batch."""
    model.save(folder)
    again = diffclust.load(folder, device="cpu")
    before = {name: value.clone() for name, value in model.model_.state_dict().items()}
    for each in (model, again):
        each.partial_fit(X, learn_network=True)
    state, other = model.model_.state_dict(), again.model_.state_dict()
    moved = max((state[name] - before[name]).abs().max() for name in state if "encoder" in name)
    assert moved > 0
    return {name for name, value in other.items() if not value.allclose(state[name], rtol=0, atol=1e-3 * float(moved))}


SAME = "a schedule of the last epoch lives on in the fitted model: set it in `freeze_centers`, or keep it in a buffer."


@pytest.mark.parametrize("epochs", [3, 4])
def test_a_saved_copy_learns_as_the_fitted_model_does(online, overlapping, epochs, tmp_path):
    """Whoever had the last turn: what is not saved must not matter."""
    model = online(3, epochs=epochs, features="reconstruction").fit(overlapping[:90])
    if not learns_network_online(model):
        pytest.skip("its network does not learn online")
    assert not learnt_differently(model, overlapping[60:], tmp_path / "m"), SAME


class TurningModel(DeepKMeansModel):
    """The network and the centres learn in even epochs only from the reconstruction, and from both in odd ones."""

    turn = True

    def before_epoch(self, epoch, data):
        super().before_epoch(epoch, data)
        self.turn = self.graph_key = epoch % 2 == 1

    def loss(self, batch):
        losses = super().loss(batch)
        return losses if self.turn else {**losses, "clustering": losses["clustering"].detach()}


class Unfrozen(DeepKMeans):
    kind = TurningModel

    def build_model(self, autoencoder, n_samples):
        return self.kind(autoencoder, self.build_clusters(autoencoder), self)


class FrozenModel(TurningModel):
    def freeze_centers(self):
        super().freeze_centers()
        self.turn = True


class Frozen(Unfrozen):
    kind = FrozenModel


class AnnealedModel(FrozenModel):
    """Anneals a plain number, which is not saved."""

    sharpness = 1.0

    def before_epoch(self, epoch, data):
        super().before_epoch(epoch, data)
        self.sharpness = self.graph_key = 0.5**epoch

    def loss(self, batch):
        losses = super().loss(batch)
        return {**losses, "clustering": self.sharpness * losses["clustering"]}


class Annealed(Unfrozen):
    kind = AnnealedModel


@pytest.mark.parametrize(("trap", "found"), [(Unfrozen, True), (Annealed, True), (Frozen, False)])
def test_a_schedule_that_lives_on_would_show(trap, found, overlapping, tmp_path, monkeypatch):
    entry = Method(trap.__name__, trap.__name__, __name__, "", "")
    monkeypatch.setattr(Method, "load", lambda method: globals()[method.estimator])
    monkeypatch.setattr("diffclust.saving.load.METHODS", (entry,))
    model = trap(3, features="reconstruction", **{**quick_settings("DeepKMeans"), "epochs": 3}).fit(overlapping[:90])
    assert bool(learnt_differently(model, overlapping[60:], tmp_path / "m")) == found


def test_a_network_that_cannot_learn_from_a_batch(blobs, digits):
    with pytest.raises(ValueError, match="nothing to learn"):
        TELL(3, network="identity", epochs=1, device="cpu").fit(blobs[0]).partial_fit(blobs[0], learn_network=True)
    model = TELL(4, **quick_settings("TELL")).fit(digits[0])
    before = state(model)
    with pytest.raises(ValueError, match="at least 2 rows"):
        model.partial_fit(digits[0][:1], learn_network=True)
    with pytest.raises(ValueError, match="not finite"):
        model.partial_fit(digits[0][:9] * 1e30, learn_network=True)
    assert same(before, state(model))


def test_threads_may_ask_while_the_network_learns(digits):
    """Answers come from a model that is never in training, and training is what it is alone."""
    images = digits[0][:90]

    def start():
        return TELL(3, network="dense", dropout=0.2, pretrain_epochs=1, epochs=1, random_state=0, device="cpu").fit(
            images
        )

    alone, asked = start(), start()
    modes, stop = [], threading.Event()
    layer = next(m for m in asked.model_.modules() if isinstance(m, torch.nn.Linear))
    layer.register_forward_pre_hook(lambda *_: modes.append(asked.model_.training))

    def ask():
        while not stop.is_set():
            asked.predict_proba(images[:5])

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for model in (asked, alone):
            for first in range(0, 90, 30):
                model.partial_fit(images[first : first + 30], learn_network=True)
    finally:
        stop.set()
        thread.join()
    assert modes
    assert not any(modes)
    assert (asked.transform(images) == alone.transform(images)).all()


PLAIN = {"network": "identity", "sphere": False, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def fitted_whole():
    """A thousand rows, and a model of them all."""
    rng = np.random.default_rng(0)
    X = (4 * rng.normal(size=(4, 3))[rng.integers(4, size=1_200)] + rng.normal(size=(1_200, 3))).astype(np.float32)
    return X, TELL(4, **PLAIN).fit(X)


@pytest.mark.parametrize("size", [1, 64])
def test_a_stream_of_small_batches_knows_how_certain_it_is(fitted_whole, size, tmp_path):
    """The few rows it begins with sit on their centres; a thousand do not."""
    X, whole = fitted_whole
    model = TELL(4, **PLAIN)
    for first in range(0, 210, size):
        model.partial_fit(X[first : first + size])
    early = model.temperature_
    model.save(tmp_path / "model")
    assert diffclust.load(tmp_path / "model").temperature_ == early
    for first in range(210, len(X), 30):
        model.partial_fit(X[first : first + 30])
    assert model._stream.first is None
    for temperature in (early, model.temperature_):
        assert whole.temperature_ / 3 < temperature < 3 * whole.temperature_
