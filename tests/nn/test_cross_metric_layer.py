"""The four distances, the two kinds of assignment, the divergences, and the layer made of them."""

import math
from itertools import permutations

import pytest
import torch
from scipy.spatial.distance import cdist, jensenshannon
from scipy.stats import entropy
from torch.autograd import gradcheck

from diffclust.nn import (
    CrossMetricLayer,
    cityblock,
    jensen_shannon,
    kl_divergence,
    log_balance,
    sharpen,
    sparse_closeness,
    squared_hellinger,
)
from diffclust.nn.ops import DIVERGENCES, METRICS, correlation, cosine, euclidean
from diffclust.nn.ops import entropy as row_entropy

ALL = tuple(METRICS)


def rows(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def simplex(b, k):
    return torch.softmax(rows(b, k), dim=1)


# ---- distances


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_distances_are_scipys(name, scale):
    x, centers = scale * (rows(20, 7) + 3), scale * (rows(4, 7) + 3)
    expected = torch.from_numpy(cdist(x.numpy(), centers.numpy(), name))
    torch.testing.assert_close(METRICS[name](x, centers), expected, rtol=1e-9, atol=1e-9 * scale)


@pytest.mark.parametrize("name", ALL)
def test_distances_pass_gradcheck(name):
    x, centers = rows(5, 4).requires_grad_(), rows(3, 4).requires_grad_()
    assert gradcheck(METRICS[name], (x, centers))


@pytest.mark.parametrize("name", ALL)
def test_rows_that_point_nowhere_have_finite_distances_and_gradients(name):
    x = torch.tensor([[0.0, 0, 0, 0], [0.1, 0.1, 0.1, 0.1], [1, 2, 3, 4]], requires_grad=True)
    centers = torch.tensor([[0.0, 0, 0, 0], [1, 2, 3, 4]], requires_grad=True)
    distances = METRICS[name](x, centers)
    distances.sum().backward()
    assert distances.isfinite().all()
    assert x.grad.isfinite().all()
    assert centers.grad.isfinite().all()


def test_a_constant_row_has_no_correlation_but_a_direction():
    x, centers = torch.full((1, 10), 0.1), torch.randn(3, 10)
    assert correlation(x, centers).tolist() == [[1, 1, 1]]
    assert (cosine(x, centers) != 1).all()


def test_a_shift_of_all_coordinates_changes_all_but_the_correlation():
    x, centers = rows(6, 5), rows(3, 5)
    torch.testing.assert_close(correlation(x + 7, centers + 2), correlation(x, centers))
    torch.testing.assert_close(cosine(3 * x, 2 * centers), cosine(x, centers))
    torch.testing.assert_close(cityblock(x + 7, centers + 7), cityblock(x, centers))
    torch.testing.assert_close(euclidean(x + 7, centers + 7), euclidean(x, centers))


# ---- assignments, by hand


def test_q_and_p_of_the_sparse_assignment_by_hand():
    """Distances 1, 2, 6 and 4, 1, 1: means 3 and 2; Q = (2, 1, 0), (0, 1, 1); f = 2, 2, 1."""
    q = sparse_closeness(torch.tensor([[1.0, 2, 6], [4, 1, 1]], dtype=torch.float64))
    assert q.tolist() == [[2, 1, 0], [0, 1, 1]]
    p = log_balance(q, q.sum(0)).exp()
    # Q²/f = (2, 1/2, 0), (0, 1/2, 1)
    expected = torch.tensor([[4 / 5, 1 / 5, 0], [0, 1 / 3, 2 / 3]], dtype=torch.float64)
    torch.testing.assert_close(p, expected, rtol=1e-12, atol=1e-12)
    linear = log_balance(q, q.sum(0), power=1.0).exp()  # Q/f = (1, 1/2, 0), (0, 1/2, 1)
    expected = torch.tensor([[2 / 3, 1 / 3, 0], [0, 1 / 3, 2 / 3]], dtype=torch.float64)
    torch.testing.assert_close(linear, expected, rtol=1e-12, atol=1e-12)


def test_q_and_p_of_a_dense_assignment_by_hand():
    """Centres at right angles, a row on the first and one between: cosine distances (0, 1) and (c, c)."""
    layer = CrossMetricLayer(2, 2, ["cosine"]).double()
    layer.set_centers(torch.tensor([[2.0, 0], [0, 3]]))
    z = torch.tensor([[5.0, 0], [1, 1]], dtype=torch.float64)
    q = layer.closeness(z)[1]
    expected = torch.tensor([[2 / 3, 1 / 3], [1 / 2, 1 / 2]], dtype=torch.float64)
    torch.testing.assert_close(q, expected)
    # f = 7/6, 5/6; Q²/f = (8/21, 2/15), (3/14, 3/10)
    expected = torch.tensor([[20 / 27, 7 / 27], [5 / 12, 7 / 12]], dtype=torch.float64)
    torch.testing.assert_close(layer.assignments(z)[1], expected)


@pytest.mark.parametrize("metric", ALL)
def test_assignments_by_loops(metric):
    layer = CrossMetricLayer(3, 5, [metric]).double()
    z, centers = rows(8, 5), layer.centers.detach().numpy()
    sparse, dense = [], []
    for near, other in zip(cdist(z.numpy(), centers), cdist(z.numpy(), centers, metric), strict=True):
        u = sum(near) / 3
        sparse.append([max(0.0, u - d) for d in near])
        kernel = [1 / (1 + d * d) for d in other]
        dense.append([value / sum(kernel) for value in kernel])
    for q, p in zip((sparse, dense), layer.assignments(z), strict=True):
        f = [sum(row[j] for row in q) for j in range(3)]
        for row, found in zip(q, p, strict=True):
            weight = [row[j] ** 2 / f[j] for j in range(3)]
            assert found.tolist() == pytest.approx([w / sum(weight) for w in weight], abs=1e-12)


def test_the_euclidean_target_is_decs():
    layer = CrossMetricLayer(4, 3).double()
    q = layer.closeness(rows(9, 3))[1]
    torch.testing.assert_close(log_balance(q, q.sum(0)).exp(), sharpen(q, q.sum(0)))


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("metric", ALL)
def test_ties_zeros_and_outliers_are_survived(k, metric):
    layer = CrossMetricLayer(k, 4, [metric])
    layer.set_centers(torch.randn(k, 4))
    z = torch.randn(12, 4)
    z[0] = 0
    z[1] = layer.centers[0].detach()
    z[2] = 1e8
    layer.weight.data[-1] = layer.weight.data[0]  # with k = 2: every row is tied
    z.requires_grad_()
    for p in layer.assignments(z):
        assert torch.allclose(p.sum(1), torch.ones(12), atol=1e-5)
    layer.loss(z).backward()
    assert z.grad.isfinite().all()
    assert layer.weight.grad.isfinite().all()


def test_a_centre_nobody_is_near_gets_no_rows():
    for power in (1.0, 2.0):
        layer = CrossMetricLayer(3, 2, power=power)
        layer.set_centers(torch.tensor([[0.0, 0], [1, 0], [1000, 1000]]))
        sparse = layer.assignments(torch.rand(50, 2))[0]
        assert sparse[:, 2].max() < 1e-12
        assert sparse.isfinite().all()


# ---- divergences


def test_divergences_are_scipys():
    p, q = simplex(6, 4), simplex(6, 4)
    torch.testing.assert_close(kl_divergence(p, q), torch.from_numpy(entropy(p.numpy(), q.numpy(), axis=1)))
    torch.testing.assert_close(
        jensen_shannon(p, q), torch.from_numpy(jensenshannon(p.numpy(), q.numpy(), axis=1)).square()
    )
    torch.testing.assert_close(squared_hellinger(p, q), 1 - (p * q).sqrt().sum(1))


@pytest.mark.parametrize("name", DIVERGENCES)
def test_a_divergence_is_zero_for_equals_alone(name):
    p = simplex(5, 4)
    p[0] = torch.tensor([1.0, 0, 0, 0])
    assert DIVERGENCES[name](p, p).abs().max() == 0
    other = 0.9 * p + 0.1 * p.roll(1, dims=1)
    assert DIVERGENCES[name](p, other).min() > 1e-5


@pytest.mark.parametrize("name", DIVERGENCES)
def test_shares_of_zero_are_clipped(name):
    p = torch.tensor([[0.5, 0.5, 0.0]], dtype=torch.float64, requires_grad=True)
    q = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    value = DIVERGENCES[name](p, q)
    value.sum().backward()
    assert value.isfinite().all()
    assert p.grad.isfinite().all()
    assert q.grad[0, 1] == 0  # a clipped share does not learn
    if name == "kl":
        assert value.item() == pytest.approx(math.log(0.5) / 2 + math.log(0.5 / 1e-7) / 2, rel=1e-6)


# ---- the layer


def test_with_one_metric_the_loss_is_the_divergence_of_target_from_prediction():
    layer = CrossMetricLayer(3, 4, ["cosine"]).double()
    z = rows(7, 4)
    prediction, target = layer.assignments(z)
    torch.testing.assert_close(layer.loss(z), kl_divergence(target, prediction).mean())
    assert layer.discrepancy([target, target]).abs().max() == 0


def test_with_several_metrics_the_loss_sums_over_pairs():
    layer = CrossMetricLayer(3, 4, ["cosine", "cityblock"], divergence="jensen-shannon").double()
    z = rows(7, 4)
    p1, p2, p3 = layer.assignments(z)
    expected = jensen_shannon(p2, p1) + jensen_shannon(p3, p1) + jensen_shannon(p3, p2)
    torch.testing.assert_close(layer.discrepancy([p1, p2, p3]), expected)


@pytest.mark.parametrize("detach", ["none", "target", "prediction"])
def test_gradients_go_where_they_are_let(detach):
    layer = CrossMetricLayer(3, 4, ["cosine"], detach=detach)
    p = [torch.full((2, 3), 1 / 3, requires_grad=True), torch.softmax(torch.randn(2, 3), 1).requires_grad_()]
    layer.discrepancy(p).sum().backward()
    assert (p[0].grad is None) == (detach == "prediction")
    assert (p[1].grad is None) == (detach == "target")


@pytest.mark.parametrize("metric", ALL)
@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_the_loss_passes_gradcheck(metric, divergence):
    layer = CrossMetricLayer(3, 4, [metric], divergence=divergence).double()
    z = rows(6, 4).requires_grad_()
    assert gradcheck(layer.loss, z)


def test_an_answer_has_the_frequencies_kept_and_not_those_of_its_company():
    layer = CrossMetricLayer(3, 4, ["cosine"]).double()
    z = rows(30, 4)
    layer.count(torch.stack(layer.closeness(z), dim=1))
    together = layer(z)
    torch.testing.assert_close(layer(z[:1]), together[:1])
    for kept, q in zip(layer.frequencies, layer.closeness(z), strict=True):
        torch.testing.assert_close(kept, q.detach().mean(0))
    torch.testing.assert_close(together, layer.assignments(z)[0])


@pytest.mark.parametrize("answer", ["prediction", "target"])
@pytest.mark.parametrize("power", [1.0, 2.0, 3.5])
def test_logits_are_ordered_as_the_assignment(answer, power):
    layer = CrossMetricLayer(5, 4, ["correlation"], power=power, answer=answer).double()
    z = rows(200, 4)
    layer.count(torch.stack(layer.closeness(z), dim=1))
    p, logits = layer(z), layer.logits(z)
    assert (p.argmax(1) == logits.argmax(1)).all()
    if answer == "target":
        torch.testing.assert_close(torch.softmax(logits, dim=1), p)


def test_angles_are_seen_from_the_origin():
    layer = CrossMetricLayer(3, 4, ["cosine", "correlation", "euclidean", "cityblock"]).double()
    layer.set_centers(rows(3, 4))
    z, shift = rows(8, 4), torch.tensor([5.0, -3, 2, 9], dtype=torch.float64)
    before = layer.closeness(z)
    layer.set_centers(layer.centers + shift)
    layer.origin.copy_(shift)
    for here, there in zip(before, layer.closeness(z + shift), strict=True):
        torch.testing.assert_close(here, there)
    layer.look_from(z + 3)
    torch.testing.assert_close(layer.origin, (z + 3).mean(0))


def test_small_distances_are_stretched_and_large_ones_stay():
    layer = CrossMetricLayer(3, 4, ["cosine", "euclidean", "cityblock"]).double()
    z, centers = rows(20, 4), rows(3, 4)
    layer.set_centers(centers)
    means = [METRICS[metric](z, centers).mean().item() for metric in layer.metrics]
    between = (means[1] + means[2]) / 2
    layer.stretch_to(z, between)
    torch.testing.assert_close(
        layer.stretch.double(), torch.tensor([between / means[0], between / means[1], 1]).double()
    )
    far = cdist(z, centers, "cosine") * between / means[0]
    q = torch.from_numpy(1 / (1 + far**2))
    torch.testing.assert_close(layer.closeness(z)[1], q / q.sum(1, keepdim=True), rtol=1e-6, atol=1e-8)
    layer.stretch_to(z, 0)
    assert (layer.stretch == 1).all()


def test_stretched_assignments_do_not_depend_on_the_scale_of_the_rows():
    z, centers = rows(20, 4), rows(3, 4)
    found = []
    for scale in (1e-3, 1e-6):
        layer = CrossMetricLayer(3, 4, ["euclidean", "cityblock"]).double()
        layer.set_centers(scale * centers)
        layer.stretch_to(scale * z, 6)
        found.append(layer.assignments(scale * z))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("metric", METRICS)
def test_a_step_of_the_centres_does_not_depend_on_the_scale_of_the_rows(metric):
    z, centers = rows(20, 4), rows(3, 4)
    enough = 6 / METRICS["euclidean"](z, centers).mean().item()
    steps = []
    for scale in (enough, 1e-1, 1e-3) if metric == "euclidean" else (1e-1, 1e-3):
        layer = CrossMetricLayer(3, 4, [metric]).double()
        layer.set_centers(scale * centers)
        layer.stretch_to(scale * z, 6)
        layer.loss(scale * z).backward()
        steps.append(layer.weight.grad / scale)
    assert steps[0].abs().max() > 1e-3
    for other in steps[1:]:
        torch.testing.assert_close(other, steps[0], rtol=1e-4, atol=1e-8)


def test_centres_are_never_sped_up():
    layer = CrossMetricLayer(3, 4, ["cosine"]).double()
    layer.set_centers(10 * rows(3, 4))
    layer.stretch_to(10 * rows(20, 4), 6)
    assert layer.pace == 1
    layer.stretch_to(10 * rows(20, 4), 1e3)
    assert layer.pace < 1
    layer.stretch_to(10 * rows(20, 4), 0)
    assert layer.pace == 1


def test_rows_and_centres_that_are_all_one_are_not_stretched():
    layer = CrossMetricLayer(3, 4, ["euclidean"])
    layer.set_centers(torch.ones(3, 4))
    layer.stretch_to(torch.ones(5, 4), 6)
    assert layer.stretch.tolist() == [1]
    assert layer.pace == 1


def test_powers_are_matched_within_their_bounds():
    z, centers = rows(200, 6), rows(5, 6)
    layer = CrossMetricLayer(5, 6, ["euclidean", "cosine"], power=1.5).double()
    layer.set_centers(centers)
    p1, *dense = layer.assignments(z)
    wanted = entropy(p1.detach(), axis=1).mean()
    assert all(entropy(p2.detach(), axis=1).mean() > wanted for p2 in dense)
    layer.match_powers(z, 100)
    for p2 in layer.assignments(z)[1:]:
        assert entropy(p2.detach(), axis=1).mean() == pytest.approx(wanted, rel=1e-5)
    assert layer.powers[0] == 1.5
    layer.match_powers(z, 1.6)  # too little
    assert layer.powers.tolist() == pytest.approx([1.5, 1.6, 1.6], rel=1e-5)
    layer.match_powers(z, 1.2)  # never below the prediction's
    assert layer.powers.tolist() == pytest.approx([1.5, 1.5, 1.5])
    decided = CrossMetricLayer(5, 6, ["cosine"]).double()
    decided.set_centers(centers)
    near = centers.repeat(40, 1) + 0.01 * z
    decided.stretch_to(near, 1e3)
    p1, p2 = decided.assignments(near)
    assert entropy(p2.detach(), axis=1).mean() < entropy(p1.detach(), axis=1).mean() + 1e-9  # both may be 0
    decided.match_powers(near)
    assert decided.powers.tolist() == pytest.approx([2, 2])
    pair = CrossMetricLayer(2, 6, ["euclidean"]).double()
    pair.set_centers(centers[:2])
    pair.match_powers(z)  # its prediction is all or nothing
    assert pair.powers.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("exponent", "power"),
    [(1 / 2, 4), (1 / 3, 6), (1 / 5, 8), (1, 2), (2, 2)],
    ids=["flatter", "flatter still", "flatter than the most", "as decided", "sharper"],
)
def test_a_flat_target_gets_the_power_that_undoes_its_flatness(exponent, power):
    """Clusters are equally frequent, so that P ∝ Q^r: a target whose Q is that of the prediction to the power 1 / s has
    the same P at the power s r."""
    layer = CrossMetricLayer(3, 4).double()
    q = torch.tensor([*permutations([4.0, 2.0, 1.0])], dtype=torch.float64)
    layer.closeness = lambda z, centers=None: [q, q**exponent]
    layer.match_powers(torch.zeros(6, 4))
    assert layer.powers.tolist() == pytest.approx([2, power], abs=1e-5)
    p1, p2 = (p.tolist() for p in layer.assignments(torch.zeros(6, 4)))
    assert p1[0] == pytest.approx([16 / 21, 4 / 21, 1 / 21])
    at = 2.0 ** (power * exponent)
    assert p2[0] == pytest.approx([at**2 / (at**2 + at + 1), at / (at**2 + at + 1), 1 / (at**2 + at + 1)], abs=1e-5)


