"""Tables larger than memory: gone through in parts, they are read as they would be whole."""

import gzip
import json
import sys

import numpy as np
import pandas as pd
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diffclust import TELL
from diffclust.reading import large_tables
from diffclust.reading.files import read
from diffclust.reading.large_tables import TextTable
from diffclust.reading.tables import Columns
from processes import said_by

SHORT = {"epochs": 2, "pretrain_epochs": 2, "device": "cpu", "random_state": 0}

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture
def small(monkeypatch):
    """Every file is large, and a part has some ten rows."""
    monkeypatch.setattr(large_tables, "LARGE_FILE", 0)
    monkeypatch.setattr(large_tables, "PART_CELLS", 50)


def table(n=97):
    rng = np.random.default_rng(0)
    rich = np.arange(n) % 2 == 0
    income = (np.where(rich, 90, 20) + rng.normal(0, 5, n)).round(2)
    frame = pd.DataFrame(
        {
            "id": [f"c{i}" for i in range(n)],
            "income": np.where(rng.random(n) < 0.1, "", income.astype(str)),
            "plan": np.where(rich, "premium, all\nof it", rng.choice(["free", "bäsic"], n)),
            "since": pd.date_range("2022-01-01", periods=n).strftime("%d.%m.%Y"),
            "label": np.where(rich, "rich", "poor"),
        }
    )
    return frame.astype(object)


WRITTEN = {
    "t.csv": {},
    "t.tsv": {"sep": "\t"},
    "latin.csv": {"encoding": "cp1252", "sep": ";"},
    "wide.csv": {"encoding": "utf-16"},
    "t.csv.gz": {},
    "t.csv.zst": {},
}


@pytest.mark.parametrize("name", WRITTEN)
def test_in_parts_as_whole(small, monkeypatch, tmp_path, name):
    plain = table().to_csv(None, index=False, lineterminator="\n", sep=WRITTEN[name].get("sep", ","))
    raw = plain.encode(WRITTEN[name].get("encoding", "utf-8"))
    with pyarrow.output_stream(tmp_path / name) as file:  # compressed by its name
        file.write(raw)
    in_parts = read(tmp_path / name)
    assert in_parts.X.shape == (97, 4)
    assert sum(1 for _ in in_parts.X.parts()) == 10
    monkeypatch.setattr(large_tables, "LARGE_FILE", 2**30)
    whole = read(tmp_path / name)
    assert (in_parts.y == whole.y).all()
    assert in_parts.label == whole.label == "label"
    reading = Columns.fit(whole.X, {})
    assert Columns.fit(in_parts.X.sample, {}).describe() == reading.describe()
    rows = in_parts.X.encoded(reading.transform)
    assert np.allclose(rows.block(0, 97, "cpu"), reading.transform(whole.X))
    assert in_parts.X[[40, 3]]["id"].tolist() == ["c40", "c3"]


def test_fit_and_answers(tmp_path, small):
    table().to_csv(tmp_path / "t.csv", index=False)
    frame = read(tmp_path / "t.csv").X.sample
    whole, large = (TELL(2, **SHORT).fit(X) for X in (frame, tmp_path / "t.csv"))
    assert (whole.labels_ == large.labels_).all()
    assert (large.predict(tmp_path / "t.csv") == large.labels_).all()
    assert (large.predict(frame) == large.labels_).all()
    assert large.columns_.describe() == whole.columns_.describe()


def test_texts(tmp_path, small):
    topics = np.array(["the ship sails the sea to port", "bread and butter from the oven"])
    frame = pd.DataFrame({"text": topics[np.arange(60) % 2] + np.array([f" no {i % 7}" for i in range(60)])})
    frame.to_csv(tmp_path / "t.csv", index=False)
    whole, large = (TELL(2, **SHORT).fit(X) for X in (frame, tmp_path / "t.csv"))
    assert (whole.labels_ == large.labels_).all()


