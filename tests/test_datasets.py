import gzip
import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn.datasets
from sklearn.feature_extraction.text import TfidfVectorizer

from diffclust import datasets
from diffclust.reading.files import read

NO_FILES = "needs the real data: set DIFFCLUST_DATA, or have ../shared/data beside the repository"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty $DIFFCLUST_DATA, an empty cache, and no network."""

    def no_network(*args, **kwargs):
        raise OSError("no network in tests")

    for fetch in ("fetch_openml", "fetch_20newsgroups", "fetch_rcv1"):
        monkeypatch.setattr(sklearn.datasets, fetch, no_network)
    data = tmp_path / "data"
    data.mkdir()
    monkeypatch.setenv("DIFFCLUST_DATA", str(data))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return data


@pytest.fixture
def real(monkeypatch):
    """The real files, where this machine has them: they are too large to ship with the tests."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    if not os.environ.get("DIFFCLUST_DATA"):
        if not beside.is_dir():
            pytest.skip(NO_FILES)
        monkeypatch.setenv("DIFFCLUST_DATA", str(beside))

    def load(name, file):
        if not (Path(os.environ["DIFFCLUST_DATA"]) / file).exists():
            pytest.skip(f"{NO_FILES}; {file} is not there")
        return datasets.load(name)

    return load


# --- by name


def test_digits_need_no_file(folder):
    X, y = datasets.load("digits")
    assert X.shape == (1797, 8, 8)
    assert X.dtype == np.float32
    assert (X.min(), X.max()) == (0, 1)
    assert y.dtype == np.int64
    assert sorted(set(y)) == list(range(10))


def test_names_are_what_load_knows():
    names = datasets.names()
    assert {"digits", "mnist", "mnist-test", "usps", "cifar10", "cifar10-test", "coil20"} <= set(names)
    assert {"optdigits", "pendigits", "20newsgroups", "reuters-r8", "cifar100"} <= set(names)
    assert {f"cifar100-s{s}" for s in range(1, 21)} <= set(names)
    assert len(names) == len(set(names))


def test_unknown_name_lists_the_known_and_the_closest():
    with pytest.raises(ValueError, match=r"'mnits': did you mean 'mnist'\? Known: digits, mnist, .*cifar100-s20"):
        datasets.load("mnits")
    with pytest.raises(ValueError, match=r"'qqqqqq'\. Known"):
        datasets.load("qqqqqq")


@pytest.mark.parametrize("name", [name for name in datasets.names() if name != "digits"])
def test_missing_data_say_in_one_line_where_to_put_what(name, folder, tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        datasets.load(name)
    said = str(error.value)
    assert str(folder) in said
    assert str(tmp_path / "cache" / "diffclust") in said
    assert "Put there: " in said
    assert "\n" not in said


def test_missing_data_without_the_variable(folder, monkeypatch):
    monkeypatch.delenv("DIFFCLUST_DATA")
    with pytest.raises(FileNotFoundError, match=r"DIFFCLUST_DATA \(not set\).*OSError: no network in tests"):
        datasets.load("mnist")


def write_images(path, n=6, n_train=4, shape=(28, 28), **more):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (n, *shape), dtype=np.uint8)
    np.savez(path, images=X, labels=np.arange(n, dtype=np.uint8) % 3, n_train=np.int64(n_train), **more)
    return X


def test_images_and_their_test_part(folder):
    images = write_images(folder / "mnist.npz")
    X, y = datasets.load("mnist")
    assert (images == X).all()
    assert X.dtype == np.uint8
    assert y.tolist() == [0, 1, 2, 0, 1, 2]
    X, y = datasets.load("mnist-test")
    assert (images[4:] == X).all()
    assert y.tolist() == [1, 2]


def test_the_folder_comes_before_the_cache(folder, tmp_path):
    cache = tmp_path / "cache" / "diffclust"
    cache.mkdir(parents=True)
    write_images(cache / "usps.npz", n=5, shape=(16, 16))
    assert len(datasets.load("usps")[0]) == 5
    write_images(folder / "usps.npz", n=6, shape=(16, 16))
    assert len(datasets.load("usps")[0]) == 6


def test_small_integers_become_floats(folder):
    write_images(folder / "optdigits.npz", shape=(8, 8))
    np.savez(folder / "pendigits.npz", X=np.full((3, 16), 100, np.uint8), labels=np.arange(3, dtype=np.uint8))
    assert datasets.load("optdigits")[0].dtype == np.float32
    X, _ = datasets.load("pendigits")
    assert X.dtype == np.float32
    assert X.max() == 100


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"images": np.zeros((2, 28, 28))}, "no array is called labels; there are images"),
        ({"images": np.zeros((2, 28, 28)), "labels": np.zeros(3)}, r"labels has shape \(3,\), but X has"),
        ({"one": np.zeros(2), "labels": np.zeros(2)}, "no array is called X, images, data; there are one"),
        ({"images": np.zeros((2, 28, 28)), "labels": np.zeros(2)}, "n_train=2 of 2 rows leaves no test part"),
    ],
)
def test_foreign_npz_by_a_known_name(folder, arrays, says):
    np.savez(folder / "mnist.npz", **arrays)
    with pytest.raises(ValueError, match=says):
        datasets.load("mnist-test")


