import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from torch import nn
from torch.autograd import gradcheck
from torch.autograd.functional import jacobian

from conftest import SEED
from diffclust.nn import ClusterLayer, DistanceLayer, hard, kmeans, kmeans_plus_plus, lloyd, softmax, squared_distances

quick = settings(deadline=None, derandomize=True, max_examples=50)
seeds = st.integers(0, 2**32 - 1)

ALPHAS = [1e-3, 0.1, 1.0, 5.0]
PLACES = [{}, {"sphere": True}, {"tied": False}]
TELL_ALPHA = 1e-3


def naive_distances(x, centers):
    return torch.stack([torch.stack([(a - b).square().sum() for b in centers]) for a in x])


def unit_rows(n, d, **options):
    return F.normalize(torch.randn(n, d, **options), dim=1)


def layer_at(centers, **options):
    centers = torch.as_tensor(centers)
    layer = ClusterLayer(*centers.shape, **options).to(centers.dtype)
    layer.set_centers(centers)
    return layer


# ---- distances and assignments


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("place", PLACES)
def test_distances_are_those_of_a_double_loop(alpha, place):
    layer = ClusterLayer(5, 6, alpha=alpha, **place)
    layer.set_centers(torch.rand(5, 6) - 0.5)
    z = layer.normalize(torch.rand(30, 6) - 0.5)
    expected = naive_distances(z.double(), layer.weight.detach().double() / (2 * alpha))
    torch.testing.assert_close(layer.distances(z).detach().double(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["hard", "softmax", "sparsemax"])
@pytest.mark.parametrize("place", PLACES)
def test_loss_is_the_assigned_part_of_the_distances(name, place):
    layer = ClusterLayer(4, 3, assignment=name, alpha=2.0, **place)
    x = torch.randn(20, 3)
    z = F.normalize(x, dim=1) if layer.sphere else x
    expected = (layer(x) * naive_distances(z, layer.centers)).sum(1).mean()
    torch.testing.assert_close(layer.loss(x), expected)


@pytest.mark.parametrize("name", ["softmax", "sparsemax"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("answer", ["forward", "logits", "distances", "loss"])
def test_layer_passes_gradcheck(name, place, answer):
    layer = ClusterLayer(4, 3, assignment=name, alpha=0.7, **place).double()
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x, *_: getattr(layer, answer)(x), (x, *layer.parameters()))


@pytest.mark.parametrize("place", PLACES)
def test_hard_loss_passes_gradcheck(place):
    layer = ClusterLayer(4, 3, **place).double()
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x, *_: layer.loss(x), (x, *layer.parameters()))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_hard_assignment_is_that_of_scikit_learn(alpha):
    x, _ = make_blobs(400, n_features=5, centers=7, cluster_std=3.0, random_state=0)
    x = x.astype("float32")
    theirs = KMeans(7, n_init=1, max_iter=3, random_state=0).fit(x[:200])
    layer = layer_at(theirs.cluster_centers_, alpha=alpha)
    assert layer(torch.from_numpy(x)).argmax(1).tolist() == theirs.predict(x).tolist()


def test_on_the_sphere_the_length_of_a_row_does_not_matter():
    layer = ClusterLayer(4, 3, assignment="softmax", sphere=True)
    x = torch.randn(10, 3)
    torch.testing.assert_close(layer(x), layer(7 * x))
    torch.testing.assert_close(layer.loss(x), layer.loss(7 * x))


def test_a_larger_alpha_makes_softmax_harder_and_leaves_distances_alone():
    centers, x = torch.randn(4, 3), torch.randn(20, 3)
    layers = [layer_at(centers, assignment="softmax", alpha=alpha) for alpha in (0.1, 1.0, 100.0)]
    certainty = [layer(x).amax(1).mean().item() for layer in layers]
    assert certainty[0] < 0.5 < certainty[1] < 0.95 < certainty[2]
    for layer in layers:
        torch.testing.assert_close(layer.distances(x), squared_distances(x, centers), rtol=1e-5, atol=1e-5)


def test_logits_lose_no_precision_to_autocast_or_to_finer_rows():
    layer, x = ClusterLayer(4, 3), torch.randn(10, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = layer.logits(x)
    assert inside.equal(layer.logits(x))
    assert layer.logits(x.bfloat16()).dtype == torch.float32
    assert layer.logits(x.double()).dtype == torch.float64


def test_a_callable_of_ones_own_is_an_assignment():
    def evenly(logits):
        return torch.full_like(logits, 1 / logits.shape[1])

    layer, x = ClusterLayer(4, 3, assignment=evenly), torch.randn(10, 3)
    assert layer(x).equal(torch.full((10, 4), 0.25))
    torch.testing.assert_close(layer.loss(x), layer.distances(x).mean())
    assert "evenly" in repr(layer)


@quick
@given(seed=seeds, order=st.permutations(range(5)), name=st.sampled_from(["hard", "softmax", "sparsemax"]))
def test_permuting_the_centres_permutes_the_columns(seed, order, name):
    random = torch.Generator().manual_seed(seed)
    centers, x = torch.randn(5, 3, generator=random), torch.randn(8, 3, generator=random)
    before = layer_at(centers, assignment=name)
    after = layer_at(centers[list(order)], assignment=name)
    torch.testing.assert_close(after(x), before(x)[:, list(order)])
    torch.testing.assert_close(after.loss(x), before.loss(x))


@quick
@given(seed=seeds, shift=st.lists(st.floats(-100, 100), min_size=3, max_size=3))
def test_shifting_data_and_centres_together_changes_no_distance(seed, shift):
    random = torch.Generator().manual_seed(seed)
    centers, x = (torch.randn(n, 3, generator=random, dtype=torch.float64) for n in (5, 8))
    shift = torch.tensor(shift, dtype=torch.float64)
    before, after = layer_at(centers), layer_at(centers + shift)
    torch.testing.assert_close(after.distances(x + shift), before.distances(x), rtol=0, atol=1e-8)
    torch.testing.assert_close(squared_distances(x, centers), before.distances(x).detach(), rtol=0, atol=1e-8)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("name", ["hard", "softmax", "sparsemax"])
def test_untied_biases_are_always_pushed_by_the_same_amount(alpha, name):
    for _ in range(10):
        layer = ClusterLayer(5, 3, assignment=name, alpha=alpha, tied=False).double()
        with torch.no_grad():
            layer.weight.normal_()
            layer.bias.normal_()
        layer.loss(torch.randn(12, 3, dtype=torch.float64)).backward()
        assert layer.bias.grad.sum().item() == pytest.approx(-1 / alpha)


# ---- reading and writing the centres


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("place", PLACES)
def test_centres_come_back_as_they_were_set(alpha, place):
    centers = torch.randn(5, 3)
    layer = layer_at(centers, alpha=alpha, **place)
    expected = F.normalize(centers, dim=1) if layer.sphere else centers
    torch.testing.assert_close(layer.centers.detach(), expected)
    if not layer.tied:
        torch.testing.assert_close(layer.bias.detach(), -alpha * centers.square().sum(1))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_project_gives_every_centre_length_one(alpha):
    layer = ClusterLayer(5, 3, alpha=alpha, sphere=True)
    with torch.no_grad():
        layer.weight.mul_(17)
    layer.project_()
    torch.testing.assert_close(layer.weight.detach().norm(dim=1), torch.full((5,), 2 * alpha))


def test_a_fresh_layer_lies_on_the_sphere_where_it_should():
    torch.testing.assert_close(ClusterLayer(5, 3, sphere=True).centers.norm(dim=1), torch.ones(5))


@pytest.mark.parametrize("sphere", [False, True])
@pytest.mark.parametrize("how", ["k-means", "k-means++", "random"])
def test_place_takes_its_centres_from_the_rows(sphere, how):
    layer, x = ClusterLayer(4, 3, sphere=sphere, alpha=0.3), torch.randn(60, 3)
    untouched, z = layer.centers.detach().clone(), layer.normalize(x)
    torch.manual_seed(SEED + 1)
    layer.place(x, how)
    centers = layer.centers.detach()
    assert not centers.isclose(untouched).any()
    if how == "k-means":
        torch.manual_seed(SEED + 1)
        torch.testing.assert_close(centers, layer.normalize(kmeans(z, 4, n_init=30).centers))
    elif sphere and how == "random":
        torch.testing.assert_close(centers.norm(dim=1), torch.ones(4))
    else:
        distance, row = squared_distances(centers, z).min(1)
        assert distance.max() < 1e-5
        assert row.unique().numel() == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sphere": True, "tied": False}, "tied=False has no effect"),
        ({"alpha": 0.0}, "alpha=0.0 should be > 0"),
        ({"alpha": -2.0}, "alpha=-2.0 should be > 0"),
        ({"assignment": "firm"}, r"assignment='firm' should be one of \['hard', 'softmax', 'sparsemax'\]"),
    ],
)
def test_what_makes_no_sense_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ClusterLayer(3, 2, **options)


