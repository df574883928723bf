"""Runs that are stacked learn what each learns alone, up to rounding."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import Literal

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from conftest import OWN_STOP, train
from diffclust import DCN, DEC, IDEC, TELL, AEKMeans, CrossMetric, DeepKMeans
from diffclust.engine import runtime
from diffclust.engine.accelerate.capture import StepRunner
from diffclust.engine.accelerate.stack import Stack, stack_key_of
from diffclust.engine.data import Data
from diffclust.engine.phase import Phase
from diffclust.engine.rows import TensorRows
from diffclust.engine.runtime import seeded
from diffclust.estimator.base import PrototypeClusterer
from diffclust.estimator.knobs import rules_of
from diffclust.estimator.settings import hyperparameters
from diffclust.methods.dcn import DCNModel

CPU = torch.device("cpu")
COMMON = {"network": "dense", "device": "cpu", "batch_size": 32, "optimizer": "momentum", "lr": 1e-4}
CASES = {
    "HOMO": (CrossMetric, [{"metric": "euclidean"}] * 3),
    "HOE": (CrossMetric, [{"metric": "cosine", "power": power} for power in (2.0, 3.0)]),
    "HOT": (CrossMetric, [{"metric": "correlation", "detach": "target"}] * 2),
    "HIT": (CrossMetric, [{"metric": "cityblock", "divergence": "hellinger"}] * 2),
    "several metrics": (CrossMetric, [{"metric": ("euclidean", "cosine")}] * 2),
    "DEC": (DEC, [{"interval": 3}] * 2),
    "IDEC": (IDEC, [{"interval": 3, "weight": weight} for weight in (0.1, 1.0, 10.0)]),
    "DCN": (DCN, [{"weight": weight} for weight in (0.1, 1.0)]),
    "DKM": (DeepKMeans, [{"weight": weight} for weight in (0.1, 1.0)]),
    "DKM, cosine": (DeepKMeans, [{"distance": "cosine", "reconstruction": "cosine"}] * 2),
}


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(0)
    places = 4 * torch.randn(4, 6, generator=generator)
    rows = places[torch.randint(4, (96,), generator=generator)] + torch.randn(96, 6, generator=generator)
    return Data(TensorRows(rows), CPU, 32)


@pytest.fixture
def taken(monkeypatch):
    """How many runs each stacked step was for."""
    sizes, step = [], Stack.step
    monkeypatch.setattr(Stack, "step", lambda self: sizes.append(len(self.members)) or step(self))
    return sizes


def phase_of(method, settings, seed, data, *, epochs=2, pretraining=False):
    endless = OWN_STOP.get(method.__name__, {})
    estimator = method(4, **{**COMMON, **endless, **settings})
    with seeded(seed, CPU):
        model = estimator.build_model(estimator.build_autoencoder(data), len(data))
        if pretraining:
            model = estimator.pretraining(model)
        optimizer = estimator.build_optimizer(model)
    return Phase("clustering", model, data, optimizer, epochs)


def learn(phases, stack):
    histories = train(phases, range(len(phases)), stack=stack)
    return [(history, dict(phase.model.state_dict())) for history, phase in zip(histories, phases, strict=True)]


def same(stacked, alone, why=""):
    for (history, state), (expected, weights) in zip(stacked, alone, strict=True):
        assert len(history) == len(expected)
        assert [record.pop("phase") for record in history] == [record.pop("phase") for record in expected]
        for name in {name for record in expected for name in record}:
            values = [record[name] for record in expected]
            near = {"rel": 1e-3, "abs": 1e-4 * min(1, max(map(abs, values)))}
            assert [record[name] for record in history] == pytest.approx(values, **near), f"{name}{why}"
        for name, value in weights.items():
            assert state[name].allclose(value, rtol=1e-3, atol=1e-4), f"{name}{why}"


@pytest.mark.parametrize("case", CASES)
def test_each_learns_what_it_learns_alone(case, data, taken):
    method, settings = CASES[case]
    build = lambda: [phase_of(method, each, seed, data) for seed, each in enumerate(settings)]  # noqa: E731
    alone = learn(build(), stack=False)
    assert not taken
    same(learn(build(), stack=True), alone)
    assert taken == [len(settings)] * 6  # two epochs of three steps
    assert not all(a["clusters.weight"].allclose(alone[0][1]["clusters.weight"]) for _, a in alone[1:])


def other_settings(method):
    """Every setting of the method's own that is a number, a flag or a word, with another value for it."""
    shared = {field.name for field in fields(PrototypeClusterer)}
    for rule in rules_of(method):
        value = getattr(method(), rule.name)
        if rule.name in shared:
            continue
        if isinstance(value, bool):
            yield {rule.name: not value}
        elif isinstance(value, (int, float)):
            others = (other for other in (3 * value, value / 3, 0.3, 3) if rule.allows(other) and other != value)
            yield from [{rule.name: other} for other in others][:1]
        yield from ({rule.name: word} for word in rule.words if word != value)