def encode(X):
    """The residuals of shared/data/README.md, forwards: (n, h, w, 3) -> (3, n, h, w)."""
    planes = X.transpose(3, 0, 1, 2).copy()
    planes[0] -= planes[1]
    planes[2] -= planes[1]
    for axis in (2, 3):
        shifted = np.zeros_like(planes)
        np.copyto(
            shifted[:, :, 1:] if axis == 2 else shifted[..., 1:],
            planes[:, :, :-1] if axis == 2 else planes[..., :-1],
        )
        planes = planes - shifted
    return planes


def test_cifar10_residuals_are_decoded(folder):
    X = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    residual = encode(X)
    np.savez(folder / "cifar10.npz", residual=residual, labels=np.arange(4, dtype=np.uint8), n_train=3)
    assert (datasets.load("cifar10")[0] == X).all()
    test, y = datasets.load("cifar10-test")
    assert (test == X[3:]).all()
    assert y.tolist() == [3]


def write_records(path, labels, X):
    """Label bytes, then the red, green and blue planes: CIFAR's official binary form."""
    planes = X.transpose(0, 3, 1, 2).reshape(len(X), -1)
    np.hstack([np.asarray(labels, np.uint8).reshape(len(X), -1), planes]).astype(np.uint8).tofile(path)


def test_cifar10_official_binary(folder):
    X = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
    (folder / "cifar-10-batches-bin").mkdir()
    for i, part in enumerate([*(f"data_batch_{b}" for b in range(1, 6)), "test_batch"]):
        write_records(folder / "cifar-10-batches-bin" / f"{part}.bin", [i, i], X[2 * i : 2 * i + 2])
    ours, y = datasets.load("cifar10")
    assert (ours == X).all()
    assert y.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert (datasets.load("cifar10-test")[0] == X[10:]).all()


@pytest.fixture
def cifar100(folder):
    X = np.random.default_rng(1).integers(0, 256, (8, 32, 32, 3), dtype=np.uint8)
    coarse, fine = [0, 19, 0, 0, 19, 0, 0, 0], [30, 99, 4, 95, 81, 30, 72, 55]
    home = folder / "cifar-100-binary"
    home.mkdir()
    labels = np.column_stack([coarse, fine])
    write_records(home / "train.bin", labels[:6], X[:6])
    write_records(home / "test.bin", labels[6:], X[6:])
    return X, np.array(coarse), np.array(fine)


def test_cifar100_binary(cifar100):
    X, coarse, fine = cifar100
    ours, y = datasets.load("cifar100")
    assert (ours == X).all()
    assert ours.dtype == np.uint8
    assert (y == fine).all()
    first, y = datasets.load("cifar100-s1")
    assert (first == X[coarse == 0]).all()
    assert y.tolist() == [1, 0, 4, 1, 3, 2]  # 4, 30, 55, 72, 95 renumbered
    _, y = datasets.load("cifar100-s20")
    assert y.tolist() == [1, 0]
    with pytest.raises(ValueError, match="none of its 8 images is of coarse class 4"):
        datasets.load("cifar100-s5")


def test_cut_off_cifar100(cifar100, folder):
    test = folder / "cifar-100-binary" / "test.bin"
    test.write_bytes(test.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"test\.bin has 6147 bytes, which is not a whole number of 3074"):
        datasets.load("cifar100")
    test.unlink()
    with pytest.raises(FileNotFoundError, match=r"test\.bin is missing"):
        datasets.load("cifar100-s1")


def write_lines(path, entries):
    text = "".join(json.dumps(entry) + "\n" for entry in entries)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


TEXTS = ["From: a\nthe cat sat", "the dog\x85sat\x0cdown", "cats and dogs", "THE END cat"]


def test_newsgroups_keep_every_word(folder):
    write_lines(folder / "20newsgroups.jsonl.gz", [{"text": t, "label": i, "id": "x"} for i, t in enumerate(TEXTS)])
    X, y = datasets.load("20newsgroups")
    assert sp.isspmatrix_csr(X)
    assert X.dtype == np.float32
    assert X.toarray() == pytest.approx(TfidfVectorizer(max_features=2000).fit_transform(TEXTS).toarray())
    assert y.tolist() == [0, 1, 2, 3]


