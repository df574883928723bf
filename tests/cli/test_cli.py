"""The command as users run it: mostly in this process, to be quick."""

import json
import os
import re
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from PIL import Image
from sklearn.exceptions import ConvergenceWarning

import diffclust
import diffclust.reading.files
from diffclust import cli
from diffclust.methods import METHODS

HERE = ("--jobs", 0)  # compare in this process, to be quick
SHORT = ("--epochs", "2", "--set", "pretrain_epochs=2", "--quiet", "--device", "cpu")

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # training is far too short


@pytest.fixture
def short(monkeypatch):
    """Commands without --epochs train for one epoch."""
    for method in METHODS:
        for name in ("auto_steps", "auto_most", "auto_least"):
            monkeypatch.setattr(method.load(), name, (1, 1))
    monkeypatch.setattr("diffclust.estimator.settings.STEPS_OF_ALL_ROWS", (1, 1))
    monkeypatch.setattr("diffclust.methods.spectralnet.AUTO_STEPS", 1)


@pytest.fixture(scope="session")
def model(tmp_path_factory, blobs):
    """A fitted model of six features and three clusters."""
    folder = tmp_path_factory.mktemp("model") / "rows"
    diffclust.TELL(3, epochs=2, pretrain_epochs=2, random_state=0, device="cpu").fit(blobs[0]).save(folder)
    return folder


TEXTS = [f"{animal} {verb} {place}" for animal in ("cat", "dog") for verb in ("sat", "ran") for place in ("here", "up")]


def write_texts(path, texts=TEXTS, **more):
    path.write_text("".join(json.dumps({"text": text, **more}) + "\n" for text in texts))
    return path


def write_images(folder, n=12, size=(8, 8), mode="L"):
    rng = np.random.default_rng(0)
    folder.mkdir()
    for i in range(n):
        Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)).convert(mode).save(folder / f"{i:02}.png")
    return folder


def labels_of(path):
    table = pd.read_csv(path)
    assert table["row"].tolist() == list(range(len(table)))
    return table["label"].to_numpy()


# --- the command itself


@pytest.mark.quick
def test_version(works):
    assert works("--version") == f"diffclust {diffclust.__version__}\n"


def test_version_as_a_module():
    said = subprocess.run([sys.executable, "-m", "diffclust", "--version"], capture_output=True, text=True)
    assert (said.returncode, said.stdout, said.stderr) == (0, f"diffclust {diffclust.__version__}\n", "")


def test_the_module_answers_as_the_command_does():
    said = subprocess.run([sys.executable, "-m", "diffclust", "--help"], capture_output=True, text=True)
    assert said.returncode == 0
    assert "predict" in said.stdout


def test_imports_little():
    code = "import sys, diffclust.cli; print([m for m in ('torch', 'sklearn', 'numpy', 'pandas') if m in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert said.stdout == "[]\n"


def test_no_words_at_all_are_a_call_for_help(works):
    assert works() == works("--help")


@pytest.mark.quick
def test_methods_fit_a_narrow_terminal(works):
    out = works("methods")
    assert max(map(len, out.splitlines())) <= 80
    whole = " ".join(out.split())
    for method in METHODS:
        pieces = (f"diffclust.{method.estimator}", method.title, method.paper, f"diffclust/methods/{method.module}.py")
        assert all(piece in whole for piece in pieces)
        assert method.name in whole


@pytest.mark.quick
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["fti"], "No such command 'fti'"),
        (["compare", "x.npy"], "Missing option '-k'"),
        (["fit", "-k", "3", "--out", "a"], "Missing argument"),
        (["fit", "x.npy", "-k", "three", "--out", "a"], "-k three: expected a number or auto."),
        (["fit", "x.npy", "-k", "3", "--out", "a", "--epoch", "3"], "No such option"),
        (["fit", "x.npy", "-k", "3", "--out", "a"], "No file, folder or data set 'x.npy'"),
        (
            ["fit", "digits", "-k", "3", "--out", "a", "--method", "tall"],
            "Unknown method 'tall' (did you mean tell?): choose from tell",
        ),
        (["fit", "digits", "-k", "3", "--out", "a", "--epochs", "-1"], "epochs=-1 should be >= 0"),
        (["fit", "digits", "-k", "3", "--out", "a", "--restarts", "0"], "'--restarts'"),
        (["fit", "digits", "-k", "0", "--out", "a"], "-k 0: expected at least one cluster, or auto"),
        (["compare", "digits", "-k", "0"], "'-k'"),
        (["fit", "digits", "-k", "3", "--out", "a", "--method", "ssc"], "ssc cannot label new rows"),
        (["fit", "digits", "-k", "3", "--method", "kmeans"], "without a network by --set network=identity"),
        (["compare", "digits", "-k", "3", "--methods", "kmean"], "did you mean kmeans?"),
        (["compare", "digits", "-k", "3", "--plot", "t.png"], "--plot t.png should end in .html"),
        (["compare", "digits", "-k", "3", "--out", "t.txt"], "--out t.txt should end in .csv"),
        (["compare", "nothing.csv", "-k", "3"], "No file, folder or data set 'nothing.csv'"),
        (["explain", "nowhere"], "No such folder: nowhere"),
        (["fit", "digits", "-k", "3", "--out", "a", "--device", "toaster"], "device='toaster'"),
        (["compare", "digits", "-k", "3", "--methods", "tell,tall"], "Unknown method 'tall'"),
        (["compare", "digits", "-k", "3", "--methods", ","], "Unknown method ''"),
        (["compare", "digits", "-k", "3", "--seeds", "0"], "'--seeds'"),
        (["predict", "nowhere", "digits", "--out", "a.csv"], "No such folder: nowhere"),
        (["predict", ".", "digits", "--out", "a.csv"], "is not a saved diffclust model"),
        (["predict", ".", "digits", "--out", "a.txt"], "should end in .csv, .parquet or .npy"),
        (["predict", ".", "digits", "--out", "a.npy", "--proba"], "--proba needs a .csv or .parquet"),
    ],
)
def test_asked_wrongly(refused, words, says):
    refused(*words, says=says)


