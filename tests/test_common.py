"""What every method promises, whoever wrote it: scikit-learn's own checks, then the product's contract."""

import contextlib
import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import diffclust
from conftest import ESTIMATORS, SEED, TWO_METHODS, failed_checks, learns_network_online, quick_settings, two_methods
from diffclust.engine.rows import ArrayRows
from diffclust.reading.inputs import read_rows

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


CLASSIFIER = "this check takes every estimator with predict_proba for a classifier and reads its classifier tags"
EXPECTED_FAILURES = {"check_estimator_sparse_array": CLASSIFIER, "check_estimator_sparse_matrix": CLASSIFIER}


def least(method):
    """As little training as there is: the checks fit some hundred times. A network and its neighbours, which are the
    base class's business, in two methods."""
    init = {"init": "k-means++"} if "init" in method.__dataclass_fields__ else {}
    network = "auto" if method.__name__ in TWO_METHODS else "identity"
    return method(3, pretrain_epochs=1, epochs=1, device="cpu", network=network, **init)


@pytest.mark.slow
def test_scikit_learn_checks(method):
    assert failed_checks(least(method), EXPECTED_FAILURES) == []


def test_public_names_exist():
    assert all(getattr(diffclust, name) is not None for name in diffclust.__all__)


def test_a_method_is_public(method):
    said = f"add {method.__name__} to `__all__` and the imports of diffclust/__init__.py"
    assert method.__name__ in diffclust.__all__, said


@pytest.fixture(scope="module")
def _fits_to_rows():
    return {}


@pytest.fixture
def fitted_rows(method, quick, blobs, _fits_to_rows):
    """A model fitted to rows: one for all tests, which leave it as it is."""
    if method not in _fits_to_rows:
        _fits_to_rows[method] = quick().fit(blobs[0])
    return _fits_to_rows[method]


# ---- learning


@contextlib.contextmanager
def other_defaults():
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            yield
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def modes():
    """Of which inference mode is a stricter no_grad."""
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        yield


@pytest.fixture(scope="module")
def unmoved():
    """What was learnt in none of torch's modes, by method and network."""
    return {}


@pytest.mark.parametrize(
    ("method", "network"),
    [*((name, "dense") for name in ESTIMATORS), *((name, "identity") for name in TWO_METHODS)],
    indirect=["method"],
)
@pytest.mark.parametrize("within", [other_defaults, modes])
def test_torchs_modes_change_nothing(method, quick, blobs, tmp_path, unmoved, within, network):
    X = blobs[0][:60]

    def learn(model):
        model.fit(X)
        if hasattr(model, "partial_fit"):
            model.partial_fit(X[:20])
            if network == "dense" and learns_network_online(model):
                model.partial_fit(X[20:40], learn_network=True)
        return model

    def settings():
        return quick(network=network, pretrain_epochs=2, epochs=2)

    if (method, network) not in unmoved:
        unmoved[method, network] = learn(settings())
    expected = copy.deepcopy(unmoved[method, network])
    labels, probabilities, score = expected.predict(X), expected.predict_proba(X), expected.score(X)
    decoded, parts = expected.inverse_transform(expected.cluster_centers_), list(expected.predict_in_parts(X))
    with within():
        before = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        model = learn(settings())
        model.save(tmp_path / "m")
        again = diffclust.load(tmp_path / "m")
        assert (again.predict(X) == labels).all()
        assert (again.predict_proba(X) == probabilities).all()
        assert again.score(X) == score
        assert (again.inverse_transform(again.cluster_centers_) == decoded).all()
        assert (next(again.predict_in_parts(X))[1] == parts[0][1]).all()
        assert (torch.is_grad_enabled(), torch.is_inference_mode_enabled()) == before
    assert (model.labels_ == expected.labels_).all()
    assert model.history_ == expected.history_
    weights = expected.model_.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in again.model_.state_dict().items())
    assert all(p.dtype == torch.float32 and not p.is_inference() for p in again.model_.parameters())
    if hasattr(again, "partial_fit"):
        assert (again.partial_fit(X[:9]).labels_ == expected.partial_fit(X[:9]).labels_).all()


def test_a_callers_autocast_keeps_no_weights_for_the_next_step(blobs):
    def fitted():
        return diffclust.TELL(3, precision="bf16", **quick_settings("TELL")).fit(blobs[0])

    expected = fitted()
    with modes():
        assert fitted().history_ == expected.history_