def test_state_dict_carries_the_centres():
    layer, again = (ClusterLayer(4, 3, alpha=0.2, tied=False) for _ in range(2))
    again.load_state_dict(layer.state_dict())
    assert again.centers.equal(layer.centers)
    assert again(torch.randn(5, 3)).shape == (5, 4)


# ---- moving the centres


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_step_on_the_sphere_by_hand(alpha):
    layer = layer_at([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], alpha=alpha, sphere=True)
    layer.move_(torch.tensor([[3.0, 0.0], [0.6, 0.8], [0.0, 9.0]]), 0.1)
    pull = torch.tensor([0.6, 1.8])  # (0.6, 0.8) + (0, 1): rows count by their direction
    moved = torch.tensor([0.0, 1.0]) + 0.1 * pull / pull.norm()
    expected = torch.stack([torch.tensor([1.0, 0.0]), moved / moved.norm(), torch.tensor([-1.0, 0.0])])
    torch.testing.assert_close(layer.centers.detach(), expected)


def test_a_soft_step_on_the_sphere_by_hand():
    layer = layer_at([[1.0, 0.0], [0.0, 1.0]], assignment="softmax", sphere=True)
    layer.move_(torch.eye(2), 0.1)
    own, other = 1 / (1 + math.exp(-2)), 1 / (1 + math.exp(2))  # logits 1 and -1
    length = math.hypot(own, other)
    moved = F.normalize(torch.tensor([[1 + 0.1 * own / length, 0.1 * other / length]]), dim=1)[0]
    torch.testing.assert_close(layer.centers.detach(), torch.stack([moved, moved.flip(0)]))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_step_in_the_plane_by_hand(alpha):
    layer = layer_at([[0.0], [4.0], [90.0]], alpha=alpha)
    layer.move_(torch.tensor([[1.0], [3.0], [7.0]]), 0.5)
    torch.testing.assert_close(layer.centers.detach(), torch.tensor([[0.5], [4.5], [90.0]]))