def test_newsgroups_without_labels(folder):
    write_lines(folder / "20newsgroups.jsonl.gz", [{"text": t} for t in TEXTS])
    with pytest.raises(ValueError, match=r'line 1: expected an object with .*"label" \(int\)'):
        datasets.load("20newsgroups")


def test_reuters_r8_keeps_documents_of_one_of_eight_topics(folder):
    def document(modapte, topics, title="Title words"):
        return {"id": 1, "modapte": modapte, "topics": topics, "title": title, "text": "the ship sank sank"}

    write_lines(
        folder / "reuters21578.jsonl.gz",
        [
            document("train", ["earn"], "profit"),
            document("unused", ["earn"]),
            document("test", ["earn", "acq"]),
            document("test", ["cocoa"]),
            document("train", []),
            document("test", ["trade"], "tariffs"),
        ],
    )
    X, y = datasets.load("reuters-r8")
    assert y.tolist() == [2, 7]
    truth = TfidfVectorizer(max_features=2000, stop_words="english", sublinear_tf=True)
    assert X.toarray() == pytest.approx(
        truth.fit_transform(["profit the ship sank sank", "tariffs the ship sank sank"]).toarray()
    )


def test_reuters_without_a_key(folder):
    write_lines(folder / "reuters21578.jsonl.gz", [{"modapte": "train", "title": "a", "text": "b"}])
    with pytest.raises(ValueError, match=r'line 1: expected an object with .*"topics" \(list\)'):
        datasets.load("reuters-r8")


def test_signed_usps(folder):
    pixels = np.array([0, 255, 51], np.uint8).reshape(3, 1, 1)
    exact = np.array([0, 2000, 369], np.uint16).reshape(3, 1, 1)
    np.savez(folder / "usps.npz", images=pixels, labels=np.arange(3))
    X, y = datasets.load("usps-signed")
    assert X.ravel() == pytest.approx([-1, 1, -0.6])
    assert y.tolist() == [0, 1, 2]
    np.savez(folder / "usps.npz", images=pixels, images_2000=exact, labels=np.arange(3))
    assert datasets.load("usps-signed")[0].ravel() == pytest.approx([-1, 1, -0.631])


def test_reuters10k_token_files(folder):
    home = folder / "reuters10k"
    home.mkdir()
    (home / "rcv1-v2.topics.qrels").write_text("CCAT 1 1\nE11 1 1\nECAT 2 1\nCCAT 3 1\nMCAT 3 1\nMCAT 5 1\n")
    (home / "lyrl2004_tokens_test_pt0.dat").write_text(
        ".I 1\n.W\nship sail\nsail\n\n.I 3\n.W\ntwo topic\n\n.I 4\n.W\nnone\n\n"
    )
    for i in (1, 2, 3):
        (home / f"lyrl2004_tokens_test_pt{i}.dat").write_text("")
    with pytest.raises(FileNotFoundError, match=r"lyrl2004_tokens_train\.dat is missing"):
        datasets.load("reuters10k")
    (home / "lyrl2004_tokens_train.dat").write_text(".I 2\n.W\nbank rate ship\n\n.I 5\n.W\nbank bank\n")
    X, y = datasets.load("reuters10k")
    assert y.tolist() == [0, 3, 2]  # CCAT, ECAT, MCAT in DEC's order CCAT GCAT MCAT ECAT
    truth = TfidfVectorizer(sublinear_tf=True).fit_transform(["ship sail sail", "bank rate ship", "bank bank"])
    assert X.toarray() == pytest.approx(truth.toarray() * np.sqrt(4))


# --- fetched


def test_openml_is_asked_once_and_kept(folder, tmp_path, monkeypatch):
    asked = []

    def fetch_openml(*, data_id, as_frame, n_retries):
        asked.append(data_id)
        data = np.zeros((4, 256))
        data[0, :3] = [-1, 0, 1]
        return SimpleNamespace(data=data, target=np.array(["1", "10", "2", "1"], dtype=object))

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch_openml)
    X, y = datasets.load("usps")
    assert asked == [41082]
    assert X.shape == (4, 16, 16)
    assert X.dtype == np.uint8
    assert X[0, 0, :3].tolist() == [0, 128, 255]
    assert y.tolist() == [0, 9, 1, 0]
    again, y_again = datasets.load("usps")
    assert asked == [41082]
    assert (again == X).all()
    assert (y_again == y).all()
    assert [path.name for path in (tmp_path / "cache" / "diffclust").iterdir()] == ["usps.npz"]
    assert (read(tmp_path / "cache" / "diffclust" / "usps.npz").X == X).all()


