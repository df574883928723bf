"""Arrays and settings of every kind, right and wrong, for every estimator and baseline."""

import contextlib
import io
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from sklearn.datasets import make_blobs
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from diffclust.baselines import BASELINES
from diffclust.baselines.clusterer import ClassicalClusterer
from diffclust.estimator.knobs import rules_of
from diffclust.methods import METHODS, TRANSDUCTIVE

sys.path.insert(0, str(Path(__file__).parents[1] / "saving"))
from make_fixtures import NARROW, narrow

QUICK = {"pretrain_epochs": 1, "epochs": 1, "layer_epochs": 0, "random_state": 0, "device": "cpu", "embedding_dim": 3}
QUICK |= {"n_atoms": 8, "max_iter": 50}
NETWORKS = [method.load() for method in METHODS]
CLASSICAL = sorted({each.load() for each in BASELINES.values() if each.module.startswith(".")}, key=str)
ESTIMATORS = [*NETWORKS, *NETWORKS, *(method.load() for method in TRANSDUCTIVE), *CLASSICAL]  # networks twice as often


def estimator_of(cls, k=3, **settings):
    names = set(cls().get_params())
    return cls(k, **{name: value for name, value in {**QUICK, **settings}.items() if name in names})


@contextlib.contextmanager
def small():
    """Inside, networks are narrow, and nobody prints."""
    before = {network: network.__init__.__defaults__ for network in NARROW}
    narrow()
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        for network, defaults in before.items():
            network.__init__.__defaults__ = defaults


# --- arrays

KINDS = ["?", "i1", "u1", "i2", "u2", "i4", "i8", "u8", "f2", "f4", "f8", ">f8", "g", "F", "D", "O", "U", "S", "M8[s]"]
KINDS += ["m8[s]", "V8"]
SHAPES = [(30, 4)] * 6 + [(30, 8, 8), (30, 8, 8, 3), (30, 1), (30, 150), (2, 3), (3, 3)]
ODD_SHAPES = [(), (30,), (0, 4), (30, 0), (1, 4), (30, 2, 2), (5, 4, 4, 4, 4), (30, 8, 8, 7), (2, 4), (30, 1, 1)]


def numbers(rng, shape):
    """Rows with clusters, with something about their values."""
    draw = np.random.default_rng(rng.randrange(2**32))
    clusters = 5 * draw.integers(0, 3, shape[:1])
    X = np.array(draw.normal(size=shape) + clusters.reshape(-1, *[1] * (len(shape) - 1)) if shape else 1.5)
    what = rng.choice(
        ["plain"] * 4 + ["constant", "zero", "twice", "huge", "tiny", "far", "wide", "one", "nan", "inf", "dull"]
    )
    if what == "constant":
        X = np.full(shape, 3.7)
    elif what == "zero":
        X = np.zeros(shape)
    elif what == "twice" and X.ndim > 1:
        X[:] = X[draw.integers(0, 2, len(X))] if len(X) > 1 else X
    elif what in ("huge", "tiny", "far"):
        by = rng.choice([1e10, 1e30, 3e38, 1e100, 1e300])
        X = X * by if what == "huge" else X / by if what == "tiny" else X + min(by, 1e15)
    elif what == "wide" and X.ndim > 1 and X.shape[1]:
        X[:, 0] *= 1e12
    elif what == "dull" and X.ndim > 1:
        X[1:] = X[:1]
    elif what in ("one", "nan", "inf") and X.ndim and X.size:
        place = tuple(rng.randrange(size) for size in shape)
        X[place] = {"one": 1e30, "nan": np.nan, "inf": rng.choice([np.inf, -np.inf])}[what]
    return np.asarray(X)