def test_a_soft_step_in_the_plane_by_hand():
    share = torch.tensor([[0.75, 0.25, 0.0], [0.25, 0.75, 0.0]])
    layer = layer_at([[0.0], [4.0], [9.0]], assignment=lambda logits: share)
    layer.move_(torch.tensor([[1.0], [3.0]]), torch.tensor(1.0))
    torch.testing.assert_close(layer.centers.detach(), torch.tensor([[1.5], [2.5], [9.0]]))


@pytest.mark.parametrize("name", ["hard", "softmax", "sparsemax"])
def test_centres_that_move_on_the_sphere_keep_length_one(name):
    layer = ClusterLayer(6, 4, assignment=name, alpha=3.0, sphere=True)
    for _ in range(50):
        layer.move_(torch.randn(30, 4), 0.5)
        torch.testing.assert_close(layer.centers.detach().norm(dim=1), torch.ones(6))


def test_untied_centres_do_not_move():
    with pytest.raises(ValueError, match="tied"):
        ClusterLayer(3, 2, tied=False).move_(torch.randn(5, 2))


@pytest.mark.parametrize("sphere", [False, True])
@pytest.mark.parametrize("dead", [[True, False, True], [False, False, False], [True, True, True]])
def test_dead_centres_wake_on_rows_and_the_living_stay(sphere, dead):
    dead = torch.tensor(dead)
    layer = ClusterLayer(3, 4, sphere=sphere, alpha=0.1)
    before, z = layer.centers.detach().clone(), layer.normalize(torch.randn(40, 4))
    layer.revive_(dead, z)
    after = layer.centers.detach()
    torch.testing.assert_close(after[~dead], before[~dead])
    distance, row = squared_distances(after[dead], z).min(1)
    assert (distance < 1e-5).all()
    assert row.unique().numel() == dead.sum()