def test_finds_blobs(quick, blobs):
    X, y = blobs
    found = quick(pretrain_epochs=25, epochs=10).fit_predict(X)
    assert adjusted_rand_score(y, found) > 0.95


def test_finds_blobs_without_a_network(quick, blobs):
    X, y = blobs
    X = X - X.mean(0)
    assert adjusted_rand_score(y, quick(network="identity", epochs=20).fit_predict(X)) > 0.95


def test_fitted_attributes(fitted_images, digits):
    images, _ = digits
    model = fitted_images
    assert model.labels_.shape == (80,)
    assert model.cluster_centers_.shape == (4, 4 if isinstance(model, diffclust.SpectralNet) else 10)
    assert model.n_iter_ == 4
    phases = [record["phase"] for record in model.history_]
    between = ["siamese"] * 3 if isinstance(model, diffclust.SpectralNet) else []
    assert phases == ["pretraining"] * 3 + between + ["clustering"] * 4
    assert all(np.isfinite(record["reconstruction"]) for record in model.history_[:3])
    assert all("clustering" in record for record in model.history_[-4:]), "call a term of `loss` 'clustering'"
    assert all(np.isfinite(record["clustering"]) for record in model.history_[-4:])
    assert not {"neighbours", "knowledge"} & model.history_[-1].keys(), "these terms are the engine's"
    assert model.n_features_in_ == 64
    z = model.transform(images).astype(float)
    own = ((z - model.cluster_centers_[model.labels_]) ** 2).sum(1)
    assert model.inertia_ == pytest.approx(own.sum(), rel=1e-5)
    assert model.score(images) == pytest.approx(-model.clustering_loss_)
    assert model.inverse_transform(model.cluster_centers_).shape == (4, 8, 8)
    assert sum(model.diagnostics_["sizes"]) == 80
    assert len(model.runs_) == 1
    with torch.no_grad():
        assigned = model.model_(torch.from_numpy(images)[:, None])
    assert torch.allclose(assigned.sum(1), torch.ones(80))


def test_nothing_of_the_training_rows_is_kept_in_the_model(fitted_images):
    """Plain attributes would be neither saved nor moved to another device."""
    for module in fitted_images.model_.modules():
        kept = {name: value for name, value in vars(module).items() if isinstance(value, torch.Tensor)}
        assert all(len(value.shape) == 0 or len(value) < 20 for value in kept.values()), kept.keys()


def test_one_answer(fitted_images, digits):
    images, _ = digits
    model = fitted_images
    probabilities = model.predict_proba(images)
    assert (model.predict(images) == model.labels_).all()
    assert (probabilities.argmax(1) == model.labels_).all()
    assert np.allclose(probabilities.sum(1), 1, atol=1e-6)


@pytest.mark.parametrize("act", ["merge", "split"])
def test_merged_and_split_clusters_answer(fitted_images, digits, tmp_path, act):
    X = digits[0]
    model, trained = copy.copy(fitted_images), fitted_images  # regrouping replaces attributes
    if act == "merge":
        model.merge(0, 1)
        others, now = [2, 3], [2, 1]
    else:
        largest = int(np.bincount(model.labels_).argmax())
        model.split(largest, X)
        others = now = np.delete(np.arange(4), largest)
    probabilities, before = model.predict_proba(X), trained.predict_proba(X)
    assert (model.predict(X) == model.labels_).all()
    assert (probabilities.argmax(1) == model.labels_).all()
    assert np.allclose(probabilities.sum(1), 1, atol=1e-6)
    shares, shares_before = probabilities[:, now], before[:, others]  # other clusters keep their proportions
    assert np.allclose(shares * shares_before[:, ::-1], shares[:, ::-1] * shares_before, atol=1e-6)
    k = model.n_clusters_
    assert model.score(X) == trained.score(X)
    assert model.clustering_loss_ == trained.clustering_loss_
    assert (model.transform(X) == trained.transform(X)).all()
    assert model.inverse_transform(model.cluster_centers_).shape == (k, 8, 8)
    with torch.no_grad():
        assigned = model.model_(torch.from_numpy(X)[:, None])
    assert torch.allclose(assigned.sum(1), torch.ones(80))
    assert assigned.shape == (80, k)
    assert model.explain(X[:2])[0].cluster == model.labels_[0]
    assert all(model.explain_cluster(j, X).size == (model.labels_ == j).sum() for j in range(k))
    assert str(model.explain_pair(X[:1], X[1:2]))
    assert str(model.explain_model())
    assert len(model.names_) == k
    assert model.cut(2).shape == (80,)
    assert next(model.predict_in_parts(X))[1].shape == (80, k)
    for refused in (model.outlier_score, lambda X: model.predict(X, reject=0.1)):
        with pytest.raises(ValueError, match="merged or split"):
            refused(X)
    model.save(tmp_path / "m")
    assert np.allclose(diffclust.load(tmp_path / "m").predict_proba(X), probabilities, atol=1e-6)