def check_key(method, data, taken):
    """Runs that differ in one setting, for three epochs: a term may rest in the first."""
    for other in other_settings(method):
        build = lambda: [phase_of(method, settings, 0, data, epochs=3) for settings in ({}, other)]  # noqa: B023, E731
        keys = {stack_key_of(phase) for phase in build()}
        if len(keys) == 1 and None not in keys:
            why = f" is wrong in a stack with {other}: a setting that `loss` reads is a buffer, or part of stack_key."
            same(learn(build(), stack=True), learn(build(), stack=False), why)
            assert taken, f"{other}: not stacked, though its key says that it can be"


@pytest.mark.filterwarnings("ignore", category=ConvergenceWarning)
def test_the_key_covers_every_setting_that_the_loss_reads(method, data, taken):
    """A setting that is neither a tensor nor part of `stack_key` would be the first run's for all of them."""
    if stack_key_of(phase_of(method, {}, 0, data)) is None:
        pytest.skip("its runs are not stacked")
    check_key(method, data, taken)


class PlainWeight(DCNModel):
    """Its weight is neither a tensor nor part of the key, and its term rests in the first epoch."""

    def __init__(self, autoencoder, clusters, settings):
        super().__init__(autoencoder, clusters, settings)
        self.factor = 0.001 * settings.weight

    def before_epoch(self, epoch, data):
        super().before_epoch(epoch, data)
        self.turn = self.graph_key = epoch > 0

    def loss(self, batch):
        own = self.factor * self.clustering_loss(self.embed(batch.x)).mean()
        return {**super().loss(batch), "clustering": own if self.turn else 0 * own}

    def stack_key(self):
        return super().stack_key()


class KeyedWeight(PlainWeight):
    def stack_key(self):
        return super().stack_key(), self.factor


class WithPlainWeight(DCN):
    kind = PlainWeight

    def build_model(self, autoencoder, n_samples):
        return self.kind(autoencoder, self.build_clusters(autoencoder), self)


class WithKeyedWeight(WithPlainWeight):
    kind = KeyedWeight


class PlainFlag(DCNModel):
    """Its loss reads a flag and a word."""

    def __init__(self, autoencoder, clusters, settings):
        super().__init__(autoencoder, clusters, settings)
        self.share = (1 + settings.doubled) * (1 if settings.unit == "row" else 1 / 6)

    def loss(self, batch):
        return {name: self.share * value for name, value in super().loss(batch).items()}

    def stack_key(self):
        return super().stack_key()


@hyperparameters
class WithPlainFlag(WithPlainWeight):
    doubled: bool = False

    kind = PlainFlag
    unit = "row"


@hyperparameters
class WithPlainWord(WithPlainWeight):
    unit: Literal["row", "value"] = "row"

    kind = PlainFlag
    doubled = False


@pytest.mark.parametrize(
    ("method", "said"), [(WithPlainWeight, "'weight'"), (WithPlainFlag, "'doubled': True"), (WithPlainWord, "'unit'")]
)
def test_a_setting_missing_from_the_key_would_show(method, said, data, taken):
    with pytest.raises(AssertionError, match=said):
        check_key(method, data, taken)


def test_a_setting_in_the_key_is_well(data, taken):
    check_key(WithKeyedWeight, data, taken)


def test_pretraining_too(data, taken):
    build = lambda: [phase_of(AEKMeans, {}, seed, data, pretraining=True) for seed in range(3)]  # noqa: E731
    alone = learn(build(), stack=False)
    same(learn(build(), stack=True), alone)
    assert taken == [3] * 6


def test_who_has_more_epochs_goes_on_with_those_who_are_left(data, taken):
    build = lambda: [phase_of(DEC, {"interval": 2}, n, data, epochs=n) for n in (2, 3, 3, 5)]  # noqa: E731
    alone = learn(build(), stack=False)
    same(learn(build(), stack=True), alone)
    assert taken == [4] * 6 + [3] * 3


