import gzip
import json
import os
import pickle
import subprocess
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow
import pytest
import scipy.sparse as sp
from PIL import Image
from sklearn.feature_extraction.text import TfidfVectorizer

from diffclust import metrics
from diffclust.reading.delimited import Expected
from diffclust.reading.files import Words, captions, read
from diffclust.reading.formats import open_parquet
from diffclust.reading.large_tables import TextTable
from diffclust.reading.tables import Columns

TEXTS = ["From: a\nthe cat sat", "the dog\x85sat\x0cdown", "cats and dogs", "THE END cat"]


def write_lines(path, entries):
    text = "".join(json.dumps(entry) + "\n" for entry in entries)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


# --- arrays


def test_npy_is_mapped(tmp_path):
    X = np.arange(12.0).reshape(4, 3)
    np.save(tmp_path / "x.npy", X)
    ours, y, _ = read(tmp_path / "x.npy")
    assert isinstance(ours, np.memmap)
    assert ours.flags.writeable
    ours[0] += 1
    assert (np.load(tmp_path / "x.npy") == X).all()
    ours[0] -= 1
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
    with pytest.raises(
        ValueError, match=r"x\.np[yz] cannot be read as \.np[yz]: .*pickled objects, which are never loaded"
    ):
        read(path)
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
        read(tmp_path / "x.npy")
    np.savez(tmp_path / "x.npz", X=array)
    with pytest.raises(ValueError, match=says):
        read(tmp_path / "x.npz")


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
    X, y, _ = read(tmp_path / "x.npz")
    assert (values[0] == X).all()
    assert (y.tolist() == list("aabb")) if has_y else y is None


def test_npz_errors(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, a=np.zeros((2, 2)), b=np.zeros((2, 2)))
    with pytest.raises(ValueError, match="no array is called X, images, data; there are a, b"):
        read(path)
    np.savez(path, X=np.zeros((2, 2)), y=np.zeros(3))
    with pytest.raises(ValueError, match=r"y has shape \(3,\), but X has shape \(2, 2\)"):
        read(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"x\.npz cannot be read"):
        read(path)


@pytest.mark.parametrize("ending", [".npy", ".npz"])
def test_a_file_that_is_something_else(tmp_path, ending):
    path = tmp_path / f"x{ending}"
    path.write_bytes(b"hello")
    with pytest.raises(ValueError, match=rf"cannot be read as {ending}: it is something else"):
        read(path)
    with path.open("wb") as stream:
        np.savez(stream, np.zeros((2, 2))) if ending == ".npy" else np.save(stream, np.zeros((2, 2)))
    with pytest.raises(ValueError, match=rf"cannot be read as {ending}"):
        read(path)


