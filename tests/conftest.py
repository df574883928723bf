import contextlib
import functools
import inspect
import os
import random
import signal
import sys
import warnings
from dataclasses import fields
from importlib import import_module
from pathlib import Path

# One thread in every process, those that tests start too: several beside one another would wait for each other. It is
# read when numpy, scikit-learn and torch are first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, make_blobs
from sklearn.utils.estimator_checks import check_estimator
from torch.utils.data import IterableDataset

import diffclust
from diffclust import callbacks, cli
from diffclust.engine import loop
from diffclust.engine.accelerate.capture import StepRunner
from diffclust.engine.runtime import Randomness
from diffclust.estimator.base import PrototypeClusterer
from diffclust.explain import gradients
from diffclust.methods import METHODS
from diffclust.nn import layout
from diffclust.nn.autoencoders import ConvAutoencoder, DenseAutoencoder, PoolingAutoencoder

torch.set_num_threads(1)  # whatever the environment says
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # kernels run on the CPU then, slowly; read when Triton is first imported

# Data, networks and estimators of the shared tests are drawn from it: the same ones every time, or others by
# DIFFCLUST_TESTS_SEED=7; "any" draws one, which is told at the end. `make seeds` goes through twenty.
SEED = os.environ.get("DIFFCLUST_TESTS_SEED", "0")
SEED = random.SystemRandom().randrange(1000) if SEED == "any" else int(SEED)
os.environ["DIFFCLUST_TESTS_SEED"] = str(SEED)  # for the processes of xdist

TESTS = Path(__file__).parent
ESTIMATORS = [method.estimator for method in METHODS]
# What the base class promises is tried on two methods: one that learns online and takes turns, and one with a rate,
# figures, a state, an assignment and a pretraining of its own. `@two_methods` above a test that asks for `method`.
TWO_METHODS = ["TELL", "CrossMetric"]
two_methods = pytest.mark.parametrize("method", TWO_METHODS, indirect=True)
DIGITS = 80  # images of the fixture `digits`: two batches of the usual size
QUICK = {"pretrain_epochs": 3, "epochs": 4, "random_state": SEED, "device": "cpu"}
# rules by which a method ends early: off, where tests count epochs
OWN_STOP = {
    "DEC": {"tolerance": 0},
    "IDEC": {"tolerance": 0},
    "CrossMetric": {"tolerance": 0, "repair": False},
    "VaDE": {"repair": False},
}


# The networks' usual widths, and those the tests train: size is rarely the point, and time is. So with the steps in
# which rows are laid out for their first centres. `@pytest.mark.full_size` above a test that needs the usual ones.
# Other processes have the usual ones.
NARROW = {
    DenseAutoencoder: {"hidden": (64, 32, 64)},
    ConvAutoencoder: {"hidden": 64},
    PoolingAutoencoder: {"hidden": 64},
}
USUAL = {network: network.__init__.__defaults__ for network in NARROW}
FEW_STEPS, USUAL_STEPS = 20, layout.MAX_STEPS


def _narrow():
    for network, widths in NARROW.items():
        parameters = inspect.signature(network.__init__).parameters.values()
        network.__init__.__defaults__ = tuple(
            widths.get(p.name, p.default) for p in parameters if p.default is not p.empty
        )
    layout.MAX_STEPS = FEW_STEPS


_narrow()

# Attributions along the way from the baseline: by few points, where their values are not the point. The module-scoped
# fixture `usual_integrals` has as many as users have.
FEW_POINTS = {"PANEL_POINTS": 4, "HALVINGS": 0}
USUAL_POINTS = {name: getattr(gradients, name) for name in FEW_POINTS}


def _integrate_by(points):
    for name, value in points.items():
        setattr(gradients, name, value)


_integrate_by(FEW_POINTS)


def train(phases, seeds=(0,), *, capture=None, stack=None):
    """Phases to their ends, side by side, each with the random numbers of its seed; their histories."""
    runner = StepRunner(phases[0].data.device, capture=capture, stack=stack)
    members = [(phase, Randomness(seed, phase.data.device)) for phase, seed in zip(phases, seeds, strict=True)]
    for phase, randomness in members:
        with randomness.borrowed():
            phase.start()
    while running := [(phase, randomness) for phase, randomness in members if not phase.over]:
        for phase, randomness in running:
            with randomness.borrowed():
                phase.begin_epoch()
        runner.run_epoch(running)
        for phase, randomness in running:
            with randomness.borrowed():
                phase.end_epoch()
        for phase, randomness in running:
            if phase.over:
                with randomness.borrowed():
                    phase.finish()
    return [phase.history for phase in phases]


