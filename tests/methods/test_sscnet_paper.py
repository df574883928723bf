"""The paper's own pipeline against loops in double precision, its gradients against finite differences of these, and
answers that do not depend on company."""

import numpy as np
import pytest
import torch

import diffclust
from diffclust import SSCNet
from diffclust.engine.data import Batch, Data
from diffclust.engine.rows import TensorRows
from diffclust.methods.sscnet_codes import Codes
from diffclust.nn import ConvDictionary, EigenvectorLayer, RowDictionary, affinity
from diffclust.nn.eigenvectors import random_orthonormal
from diffclust.nn.graph import attach

CPU = torch.device("cpu")
N, D, M, K = 8, 4, 6, 2
SETTINGS = {"n_blocks": 2, "n_layers": 2, "n_neighbors": 3, "cap": 1e-2, "truncation": 0.8, "sparsity": 0.15}


def build(pipeline="paper", n_samples=N, **changes):
    torch.manual_seed(0)
    estimator = SSCNet(K, pipeline=pipeline, embedding_dim=K, batch_size=N, **{**SETTINGS, **changes})
    return estimator.build_model(RowDictionary((D,), M), n_samples)


def prepared(pipeline="paper", **changes):
    """A model and its rows, with no parameter where it started."""
    model = build(pipeline, **changes)
    x = torch.randn(N, D, generator=torch.Generator().manual_seed(1))
    model.before_training(Data(TensorRows(x), CPU, N))
    g = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=g))
        for block in model.blocks:
            block.threshold.mul_(0.1)  # few codes are zero, so that no two rows have equal ones
    model.turn.fill_(2)
    return model, x


# ---- the paper's formulas, by loops, on a dictionary of parameters


def parameters_of(model):
    return {name: value.detach().double().numpy().copy() for name, value in model.named_parameters()}


def shrink(v, b):
    return np.sign(v) * max(abs(v) - b, 0.0)


def codes_by_loops(p, x, allowed):
    """Eq. 4 to 11: Z, E and M of one sample, block by block, each with its own A (d, m) and A' (m, d)."""
    z, e, multiplier = np.zeros(M), np.zeros(D), np.zeros(D)
    for block in range(2):
        pair = "autoencoder" if block == 1 else "earlier.0"
        A, adjoint = p[f"{pair}.decoder.weight"], p[f"{pair}.encoder.1.weight"]
        B1, beta = np.abs(p[f"blocks.{block}.threshold"]), p[f"blocks.{block}.penalty"]
        W1, B2 = p[f"blocks.{block}.damping"], np.abs(p[f"blocks.{block}.error_threshold"])
        residual = [sum(A[i, j] * z[j] for j in range(M)) + e[i] - x[i] for i in range(D)]
        step = [sum(adjoint[j, i] * (multiplier[i] + beta[i] * residual[i]) for i in range(D)) for j in range(M)]
        z = np.array([allowed[j] * shrink(z[j] - step[j], B1[j]) for j in range(M)])
        fit = [sum(A[i, j] * z[j] for j in range(M)) for i in range(D)]
        e = np.array([shrink(x[i] - fit[i] - W1[i] * multiplier[i], B2[i]) for i in range(D)])
        multiplier = np.array([multiplier[i] + beta[i] * (fit[i] + e[i] - x[i]) for i in range(D)])
    return z, e