def test_sparse_npz_as_scipy_saves_it(tmp_path):
    X = sp.random(5, 4, 0.5, format="csr", random_state=0)
    sp.save_npz(tmp_path / "x.npz", X)
    ours, y, _ = read(tmp_path / "x.npz")
    assert sp.issparse(ours)
    assert (ours != X).nnz == 0
    assert y is None
    sp.save_npz(tmp_path / "x.npz", X.tocsc())
    with pytest.raises(ValueError, match=r"rows, CSR \(its format is b'csc'\)"):
        read(tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", data=X.data, indices=X.indices + 9, indptr=X.indptr, shape=X.shape, format=b"csr")
    with pytest.raises(ValueError, match="not a sparse matrix"):
        read(tmp_path / "x.npz")


# --- tables


@pytest.fixture(params=["with pandas", "without"])
def reader(request, monkeypatch):
    if request.param == "without":
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
        (' a ,"b, c"\r\n1, 2\r\n\r\n3, 4\r\n', [[1, 2], [3, 4]], None, ["a", "b, c"]),
        ("\ufeffa,b\n1,2\n3,4", [[1, 2], [3, 4]], None, ["a", "b"]),
        ("a,b\n1,nan\n1e-3,-inf\n", [[1, np.nan], [1e-3, -np.inf]], None, ["a", "b"]),
        (",a,label\nAnn,1,cat\nBob,3,dog\n", [[1], [3]], ["cat", "dog"], ["a"]),
        ("1,2\n", [[1, 2]], None, None),
        ("\na,b\n1,2\n3,4\n", [[1, 2], [3, 4]], None, ["a", "b"]),
        ("\r\n\r\na,b\r\n\r\n1,2\r\n3,4\r\n", [[1, 2], [3, 4]], None, ["a", "b"]),
        ("\n1,2\n3,4\n", [[1, 2], [3, 4]], None, None),
        ('"height\n(cm)",b\n1,2\n3,4\n', [[1, 2], [3, 4]], None, ["height\n(cm)", "b"]),
        ('\n"height\r\n(cm)","b\n\nc"\r\n1,2\r\n3,4\r\n', [[1, 2], [3, 4]], None, ["height\r\n(cm)", "b\n\nc"]),
        ("a\n1\n2\n", [[1], [2]], None, ["a"]),
        ("2019,2020\n1,2001\n3,4\n", [[1, 2001], [3, 4]], None, ["2019", "2020"]),
        ("2019,2020\n1,2001\n3,2000\n", [[2019, 2020], [1, 2001], [3, 2000]], None, None),
        ("2019,2019\n1,2\n", [[2019, 2019], [1, 2]], None, None),
        ("2019,2020\n", [[2019, 2020]], None, None),
        ("a,0.1\n1,0.30000000000000004\n", [[1, 0.30000000000000004]], None, ["a", "0.1"]),
    ],
)
def test_csv(tmp_path, reader, text, X, y, columns):
    ours, labels, _ = read(csv_file(tmp_path, text))
    np.testing.assert_allclose(np.asarray(ours, float), np.array(X, float), rtol=1e-15)
    assert (labels is None) if y is None else labels.tolist() == y
    if reader == "with pandas" and columns:
        assert list(ours.columns) == columns
    else:
        assert type(ours) is np.ndarray


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty: 0 bytes"),
        ("\n\n", "is empty: 0 rows"),
        ("a,b\n", "is empty: 0 rows"),
        ("a,b\n1,2\n3\n", "line 3 has 1 cell, the first has 2 cells"),
        ("a,b\n1,2\n3,4,5\n", "line 3 has 3 cells, the first has 2 cells"),
        ("a,b\n1,2,3\n3,4,5\n", "line 2 has 3 cells, the first has 2 cells"),
        ("a,b,label\n1,2\n3,4\n", "line 2 has 2 cells, the first has 3 cells"),
        ("a,b,a\n1,2,3\n", "more than one column named 'a'"),
        ("a,b\n1,\0\n", "it is not text"),
        ("label\ncat\ndog\n", "no columns besides the labels"),
        ("a,label,target\n1,2,3\n", "'label', 'target' could all be the labels"),
    ],
)
def test_bad_csv(tmp_path, reader, text, says):
    with pytest.raises(ValueError, match=says) as error:
        read(csv_file(tmp_path, text))
    assert "table.csv" in str(error.value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252", "latin-1"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_encodings_and_separators(tmp_path, encoding, separator):
    text = "größe,ort\n1.5,Zürich\n2,Köln\n".replace(",", separator)
    X = read(csv_file(tmp_path, text, encoding)).X
    assert list(X.columns) == ["größe", "ort"]
    assert X["größe"].tolist() == [1.5, 2]
    assert X["ort"].tolist() == ["Zürich", "Köln"]


@pytest.mark.parametrize(
    ("first", "below", "named"),
    [
        ("2001,2002,2003", ["{i},{i}.5,x{i}", "{i},,7"], True),
        ("2010,2000,1990", ["{i},1995,{i}.5", "3,{i},9"], True),  # 1995 may be a value once
        ("2001,2002,2003", ["20{i},{i}.5,{i}"], False),  # the first column is years
        ("2001,2002,2003", ["20{i},20{i},", ",20{i}.0,NA"], False),
        ("2001,1950,2003", ["{i}3,{i}.5,{i}"], False),  # in no order
        ("2001,2002,2002", ["{i}3,{i}.5,{i}"], False),
        ("2001,2002,2003", ["{i}3,{i},", "{i},{i},"], True),  # nothing in 2003 yet
        ("1850,1990,2050", ["1{i}7,2{i}1,19{i}", "18{i},2{i}3,2{i}5", "18{i},3{i}3,20{i}"], False),
    ],
)
def test_a_line_of_years_names_columns_of_other_things(tmp_path, reader, first, below, named):
    lines = [first, *(below[i % len(below)].format(i=i) for i in range(10, 40))]
    X = read(csv_file(tmp_path, "\n".join(lines) + "\n")).X
    assert len(X) == 30 + (not named)
    if hasattr(X, "columns"):
        assert (list(X.columns) == first.split(",")) == named


@pytest.mark.parametrize("rows", [range(30), [f"country {i}" for i in range(30)], range(1990, 2020)])
def test_years_of_pandas_stand_after_a_blank_above_its_index(tmp_path, rows):
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 3)), rows, columns=["2001", "2002", "2003"])
    table.to_csv(tmp_path / "t.csv")
    X = read(tmp_path / "t.csv").X
    assert list(X.columns) == list(table.columns)
    assert np.allclose(np.stack([X[name] for name in X.columns], 1), table)