def test_no_power_is_matched_to_a_prediction_that_is_all_or_nothing():
    layer = CrossMetricLayer(3, 4).double()
    target = torch.tensor([*permutations([4.0, 2.0, 1.0])], dtype=torch.float64)
    layer.closeness = lambda z, centers=None: [torch.eye(3, dtype=torch.float64).repeat(2, 1), target]
    layer.powers[1] = 3
    layer.match_powers(torch.zeros(6, 4))
    assert layer.powers.tolist() == [2, 3]


def test_rounding_is_not_stretched():
    z = rows(1, 6) * torch.linspace(0.5, 2, 50, dtype=torch.float64)[:, None]  # one direction
    layer = CrossMetricLayer(3, 6, ["cosine", "euclidean"]).double()
    layer.set_centers(z[:3])
    layer.stretch_to(z, 6)
    assert layer.stretch[0] == 1
    assert layer.stretch[1] > 1


def test_entropies_are_scipys():
    p = simplex(6, 4)
    torch.testing.assert_close(row_entropy(p.log()), torch.from_numpy(entropy(p.numpy(), axis=1)))
    assert row_entropy(torch.tensor([[0.0, -torch.inf]])).item() == 0


@pytest.mark.parametrize("metric", ["cosine", "correlation"])
def test_the_prediction_follows_a_flat_target_into_indecision_unless_it_is_stretched(metric):
    """Eight round clusters, without a network: the rows themselves and the centres learn."""
    corners, owner = 3 * torch.eye(8, dtype=torch.float64), torch.arange(8).repeat_interleave(20)
    start = corners[owner] + rows(160, 8)

    def learn(least):
        layer, z = CrossMetricLayer(8, 8, [metric]).double(), start.clone().requires_grad_()
        layer.set_centers(corners)
        layer.look_from(start)
        layer.stretch_to(start, least)
        optimizer = torch.optim.SGD([z, *layer.parameters()], lr=1.0)
        found = []
        for _ in range(60):
            p1 = layer.assignments(z)[0].detach()
            found.append((-torch.xlogy(p1, p1).sum(1).mean().item(), (p1.argmax(1) == owner).double().mean().item()))
            optimizer.zero_grad()
            layer.loss(z).backward()
            optimizer.step()
        return found[0], found[-1]

    (before, right), (after, still_right) = learn(0)
    assert after > 2 * before
    assert still_right < right - 0.05
    (before, right), (after, still_right) = learn(6)
    assert after < before
    assert still_right >= right - 0.05


def test_correlation_of_two_numbers_is_refused():
    with pytest.raises(ValueError, match="embedding_dim=2: metric='correlation' needs 3"):
        CrossMetricLayer(3, 2, ["correlation"])


@pytest.mark.parametrize(
    ("name", "value"),
    [("metrics", ["manhattan"]), ("metrics", []), ("divergence", "js"), ("detach", "targt"), ("answer", "P2")],
)
def test_the_layer_names_what_it_does_not_know(name, value):
    with pytest.raises(ValueError, match=f"{name}=.* should be of"):
        CrossMetricLayer(4, 5, **{name: value})


def test_one_metric_is_enough():
    assert CrossMetricLayer(4, 5, "cosine").metrics == ("cosine",)