def test_dead_centres_wake_where_those_alive_serve_badly():
    z = torch.cat([torch.zeros(50, 2), torch.tensor([[8.0, 8.0], [-8.0, -8.0]])])
    for _ in range(20):
        layer = layer_at([[0.0, 0.0], [8.0, 8.0], [50.0, 50.0]])
        layer.revive_(torch.tensor([False, True, True]), z)
        assert sorted(layer.centers.tolist()) == [[-8, -8], [0, 0], [8, 8]]


def test_normalised_gradients_have_a_share_of_their_rows_length():
    layer = ClusterLayer(3, 4, alpha=0.2, tied=True)
    layer.normalize_gradient_(0.1)  # no gradient yet
    gradient = torch.randn(3, 4)
    gradient[2] = 0
    layer.weight.grad = gradient.clone()
    layer.normalize_gradient_(0.1)
    lengths = 0.1 * layer.weight.detach().norm(dim=1) * torch.tensor([1.0, 1.0, 0.0])
    torch.testing.assert_close(layer.weight.grad, lengths[:, None] * F.normalize(gradient, dim=1))


# ---- the released TELL code: Adadelta on W, α = 1e-3


def sphere_batches(steps):
    means = unit_rows(5, 10)
    noisy = means[torch.randint(5, (steps, 128))] + 0.3 * torch.randn(steps, 128, 10)
    return F.normalize(noisy, dim=2)


def adadelta_on_w(layer, batches, *, gradient, weights):
    """W after each step. gradient, weights: whether each is brought to its length, as TELL does with both."""
    optimizer = torch.optim.Adadelta(layer.parameters(), lr=1.0, rho=0.9, eps=1e-6)
    road = [layer.weight.detach().clone()]
    for h in batches:
        similarity = F.linear(h, layer.weight)
        loss = 0.01 / layer.alpha * (2 * layer.alpha - hard(similarity.detach()) * similarity).mean()
        optimizer.zero_grad()
        loss.backward()
        if gradient:
            layer.normalize_gradient_(0.1)
        optimizer.step()
        if weights:
            layer.project_()
        road.append(layer.weight.detach().clone())
    return road


def degrees_between_steps(road):
    return torch.stack([F.cosine_similarity(a, b).clamp(-1, 1).acos().rad2deg() for a, b in pairwise(road)])


