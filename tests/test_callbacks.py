import pytest

from diffclust import TELL
from diffclust.callbacks import StopWhenLabelsSettle, StopWhenLossSettles

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
