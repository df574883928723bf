"""A saved model is the same model; a damaged or foreign folder is a clear error; nothing is unpickled."""

import json
import pickle
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import diffclust
from conftest import ESTIMATORS, TWO_METHODS, two_methods
from diffclust.saving import folder as saving_folder
from diffclust.saving.folder import SETTINGS, SUMS, TENSORS, sums_of
from processes import PROCESSES, die_while_saving, said_by

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Models by the names of their methods, and the folder they are saved in."""
    return {}, tmp_path_factory.mktemp("models")


@pytest.fixture
def saved(method, quick, fit_of, digits, kept, tmp_path):
    """A fitted model, and a folder with it that a test may spoil."""
    models, folder = kept
    name = method.__name__
    if name not in models:
        init = {"init": "k-means++"} if hasattr(method, "init") else {}
        restarts = name in TWO_METHODS  # which are the base class's business
        models[name] = quick(4, n_init=2, **init).fit(digits[0]) if restarts else fit_of(name)
        models[name].save(folder / name)
    shutil.copytree(folder / name, tmp_path / "m")
    return models[name], tmp_path / "m"


def test_round_trip(saved, digits):
    model, folder = saved
    again = diffclust.load(folder)
    assert type(again) is type(model)
    assert (again.predict(digits[0]) == model.labels_).all()
    assert (again.predict_proba(digits[0]) == model.predict_proba(digits[0])).all()
    centers = again.inverse_transform(again.cluster_centers_)
    assert (centers == model.inverse_transform(model.cluster_centers_)).all()
    for name in ("inertia_", "clustering_loss_", "temperature_", "n_iter_", "history_", "n_features_in_"):
        assert getattr(again, name) == getattr(model, name)
    assert [run["seed"] for run in again.runs_] == [run["seed"] for run in model.runs_]
    params = model.get_params()
    assert {k: v for k, v in again.get_params().items() if k != "device"} == {
        k: v for k, v in params.items() if k != "device"
    }


NOT_SAVED = "`{}` of the loaded model is another: what it reads must be a parameter, or a buffer that is persistent."


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_what_a_schedule_has_changed_is_saved(quick, blobs, tmp_path):
    """A number that the loss reads and that epochs change must be a buffer: nothing else of a model is kept. Training
    is stopped half way, since a schedule may end where it would begin anew."""
    X = blobs[0][:60]

    def stop(progress):
        progress.stop = progress.phase == "clustering" and progress.epoch >= 5

    model = quick(pretrain_epochs=1, epochs=12, features="reconstruction", callbacks=(stop,)).fit(X)
    model.callbacks = ()
    model.save(tmp_path / "m")
    again = diffclust.load(tmp_path / "m")
    assert again.score(X) == model.score(X), NOT_SAVED.format("clustering_loss")
    x = torch.from_numpy(X).float()
    with torch.no_grad():
        assigned, assigned_again = (each.model_.to("cpu").assign(x) for each in (model, again))
    assert (assigned_again == assigned).all(), NOT_SAVED.format("assign")


@two_methods
def test_a_loaded_estimator_fits_again(saved, digits):
    model, folder = saved
    assert (diffclust.load(folder).fit(digits[0]).labels_ == model.labels_).all()


def test_rows_keep_units_and_names(method, quick, blobs, tmp_path):
    frame = pd.DataFrame(blobs[0] * 1000).add_prefix("c")
    init = {"init": np.zeros((3, 10)) + np.eye(3, 10)} if hasattr(method, "init") else {}
    model = quick(**init).fit(frame)
    model.save(tmp_path / "m")
    again = diffclust.load(tmp_path / "m")
    assert (again.predict(frame) == model.labels_).all()
    assert all((again.init == value).all() for value in init.values())
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame.add_prefix("other"))


def test_every_method_loads_in_a_fresh_process(digits, fit_of, tmp_path):
    labels = {}
    for name in ESTIMATORS:
        model = fit_of(name)
        model.save(tmp_path / name)
        labels[name] = model.labels_.tolist()
    np.save(tmp_path / "x.npy", digits[0])
    code = (
        "import json, sys, numpy as np, diffclust; from pathlib import Path;"
        "folder = Path(sys.argv[1]); x = np.load(folder / 'x.npy');"
        "print(json.dumps({name: diffclust.load(folder / name).predict(x).tolist() for name in sys.argv[2:]}))"
    )
    assert json.loads(said_by(code, tmp_path, *ESTIMATORS)) == labels


@two_methods
@pytest.mark.parametrize("name", [SETTINGS, TENSORS, SUMS])
def test_a_flipped_byte_is_noticed(saved, name):
    _, folder = saved
    blob = (folder / name).read_bytes()
    for where in (0, len(blob) // 3, len(blob) // 2, len(blob) - 1):
        damaged = bytearray(blob)
        damaged[where] ^= 1
        (folder / name).write_bytes(bytes(damaged))
        with pytest.raises(ValueError, match="damaged"):
            diffclust.load(folder)


@two_methods
@pytest.mark.parametrize("name", [SETTINGS, TENSORS, SUMS])
def test_a_missing_or_cut_file_is_noticed(saved, name):
    _, folder = saved
    blob = (folder / name).read_bytes()
    (folder / name).write_bytes(blob[: len(blob) // 2])
    with pytest.raises(ValueError, match="damaged"):
        diffclust.load(folder)
    (folder / name).unlink()
    with pytest.raises(ValueError, match=name):
        diffclust.load(folder)


def test_a_foreign_folder_is_a_clear_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        diffclust.load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="not a saved diffclust model"):
        diffclust.load(tmp_path)


def forge(folder, change):
    """A stranger's folder, with checksums that fit."""
    settings = json.loads((folder / SETTINGS).read_bytes())
    change(settings)
    blobs = {SETTINGS: json.dumps(settings).encode(), TENSORS: (folder / TENSORS).read_bytes()}
    (folder / SETTINGS).write_bytes(blobs[SETTINGS])
    (folder / SUMS).write_bytes(sums_of(blobs))


