"""What older versions wrote loads and answers as it did: see docs/files.md and make_fixtures.py."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from make_fixtures import NARROW, ROWS, inputs, narrow

import diffclust
from conftest import ESTIMATORS
from diffclust.engine import checkpoint
from diffclust.nn.autoencoders import NETWORKS
from diffclust.saving import formats
from diffclust.saving.folder import SETTINGS, SUMS, TENSORS, sums_of
from diffclust.saving.formats import FORMAT, MIGRATIONS, migrated

FIXTURES = Path(__file__).parent / "fixtures"
HOMES = sorted(FIXTURES.glob("format-*"))
EXPECTED = {home: json.loads((home / "expected.json").read_text()) for home in HOMES}
MODELS = [(home, name) for home in HOMES for name in EXPECTED[home] if name != "checkpoint"]

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def of(home, name):
    """The samples, and what is expected of them."""
    expected = EXPECTED[home][name]
    return inputs(home)[expected["input"]], expected


def test_every_format_and_every_method_has_its_fixtures():
    assert [home.name for home in HOMES] == [f"format-{i + 1}" for i in range(FORMAT)]
    missing = set(ESTIMATORS) - EXPECTED[HOMES[-1]].keys()  # a method may be younger than a format
    assert not missing, f"write them: python tests/saving/make_fixtures.py {' '.join(sorted(missing))}"
    kinds = {json.loads(path.read_text())["network"]["kind"] for path in HOMES[-1].glob(f"*/{SETTINGS}")}
    assert kinds == NETWORKS.keys() - {"conv-pool"}  # whose 64 maps are half a megabyte
    assert sum(path.stat().st_size for path in FIXTURES.rglob("*") if path.is_file()) < 1_200_000


@pytest.mark.parametrize(("home", "name"), MODELS, ids=lambda value: getattr(value, "name", value))
def test_a_saved_model_answers_as_it_did(home, name, tmp_path):
    X, expected = of(home, name)
    model = diffclust.load(home / name, device="cpu")
    assert model.predict(X).tolist() == expected["labels"]
    assert np.allclose(model.predict_proba(X).max(1), expected["probabilities"], atol=1e-3)
    if "columns" in expected:
        assert model.columns_.describe() == expected["columns"]
    if "names" in expected:
        assert model.names_ == expected["names"]
    model.save(tmp_path / "m")  # and may be saved again, as today's
    assert json.loads((tmp_path / "m" / SETTINGS).read_bytes())["format"] == FORMAT
    assert diffclust.load(tmp_path / "m", device="cpu").predict(X).tolist() == expected["labels"]


@pytest.mark.parametrize("home", HOMES, ids=lambda home: home.name)
def test_an_onnx_file_answers_as_it_did(home):
    onnxruntime = pytest.importorskip("onnxruntime")
    X, expected = of(home, "TELL")
    session = onnxruntime.InferenceSession(home / "TELL.onnx", providers=["CPUExecutionProvider"])
    labels, probabilities = session.run(["labels", "probabilities"], {"samples": X})
    assert labels.tolist() == expected["labels"]
    assert np.allclose(probabilities.max(1), expected["probabilities"], atol=1e-3)


@pytest.fixture
def _narrow():
    before = {network: network.__init__.__defaults__ for network in NARROW}
    narrow()
    yield
    for network, defaults in before.items():
        network.__init__.__defaults__ = defaults


@pytest.mark.usefixtures("_narrow")
@pytest.mark.parametrize("home", HOMES, ids=lambda home: home.name)
def test_a_checkpoint_goes_on_to_the_labels_it_would_have_had(home, tmp_path):
    X, expected = of(home, "checkpoint")
    shutil.copytree(home / "checkpoint", tmp_path / "c")
    seen = []
    model = diffclust.TELL(
        3,
        **{**ROWS, "epochs": 5},
        init="k-means",  # the default when it was written
        checkpoint=tmp_path / "c",
        callbacks=[lambda progress: seen.append((progress.phase, progress.epoch))],
    )
    assert model.fit(X).labels_.tolist() == expected["labels"]
    assert seen == [("clustering", epoch) for epoch in (2, 3, 4)]  # not from the beginning


@pytest.fixture
def saved(tmp_path):
    shutil.copytree(HOMES[-1] / "TELL", tmp_path / "m")
    return tmp_path / "m"


def rewrite(folder, change):
    settings = json.loads((folder / SETTINGS).read_bytes())
    change(settings)
    blobs = {SETTINGS: json.dumps(settings).encode(), TENSORS: (folder / TENSORS).read_bytes()}
    (folder / SETTINGS).write_bytes(blobs[SETTINGS])
    (folder / SUMS).write_bytes(sums_of(blobs))


def test_the_next_format_is_refused_with_what_to_do(saved):
    rewrite(saved, lambda s: s.update(format=FORMAT + 1, diffclust="9.9"))
    wanted = (
        rf"format {FORMAT + 1}, written by diffclust 9\.9; this version reads formats 1 to {FORMAT}: install a newer"
    )
    with pytest.raises(ValueError, match=wanted):
        diffclust.load(saved)


def test_the_next_format_is_refused_even_with_files_of_its_own(saved):
    """Which this version knows nothing of."""
    rewrite(saved, lambda s: s.update(format=FORMAT + 1))
    with (saved / SUMS).open("ab") as file:
        file.write(b"0" * 64 + b"  novelty.bin\n")
    with pytest.raises(ValueError, match="install a newer"):
        diffclust.load(saved)
    rewrite(saved, lambda s: s.update(format=FORMAT))
    with (saved / SUMS).open("ab") as file:
        file.write(b"0" * 64 + b"  novelty.bin\n")
    with pytest.raises(ValueError, match=r"damaged: no version of diffclust writes novelty\.bin"):
        diffclust.load(saved)


@pytest.mark.parametrize("number", [0, -1, True, "2", None, 1.5, [1]])
def test_a_format_that_never_was_is_refused(saved, number):
    rewrite(saved, lambda s: s.update(format=number))
    with pytest.raises(ValueError, match="no version of diffclust writes"):
        diffclust.load(saved)


def test_a_file_from_before_the_format_was_complete(saved):
    """The first files had not `fitted_with`, and called events reports; what cannot be made up is named."""

    def early(settings):
        settings["format"] = 1
        del settings["fitted_with"]
        diagnostics = settings["fitted"]["diagnostics_"]
        diagnostics["reports"] = diagnostics.pop("events")

    rewrite(saved, early)
    model = diffclust.load(saved, device="cpu")
    X, expected = of(HOMES[-1], "TELL")
    assert model.predict(X).tolist() == expected["labels"]
    assert "events" in model.diagnostics_
    rewrite(saved, lambda s: s.pop("feature_names"))
    with pytest.raises(
        ValueError, match=r"feature_names missing: it was written by diffclust .*, fit and save it again"
    ):
        diffclust.load(saved)


def test_every_format_has_a_way_to_the_next(monkeypatch):
    assert list(MIGRATIONS) == list(range(1, FORMAT))
    monkeypatch.setattr(formats, "FORMAT", FORMAT + 1)
    monkeypatch.setitem(MIGRATIONS, FORMAT, lambda settings: settings.update(new=True))
    settings = json.loads((HOMES[0] / "TELL" / SETTINGS).read_bytes())
    assert migrated(settings)["new"]
    assert settings["format"] == FORMAT + 1


def test_a_checkpoint_does_not_mind_settings_of_later_date(tmp_path):
    """One that the checkpoint does not know is the default it then had; any other value is another fit."""
    folder = checkpoint.CheckpointFolder(tmp_path)
    begun = checkpoint.Checkpoint(folder, 1, {"lr": 0.1}, [7])
    begun.has_news = True
    begun.write()
    defaults = {"lr": None, "new": "auto"}
    again = checkpoint.Checkpoint(folder, 1, {"lr": 0.1, "new": "auto"}, [8], defaults=defaults)
    assert again.seeds == [7]
    with pytest.raises(ValueError, match="another fit: new differ"):
        checkpoint.Checkpoint(folder, 1, {"lr": 0.1, "new": "other"}, [8], defaults=defaults)