def test_where_nothing_can_be_written_is_said_before_any_work(refused, tmp_path, monkeypatch):
    monkeypatch.setattr(diffclust.reading.files, "read", None)  # nobody gets that far
    (tmp_path / "file").touch()
    (tmp_path / "folder.csv").mkdir()
    for words in (["fit", "digits", "-k", 3], ["demo"]):
        refused(*words, "--out", "file", says="--out file is a file, not a folder")
        refused(*words, "--out", "file/a", says="file is not a folder")
    for words in (["predict", "model", "digits"], ["compare", "digits", "-k", 3]):
        refused(*words, "--out", "folder.csv", says="is a folder, not a file")
        refused(*words, "--out", "gone/a.csv", says="gone is not a folder")


@pytest.mark.parametrize("name", ["labels.csv", "link.csv"])
def test_the_data_are_not_written_over(refused, tmp_path, model, blobs, name):
    (tmp_path / "runs").mkdir()
    data = tmp_path / "runs" / "labels.csv"
    pd.DataFrame(blobs[0]).to_csv(data, index=False)
    (tmp_path / "runs" / "link.csv").symlink_to(data)
    before, out, says = data.read_bytes(), f"runs/{name}", "is the file the data are read from"
    refused("predict", model, data, "--out", out, says=says)
    refused("report", model, data, "--out", out, says=says)
    refused("compare", data, "-k", 4, "--methods", "kmeans", "--out", out, says=says)
    refused("fit", f"runs/{name}", "-k", 4, "--out", "runs", *SHORT, says=says)
    assert data.read_bytes() == before


@pytest.fixture
def broken(monkeypatch):
    """broken(error): reading any data raises it."""

    def broken(error):
        def read(*args, **kwargs):
            raise error

        monkeypatch.setattr(diffclust.reading.files, "read", read)

    return broken


@pytest.mark.parametrize(
    ("error", "says", "code"),
    [
        (RuntimeError("out of memory\n  at line 3"), "out of memory at line 3", 1),
        (ZeroDivisionError(), "ZeroDivisionError", 1),
        (OSError(28, "No space left on device", "a.csv"), "a.csv: No space left on device", 1),
        (ImportError("Reading images needs Pillow"), "Reading images needs Pillow", 1),
        (PermissionError(13, "Permission denied", "a.csv"), "a.csv: Permission denied", 2),
        (TypeError("lr should be a number"), "lr should be a number", 2),
        (KeyboardInterrupt(), "stopped", 1),
    ],
)
def test_failures_are_one_line(run, broken, error, says, code):
    broken(error)
    assert run("compare", "digits", "-k", 3) == (code, "", f"diffclust: {says}\n")


def test_the_traceback_for_those_who_ask(broken, monkeypatch):
    broken(RuntimeError("out of memory"))
    monkeypatch.setenv("DIFFCLUST_TRACEBACK", "1")
    monkeypatch.setattr(sys, "argv", ["diffclust", "compare", "digits", "-k", "3"])
    with pytest.raises(RuntimeError, match="out of memory"):
        cli.main()


# --- fit and predict


def rows_npy(folder, X, y):
    np.save(folder / "x.npy", X)
    return folder / "x.npy"


def rows_npz(folder, X, y):
    np.savez(folder / "x.npz", X=X, y=y)
    return folder / "x.npz"


def rows_sparse(folder, X, y):
    sp.save_npz(folder / "x.npz", sp.csr_matrix(X))
    return folder / "x.npz"


def rows_csv(folder, X, y):
    names = [f"f{i}" for i in range(X.shape[1])]
    pd.DataFrame(X, columns=names).assign(label=y).to_csv(folder / "x.csv", index=False)
    return folder / "x.csv"


def rows_parquet(folder, X, y):
    names = [f"f{i}" for i in range(X.shape[1])]
    pd.DataFrame(X, columns=names).assign(label=y).to_parquet(folder / "x.parquet")
    return folder / "x.parquet"


@pytest.mark.quick
@pytest.mark.parametrize("write", [rows_npy, rows_npz, rows_sparse, rows_csv, rows_parquet])
def test_rows_there_and_back(works, tmp_path, blobs, write):
    data = write(tmp_path, *blobs)
    out = works("fit", data, "-k", 3, "--out", "runs/a", *SHORT)
    assert "Saved to runs/a" in out
    assert ("ACC" in out) == ("ARI" in out) == (write not in (rows_npy, rows_sparse))
    assert works("predict", "runs/a", data, "--out", "new.csv", "--device", "cpu") == "150 labels in new.csv\n"
    truth = diffclust.load("runs/a").predict(diffclust.reading.files.read(data).X)
    assert (labels_of("new.csv") == truth).all()
    assert (labels_of("runs/a/labels.csv") == truth).all()
    assert not os.path.exists("runs/a/words.json")


@pytest.mark.parametrize("index", ["customer", "label", None])
def test_an_index_is_no_feature(works, tmp_path, blobs, index):
    """Whether the file is read whole or in row groups."""
    X, _ = blobs
    keys = pd.Index(np.random.default_rng(0).permutation(len(X)), name=index)
    pd.DataFrame(X, index=keys).add_prefix("f").to_parquet(tmp_path / "x.parquet")
    works("fit", "x.parquet", "-k", 3, "--out", "model", *SHORT)
    works("predict", "model", "x.parquet", "--out", "new.csv")
    assert (tmp_path / "new.csv").read_text() == (tmp_path / "model" / "labels.csv").read_text()
    in_groups = diffclust.TELL(3, epochs=1, pretrain_epochs=1, device="cpu").fit(tmp_path / "x.parquet")
    assert list(in_groups.feature_names_in_) == list(diffclust.load("model").feature_names_in_)


