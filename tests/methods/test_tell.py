"""What is particular to TELL: the scale of its loss, its turns, its centre updates, its online rule."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from conftest import train
from diffclust import TELL
from diffclust.engine.data import Batch, Data
from diffclust.engine.phase import Phase
from diffclust.engine.rows import TensorRows
from diffclust.methods.tell import ALPHA, LAMBDA
from diffclust.nn import DenseAutoencoder, Identity, lloyd

CPU = torch.device("cpu")


def build(autoencoder=None, k=4, **settings):
    autoencoder = autoencoder or DenseAutoencoder((6,), 3, hidden=(8,))
    return TELL(k, **settings).build_model(autoencoder, 100)


def batch(x):
    return Batch(x, x, torch.arange(len(x)))


@pytest.fixture
def x():
    return torch.randn(40, 6)


@torch.no_grad()
def test_the_loss_is_the_released_codes(x):
    """(1/BD) Σ (x - x̂)² + (0.01/α) (1/BK) Σ_ij (2α - [j = a(i)] W_j·h_i), |W_j| = 2α, by loops."""
    model = build(weight=LAMBDA, center_update="optimizer").eval()
    h = F.normalize(model.autoencoder.encode(x), dim=1)
    W = model.clusters.weight
    assert torch.allclose(W.norm(dim=1), torch.full((4,), 2 * ALPHA))
    terms = 0.0
    for i in range(40):
        scores = [float(W[j] @ h[i]) for j in range(4)]
        for j in range(4):
            terms += 2 * ALPHA - (scores[j] if j == int(np.argmax(scores)) else 0.0)
    losses = model.loss(batch(x))
    assert float(losses["clustering"]) == pytest.approx(0.01 / ALPHA * terms / 160, rel=1e-5)
    assert float(losses["reconstruction"]) == pytest.approx(float((model.autoencoder.decode(h) - x).square().mean()))
    assert float(model.clustering_loss(h).mean()) == pytest.approx(float(losses["clustering"]), rel=1e-5)


def test_the_papers_loss_column_is_read_back():
    """L_clu 0.018139 on MNIST is a mean cosine of 0.9306 (K = 10)."""
    model = build(Identity((2,)), k=10, sphere=True)
    model.clusters.set_centers(torch.tensor([[1.0, 0.0]] + [[-1.0, 0.0]] * 9))
    h = torch.tensor([[0.9306, (1 - 0.9306**2) ** 0.5]])
    assert float(model.clustering_loss(h)) == pytest.approx(0.018139, abs=1e-6)


def test_even_epochs_move_centres_and_odd_ones_pull_the_network(x):
    model = build(weight=0.5)
    data = Data(TensorRows(x), CPU, 40)
    model.before_training(data)
    for epoch, moving in ((0, True), (1, False), (2, True)):
        model.before_epoch(epoch, data)
        model.zero_grad()
        model.loss(batch(x))["clustering"].backward() if not moving else None
        pulled = any(p.grad is not None and bool(p.grad.any()) for p in model.autoencoder.encoder.parameters())
        assert pulled != moving
        assert model.loss(batch(x))["clustering"].requires_grad != moving
        before = model.clusters.centers.clone()
        model.after_step(batch(x))
        assert (model.clusters.centers != before).any() == moving


def test_without_a_network_every_epoch_moves_the_centres(x):
    model = build(Identity((6,)))
    for epoch in range(3):
        model.before_epoch(epoch, Data(TensorRows(x), CPU, 40))
        assert model.moving_centers


def test_the_centre_step_decays():
    model = build(center_step=0.2, center_decay=0.5)
    steps = []
    for epoch in range(5):
        model.before_epoch(epoch, Data(TensorRows(torch.randn(4, 6)), CPU, 4))
        steps.append(float(model.step))
    assert steps == pytest.approx([0.2, 0.2, 0.2 / 1.5, 0.2 / 1.5, 0.1])


@pytest.mark.parametrize("kind", [torch.optim.Adadelta, torch.optim.Adam])
def test_the_optimiser_form_rescales_gradients_and_rests_in_odd_epochs(x, kind):
    model = build(center_update="optimizer", weight=LAMBDA)
    optimizer = kind(model.parameters())
    phase = Phase("clustering", model, Data(TensorRows(x), CPU, 40), optimizer, epochs=2)
    for epoch in (0, 1):
        model.before_epoch(epoch, phase.data)
        optimizer.zero_grad()
        sum(model.loss(batch(x)).values()).backward()
        before = model.clusters.weight.detach().clone()
        phase.apply_gradients(batch(x), {})
        grad = model.clusters.weight.grad
        if epoch == 0:
            lengths = grad.norm(dim=1)
            assert torch.allclose(lengths[lengths > 0], torch.tensor(0.1 * 2 * ALPHA), rtol=1e-4)
            assert (model.clusters.weight != before).any()
        else:
            assert grad is None
            assert torch.allclose(model.clusters.weight, before, rtol=1e-5)
        assert torch.allclose(model.clusters.weight.norm(dim=1), torch.tensor(2 * ALPHA))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("optimizer", ["adadelta", "adam"])
@pytest.mark.parametrize("center_update", ["normalized", "optimizer", "unnormalized"])
def test_the_ablations_run(digits, optimizer, center_update):
    model = TELL(4, optimizer=optimizer, center_update=center_update, pretrain_epochs=2, epochs=4, random_state=0)
    model.fit(digits[0])
    assert np.allclose(np.linalg.norm(model.cluster_centers_, axis=1), 1, atol=1e-5)


def test_a_dead_centre_is_repaired_or_reported(blobs):
    X, y = blobs
    X = X - X.mean(0)
    start = np.vstack([X[y == 0][0], X[y == 0][1], -(X[y == 0].mean(0) + X[y == 1].mean(0) + X[y == 2].mean(0))])
    far = np.vstack([start[:2], -1000 * X[y == 0].mean(0) + 0 * X[0]])
    settings = {"network": "identity", "init": far, "epochs": 30, "random_state": 0}
    mended = TELL(3, **settings).fit(X)
    assert mended.diagnostics_["repaired"] >= 1
    assert adjusted_rand_score(y, mended.labels_) > 0.95
    with pytest.warns(ConvergenceWarning, match="1 of 3 clusters are empty"):
        literal = TELL(3, **settings, repair=False).fit(X)
    assert literal.diagnostics_["repaired"] == 0
    assert literal.diagnostics_["empty_clusters"] == [2]


def test_two_stages_leave_the_network_alone(digits):
    settings = {"pretrain_epochs": 3, "random_state": 0}
    pretrained = TELL(4, epochs=0, **settings).fit(digits[0])
    staged = TELL(4, epochs=5, joint=False, **settings).fit(digits[0])
    assert staged.n_iter_ == 5
    assert np.allclose(staged.transform(digits[0]), pretrained.transform(digits[0]))
    assert not np.allclose(staged.cluster_centers_, pretrained.cluster_centers_)


def test_without_network_and_sphere_it_is_k_means(blobs):
    """Identity, no normalisation, a decaying step: the objective ends within 1 % of Lloyd's, over shared starts with a
    row of each cluster: from others each may end in a minimum of its own."""
    X = torch.from_numpy(blobs[0]).float()
    ours, lloyds = [], []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        start = X[[int(rng.choice(np.flatnonzero(blobs[1] == j))) for j in range(3)]]
        model = TELL(
            3, network="identity", sphere=False, init=start.numpy(), epochs=40, batch_size=32,
            center_step=0.5, center_decay=0.2, repair=False, random_state=seed,
        )  # fmt: skip
        ours.append(model.fit(X).inertia_)
        lloyds.append(lloyd(X, start).inertia)
    assert np.mean(ours) == pytest.approx(np.mean(lloyds), rel=0.01)


def test_changed_samples_are_pulled_to_the_centre_of_the_unchanged_one():
    model = build(Identity((2,)), k=2)
    model.network_learns = True
    model.clusters.set_centers(torch.eye(2))
    model.moving_centers = False
    clean, changed = torch.tensor([[1.0, 0.1]]), torch.tensor([[0.1, 1.0]])
    model.train()
    model.loss(Batch(changed, clean, torch.zeros(1, dtype=torch.long)))
    assert model.owner.tolist() == [0]
    assert model.training


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # two epochs may leave a cluster empty
def test_online_the_centres_take_the_papers_step_and_the_network_rests(digits):
    images, _ = digits
    model = TELL(4, pretrain_epochs=3, epochs=2, random_state=0).fit(images[:60])
    centers, z = torch.from_numpy(model.cluster_centers_), model.transform(images[60:])
    member = F.one_hot(torch.from_numpy(model.predict(images[60:])), 4).float()
    pull = F.normalize(member.T @ torch.from_numpy(z), dim=1)
    model.partial_fit(images[60:])
    assert np.allclose(model.cluster_centers_, F.normalize(centers + 0.1 * pull, dim=1), atol=1e-5)
    assert np.allclose(model.transform(images[60:]), z)


def test_paper_settings():
    paper = TELL.paper("mnist")
    assert (paper.epochs, paper.pretrain_epochs, paper.batch_size, paper.n_init) == (3000, 0, 256, 5)
    assert (paper.optimizer, paper.weight, paper.init, paper.select) == ("adadelta", 0.01, "random", "loss")
    assert not paper.repair
    assert TELL.paper("mnist-dense").dropout == 0.2


def test_training_needs_no_step_of_the_optimiser_without_a_network(x):
    model = build(Identity((6,)))
    data = Data(TensorRows(x), CPU, 20)
    (history,) = train([Phase("clustering", model, data, None, 3)])
    assert len(history) == 3
    assert set(history[0]) == {"phase", "epoch", "clustering"}


IMAGES = {"pretrain_epochs": 2, "epochs": 6, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).random((60, 8, 8)).astype(np.float32)


def test_rows_that_were_laid_out_stay_where_they_began_for_half_of_the_epochs(images):
    seen = []

    def look(progress):
        if progress.phase == "clustering":
            seen.append(progress.model.initial_labels)

    model = TELL(3, callbacks=[look], **IMAGES).fit(images)
    assert [initial_labels is not None for initial_labels in seen] == [True] * 3 + [False] * 3
    assert sorted(set(seen[0].tolist())) == [0, 1, 2]
    assert model.model_.initial_labels is None
    assert TELL(3, init="k-means", **IMAGES).fit(images).n_iter_ == 6


def test_what_is_held_decides_whatever_is_nearest(x):
    model = build().eval()
    logits = model.clusters.logits(model.embed(x))
    model.initial_labels = torch.full((40,), 2)
    model.initial_labels[:10] = -1
    assert (model.choose(batch(x), logits)[10:] == 2).all()
    assert torch.equal(model.choose(batch(x), logits)[:10], logits.argmax(1)[:10])


def test_where_all_rows_are_held_no_sample_is_asked_for_its_centre(x):
    model = build()
    model.initial_labels, model.epochs = torch.arange(40) % 3, 8
    model.before_epoch(1, None)  # the centres rest, and the unchanged samples would decide
    changed = Batch(x + 1, x, torch.arange(40))
    model.embed = None
    assert torch.equal(model.choose(changed, torch.zeros(40, 3)), model.initial_labels)


@pytest.mark.parametrize("epoch", [1, 3])
def test_a_fit_killed_while_rows_are_held_ends_the_same(images, tmp_path, epoch):
    whole = TELL(3, **IMAGES).fit(images)

    def die(progress):
        if progress.phase == "clustering" and progress.epoch == epoch:
            raise RuntimeError("killed")

    kept = {"checkpoint": tmp_path, "checkpoint_every": 1, **IMAGES}
    with pytest.raises(RuntimeError, match="killed"):
        TELL(3, callbacks=[die], **kept).fit(images)
    again = TELL(3, **kept).fit(images)
    np.testing.assert_array_equal(again.labels_, whole.labels_)
    np.testing.assert_array_equal(again.cluster_centers_, whole.cluster_centers_)
