import gzip
import json
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn.datasets
from PIL import Image
from sklearn.feature_extraction.text import TfidfVectorizer

from diffclust import datasets

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
        ({"images": np.zeros((2, 28, 28)), "labels": np.zeros(3)}, r"labels has shape \(3,\).* 2 rows"),
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
    assert (datasets.read(folder / "cifar10.npz")[0] == X).all()


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
    with pytest.raises(ValueError, match='whole number as "label"'):
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
    with pytest.raises(ValueError, match=r"line 1: .* no topics"):
        datasets.load("reuters-r8")


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
    assert (datasets.read(tmp_path / "cache" / "diffclust" / "usps.npz")[0] == X).all()


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


# --- arrays


def test_npy_is_mapped(tmp_path):
    X = np.arange(12.0).reshape(4, 3)
    np.save(tmp_path / "x.npy", X)
    ours, y = datasets.read(tmp_path / "x.npy")
    assert isinstance(ours, np.memmap)
    assert (ours == X).all()
    assert y is None


class Boom:
    def __reduce__(self):
        return (os.mkdir, ("pwned",))


@pytest.mark.parametrize("how", ["array of objects", "bare pickle", "in npz"])
def test_pickles_are_refused_unopened(tmp_path, monkeypatch, how):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / ("x.npz" if how == "in npz" else "x.npy")
    if how == "bare pickle":
        path.write_bytes(pickle.dumps(Boom()))
    elif how == "in npz":
        np.savez(path, X=np.array([Boom()], dtype=object))
    else:
        np.save(path, np.array([Boom()], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"x\.np[yz] cannot be read.*Pickled objects are never read"):
        datasets.read(path)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.zeros(3), r"shape is \(3,\)"),
        (np.zeros((0, 3)), r"empty: its shape is \(0, 3\)"),
        (np.array([["a", "b"]]), "expected numbers"),
        (np.zeros((2, 2), complex), "expected numbers"),
    ],
)
def test_arrays_that_are_not_rows(tmp_path, array, says):
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(ValueError, match=says):
        datasets.read(tmp_path / "x.npy")
    np.savez(tmp_path / "x.npz", X=array)
    with pytest.raises(ValueError, match=says):
        datasets.read(tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("arrays", "has_y"),
    [
        ({"X": 0, "y": 1}, True),
        ({"images": 0, "labels": 1, "n_train": 2}, True),
        ({"data": 0, "target": 1}, True),
        ({"data": 0}, False),
        ({"anything": 0}, False),
    ],
)
def test_npz_by_its_names(tmp_path, arrays, has_y):
    values = [np.arange(8).reshape(4, 2), np.array(list("aabb")), np.int64(3)]
    np.savez(tmp_path / "x.npz", **{name: values[i] for name, i in arrays.items()})
    X, y = datasets.read(tmp_path / "x.npz")
    assert (values[0] == X).all()
    assert (y.tolist() == list("aabb")) if has_y else y is None


def test_npz_errors(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, a=np.zeros((2, 2)), b=np.zeros((2, 2)))
    with pytest.raises(ValueError, match="no array is called X, images, data; there are a, b"):
        datasets.read(path)
    np.savez(path, X=np.zeros((2, 2)), y=np.zeros(3))
    with pytest.raises(ValueError, match=r"y has shape \(3,\), but there are 2 rows"):
        datasets.read(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"x\.npz cannot be read"):
        datasets.read(path)
    np.save(tmp_path / "y.npy", np.zeros((2, 2)))
    (tmp_path / "y.npy").rename(path)
    with pytest.raises(ValueError, match=r"name it \.npy"):
        datasets.read(path)


@pytest.mark.parametrize("ending", [".npy", ".npz"])
def test_a_file_numpy_did_not_write(tmp_path, ending):
    (tmp_path / f"x{ending}").write_bytes(b"hello")
    with pytest.raises(ValueError, match="cannot be read: numpy did not write it"):
        datasets.read(tmp_path / f"x{ending}")


def test_npz_called_npy(tmp_path):
    np.savez(tmp_path / "x.npz", np.zeros((2, 2)))
    (tmp_path / "x.npz").rename(tmp_path / "x.npy")
    with pytest.raises(ValueError, match=r"Name it \.npz"):
        datasets.read(tmp_path / "x.npy")