@pytest.mark.parametrize(
    ("name", "width", "shape"),
    [("mnist", 784, (28, 28)), ("optdigits", 64, (8, 8)), ("pendigits", 16, (16,))],
)
def test_openml_shapes(name, width, shape, folder, monkeypatch):
    bunch = SimpleNamespace(data=np.ones((3, width)), target=np.array(["0", "1", "9"]))
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", lambda **options: bunch)
    X, y = datasets.load(name)
    assert X.shape == (3, *shape)
    assert y.tolist() == [0, 1, 9]


def test_openml_sends_something_else(folder, monkeypatch):
    bunch = SimpleNamespace(data=np.ones((3, 5)), target=np.array(["0", "1", "9"]))
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", lambda **options: bunch)
    with pytest.raises(FileNotFoundError, match="OpenML 554 has rows of 5 values"):
        datasets.load("mnist")


def test_fetching_without_pandas_names_the_extra(folder, monkeypatch):
    def fetch_openml(**options):
        raise ImportError("requires pandas")

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch_openml)
    with pytest.raises(ImportError, match=r'pip install "diffclust\[data\]"'):
        datasets.load("mnist")


def test_a_cache_that_cannot_be_written_is_no_reason_to_fail(folder, tmp_path, monkeypatch):
    bunch = SimpleNamespace(data=np.ones((3, 16)), target=np.array(["0", "1", "9"]))
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", lambda **options: bunch)
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.warns(UserWarning, match=r"pendigits\.npz could not be written"):
        X, _ = datasets.load("pendigits")
    assert X.shape == (3, 16)


def test_newsgroups_fetched(folder, tmp_path, monkeypatch):
    bunch = SimpleNamespace(data=TEXTS, target=np.array([3, 2, 1, 0]))
    monkeypatch.setattr(sklearn.datasets, "fetch_20newsgroups", lambda **options: bunch)
    X, y = datasets.load("20newsgroups")
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DIFFCLUST_DATA", str(folder))
    kept, y_kept = datasets.load("20newsgroups")
    assert (kept != X).nnz == 0
    assert y_kept.tolist() == y.tolist() == [3, 2, 1, 0]
    assert X.toarray() == pytest.approx(TfidfVectorizer().fit_transform(TEXTS).toarray())


def test_rcv1_keeps_single_topics_and_the_heaviest_terms(folder, monkeypatch):
    names = np.array(["C11", "CCAT", "ECAT", "GCAT", "MCAT"], dtype=object)
    target = sp.csr_matrix(
        np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 1], [1, 0, 0, 0, 0], [0, 0, 1, 0, 0]])
    )
    data = sp.csr_matrix(np.arange(5 * 2100, dtype=float).reshape(5, 2100)[:, ::-1])
    monkeypatch.setattr(
        sklearn.datasets,
        "fetch_rcv1",
        lambda **options: SimpleNamespace(data=data, target=target, target_names=names),
    )
    X, y = datasets.load("rcv1")
    assert y.tolist() == [0, 3, 1]  # rows 0, 2 and 4; the others have two roots or none
    assert X.toarray() == pytest.approx(data.toarray()[[0, 2, 4], :2000])
    assert X.dtype == np.float32


# --- the real files


@pytest.mark.parametrize(
    ("name", "file", "shape", "dtype", "classes"),
    [
        ("mnist", "mnist.npz", (70000, 28, 28), np.uint8, 10),
        ("mnist-test", "mnist.npz", (10000, 28, 28), np.uint8, 10),
        ("usps", "usps.npz", (9298, 16, 16), np.uint8, 10),
        ("usps-signed", "usps.npz", (9298, 16, 16), np.float32, 10),
        ("cifar10-test", "cifar10.npz", (10000, 32, 32, 3), np.uint8, 10),
        ("coil20", "coil20.npz", (1440, 32, 32), np.uint8, 20),
        ("optdigits", "optdigits.npz", (5620, 8, 8), np.float32, 10),
        ("pendigits", "pendigits.npz", (10992, 16), np.float32, 10),
        ("reuters-r8", "reuters21578.jsonl.gz", (7674, 2000), np.float32, 8),
    ],
)
def test_real_data(real, name, file, shape, dtype, classes):
    X, y = real(name, file)
    assert X.shape == shape
    assert X.dtype == dtype
    assert y.shape == shape[:1]
    assert np.unique(y).tolist() == list(range(classes))
    if name == "mnist-test":
        assert y[:5].tolist() == [7, 2, 1, 0, 4]
    if name == "cifar10-test":
        assert np.bincount(y).tolist() == [1000] * 10
        assert y[:4].tolist() == [3, 8, 8, 0]


def test_optdigits_end_in_the_digits(real):
    # scikit-learn's load_digits is the test part of optdigits: two sources, one picture.
    X, y = real("optdigits", "optdigits.npz")
    digits, labels = datasets.load("digits")
    assert (X[3823:] == digits).all()
    assert (y[3823:] == labels).all()