def test_only_what_is_alike_is_stacked(data, taken):
    metrics = ("euclidean", "cosine", "euclidean")
    build = lambda: [phase_of(CrossMetric, {"metric": m}, n, data) for n, m in enumerate(metrics)]  # noqa: E731
    alone = learn(build(), stack=False)
    same(learn(build(), stack=True), alone)
    assert taken == [2] * 6


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        (TELL, {}),
        (CrossMetric, {"network": "identity"}),
        (DeepKMeans, {"l2": 0.01}),
        (DeepKMeans, {"distance": lambda z, centers: torch.cdist(z, centers)}),
        (DeepKMeans, {"reconstruction": lambda x, y: (x - y).abs().sum(1)}),
    ],
)
def test_the_rest_runs_as_it_is(method, settings, data):
    estimator = method(4, **{**COMMON, **settings})
    model = estimator.build_model(estimator.build_autoencoder(data), len(data))
    assert model.stack_key() is None


def test_drawn_noise_is_each_runs_own(data, taken):
    noises = (0.0, 0.3, 0.3, 0.6)
    build = lambda: [  # noqa: E731
        phase_of(CrossMetric, {"noise": p}, seed, data, pretraining=True) for seed, p in enumerate(noises)
    ]
    alone = learn(build(), stack=False)
    same(learn(build(), stack=True), alone)
    assert taken == [4] * 6


def test_units_of_another_shape_are_another_stack(data, taken):
    units = (True, False, "mean", False)  # one number, or one a feature
    build = lambda: [phase_of(CrossMetric, {"rescale": r}, n, data) for n, r in enumerate(units)]  # noqa: E731
    alone = learn(build(), stack=False)
    same(learn(build(), stack=True), alone)
    assert set(taken) == {2}


def test_who_has_left_keeps_nothing_of_the_others(data):
    phases = [phase_of(IDEC, {}, seed, data) for seed in range(3)]
    learn(phases, stack=True)
    for model in (phase.model for phase in phases):
        for tensor in (*model.parameters(), *model.buffers()):
            assert tensor.untyped_storage().nbytes() == tensor.nbytes
            assert tensor.grad is None


def test_changed_rows_and_unchanged_ones_arrive_where_they_should(data, taken):
    changed = Data(data.rows, CPU, 32, augment=lambda x: x + 0.1 * torch.randn_like(x))
    build = lambda: [phase_of(CrossMetric, {}, seed, changed) for seed in range(2)]  # noqa: E731
    alone = learn(build(), stack=False)
    same(learn(build(), stack=True), alone)
    assert taken


def test_weights_of_any_number_type_are_one_stack(data, taken):
    weights = (1, 0.1, np.float64(10))
    learn([phase_of(IDEC, {"weight": w}, seed, data) for seed, w in enumerate(weights)], stack=True)
    assert taken == [3] * 6


class Heavier(DCNModel):
    """A loss of its own, and no word on what it depends on."""

    factor = 1.0

    def loss(self, batch):
        return {name: self.factor * value for name, value in super().loss(batch).items()}


class Shifted(DCNModel):
    shift = 1.0

    def represent(self, x):
        return super().represent(x) + self.shift


class Watched(DCNModel):
    def after_step(self, batch):
        super().after_step(batch)


@pytest.mark.parametrize(("kind", "stacked"), [(Heavier, False), (Shifted, False), (Watched, True)])
def test_a_loss_of_ones_own_is_not_stacked_by_an_inherited_word(data, kind, stacked):
    phase = phase_of(DCN, {}, 0, data)
    assert stack_key_of(phase) is not None
    phase.model.__class__ = kind
    assert phase.model.stack_key() is not None
    assert (stack_key_of(phase) is not None) == stacked


def test_stacks_end_with_their_phases_and_members(data, monkeypatch):
    phases = [phase_of(DCN, {}, n, data, epochs=n) for n in (1, 2, 4)]
    sizes, epoch = [], StepRunner.run_epoch

    def counted(steps, members):
        epoch(steps, members)
        sizes.append([len(stack.members) for stack in steps.stacks.values()])

    monkeypatch.setattr(StepRunner, "run_epoch", counted)
    learn(phases, stack=True)
    assert sizes == [[3], [2], [], []]
    for phase in phases:
        assert all(t.untyped_storage().nbytes() == t.nbytes for t in phase.model.parameters())


def test_no_other_thread_takes_a_step_in_between(data, monkeypatch):
    free, losses = [], Stack._losses

    def watched(self, *arguments):
        with ThreadPoolExecutor(1) as other:
            free.append(other.submit(lambda: runtime._turn.acquire(blocking=False)).result())
        return losses(self, *arguments)

    monkeypatch.setattr(Stack, "_losses", watched)
    learn([phase_of(DCN, {}, seed, data) for seed in range(2)], stack=True)
    assert free == [False] * 6


def test_batches_of_another_size_are_another_stack(data):
    other = Data(data.rows, CPU, 48)
    kinds = set()
    for rows in (data, other):
        kinds.add(stack_key_of(phase_of(CrossMetric, {}, 0, rows)))
    assert len(kinds) == 2
    assert None not in kinds