def test_sparse_npz_as_scipy_saves_it(tmp_path):
    X = sp.random(5, 4, 0.5, format="csr", random_state=0)
    sp.save_npz(tmp_path / "x.npz", X)
    ours, y = datasets.read(tmp_path / "x.npz")
    assert sp.issparse(ours)
    assert (ours != X).nnz == 0
    assert y is None
    sp.save_npz(tmp_path / "x.npz", X.tocsc())
    with pytest.raises(ValueError, match="saved as CSR"):
        datasets.read(tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", data=X.data, indices=X.indices + 9, indptr=X.indptr, shape=X.shape)
    with pytest.raises(ValueError, match="not a sparse matrix"):
        datasets.read(tmp_path / "x.npz")


# --- tables


@pytest.fixture(params=["pandas", "csv module"])
def reader(request, monkeypatch):
    if request.param == "csv module":
        monkeypatch.setitem(sys.modules, "pandas", None)
    return request.param


def csv_file(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "table.csv"
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize(
    ("text", "X", "y", "columns"),
    [
        ("a,b\n1,2\n3,4\n", [[1, 2], [3, 4]], None, ["a", "b"]),
        ("1,2\n3,4.5\n", [[1, 2], [3, 4.5]], None, None),
        ("a,label,b\n1,cat,2\n3,dog,4\n", [[1, 2], [3, 4]], ["cat", "dog"], ["a", "b"]),
        ("a,Class\n1,7\n3,8\n", [[1], [3]], [7, 8], ["a"]),
        ("0,1,target\n.5,2,0\n3,4,1\n", [[0.5, 2], [3, 4]], [0, 1], ["0", "1"]),
        ("x,y\n1,2\n3,4\n", [[1, 2], [3, 4]], None, ["x", "y"]),
        ("x,y,label\n1,2,0\n3,4,1\n", [[1, 2], [3, 4]], [0, 1], ["x", "y"]),
        ("u,v,y\n1,2,0\n3,4,1\n", [[1, 2], [3, 4]], [0, 1], ["u", "v"]),
        (",a,b\n0,1,2\n1,3,4\n", [[1, 2], [3, 4]], None, ["a", "b"]),
        (",0,1\n0,1,2\n1,3,4\n", [[1, 2], [3, 4]], None, ["0", "1"]),
        ("0,1,2\n1.5,2,3\n4,5,6\n", [[1.5, 2, 3], [4, 5, 6]], None, ["0", "1", "2"]),
        (' a , "b, c"\r\n1, 2\r\n\r\n3, 4\r\n', [[1, 2], [3, 4]], None, ["a", "b, c"]),
        ("\ufeffa,b\n1,2\n3,4", [[1, 2], [3, 4]], None, ["a", "b"]),
        ("a,b\n1,\n3,NA\n", [[1, np.nan], [3, np.nan]], None, ["a", "b"]),
        ("a,b\nTrue,1e-3\nFalse,-inf\n", [[1, 1e-3], [0, -np.inf]], None, ["a", "b"]),
        ("1,2\n", [[1, 2]], None, None),
        ("a\n1\n2\n", [[1], [2]], None, ["a"]),
        ("a,0.1\n1,0.30000000000000004\n", [[1, 0.30000000000000004]], None, ["a", "0.1"]),
    ],
)
def test_csv(tmp_path, reader, text, X, y, columns):
    ours, labels = datasets.read(csv_file(tmp_path, text))
    np.testing.assert_allclose(np.asarray(ours, float), np.array(X, float), rtol=1e-15)
    assert (labels is None) if y is None else labels.tolist() == y
    if reader == "pandas":
        assert isinstance(ours, pd.DataFrame)
        assert columns is None or list(ours.columns) == columns
    else:
        assert type(ours) is np.ndarray


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty: 0 bytes"),
        ("\n\n", "is empty: no lines"),
        ("a,b\n", "is empty: 0 rows under the header"),
        ("a,b\n1,2\n3\n", "line 3: 1 cells, but the first line has 2"),
        ("a,b\n1,2\n3,4,5\n", "line 3: 3 cells, but the first line has 2"),
        ("a,b\n1,2,3\n3,4,5\n", "line 2: 3 cells"),
        ("a,colour,shape\n1,red,round\n2,blue,flat\n", "not numeric: 'colour', 'shape'"),
        ("5.1,setosa\n4.9,setosa\n", "not numeric: 'column 2'"),
        ("label\ncat\ndog\n", "no column but the labels"),
        ("a,label,target\n1,2,3\n", "'label', 'target' could all be the labels"),
    ],
)
def test_bad_csv(tmp_path, reader, text, says):
    with pytest.raises(ValueError, match=says) as error:
        datasets.read(csv_file(tmp_path, text))
    assert "table.csv" in str(error.value)