def test_same_seed_same_labels(quick, fitted_images, digits):
    images, _ = digits
    first, second = fitted_images, quick(4).fit(images)
    assert (first.labels_ == second.labels_).all()
    assert (first.transform(images) == second.transform(images)).all()


def test_images_that_are_views_of_things(quick, views):
    """They are known by their neighbours, and are images all the same."""
    images, _ = views
    model = quick(5).fit(images)
    assert model.inverse_transform(model.cluster_centers_).shape == (5, 10, 12)
    assert (model.predict(images) == model.labels_).all()
    assert (model.predict((images / 255).astype(np.float32)) == model.labels_).all()


@two_methods
def test_another_seed_another_embedding(quick, blobs):
    other = quick(random_state=SEED + 1, network="dense", pretrain_epochs=1, epochs=1).fit(blobs[0])
    same = quick(network="dense", pretrain_epochs=1, epochs=1).fit(blobs[0])
    assert (other.transform(blobs[0]) != same.transform(blobs[0])).any()


@two_methods
@pytest.mark.parametrize("random_state", [None, SEED])
def test_callers_random_state_is_untouched(quick, digits, random_state):
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    quick(4, random_state=random_state).fit(digits[0]).predict(digits[0])
    assert (torch.get_rng_state() == torch_before).all()
    assert (np.random.get_state()[1] == numpy_before).all()  # noqa: NPY002


def test_an_answer_does_not_depend_on_its_company(fitted_images, digits):
    images, _ = digits
    model = copy.deepcopy(fitted_images)
    probabilities = model.predict_proba(images)
    for rows in ([7], [79], list(range(5)), list(range(0, 80, 3)), list(range(79, -1, -1))):
        assert (model.predict(images[rows]) == model.labels_[rows]).all()
        # rounding: a logit of 80, as SSCNet has them, by 8e-6, so that a probability moves by a quarter of it
        assert np.abs(model.predict_proba(images[rows]) - probabilities[rows]).max() <= 4e-6
    model.set_params(batch_size=2)
    assert (model.predict(images) == model.labels_).all()


@two_methods
def test_a_second_fit_forgets_the_first(quick, blobs, digits):
    model = quick(4).fit(pd.DataFrame(blobs[0]).add_prefix("c"))
    assert list(model.feature_names_in_) == [f"c{i}" for i in range(6)]
    model.fit(digits[0])
    assert not hasattr(model, "feature_names_in_")
    assert model.labels_.shape == (80,)


@two_methods
def test_restarts_are_kept_and_the_rule_chooses(quick, fitted_images, digits):
    images, _ = digits
    model = quick(4, n_init=3, select="loss").fit(images)
    losses = [run["clustering_loss"] for run in model.runs_]
    assert model.clustering_loss_ == min(losses)
    assert (model.labels_ == model.runs_[int(np.argmin(losses))]["labels"]).all()
    assert len(set(losses)) == 3
    assert (fitted_images.labels_ == model.runs_[0]["labels"]).all()  # a restart gives what it would give alone


def test_zero_epochs_is_pretraining_and_start(quick, digits):
    model = quick(4, epochs=0).fit(digits[0][:64])
    assert model.n_iter_ == 0
    assert (model.predict(digits[0][:64]) == model.labels_).all()


@two_methods
def test_callbacks_watch_and_stop(quick, digits):
    seen = []

    def watch(progress):
        seen.append((progress.phase, progress.epoch, progress.epochs))
        progress.stop = progress.phase == "clustering" and progress.epoch == 1

    model = quick(4, callbacks=[watch]).fit(digits[0])
    assert seen == [("pretraining", i, 3) for i in range(3)] + [("clustering", i, 4) for i in range(2)]
    assert model.n_iter_ == 2