@two_methods
@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.update(format=99),
        lambda s: s.update({"class": "os.system"}),
        lambda s: s["network"].update(kind="subprocess.Popen"),
        lambda s: s["network"]["config"].update(surprise=1),
        lambda s: s["network"]["config"].update(embedding_dim=3),
        lambda s: s.pop("fitted"),
        lambda s: s["fitted_with"].update(n_clusters=7),
    ],
)
def test_a_forged_folder_is_a_clear_error(saved, change):
    _, folder = saved
    forge(folder, change)
    with pytest.raises(ValueError, match="cannot be read as a diffclust model"):
        diffclust.load(folder)


def test_nothing_is_unpickled(saved, digits, monkeypatch):
    model, folder = saved

    def refuse(*args, **kwargs):
        raise AssertionError("unpickled")

    for owner, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load")):
        monkeypatch.setattr(owner, name, refuse)
    assert (diffclust.load(folder).predict(digits[0]) == model.labels_).all()


@two_methods
def test_saving_needs_a_fit_and_a_folder(quick, saved, tmp_path):
    with pytest.raises(Exception, match="not fitted"):
        quick().save(tmp_path / "new")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(NotADirectoryError, match="is a file"):
        saved[0].save(tmp_path / "file")


@two_methods
def test_saving_again_replaces_the_model_and_nothing_else(saved, quick, digits):
    _, folder = saved
    (folder / "notes.txt").write_text("mine")
    other = quick(4, random_state=5).fit(digits[0])
    other.save(folder)
    assert (diffclust.load(folder).predict(digits[0]) == other.labels_).all()
    assert (folder / "notes.txt").read_text() == "mine"
    assert sorted(p.name for p in folder.iterdir()) == sorted([SETTINGS, TENSORS, SUMS, "notes.txt"])


@pytest.fixture
def pair(blobs, tmp_path):
    """Two models that differ in all that is saved, and a folder with the first of them and a file of the user's."""
    one, two = (
        diffclust.KMeansNet(k, network="identity", epochs=1, random_state=k, device="cpu").fit(blobs[0]) for k in (3, 5)
    )
    one.save(tmp_path / "m")
    (tmp_path / "m" / "labels.csv").write_text("mine")
    return one, two, tmp_path / "m"


def holds(folder, model):
    """Whether the folder holds this model whole and nothing of another, as documented."""
    again = diffclust.load(folder)
    files = {p.name: p.read_bytes() for p in folder.iterdir()}
    return (
        (again.labels_ == model.labels_).all()
        and again.n_clusters == model.n_clusters
        and files.pop("labels.csv") == b"mine"
        and files.pop(SUMS) == sums_of({name: files[name] for name in (SETTINGS, TENSORS)})
        and files.keys() == {SETTINGS, TENSORS}
    )


def test_a_reader_beside_a_writer_gets_one_model_or_the_other(pair):
    one, two, folder = pair
    stop = threading.Event()

    def write():
        while not stop.is_set():
            two.save(folder)
            one.save(folder)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = set()
        end = time.monotonic() + 0.7
        while time.monotonic() < end:
            again = diffclust.load(folder)
            assert again.n_clusters == len(again.cluster_centers_) == len(np.unique(again.labels_))
            seen.add(again.n_clusters)
    finally:
        stop.set()
        writer.join()
    assert seen == {3, 5}