def subspaces(seed=0, k=4, dim=4, ambient=14, n=30, noise=0.03):
    """Rows of unit length in k subspaces in general position, with a little noise, and which each is in."""
    rng = np.random.default_rng(seed)
    bases = [np.linalg.qr(rng.normal(size=(ambient, dim)))[0] for _ in range(k)]
    x = np.concatenate([rng.normal(size=(n, dim)) @ basis.T for basis in bases])
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x + noise * rng.normal(size=x.shape), np.repeat(np.arange(k), n)


class Stream(IterableDataset):
    """Items that can only be gone through from the first to the last."""

    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(self.items)


def failed_checks(estimator, expected=None):
    """Which of scikit-learn's own checks an estimator fails, and which it passes though they are expected to fail."""
    found = check_estimator(estimator, expected_failed_checks=expected or {}, on_skip=None, on_fail=None)
    wrong = [each for each in found if each["status"] == ("passed" if each["expected_to_fail"] else "failed")]
    return [(each["check_name"], each["exception"]) for each in wrong]


def quick_settings(name):
    return {**QUICK, **OWN_STOP.get(name, {})}


def ways(name):
    """The ways a method can train: `joint` or not, or the only one it has."""
    return (True, False) if "joint" in getattr(diffclust, name).__dataclass_fields__ else (None,)


def learns_network_online(model):
    """Whether `partial_fit` of a fitted model takes learn_network=True; a method may refuse to."""
    try:
        return bool(model.online_learner(model.model_))
    except ValueError:
        return False


def _is_quick(item):
    """Whether a test is part of `make quick` by its place: the mathematics, and the contract of two methods."""
    path = item.path.relative_to(TESTS)
    if path.parts[0] == "nn" or path.name in ("test_metrics.py", "test_layout.py", "test_docstrings.py"):
        return True
    method = getattr(item, "callspec", None) and item.callspec.params.get("method")
    return path.name == "test_common.py" and method in TWO_METHODS


def _is_swept(item):
    """Whether a test's data or estimators are drawn from SEED, so that it is part of `make seeds`."""
    place, drawn = item.path.relative_to(TESTS).parts[0], {"quick", "fit_of", "fitted_images", "blobs", "digits"}
    return place == "nn" or (place in ("test_common.py", "methods") and bool(drawn & set(item.fixturenames)))


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"DIFFCLUST_TESTS_SEED={SEED}")


def pytest_collection_modifyitems(items):
    for item in items:
        if _is_quick(item) and not item.get_closest_marker("slow"):
            item.add_marker("quick")
        if _is_swept(item):
            item.add_marker("swept")
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(SEED)


@contextlib.contextmanager
def usual_size():
    """Inside, networks and layouts are as users have them."""
    for network, defaults in USUAL.items():
        network.__init__.__defaults__ = defaults
    layout.MAX_STEPS = USUAL_STEPS
    try:
        yield
    finally:
        _narrow()


@pytest.fixture(autouse=True)
def _size(request):
    with usual_size() if request.node.get_closest_marker("full_size") else contextlib.nullcontext():
        yield


@pytest.fixture(scope="module")
def usual_integrals():
    _integrate_by(USUAL_POINTS)
    yield
    _integrate_by(FEW_POINTS)


@pytest.fixture
def little_training(monkeypatch):
    """Where the code around is the point: "auto" epochs are few, and a map by t-SNE is left half done."""
    for name, value in {"auto_steps": (8, 8), "auto_most": (2, 2), "auto_least": (1, 1)}.items():
        monkeypatch.setattr(PrototypeClusterer, name, value)
    for name in ("STEPS_OF_ALL_ROWS", "STEPS_OF_SOME_ROWS"):
        monkeypatch.setattr(f"diffclust.estimator.settings.{name}", (30, 4))
    monkeypatch.setattr("diffclust.estimator.settings.STEPS_BY_ROOT", 0)
    monkeypatch.setattr("diffclust.methods.spectralnet.AUTO_STEPS", 4)
    for name in ("STEPS", "STEPS_OF_A_FRAME"):
        monkeypatch.setattr(f"diffclust.report.layout.{name}", (5, 10))


@pytest.fixture(params=ESTIMATORS)
def method(request):
    """Every estimator class in turn."""
    return getattr(diffclust, request.param)


@pytest.fixture
def quick(method):
    """An estimator of every method, with little training; keyword arguments change its settings. A test of a setting
    that a method does not have is skipped for it."""

    def build(n_clusters=3, **settings):
        missing = settings.keys() - {field.name for field in fields(method)}
        if missing:
            pytest.skip(f"{method.__name__} has no {', '.join(missing)}")
        return method(n_clusters, **{**quick_settings(method.__name__), **settings})

    return build