@two_methods
def test_scikit_learn_callbacks_watch_and_stop(quick, digits):
    class Watch:
        def __init__(self):
            self.events = []

        def setup(self, estimator, context):
            self.events.append("setup")

        def teardown(self, estimator, context):
            self.events.append("teardown")

        def on_fit_task_begin(self, estimator, context):
            self.events.append(f"begin {context.task_name}")

        def on_fit_task_end(self, estimator, context):
            self.events.append(f"end {context.task_name}")
            return context.task_name == "clustering"

    watch = Watch()
    model = quick(4).set_callbacks(watch)
    model.fit(digits[0])
    assert watch.events[:2] == ["setup", "begin fit"]
    assert watch.events[-2:] == ["end fit", "teardown"]
    assert watch.events.count("end pretraining") == 3
    assert model.n_iter_ == 1


@two_methods
@pytest.mark.parametrize("verbose", [True, False])
def test_progress_bar(quick, digits, verbose, capsys):
    quick(4, verbose=verbose).fit(digits[0])
    shown = capsys.readouterr()
    assert ("clustering" in shown.out + shown.err) == verbose


# ---- inputs and outputs


@two_methods
def test_kinds_of_rows_agree(quick, blobs, tmp_path):
    X = blobs[0].astype(np.float32)
    settings = {"pretrain_epochs": 1, "epochs": 1}
    model = quick(**settings).fit(X)
    expected = model.labels_
    mapped = np.memmap(tmp_path / "x", dtype="float32", mode="w+", shape=X.shape)
    mapped[:] = X
    frame = pd.DataFrame(X)
    kinds = {
        "frame": frame,
        "list": X.tolist(),
        "tensor": torch.from_numpy(X),
        "sparse": sp.csr_array(X),
        "memmap": mapped,
        "dataset": TensorDataset(torch.from_numpy(X), torch.zeros(len(X))),
        "loader": DataLoader(TensorDataset(torch.from_numpy(X)), batch_size=7),
    }
    for name, kind in kinds.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # scikit-learn: fitted without feature names
            assert (np.asarray(model.predict(kind)) == expected).all(), name
            assert (quick(**settings).fit(kind).labels_ == expected).all(), name


@pytest.mark.slow
@two_methods
def test_kinds_of_images_agree(quick, digits, tmp_path):
    images = (digits[0][:40] * 255).round().astype(np.uint8)
    settings = {"pretrain_epochs": 1, "epochs": 1}
    expected = quick(4, **settings).fit(images).labels_
    mapped = np.memmap(tmp_path / "x", dtype="uint8", mode="w+", shape=images.shape)
    mapped[:] = images
    kinds = {
        "last": images[..., None],
        "first": images[:, None],
        "int64": images.astype(np.int64),
        "unit": (images / np.float32(255)),
        "tensor": torch.from_numpy(images),
        "nchw": torch.from_numpy(images)[:, None],
        "memmap": mapped,
        "dataset": TensorDataset(torch.from_numpy(images)),
    }
    for name, kind in kinds.items():
        assert (quick(4, **settings).fit(kind).labels_ == expected).all(), name


@two_methods
def test_colour_images_keep_their_layout(quick):
    images = np.random.default_rng(SEED).random((24, 5, 7, 3), dtype=np.float32)
    model = quick(2).fit(images)
    assert model.inverse_transform(model.cluster_centers_).shape == (2, 5, 7, 3)
    assert model.model_.autoencoder.input_shape == (3, 5, 7)
    first = quick(2).fit(torch.from_numpy(images).permute(0, 3, 1, 2))
    assert first.inverse_transform(torch.from_numpy(first.cluster_centers_)).shape == (2, 3, 5, 7)
    assert (first.labels_ == model.labels_).all()


@two_methods
def test_tensor_in_tensor_out(quick, blobs):
    X = torch.from_numpy(blobs[0])
    model = quick().fit(X)
    for answer in (model.predict(X), model.predict_proba(X), model.transform(X)):
        assert isinstance(answer, torch.Tensor)
        assert answer.device == X.device
        assert not answer.requires_grad
    assert isinstance(model.labels_, np.ndarray)