def test_csv_in_another_encoding(tmp_path, reader):
    with pytest.raises(ValueError, match=r"table\.csv is not UTF-8"):
        datasets.read(csv_file(tmp_path, "größe,b\n1,2\n", "latin-1"))


def test_missing_labels_stay_missing(tmp_path, reader):
    _, y = datasets.read(csv_file(tmp_path, "a,label\n1,cat\n2,\n"))
    assert y[0] == "cat"
    assert y[1] != y[1]


def test_column_names_reach_scikit_learn(tmp_path):
    from sklearn.cluster import KMeans

    X, _ = datasets.read(csv_file(tmp_path, "a,b,label\n1,2,0\n3,4,1\n5,6,0\n"))
    assert KMeans(2, n_init=1).fit(X).feature_names_in_.tolist() == ["a", "b"]


def test_parquet(tmp_path):
    pd.DataFrame({"a": [1, 2], "flag": [True, False], "label": ["cat", "dog"]}).to_parquet(tmp_path / "t.parquet")
    X, y = datasets.read(tmp_path / "t.parquet")
    assert list(X.columns) == ["a", "flag"]
    assert X.to_numpy().tolist() == [[1, 1], [2, 0]]
    assert X.to_numpy().dtype.kind == "i"
    assert y.tolist() == ["cat", "dog"]


def test_bad_parquet(tmp_path):
    path = tmp_path / "t.parquet"
    pd.DataFrame({"a": [1, 2], "when": pd.to_datetime(["2020-01-01", "2020-01-02"])}).to_parquet(path)
    with pytest.raises(ValueError, match="not numeric: 'when'"):
        datasets.read(path)
    path.write_bytes(b"not parquet at all")
    with pytest.raises(ValueError, match=r"t\.parquet cannot be read as parquet"):
        datasets.read(path)
    pd.DataFrame({"a": []}).to_parquet(path)
    with pytest.raises(ValueError, match="is empty: 0 rows"):
        datasets.read(path)


@pytest.mark.parametrize("absent", ["pandas", "pyarrow"])
def test_parquet_names_the_extra(tmp_path, monkeypatch, absent):
    pd.DataFrame({"a": [1, 2]}).to_parquet(tmp_path / "t.parquet")
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(ImportError, match=rf'needs {absent}: pip install "diffclust\[data\]"'):
        datasets.read(tmp_path / "t.parquet")


# --- texts


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz"])
def test_jsonl(tmp_path, ending):
    path = tmp_path / f"texts{ending}"
    write_lines(path, [{"text": text, "label": label} for text, label in zip(TEXTS, "abab", strict=True)])
    X, y = datasets.read(path)
    assert X.dtype == np.float32
    assert X.toarray() == pytest.approx(TfidfVectorizer().fit_transform(TEXTS).toarray())
    assert y.tolist() == list("abab")
    assert datasets.read_texts(path)[0] == TEXTS


def test_jsonl_without_labels(tmp_path):
    write_lines(tmp_path / "t.jsonl", [{"text": text} for text in TEXTS])
    assert datasets.read(tmp_path / "t.jsonl")[1] is None


