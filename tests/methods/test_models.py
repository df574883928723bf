"""What the model of every method promises beside its estimator."""

import copy
import inspect
import pickle

import torch
from sklearn.base import BaseEstimator

import diffclust.methods
from diffclust.engine.data import Batch, Data
from diffclust.engine.rows import TensorRows
from diffclust.methods import METHODS
from diffclust.nn import DenseAutoencoder

CPU = torch.device("cpu")


def _held(value, seen):
    """Everything an object holds on to, however deep."""
    if id(value) in seen or isinstance(value, (str, int, float, torch.Tensor, type)) or callable(value):
        return
    seen[id(value)] = value
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    for each in (*inside, *getattr(value, "__dict__", {}).values()):
        _held(each, seen)


def _build(method):
    return method(3).build_model(DenseAutoencoder((6,), 10, hidden=(8,)), 50)


def test_a_model_keeps_its_settings_and_not_the_estimator(method, blobs):
    estimator = method(3)
    model = estimator.build_model(DenseAutoencoder((6,), 10, hidden=(8,)), 50)
    seen = {}
    for value in vars(model).values():
        _held(value, seen)
    assert not [value for value in seen.values() if isinstance(value, BaseEstimator)]


def test_models_can_be_copied_and_pickled(method):
    model = _build(method).eval()
    x = torch.randn(5, 6)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert (again.answer(x).z == model.answer(x).z).all()
        if again.guard:
            assert again.guard.model is again


def test_an_answer_is_the_largest_logit_in_double_precision(method):
    model = _build(method).eval()
    z, logits, label = model.answer(torch.randn(5, 6))
    assert z.dtype == logits.dtype == torch.float64
    assert (label == logits.argmax(1)).all()


def test_evaluating_is_for_a_moment(method):
    for mode in (True, False):
        model = _build(method).train(mode)
        with model.evaluating():
            assert not model.training
            assert not model.autoencoder.training
        assert model.training == mode
        assert model.autoencoder.training == mode


def test_dead_centres_are_revived_and_the_others_stay(method):
    model = _build(method)
    before = model.clusters.centers.detach().clone()
    data = Data(TensorRows(torch.randn(50, 6)), CPU, 16)
    model.revive(torch.zeros(3, dtype=torch.bool), data)
    assert not model.events
    model.revive(torch.tensor([False, True, False]), data)
    assert [event.kind for event in model.events] == ["repaired"]
    moved = (model.clusters.centers != before).any(1)
    assert moved.tolist() == [False, True, False]


def test_means_and_totals_of_a_batch_that_is_not_shared():
    x = torch.randn(4, 3)
    batch, data = Batch(x, x, torch.arange(4)), Data(TensorRows(x), CPU, 2)
    assert (batch.mean(x) == x.mean(0)).all()
    for several in (batch, data):
        first, second = several.total(x.sum(0), x.sum())
        assert (first == x.sum(0)).all()
        assert second == x.sum()


def test_no_method_speaks_to_other_processes_itself():
    """`Batch` and `Data` have `mean` and `total` for that."""
    for name in {method.module for method in METHODS}:
        module = __import__(f"{diffclust.methods.__name__}.{name}", fromlist=[name])
        assert "parallel" not in inspect.getsource(module)
