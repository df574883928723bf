"""What is particular to SSCNet: its codes, losses and turns, pseudo-labels, and answers for new rows of subspaces."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.exceptions import ConvergenceWarning

from conftest import train
from diffclust import SSCNet
from diffclust.baselines import BASELINES
from diffclust.engine.data import Batch, Data
from diffclust.engine.phase import Phase
from diffclust.engine.rows import TensorRows
from diffclust.methods.sscnet_codes import CALM_UPDATES, Codes, SparseCoding
from diffclust.methods.subspace_check import cut, lie_near_subspaces
from diffclust.metrics import accuracy
from diffclust.nn import DenseAutoencoder, Identity, RowDictionary
from diffclust.nn.autoencoders import RowAutoencoder, ScaledRows

CPU = torch.device("cpu")


def subspaces(seed=0, k=5, dim=4, ambient=16, n=30, noise=0.03):
    """Rows to fit on, and as many new ones of the same subspaces."""
    rng = np.random.default_rng(seed)
    bases = [np.linalg.qr(rng.normal(size=(ambient, dim)))[0] for _ in range(k)]
    x = np.stack([rng.normal(size=(2 * n, dim)) @ basis.T for basis in bases])
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    x += noise * rng.normal(size=x.shape)
    return x[:, :n].reshape(-1, ambient), x[:, n:].reshape(-1, ambient), np.repeat(np.arange(k), n)


def build(autoencoder, k=3, **settings):
    return SSCNet(k, **settings).build_model(autoencoder, 100)


def data_of(x, batch_size=128):
    return Data(TensorRows(x), CPU, batch_size)


def batch(x):
    return Batch(x, x, torch.arange(len(x)))


def test_subspaces_are_found_and_new_rows_of_them_known():
    X, new, y = subspaces()
    model = SSCNet(5, pretrain_epochs=60, epochs=10, random_state=0).fit(X)
    assert accuracy(y, model.labels_) > 0.97
    assert accuracy(y, model.predict(new)) > 0.97
    assert accuracy(y, BASELINES["kmeans"](X, 5, 0)) < 0.6
    names = {"reconstruction", "sparsity", "spectral", "clustering"}
    assert names <= model.history_[-1].keys()
    assert model.predict(new[7:8])[0] == model.predict(new)[7]


def test_a_row_is_never_written_by_itself():
    x = torch.randn(12, 5)
    model = build(RowDictionary((5,), 12))
    model.place_atoms(data_of(x))
    z = model.codes(x).z
    assert (z.diagonal() == 0).all()
    assert (z != 0).any()
    assert torch.allclose(model.codes(3 * x).z, z, atol=1e-6)
    assert torch.allclose(model.features(model.codes(-x).z), model.features(z), atol=1e-6)


def test_the_blocks_start_as_l_admm_and_learn_to_do_better():
    """After training, four blocks are nearer to the optimum of L1 than four iterations of the algorithm."""
    X, _, _ = subspaces()
    x = torch.from_numpy(X).float()
    model = build(RowDictionary((16,), 150), k=5)
    data = data_of(x)
    model.place_atoms(data)

    def objective():
        with torch.no_grad():
            return float(sum(model.coding_losses(model.codes(x)).values()))

    before = objective()
    first = SparseCoding(model)
    train([Phase("a", first, data, torch.optim.Adam([p for p in first.parameters() if p.requires_grad], 1e-3), 60)])
    assert objective() < 0.8 * before


def test_the_coding_loss_by_loops():
    model = build(DenseAutoencoder((6,), 4, hidden=(5,)), sparsity=0.3)
    x = torch.randn(7, 6)
    codes = Codes(*(v.detach() for v in model.codes(x)))
    z, t, fit, _ = codes
    losses = model.coding_losses(codes)
    sizes = [float(((t[i] - fit[i]) ** 2).mean() ** 0.5) for i in range(7)]
    q = [1 / (1 + size) for size in sizes]
    weighted = [size * (1 - qi / sum(q)) for size, qi in zip(sizes, q, strict=True)]
    spread = [float(z[i].abs().sum() / z[i].norm()) / 2 / 6**0.5 for i in range(7)]
    assert float(losses["reconstruction"]) == pytest.approx(np.mean(weighted), rel=1e-5)
    assert float(losses["sparsity"]) == pytest.approx(0.3 * np.mean(spread), rel=1e-4)
    alike = build(DenseAutoencoder((6,), 4, hidden=(5,)), sample_weights=False).coding_losses(codes)
    assert float(alike["reconstruction"]) == pytest.approx(np.mean(sizes), rel=1e-5)


def test_badly_written_rows_count_a_little_more():
    """w = 1 - q/Σq with q = 1/(1 + |E|), by hand: errors 1 and 3 give q = 1/2 and 1/4, w = 1/3 and 2/3."""
    model = build(RowDictionary((4,), 5))
    t = torch.tensor([[1.0, 0, 0, 0], [0, 3.0, 0, 0]])
    losses = model.coding_losses(Codes(torch.ones(2, 5), t, torch.zeros(2, 4), t))
    assert float(losses["reconstruction"]) == pytest.approx((1 / 3 + 3 * 2 / 3) / 2)


def test_steps_take_turns():
    x = torch.randn(40, 6)
    model = build(DenseAutoencoder((6,), 4, hidden=(8,)), n_neighbors=3)
    model.before_training(data_of(x, 40))
    on = []
    for _ in range(6):
        with torch.no_grad():
            losses = model.loss(batch(x))
        on.append([float(losses[name]) > 0 for name in ("reconstruction", "spectral", "clustering")])
        model.after_step(batch(x))
    assert on == [[True, False, False], [True, True, False], [True, True, True]] * 2


def test_without_a_network_every_step_trains_the_classifier():
    x = torch.randn(40, 6)
    model = build(Identity((6,)), n_neighbors=3)
    model.before_training(data_of(x, 40))
    with torch.no_grad():
        losses = model.loss(batch(x))
    assert set(losses) == {"clustering"}
    assert float(losses["clustering"]) > 0


def test_new_pseudo_labels_get_the_numbers_of_the_old():
    model = build(Identity((2,)), k=3)
    model.pseudo = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2])
    assert model.align(torch.tensor([2, 2, 2, 0, 0, 1, 1, 1, 1])).tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 2]


def test_labels_of_few_references_reach_all_rows():
    torch.manual_seed(0)
    centers = 8 * torch.eye(3, 6)
    x = centers.repeat(60, 1) + 0.3 * torch.randn(180, 6)
    model = build(Identity((6,)), reference_size=45, n_neighbors=4)
    data = data_of(x)
    model.before_training(data)
    assert len(model.reference) == 45
    assert accuracy(np.arange(180) % 3, model.pseudo.numpy()) == 1
    assert (data.map(model.assign).argmax(1) == model.pseudo).all()  # the classifier starts with them


def test_training_ends_when_the_pseudo_labels_rest():
    centers = 8 * torch.eye(3, 6)
    X = (centers.repeat(40, 1) + 0.3 * torch.randn(120, 6)).numpy()
    model = SSCNet(3, network="identity", epochs=50, random_state=0).fit(X)
    assert model.n_iter_ == 2 * CALM_UPDATES + 1  # with two steps an epoch, a look every other
    assert SSCNet(3, network="identity", epochs=4, random_state=0).fit(X).n_iter_ == 4


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("settings", [{"n_blocks": 0}, {"n_blocks": 3}, {"graph": "full"}, {"n_layers": 0}])
@pytest.mark.parametrize("network", ["auto", "conv-dictionary", "dictionary"])
def test_the_ablations_run_on_images(digits, network, settings):
    X = digits[0][:66]
    model = SSCNet(4, network=network, pretrain_epochs=1, epochs=2, random_state=0, **settings).fit(X)
    assert np.isfinite(model.transform(X)).all()
    assert model.inverse_transform(model.cluster_centers_).shape == (4, 8, 8)


def test_decoding_a_centre_gives_the_row_nearest_to_it():
    X, _, _ = subspaces()
    model = SSCNet(5, pretrain_epochs=60, epochs=2, random_state=0).fit(X)
    far = 10 * model.cluster_centers_  # no doubt left there
    decoded = model.inverse_transform(far)
    nearest = ((model.transform(X)[:, None] - model.cluster_centers_) ** 2).sum(2).argmin(0)
    for row, centre in zip(decoded, nearest, strict=True):
        shown = X[centre] - X.mean(0)
        cosine = row - X.mean(0)
        assert shown @ cosine / np.linalg.norm(shown) / np.linalg.norm(cosine) > 0.9


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_few_rows_are_enough():
    """Fewer than neighbours; fewer in a batch than clusters."""
    X = np.random.default_rng(0).normal(size=(6, 3))
    assert SSCNet(2, n_neighbors=10, pretrain_epochs=1, epochs=2, random_state=0).fit(X).labels_.shape == (6,)
    X = np.random.default_rng(0).normal(size=(40, 3))
    model = SSCNet(8, batch_size=4, pretrain_epochs=1, epochs=4, random_state=0).fit(X)
    assert np.isfinite(model.predict_proba(X)).all()


def test_a_disconnected_graph_is_an_ordinary_one():
    X = np.concatenate(
        [np.eye(4)[[j] * 20] * 5 + 0.01 * np.random.default_rng(j).normal(size=(20, 4)) for j in range(4)]
    )
    for k in (2, 4):
        model = SSCNet(k, n_neighbors=3, pretrain_epochs=5, epochs=5, random_state=0).fit(X)
        assert np.isfinite(model.predict_proba(X)).all()
        assert len(set(model.labels_)) == k


def test_equal_rows_are_reported():
    with pytest.warns(ConvergenceWarning, match="Collapse"):
        model = SSCNet(2, pretrain_epochs=2, epochs=2, random_state=0).fit(np.full((30, 4), 2.0))
    assert np.isfinite(model.transform(np.full((1, 4), 2.0))).all()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("n_blocks", -1), ("n_blocks", "many"), ("n_neighbors", 0), ("n_atoms", 0), ("graph", "ring"),
        ("sparsity", -1.0), ("spectral_weight", -1.0), ("reference_size", 1), ("tolerance", 2.0), ("n_layers", -1),
    ],
)  # fmt: skip
def test_bad_settings_are_named(setting, value):
    with pytest.raises((TypeError, ValueError), match=setting):
        SSCNet(2, **{setting: value}).fit(np.ones((20, 3)))


def test_rows_near_planes_are_told_from_balls():
    X, _, y = subspaces()
    assert lie_near_subspaces(TensorRows(torch.from_numpy(X).float()), 5)
    rng = np.random.default_rng(0)
    balls = 4 * np.eye(5, 16)[y] + rng.normal(size=(150, 16))
    assert not lie_near_subspaces(TensorRows(torch.from_numpy(balls).float()), 5)
    assert not lie_near_subspaces(TensorRows(torch.ones(30, 4)), 2)  # one row, thirty times


def test_the_cut_of_a_graph_by_hand():
    """Two pairs with weight 3 inside and one edge of 1 between them: 1 of 7 leaves each."""
    W = np.zeros((4, 4))
    W[0, 1] = W[1, 0] = W[2, 3] = W[3, 2] = 3
    W[1, 2] = W[2, 1] = 1
    assert cut(sp.csr_array(W), 2) == pytest.approx(1 / 7)


def test_rows_in_balls_are_known_by_their_neighbours_and_may_be_told_otherwise():
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    X = 4 * np.eye(3, 8)[y] + 0.5 * rng.normal(size=(120, 8))
    model = SSCNet(3, random_state=0).fit(X)
    assert isinstance(model.model_.autoencoder, ScaledRows)  # by neighbours, or k-means on them
    assert accuracy(y, model.labels_) == 1
    told = SSCNet(3, network="dictionary", pretrain_epochs=1, epochs=1, random_state=0).fit(X)
    assert isinstance(told.model_.autoencoder, RowDictionary)
    planes, _, _ = subspaces()
    by_neighbours = SSCNet(5, features="neighbours", pretrain_epochs=1, epochs=1, random_state=0).fit(planes)
    assert isinstance(by_neighbours.model_.autoencoder, RowAutoencoder)


def test_two_changes_of_an_image_get_like_codes():
    images = np.random.default_rng(0).random((40, 8, 8)).astype(np.float32)
    settings = {"pretrain_epochs": 1, "epochs": 2, "batch_size": 20, "random_state": 0, "reference_size": 20}
    model = SSCNet(3, views=1.0, augment="photos", **settings).fit(images)
    assert all(record["views"] > 0 for record in model.history_)
    assert model.model_.change is None  # what is fitted holds no function
    assert "views" not in SSCNet(3, augment="photos", **settings).fit(images).history_[-1]
    with pytest.raises(ValueError, match="views=1 needs random augmentation"):
        SSCNet(3, views=1.0, augment=None, **settings).fit(images)
