"""A recorded step is replayed as it was: on a GPU whatever it reads beside the contents of tensors is frozen.

So two steps of one `graph_key` must find the same values, and the same tensors, in the attributes of the model. This is
watched on the CPU, where nothing is recorded: a flag that `before_epoch` turns, a number that a hook counts up or a
tensor that it replaces instead of filling fails here, and not silently on a GPU. So does a step that branches on a
tensor's value, which cannot be recorded."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from conftest import ESTIMATORS, train, ways
from diffclust import AEKMeans
from diffclust.engine.data import Batch, Data
from diffclust.engine.guard import Guard
from diffclust.engine.model import Trainable
from diffclust.engine.phase import Phase
from diffclust.engine.rows import TensorRows
from diffclust.engine.runtime import Randomness
from diffclust.nn.autoencoders import Autoencoder, Identity

CPU = torch.device("cpu")
CURE = (
    "These change between steps of one graph_key: put them into graph_key, or make them buffers and fill those. "
    "To let a part rest, name it in `frozen_parts`, which is part of the key; never switch requires_grad."
)
RECORDED = ("prepare", "losses", "after_backward", "after_step")
LOOKED = (
    "A step looks at the values of tensors, so on a GPU it waits and cannot be recorded: write torch.where instead of "
    "`if`, `*` instead of x[mask], no .item()."
)
OF_PYTHON = ("__dict__", "__class__")
# what is in them is not looked at: a module that is not the model's own, a class, the guard, which acts between epochs
CLOSED = (nn.Module, type, Guard)
OF_MODULES = ("_parameters", "_buffers", "_modules")  # what is in them is watched by its own name


class Reads:
    """What the steps found in the attributes of their models' modules."""

    def __init__(self):
        self.found = {}  # (graph_key, whose, name) -> the first value
        self.frozen = set()  # names of what another step of the same graph_key found changed
        self.kept = []  # so that no other object gets an old one's identity
        self.classes = {}

    def watched(self, kind):
        """A module's class, made to tell of every attribute it is asked for."""
        if kind not in self.classes:

            def __getattribute__(module, name):
                value = super(watched, module).__getattribute__(name)
                if name not in OF_PYTHON and name in super(watched, module).__getattribute__("__dict__"):
                    self.see(module, name, value)
                return value

            def __getattr__(module, name):
                value = super(watched, module).__getattr__(name)
                self.see(module, name, value)
                return value

            def __setattr__(module, name, value):
                self.written.add((id(module), name))
                super(watched, module).__setattr__(name, value)

            hooks = {f.__name__: f for f in (__getattribute__, __getattr__, __setattr__)}
            watched = type(kind.__name__, (kind,), hooks)
            self.classes[kind] = watched
        return self.classes[kind]

    def see(self, module, name, value):
        if name in OF_MODULES or (id(module), name) in self.written:  # the latter: of this very step
            return
        key, value = (self.key, self.names[id(module)], name), self.fingerprint(value)
        if self.found.setdefault(key, value) != value:
            self.frozen.add(f"{self.names[id(module)]}{name}")

    def fingerprint(self, value, around=()):
        """Plain values as they are, tensors by their place, other objects by their identity and what is in them."""
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes, torch.dtype, torch.device)):
            return type(value), value
        if isinstance(value, (list, tuple)):
            return type(value), tuple(self.fingerprint(each, around) for each in value)
        if isinstance(value, dict):
            return type(value), tuple((k, self.fingerprint(v, around)) for k, v in value.items())
        self.kept.append(value)
        if isinstance(value, torch.Tensor):
            return value.data_ptr(), value.shape, value.requires_grad
        if isinstance(value, np.ndarray):
            return id(value), value.tobytes()
        if isinstance(value, CLOSED) or id(value) in around or not hasattr(value, "__dict__"):
            return id(value)
        return id(value), self.fingerprint(vars(value), (*around, id(value)))

    def step(self, phase, step):
        modules = dict(phase.model.named_modules())
        self.key, self.written = phase.capture_key, set()
        self.kept.append(phase)
        self.names = {id(module): f"{path}." if path else "" for path, module in modules.items()}
        kinds = {path: type(module) for path, module in modules.items()}
        for path, module in modules.items():
            object.__setattr__(module, "__class__", self.watched(kinds[path]))
        try:
            step(phase)
        finally:
            for path, module in modules.items():
                object.__setattr__(module, "__class__", kinds[path])


