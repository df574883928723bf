"""Rows far from zero have the clusters they have near it, whatever they come in."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score
from torch.utils.data import DataLoader, TensorDataset

import diffclust
from conftest import Stream
from diffclust import TELL, KMeansNet
from diffclust.engine.rows import TensorRows
from diffclust.reading.origin import origin_of

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

FAR_AWAY = np.array([1e8, -3e9, 0, 1.7e12])  # milliseconds since 1970, say, and an ordinary column among them
SHORT = {"pretrain_epochs": 3, "epochs": 3, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def near():
    return make_blobs(160, 4, centers=3, cluster_std=0.3, random_state=1)


def in_parquet(X, path):
    pd.DataFrame(X, columns=list("abcd")).to_parquet(path)
    return path


FORMS = {
    "array": lambda X, path: X,
    "list": lambda X, path: X.tolist(),
    "tensor": lambda X, path: torch.from_numpy(X),
    "dataset": lambda X, path: TensorDataset(torch.from_numpy(X)),
    "loader": lambda X, path: DataLoader(TensorDataset(torch.from_numpy(X)), batch_size=50),
    "stream": lambda X, path: Stream(X),
    "sparse": lambda X, path: sp.csr_matrix(X),
    "frame": lambda X, path: pd.DataFrame(X, columns=list("abcd")),
    "table": lambda X, path: pd.DataFrame(X, columns=list("abcd")).assign(kind=["u", "v"] * (len(X) // 2)),
    "memmap": lambda X, path: (np.save(path / "x.npy", X), np.load(path / "x.npy", mmap_mode="r"))[1],
    "npy": lambda X, path: (np.save(path / "x.npy", X), path / "x.npy")[1],
    "parquet": lambda X, path: in_parquet(X, path / "x.parquet"),
}


def test_near_zero_they_are_found(near):
    X, y = near
    assert adjusted_rand_score(y, TELL(3, network="dense", **SHORT).fit_predict(X)) == 1


@pytest.mark.parametrize("form", FORMS)
def test_shifted_rows_have_the_same_clusters(near, tmp_path, form):
    X, y = near
    there = FORMS[form](X + FAR_AWAY, tmp_path)
    model = TELL(3, network="dense", **SHORT).fit(there)
    assert adjusted_rand_score(y, model.labels_) == 1
    there = FORMS[form](X + FAR_AWAY, tmp_path)
    assert (np.asarray(model.predict(there)) == model.labels_).all()
    assert model.origin_[2] == 0
    assert np.allclose(np.delete(model.origin_[:4], 2), np.delete(FAR_AWAY, 2), rtol=1e-6)


def test_every_method(quick, near):
    X, _ = near
    settings = {"network": "identity"} if hasattr(quick(), "network") else {}
    here, there = quick(**settings).fit(X), quick(**settings).fit(X + 1e8)
    assert adjusted_rand_score(here.labels_, there.labels_) > 0.95
    assert (there.predict(X + 1e8) == there.labels_).all()


@pytest.mark.usefixtures("usual_integrals")
def test_what_comes_back_is_where_the_rows_are(near):
    X, _ = near
    model = TELL(3, network="dense", **SHORT).fit(X + FAR_AWAY)
    means = np.stack([(X + FAR_AWAY)[model.labels_ == j].mean(0) for j in range(3)])
    back = model.inverse_transform(model.transform(X + FAR_AWAY))
    assert back.dtype == np.float64
    assert np.abs(back - (X + FAR_AWAY)).max() < 20
    assert np.abs(model.inverse_transform(model.cluster_centers_) - means).max() < 20
    told = model.explain(X[:2] + FAR_AWAY)[0]
    assert np.allclose(told.sample, X[0] + FAR_AWAY, rtol=0, atol=1e-3)
    assert np.isclose(told.attributions.sum(), told.margin - told.baseline_margin, rtol=0.02, atol=1e-3)
    given = model.explain(X[:1] + FAR_AWAY, baseline=X[1] + FAR_AWAY)[0]
    near_given = model.explain(X[1:2] + FAR_AWAY)[0]
    assert np.isfinite(given.baseline_margin)
    assert near_given.cluster == model.labels_[1]
    census = model.explain_cluster(0, X + FAR_AWAY)
    assert np.abs(census.decoded - means[0]).max() < 20


def test_a_table_is_told_in_its_own_numbers(near):
    X, _ = near
    table = pd.DataFrame({"when": X[:, 0] + 1.7e9, "kind": ["u", "v"] * 80, "size": X[:, 1]})
    model = TELL(3, **SHORT).fit(table)
    told = " ".join(fact.sentence for fact in model.explain_cluster(0, table).columns)
    assert "1,700,000,0" in told or "1,699,999,9" in told


@pytest.mark.usefixtures("one_table_of_operators")
def test_it_is_saved_and_exported(near, tmp_path):
    X, _ = near
    model = TELL(3, network="dense", **SHORT).fit(X + FAR_AWAY)
    model.save(tmp_path / "m")
    again = diffclust.load(tmp_path / "m", device="cpu")
    assert (again.origin_ == model.origin_).all()
    assert (again.predict(X + FAR_AWAY) == model.labels_).all()
    program = model.export_program().module()
    assert (program(torch.from_numpy(X + FAR_AWAY))[0].numpy() == model.labels_).all()
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model.export_onnx(tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    assert (session.run(None, {"samples": X + FAR_AWAY})[0] == model.labels_).all()


def test_a_stream_that_begins_with_one_row(near):
    X, y = near
    X = X[np.concatenate([np.unique(y, return_index=True)[1], np.arange(60)])]  # one of each first
    models = [TELL(3, network="identity", **SHORT) for _ in range(2)]
    for row in X:
        models[0].partial_fit(row[None])
        models[1].partial_fit(row[None] + 1e9)
    assert adjusted_rand_score(models[0].predict(X), models[1].predict(X + 1e9)) == 1


def test_ordinary_rows_are_left_as_they_are(near):
    X, _ = near
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for rows in (X, X + 50, np.hstack([X, np.full((160, 1), 1e9)]), 1e12 * X):
            assert origin_of(TensorRows(torch.from_numpy(rows))) is None
    assert TELL(3, **SHORT).fit(X).origin_ is None


def test_images_have_one_origin(digits):
    there = TELL(4, **SHORT).fit(digits[0].astype(np.float64) + 1e6)
    assert there.origin_.shape == ()
    back = there.inverse_transform(there.cluster_centers_)
    assert np.abs(back - 1e6).max() < 2


def test_what_double_precision_cannot_hold_is_said(near):
    X, _ = near
    with pytest.warns(UserWarning, match="Column 0 varies by less than float64"):
        origin_of(TensorRows(torch.from_numpy(np.hstack([X[:, :1] + 1e14, X]))))
    constant = 0.1 * 3e7 + 1e-9 * np.zeros((160, 1))
    assert origin_of(TensorRows(torch.from_numpy(constant))) is None


def test_given_centres_belong_to_the_rows(near):
    X, _ = near
    with pytest.raises(ValueError, match="init: the rows are far from zero"):
        KMeansNet(3, network="identity", init=X[:3] + 1e8, **SHORT).fit(X + 1e8)


def test_counts_beside_a_timestamp_are_read_as_counts():
    """The rule of the units looks at the values as they are given."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.3, (200, 9)).astype(float)
    when = 1.7e9 + rng.normal(size=(200, 1))
    model = TELL(2, **SHORT).fit(np.hstack([when, counts]))
    scale = model.model_.autoencoder.scale.numpy()
    assert np.allclose(scale[1:], np.sqrt(counts.std(0)), rtol=1e-3)