def graph_by_loops(z, neighbours):
    """Eq. 14, and L = D - W."""
    n = len(z)
    W = np.zeros((n, n))
    for i in range(n):
        distance = [sum((z[i] - z[j]) ** 2) for j in range(n)]
        positive = sorted(distance[j] for j in range(n) if j != i and distance[j] > 0)
        sigma = positive[(len(positive) - 1) // 2] if positive else 1.0
        for j in sorted((j for j in range(n) if j != i), key=lambda j: distance[j])[:neighbours]:
            W[i, j] = np.exp(-distance[j] / sigma)
    W = (W + W.T) / 2
    return np.diag(W.sum(1)) - W


def layer_by_matrices(L, Y, B, cap):
    """Eq. 16 to 27 as mended, with P written out."""
    S = B - B.T
    P = 2 * (L @ Y @ Y.T - Y @ Y.T @ L) + Y @ S @ Y.T
    bend = np.trace(Y.T @ L @ P @ P @ Y) - np.trace(Y.T @ P @ L @ P @ Y)
    newton = np.trace(Y.T @ L @ P @ Y) / bend if bend > 0 else cap
    t = min(max(newton, 0.0), cap)
    return (np.eye(len(Y)) - t * P + t**2 / 2 * P @ P) @ Y


def loss_by_loops(p, model, x, turn=2):
    """Eq. 12, 13, 15 and the cross-entropy: the sum of what the step of this turn minimises."""
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    allowed = model.autoencoder.others(torch.from_numpy(unit).float()).numpy()
    z, e = (np.array(part) for part in zip(*(codes_by_loops(p, unit[i], allowed[i]) for i in range(N)), strict=True))
    size = [np.sqrt(max(sum(e[i] ** 2), 1e-12)) for i in range(N)]
    q = [1 / (1 + min(s, 0.8)) for s in size]
    total = sum((1 - q[i] / sum(q)) * size[i] for i in range(N)) + 0.15 * np.abs(z).sum()
    L = graph_by_loops(z, 3)
    Y = model.start.double().numpy()
    for layer in range(2):
        Y = layer_by_matrices(L, Y, p[f"layers.{layer}.turn"], 1e-2)
    if turn >= 1:
        total += 0.15 * np.trace(Y.T @ L @ Y)
    if turn >= 2:
        for i in range(N):
            g = np.sqrt(N) * Y[i]
            for layer in (0, 2, 4):
                g = p[f"common.{layer}.weight"] @ g + p[f"common.{layer}.bias"]
                g = np.tanh(g) if layer < 4 else g
            u = np.maximum(p["classifier.0.weight"] @ g + p["classifier.0.bias"], 0)
            u = p["classifier.2.weight"] @ u + p["classifier.2.bias"]
            W = p["clusters.weight"]
            logits = W @ u - (W**2).sum(1) / 4
            total += 0.15 * (np.log(np.exp(logits).sum()) - logits[int(model.pseudo[i])])
    return total


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_the_loss_of_each_turn_by_loops(turn):
    model, x = prepared()
    model.turn.fill_(turn)
    ours = sum(model.loss(Batch(x, x, torch.arange(N))).values()).detach()
    theirs = loss_by_loops(parameters_of(model), model, x.double().numpy(), turn)
    assert float(ours) == pytest.approx(theirs, rel=1e-4)


def test_gradients_are_those_of_the_loops():
    """Of one entry of every parameter, by central differences; w counts as a constant, so it is left out here."""
    model, x = prepared(sample_weights=False)
    sum(model.loss(Batch(x, x, torch.arange(N))).values()).backward()
    start, rows = parameters_of(model), x.double().numpy()

    def value(name, place, step):
        moved = {**start, name: start[name].copy()}
        moved[name].flat[place] += step
        weighted = loss_by_loops(moved, model, rows)
        return weighted + excess(moved)

    def excess(p):  # what w takes from the sum of lengths
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        allowed = model.autoencoder.others(torch.from_numpy(unit).float()).numpy()
        size = [np.sqrt(max((codes_by_loops(p, unit[i], allowed[i])[1] ** 2).sum(), 1e-12)) for i in range(N)]
        q = [1 / (1 + min(s, 0.8)) for s in size]
        return sum(q[i] / sum(q) * size[i] for i in range(N))

    checked = 0
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            continue
        place = int(parameter.grad.abs().argmax())
        ours, h = float(parameter.grad.flatten()[place]), 1e-5
        theirs = (value(name, place, h) - value(name, place, -h)) / (2 * h)
        assert ours == pytest.approx(theirs, rel=2e-2, abs=2e-4), name
        checked += abs(ours) > 1e-4
    assert checked > 15


def test_rows_that_are_written_badly_weigh_the_same_from_the_truncation_on():
    """Eq. 13 by hand, τ = 1: errors 1 and 3 have q = 1/2 each, so w = 1/2, and L1 is (1 + 3) / 2."""
    model = build(truncation=1.0, sparsity=0.0)
    z, x, e = torch.zeros(2, M), torch.zeros(2, D), torch.tensor([[1.0, 0, 0, 0], [0, 3.0, 0, 0]])
    assert float(model.coding_losses(Codes(z, x, x, e))["reconstruction"]) == pytest.approx(2.0)


def test_a_layer_is_its_formula_with_all_matrices_written_out():
    L = graph_by_loops(np.random.default_rng(0).normal(size=(9, 3)), 4)
    y = random_orthonormal(9, 3, like=torch.empty(0, dtype=torch.float64))
    for cap in (0.01, 0.5):  # the cap, and Newton's own step
        layer = EigenvectorLayer(3, cap=cap).double()
        with torch.no_grad():
            layer.turn.copy_(torch.randn(3, 3, generator=torch.Generator().manual_seed(3)))
        ours = layer(torch.from_numpy(L), y).detach().numpy()
        assert np.allclose(ours, layer_by_matrices(L, y.numpy(), layer.turn.detach().numpy(), cap))


def test_new_rows_beside_known_ones_by_loops():
    rng = np.random.default_rng(0)
    z, known, values = rng.normal(size=(5, 3)), rng.normal(size=(9, 3)), rng.normal(size=(9, 2))
    edges = attach(*map(torch.from_numpy, (z, known)), 4)
    y = edges.extend(torch.from_numpy(values))
    for i in range(5):
        distance = [sum((z[i] - known[j]) ** 2) for j in range(9)]
        sigma, near = sorted(distance)[4], sorted(range(9), key=lambda j: distance[j])[:4]
        w = [np.exp(-distance[j] / sigma) for j in near]
        mean = sum(w[a] * values[near[a]] for a in range(4)) / sum(w)
        assert np.allclose(y[i], mean)
        energy = sum(w[a] * sum((mean - values[near[a]]) ** 2) for a in range(4))
        assert float(edges.energy(y, torch.from_numpy(values))[i]) == pytest.approx(energy)
        shifted = sum(w[a] * sum((mean + 0.01 - values[near[a]]) ** 2) for a in range(4))
        assert shifted > energy  # the mean is where it is least


def test_gradients_beside_known_rows_are_those_of_finite_differences():
    g = torch.Generator().manual_seed(0)
    z, known, values = (torch.randn(n, 3, generator=g, dtype=torch.float64).requires_grad_() for n in (4, 9, 9))

    def both(z, known, values):
        edges = attach(z, known, 4)
        y = edges.extend(values)
        return y, edges.energy(y, values)

    assert torch.autograd.gradcheck(both, (z, known, values))


def test_graphs_of_several_batches_at_once():
    z = torch.randn(3, 12, 4, dtype=torch.float64)
    for one, alone in zip(affinity(z, 3), (affinity(each, 3) for each in z), strict=True):
        assert torch.allclose(one, alone)


# ---- the pipeline


def test_every_block_has_a_pair_of_its_own_and_all_learn():
    model = SSCNet.paper("usps").build_model(ConvDictionary((1, 16, 16), he=True), 300)
    assert len(model.blocks) == 4
    pairs = [*model.earlier, model.autoencoder]
    assert len({id(pair.encoder[0].weight) for pair in pairs}) == 4
    for pair in pairs:
        assert torch.equal(pair.encoder[0].weight, pairs[0].encoder[0].weight)  # they start as one algorithm
    x = torch.rand(300, 1, 16, 16)
    model.before_training(Data(TensorRows(x), CPU, 256))
    model.turn.fill_(2)
    size = len(model.start)
    sum(model.loss(Batch(x[:size], x[:size], torch.arange(size))).values()).backward()
    silent = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert silent == ["blocks.0.damping"]  # W1 M of the first block: there is no M yet


def test_the_papers_settings():
    paper = SSCNet.paper("mnist")
    assert (paper.pipeline, paper.n_blocks, paper.batch_size, paper.augment) == ("paper", 4, 256, None)
    assert (paper.sparsity, paper.spectral_weight, paper.weight, paper.cap) == (0.15, 0.15, 0.15, 0.01)
    assert (paper.optimizer, paper.lr) == ("sgd", 3e-4)
    assert 3 <= paper.n_neighbors <= 6
    model = paper.build_model(ConvDictionary((1, 28, 28), he=True), 1000)
    assert all(torch.equal(block.threshold, torch.full_like(block.threshold, 0.15)) for block in model.blocks)
    assert all(torch.equal(block.penalty, torch.ones_like(block.penalty)) for block in model.blocks)


def test_zero_blocks_leave_the_dictionary_alone():
    model = build(n_blocks=0)
    x = torch.randn(5, D)
    codes = model.codes(x)
    assert len(model.earlier) == 0
    assert torch.allclose(codes.e, codes.x - codes.fit)


def three_balls(n=60):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    return (4 * np.eye(3, 6)[y] + 0.2 * rng.normal(size=(n, 6))).astype(np.float32), y


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("pipeline", ["paper", "references"])
def test_one_row_has_one_answer(pipeline, digits, tmp_path):
    """Alone, among others, twice, in another order, and from a file."""
    for X, k in ((three_balls()[0], 3), (digits[0], 4)):
        model = SSCNet(k, pipeline=pipeline, pretrain_epochs=1, epochs=2, lr=1e-3, random_state=0).fit(X)
        labels, chances = model.predict(X), model.predict_proba(X)
        assert np.isfinite(chances).all()
        assert (labels == model.labels_).all()
        for i in (0, 7, 31):
            assert model.predict(X[i : i + 1])[0] == labels[i]
            assert np.allclose(model.predict_proba(X[i : i + 1])[0], chances[i], atol=1e-5)
        assert (model.predict(X[::-1].copy())[::-1] == labels).all()
        model.save(tmp_path / f"{pipeline}-{k}")
        assert (diffclust.load(tmp_path / f"{pipeline}-{k}").predict(X) == labels).all()


def test_beside_references_clusters_are_found():
    """Where A' starts as L-ADMM's, the codes tell three balls apart, and G(Y) and the classifier say which is which."""
    X, y = three_balls(150)
    model = SSCNet(3, pipeline="references", n_layers=12, batch_size=75, pretrain_epochs=5, epochs=60, random_state=0)
    model.fit(X)
    assert diffclust.metrics.accuracy(y, model.labels_) > 0.95


def test_taken_literally_the_loss_is_least_without_codes():
    """E costs nothing once B2 is large, and then Z may be zero: the trivial minimum that the docs speak of."""
    model, x = prepared()
    before = sum(model.coding_losses(model.codes(x)).values()).detach()
    with torch.no_grad():
        for block in model.blocks:
            block.error_threshold.fill_(100.0)
            block.threshold.fill_(100.0)
    after = sum(model.coding_losses(model.codes(x)).values()).detach()
    assert float(before) > 0.5
    assert float(after) < 1e-4


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_batches_smaller_than_k_are_enough():
    X = np.random.default_rng(0).normal(size=(40, 3))
    for pipeline in ("paper", "references"):
        model = SSCNet(8, pipeline=pipeline, batch_size=4, pretrain_epochs=1, epochs=2, lr=1e-4, random_state=0).fit(X)
        assert np.isfinite(model.predict_proba(X)).all()