@pytest.mark.slow
@pytest.mark.parametrize("method", [*TWO_METHODS, "SSCNet"], indirect=True)  # the last builds its network itself
def test_units_do_not_matter(quick, blobs):
    """Blobs in metres or in millimetres, far from the origin or near it: the same clusters."""
    X, y = (each[::2] for each in blobs)
    unit = (X - X.min()) / (X.max() - X.min())
    for scaled in (X * 1e-9, X + 1e4, 0.5 + unit * 1e-3):
        assert adjusted_rand_score(y, quick(pretrain_epochs=25, epochs=8).fit_predict(scaled)) > 0.95


@two_methods
def test_pandas_out_pipeline_and_grid_search(quick, blobs):
    frame = pd.DataFrame(blobs[0]).add_prefix("c")
    estimator = quick(embedding_dim=4, features="neighbours")
    pipeline = make_pipeline(StandardScaler(), estimator).set_output(transform="pandas")
    embedded = pipeline.fit(frame).transform(frame)
    assert list(embedded.columns) == list(estimator.get_feature_names_out())
    assert embedded.shape == (150, 4)
    search = GridSearchCV(quick(), {"n_clusters": [2, 3]}, cv=2).fit(blobs[0])
    assert set(search.cv_results_["param_n_clusters"]) == {2, 3}


def test_clone_and_pickle(fitted_images, digits):
    model = fitted_images
    again = pickle.loads(pickle.dumps(model))
    assert (again.predict(digits[0]) == model.labels_).all()
    assert clone(model).get_params() == model.get_params()


class Shallow(torch.nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.inside, self.outside = torch.nn.Linear(width, 4), torch.nn.Linear(4, width)

    def encode(self, x):
        return self.inside(x)

    def decode(self, z):
        return self.outside(z)


def test_a_module_of_ones_own(quick, blobs, tmp_path):
    network = Shallow()
    before = network.inside.weight.clone()
    model = quick(network=network).fit(blobs[0])
    assert model.model_.autoencoder.embedding_dim == 4
    assert model.cluster_centers_.shape == (3, model.transform(blobs[0]).shape[1])
    assert (network.inside.weight == before).all()  # trained on a copy
    model.save(tmp_path / "m")
    with pytest.raises(ValueError, match="Shallow"):
        diffclust.load(tmp_path / "m")
    again = diffclust.load(tmp_path / "m", network=Shallow())
    assert (again.predict(blobs[0]) == model.labels_).all()


def test_paper_settings(method):
    for name, known in method.papers.items():
        estimator = method.paper(name, random_state=3)
        assert estimator.n_clusters == known["n_clusters"]
        estimator._check_settings()
        assert estimator.random_state == 3
        assert estimator.augment is None
    with pytest.raises(ValueError, match="no paper settings for 'iris'"):
        method.paper("iris")


# ---- bad input


def _with(value):
    X = np.random.default_rng(SEED).random((20, 5))
    X[3, 2] = value
    return X


class Once(IterableDataset):
    """It runs dry."""

    def __init__(self):
        self.items = iter(torch.rand(20, 3))

    def __iter__(self):
        return self.items


class Named(Dataset):
    """Items as Hugging Face's data sets give them."""

    def __len__(self):
        return 20

    def __getitem__(self, i):
        return {"x": torch.zeros(3), "label": 0}


class NamedStream(IterableDataset):
    def __iter__(self):
        return iter([{"x": torch.zeros(3)}] * 20)


class Ragged(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, i):
        return torch.zeros(3 if i < 19 else 4)


RNG = np.random.default_rng(SEED)
BAD_INPUT = {
    "nan": (_with(np.nan), "NaN.* the blanks of a DataFrame"),
    "infinity": (_with(np.inf), "infinity"),
    "nan tensor": (torch.from_numpy(_with(np.nan)), "NaN"),
    "nan dataset": (TensorDataset(torch.from_numpy(_with(np.nan))), "NaN.* first in row 3"),
    "empty": (np.empty((0, 5)), "0 sample"),
    "empty tensor": (torch.empty(0, 5), r"\(0, 5\)"),
    "no columns": (np.empty((5, 0)), "0 feature"),
    "one row": (RNG.random((1, 5)), "1 sample"),
    "one dimension": (RNG.random(20), "2D"),
    "five dimensions": (RNG.random((20, 2, 2, 2, 2)), "dim 5"),
    "fewer rows than clusters": (RNG.random((2, 5)), "n_samples=2 should be >= n_clusters=3"),
    "words": (np.array([["a", "b"]] * 20), "could not convert string to float|dtype"),
    "complex": (np.ones((20, 3)) * 1j, "Complex"),
    "complex tensor": (torch.ones(20, 3) * 1j, "Complex"),
    "tiny images": (RNG.random((20, 2, 3)), "2x3"),
    "negative integer images": (-np.ones((20, 8, 8), dtype=int), "-1"),
    "ragged dataset": (Ragged(), "Sample 19 has shape"),
    "dataset of dicts": (Named(), "is a dict .*should be a tensor or an array"),
    "loader of dicts": (DataLoader(Named()), "is a dict .*should be a tensor or an array"),
    "stream of dicts": (NamedStream(), "is a dict .*should be a tensor or an array"),
    "stream that runs dry": (Once(), "IterableDataset"),
    "none": (None, "None|NoneType"),
}


@two_methods
@pytest.mark.parametrize("kind", BAD_INPUT)
def test_bad_input_is_named_and_leaves_the_estimator_as_it_was(quick, fitted_rows, kind):
    X, message = BAD_INPUT[kind]
    model = quick()
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(X)
    assert not [name for name in vars(model) if name.endswith("_")]
    model = copy.copy(fitted_rows)
    before = dict(vars(model))
    with pytest.raises((ValueError, TypeError)):
        model.fit(X)
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is before[name] for name in before)