@pytest.mark.usefixtures("short")
def test_rows_without_a_label_are_not_scored(works, tmp_path, blobs):
    X, y = blobs
    labels = y.astype(object)
    labels[::4] = None
    pd.DataFrame(X).add_prefix("f").assign(label=labels).to_csv(tmp_path / "x.csv", index=False)
    says = f"{len(y[::4])} of {len(y)} rows have no label: the scores against labels leave them out."
    out = works("fit", "x.csv", "-k", 3, "--out", "model", *SHORT)
    ours, known = labels_of("model/labels.csv"), np.arange(len(y)) % 4 > 0
    assert says in out
    assert f"{100 * diffclust.metrics.ari(y[known], ours[known]):.2f}" in out
    assert says in works("compare", "x.csv", "-k", 3, "--methods", "kmeans", "--seeds", 1, *HERE)
    assert says in works("report", "model", "--layout", "PCA")
    found = re.search(r'<script id="data".*?>(.*?)</script>', (tmp_path / "model/report.html").read_text("utf-8"), re.S)
    truth = json.loads(found[1])["truth"]
    assert truth["classes"] == ["0", "1", "2"]
    assert truth["unlabelled"] == len(y[::4])
    assert truth["label"][:2] == [None, y[1]]


def test_deep_images_there_and_back(works, tmp_path):
    """Of 12 bits, all together and each alone, dark ones too."""
    rng = np.random.default_rng(0)
    for i in range(12):
        (tmp_path / str(i)).mkdir()
        pixels = rng.integers(0, 4096 if i % 2 else 250, (8, 8), dtype=np.uint16)
        for folder in ("all", str(i)):
            (tmp_path / folder).mkdir(exist_ok=True)
            Image.fromarray(pixels).save(tmp_path / folder / f"{i:02}.png")
    works("fit", "all", "-k", 2, "--out", "model", *SHORT)
    labels = labels_of("model/labels.csv")
    assert len(set(labels)) == 2
    for i, label in enumerate(labels):
        works("predict", "model", str(i), "--out", "one.csv")
        assert labels_of("one.csv").tolist() == [label]
    assert "kmeans" in works("compare", "all", "-k", 2, "--methods", "kmeans", "--seeds", 1, *HERE)


def test_images_there_and_back(works, tmp_path):
    data = write_images(tmp_path / "pictures")
    works("fit", data, "-k", 2, "--out", "a", *SHORT)
    works("predict", "a", data, "--out", "new.csv")
    estimator = diffclust.load("a")
    assert estimator.shape_.row == (1, 8, 8)
    assert (labels_of("new.csv") == estimator.labels_).all()
    others = write_images(tmp_path / "others", n=3, size=(20, 30), mode="RGB")
    works("predict", "a", others, "--out", "others.csv")  # made grey, and 8 by 8
    assert (
        labels_of("others.csv") == estimator.predict(diffclust.reading.files.read(others, image_shape=(1, 8, 8)).X)
    ).all()


def test_texts_there_and_back(works, tmp_path):
    works("fit", write_texts(tmp_path / "old.jsonl"), "-k", 2, "--out", "a", *SHORT)
    new = write_texts(tmp_path / "new.jsonl", ["a dog ran", "cat up there", "zebra"])  # in part other words
    works("predict", "a", new, "--out", "new.csv")
    assert (labels_of("new.csv") == diffclust.load("a").predict(diffclust.reading.files.read(new).X)).all()
    works("predict", "a", "old.jsonl", "--out", "old.csv")
    assert (labels_of("old.csv") == labels_of("a/labels.csv")).all()


def test_texts_and_numbers_are_not_mixed_up(works, refused, tmp_path, model, blobs):
    texts, numbers = write_texts(tmp_path / "t.jsonl"), rows_npy(tmp_path, *blobs)
    refused("predict", model, texts, "--out", "new.csv", says="contains NaN or words, in 'text', but TELL was fitted")
    works("fit", texts, "-k", 2, "--out", "a", *SHORT)
    refused("predict", "a", numbers, "--out", "new.csv", says="a was fitted on texts: give it a file with the columns")
    works("fit", numbers, "-k", 2, "--out", "a", *SHORT)  # over the model of texts
    works("predict", "a", numbers, "--out", "new.csv")


@pytest.mark.quick
def test_probabilities(works, tmp_path, model, blobs):
    data = rows_npy(tmp_path, *blobs)
    works("predict", model, data, "--out", "new.csv", "--proba")
    table = pd.read_csv("new.csv")
    assert list(table.columns) == ["row", "label", "p0", "p1", "p2"]
    truth = diffclust.load(model).predict_proba(blobs[0])
    assert table[["p0", "p1", "p2"]].to_numpy() == pytest.approx(truth, abs=1e-6)


def test_labels_as_npy(works, tmp_path, model, blobs):
    works("predict", model, rows_npy(tmp_path, *blobs), "--out", "new.npy")
    assert (np.load("new.npy") == diffclust.load(model).predict(blobs[0])).all()


def test_flags_and_settings_reach_the_estimator(works, tmp_path, blobs):
    data = rows_npy(tmp_path, *blobs)
    settings = ["lr=1e-2", "optimizer=adamw", "init=random", "repair=False", "weight=1", "lr=0.02"]
    flags = [word for setting in settings for word in ("--set", setting)]
    works("fit", data, "-k", 3, "--out", "a", "--restarts", 2, "--seed", 5, *SHORT, *flags)
    estimator = diffclust.load("a")
    got = estimator.get_params()
    assert [got[name] for name in ("lr", "optimizer", "init", "repair", "weight")] == [
        0.02,
        "adamw",
        "random",
        False,
        1,
    ]
    assert (estimator.random_state, estimator.epochs) == (5, 2)
    assert len(estimator.runs_) == estimator.n_init == 2


def test_every_method_by_its_name(works, tmp_path, blobs):
    data = rows_npy(tmp_path, *blobs)
    for method in METHODS:
        works("fit", data, "-k", 3, "--out", method.name, "--method", method.name, *SHORT)
        assert type(diffclust.load(method.name)).__name__ == method.estimator