def typed(rng, X):
    kind = rng.choice(KINDS if rng.random() < 0.5 else ["f4", "f8"])
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "O":
            X = X.astype(object)
            if X.size and rng.random() < 0.7:
                X.flat[rng.randrange(X.size)] = rng.choice([None, "x", 1 + 2j, [1], b"y", 10**400, {}])
            return X
        if kind in ("M8[s]", "m8[s]"):
            X = np.nan_to_num(X, posinf=0, neginf=0).clip(-1e9, 1e9).astype("i8").astype(kind)
            if X.size and rng.random() < 0.5:
                X.flat[0] = "NaT"
            return X
        if kind == "V8":
            return np.zeros(X.shape, "V8")
        if kind[0] in "iu?":
            X = np.nan_to_num(X, posinf=0, neginf=0)
        return X.astype(kind)


def laid(rng, X):
    """The same values in another order of memory."""
    what = rng.choice(["C", "F", "strided", "backwards", "read-only", "view"])
    if what == "F":
        X = np.asfortranarray(X)
    elif what == "strided" and X.ndim:
        X = np.repeat(X, 2, axis=0)[::2]
    elif what == "backwards" and X.ndim:
        X = X[::-1]
    elif what == "read-only":
        X = X.copy()
        X.setflags(write=False)
    elif what == "view" and X.ndim > 1:
        X = X.swapaxes(0, 1).copy().swapaxes(0, 1)
    return X


class Listed(Dataset):
    def __init__(self, X):
        self.X = X

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        return self.X[i]


class Flowing(IterableDataset):
    def __init__(self, X):
        self.X = X

    def __iter__(self):
        return iter(self.X)


def mapped(X, folder):
    folder.mkdir(exist_ok=True)
    np.save(folder / "x.npy", X)
    return np.load(folder / "x.npy", mmap_mode="r")


def tensor(rng, X):
    x = torch.from_numpy(np.array(X))
    what = rng.randrange(8)
    if what == 0:
        return x.requires_grad_(x.is_floating_point())
    if what == 1:
        return x.to(torch.bfloat16)
    if what == 2:
        return x.to_sparse()
    if what == 3:
        return x.T if x.ndim == 2 else x
    return x


SPARSE = [sp.csr_matrix, sp.csc_array, sp.coo_matrix, sp.bsr_array, sp.lil_matrix]
NOTHING = [None, 5, "", "x", {}, [], object(), b"x"]
CONTAINERS = {
    "array": lambda rng, X, folder: X,
    "list": lambda rng, X, folder: X.tolist(),
    "tuple": lambda rng, X, folder: tuple(map(tuple, X)) if X.ndim == 2 else tuple(X.tolist() if X.ndim else ()),
    "tensor": lambda rng, X, folder: tensor(rng, X),
    "frame": lambda rng, X, folder: pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])]),
    "frame of kinds": lambda rng, X, folder: mixed_frame(rng, X),
    "sparse": lambda rng, X, folder: rng.choice(SPARSE)(X),
    "memmap": lambda rng, X, folder: mapped(X, folder),
    "path": lambda rng, X, folder: (mapped(X, folder), folder / "x.npy")[1],
    "dataset": lambda rng, X, folder: Listed(X),
    "tensor dataset": lambda rng, X, folder: TensorDataset(torch.from_numpy(np.array(X))),
    "stream": lambda rng, X, folder: Flowing(X),
    "loader": lambda rng, X, folder: DataLoader(Listed(X), batch_size=7),
    "matrix": lambda rng, X, folder: np.asmatrix(X),
    "masked": lambda rng, X, folder: np.ma.masked_array(X, np.zeros(X.shape, bool)),
    "nothing": lambda rng, X, folder: rng.choice([*NOTHING, X.shape, (i for i in range(3))]),
}  # fmt: skip