@two_methods
def test_bad_width_at_predict(fitted_rows, blobs, digits):
    model = fitted_rows
    for answer in (model.predict, model.predict_proba, model.transform, model.score):
        with pytest.raises(ValueError, match=r"5 features.*expecting 6"):
            answer(blobs[0][:, :5])
        with pytest.raises(ValueError, match=r"5 features.*expecting 6"):
            answer(torch.zeros(4, 5))
    with pytest.raises(ValueError, match=r"\(1, 8, 8\)"):
        model.predict(digits[0])
    with pytest.raises(ValueError, match=rf"\(2, 3\), expected \(n, {model.cluster_centers_.shape[1]}\)"):
        model.inverse_transform(np.zeros((2, 3)))


@two_methods
def test_a_single_image_is_named(fitted_images, digits):
    model = fitted_images
    for image in (digits[0][0], torch.as_tensor(digits[0][0])):
        with pytest.raises(ValueError, match=r"\(8, 8\), which is a single image: pass several, or X\[None\]"):
            model.predict(image)
    assert model.predict(digits[0][:1]).shape == (1,)


BAD_SETTINGS = {
    "weight": [(-1.0, ValueError), (float("nan"), ValueError), ("heavy", ValueError)],
    "center_step": [(-1.0, ValueError), (2.0, ValueError)],
    "dropout": [(1.5, ValueError)],
    "checkpoint_every": [(0, ValueError)],
    "callbacks": [(print, TypeError), (None, TypeError), ([print, 3], TypeError)],
    "n_clusters": [(0, ValueError), (-2, ValueError), (2.5, TypeError), ("3", TypeError), (True, TypeError)],
    "n_init": [(0, ValueError), (None, TypeError)],
    "epochs": [(-1, ValueError), (1.5, TypeError), ("many", TypeError)],
    "pretrain_epochs": [(-1, ValueError)],
    "batch_size": [(1, ValueError), ("big", TypeError)],
    "embedding_dim": [(0, ValueError)],
    "optimizer": [("lion", ValueError)],
    "lr": [(0.0, ValueError), (-1.0, ValueError)],
    "device": [("gpu9", ValueError)],
    "precision": [("float8", ValueError)],
    "select": [("labels", ValueError)],
    "network": [("transformer", ValueError), (3, TypeError), (torch.nn.Linear(6, 2), TypeError)],
    "augment": [(-1.0, ValueError), ("much", ValueError), (0.5, ValueError)],
    "init": [("best", ValueError), (np.zeros((3, 2)), ValueError), (np.full((3, 10), np.nan), ValueError)],
}


def test_bad_settings_are_named(method, quick, blobs):
    tried = [
        (name, *each) for name in BAD_SETTINGS if name in method.__dataclass_fields__ for each in BAD_SETTINGS[name]
    ]
    assert len(tried) >= 30
    for knob, value, error in tried:
        model = quick(**{knob: value}) if knob != "n_clusters" else quick(value)
        with pytest.raises(error, match=knob if knob != "network" else "network|decode|encode"):
            model.fit(blobs[0])
        assert not hasattr(model, "labels_")


