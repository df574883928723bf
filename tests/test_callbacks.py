import pytest

from diffclust import TELL, metrics
from diffclust.callbacks import Evaluate, StopWhenLabelsSettle, StopWhenLossSettles

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def test_settled_labels_stop_the_clustering(blobs):
    X = blobs[0] - blobs[0].mean(0)
    model = TELL(3, network="identity", epochs=200, random_state=0, callbacks=[StopWhenLabelsSettle(0.0, every=5)])
    assert model.fit(X).n_iter_ == 10
    assert model.fit(X).n_iter_ == 10  # a callback starts afresh with every fit


def test_a_settled_loss_stops_the_phase(blobs):
    X = blobs[0] - blobs[0].mean(0)
    stop = StopWhenLossSettles(tolerance=1.0, patience=3)
    model = TELL(3, network="identity", epochs=200, random_state=0, callbacks=[stop])
    assert model.fit(X).n_iter_ == 4


def test_scores_go_into_the_history_and_change_nothing(digits):
    X, y = digits
    settings = {"pretrain_epochs": 2, "epochs": 5, "random_state": 0, "device": "cpu"}
    plain = TELL(4, **settings).fit(X)
    watched = TELL(4, **settings, callbacks=[Evaluate(y, every=2)]).fit(X)
    assert (plain.labels_ == watched.labels_).all()
    clustering = [record for record in watched.history_ if record["phase"] == "clustering"]
    assert [record["epoch"] for record in clustering if "acc" in record] == [1, 3, 4]  # every second, and the last
    assert not any("acc" in record for record in watched.history_ if record["phase"] == "pretraining")
    losses = [{key: record[key] for key in old} for old, record in zip(plain.history_, watched.history_, strict=True)]
    assert losses == plain.history_


def test_the_last_score_is_that_of_the_fitted_labels(blobs):
    X, y = blobs
    model = TELL(3, network="identity", epochs=3, random_state=0, callbacks=[Evaluate(y, every=50)]).fit(X)
    assert model.history_[-1]["acc"] == metrics.accuracy(y, model.labels_)
    assert model.history_[-1]["nmi"] == metrics.nmi(y, model.labels_)
    assert model.history_[-1]["ari"] == metrics.ari(y, model.labels_)


def test_scores_survive_a_checkpoint(digits, tmp_path):
    X, y = digits

    class Killed(Exception):
        pass

    def kill(progress):
        if progress.phase == "clustering" and progress.epoch == 3:
            raise Killed

    def build(*more):
        settings = {"pretrain_epochs": 1, "epochs": 6, "random_state": 0, "device": "cpu", "n_init": 2}
        callbacks = [Evaluate(y, every=1), *more]
        return TELL(4, **settings, callbacks=callbacks, checkpoint=tmp_path, checkpoint_every=1)

    with pytest.raises(Killed):
        build(kill).fit(X)
    model = build().fit(X)
    assert all(sum("acc" in record for record in run["history"]) == 6 for run in model.runs_)