@pytest.fixture(scope="session")
def fit_of(digits):
    """A model of a method by its name, fitted to images of four digits: one for all tests, which leave it as it is."""

    @functools.cache
    def fit(name):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return getattr(diffclust, name)(4, **quick_settings(name)).fit(digits[0])

    return fit


@pytest.fixture
def fitted_images(method, fit_of):
    """A model of every method."""
    return fit_of(method.__name__)


@pytest.fixture(scope="session")
def blobs():
    return make_blobs(150, 6, centers=3, cluster_std=0.5, random_state=3 + SEED)


@pytest.fixture(scope="session")
def digits():
    data = load_digits(n_class=4)
    some = np.random.default_rng(SEED).permutation(len(data.images))[:DIGITS] if SEED else slice(DIGITS)
    return (data.images[some] / 16).astype("float32"), data.target[some]


@pytest.fixture(scope="session")
def one_table_of_operators():
    """torch makes it anew for every ONNX file, which takes as long as the rest."""
    registry = import_module("torch.onnx._internal.exporter._registration").ONNXRegistry
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "from_torchlib", staticmethod(functools.cache(registry.from_torchlib)))
        yield


@pytest.fixture(scope="session")
def views():
    """Five things made of balls, each seen from 24 sides: images of uint8 (120, 10, 12), and which thing it is."""
    draw = np.random.default_rng(SEED)
    y, x = np.mgrid[-1:1:10j, -1:1:12j]
    images = []
    for _ in range(5):
        balls, grey = draw.normal(0, 0.4, (8, 3)), draw.uniform(0.3, 1, 8)
        for angle in np.linspace(0, 2 * np.pi, 24, endpoint=False):
            across = balls[:, 0] * np.cos(angle) + balls[:, 2] * np.sin(angle)
            squared = (x - across[:, None, None]) ** 2 + (y - balls[:, 1, None, None]) ** 2
            images.append((grey[:, None, None] * np.exp(-squared / 0.06)).max(0))
    order = draw.permutation(120)
    return (255 * np.array(images)).astype(np.uint8)[order], np.arange(5).repeat(24)[order]


# --- several fits at once


@pytest.fixture(params=[False, True], ids=["in turn", "side by side"])
def beside(request, monkeypatch):
    """One run after the other, and several at once as on a GPU."""
    if request.param:
        monkeypatch.setattr(callbacks, "PARALLEL_DEVICES", ("cpu", "cuda"))
    return request.param


@pytest.fixture
def at_once(monkeypatch):
    """How many restarts ran side by side, each time."""
    seen, side_by_side = [], loop._side_by_side

    def counted(restarts):
        groups = side_by_side(restarts)
        seen.extend(map(len, groups))
        return groups

    monkeypatch.setattr(loop, "_side_by_side", counted)
    return seen


# --- the command, in this process to be quick


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """run("fit", ...) -> exit code, stdout, stderr; in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["diffclust", *map(str, words)])
        capsys.readouterr()
        handler = signal.getsignal(signal.SIGINT)  # which the command ignores on its way out, as its children would
        try:
            with pytest.raises(SystemExit) as stopped:
                cli.main()
        finally:
            signal.signal(signal.SIGINT, handler)
        said = capsys.readouterr()
        return stopped.value.code, said.out, said.err

    return run


@pytest.fixture
def works(run):
    def works(*words):
        code, out, err = run(*words)
        assert (code, err) == (0, "")
        return out

    return works


@pytest.fixture
def refused(run):
    """That the command exits with 2 and says in one line what is wrong."""

    def refused(*words, says):
        code, out, err = run(*words)
        assert code == 2
        assert out == ""
        assert err.startswith("diffclust: ")
        assert err.endswith("\n")
        assert err.count("\n") == 1
        assert says in err
        return err

    return refused


@pytest.fixture(scope="session")
def browser():
    """One for all tests: starting it is slow."""
    from browser import Browser  # beside the tests that ask for it

    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def images(digits, tmp_path_factory):
    """A report of images, with labels and a record of training; and the model and rows it is about."""
    X, y = digits
    record = callbacks.TrainingRecord(frames=3, sample=60)
    model = diffclust.TELL(4, pretrain_epochs=10, epochs=6, random_state=0, device="cpu", callbacks=[record]).fit(X)
    return model.report(tmp_path_factory.mktemp("images") / "report.html", X, y, layout="PCA"), model, X
