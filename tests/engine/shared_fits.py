"""What test_distributed.py runs in two processes, and then in one: every fit with the same global batches. And a fit to
be killed."""

import contextlib
import json
import os
import signal
import threading
import time
import warnings
from unittest.mock import patch

import numpy as np
import torch
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import ConvergenceWarning

import diffclust
from diffclust.engine import checkpoint
from diffclust.engine.phase import Phase
from diffclust.methods import METHODS
from diffclust.nn import parallel
from diffclust.nn.autoencoders import ConvAutoencoder, DenseAutoencoder
from processes import command

# 20 steps in all: 2 an epoch; nothing is random about single rows, and 31 rows cannot be halved
SETTINGS = {"random_state": 0, "device": "cpu", "augment": None, "batch_size": 31, "pretrain_epochs": 3, "epochs": 7}
# and of the methods that have them: nothing dropped or hidden, no early end, every hook in use
STEADY = {"dropout": 0.0, "noise": 0.0, "tolerance": 0, "interval": 3, "joint": True}
OWN = {
    "KMeansNet": {"repair": False},
    # slowly: this embedding is made 33 times as large, and rounding soon shows, in one process too
    "CrossMetric": {"repair": False, "lr": 1e-4},
    "VaDE": {"repair": False},
}
DIVISIBLE = [method.estimator for method in METHODS if not method.load().why_not_shared]
INDIVISIBLE = [method.estimator for method in METHODS if method.load().why_not_shared]
KILLED_ROWS = 100
KILLED = {"random_state": 0, "network": "dense", "pretrain_epochs": 2, "epochs": 4}


def rows():
    return make_blobs(62, 6, centers=3, cluster_std=0.5, random_state=3)[0].astype(np.float32)


def images(n=62):
    return (load_digits(n_class=4).images[:n] / 16).astype(np.float32)


def narrow():
    """With embeddings far enough apart that no assignment is near to uniform, where means hardly matter."""
    torch.manual_seed(0)
    network = DenseAutoencoder((6,), 4, hidden=(16, 8))
    assert network.magnify(10.0)
    return network


def narrow_conv():
    torch.manual_seed(0)
    return ConvAutoencoder((1, 8, 8), 10, "sigmoid", hidden=64)


def build(method, **settings):
    steady = {name: value for name, value in STEADY.items() if name in method.__dataclass_fields__}
    return method(3, **{"network": narrow(), **SETTINGS, **steady, **OWN.get(method.__name__, {}), **settings})


class Balanced(diffclust.DCN):
    """A method with a term of the mean assignment of a batch, which is over the rows of all processes."""

    mean = staticmethod(parallel.batch_mean)
    size, begins = 1.0, 0  # of the term, and the epoch in which it begins

    def build_model(self, autoencoder, n_samples):
        model = super().build_model(autoencoder, n_samples)
        own, begin, factor = model.loss, model.before_epoch, torch.zeros(())

        def before_epoch(epoch, data):
            begin(epoch, data)
            factor.fill_(self.size if epoch >= self.begins else 0)

        def loss(batch):
            q = torch.softmax(-model.clusters.distances(model.embed(batch.x)), dim=1)
            return {**own(batch), "balance": factor * self.balance(q)}

        model.before_epoch, model.loss = before_epoch, loss
        return model

    def balance(self, q):
        return self.mean(q).square().sum()


class Careless(Balanced):
    """The same with a mean over the rows that one process has."""

    mean = staticmethod(lambda q: q.mean(0))


class CarelessLater(Careless):
    """The same with a term that is small, and zero in the first epoch."""

    size, begins = 0.001, 1


class Undefined(Balanced):
    """An entropy by p log p, which is NaN where p is zero."""

    def balance(self, q):
        p = torch.softmax(1e4 * q, dim=1)
        return -(p * p.log()).sum(1).mean()


CARELESS = ("Careless", "CarelessLater")


@contextlib.contextmanager
def nothing_drawn():
    """Random numbers for every value of a batch would not be those of one process: here they are all the same."""
    before = torch.randn_like, torch.rand_like
    torch.randn_like = torch.rand_like = lambda x, **options: torch.full_like(x, 0.5)
    try:
        yield
    finally:
        torch.randn_like, torch.rand_like = before