def test_closed_form_step_is_what_adadelta_does_to_normalised_gradients():
    batches = sphere_batches(200)
    layer = ClusterLayer(5, 10, alpha=TELL_ALPHA, sphere=True)
    closed = layer_at(layer.centers.detach(), sphere=True)
    road = adadelta_on_w(layer, batches, gradient=True, weights=True)
    for h, before, after in zip(batches, road, road[1:], strict=False):
        one_step = layer_at(before, sphere=True)
        one_step.move_(h, 0.1)
        assert F.cosine_similarity(one_step.centers, after).min() > 0.999999
        closed.move_(h, 0.1)  # all the way on its own: a row on a border parts the two a little
        assert F.cosine_similarity(closed.centers, after).min() > 0.99
    assert F.cosine_similarity(road[0], road[-1]).min() < 0.9  # they went somewhere


def test_weights_grow_without_bound_where_nothing_is_normalised():
    layer = ClusterLayer(5, 10, alpha=TELL_ALPHA, sphere=True)
    road = adadelta_on_w(layer, sphere_batches(200), gradient=False, weights=False)
    length = torch.stack([weight.norm(dim=1).amax() for weight in road])
    assert length[100] > 100 * length[0]
    assert length[200] > 1.5 * length[100]


def test_directions_jump_where_only_the_weights_are_normalised():
    layer = ClusterLayer(5, 10, alpha=TELL_ALPHA, sphere=True)
    road = adadelta_on_w(layer, sphere_batches(200), gradient=False, weights=True)
    angles = degrees_between_steps(road)
    assert angles.amax() > 30  # at least 42 in each of three hundred seeds
    assert angles[100:].amax(1).median() > 10


def test_directions_settle_where_gradient_and_weights_are_normalised():
    layer = ClusterLayer(5, 10, alpha=TELL_ALPHA, sphere=True)
    angles = degrees_between_steps(adadelta_on_w(layer, sphere_batches(200), gradient=True, weights=True))
    assert angles.amax() < 6  # a tenth of the length turns a centre by asin(0.1) at most
    assert angles[100:].amax(1).median() < 3


# ---- k-means, as the layer finds it


def test_mini_batch_steps_end_within_a_percent_of_lloyd():
    x = torch.tensor(make_blobs(600, centers=5, random_state=0)[0], dtype=torch.float32)
    starts = [kmeans_plus_plus(x, 5) for _ in range(5)]
    ours = 0.0
    for start in starts:
        layer, n_steps = layer_at(start), 0
        for _ in range(30):
            for batch in x[torch.randperm(len(x))].split(100):
                layer.move_(batch, 1 / (1 + n_steps / 10))
                n_steps += 1
        ours += layer.loss(x).item() * len(x)
    assert ours == pytest.approx(sum(lloyd(x, start).inertia for start in starts), rel=0.01)
    assert ours < 0.9 * sum(layer_at(start).loss(x).item() * len(x) for start in starts)


def test_behind_ones_own_encoder_the_layer_trains_in_a_plain_loop():
    x = torch.randn(200, 6)
    encoder = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
    clusters = ClusterLayer(3, 2, assignment="softmax")
    clusters.place(encoder(x).detach())
    before = clusters.loss(encoder(x)).item()

    optimizer = torch.optim.Adam([*encoder.parameters(), *clusters.parameters()], lr=0.01)
    for _ in range(50):
        optimizer.zero_grad()
        clusters.loss(encoder(x)).backward()
        optimizer.step()

    assert clusters.loss(encoder(x)).item() < 0.5 * before
    assert all(parameter.grad.norm() > 0 for parameter in [*encoder.parameters(), *clusters.parameters()])


# ---- the papers' bounds


def fixed_assignment_problem():
    """The k-means objective with its assignment held fixed is convex; its optimum is at the cluster means.
    With α = ½ the weights are the centres."""
    x = torch.randn(60, 3, dtype=torch.float64)
    member = F.one_hot(torch.arange(60) % 4, 4).double()
    layer = ClusterLayer(4, 3, alpha=0.5, assignment=lambda logits: member).double()
    means = layer_at(member.T @ x / 15, alpha=0.5, assignment=lambda logits: member)
    layer.set_centers(4 * torch.randn(4, 3, dtype=torch.float64))
    radius = (layer.centers - means.centers).norm().item()
    return layer, x, means.loss(x).item(), radius