def test_words_without_pandas(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    X = read(csv_file(tmp_path, "a,b\n1,red\n,blue\n")).X
    assert X.columns == ["a", "b"]
    assert X.shape == (2, 2)
    assert X["b"].tolist() == ["red", "blue"]
    assert X[[1]]["b"].tolist() == ["blue"]
    assert np.isnan(X["a"][1])


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "csv.zst", "tsv", "parquet", "feather", "jsonl", "jsonl.zst"])
def test_a_table_is_the_same_in_every_file(tmp_path, ending):
    table = pd.DataFrame({"a": [1.5, None, 2], "b": ["red", "blue", "red"], "label": [0, 1, 0]})
    path = tmp_path / f"t.{ending}"
    if ending.startswith(("csv", "tsv")):
        table.to_csv(tmp_path / "plain", index=False, sep="\t" if ending == "tsv" else ",")
    elif ending.startswith("jsonl"):
        table.to_json(tmp_path / "plain", orient="records", lines=True)
    else:
        getattr(table, f"to_{ending}")(tmp_path / "plain")
    raw = (tmp_path / "plain").read_bytes()
    if ending.endswith("zst"):
        with pyarrow.CompressedOutputStream(str(path), "zstd") as stream:
            stream.write(raw)
    else:
        path.write_bytes(gzip.compress(raw) if ending.endswith("gz") else raw)
    X, y, label = read(path)
    assert list(X.columns) == ["a", "b"]
    assert Columns.fit(X, {"b": "category"}).transform(X)[0].tolist() == [1.5, 0, 1]
    assert (y.tolist(), label) == ([0, 1, 0], "label")


@pytest.mark.parametrize(
    ("text", "values", "told"),
    [
        ("a;b\n13.444;x\n885;y\n2.000;z\n", [13444, 885, 2000], "number, read as 1.234 = 1234"),
        ("a;b\n13.444;x\n2.000;y\n", [13444, 2000], "number, read as 1.234 = 1234"),
        ("a;b\n1,250;x\n2,500;y\n", [1.25, 2.5], "number, read as 1,234 = 1.234"),
        ("a;b\n13.444;1.5\n2.000;2\n", [13.444, 2], "number"),
        ("a,b\n13.444,x\n885,y\n", [13444, 885], "number, read as 1.234 = 1234"),
        ('a,b\n13.444,"1,5"\n2.000,"2"\n', [13444, 2000], "number, read as 1.234 = 1234"),
        ("a,b\n13.444,1\n2.000,2\n", [13.444, 2], "number"),
        ("a,b\n13.444,1.5\n885,2\n", [13.444, 885], "number"),
    ],
)
def test_what_separates_thousands(tmp_path, text, values, told):
    """Of the whole file, and of new rows as of those of the fit."""
    path = csv_file(tmp_path, text)
    reading = Columns.fit(read(path).X, {"b": "skip"})
    assert reading.columns[0].description == told
    expected = Expected.by(SimpleNamespace(columns_=reading))
    for i, line in enumerate(text.splitlines()[1:]):
        one = csv_file(tmp_path, text.splitlines()[0] + "\n" + line + "\n")
        assert reading.transform(read(one, expected=expected).X).tolist() == [[values[i]]]
        assert TextTable(one, expected).encoded(reading.transform).block(0, 1, "cpu").tolist() == [
            [pytest.approx(values[i])]
        ]


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl", "in parts"])
def test_a_name_alone_makes_no_labels(tmp_path, ending):
    frame = pd.DataFrame({"a": np.arange(60.0) / 7, "target": np.arange(60) / 4, "class": np.arange(60) % 3})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_json(tmp_path / "t.jsonl", orient="records", lines=True)
    path = tmp_path / f"t.{'csv' if ending == 'in parts' else ending}"
    if ending == "in parts":
        table = TextTable(path)
        found, label = list(table.sample.columns), table.label
    else:
        X, _, label = read(path)
        found = list(X.columns)
    assert (found, label) == (["a", "target"], "class")
    if ending != "in parts":
        assert read(path, expected=Expected(features=frozenset({"class"}))).label is None
    assert open_parquet(tmp_path / "t.parquet").columns == ["a", "target"]


