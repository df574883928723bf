"""What belongs nowhere."""

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs
from sklearn.metrics import roc_auc_score

import diffclust
from conftest import quick_settings
from diffclust.estimator.outliers import OutlierStatistics

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def rows():
    return make_blobs(300, 6, centers=3, cluster_std=0.5, random_state=3)[0]


@pytest.fixture(scope="module")
def model(rows):
    return diffclust.TELL(3, pretrain_epochs=30, epochs=3, random_state=0, device="cpu").fit(rows)


def test_the_score_is_the_larger_of_two_by_hand():
    statistics = OutlierStatistics(
        torch.tensor([[0.0, 1.0], [5.0, 5.0]]), torch.tensor([[1.0, 2.0], [1.0, 1.0]]), torch.zeros(3)
    )
    scores = statistics.score(torch.tensor([0, 0, 1]), torch.tensor([[2.0, 1.0], [0.0, 7.0], [5.0, 4.0]]))
    np.testing.assert_allclose(scores, [2, 3, 0])


def test_rows_of_the_fit_are_rejected_at_the_share_asked_for(rows, model):
    np.testing.assert_array_equal(model.predict(rows, reject=0), model.labels_)
    rejected = model.predict(rows, reject=0.1)
    np.testing.assert_array_equal(model.predict(rows, reject=np.float32(0.1)), rejected)
    assert np.mean(rejected == -1) == pytest.approx(0.1, abs=0.01)
    kept = rejected >= 0
    np.testing.assert_array_equal(rejected[kept], model.labels_[kept])
    assert model.outlier_score(rows)[~kept].min() > model.outlier_score(rows)[kept].max()


def test_strange_rows_score_higher(rows, model):
    strange = np.random.default_rng(0).uniform(rows.min(0), rows.max(0), size=rows.shape)
    scores = model.outlier_score(np.concatenate([rows, strange]))
    assert roc_auc_score(np.repeat([0, 1], len(rows)), scores) > 0.95


def test_answers_come_in_the_form_of_the_rows(rows, model):
    asked = torch.tensor(rows[:7]).float()
    scores, labels = model.outlier_score(asked), model.predict(asked, reject=0.5)
    assert isinstance(scores, torch.Tensor)
    assert isinstance(labels, torch.Tensor)
    np.testing.assert_allclose(scores, model.outlier_score(rows[:7]), rtol=1e-5)
    assert set(labels.tolist()) <= {-1, 0, 1, 2}


@pytest.mark.parametrize("reject", [2, 1, -0.1, float("nan"), True, "some"])
def test_a_share_that_is_none_is_refused(rows, model, reject):
    with pytest.raises(ValueError, match="should be a share of rows"):
        model.predict(rows, reject=reject)


def test_every_method_has_scores(method, digits):
    model = method(4, **quick_settings(method.__name__)).fit(digits[0][:60])
    scores = model.outlier_score(digits[0])
    assert scores.shape == (80,)
    assert np.isfinite(scores).all()


def test_scores_survive_a_folder(rows, model, tmp_path):
    model.save(tmp_path / "model")
    back = diffclust.load(tmp_path / "model")
    np.testing.assert_allclose(back.outlier_score(rows), model.outlier_score(rows), rtol=1e-6)
    np.testing.assert_array_equal(back.predict(rows, reject=0.2), model.predict(rows, reject=0.2))


def test_a_model_of_before_says_so(rows, model):
    old = diffclust.TELL(3)
    old.__dict__ = {name: value for name, value in vars(model).items() if name != "_outlier_statistics"}
    with pytest.raises(ValueError, match="fit it again"):
        old.outlier_score(rows)
    np.testing.assert_array_equal(old.predict(rows), model.labels_)