@two_methods
def test_answers_need_a_fit(quick, blobs):
    for name in ("predict", "predict_proba", "transform", "score", "inverse_transform"):
        with pytest.raises(NotFittedError):
            getattr(quick(), name)(blobs[0])


@pytest.mark.parametrize("shape", [(6, 5), (40, 1), (30, 8, 8)])
def test_constant_data_are_survived_and_reported(quick, shape):
    with pytest.warns(ConvergenceWarning):
        model = quick(2).fit(np.full(shape, 0.5))
    assert np.isfinite(model.cluster_centers_).all()
    assert len(set(model.labels_)) == 1
    assert model.diagnostics_["collapsed"]


@two_methods
def test_a_constant_column_changes_nothing_much(quick, blobs):
    X, y = blobs
    X = np.column_stack([X, np.full(len(X), 7.0)])
    assert adjusted_rand_score(y, quick(pretrain_epochs=40, epochs=20).fit_predict(X)) > 0.95


def test_a_loss_that_is_not_finite_is_reported_and_undone(quick, blobs):
    explosive = quick(optimizer="sgd", lr=1e12, pretrain_epochs=5)
    with pytest.warns(ConvergenceWarning, match="not finite"):
        explosive.fit(blobs[0])
    assert np.isfinite(explosive.cluster_centers_).all()
    assert np.isfinite(explosive.transform(blobs[0])).all()


# ---- properties