def test_the_column_of_labels_by_its_name(tmp_path):
    path = csv_file(tmp_path, "a,kind\n1,x\n2,y\n")
    X, y, label = read(path, label="kind")
    assert (list(X.columns), y.tolist(), label) == (["a"], ["x", "y"], "kind")
    with pytest.raises(
        ValueError, match=r"table\.csv: there is no column 'sort' for the labels; there are 'a', 'kind'"
    ):
        read(path, label="sort")
    assert read(path, label="sort", label_is_there=False).y is None


def test_column_names_reach_scikit_learn(tmp_path):
    from sklearn.cluster import KMeans

    X, _, _ = read(csv_file(tmp_path, "a,b,label\n1,2,0\n3,4,1\n5,6,0\n"))
    assert KMeans(2, n_init=1).fit(X).feature_names_in_.tolist() == ["a", "b"]


def test_parquet(tmp_path):
    pd.DataFrame({"a": [1, 2], "flag": [True, False], "label": ["cat", "dog"]}).to_parquet(tmp_path / "t.parquet")
    X, y, _ = read(tmp_path / "t.parquet")
    assert list(X.columns) == ["a", "flag"]
    assert X.to_numpy().tolist() == [[1, 1], [2, 0]]
    assert X.to_numpy().dtype == np.float64
    assert y.tolist() == ["cat", "dog"]


def test_bad_parquet(tmp_path):
    path = tmp_path / "t.parquet"
    pd.DataFrame({"a": [1, 2], "when": pd.to_datetime(["2020-01-01", "2020-01-02"])}).to_parquet(path)
    with pytest.raises(ValueError, match="not numeric: 'when'"):
        open_parquet(path)
    path.write_bytes(b"not parquet at all")
    with pytest.raises(ValueError, match=r"t\.parquet: .*Parquet"):
        read(path)
    pd.DataFrame({"a": []}).to_parquet(path)
    with pytest.raises(ValueError, match="is empty: 0 rows"):
        read(path)


@pytest.mark.parametrize("absent", ["pandas", "pyarrow"])
def test_parquet_names_the_extra(tmp_path, monkeypatch, absent):
    pd.DataFrame({"a": [1, 2]}).to_parquet(tmp_path / "t.parquet")
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(ImportError, match=rf'needs {absent}: pip install "diffclust\[data\]"'):
        read(tmp_path / "t.parquet")


def write_labels(path, labels):
    """Four rows with these labels, as each kind of file says that one is missing."""
    if path.suffix == ".csv":
        path.write_text("a,label\n" + "".join(f"{i},{'' if y is None else y}\n" for i, y in enumerate(labels)))
    elif path.suffix == ".parquet":
        pd.DataFrame({"a": range(4), "label": pd.Series(labels, dtype=object)}).to_parquet(path)
    elif path.suffix == ".npz":
        np.savez(path, X=np.zeros((4, 1)), y=np.array(["" if y is None else str(y) for y in labels]))
    else:
        write_lines(path, [{"text": text, "label": y} for text, y in zip(TEXTS, labels, strict=True)])


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz", ".jsonl"])
def test_a_missing_label_is_no_class(tmp_path, ending):
    path = tmp_path / f"x{ending}"
    write_labels(path, ["cat", None, "dog", "cat"])
    y = read(path).y
    assert y.tolist() == ["cat", None, "dog", "cat"]
    assert metrics.is_labelled(y).tolist() == [True, False, True, True]
    write_labels(path, [None] * 4)
    assert read(path).y is None