def subgradient_method(layer, x, eta, n_steps, *, constant_length):
    """Losses and gradient lengths on the way."""
    losses, lengths = [], []
    for _ in range(n_steps):
        loss = layer.loss(x)
        (gradient,) = torch.autograd.grad(loss, layer.weight)
        losses.append(loss.item())
        lengths.append(gradient.norm().item())
        with torch.no_grad():
            layer.weight -= eta * gradient / (lengths[-1] if constant_length else 1)
    return losses, lengths


@pytest.mark.parametrize("eta", [0.02, 0.1, 0.5])
def test_lemma_1_a_constant_step_ends_within_its_radius(eta):
    layer, x, optimum, radius = fixed_assignment_problem()
    losses, lengths = subgradient_method(layer, x, eta, 400, constant_length=False)
    bound = max(lengths) ** 2 * eta / 2 + radius**2 / (2 * eta * len(losses))
    assert -1e-9 <= min(losses) - optimum <= bound
    assert bound < 0.5 * (losses[0] - optimum)


@pytest.mark.parametrize("eta", [0.2, 0.4, 0.8])
def test_lemma_2_a_step_of_constant_length_ends_within_its_radius(eta):
    layer, x, optimum, radius = fixed_assignment_problem()
    losses, lengths = subgradient_method(layer, x, eta, 800, constant_length=True)
    bound = max(lengths) * (eta / 2 + radius**2 / (2 * eta * len(losses)))
    assert -1e-9 <= min(losses) - optimum <= bound
    assert bound < 0.5 * (losses[0] - optimum)


def gradients_by_term(s, tau):
    """∂L_j / ∂z_j' (k, k) for L_j = p_j (2 - s_j), p = softmax(z), z = (s - 2) / τ."""
    return tau * jacobian(lambda s: softmax((s - 2)[None], tau)[0] * (2 - s), s)


@quick
@given(seed=seeds, k=st.integers(2, 12), d=st.integers(2, 12), tau=st.floats(0.005, 20))
def test_theorem_1_bounds_the_gradient_with_the_shifted_logits(seed, k, d, tau):
    random = torch.Generator().manual_seed(seed)
    layer = layer_at(unit_rows(k, d, generator=random, dtype=torch.float64), sphere=True)
    s = F.linear(unit_rows(1, d, generator=random, dtype=torch.float64), layer.weight.detach())[0]
    bound = tau + 2 * tau * ((s - 2) / tau).abs().max()
    gradients = gradients_by_term(s, tau)
    assert gradients.abs().sum(1).max() <= bound * (1 + 1e-12)
    assert gradients.sum(0).abs().sum() <= bound * (1 + 1e-12)


@quick
@given(k=st.integers(2, 10), tau=st.floats(1e-3, 0.1))
def test_theorem_1_as_printed_fails_for_a_row_orthogonal_to_the_centres(k, tau):
    rows = torch.eye(k + 1, dtype=torch.float64)
    layer = layer_at(rows[:k], sphere=True)
    s = F.linear(rows[k:], layer.weight.detach())[0]
    assert gradients_by_term(s, tau).abs().sum(1).max() > tau + 2 * tau * (s / tau).abs().max()


def test_reviving_leaves_the_living_alone():
    layer = ClusterLayer(3, 2, tied=False)
    with torch.no_grad():
        layer.bias.add_(5.0)
    weight, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
    layer.revive_(torch.tensor([True, False, False]), torch.randn(9, 2).bfloat16())
    assert (layer.weight[1:] == weight[1:]).all()
    assert (layer.bias[1:] == bias[1:]).all()
    assert (layer.weight[0] != weight[0]).any()