def test_writers_do_not_mix_their_files(pair):
    one, two, folder = pair

    def write(model):
        for _ in range(20):
            model.save(folder)

    writers = [threading.Thread(target=write, args=[model]) for model in (one, two, one, two)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert holds(folder, two if diffclust.load(folder).n_clusters == 5 else one)


def failing(monkeypatch, operation, which, error=OSError, after=False):
    """From now on the `which`-th call of a Path's `operation`, or of `write_flushed`, fails."""
    owner = Path if operation == "replace" else saving_folder
    calls, original = [], getattr(owner, operation)

    def call(path, *args):
        calls.append(path)
        if len(calls) == which + 1:
            if after:
                original(path, *args)
            raise error("No space left on device")
        return original(path, *args)

    monkeypatch.setattr(owner, operation, call)


@pytest.mark.parametrize("operation", ["write_flushed", "replace"])
@pytest.mark.parametrize("which", range(3))
def test_a_save_that_fails_leaves_the_former_model(pair, monkeypatch, operation, which):
    one, two, folder = pair
    with monkeypatch.context() as patch:
        failing(patch, operation, which)
        with pytest.raises(OSError, match="No space"):
            two.save(folder)
    assert holds(folder, one)
    with monkeypatch.context() as patch:
        failing(patch, operation, which)
        with pytest.raises(OSError, match="No space"):
            two.save(folder.parent / "new")
    assert not list((folder.parent / "new").iterdir())
    two.save(folder)
    assert holds(folder, two)


@pytest.mark.parametrize("which", range(3))
def test_an_interrupt_leaves_a_whole_model(pair, monkeypatch, which):
    one, two, folder = pair
    failing(monkeypatch, "replace", which, KeyboardInterrupt, after=True)
    with pytest.raises(KeyboardInterrupt):
        two.save(folder)
    assert holds(folder, one if which < 2 else two)


def test_a_killed_save_leaves_a_model_that_loads(pair):
    """One true kill; every moment of one is tried in tests/cli/test_faults.py."""
    one, two, folder = pair
    two.save(folder.parent / "two")
    process = PROCESSES.Process(target=die_while_saving, args=[folder.parent / "two", folder])
    process.start()
    process.join(300)
    assert process.exitcode == 9
    assert diffclust.load(folder).n_clusters == 5
    one.save(folder)
    assert holds(folder, one)


@two_methods
def test_code_is_named_but_not_kept(quick, digits, tmp_path):
    model = quick(4, callbacks=[lambda progress: None], optimizer=torch.optim.Adam).fit(digits[0])
    model.save(tmp_path / "m")
    assert json.loads((tmp_path / "m" / SETTINGS).read_text())["not_saved"] == ["optimizer", "callbacks"]
    assert diffclust.load(tmp_path / "m").optimizer == type(model)().optimizer


def test_settings_changed_after_the_fit_do_not_change_the_model(digits, tmp_path):
    model = diffclust.KMeansNet(4, pretrain_epochs=2, epochs=2, random_state=0).fit(digits[0])
    expected = model.score(digits[0])
    model.set_params(alpha=2.0, n_clusters=5).save(tmp_path / "m")
    again = diffclust.load(tmp_path / "m")
    assert again.score(digits[0]) == expected
    assert (again.alpha, again.n_clusters) == (2.0, 5)


def test_a_users_module_is_not_taken_over(blobs, tmp_path):
    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = torch.nn.Linear(6, 6)

        def encode(self, x):
            return self.inside(x)

        def decode(self, z):
            return z

    diffclust.TELL(3, network=Plain(), pretrain_epochs=2, epochs=2).fit(blobs[0]).save(tmp_path / "m")
    mine = Plain()
    before = mine.inside.weight.clone()
    again = diffclust.load(tmp_path / "m", network=mine)
    assert (mine.inside.weight == before).all()
    assert again.network is mine
    diffclust.TELL(3, pretrain_epochs=2, epochs=2).fit(blobs[0]).save(tmp_path / "dense")
    with pytest.raises(ValueError, match="no network= is needed"):
        diffclust.load(tmp_path / "dense", network=mine)


class Narrower(diffclust.nn.DenseAutoencoder):
    """One of our networks, made one's own."""

    def __init__(self, input_shape=(6,)):
        super().__init__(input_shape, 4, hidden=(8,))


def test_a_network_derived_from_ours_is_asked_for_again(blobs, tmp_path):
    model = diffclust.TELL(3, network=Narrower(), pretrain_epochs=2, epochs=2, device="cpu").fit(blobs[0])
    model.save(tmp_path / "m")
    with pytest.raises(ValueError, match=r"own \(Narrower\): give one as load"):
        diffclust.load(tmp_path / "m")
    with pytest.raises(ValueError, match=r"fitted on samples \(6,\), your network takes \(5,\)"):
        diffclust.load(tmp_path / "m", network=Narrower((5,)))
    again = diffclust.load(tmp_path / "m", network=Narrower())
    assert type(again.model_.autoencoder) is Narrower
    assert (again.predict(blobs[0]) == model.labels_).all()
    again.save(tmp_path / "n")
    assert (diffclust.load(tmp_path / "n", network=Narrower()).predict(blobs[0]) == model.labels_).all()