@pytest.fixture
def reads(monkeypatch):
    reads, step = Reads(), Phase.step
    monkeypatch.setattr(Phase, "step", lambda phase: reads.step(phase, step))
    return reads


@pytest.mark.filterwarnings("ignore", category=ConvergenceWarning)
@pytest.mark.parametrize(("network", "data"), [("auto", "rows"), ("identity", "rows"), ("auto", "images")])
def test_what_a_step_reads_is_covered_by_its_graph_key(quick, blobs, digits, reads, network, data):
    X = blobs[0][:60] if data == "rows" else digits[0][:40]
    quick(network=network, pretrain_epochs=2, epochs=5, batch_size=len(X) // 2).fit(X)
    assert reads.found
    assert not reads.frozen, CURE


@pytest.mark.filterwarnings("ignore", category=ConvergenceWarning)
@pytest.mark.parametrize("method", [name for name in ESTIMATORS if len(ways(name)) > 1], indirect=True)
def test_either_way_to_train(method, quick, blobs, reads):
    """With the network at rest, or learning on, whichever a method does not do by itself."""
    quick(joint=not method.joint, batch_size=30).fit(blobs[0][:90])
    assert reads.found
    assert not reads.frozen, CURE


@pytest.mark.filterwarnings("ignore", category=ConvergenceWarning)
def test_nor_does_it_change_many_epochs_later(method, quick, blobs, reads):
    """A schedule may begin to act long after the few epochs that a test has time for."""
    if method is AEKMeans:
        pytest.skip("its clustering takes no gradient steps")
    estimator = quick(batch_size=30)
    data = Data(TensorRows(torch.from_numpy(blobs[0][:90]).float()), CPU, 30)
    model = estimator.build_model(estimator.build_autoencoder(data), len(data))
    phase = Phase("clustering", model, data, estimator.build_optimizer(model), 100)
    phase.start()
    for epoch in (0, 1, 2, 3, 5, 10, 31, 60):
        phase.history = [{}] * epoch
        phase.begin_epoch()
        phase.begin_step(0, Randomness(0, CPU))
        phase.step()
    assert reads.found
    assert not reads.frozen, CURE


class Looks(TorchDispatchMode):
    """Operations whose result or its shape depends on values of tensors, by torch's own tags. `.tolist()` and
    `.numpy()` are not seen on a CPU."""

    tags = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)

    def __init__(self, found, hook):
        super().__init__()
        self.found, self.hook = found, hook

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        looks = any(tag in op.tags for tag in self.tags)
        if op is torch.ops.aten.index.Tensor:  # by numbers or by a mask
            looks = any(i is not None and i.dtype == torch.bool for i in args[1])
        if looks:
            self.found.add(f"{self.hook}: {op}")
        return op(*args, **(kwargs or {}))


@pytest.fixture
def looks(monkeypatch):
    """What the recorded hooks of all models look at."""
    found, step = set(), Phase.step

    def watched(own, hook):
        def call(*args):
            with Looks(found, hook):
                return own(*args)

        return call

    def step_watched(phase):
        model = phase.model
        for hook in RECORDED:
            setattr(model, hook, watched(getattr(model, hook), hook))
        try:
            step(phase)
        finally:
            for hook in RECORDED:
                delattr(model, hook)

    monkeypatch.setattr(Phase, "step", step_watched)
    monkeypatch.setattr(Identity, "normalize", Autoencoder.normalize)  # whose short cut is for CPUs alone
    return found


@pytest.mark.filterwarnings("ignore", category=ConvergenceWarning)
@pytest.mark.parametrize("features", ["reconstruction", "neighbours"])
def test_a_step_looks_at_no_value(quick, blobs, looks, features):
    quick(features=features, pretrain_epochs=2, epochs=5, batch_size=30).fit(blobs[0][:90])
    assert not looks, LOOKED


# ---- that it would be noticed