@pytest.mark.quick
@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("lr", "--set lr: expected NAME=VALUE"),
        ("colour=red", "--set colour=red: expected NAME=VALUE with NAME one of augment, "),
        ("n_clusters=4", "--set n_clusters=4: expected NAME=VALUE"),
        ("weight=heavy", "--set weight=heavy: expected float"),
        ("lr=fast", "--set lr=fast: expected float | None"),
        ("repair=7", "--set repair=7: expected bool"),
        ("lr=-1", "lr=-1 should be None or a finite number > 0"),
        ("network=round", "network='round' should be"),
        ("optimizer=magic", "optimizer='magic' should be"),
    ],
)
def test_bad_settings(refused, tmp_path, blobs, setting, says):
    data = rows_npy(tmp_path, *blobs)
    refused("fit", data, "-k", 3, "--out", "a", "--set", setting, says=says)
    assert not (tmp_path / "a").exists()


def test_warnings_are_one_line(run, tmp_path):
    warnings.simplefilter("always", ConvergenceWarning)
    np.save(tmp_path / "x.npy", np.repeat([[0.0, 1.0]], 10, axis=0))  # three clusters of one point
    code, _, err = run("fit", "x.npy", "-k", 3, "--out", "a", *SHORT)
    assert code == 0
    assert err.startswith("diffclust: warning: Collapse: 10 of 10 rows")
    assert err.count("\n") == 1


def test_strict_is_an_exit_code_and_the_warnings_are_the_last_lines(run, tmp_path, blobs):
    warnings.simplefilter("always", ConvergenceWarning)
    np.save(tmp_path / "x.npy", np.repeat([[0.0, 1.0]], 10, axis=0))
    for more in ((), ("--json",)):
        assert run("fit", "x.npy", "-k", 3, "--out", "a", *SHORT, *more)[0] == 0
        code, out, err = run("fit", "x.npy", "-k", 3, "--out", "a", "--strict", *SHORT, *more)
        assert code == 3
        assert err.splitlines()[-1].startswith("diffclust: warning: Collapse: 10 of 10 rows")
    assert json.loads(out)["warnings"]
    assert json.loads(out)["soundness"]["together"] is None  # of a collapse nothing more is asked
    assert diffclust.load(tmp_path / "a").diagnostics_["collapsed"]
    assert json.loads(out)["unchecked"] == ["anything beyond cluster sizes, because the clusters collapsed"]
    code, out, err = run("fit", rows_npy(tmp_path, *blobs), "-k", 3, "--out", "b", "--strict", *SHORT)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1].startswith("Not checked: stability, because there was one restart")


def test_repairs_are_told_at_the_end(run, tmp_path, blobs):
    warnings.simplefilter("always", ConvergenceWarning)
    np.save(tmp_path / "x.npy", np.repeat([[0.0, 0.0], [5.0, 5.0]], 20, axis=0))  # two points, and four centres
    words = ("-k", 4, "--method", "dcn", "--set", "network=identity", "--epochs", 6)
    _, said, _ = run("fit", "x.npy", "--out", "a", *words)
    assert "dead centres repaired" in said
    assert json.loads(run("fit", "x.npy", "--out", "a", *words, "--json")[1])["repaired"] >= 4
    assert "repaired" not in run("fit", rows_npy(tmp_path, *blobs), "-k", 3, "--out", "b", *SHORT)[1]


# --- bad data


ROWS = np.random.default_rng(0).normal(size=(10, 4))


def spoiled(value):
    X = ROWS.copy()
    X[3, 2] = value
    return X


@pytest.mark.parametrize(
    ("X", "k", "says"),
    [
        (spoiled(np.nan), 2, "NaN"),
        (spoiled(np.inf), 2, "infinity"),
        (ROWS[:0], 2, "x.npy is empty: its shape is (0, 4)"),
        (ROWS[:, :0], 2, "x.npy is empty: its shape is (10, 0)"),
        (ROWS[:1], 1, "1 sample(s)"),
        (ROWS, 11, "n_samples=10 should be >= n_clusters=11"),
        (ROWS.astype(str), 2, "x.npy: expected numbers, but the dtype is <U"),
        (ROWS.astype(complex), 2, "x.npy: expected numbers, but the dtype is complex128"),
        (ROWS[0], 2, "x.npy: expected rows (n, d) or images, but the shape is (4,)"),
        (np.zeros((10, 2, 2)), 2, "Images of 2x2 are too small"),
        (np.zeros((10, 8, 8, 3, 1)), 2, "dim 5"),
    ],
)
def test_bad_data(refused, tmp_path, X, k, says):
    np.save(tmp_path / "x.npy", X)
    refused("fit", "x.npy", "-k", k, "--out", "a", *SHORT, says=says)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("x.csv", "a,b\n1,2\n3,inf\n", "infinity"),
        ("x.csv", "a,b\n", "x.csv: it is empty: 0 rows"),
        ("x.csv", "", "x.csv is empty: 0 bytes"),
        ("x.npz", "not an array", "x.npz cannot be read as .npz"),
        ("x.xls", "?", "x.xls: unknown ending '.xls'. Known: .npy"),
    ],
)
def test_bad_files(refused, tmp_path, file, text, says):
    (tmp_path / file).write_text(text)
    refused("fit", file, "-k", 2, "--out", "a", *SHORT, says=says)


def test_labels_of_images_name_their_files(works, tmp_path):
    photos = tmp_path / "photos"
    photos.mkdir()
    for kind in ("cats", "dogs"):
        write_images(photos / kind, n=6)
    works("fit", photos, "-k", 2, "--out", "model", *SHORT)
    works("predict", "model", photos, "--out", "labels.csv", "--proba")
    works("predict", "model", photos, "--out", "labels.parquet")
    fitted, found = (pd.read_csv(tmp_path / name) for name in ("model/labels.csv", "labels.csv"))
    assert list(fitted.columns) == ["row", "file", "label"]
    assert list(found.columns) == ["row", "file", "label", "p0", "p1"]
    files = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.png"))
    assert list(found["file"]) == list(fitted["file"]) == files
    assert pd.read_parquet(tmp_path / "labels.parquet").equals(found[["row", "file", "label"]])