def test_missing_numbers_are_no_class(tmp_path):
    assert read(csv_file(tmp_path, "a,label\n1,10\n2, \n3,7\n")).y.tolist() == [10, None, 7]
    pd.DataFrame({"a": range(3), "label": pd.array([10, None, 7], "Int64")}).to_parquet(tmp_path / "t.parquet")
    assert read(tmp_path / "t.parquet").y.tolist() == [10, None, 7]
    np.savez(tmp_path / "x.npz", X=np.zeros((2, 1)), y=[np.nan, np.nan])
    assert read(tmp_path / "x.npz").y is None


# --- texts


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz"])
def test_jsonl(tmp_path, ending):
    path = tmp_path / f"texts{ending}"
    write_lines(path, [{"text": text, "label": label} for text, label in zip(TEXTS, "abab", strict=True)])
    X, y, _ = read(path)
    assert X["text"].tolist() == TEXTS
    assert y.tolist() == list("abab")


def test_jsonl_without_labels(tmp_path):
    write_lines(tmp_path / "t.jsonl", [{"text": text} for text in TEXTS])
    assert read(tmp_path / "t.jsonl").y is None


def test_a_text_has_at_most_2000_terms():
    texts = [" ".join(f"w{i}" for i in range(3000)), "w0 w1"]
    assert Words.fit(texts).transform(texts).shape == (2, 2000)


def test_a_folder_of_texts(tmp_path):
    for name, text in (("a/2.txt", "the cat"), ("a/1.txt", "größe"), ("b/1.txt", "")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(text.encode("cp1252"))
    X, y, _ = read(tmp_path)
    assert X["text"].tolist() == ["größe", "the cat", ""]
    assert y.tolist() == ["a", "a", "b"]
    assert captions(tmp_path) == ["a/1.txt", "a/2.txt", "b/1.txt"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"text": "a"}\n\n{"text": \n', "line 3: not JSON"),
        ('{"text": "a"}\n["b"]\n', "line 2: expected an object"),
        ('{"text": "a"}\n{"text": ["b"]}\n', "line 2: 'text' is not a plain value"),
        ("\n\n", "is empty: no lines"),
        ('{"label": 1}\n', "nothing besides the labels"),
        ('{"a": 1, "label": 1, "y": 2}\n', "'label', 'y' could all be the labels"),
    ],
)
def test_bad_jsonl(tmp_path, text, says):
    (tmp_path / "t.jsonl").write_text(text)
    with pytest.raises(ValueError, match=says) as error:
        read(tmp_path / "t.jsonl")
    assert "t.jsonl" in str(error.value)


def test_cut_off_gzip(tmp_path):
    path = tmp_path / "t.jsonl.gz"
    write_lines(path, [{"text": text} for text in TEXTS])
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(ValueError, match="not a complete gzip file"):
        read(path)
    path.write_bytes(b"plain text")
    with pytest.raises(ValueError, match="not a complete gzip file"):
        read(path)


def test_jsonl_that_is_not_utf8(tmp_path):
    (tmp_path / "t.jsonl").write_bytes('{"text": "größe"}'.encode("latin-1"))
    with pytest.raises(ValueError, match="not UTF-8"):
        read(tmp_path / "t.jsonl")


NEW = ["a dog sat on the mat", "cat cat", "nothing known here"]


def test_words_are_scikit_learns():
    vectorizer = TfidfVectorizer(max_features=2000, sublinear_tf=True).fit(TEXTS)
    words = Words.fit(TEXTS)
    rows = words.transform(NEW)
    assert sp.isspmatrix_csr(rows)
    assert rows.dtype == np.float32
    assert words.terms == vectorizer.get_feature_names_out().tolist()
    assert rows.toarray() == pytest.approx(vectorizer.transform(NEW).toarray())


def test_words_as_json():
    words = Words.fit(TEXTS)
    assert Words.from_json(json.dumps(words.to_dict())) == words


def test_words_of_older_models():
    words = Words.from_json('{"terms": ["cat", "dog"], "weights": [1.0, 2.0]}')
    assert words.transform(["cat cat dog"]).toarray() == pytest.approx(np.array([[1, 1]]) / 2**0.5)


def test_words_that_all_texts_or_only_one_have_are_left_out():
    texts = [f"the {'cat' if i % 3 else 'dog'} no{i}" for i in range(120)]
    assert Words.fit(texts).terms == ["dog"]


