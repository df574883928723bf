"""Who asks or saves an estimator that another thread teaches finds one fitted state or the next, never a mixture."""

import sys
import threading

import numpy as np
import pytest
import torch

import diffclust

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(autouse=True)
def _restless():
    """Threads change places often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def model(blobs):
    settings = {"network": "dense", "embedding_dim": 4, "pretrain_epochs": 1, "epochs": 1}
    return diffclust.TELL(3, **settings, random_state=0, device="cpu").fit(blobs[0])


def beside(ask, teach, times):
    """ask(i) again and again while another thread calls teach(i); the first error of either."""
    errors, stop = [], threading.Event()

    def work(function):
        i = 0
        try:
            while not stop.is_set() or i == 0:
                function(i)
                i += 1
        except BaseException as error:
            errors.append(error)

    teacher = threading.Thread(target=work, args=[teach], daemon=True)
    teacher.start()
    try:
        for i in range(times):
            ask(i)
            assert not errors
    finally:
        stop.set()
        teacher.join(60)
    assert not errors
    assert not teacher.is_alive()


def test_a_save_beside_a_stream_is_of_one_moment(model, blobs, tmp_path):
    def ask(i):
        model.save(tmp_path / "m")
        again = diffclust.load(tmp_path / "m", device="cpu")
        stream = again.diagnostics_.get("stream")
        assert (again.cluster_centers_ == again.model_.clusters.centers.detach().numpy()).all()
        if stream is not None:
            assert stream["counts"] == again._stream.counts.long().tolist() == again.diagnostics_["sizes"]
            assert sum(stream["counts"]) == len(blobs[0]) + stream["rows"]
            drift = (again.model_.clusters.centers - again._stream.origin).norm(dim=1).tolist()
            assert stream["drift"] == pytest.approx(drift, abs=1e-6)

    beside(ask, lambda i: model.partial_fit(blobs[0][i % 5 :: 5]), 25)


def test_answers_beside_a_stream_that_teaches_the_network(model, blobs):
    X = blobs[0]

    def ask(i):
        assert np.isfinite(model.transform(X)).all()
        assert np.allclose(model.predict_proba(X).sum(1), 1)
        assert set(model.predict(X)) <= {0, 1, 2}
        assert len(model.labels_) == 30

    model.partial_fit(X[:30], learn_network=True)
    beside(ask, lambda i: model.partial_fit(X[i % 5 :: 5], learn_network=True), 40)


def test_answers_beside_another_fit(model, blobs):
    """With other data, so that one state's width would not do for the other's model."""
    X, wide = blobs[0], np.hstack([blobs[0], blobs[0]])
    seen = set()

    def ask(i):
        try:
            assert len(model.predict(X)) == len(X)
            seen.add("narrow")
        except ValueError as error:  # of the fit to the others
            seen.add("wide" if "features" in str(error) else str(error))

    def teach(i):
        model.set_params(epochs=0, pretrain_epochs=0).fit(wide if i % 2 else X)

    beside(ask, teach, 300)
    assert seen <= {"narrow", "wide"}


def test_another_state_takes_the_place_of_the_former_which_stays_whole(model, blobs):
    """At one moment: between two assignments hardly a thread would ever look."""
    X = blobs[0]
    for teach in (
        lambda: model.fit(X[:50]),
        lambda: model.partial_fit(X[:9]),
        lambda: model.partial_fit(X[:9], learn_network=True),
    ):
        former = vars(model)
        fitted = {name: value for name, value in former.items() if name.endswith("_")}
        teach()
        assert vars(model) is not former
        assert all(former[name] is value for name, value in fitted.items())
        assert model.model_ is not former["model_"]


def test_two_who_teach_take_turns(model, blobs):
    X = blobs[0]

    def teach():
        for i in range(20):
            model.partial_fit(X[i % 5 :: 5])

    threads = [threading.Thread(target=teach) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert model.diagnostics_["stream"]["batches"] == 60
    assert sum(model.diagnostics_["sizes"]) == len(X) + 60 * 30


def test_a_bad_batch_changes_nothing(model, blobs):
    model.partial_fit(blobs[0][:30])
    before = {name: value.clone() for name, value in model.model_.state_dict().items()}
    with pytest.raises(ValueError, match="not finite"):
        model.partial_fit(np.full((4, 6), 3e38), learn_network=True)
    assert all(torch.equal(before[name], value) for name, value in model.model_.state_dict().items())
    assert model.diagnostics_["stream"]["batches"] == 1


def test_without_a_network_the_embedding_is_no_part_of_the_users_rows(blobs):
    X = blobs[0].astype(np.float32)
    kept = X.copy()
    model = diffclust.TELL(3, network="identity", epochs=1, random_state=0, device="cpu").fit(X)
    z = model.transform(X)
    np.testing.assert_array_equal(z, X)
    z += 1
    np.testing.assert_array_equal(X, kept)