def test_half_precision_rows_are_measured_in_full():
    z = torch.randn(50, 4).bfloat16()
    for sphere in (True, False):
        layer = ClusterLayer(3, 4, sphere=sphere)
        z = layer.normalize(z)
        assert torch.allclose(layer.distances(z), layer.distances(z.float()))
        layer.move_(z)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert layer.logits(z).dtype == torch.float32


@pytest.mark.parametrize("how", ["k-means", "k-means++", "random"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_rows_that_are_not_finite_place_no_centres(place, how, bad):
    layer = ClusterLayer(3, 2, **place)
    before = layer.weight.detach().clone()
    z = torch.randn(20, 2)
    z[7, 1] = bad
    with pytest.raises(ValueError, match="NaN or infinity"):
        layer.place(z, how)
    assert torch.equal(layer.weight, before)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("how", ["random", "k-means++", "k-means"])
def test_fewer_rows_than_clusters_place_no_centres(place, how):
    with pytest.raises(ValueError, match="2 rows are too few for n_clusters=3"):
        ClusterLayer(3, 2, **place).place(torch.randn(2, 2), how)


@pytest.mark.parametrize("shape", [(1, 2), (2,), (4, 2), (3, 3)])
def test_centres_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"expected \(3, 2\)"):
        ClusterLayer(3, 2).set_centers(torch.zeros(shape))


def test_a_distance_of_ones_own_is_what_the_loss_adds_up():
    """mean_i Σ_j I_ij f(x_i, Ω_j), however far from the origin."""
    x = torch.randn(30, 2, generator=torch.Generator().manual_seed(0)) + 10
    layer = DistanceLayer(3, 2, torch.cdist)
    layer.place(x)
    assert layer.loss(x).item() == pytest.approx(torch.cdist(x, layer.centers).amin(1).mean().item(), rel=1e-5)


def test_a_layer_is_exported_for_any_number_of_rows():
    layer, x = ClusterLayer(3, 6), torch.randn(8, 6)
    program = torch.export.export(layer, (x,), dynamic_shapes=({0: torch.export.Dim("rows")},))
    more = torch.randn(5, 6)
    assert torch.equal(program.module()(more), layer(more))


@pytest.mark.parametrize("kind", [{}, {"sphere": True}, {"tied": False}])
def test_owners_are_those_of_double_precision(kind):
    layer = ClusterLayer(6, 4, **kind)
    layer.set_centers(torch.randn(6, 4))
    z = layer.normalize(torch.randn(2000, 4))
    middle = (layer.centers[0] + layer.centers[1]) / 2
    z[:1000] = layer.normalize(middle + 1e-7 * torch.randn(1000, 4)).detach()  # ties, but for rounding
    assert layer.owners(z).equal(layer.logits(z.double()).argmax(1))
    z[5, 1], z[7] = torch.nan, torch.inf
    assert layer.owners(z)[[5, 7]].tolist() == [-1, -1]


@pytest.mark.parametrize("far", [0.0, 30.0, 1e4])
def test_rounding_of_wide_rows_far_from_zero_decides_nothing(far):
    layer = ClusterLayer(6, 200)
    layer.set_centers(torch.randn(6, 200) + far)
    pair = torch.randint(0, 6, (2, 3000))
    share = 0.5 + torch.logspace(-9, -2, 3000)[:, None]
    centers = layer.centers.detach()
    z = share * centers[pair[0]] + (1 - share) * centers[pair[1]]  # a little nearer to the first of two
    assert layer.owners(z).equal(layer.logits(z.double()).argmax(1))


def test_owners_of_many_centres_over_batches_of_any_size():
    layer = ClusterLayer(300, 4)
    layer.set_centers(torch.randn(300, 4))
    z, decide = torch.randn(2000, 4), layer.label_function()
    expected = layer.logits(z.double()).argmax(1)
    assert torch.cat([decide(part) for part in z.split([700, 700, 300, 290, 10])]).equal(expected)
