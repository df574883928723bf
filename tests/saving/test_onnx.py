"""Fitted estimators as programs: they answer as `predict` does, and the ONNX file needs no torch."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

import diffclust
from conftest import ESTIMATORS
from diffclust import TELL, extras
from diffclust.nn.autoencoders import ConvAutoencoder, Identity

pytestmark = [
    pytest.mark.usefixtures("one_table_of_operators"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


@pytest.fixture
def answers(tmp_path):
    """What onnxruntime says."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install 'diffclust[onnx]'")
    pytest.importorskip("onnxscript", reason="needs onnxscript: pip install 'diffclust[onnx]'")

    def ask(model, X, samples=None):
        samples = X if samples is None else samples
        model.export_onnx(tmp_path / "model.onnx")
        written = (tmp_path / "model.onnx").read_bytes()
        assert str(Path(torch.__file__).parent).encode() not in written  # nothing of the machine it comes from
        assert b".py" not in written
        session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
        assert [i.name for i in session.get_inputs()] == ["samples"]
        assert [o.name for o in session.get_outputs()] == ["labels", "probabilities"]
        for n in (1, 5, len(X)):  # any number of rows
            labels, probabilities = session.run(None, {"samples": samples[:n]})
            assert (labels == model.predict(X[:n])).all()
            assert np.abs(probabilities - model.predict_proba(X[:n])).max() <= 1e-5
        return tmp_path / "model.onnx"

    return ask


def test_every_method(quick, blobs):
    """The program that the ONNX file is made of."""
    rows = blobs[0].astype(np.float32)
    model = quick(network="identity").fit(rows)
    labels, probabilities = model.export_program().module()(torch.from_numpy(rows))
    assert (labels.numpy() == model.labels_).all()
    assert np.abs(probabilities.numpy() - model.predict_proba(rows)).max() <= 1e-5


def kinds():
    """A method of each kind of embedding and layer: others have the same program."""
    found = {}
    for name in ESTIMATORS:
        model = getattr(diffclust, name)(3).build_model(Identity((6,)), 10)
        found.setdefault((type(model).embed, type(model.clusters).logits), name)
    return list(found.values())


@pytest.mark.parametrize("method", kinds(), indirect=True)
def test_every_kind_of_program(method, quick, blobs, answers):
    rows = blobs[0].astype(np.float32)
    answers(quick(network="dense" if method is TELL else "identity").fit(rows), rows)


def test_integer_images_are_scaled_inside(digits, answers):
    images = (digits[0] * 255).astype(np.uint8)
    model = TELL(4, network="identity", epochs=2, random_state=0, device="cpu").fit(images)
    answers(model, images, samples=images.astype(np.float32))


def test_large_images_are_shrunk_inside(answers):
    images = np.random.default_rng(0).random((12, 33, 50)).astype(np.float32)
    network = ConvAutoencoder((1, 33, 50), 3, hidden=8, shrink=2)
    model = TELL(2, network=network, pretrain_epochs=1, epochs=1, random_state=0, device="cpu").fit(images)
    answers(model, images)


def test_images_and_where_torch_cannot_be_imported(fit_of, digits, answers, tmp_path):
    images, model = digits[0], fit_of("CrossMetric")
    path = answers(model, images)
    np.save(tmp_path / "x.npy", images)
    script = """
import sys
sys.modules["torch"] = None  # importing it is an error from here on
import numpy as np, onnxruntime
try:
    import torch
except ImportError:
    pass
else:
    sys.exit("torch was there")
session = onnxruntime.InferenceSession(sys.argv[1])
np.save(sys.argv[3], session.run(["labels"], {"samples": np.load(sys.argv[2])})[0])
"""
    out = tmp_path / "labels.npy"
    subprocess.run([sys.executable, "-c", script, path, tmp_path / "x.npy", out], check=True, timeout=120)
    assert (np.load(out) == model.labels_).all()


def test_torch_export(fit_of, digits, tmp_path):
    images, model = digits[0], fit_of("TELL")
    torch.export.save(model.export_program(), tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2").module()
    for n in (1, 6, 80):
        labels, probabilities = program(torch.from_numpy(images[:n]))
        assert (labels.numpy() == model.labels_[:n]).all()
        assert np.abs(probabilities.numpy() - model.predict_proba(images[:n])).max() <= 1e-5


def test_a_missing_extra_is_named(digits, monkeypatch, tmp_path):
    model = TELL(4, network="identity", epochs=1, device="cpu").fit(digits[0])

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(extras, "import_module", missing)
    with pytest.raises(ImportError, match=r"export_onnx needs onnx: pip install \"diffclust\[onnx\]\""):
        model.export_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_nothing_to_export_before_a_fit(tmp_path):
    with pytest.raises(NotFittedError, match="not fitted"):
        TELL(3).export_onnx(tmp_path / "model.onnx")