def test_jsonl_has_at_most_2000_terms(tmp_path):
    write_lines(tmp_path / "t.jsonl", [{"text": " ".join(f"w{i}" for i in range(3000))}, {"text": "w0 w1"}])
    assert datasets.read(tmp_path / "t.jsonl")[0].shape == (2, 2000)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"text": "a"}\n\n{"text": \n', "line 3: not JSON"),
        ('{"text": "a"}\n["b"]\n', "line 2: expected an object, got list"),
        ('{"text": "a"}\n{"body": "b"}\n', 'line 2: expected an object with a "text" string'),
        ('{"text": 5}\n', 'line 1: expected an object with a "text" string'),
        ('{"text": "a", "label": 1}\n{"text": "b"}\n', 'line 2: no "label", unlike'),
        ('{"text": "a"}\n{"text": "b", "label": 1}\n', 'line 2: a "label", unlike'),
        ("\n\n", "is empty: no lines"),
        ('{"text": "."}\n', "no words in its 1 texts"),
    ],
)
def test_bad_jsonl(tmp_path, text, says):
    (tmp_path / "t.jsonl").write_text(text)
    with pytest.raises(ValueError, match=says) as error:
        datasets.read(tmp_path / "t.jsonl")
    assert "t.jsonl" in str(error.value)


def test_cut_off_gzip(tmp_path):
    path = tmp_path / "t.jsonl.gz"
    write_lines(path, [{"text": text} for text in TEXTS])
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(ValueError, match="not a whole gzip file"):
        datasets.read(path)
    path.write_bytes(b"plain text")
    with pytest.raises(ValueError, match="not a whole gzip file"):
        datasets.read(path)


def test_jsonl_that_is_not_utf8(tmp_path):
    (tmp_path / "t.jsonl").write_bytes('{"text": "größe"}'.encode("latin-1"))
    with pytest.raises(ValueError, match="not UTF-8"):
        datasets.read(tmp_path / "t.jsonl")


# --- images


def picture(path, size=(4, 3), mode="L", value=7, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path, **options)


def test_grey_folder_in_sorted_order(tmp_path):
    for name, value in (("b.png", 2), ("a.PNG", 1), ("c.bmp", 3)):
        picture(tmp_path / name, value=value)
    (tmp_path / "notes.txt").write_text("not an image")
    (tmp_path / "._a.png").write_bytes(b"macOS leaves these")
    X, y = datasets.read(tmp_path)
    assert X.shape == (3, 3, 4)  # 4 wide, 3 high
    assert X.dtype == np.uint8
    assert X[:, 0, 0].tolist() == [1, 2, 3]
    assert y is None


def test_sub_folders_are_labels(tmp_path):
    picture(tmp_path / "dog" / "1.png", value=5)
    picture(tmp_path / "cat" / "2.png", value=6)
    picture(tmp_path / "cat" / "deeper" / "3.png", value=7)
    X, y = datasets.read(tmp_path)
    assert X[:, 0, 0].tolist() == [6, 7, 5]
    assert y.tolist() == ["cat", "cat", "dog"]
    picture(tmp_path / "loose.png", value=8)
    assert datasets.read(tmp_path)[1] is None


def test_one_colour_image_makes_all_colour_and_sizes_agree(tmp_path):
    picture(tmp_path / "a.png", size=(4, 3), value=9)
    picture(tmp_path / "b.png", size=(4, 3), mode="RGB", value=(10, 20, 30))
    picture(tmp_path / "c.png", size=(40, 30), mode="RGBA", value=(10, 20, 30, 0))
    X, _ = datasets.read(tmp_path)
    assert X.shape == (3, 3, 4, 3)
    assert X[0, 0, 0].tolist() == [9, 9, 9]
    assert X[1, 0, 0].tolist() == X[2, 2, 3].tolist() == [10, 20, 30]


def test_every_kind_of_file(tmp_path):
    for ending in ("png", "jpg", "jpeg", "bmp", "gif", "tif", "tiff"):
        picture(tmp_path / f"x.{ending}", size=(8, 8), value=100)
    X, _ = datasets.read(tmp_path)
    assert X.shape == (7, 8, 8)
    assert abs(X.astype(int) - 100).max() <= 2


def test_modes_of_pixels(tmp_path):
    deep = np.full((8, 8), 100 * 256 + 17, np.uint16)
    Image.fromarray(deep).save(tmp_path / "a16bit.png")
    picture(tmp_path / "b_one_bit.png", size=(8, 8), mode="1", value=1)
    picture(tmp_path / "c_grey_alpha.png", size=(8, 8), mode="LA", value=(50, 128))
    picture(tmp_path / "d_rgb_but_grey.png", size=(8, 8), mode="RGB", value=(60, 60, 60))
    Image.new("L", (8, 8), 70).convert("P").save(tmp_path / "e_palette.png", transparency=b"\x00\x80")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        X, _ = datasets.read(tmp_path)
    assert X[:, 0, 0].tolist() == [100, 255, 50, 60, 70]
    assert X.ndim == 3