def test_languages_without_spaces():
    texts = ["今日は天気がいいです", "猫が好きです", "犬が好きです"]
    words = Words.fit(texts)
    assert words.characters
    assert (words.transform(texts).getnnz(axis=1) > 3).all()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"terms": ["a"], "weights": ["heavy"]}',
        '{"terms": ["a"], "weights": 1}',
        '{"terms": ["a", "b"], "weights": [1]}',
        '{"terms": ["a", "a"], "weights": [1, 2]}',
        '{"terms": [], "weights": []}',
    ],
)
def test_damaged_words(text):
    with pytest.raises(ValueError, match="words"):
        Words.from_json(text)


# --- images


def picture(path, size=(4, 3), mode="L", value=7, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path, **options)


def test_grey_folder_in_sorted_order(tmp_path):
    for name, value in (("b.png", 2), ("a.PNG", 1), ("c.bmp", 3)):
        picture(tmp_path / name, value=value)
    (tmp_path / "notes.txt").write_text("not an image")
    (tmp_path / "._a.png").write_bytes(b"macOS leaves these")
    X, y, _ = read(tmp_path)
    assert X.shape == (3, 3, 4)  # 4 wide, 3 high
    assert X.dtype == np.uint8
    assert X[:, 0, 0].tolist() == [1, 2, 3]
    assert y is None


def test_sub_folders_are_labels(tmp_path):
    picture(tmp_path / "dog" / "1.png", value=5)
    picture(tmp_path / "cat" / "2.png", value=6)
    picture(tmp_path / "cat" / "deeper" / "3.png", value=7)
    X, y, _ = read(tmp_path)
    assert X[:, 0, 0].tolist() == [6, 7, 5]
    assert y.tolist() == ["cat", "cat", "dog"]
    picture(tmp_path / "loose.png", value=8)
    assert read(tmp_path).y is None


def test_one_colour_image_makes_all_colour_and_sizes_agree(tmp_path):
    picture(tmp_path / "a.png", size=(4, 3), value=9)
    picture(tmp_path / "b.png", size=(4, 3), mode="RGB", value=(10, 20, 30))
    picture(tmp_path / "c.png", size=(40, 30), mode="RGBA", value=(10, 20, 30, 255))
    X, _, _ = read(tmp_path)
    assert X.shape == (3, 3, 4, 3)
    assert X[0, 0, 0].tolist() == [9, 9, 9]
    assert X[1, 0, 0].tolist() == X[2, 2, 3].tolist() == [10, 20, 30]


def test_every_kind_of_file(tmp_path):
    for ending in ("png", "jpg", "jpeg", "bmp", "gif", "tif", "tiff"):
        picture(tmp_path / f"x.{ending}", size=(8, 8), value=100)
    X, _, _ = read(tmp_path)
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
        X, _, _ = read(tmp_path)
    assert X[:, 0, 0].tolist() == [100, 255, 152, 60, 70]  # 152: half of 50, half of white
    assert X.ndim == 3


@pytest.mark.parametrize(("ending", "dtype"), [("png", np.uint16), ("tif", np.uint16), ("tif", np.int32)])
@pytest.mark.parametrize("high", [255, 4095, 65535])
def test_no_grey_level_is_lost(tmp_path, ending, dtype, high):
    ramp = np.linspace(0, high, 64).astype(dtype).reshape(8, 8)
    for name, pixels in (("a", ramp), ("b", ramp[::-1])):
        Image.fromarray(pixels.copy()).save(tmp_path / f"{name}.{ending}")
    X, _, _ = read(tmp_path)
    assert X.dtype == (np.uint8 if high == 255 else np.uint16)
    assert X.tolist() == [ramp.tolist(), ramp[::-1].tolist()]
    half = read(tmp_path, image_shape=(1, 4, 4)).X
    assert half.shape == (2, 4, 4)
    assert half.mean() == pytest.approx(ramp.mean(), rel=0.02)
    assert (X[..., None] == read(tmp_path, image_shape=(3, 8, 8)).X).all()


def test_an_image_is_the_same_in_any_company(tmp_path):
    """Asked for the bits of the fit, whatever else is in the folder."""
    Image.fromarray(np.full((8, 8), 4095, np.uint16)).save(tmp_path / "a.png")
    Image.fromarray(np.full((8, 8), 200, np.uint16)).save(tmp_path / "b.png")
    picture(tmp_path / "c.png", size=(8, 8), value=100)
    grey = {"image_shape": (1, 8, 8)}
    assert read(tmp_path, **grey, image_bits=16).X[:, 0, 0].tolist() == [4095, 200, 100 * 257]
    assert read(tmp_path, **grey, image_bits=8).X[:, 0, 0].tolist() == [15, 200, 100]
    assert read(tmp_path).X[:, 0, 0].tolist() == [15, 200, 100]
    assert read(tmp_path).X.dtype == np.uint8


