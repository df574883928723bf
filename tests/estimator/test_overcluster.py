"""overcluster: more centres than are wanted, joined half way."""

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs

import diffclust
from conftest import ESTIMATORS, ways
from diffclust.engine.data import Data
from diffclust.engine.overclustering import OverclusteringPhase
from diffclust.engine.rows import TensorRows
from diffclust.nn.autoencoders import Identity

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SETTINGS = {"pretrain_epochs": 20, "epochs": 4, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def rows():
    return make_blobs(240, 6, centers=4, cluster_std=0.7, random_state=1)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_method_joins(rows, name):
    joint = {"joint": True} if True in ways(name) else {}
    model = getattr(diffclust, name)(4, overcluster=2.5, features="neighbours", **joint, **SETTINGS)
    if model.why_not_overclustered or not model.is_joint():
        with pytest.raises(ValueError, match="cannot merge clusters"):
            model.fit(rows[0])
        return
    model.fit(rows[0])
    assert model.n_clusters_ == 4
    assert diffclust.metrics.ari(rows[1], model.labels_) > 0.9
    phases = [record["phase"] for record in model.history_]
    assert 1 <= phases.count("over-clustering") <= 2  # a method may end its training itself
    assert 1 <= phases.count("clustering") == model.n_iter_ <= 2
    np.testing.assert_array_equal(model.predict(rows[0]), model.labels_)


def test_joined_centres_are_the_means_of_their_rows():
    """Two pairs of clumps on a line, four centres on them, two wanted: worked out by hand."""
    x = torch.tensor([0.0, 0.2, 1.0, 10.0, 11.0, 11.0])[:, None]
    data = Data(TensorRows(x), torch.device("cpu"))
    tell = diffclust.TELL(4, network="identity", init=[[0.1], [1.0], [10.0], [11.0]])
    wide = tell.build_model(Identity((1,)), len(x))
    narrow = diffclust.TELL(2, network="identity").build_model(wide.autoencoder, len(x))
    phase = OverclusteringPhase("over-clustering", wide, narrow, data, None, 0)
    phase.start()
    phase.finish()
    np.testing.assert_allclose(narrow.clusters.centers.detach().numpy().ravel(), [0.4, 32 / 3], rtol=1e-6)


def test_without_epochs_the_centres_are_placed_all_the_same(rows):
    model = diffclust.TELL(4, overcluster=2, **{**SETTINGS, "epochs": 0}).fit(rows[0])
    assert diffclust.metrics.ari(rows[1], model.labels_) > 0.9


def test_a_checkpoint_between_the_phases_is_gone_on_from(rows, tmp_path):
    """Killed when the wide phase is over: the joined centres are in the checkpoint."""
    settings = {**SETTINGS, "features": "neighbours", "epochs": 8}
    whole = diffclust.TELL(4, overcluster=2, **settings).fit(rows[0])

    def die(progress):
        if progress.phase == "clustering" and progress.epoch == 2:
            raise RuntimeError("killed")

    kept = {"overcluster": 2, "checkpoint": tmp_path, "checkpoint_every": 1, **settings}
    with pytest.raises(RuntimeError, match="killed"):
        diffclust.TELL(4, callbacks=[die], **kept).fit(rows[0])
    again = diffclust.TELL(4, **kept).fit(rows[0])
    np.testing.assert_array_equal(again.labels_, whole.labels_)
    np.testing.assert_allclose(again.cluster_centers_, whole.cluster_centers_)


def test_a_record_has_one_number_of_centres(rows):
    record = diffclust.callbacks.TrainingRecord(frames=2)
    diffclust.TELL(4, overcluster=2, callbacks=[record], **SETTINGS).fit(rows[0])
    phases = {frame["phase"] for frame in record.runs[0]}
    assert phases == {"pretraining", "over-clustering", "clustering"}
    assert {len(frame["centers"]) for frame in record.runs[0] if "centers" in frame} == {4}


def test_it_survives_a_folder(rows, tmp_path):
    model = diffclust.TELL(4, overcluster=2, **SETTINGS).fit(rows[0])
    model.save(tmp_path / "model")
    back = diffclust.load(tmp_path / "model")
    assert back.overcluster == 2
    np.testing.assert_array_equal(back.predict(rows[0]), model.labels_)


@pytest.mark.parametrize(
    ("model", "error"),
    [
        (diffclust.TELL(4, overcluster=0.5), "overcluster=0.5 should be a finite number >= 1"),
        (
            diffclust.AEKMeans(4, overcluster=2),
            "AEKMeans cannot merge clusters: its network and centres are not trained together",
        ),
        (diffclust.SSCNet(4, overcluster=2), "SSCNet cannot merge clusters: its clusters do not start from centres"),
        (
            diffclust.SpectralNet(4, overcluster=2),
            "SpectralNet cannot merge clusters: its embedding has one coordinate",
        ),
        (diffclust.TELL(4, overcluster=2, init=np.zeros((4, 10))), "init is an array of centres"),
    ],
)
def test_what_cannot_be_is_refused(rows, model, error):
    with pytest.raises(ValueError, match=error):
        model.fit(rows[0])


def test_a_number_of_numpys_is_a_number(rows):
    model = diffclust.TELL(np.int64(4), overcluster=np.float64(2), **SETTINGS).fit(rows[0])
    assert model.n_clusters_ == 4