def test_photographs_are_turned_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees to look at it
    pixels = np.zeros((16, 32), np.uint8)
    pixels[:, 16:] = 255
    Image.fromarray(pixels).save(tmp_path / "a.jpg", exif=exif, quality=100)
    X, _ = datasets.read(tmp_path)
    assert X.shape == (1, 32, 16)
    assert X[0, :12].max() < 30
    assert X[0, 20:].min() > 225


def test_images_in_the_shape_of_an_earlier_fit(tmp_path):
    picture(tmp_path / "a.png", size=(10, 10), mode="RGB", value=(255, 0, 0))
    assert datasets.read(tmp_path, image_shape=(4, 5))[0].shape == (1, 4, 5)
    assert datasets.read(tmp_path, image_shape=(4, 5))[0][0, 0, 0] == 76
    assert datasets.read(tmp_path, image_shape=(4, 5, 3))[0].shape == (1, 4, 5, 3)
    with pytest.raises(ValueError, match=r"image_shape=\(4,\)"):
        datasets.read(tmp_path, image_shape=(4,))


def test_unreadable_image_is_named(tmp_path):
    picture(tmp_path / "a.png")
    (tmp_path / "broken.jpg").write_bytes(b"nothing like a jpeg")
    with pytest.raises(ValueError, match=r"broken\.jpg cannot be read as an image"):
        datasets.read(tmp_path)
    (tmp_path / "broken.jpg").unlink()
    noise = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "half.png")
    whole = (tmp_path / "half.png").read_bytes()
    (tmp_path / "half.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"half\.png cannot be read as an image"):
        datasets.read(tmp_path)


def test_floating_point_image_is_named(tmp_path):
    picture(tmp_path / "f.tif", mode="F", value=0.5)
    with pytest.raises(ValueError, match=r"f\.tif .*floating point"):
        datasets.read(tmp_path)


def test_folder_without_images(tmp_path):
    with pytest.raises(ValueError, match=r"holds no images \(\.png"):
        datasets.read(tmp_path)


def test_images_name_the_extra(tmp_path, monkeypatch):
    picture(tmp_path / "a.png")
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.delitem(sys.modules, "PIL.Image")
    with pytest.raises(ImportError, match=r'needs Pillow: pip install "diffclust\[data\]"'):
        datasets.read(tmp_path)


# --- which reader


def test_a_name_will_do(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert datasets.read("digits")[0].shape == (1797, 8, 8)


def test_what_is_not_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"No file, folder or data set 'digist': did you mean 'digits'"):
        datasets.read("digist")
    with pytest.raises(FileNotFoundError, match=r"gone\.csv"):
        datasets.read(tmp_path / "gone.csv")


def test_unknown_ending_lists_the_known(tmp_path):
    (tmp_path / "x.mat").write_text("?")
    with pytest.raises(ValueError, match=r"unknown ending '\.mat'. Known: \.npy, \.npz, \.csv, \.parquet, \.jsonl"):
        datasets.read(tmp_path / "x.mat")


@pytest.mark.parametrize("ending", [".npy", ".npz", ".csv", ".parquet", ".jsonl", ".jsonl.gz"])
def test_empty_files(tmp_path, ending):
    (tmp_path / f"x{ending}").touch()
    with pytest.raises(ValueError, match="is empty: 0 bytes"):
        datasets.read(tmp_path / f"x{ending}")


def test_imports_little():
    code = (
        "import sys, diffclust.datasets\n"
        "print([m for m in ('torch', 'sklearn', 'pandas', 'pyarrow', 'PIL') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


# --- the real files


@pytest.mark.parametrize(
    ("name", "file", "shape", "dtype", "classes"),
    [
        ("mnist", "mnist.npz", (70000, 28, 28), np.uint8, 10),
        ("mnist-test", "mnist.npz", (10000, 28, 28), np.uint8, 10),
        ("usps", "usps.npz", (9298, 16, 16), np.uint8, 10),
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