def mixed_frame(rng, X):
    frame = pd.DataFrame(X)
    frame.columns = [f"c{i}" for i in range(frame.shape[1])]
    n = len(frame)
    columns = {
        "word": [rng.choice(["a", "b", None]) for _ in range(n)],
        "text": [rng.choice(["some words here", "others there", ""]) for _ in range(n)],
        "when": pd.Series(pd.date_range("2024-01-01", periods=n)).where(np.arange(n) % 5 > 0),
        "whole": pd.array([rng.choice([1, 2, None]) for _ in range(n)], "Int64"),
        "flag": pd.array([rng.choice([True, False, None]) for _ in range(n)], "boolean"),
        "kind": pd.Categorical([rng.choice(["u", "v"]) for _ in range(n)]),
        "odd": [rng.choice([1, "x", None, 2.5, b"z", [1], float("inf")]) for _ in range(n)],
        "long": [rng.choice([10**400, 1]) for _ in range(n)],
        "c0": [1] * n,
    }
    for name in rng.sample(list(columns), rng.choice([1, 2])):
        frame.insert(0, name, columns[name], allow_duplicates=True)
    return frame


def hostile_array(rng, folder, shapes=SHAPES):
    """What it is in words, and the thing; of one of these shapes, or an odd one."""
    shape = rng.choice(shapes if rng.random() < 0.8 else ODD_SHAPES)
    X = laid(rng, typed(rng, numbers(rng, shape)))
    container = rng.choice(list(CONTAINERS)) if rng.random() < 0.7 else "array"
    try:
        return f"{container}", CONTAINERS[container](rng, X, folder)
    except (ValueError, TypeError, IndexError, OverflowError, NotImplementedError):  # there is no such thing
        return "array", X


# --- what is asked of them


def check_answers(model, X, labels):
    k = model.n_clusters
    labels = np.asarray(labels)
    assert labels.min() >= 0, "a label that is none"
    assert labels.max() < k, "a label that is none"
    if not hasattr(model, "predict_proba"):
        return
    again, chances = np.asarray(model.predict(X)), np.asarray(model.predict_proba(X))
    assert np.array_equal(again, labels), "predict is not labels_"
    assert np.isfinite(chances).all(), "an answer that is not a number"
    assert np.abs(chances.sum(1) - 1).max() < 1e-3, "probabilities that do not sum to one"


def fitted_attributes(model):
    return {name for name in vars(model) if name.endswith("_") and not name.startswith("_")}


class Arrays:
    """`fit` on any thing."""

    def make(self, rng, folder):
        cls = rng.choice(ESTIMATORS)
        what, X = hostile_array(rng, folder)
        return f"array: {cls.__name__}, {what}", lambda: self.fit(cls, X)

    def fit(self, cls, X):
        model = estimator_of(cls, 2)
        with small():
            try:
                model.fit(X)
            except (ValueError, TypeError):
                if not issubclass(cls, ClassicalClusterer):  # which scikit-learn's check writes to
                    assert not fitted_attributes(model), "an error that leaves the estimator half fitted"
                raise
            check_answers(model, X, model.labels_)