def test_pixels_beyond_16_bits_are_named(tmp_path):
    Image.fromarray(np.full((8, 8), 70000, np.int32)).save(tmp_path / "deep.tif")
    with pytest.raises(ValueError, match=r"deep\.tif .*pixels from 70000 to 70000, where 0 to 65535"):
        read(tmp_path)


def test_what_is_transparent_is_white(tmp_path):
    """However the file says so; under it there is often black."""
    drawn = np.zeros((8, 8, 4), np.uint8)
    drawn[2:6, 2:6] = (10, 20, 30, 255)
    image = Image.fromarray(drawn)
    image.save(tmp_path / "a_rgba.png")
    image.convert("LA").save(tmp_path / "b_la.png")
    image.convert("RGB").save(tmp_path / "c_rgb.png", transparency=(0, 0, 0))
    image.convert("L").save(tmp_path / "d_l.png", transparency=0)
    palette = image.convert("RGB").quantize(2)
    for name in ("e_p.png", "f_p.gif"):
        palette.save(tmp_path / name, transparency=palette.getpixel((0, 0)))
    X, _, _ = read(tmp_path)
    assert (X[:, 0, 0] == 255).all()
    assert X[:, 3, 3].tolist() == [[10, 20, 30], [18] * 3, [10, 20, 30], [18] * 3, [10, 20, 30], [10, 20, 30]]


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "CMYK", "YCbCr"])
def test_pictures_without_transparency_are_as_pillow_reads_them(tmp_path, mode):
    noise = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(noise).convert(mode).save(tmp_path / "a.tif")
    with Image.open(tmp_path / "a.tif") as image:
        truth = np.asarray(image.convert("RGB"))
    assert (read(tmp_path, image_shape=(3, 8, 8)).X[0] == truth).all()


def test_photographs_are_turned_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees to look at it
    pixels = np.zeros((16, 32), np.uint8)
    pixels[:, 16:] = 255
    Image.fromarray(pixels).save(tmp_path / "a.jpg", exif=exif, quality=100)
    X, _, _ = read(tmp_path)
    assert X.shape == (1, 32, 16)
    assert X[0, :12].max() < 30
    assert X[0, 20:].min() > 225