def test_a_file_name_that_is_not_utf8(works, tmp_path):
    photos = write_images(tmp_path / "photos", n=6)
    name = sorted(photos.glob("*.png"))[0]
    name.rename(os.fsdecode(os.fsencode(photos) + b"/caf\xe9.png"))
    works("fit", photos, "-k", 2, "--out", "model", *SHORT)
    works("predict", "model", photos, "--out", "labels.csv")
    works("predict", "model", photos, "--out", "labels.parquet")
    for file in (pd.read_csv("model/labels.csv"), pd.read_csv("labels.csv"), pd.read_parquet("labels.parquet")):
        assert "caf\\udce9.png" in list(file["file"])
    works("report", "model")


def test_folders_whose_names_are_not_utf8(works, tmp_path):
    odd = os.fsdecode(b"caf\xe9")
    (tmp_path / "photos").mkdir()
    for kind in (odd, "dogs"):
        write_images(tmp_path / "photos" / kind, n=6)
    works("fit", "photos", "-k", 2, "--out", f"model {odd}", *SHORT)
    assert "labels.csv" in works("predict", f"model {odd}", "photos", "--out", f"{odd}.labels.csv")
    assert works("report", f"model {odd}").count("caf\\udce9")
    page = next(tmp_path.glob("**/*.html")).read_text()
    assert '"caf\\udce9"' in page  # JSON for the character that stands for the byte


def test_bad_image_folders(refused, tmp_path):
    refused("fit", write_images(tmp_path / "small", size=(2, 2)), "-k", 2, "--out", "a", says="too small")
    (tmp_path / "none").mkdir()
    refused("fit", "none", "-k", 2, "--out", "a", says="none holds no images")


def test_bad_data_for_a_model(refused, tmp_path, model):
    for X, says in (
        (np.zeros((5, 7)), "X has 7 features, but TELL is expecting 6"),
        (np.full((5, 6), np.nan), "NaN"),
        (np.zeros((5, 8, 8)), "X has samples of shape (1, 8, 8)"),
    ):
        np.save(tmp_path / "x.npy", X)
        refused("predict", model, "x.npy", "--out", "new.csv", says=says)
    refused("predict", model, write_images(tmp_path / "pictures"), "--out", "new.csv", says="samples of shape")
    assert not (tmp_path / "new.csv").exists()


def test_damaged_model(refused, works, tmp_path, blobs):
    data = rows_npy(tmp_path, *blobs)
    works("fit", data, "-k", 3, "--out", "a", *SHORT)
    tensors = tmp_path / "a" / "tensors.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-1] + b"?")
    refused("predict", "a", data, "--out", "new.csv", says="a is damaged")
    tensors.unlink()
    refused("predict", "a", data, "--out", "new.csv", says="tensors.safetensors missing")


# --- compare and demo


@pytest.mark.usefixtures("short")
def test_compare_with_labels(works, tmp_path, blobs):
    data = rows_csv(tmp_path, *blobs)
    out = works(
        "compare",
        data,
        "-k",
        3,
        "--methods",
        "tell,kmeans",
        "--seeds",
        2,
        *HERE,
        "--out",
        "runs.csv",
        "--plot",
        "a.html",
    )
    assert all(word in out for word in ("ACC", "NMI", "ARI", "silhouette", "stability", "GB", "100.0 ± 0.0"))
    assert "plotly" in (tmp_path / "a.html").read_text()
    runs = pd.read_csv("runs.csv")
    assert list(runs.columns) == [
        *("method", "seed", "ACC", "NMI", "ARI", "silhouette", "seconds", "gigabytes", "failure")
    ]
    assert sorted(zip(runs["method"], runs["seed"], strict=True)) == [
        ("kmeans", 0),
        ("kmeans", 1),
        ("tell", 0),
        ("tell", 1),
    ]
    assert (runs[runs["method"] == "kmeans"]["ACC"] == 1).all()


def test_compare_gives_every_method_the_same_units(works, tmp_path):
    rng, y = np.random.default_rng(0), np.arange(120) % 3
    near = {name: 25 + 15 * code + rng.normal(0, 1, 120) for name, code in (("age", y), ("years", (y + 1) % 3))}
    pd.DataFrame({**near, "income": rng.normal(5e4, 1.5e4, 120), "label": y}).to_csv(tmp_path / "x.csv", index=False)
    out = works("compare", "x.csv", "-k", 3, "--methods", "kmeans", "--seeds", 1, *HERE, "--out", "runs.csv")
    assert "Columns have different units" in out
    runs = pd.read_csv("runs.csv").set_index("method")  # in raw units the income alone counts, and says nothing
    assert runs["ACC"]["kmeans"] > 0.9
    assert runs["silhouette"]["kmeans"] > 0.4
    rows_csv(tmp_path, *(np.concatenate([part, part]) for part in (rng.normal(0, 1, (20, 6)), y[:20])))
    out = works("compare", "x.csv", "-k", 2, "--methods", "kmeans", "--seeds", 1, *HERE)
    assert "units" not in out


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("kind", ["texts", "images"])  # texts are sparse rows
def test_compare_every_method_without_labels(works, tmp_path, kind, digits):
    from diffclust.baselines import BASELINES

    if kind == "texts":
        data = write_texts(tmp_path / "t.jsonl", [f"{text} {text[i % 5 :]}" for i, text in enumerate(TEXTS * 3)])
    else:
        data = rows_npy(tmp_path, (digits[0][:40] * 255).astype(np.uint8), None)
    names = [*(method.name for method in METHODS), *BASELINES]
    out = works("compare", data, "-k", 2, "--methods", "all", "--seeds", 1, *HERE)
    assert "silhouette" in out
    assert all(name in out for name in names)