class Questions:
    """Any thing asked of an estimator that is fitted to rows, images or a table."""

    def __init__(self):
        rows, _ = make_blobs(40, 4, centers=3, random_state=0)
        images = np.random.default_rng(0).random((30, 8, 8))
        table = pd.DataFrame({"a": rows[:, 0], "b": list("uv") * 20, "c": rows[:, 1]})
        self.data, self.models = {"rows": rows, "images": images, "table": table}, {}

    def fitted(self, cls, kind):
        if (cls, kind) not in self.models:
            with small(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.models[cls, kind] = estimator_of(cls, 3).fit(self.data[kind])
        return self.models[cls, kind]

    def make(self, rng, folder):
        kind = rng.choice(list(self.data))
        model, good = self.fitted(rng.choice(NETWORKS), kind), self.data[kind]
        name = rng.choice(
            ["predict", "predict_proba", "transform", "inverse_transform", "score", "partial_fit", "explain"]
        )
        fits = model.cluster_centers_.shape if name == "inverse_transform" else good.shape
        what, X = hostile_array(rng, folder, [fits, *SHAPES] if rng.random() < 0.2 else [fits])
        return f"question: {name}, {what}", lambda: self.ask(model, name, X, good)

    def ask(self, model, name, X, good):
        before = model.predict(good)
        try:
            with small():
                if name == "partial_fit" and not hasattr(model, "partial_fit"):
                    return
                answer = getattr(model, name)(X)
                if name not in ("partial_fit", "explain"):
                    values = answer.numpy() if isinstance(answer, torch.Tensor) else np.asarray(answer)
                    assert np.isfinite(values).all(), "an answer that is not a number"
        except (ValueError, TypeError):
            learnt = name == "partial_fit" and isinstance(X, DataLoader)  # the batches before a bad one are
            assert learnt or np.array_equal(model.predict(good), before), "an error that changes the estimator"
            raise


VALUES = [
    0,
    -1,
    1,
    2,
    3,
    -(10**9),
    1.5,
    0.0,
    -0.5,
    1e-320,
    1e308,
    float("nan"),
    float("inf"),
    -float("inf"),
    True,
    False,
]
VALUES += [None, "", "x", "auto", "cpu", "cuda:99", b"x", [], {}, (), [1], [None], {"a": "number"}, object(), int, len]
VALUES += [lambda *args, **options: None, np.int64(3), np.float32(0.5), np.array([1, 2]), np.str_("x"), np.nan]
VALUES += [torch.tensor(1.0), torch.nn.Identity(), complex(1, 1), 10**30, "None", "adam", np.zeros((3, 3)), np.eye(3)]
COUNTS = ("n_clusters", "batch_size", "checkpoint_every", "random_state", "verbose")  # that may be large


class Settings:
    """One setting, or two, that may be wrong; the rows are right."""

    def __init__(self):
        rows, _ = make_blobs(40, 4, centers=3, random_state=0)
        self.rows = rows - rows.min()  # some methods are for values of zero and more
        self.images = np.random.default_rng(0).random((30, 8, 8))

    def make(self, rng, folder):
        cls = rng.choice(ESTIMATORS)
        names = rng.sample(sorted(cls().get_params()), rng.choice([1, 1, 1, 2]))
        changes = {name: self.value(rng, cls, name, folder) for name in names}
        X = self.images if rng.random() < 0.2 and cls not in CLASSICAL else self.rows
        return f"setting: {cls.__name__}", lambda: self.fit(cls, changes, X)

    def value(self, rng, cls, name, folder):
        if name == "checkpoint":
            folder.mkdir(exist_ok=True)
            (folder / "file").write_text("x")
            return rng.choice(
                [5, object(), b"x", 1.5, folder / "new", folder / "file", str(folder / "file" / "in"), None]
            )
        words = next(rule.words for rule in rules_of(cls) if rule.name == name)
        value = rng.choice(words) if words and rng.random() < 0.5 else rng.choice(VALUES)
        own = name in ("distance", "reconstruction") and callable(value)
        if own:  # code of the user's own, which fails in its own words
            return "x"
        large = isinstance(value, (int, float)) and not isinstance(value, bool) and value > 100
        return 2 if large and isinstance(value, int) and name not in COUNTS else value

    def fit(self, cls, changes, X):
        with small():
            try:
                k = changes.get("n_clusters", 3)
                model = estimator_of(cls, k, **{name: value for name, value in changes.items() if name != "n_clusters"})
                model.fit(X)
            except (ValueError, TypeError, OSError) as error:
                said = str(error)
                assert any(name in said for name in changes), f"an error that names none of {changes}: {said}"
                raise
            check_answers(model, X, model.labels_)


class Baselines:
    def make(self, rng, folder):
        name = rng.choice(list(BASELINES))
        good, _ = make_blobs(30, 4, centers=3, random_state=0)
        what, X = hostile_array(rng, folder) if rng.random() < 0.7 else ("rows", good)
        k = 3 if what != "rows" else rng.choice([0, -1, 1, 30, 31, 2.0, 2.5, None, "3", True, np.int64(3), 10**12])
        seed = 0 if what != "rows" or rng.random() < 0.7 else rng.choice([-1, None, 2**40, "x"])
        return f"baseline: {name}, {what}", lambda: self.label(name, X, k, seed)

    def label(self, name, X, k, seed):
        labels = BASELINES[name](X, k, seed)
        assert labels.min() >= 0, "a label that is none"
        assert labels.max() < k, "a label that is none"
