"""What is particular to AE + k-means, and what the family shares: a network trained layer by layer, or before."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import adjusted_rand_score
from typer.testing import CliRunner

import diffclust
from diffclust import DCN, DEC, AEKMeans, CrossMetric, DeepKMeans, VaDE
from diffclust.cli import app
from diffclust.engine.data import Batch, Data
from diffclust.engine.pretraining import LayerPretraining
from diffclust.engine.rows import SparseRows
from diffclust.nn import DenseAutoencoder, Identity, PoolingAutoencoder

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
QUICK = {"pretrain_epochs": 3, "epochs": 4, "random_state": 0, "device": "cpu"}


def test_it_is_k_means_on_the_embedding(digits):
    model = AEKMeans(4, **QUICK).fit(digits[0])
    z = model.transform(digits[0]).astype(float)
    polished = KMeans(4, init=model.cluster_centers_.astype(float), n_init=1).fit(z)
    assert model.inertia_ == pytest.approx(polished.inertia_, rel=1e-4)
    best = KMeans(4, n_init=20, random_state=0).fit(z)
    assert model.inertia_ == pytest.approx(best.inertia_, rel=1e-2)
    assert (model.clustering_loss_ * 80) == pytest.approx(model.inertia_, rel=1e-6)


def test_an_epoch_is_a_pass_of_lloyd(blobs):
    X = blobs[0]
    start = X[:3]
    model = AEKMeans(3, network="identity", init=start, epochs=1, random_state=0).fit(X)
    labels = ((X[:, None] - start) ** 2).sum(2).argmin(1)
    means = np.stack([X[labels == j].mean(0) for j in range(3)])
    assert np.allclose(model.cluster_centers_, means, atol=1e-4)


def test_the_network_rests_while_k_means_runs(digits):
    first, second = (AEKMeans(4, **{**QUICK, "epochs": n}).fit(digits[0]) for n in (0, 6))
    assert (first.transform(digits[0]) == second.transform(digits[0])).all()


# ---- the family


def test_layers_are_trained_one_by_one_from_the_outside(digits):
    settings = {**QUICK, "network": "dense", "layer_epochs": 2}
    model = AEKMeans(4, **settings).fit(digits[0])
    phases = [record["phase"] for record in model.history_]
    layers = [f"layer {i}" for i in (1, 1, 2, 2, 3, 3, 4, 4)]
    assert phases == layers + ["pretraining"] * 3 + ["clustering"] * 4


def test_a_layers_loss_by_hand():
    """The second layer rebuilds what the first one gives, without noise here; its own weights alone move."""
    network = DenseAutoencoder((6,), 3, hidden=(8, 5))
    model = DCN(2).build_model(network, 50)
    x = torch.randn(20, 6)
    stage = LayerPretraining(model, depth=1, noise=0.0)
    first, second = network.encoder[1], network.encoder[3]
    back = network.decoder[2]
    h = torch.relu(first(x))
    expected = (torch.relu(back(torch.relu(second(h)))) - h).square().mean()
    loss = stage.loss(Batch(x, x, torch.arange(20)))["reconstruction"]
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    loss.backward()
    assert first.weight.grad is None
    assert second.weight.grad.abs().sum() > 0
    assert {id(p) for p in stage.parameters()} == {id(p) for layer in (second, back) for p in layer.parameters()}


@pytest.mark.parametrize(("depth", "activations"), [(0, ("relu", "output")), (2, ("linear", "relu"))])
def test_the_outer_and_the_inner_layer(depth, activations):
    network = DenseAutoencoder((6,), 3, hidden=(8, 5), output="sigmoid")
    model = DCN(2).build_model(network, 50)
    x = torch.rand(20, 6)
    loss = LayerPretraining(model, depth, noise=0.0).loss(Batch(x, x, torch.arange(20)))["reconstruction"]
    encoders, decoders = network.encoder[1::2], network.decoder[::2]
    h = x
    for layer in encoders[:depth]:
        h = torch.relu(layer(h))
    code = encoders[depth](h)
    code = torch.relu(code) if activations[0] == "relu" else code
    back = decoders[2 - depth](code)
    back = torch.sigmoid(back) if activations[1] == "output" else torch.relu(back)
    assert float(loss.detach()) == pytest.approx(float((back - h).square().mean().detach()), rel=1e-5)


def test_layer_wise_training_lowers_every_layers_loss(digits):
    model = AEKMeans(4, **{**QUICK, "network": "dense", "layer_epochs": 8, "augment": None}).fit(digits[0])
    for i in range(1, 5):
        losses = [record["reconstruction"] for record in model.history_ if record["phase"] == f"layer {i}"]
        assert losses[-1] < losses[0]


@pytest.mark.parametrize("moment", [("layer 1", 1), ("layer 3", 0), ("pretraining", 1), ("clustering", 2)])
def test_layer_wise_training_survives_a_kill(digits, tmp_path, moment):
    class Killed(Exception):
        pass

    settings = {**QUICK, "network": "dense", "layer_epochs": 2}
    X = digits[0][:64]
    whole = DCN(4, **settings).fit(X)
    state = {"armed": True}

    def kill(progress):
        if state["armed"] and (progress.phase, progress.epoch) == moment:
            state["armed"] = False
            raise Killed

    model = DCN(4, **settings, checkpoint=tmp_path, checkpoint_every=1, callbacks=[kill])
    with pytest.raises(Killed):
        model.fit(X)
    model.fit(X)
    assert model.history_ == whole.history_
    assert (model.labels_ == whole.labels_).all()


def test_only_the_dense_network_has_layers(digits, blobs):
    with pytest.raises(ValueError, match="only the dense network"):
        AEKMeans(4, **QUICK, layer_epochs=2).fit(digits[0])  # images: convolutional
    with pytest.raises(TypeError, match="layer_epochs"):
        AEKMeans(3, layer_epochs=1.5).fit(blobs[0])
    with pytest.raises(ValueError, match="layer_epochs"):
        AEKMeans(3, layer_epochs=-1).fit(blobs[0])


def test_no_pretraining(blobs):
    model = DCN(3, **{**QUICK, "pretrain_epochs": 0}).fit(blobs[0])
    assert {record["phase"] for record in model.history_} == {"clustering"}


def test_raw_values(blobs):
    X = blobs[0] * 3 + 5
    raw = DCN(3, **QUICK, rescale=False).fit(X).model_.autoencoder
    assert (float(raw.shift), float(raw.scale), raw.output) == (0, 1, "linear")
    scaled = DCN(3, **QUICK).fit(X).model_.autoencoder
    assert np.allclose(scaled.shift, X.mean(0), atol=1e-4)


def test_one_trained_network_can_serve_several_methods(digits, tmp_path):
    """The fair comparison of Deep k-Means: one autoencoder, one start, one order of batches."""
    first = AEKMeans(4, **QUICK).fit(digits[0])
    trained = first.model_.autoencoder
    before = trained.encoder[0].weight.clone()
    shared = {"network": trained, "init": first.cluster_centers_, "pretrain_epochs": 0, "random_state": 5}
    start = DCN(4, **shared, epochs=0).fit(digits[0])
    assert np.allclose(start.transform(digits[0]), first.transform(digits[0]), atol=1e-6)
    assert (start.labels_ == first.labels_).all()
    orders = []
    for cls in (DCN, DeepKMeans):
        seen = []

        class Watched(torch.utils.data.Dataset):
            def __len__(self):
                return 80

            def __getitem__(self, i):
                seen.append(i)  # noqa: B023
                return torch.from_numpy(digits[0])[i, None]

        cls(4, **shared, epochs=1, augment=None).fit(Watched())
        start = next(i for i in range(1, len(seen)) if seen[i] != (i - 1) % 80)  # looks at all rows come before it
        orders.append(seen[start : start + 128])  # two batches
    assert orders[0] == orders[1]
    model = DCN(4, **shared, epochs=2).fit(digits[0])
    assert (trained.encoder[0].weight == before).all()  # trained on a copy
    model.save(tmp_path / "m")
    assert (diffclust.load(tmp_path / "m").predict(digits[0]) == model.labels_).all()  # no module is asked for
    with pytest.raises(ValueError, match=r"\(1, 8, 8\).*\(6,\)"):
        DCN(3, network=trained).fit(np.zeros((20, 6)) + np.arange(20)[:, None])


@pytest.mark.full_size
@pytest.mark.parametrize(
    ("network", "fans"),
    [
        (lambda: DenseAutoencoder((300,), 10, glorot=True).encoder[3], 500 + 500),
        (lambda: PoolingAutoencoder((1, 8, 8), 10, glorot=True).encoder[3], 25 * (64 + 32)),  # a convolution
        (lambda: PoolingAutoencoder((1, 8, 8), 10, glorot=True).decoder[2], 1024 + 128),
    ],
)
def test_glorot(network, fans):
    torch.manual_seed(0)
    layer, bound = network(), (6 / fans) ** 0.5
    assert 0.99 * bound < float(layer.weight.detach().abs().max()) <= bound
    assert (layer.bias == 0).all()


@pytest.mark.parametrize("method", [AEKMeans, DEC, CrossMetric, VaDE])
def test_the_family_draws_so(method, digits):
    model = method(4, network="conv-pool", pretrain_epochs=0, epochs=0, device="cpu").fit(digits[0])
    assert model.model_.autoencoder.config["glorot"]
    assert (model.model_.autoencoder.encoder[0].bias == 0).all()


# ---- texts


WORDS = {"space": "orbit rocket moon shuttle launch", "sport": "goal team puck season coach", "food": "salt oven flour"}


@pytest.fixture(scope="module")
def texts():
    """Three kinds of short texts, and which is which."""
    rng = np.random.default_rng(0)
    names = list(WORDS)
    y = rng.integers(0, 3, 150)
    return ["the and " + " ".join(rng.choice(WORDS[names[i]].split(), 25)) for i in y], y


@pytest.mark.parametrize("cls", [DeepKMeans, AEKMeans, DCN, diffclust.DEC, diffclust.IDEC, diffclust.VaDE])
def test_sparse_texts_are_clustered_without_being_made_dense(texts, cls, monkeypatch):
    X = TfidfVectorizer().fit_transform(texts[0])
    biggest = []
    take = SparseRows.take

    def watched(self, index):
        biggest.append(len(index))
        return take(self, index)

    monkeypatch.setattr(SparseRows, "take", watched)
    monkeypatch.setattr("diffclust.engine.data.CHUNK", 50)
    monkeypatch.setattr("diffclust.engine.rows.MOMENTS_CHUNK", 50)
    model = cls(3, pretrain_epochs=25, epochs=8, batch_size=32, rescale=False, random_state=0).fit(X)
    assert adjusted_rand_score(texts[1], model.labels_) > 0.9
    assert (model.predict(X) == model.labels_).all()
    assert max(biggest) <= 50


def test_wide_sparse_rows_without_a_network_stay_sparse(monkeypatch):
    """Lloyd's passes and DEC's targets go block by block."""
    X = sp.random(5000, 300, density=0.01, random_state=0, format="csr", dtype=np.float32)
    monkeypatch.setattr("diffclust.methods.ae_kmeans.ROWS_AT_ONCE", 500)
    widest = []
    monkeypatch.setattr(
        torch, "cat", lambda parts, *a, cat=torch.cat: (widest.append(sum(map(len, parts))), cat(parts, *a))[1]
    )
    start = X[:4].toarray()
    model = AEKMeans(4, network="identity", init=start, epochs=2, random_state=0)
    data = Data(SparseRows(X), torch.device("cpu"), 256)
    learner = model.build_model(Identity((300,)), 5000)
    learner.before_training(data)
    widest.clear()
    learner.after_epoch(0, data)
    assert max(widest) <= 500
    labels = ((X.toarray()[:, None] - start) ** 2).sum(2).argmin(1)
    means = np.stack([X.toarray()[labels == j].mean(0) for j in range(4)])
    assert np.allclose(learner.clusters.centers.detach(), means, atol=1e-5)


def test_a_file_of_texts_through_the_command(texts, tmp_path):
    for name in ("old", "new"):
        lines = [json.dumps({"text": text, "label": int(label)}) for text, label in zip(*texts, strict=True)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines[:: 1 if name == "old" else 3]))
    command = [
        "fit",
        str(tmp_path / "old.jsonl"),
        "-k",
        "3",
        "--method",
        "dkm",
        "--out",
        str(tmp_path / "m"),
        "--quiet",
    ]
    result = CliRunner().invoke(
        app, [*command, "--epochs", "5", "--set", "pretrain_epochs=60", "--set", "rescale=False"]
    )
    assert result.exit_code == 0, result.output
    answer = tmp_path / "labels.csv"
    result = CliRunner().invoke(
        app, ["predict", str(tmp_path / "m"), str(tmp_path / "new.jsonl"), "--out", str(answer)]
    )
    assert result.exit_code == 0, result.output
    labels = np.loadtxt(answer, delimiter=",", skiprows=1, dtype=int)[:, 1]
    assert adjusted_rand_score(texts[1][::3], labels) > 0.9


def test_rows_in_the_unit_interval_are_learnt_as_any_others():
    """Mostly zeros, none above one, as tf-idf rows are: a squashed output would learn to say zero everywhere."""
    rng = np.random.default_rng(0)
    kinds = np.arange(300) % 3
    X = np.zeros((300, 15))
    for row, kind in zip(X, kinds, strict=True):
        row[5 * kind + rng.choice(5, 3, replace=False)] = rng.random(3)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    model = AEKMeans(3, pretrain_epochs=30, epochs=10, random_state=0, device="cpu").fit(X)
    assert adjusted_rand_score(kinds, model.labels_) > 0.9
    back = model.inverse_transform(model.transform(X))
    assert ((X - back) ** 2).sum() < 0.5 * ((X - X.mean(0)) ** 2).sum()