def fits():
    """(name, estimator, data)"""
    for name in DIVISIBLE:
        yield name, build(getattr(diffclust, name)), rows()
    for method in (Balanced, Careless, CarelessLater):
        yield method.__name__, build(method), rows()
    # slowly: rounding turns a ReLU here and there, and at the usual rate of Adam that soon shows, in one process too
    yield "TELL conv", diffclust.TELL(4, network=narrow_conv(), lr=1e-4, **SETTINGS), images()
    yield "TELL optimizer", diffclust.TELL(3, network=narrow(), center_update="optimizer", **SETTINGS), rows()
    yield "KMeansNet after", diffclust.KMeansNet(3, network=narrow(), **SETTINGS), rows()
    yield "CrossMetric two", build(diffclust.CrossMetric, metric=["euclidean", "cosine"], detach="none"), rows()
    yield "TELL neighbours", build(diffclust.TELL, network="auto", features="neighbours", lr=1e-4), rows()
    yield "DEC neighbours", build(diffclust.DEC, network="auto", features="neighbours", lr=1e-4), rows()
    yield "DeepKMeans l2", build(diffclust.DeepKMeans, l2=0.01, weight=1.0), rows()


def outcomes():
    with nothing_drawn():
        return {name: outcome(estimator.fit(X)) for name, estimator, X in fits()}


def outcome(estimator):
    return {
        "history": estimator.history_,
        "labels": estimator.labels_.tolist(),
        "centers": estimator.cluster_centers_.tolist(),
        "figures": [estimator.inertia_, estimator.clustering_loss_, estimator.temperature_],
        "runs": [run["seed"] for run in estimator.runs_],
    }


def batch_norms(part):
    """Of a batch of 8 rows, of which `part` is ours: outputs, gradients, running statistics; in float64."""
    results = []
    for shape, affine in [((8, 3), True), ((8, 3, 4, 5), True), ((8, 3, 6), False)]:
        torch.manual_seed(1)
        kind = {2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm1d, 4: torch.nn.BatchNorm2d}[len(shape)]
        norm = kind(3, affine=affine).double()
        for weight in norm.parameters():
            torch.nn.init.uniform_(weight)
        x = (3 * torch.randn(shape, dtype=torch.float64) + 100)[part].requires_grad_()
        goal = torch.randn(shape, dtype=torch.float64)[part]
        with parallel.shared_norms():
            y = norm(x)
        y.mul(goal).sum().backward()
        gradients = [parallel.total(weight.grad).tolist() for weight in norm.parameters()]
        results.append(
            {
                "rows": [y.tolist(), x.grad.tolist()],
                "all": [gradients, norm.running_mean.tolist(), norm.running_var.tolist()],
            }
        )
    return results


def network(part):
    """A convolutional network's gradients, in float64."""
    torch.manual_seed(3)
    network = ConvAutoencoder((1, 8, 8), 4, hidden=16).double()
    x = torch.randn(8, 1, 8, 8, dtype=torch.float64)[part]
    with parallel.shared_norms():
        loss = len(x) / 8 * network.reconstruction_loss(x, network.encode(x))
    loss.backward()
    gradients = [parallel.total(weight.grad).flatten() for weight in network.parameters()]
    return {"rows": [], "all": [parallel.total(loss.detach()).item(), torch.cat(gradients).tolist()]}


def sums(part):
    """A loss through a mean over the whole batch, which has a gradient too."""
    torch.manual_seed(2)
    x = torch.randn(8, 3, dtype=torch.float64)[part].requires_grad_()
    (x - parallel.batch_mean(x)).pow(3).sum().backward()
    return {"rows": [x.grad.tolist()], "all": []}


def exact(part):
    return [*batch_norms(part), network(part), sums(part)]