def test_compare_takes_a_sample_of_a_large_file(run, tmp_path, blobs, monkeypatch):
    from diffclust.reading import large_tables

    X, y = blobs
    rows_csv(tmp_path, X, y)
    monkeypatch.setattr(large_tables, "LARGE_FILE", 1000)
    monkeypatch.setattr(large_tables, "SAMPLE_CELLS", 7 * 40)  # cells
    code, _, err = run("compare", "x.csv", "-k", 3, "--methods", "kmeans", "--seeds", 1, *HERE, "--out", "runs.csv")
    assert (code, err) == (
        0,
        f"diffclust: x.csv is too large to be read whole: the methods are compared on every 4th row, 38 of {len(X)}.\n",
    )
    assert pd.read_csv("runs.csv")["ACC"].tolist() == [1]  # rows and labels belong together


def test_compare_asks_for_plotly_before_any_run(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    monkeypatch.setattr(diffclust.reading.files, "read", None)
    code, _, err = run("compare", "digits", "-k", 3, "--plot", "t.html")
    assert (code, err) == (1, 'diffclust: --plot needs plotly: pip install "diffclust[report]"\n')


def test_compare_refuses_bad_data_before_training(refused, tmp_path):
    np.save(tmp_path / "x.npy", ROWS)
    refused("compare", "x.npy", "-k", 11, "--methods", "tell,kmeans", says="k=11 should be from 1 to")
    np.save(tmp_path / "x.npy", spoiled(np.nan))
    refused("compare", "x.npy", "-k", 2, "--methods", "tell,kmeans", says="NaN")


@pytest.fixture
def few_digits(monkeypatch):
    X, y = diffclust.datasets.load("digits")
    monkeypatch.setattr(diffclust.datasets, "load", lambda name: (X[:160], y[:160]))


@pytest.mark.usefixtures("little_training", "few_digits")
def test_demo(works, tmp_path):
    out = works("demo", "--out", "shown")
    assert all(word in out for word in ("160 images of 8x8", "k-means", "TELL", "ACC"))
    with Image.open(tmp_path / "shown" / "centres.png") as picture:
        picture.load()
        assert picture.format == "PNG"
        assert picture.size == (12 * (8 * 6 + 2) + 2, 10 * (8 * 6 + 2) + 2)  # 12 images a row, 10 clusters
    assert diffclust.load(tmp_path / "shown" / "model").cluster_centers_.shape == (10, 10)
    assert f"{tmp_path / 'shown' / 'report.html'}: the report" in out.splitlines()[-1]
    assert (tmp_path / "shown" / "report.html").stat().st_size > 1e6


@pytest.mark.usefixtures("little_training", "few_digits")
def test_demo_without_the_extra_says_what_is_missing(works, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    out = works("demo", "--out", "shown")
    assert 'No report: A report needs plotly: pip install "diffclust[report]"' in out


def test_a_checkpoint_is_resumed_only_when_asked(works, refused, blobs, tmp_path, monkeypatch):
    from diffclust.engine import checkpoint

    np.save(tmp_path / "x.npy", blobs[0])
    words = ("fit", "x.npy", "-k", "3", "--epochs", "4", "--set", "pretrain_epochs=2", "--quiet", "--device", "cpu")
    works(*words, "--out", "whole")
    refused(*words, "--out", "a", "--resume", says="--resume needs --checkpoint")
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.CheckpointFolder, "clear", lambda self: None)  # as a kill at the last moment leaves it
        works(*words, "--out", "a", "--checkpoint", "ckpt")
    refused(*words, "--out", "b", "--checkpoint", "ckpt", says="add --resume")
    works(*words, "--out", "b", "--checkpoint", "ckpt", "--resume")
    assert (tmp_path / "b" / "labels.csv").read_text() == (tmp_path / "whole" / "labels.csv").read_text()
    assert not list((tmp_path / "ckpt").iterdir())


def test_ctrl_c_leaves_the_model_that_is_there(run, works, blobs, tmp_path, monkeypatch):
    from diffclust.callbacks import TrainingRecord

    def ctrl_c(self, progress):
        if (progress.phase, progress.epoch, progress.restart) == ("clustering", 1, 1):
            raise KeyboardInterrupt

    np.save(tmp_path / "x.npy", blobs[0])
    words = ("fit", "x.npy", "-k", "3", "--restarts", "2", "--set", "checkpoint_every=1", *SHORT, "--epochs", "4")
    works(*words, "--out", "old")
    before = {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(TrainingRecord, "__call__", ctrl_c)
        code, out, err = run(*words, "--seed", "5", "--out", "old")
        assert (code, out) == (1, "")
        assert err.endswith("stopped: this model is not saved, and the one in old is left as it was.\n")
        assert {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()} == before
        code, out, err = run(*words, "--out", "new", "--checkpoint", "ckpt")
        assert code == 1
        assert "Saved to new" in out
        assert "the model in new is the state at which training stopped. Add --resume to continue from ckpt." in err
    assert len(diffclust.load("new").labels_) == len(blobs[0])
    works(*words, "--out", "new", "--checkpoint", "ckpt", "--resume")
    assert (tmp_path / "new" / "labels.csv").read_bytes() == before["labels.csv"]


@pytest.fixture
def small_table(monkeypatch):
    """A table of two rows on a few digits, in place of the papers'."""
    from diffclust.reproduce import tables
    from diffclust.reproduce.spec import PaperTable, Row, Spec

    settings = {"n_clusters": 10, "network": "identity", "epochs": 6}
    rows = (
        Row("TELL", Spec("digits", "tell", changes=settings, rows=150), rule="loss"),
        Row("k-means", Spec("digits", "kmeans", changes={"n_clusters": 10}, rows=150)),
    )
    table = PaperTable("some/figure", "Digits", rows, figure="curves", seeds=2)
    monkeypatch.setattr(tables, "TABLES", {table.name: table})


def test_reproduce_a_table(works, tmp_path, small_table):
    said = works("reproduce", "some/figure", "--device", "cpu")
    assert said.count("seed ") == 4
    assert "mean of 2" in said
    assert "kept by loss" in said
    lines = (tmp_path / "benchmarks/results/some-figure.csv").read_text().splitlines()
    assert len(lines) == 5
    assert (tmp_path / "benchmarks/results/some-figure.png").read_bytes().startswith(b"\x89PNG")
    again = works("reproduce", "some/figure", "--device", "cpu")
    assert "seed " not in again  # nothing is run twice
    assert "4 of 4" in works("reproduce", "--list")


def test_reproduce_show_writes_nothing(works, tmp_path, small_table):
    works("reproduce", "some/figure", "--device", "cpu")
    picture = tmp_path / "benchmarks/results/some-figure.png"
    picture.unlink()
    before = sorted(tmp_path.rglob("*"))
    said = works("reproduce", "some/figure", "--show")
    assert "mean of 2" in said
    assert "Drawn" not in said
    assert sorted(tmp_path.rglob("*")) == before


def test_reproduce_says_where_there_are_no_recorded_runs(works, refused, small_table):
    says = "There are no recorded runs in benchmarks/results"
    assert says in works("reproduce", "--list")
    refused("reproduce", "some/figure", "--show", says=says)


def test_reproduce_a_part_elsewhere(works, tmp_path, small_table):
    words = ("reproduce", "some/figure", "--results", "r", "--checkpoint", "c", "--device", "cpu")
    assert "seed 0:" in works(*words, "--only", "k-means", "--seeds", "1")
    assert len((tmp_path / "r/some-figure.csv").read_text().splitlines()) == 2
    shown = works(*words, "--show")
    assert "not run yet" in shown
    assert "one run" in shown
    assert "seed 2:" in works(*words, "--only", "tell", "--seeds", "3")


def test_reproduce_stops_in_time_and_goes_on(works, small_table):
    words = ("reproduce", "some/figure", "--only", "tell", "--device", "cpu")
    said = works(*words, "--minutes", "0")
    assert "Stopped after 0 minutes" in said
    assert "not run yet" in said
    assert "Stopped" not in works(*words)


def test_reproduce_says_so_when_nothing_could_be_run(run, refused, tmp_path, monkeypatch):
    for name in ("DIFFCLUST_DATA", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    words = ("reproduce", "tell/table2", "--only", "cifar100-s1", "--quick", "--device", "cpu")
    code, out, err = run(*words)
    assert code == 2
    assert "Not run here: cifar100" in out
    assert "everything runs" not in out
    assert err == "diffclust: tell/table2: nothing of it could be run.\n"
    refused(*words, "--show", says="no recorded runs in runs/reproduce-quick")


def test_reproduce_quick_keeps_away_from_the_results(works, tmp_path, small_table):
    said = works("reproduce", "some/figure", "--quick", "--device", "cpu")
    assert "only shows that everything runs" in said
    assert not (tmp_path / "benchmarks").exists()
    assert (tmp_path / "runs/reproduce-quick/some-figure.csv").exists()


def test_reproduce_searches_for_lambda_when_asked(works, refused, monkeypatch):
    from diffclust.reproduce import tables
    from diffclust.reproduce.spec import PaperTable, Row, Spec

    changes = {"n_clusters": 10, "network": "identity", "epochs": 1, "weight": 1.0}
    small = Spec("digits", "dkm", changes=changes, rows=150, validation=0.1)
    rows = (Row("DKM", small, weights=(0.1, 1.0)), Row("k-means", Spec("digits", "kmeans", changes={"n_clusters": 10})))
    table = PaperTable("some/table", "Digits", rows, seeds=2, random_states=(5, 3))
    monkeypatch.setattr(tables, "TABLES", {table.name: table})
    words = ("reproduce", "some/table", "--only", "DKM", "--device", "cpu")
    plain = works(*words)
    assert "by validation labels" not in plain
    assert "DKM, seed 3" in plain
    assert "by validation labels" in works(*words, "--search")
    assert "by validation labels" in works(*words, "--show")
    assert "2 of 4" in works("reproduce", "--list")
    refused("reproduce", "some/table", "--only", "k-means", "--search", says="has a λ to choose by labels")


def test_reproduce_asked_wrongly(refused, small_table, tmp_path):
    refused("reproduce", "some/figrue", says="did you mean 'some/figure'?")
    refused("reproduce", "some/figure", "--only", "dec", says="There are: digits: TELL; digits: k-means")
    (tmp_path / "file").touch()
    refused("reproduce", "some/figure", "--results", "file", says="--results file is a file, not a folder")


# --- explain and report


@pytest.mark.quick
def test_explain_a_row(works, tmp_path, blobs, model):
    data = rows_npy(tmp_path, *blobs)
    expected = diffclust.load(model).explain(blobs[0])[7]
    out = works("explain", model, data, "--row", 7)
    assert " ".join(out.split()).startswith(f"Row 7 is in cluster {expected.cluster} with probability")
    assert all(word in out for word in ("z0", "bias", "sum", f"{expected.margin:+.5g}"))
    whole = json.loads(works("explain", model, data, "--row", 7, "--json"))
    assert whole["row"] == 7
    assert sum(whole["contributions"]) + whole["bias"] == pytest.approx(whole["margin"], abs=1e-9)
    assert whole["margin"] == pytest.approx(expected.margin, rel=1e-4)


def test_explain_a_pair_a_cluster_and_the_model(works, tmp_path, blobs, model):
    data = rows_npy(tmp_path, *blobs)
    assert "probability of sharing a cluster" in works("explain", model, data, "--row", 0, "--with", 1)
    pair = json.loads(works("explain", model, data, "--row", 0, "--with", 0, "--json"))
    assert pair["together"]
    assert works("explain", model, "--cluster", 1).startswith("Cluster 1 has")
    assert json.loads(works("explain", model, data, "--cluster", 1, "--json"))["typical"]
    assert works("explain", model).startswith(("TELL: RowAutoencoder", "TELL: ScaledRows"))


def test_explain_names_words(works, tmp_path):
    data = write_texts(tmp_path / "t.jsonl", [f"{text} {text[i % 5 :]}" for i, text in enumerate(TEXTS * 3)])
    works("fit", data, "-k", 2, "--out", "a", *SHORT)
    out = works("explain", "a", data, "--row", 0)
    assert out.startswith("Row 0: cat sat here")
    assert "The input features that matter most are “" in " ".join(out.split())
    animals = {"cat", "dog"}
    assert {name for name, _ in json.loads(works("explain", "a", data, "--cluster", 0, "--json"))["features"]} & animals
    data.unlink()  # the words are the model's own
    assert {name for name, _ in json.loads(works("explain", "a", "--cluster", 0, "--json"))["features"]} & animals


def test_explain_goes_by_the_data_of_the_fit(works, refused, tmp_path, blobs):
    data = rows_csv(tmp_path, *blobs)
    works("fit", data, "-k", 3, "--out", "a", *SHORT)
    out = works("explain", "a", "--row", 4, "--with", 5)
    assert out == works("explain", "a", data, "--row", 4, "--with", 5)
    assert all(word in out for word in ("feature", "row 4", "row 5", "counts"))
    with data.open() as file:
        head, *lines = [line.strip().split(",") for line in file]
    shown = [[cell.strip() for cell in line.split("│")[1:4]] for line in out.splitlines() if line.count("│") == 5]
    assert len(shown) == 6
    for name, first, second in shown:
        column = head.index(name)
        assert float(first) == pytest.approx(float(lines[4][column]), rel=1e-3)  # shown with four digits
        assert float(second) == pytest.approx(float(lines[5][column]), rel=1e-3)
    assert "Most typical are rows" in " ".join(works("explain", "a", "--cluster", 1).split())
    data.unlink()
    refused("explain", "a", "--row", 4, says="no longer at")
    assert "Pass rows X to see" in " ".join(works("explain", "a", "--cluster", 1).split())


def test_explain_says_which_picture_it_is(works, tmp_path):
    works("fit", write_images(tmp_path / "pictures"), "-k", 2, "--out", "a", *SHORT)
    out = works("explain", "a", "--row", 3)
    assert out.startswith("Row 3: 03.png\n")
    assert "'diffclust report a'" in out


def test_bad_questions(refused, tmp_path, blobs, model):
    data = rows_npy(tmp_path, *blobs)
    refused("explain", model, data, "--row", 150, says="row 150 should be from 0 to 149")
    refused("explain", model, data, "--row", -1, says="row -1 should be from 0 to 149")
    refused(
        "explain", model, "--row", 1, says=f"does not say which data it was fitted on: diffclust explain {model} DATA"
    )
    refused("explain", model, data, "--with", 1, says="--with needs --row")
    refused("explain", model, data, "--row", 1, "--cluster", 1, says="not both")
    refused("explain", model, "--cluster", 3, says="cluster=3 should be from 0 to 2")
    refused("report", model, says="does not say which data it was fitted on")
    refused("report", model, data, "--layout", "globe", says="layout='globe' should be one of")
    refused("report", model, data, "--out", "no/such/r.html", says="is not a folder")
    refused("report", model, data, "--out", "r.pdf", says="--out r.pdf should end in .html or .htm")
    refused("report", tmp_path / "none", says="No such folder")


@pytest.mark.parametrize("kind", ["texts", "pictures", "table", "name"])
def test_report(works, tmp_path, blobs, kind):
    if kind == "texts":
        data = write_texts(tmp_path / "t.jsonl", [f"{text} {text[i % 5 :]}" for i, text in enumerate(TEXTS * 3)])
    elif kind == "pictures":
        data = write_images(tmp_path / "pictures")
    elif kind == "table":
        data = rows_csv(tmp_path, *blobs)
    else:
        data = "digits"
    works("fit", data, "-k", 2, "--out", "a", *SHORT)
    out = works("report", "a", "--layout", "PCA", "--sample", 50)
    assert out.startswith("a/report.html: ")
    page = (tmp_path / "a" / "report.html").read_text(encoding="utf-8")
    content = json.loads(page.split('<script id="data" type="application/json">')[1].split("</script>")[0])
    assert content["kind"] == {"texts": "text", "table": "table"}.get(kind, "image")
    assert content["title"] == f"TELL on {data if kind == 'name' else data.name}"
    # two epochs of each phase; none where k-means on the rows was kept
    assert len(content["frames"]) == (0 if kind == "table" else 4)
    assert (content["truth"] is not None) == (kind in ("table", "name"))
    if kind == "texts":
        assert content["map"]["caption"][0].startswith("cat sat here")
        assert {"cat", "dog"} <= set(content["map"]["features"])
    if kind == "pictures":
        assert content["map"]["caption"][0] == "00.png"


def test_report_without_its_data(refused, works, tmp_path, blobs):
    data = rows_npy(tmp_path, *blobs)
    works("fit", data, "-k", 3, "--out", "a", *SHORT)
    (tmp_path / "a" / "source.json").write_text("{}")
    refused("report", "a", says="source.json is damaged: it does not match SHA256SUMS")
    works("report", "a", data, "--layout", "PCA", "--out", "page.html")
    works("fit", data, "-k", 3, "--out", "b", *SHORT)
    data.unlink()
    refused("report", "b", says="no longer at")


def test_without_a_number_the_command_says_how_many_and_why(works, tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", 9 * np.eye(4)[np.arange(160) % 4] + rng.normal(size=(160, 4)))
    out = works("fit", "x.npy", "--out", "a", "--epochs", "2", "--set", "pretrain_epochs=40", "--device", "cpu")
    assert "4 clusters: networks trained on different halves of the rows agree on 100 % of them" in out
    assert json.loads((tmp_path / "a" / "estimator.json").read_text())["params"]["n_clusters"] == "auto"


@pytest.mark.quick
def test_the_shell_completes_commands():
    words = {"_DIFFCLUST_COMPLETE": "complete_bash", "COMP_WORDS": "diffclust de", "COMP_CWORD": "1"}
    program = "import sys; sys.argv = ['diffclust']; from diffclust.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ | words)
    assert done.stdout.split() == ["describe", "demo"]