@pytest.mark.parametrize(("size", "shape"), [((300, 150), (64, 128)), ((129, 128), (127, 128)), ((128, 40), (40, 128))])
def test_large_images_are_reduced_in_proportion(tmp_path, size, shape):
    picture = Image.new("L", size, 40)
    picture.paste(200, (0, 0, size[0] // 2, size[1]))
    picture.save(tmp_path / "a.png")
    X, _, _ = read(tmp_path)
    assert X.shape == (1, *shape)
    assert (X[0, :, : shape[1] // 2 - 2] == 200).all()
    assert (X[0, :, shape[1] // 2 + 2 :] == 40).all()


def test_images_in_the_shape_of_an_earlier_fit(tmp_path):
    picture(tmp_path / "a.png", size=(10, 10), mode="RGB", value=(255, 0, 0))
    grey = read(tmp_path, image_shape=(1, 4, 5)).X
    assert grey.shape == (1, 4, 5)
    assert grey[0, 0, 0] == 76  # 0.299 of 255
    assert read(tmp_path, image_shape=(3, 4, 5)).X.shape == (1, 4, 5, 3)
    picture(tmp_path / "a.png", size=(10, 10))
    assert read(tmp_path, image_shape=(3, 4, 5)).X.shape == (1, 4, 5, 3)  # grey now, but not then
    with pytest.raises(ValueError, match=r"samples of shape \(4,\)"):
        read(tmp_path, image_shape=(4,))


def test_unreadable_image_is_named(tmp_path):
    picture(tmp_path / "a.png")
    (tmp_path / "broken.jpg").write_bytes(b"nothing like a jpeg")
    with pytest.raises(ValueError, match=r"broken\.jpg cannot be read as an image"):
        read(tmp_path)
    (tmp_path / "broken.jpg").unlink()
    noise = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "half.png")
    whole = (tmp_path / "half.png").read_bytes()
    (tmp_path / "half.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"half\.png cannot be read as an image"):
        read(tmp_path)


def test_floating_point_image_is_named(tmp_path):
    picture(tmp_path / "f.tif", mode="F", value=0.5)
    with pytest.raises(ValueError, match=r"f\.tif .*floating point"):
        read(tmp_path)


def test_folder_without_images(tmp_path):
    with pytest.raises(ValueError, match=r"holds no images \(\.png"):
        read(tmp_path)


def test_images_name_the_extra(tmp_path, monkeypatch):
    picture(tmp_path / "a.png")
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.delitem(sys.modules, "PIL.Image")
    with pytest.raises(ImportError, match=r'needs Pillow: pip install "diffclust\[data\]"'):
        read(tmp_path)


# --- which reader


def test_a_name_will_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y, words = read("digits")
    assert X.shape == (1797, 8, 8)
    assert y.shape == (1797,)
    assert words is None


def test_what_is_not_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"No file, folder or data set 'digist': did you mean 'digits'"):
        read("digist")
    with pytest.raises(FileNotFoundError, match=r"gone\.csv"):
        read(tmp_path / "gone.csv")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("customer.csv", r": did you mean 'customers\.csv'\?$"),
        ("Customers.CSV", r": did you mean 'customers\.csv'\?$"),
        ("customers", r": did you mean 'customers\.csv'\?$"),
        ("photo", r": did you mean 'photos'\?$"),
        ("photos/img0.png", r": did you mean 'photos/img00\.png'\?$"),
        ("photo/img00.png", r": there is no folder 'photo'\.$"),
        ("sales.csv", r" in /.+\.$"),
        ("photos/sales.csv", r" in /.+\.$"),
        ("/sales.csv", r"\.$"),
        ("mnits", r": did you mean 'mnist'\? Known: digits, "),
    ],
)
def test_a_file_that_is_not_there_is_told_with_one_that_is(tmp_path, monkeypatch, asked, says):
    (tmp_path / "customers.csv").touch()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "img00.png").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=f"^No file, folder or data set '{asked}'{says}") as told:
        read(asked)
    assert ("Known" in str(told.value)) == (asked == "mnits")


def test_unknown_ending_lists_the_known(tmp_path):
    (tmp_path / "x.mat").write_text("?")
    with pytest.raises(ValueError, match=r"unknown ending '\.mat'. Known: \.npy, \.npz, \.csv, \.tsv, \.parquet, "):
        read(tmp_path / "x.mat")


@pytest.mark.parametrize("ending", [".npy", ".npz", ".csv", ".parquet", ".jsonl", ".jsonl.gz"])
def test_empty_files(tmp_path, ending):
    (tmp_path / f"x{ending}").touch()
    with pytest.raises(ValueError, match="is empty: 0 bytes"):
        read(tmp_path / f"x{ending}")


def test_imports_little():
    code = (
        "import sys, diffclust.datasets, diffclust.reading.files\n"
        "print([m for m in ('torch', 'sklearn', 'pandas', 'pyarrow', 'PIL') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_captions(tmp_path):
    """What rows are called, in the order in which they are read."""
    folder = tmp_path / "images"
    for name in ("cats/2.png", "cats/10.png", "dogs/1.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        picture(folder / name)
    assert captions(folder) == ["cats/10.png", "cats/2.png", "dogs/1.png"]
    assert list(read(folder).y) == [name.split("/")[0] for name in captions(folder)]
    assert captions("digits") is None


@pytest.mark.parametrize("ending", ["feather", "parquet"])
def test_a_text_that_is_no_text_is_an_error_of_its_file(tmp_path, ending):
    pa, feather, parquet = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.feather", "pyarrow.parquet"))
    offsets = np.arange(0, 13, 3, dtype=np.int32)
    text = pa.StringArray.from_buffers(4, pa.py_buffer(offsets), pa.py_buffer(b"abcd\xff\xfefghijk"))
    table, path = pa.table({"a": [1.0, 2.0, 3.0, 4.0], "b": text}), tmp_path / f"x.{ending}"
    (feather.write_feather if ending == "feather" else parquet.write_table)(table, str(path))
    with pytest.raises(ValueError, match=rf"x\.{ending}"):
        read(path)