def complaint(work):
    try:
        work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def errors(rank, folder):
    X = rows()
    bad = X.copy()
    bad[40:] = np.nan  # the second process's
    other = X.copy()
    other[40, 3] += 1e-3 * rank
    mapped = np.memmap(folder / f"bad-{rank}.bin", np.float32, "w+", shape=X.shape)
    mapped[:] = bad
    tell = diffclust.TELL(3, network="identity", epochs=1, random_state=0, batch_size=31)
    return {
        "no rows": complaint(lambda: tell.fit(X if rank == 0 else X[:0])),
        "fewer rows": complaint(lambda: tell.fit(X if rank == 0 else X[:40])),
        "values": complaint(lambda: tell.fit(other)),
        "nan": complaint(lambda: tell.fit(mapped)),
        "settings": complaint(lambda: diffclust.TELL(3 + rank, network="identity", epochs=1).fit(X)),
        "one setting": complaint(lambda: diffclust.TELL(3, batch_size=1 + rank).fit(X)),
        "SSC": complaint(lambda: diffclust.SSC(3).fit(X)),
        **{name: complaint(lambda name=name: getattr(diffclust, name)(3).fit(X)) for name in INDIVISIBLE},
    }


def without_room(folder):
    """A fit whose checkpoints cannot be written: the leader's trouble alone."""

    def full(*_):
        raise OSError("No space left on device")

    with patch.object(checkpoint, "write_flushed", full), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return diffclust.TELL(4, device="cpu", checkpoint=folder, checkpoint_every=1, **KILLED).fit(images(KILLED_ROWS))


def begin(**variables):
    """As a process of its own begins: a stranger to the tests' settings."""
    os.environ |= {**variables, "CUDA_VISIBLE_DEVICES": ""}
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", category=ConvergenceWarning)


def together(folder, **variables):
    begin(**variables)
    with diffclust.distributed() as processes:
        result = outcomes()
        result["drawn"] = outcome(build(diffclust.VaDE, epochs=2).fit(rows()))
        with processes.sharing():
            part = (slice(0, 3), slice(3, 8))[processes.rank]
            result["exact"] = exact(part)
        stop = [lambda progress: setattr(progress, "stop", processes.rank == 1 and progress.epoch == 2)]
        result["stopped"] = outcome(diffclust.TELL(3, network=narrow(), **{**SETTINGS, "callbacks": stop}).fit(rows()))
        result["restarts"] = outcome(diffclust.TELL(4, n_init=3, epochs=2, pretrain_epochs=2).fit(images()))
        result["file"] = outcome(
            diffclust.TELL(3, network="identity", epochs=3, random_state=0).fit(folder / "rows.npy")
        )
        result["uninterrupted"] = outcome(diffclust.TELL(4, device="cpu", **KILLED).fit(images(KILLED_ROWS)))
        result["full disk"] = outcome(without_room(folder / "full"))
        result["errors"] = errors(processes.rank, folder)
        # answers are not shared: one process may ask alone
        model = diffclust.TELL(3, network="identity", epochs=1, random_state=0).fit(rows())
        if processes.leads:
            result["alone"] = [model.predict(rows()).tolist(), model.labels_.tolist()]
            model.partial_fit(rows()[:20])
        (folder / f"{processes.rank}.json").write_text(json.dumps(result))


def killed(folder):
    """The command, in which the second process is killed as soon as there is a checkpoint; only the first time."""
    begin()
    times, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]

    def kill():
        while not list((folder / "ckpt").glob("*.ckpt")):
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGKILL)

    restore = Phase.load_state

    def told(phase, state):
        with (folder / "restored").open("a") as file:
            file.write(f"{rank}:{times}:{len(state['history'])} ")
        restore(phase, state)

    Phase.load_state = told
    if times == "0" and rank == "1":
        threading.Thread(target=kill, daemon=True).start()
    settings = {**KILLED, "checkpoint_every": 1}.items()
    flags = [word for name, value in settings for word in ("--set", f"{name}={value}")]
    command(folder, ["fit", "images.npy", "-k", "4", "--out", "out", "--checkpoint", "ckpt", *flags])


ALONE = {"network": "identity", "epochs": 3, "n_init": 2, "random_state": 0, "device": "cpu"}


def fit_and_wait(folder):
    """Stops in the second of three epochs of the second restart, and waits to be killed."""

    def wait(progress):
        if (progress.restart, progress.phase, progress.epoch) == (1, "clustering", 1):
            (folder / "waits").touch()
            time.sleep(600)

    begin()
    model = diffclust.TELL(4, **ALONE, checkpoint=folder / "checkpoint", checkpoint_every=1, callbacks=[wait])
    model.fit(np.load(folder / "x.npy"))