def test_numbers_alone(tmp_path, small):
    X = np.random.default_rng(0).normal(size=(60, 3))
    frame = pd.DataFrame(X, columns=list("abc"))
    frame.to_csv(tmp_path / "t.csv", index=False)
    model = TELL(2, **SHORT).fit(frame)  # as an array: it has no reading
    assert (model.predict(tmp_path / "t.csv") == model.labels_).all()
    frame[["b", "a", "c"]].to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(tmp_path / "t.csv")
    frame.assign(b=[*X[:-1, 1].astype(str), "?"]).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match=r"t\.csv, in the rows from 48 on: .*NaN or words, in 'b'"):
        model.predict(tmp_path / "t.csv")


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 200), most=st.integers(2, 40))
def test_the_sample_is_even(tmp_path_factory, n, most):
    path = tmp_path_factory.mktemp("even") / "t.csv"
    path.write_text("a,b\n" + "".join(f"{i},x{i}\n" for i in range(n)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_tables, "SAMPLE_CELLS", 2 * most)
        found = TextTable(path)
    rows = np.asarray(found.sample["a"], int)
    assert found.shape == (n, 2)
    assert len(rows) == n if n <= most else most / 2 <= len(rows) <= most + 1
    assert rows[0] == 0
    assert len(set(np.diff(rows))) <= 1
    assert n - rows[-1] <= (rows[1] if len(rows) > 1 else 1)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a,b\n" + b"1,x\n" * 30 + b"1\n", r"t\.csv: line 32 has 1 cell, the first has 2 cells"),
        (b"a,a\n1,2\n", r"t\.csv: there is more than one column named 'a'"),
        (b"a,b\n", r"t\.csv: it is empty: 0 rows"),
        (b"a,b\n1,\0\n", r"t\.csv: it is not text"),
        (b"\xff\xfea", r"t\.csv: it starts like utf-16, but is not"),
        (b"label\nx\ny\n", r"t\.csv: there are no columns besides the labels"),
    ],
)
def test_broken_files(tmp_path, small, content, says):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ValueError, match=says):
        read(tmp_path / "t.csv")


def test_cut_off_gzip(tmp_path, small):
    packed = gzip.compress(b"a,b\n" + b"1,2\n" * 5000)
    (tmp_path / "t.csv.gz").write_bytes(packed[:-20])
    with pytest.raises(ValueError, match=r"t\.csv\.gz is not a complete gzip file"):
        read(tmp_path / "t.csv.gz")


def test_by_the_command(small, works, refused, tmp_path):
    table().to_csv(tmp_path / "t.csv", index=False)
    told = json.loads(works("describe", "t.csv", "--json"))
    assert (told["shape"], told["classes"]) == ([97, 4], 2)
    works("fit", "t.csv", "-k", 2, "--out", "a", "--epochs", 2, "--set", "pretrain_epochs=2", "--device", "cpu")
    works("predict", "a", "t.csv", "--out", "n.csv")
    assert (pd.read_csv("n.csv")["label"] == pd.read_csv("a/labels.csv")["label"]).all()
    assert works("explain", "a", "--row", 3).startswith("Row 3")
    refused("predict", "a", "t.csv", "--out", "k.csv", "--keep", "id", says="is read in parts")


MEMORY = """
import sys
from pathlib import Path
from diffclust.reading import large_tables
from diffclust.reading.tables import Columns
import torch
large_tables.PART_CELLS, large_tables.SAMPLE_CELLS = 2**14, 2**14
def anonymous():
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("RssAnon"))
def read(path):
    table = large_tables.TextTable(Path(path))
    return table.encoded(Columns.fit(table.sample).transform)
read(sys.argv[1])
before = anonymous()
rows = read(sys.argv[2])
print(len(rows), anonymous() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_stays_flat(tmp_path):
    line = "{},0.123456789,0.987654321,red,2024-01-02\n"
    for name, n in (("small.csv", 10_000), ("large.csv", 200_000)):  # the larger one: 8 MB, and 90 MB as words
        body = "".join(line.format(i) for i in range(n))
        (tmp_path / name).write_text("a,b,c,colour,day\n" + body.replace("red", "blue", n // 2))
    n, more = said_by(MEMORY, tmp_path / "small.csv", tmp_path / "large.csv").split()
    assert n == "200000"
    assert float(more) < 10  # megabytes