@pytest.fixture(scope="module", params=ESTIMATORS)
def fitted_to_rows(request, blobs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(diffclust, request.param)(3, **quick_settings(request.param)).fit(blobs[0])


values = st.floats(-1e4, 1e4, width=32)


@settings(max_examples=12, deadline=None)
@given(st.lists(st.lists(values, min_size=6, max_size=6), min_size=1, max_size=20))
def test_probabilities_sum_to_one_for_any_rows(fitted_to_rows, rows):
    probabilities = fitted_to_rows.predict_proba(np.array(rows))
    assert np.allclose(probabilities.sum(1), 1, atol=1e-5)
    assert (probabilities >= 0).all()


@settings(max_examples=10, deadline=None)
@given(st.permutations(range(3)))
def test_permuting_the_centres_permutes_the_columns(fitted_to_rows, blobs, order):
    order = list(order)
    before = fitted_to_rows.predict_proba(blobs[0])
    permuted = pickle.loads(pickle.dumps(fitted_to_rows))
    with torch.no_grad():
        for weights in permuted.model_.clusters.parameters():
            weights.copy_(weights[order])
        for counted in permuted.model_.clusters.buffers():
            if counted.shape[-1:] == (len(order),):  # a number for each cluster
                counted.copy_(counted[..., order])
    assert np.allclose(permuted.predict_proba(blobs[0]), before[:, order], atol=1e-5)


def test_the_restart_rules_do_what_they_say():
    from types import SimpleNamespace

    from diffclust.estimator.selection import RULES

    def run(labels, loss, scatter):
        collapsed = len(set(labels)) == 1
        sizes = np.bincount(labels, minlength=3)
        figures = {"clustering_loss": loss, "scatter": scatter, "collapsed": collapsed, "sizes": sizes}
        return SimpleNamespace(labels=np.array(labels), **figures)

    runs = [
        run([0, 0, 1, 1, 2, 2], 3.0, 0.3),
        run([1, 1, 0, 0, 2, 2], 2.0, 0.2),  # the same partition under other names
        run([0, 1, 0, 1, 0, 1], 1.0, 0.4),
        run([0, 0, 1, 1, 1, 2], float("nan"), 0.1),
    ]
    assert RULES["loss"](runs) == 2
    assert RULES["scatter"](runs) == 3
    assert RULES["balance"](runs) == 0
    assert RULES["balance"](runs[2:]) == 1  # three uneven clusters beside two even ones of three
    assert RULES["agreement"](runs) == 0
    assert RULES["agreement"](runs[1:3]) == 1
    dead = run([0] * 6, 0.0, 0.0)
    assert RULES["agreement"]([dead, dead, runs[0], dead]) == 2
    assert RULES["agreement"]([dead, dead]) == 0


@two_methods
def test_a_memory_map_is_read_in_batches(quick, tmp_path):
    mapped = np.memmap(tmp_path / "x", dtype="float32", mode="w+", shape=(40, 5))
    mapped[:] = np.random.default_rng(SEED).random((40, 5))
    assert type(read_rows(quick(), mapped, fitting=True).rows) is ArrayRows
    frozen = np.zeros((40, 8, 8), dtype=np.uint8)
    frozen.flags.writeable = False
    assert read_rows(quick(), frozen, fitting=True).rows.take(torch.arange(3)).dtype == torch.uint8


@two_methods
def test_a_users_array_is_never_changed(quick, blobs):
    X = blobs[0].astype(np.float32)
    before = X.copy()
    quick().fit(X).predict(X)
    assert (before == X).all()


@two_methods
def test_values_too_large_are_refused_and_change_nothing(fitted_rows, blobs):
    model = fitted_rows
    centers = model.cluster_centers_.copy()
    for huge in (np.full((2, 6), 1e300), torch.full((2, 6), 1e300, dtype=torch.float64)):
        for answer in (model.predict, model.predict_proba):
            with pytest.raises(ValueError, match="too large for float32"):
                answer(huge)
    assert (model.cluster_centers_ == centers).all()


@two_methods
def test_sparse_rows_are_made_dense_in_small_blocks(quick, monkeypatch):
    from diffclust.engine.rows import SparseRows

    seen = []
    take = SparseRows.take
    monkeypatch.setattr(SparseRows, "take", lambda self, index: (seen.append(len(index)), take(self, index))[1])
    quick(2, pretrain_epochs=0, epochs=0).fit(sp.random(11_000, 4, density=0.5, random_state=0, format="csr"))
    assert max(seen) <= 1024


@two_methods
def test_decoding_takes_what_transform_gives(quick, blobs):
    model = quick().fit(blobs[0]).set_output(transform="pandas")
    embedded = model.transform(blobs[0])
    assert model.inverse_transform(embedded).shape == (150, 6)
    assert model.inverse_transform(model.cluster_centers_[::-1]).shape == (3, 6)
    with pytest.raises(ValueError, match="Z"):
        model.inverse_transform(np.full((1, 10), np.nan))


def test_a_frozen_network_stays_as_it_is(quick, digits):
    class Frozen(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm2d(1)
            self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
            self.requires_grad_(False)

        def encode(self, x):
            return self.norm(x).flatten(1)

        def decode(self, z):
            return z.reshape(-1, 1, 8, 8)

    model = quick(4, network=Frozen()).fit(digits[0])
    assert float(model.model_.autoencoder.module.norm.running_mean) == 0
    assert {record["phase"] for record in model.history_} == {"clustering"}


def test_identity_takes_the_features_as_they_are():
    from sklearn.datasets import make_blobs

    X, y = make_blobs(200, 2, centers=[[1, 1], [5, 5], [10, 10]], cluster_std=0.2, random_state=0)
    model = diffclust.TELL(3, network="identity", random_state=0).fit(X)
    assert adjusted_rand_score(y, model.labels_) == 1
    decoded = model.inverse_transform(model.cluster_centers_)
    assert np.allclose(np.sort(decoded[:, 0]), [1, 5, 10], atol=0.2)


@pytest.mark.parametrize("n", [1, 40, 20_000])  # a chunk, or several
def test_answers_are_never_the_users_own_rows(n):
    X = np.random.default_rng(0).normal(size=(n, 8)).astype(np.float32)
    model = diffclust.TELL(2, network="identity", epochs=0, random_state=0).fit(np.vstack([X, X + 1, X - 1])[:200])
    before, Z = X.copy(), model.transform(X)
    assert not np.shares_memory(X, Z)
    Z[:] = 7
    assert (before == X).all()
    model.partial_fit(X)
    inertia = model.inertia_
    model.partial_fit(X)
    X[:] = 1e6  # what the stream remembers of its last batch is its own
    assert model.inertia_ < 10 * inertia + 1e3


@two_methods
def test_integer_datasets_are_scaled_as_arrays_are(quick, digits):
    images = (digits[0] * 255).round().astype(np.int64)
    model = quick(4).fit(images)
    assert (model.predict(TensorDataset(torch.from_numpy(images)[:, None])) == model.labels_).all()
    assert (quick(4).fit(TensorDataset(torch.from_numpy(images))).labels_ == model.labels_).all()