class Toy(Trainable):
    """Takes turns, by whatever its subclasses say."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self.turn = 0
        self.register_buffer("target", torch.zeros(()))

    def loss(self, batch: Batch):
        return {"loss": (self.layer(batch.x) - self.target).square().mean()}


class Flag(Toy):
    def before_epoch(self, epoch, data):
        self.turn = epoch % 2

    def loss(self, batch):
        return {"loss": super().loss(batch)["loss"] if self.turn else self.layer(batch.x).abs().mean()}


class Covered(Flag):
    def before_epoch(self, epoch, data):
        self.turn = self.graph_key = epoch % 2


class InAList(Flag):
    def __init__(self):
        super().__init__()
        self.turns = [0]

    def before_epoch(self, epoch, data):
        self.turns[0] = epoch % 2

    def loss(self, batch):
        return {"loss": (1 + self.turns[0]) * super().loss(batch)["loss"]}


class InAnObject(Toy):
    """Which refers to itself, as objects may."""

    def __init__(self):
        super().__init__()
        self.now = SimpleNamespace(turn=0, seen=[np.zeros(1)])
        self.now.itself = self.now

    def before_epoch(self, epoch, data):
        self.now.turn = epoch % 2

    def loss(self, batch):
        return {"loss": (1 + self.now.turn) * super().loss(batch)["loss"]}


class InAnArray(InAnObject):
    def before_epoch(self, epoch, data):
        self.now.seen[0] += 1


class InAnObjectOfTensors(InAnObject):
    def before_epoch(self, epoch, data):
        self.target.fill_(epoch)


class SwitchedOff(Toy):
    """Lets its layer rest by `requires_grad`, which a recorded step has settled for good."""

    def before_epoch(self, epoch, data):
        self.layer.bias.requires_grad_(epoch % 2 == 0)


class Counting(Toy):
    def after_step(self, batch):
        self.turn += 1


class OfALayer(Toy):
    def after_epoch(self, epoch, data):
        self.layer.sharpness = epoch

    def loss(self, batch):
        return {"loss": getattr(self.layer, "sharpness", 0) + super().loss(batch)["loss"]}


class Replaced(Toy):
    def before_epoch(self, epoch, data):
        self.target = torch.tensor(float(epoch))


class Filled(Toy):
    def before_epoch(self, epoch, data):
        self.target.fill_(epoch)


class NotRead(Toy):
    def before_epoch(self, epoch, data):
        self.turn = epoch


class OfTheStep(Toy):
    """What a step writes before it reads it is no matter."""

    def loss(self, batch):
        self.z = self.layer(batch.x)
        return {"loss": self.z.square().mean()}

    def after_step(self, batch):
        self.target += self.z.detach().mean()


class Branching(Toy):
    def loss(self, batch):
        loss = super().loss(batch)["loss"]
        return {"loss": 2 * loss if loss > 1 else loss}


class Choosing(Toy):
    """By `torch.where`, and rows by their numbers."""

    def loss(self, batch):
        loss = super().loss(replace(batch, x=batch.x[torch.arange(3)]))["loss"]
        return {"loss": torch.where(loss > 1, 2 * loss, loss)}


class Picking(Toy):
    def after_step(self, batch):
        self.target += batch.x[batch.x[:, 0] > 0].sum()


class Reading(Toy):
    def after_backward(self):
        self.layer.weight.grad.mul_(self.target.item())


class Decaying(Flag):
    """Another rate is another recording."""

    def lr_factor(self, epoch):
        return 1 / (1 + epoch)


@pytest.mark.parametrize(
    ("toy", "frozen"),
    [
        (Flag, {"turn"}),
        (InAList, {"turns"}),
        (InAnObject, {"now"}),
        (InAnArray, {"now"}),
        (InAnObjectOfTensors, set()),
        (SwitchedOff, {"layer.bias"}),
        (Counting, {"turn"}),
        (OfALayer, {"layer.sharpness"}),
        (Replaced, {"target"}),
        (Covered, set()),
        (Filled, set()),
        (NotRead, set()),
        (OfTheStep, set()),
        (Decaying, set()),
    ],
)
def test_a_trap_is_named(reads, toy, frozen):
    model = toy()
    data = Data(TensorRows(torch.randn(12, 2)), CPU, 6)
    train([Phase("toy", model, data, torch.optim.SGD(model.parameters(), 1e-3), 4)])
    assert reads.frozen == frozen
    assert type(model) is toy


@pytest.mark.parametrize(
    ("toy", "hooks"),
    [
        (Branching, {"losses"}),
        (Reading, {"after_backward"}),
        (Picking, {"after_step"}),
        (Choosing, set()),
        (Filled, set()),
        (OfTheStep, set()),
    ],
)
def test_a_look_is_named(looks, toy, hooks):
    model = toy()
    data = Data(TensorRows(torch.randn(12, 2)), CPU, 6)
    train([Phase("toy", model, data, torch.optim.SGD(model.parameters(), 1e-3), 2)])
    assert {each.partition(":")[0] for each in looks} == hooks
