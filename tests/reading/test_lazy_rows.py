"""Data larger than memory: read as it is needed, shuffled well, answered as it goes, with flat memory."""

import sys
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from pyarrow.parquet import ParquetFile
from sklearn.exceptions import NotFittedError

from conftest import Stream
from diffclust import TELL, KMeansNet, metrics
from diffclust.engine import rows as engine
from diffclust.engine.data import Data
from diffclust.engine.feed import Feed, shuffled
from diffclust.engine.rows import ArrayRows
from diffclust.reading import lazy_rows
from diffclust.reading.formats import open_parquet
from diffclust.saving.labels_file import PARTS_PER_GROUP, LabelColumns, write
from processes import said_by

CPU = torch.device("cpu")


@pytest.fixture
def small(monkeypatch):
    """Blocks and buffers of a few rows."""
    monkeypatch.setattr(engine, "BLOCK_BYTES", 10 * 24)  # ten rows of six numbers
    monkeypatch.setattr(ArrayRows, "window", 3)
    monkeypatch.setattr(engine, "SHUFFLED_BLOCKS", 3)
    monkeypatch.setattr(lazy_rows, "RECENT_ROWS", 16)


@pytest.fixture
def X(blobs):
    return (blobs[0] - blobs[0].mean(0)).astype(np.float32)


def sources_of(X, folder):
    """The same rows, every way they may lie on a disk."""
    np.save(folder / "x.npy", X)
    table = pd.DataFrame(X).add_prefix("c")
    table["label"] = "word"
    table.to_parquet(folder / "x.parquet", row_group_size=20)
    return {
        "memmap": np.load(folder / "x.npy", mmap_mode="r"),
        ".npy": folder / "x.npy",
        ".parquet": str(folder / "x.parquet"),
        "iterable": Stream(torch.from_numpy(X)),
    }


def feeds(rows, batch=15):
    feed = Feed(Data(rows, CPU, batch))
    for _ in range(2):
        feed.begin_epoch()
        yield feed, torch.cat([(feed.load(i), feed.batch().x)[1].clone() for i in range(len(feed.order))])


def test_an_epoch_in_blocks_is_every_row_once(X, small, tmp_path):
    paths = sources_of(X, tmp_path)
    kinds = [
        ArrayRows(paths["memmap"], (6,), lambda x: x),
        open_parquet(tmp_path / "x.parquet"),
        lazy_rows.IterableRows(paths["iterable"]),
    ]
    for rows in kinds:
        epochs = []
        for feed, seen in feeds(rows):
            assert sorted(feed.order.flatten().tolist()) == list(range(150))
            assert (seen.numpy() == X[feed.order.flatten()]).all()
            epochs.append(feed.order.flatten().tolist())
        assert epochs[0] != epochs[1]
        assert epochs[0][:30] != list(range(30))


def test_reads_are_long_and_batches_are_mixed(X, small):
    feed = Feed(Data(ArrayRows(X, (6,), lambda x: x), CPU, 15))
    feed.begin_epoch()
    blocks = feed.order.flatten() // 10
    for window in blocks.split(30):
        assert len(window.unique()) == 3  # three blocks at a time, each read once
    assert all(len(batch.unique()) > 1 for batch in blocks.split(15))
    assert blocks.split(30)[0].unique().tolist() != [0, 1, 2] or blocks.split(30)[1].unique().tolist() != [3, 4, 5]


def test_few_rows_are_shuffled_freely(X):
    assert ArrayRows(X, (6,), lambda x: x).edges() is None


@pytest.mark.parametrize("kind", ["memmap", ".npy", ".parquet", "iterable"])
def test_fit_and_answers(X, blobs, small, tmp_path, kind):
    source = sources_of(X, tmp_path)[kind]
    model = TELL(3, network="identity", epochs=3, batch_size=20, random_state=0, device="cpu").fit(source)
    assert metrics.accuracy(blobs[1], model.labels_) > 0.98
    assert (model.predict(source) == model.labels_).all()
    table = pd.DataFrame(X).add_prefix("c") if kind == ".parquet" else X
    assert (model.predict(table) == model.labels_).all()
    assert np.allclose(model.transform(source), X)
    again = TELL(3, network="identity", epochs=3, batch_size=20, random_state=0, device="cpu").fit(source)
    assert (again.cluster_centers_ == model.cluster_centers_).all()


@pytest.mark.parametrize("method", [TELL, KMeansNet])
def test_whole_memory_and_blocks_find_the_same(X, small, tmp_path, method):
    settings = {"network": "identity", "epochs": 10, "batch_size": 25, "random_state": 0, "device": "cpu"}
    there = method(3, **settings).fit(X)
    for source in sources_of(X, tmp_path).values():
        assert metrics.accuracy(there.labels_, method(3, **settings).fit(source).labels_) == 1


def test_a_network_learns_from_a_file(X, small, tmp_path):
    source = sources_of(X, tmp_path)[".parquet"]
    model = TELL(3, pretrain_epochs=3, epochs=2, random_state=0, device="cpu").fit(source)
    assert list(model.feature_names_in_) == [f"c{i}" for i in range(6)]
    assert (model.predict(source) == model.labels_).all()


def test_bad_files(X, tmp_path):
    fit = TELL(3, network="identity", epochs=1, device="cpu").fit
    with pytest.raises(FileNotFoundError, match=r"nothing\.parquet"):
        fit(tmp_path / "nothing.parquet")
    (tmp_path / "x.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(ValueError, match=r"x\.parquet: .*(?i:parquet)"):
        fit(tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"\.npy, \.parquet, \.csv and \.tsv"):
        fit(tmp_path / "x.txt")
    bad = X.copy()
    bad[77, 2] = np.nan
    for source in sources_of(bad, tmp_path).values():
        with pytest.raises(ValueError, match="first in row 77"):
            fit(source)
    pd.DataFrame({"a": ["x", "y"], "b": [1.0, 2.0]}).to_parquet(tmp_path / "words.parquet")
    with pytest.raises(ValueError, match="not numeric: 'a'"):
        fit(tmp_path / "words.parquet")
    model = fit(sources_of(X, tmp_path)[".parquet"])
    pd.DataFrame(X).add_prefix("d").to_parquet(tmp_path / "other.parquet")
    with pytest.raises(ValueError, match="feature names"):
        model.predict(tmp_path / "other.parquet")
    with pytest.raises(ValueError, match="0 samples"):
        fit(Stream(torch.from_numpy(X[:0])))


def test_row_groups_are_forgotten(X, tmp_path, monkeypatch):
    monkeypatch.setattr(lazy_rows, "HELD_BYTES", 2 * 20 * 24)  # two groups
    sources_of(X, tmp_path)
    rows = open_parquet(tmp_path / "x.parquet")
    assert rows.window == 2
    for i in range(150):
        assert (rows.take(torch.tensor([i])).numpy() == X[i]).all()
        assert len(rows.groups) <= 3


@pytest.fixture
def reads(monkeypatch):
    """How many reads of a parquet file have gone on at each time."""
    going, seen, read = [], [], ParquetFile.read_row_group

    def slowly(file, *arguments, **options):
        going.append(file)
        time.sleep(0.02)
        seen.append(len(going))
        try:
            return read(file, *arguments, **options)
        finally:
            going.pop()

    monkeypatch.setattr(ParquetFile, "read_row_group", slowly)
    return SimpleNamespace(going=going, seen=seen)


def test_row_groups_are_read_by_one_thread_at_a_time(X, tmp_path, reads):
    sources_of(X, tmp_path)
    rows = open_parquet(tmp_path / "x.parquet")
    index = torch.arange(150).flip(0).split(30)
    with ThreadPoolExecutor(4) as threads:
        for i, found in zip(index, threads.map(rows.take, index), strict=True):
            assert (found.numpy() == X[i]).all()
    assert max(reads.seen) == 1


def test_no_read_goes_on_when_an_epoch_is_left(X, tmp_path, reads, monkeypatch):
    monkeypatch.setattr(lazy_rows, "HELD_BYTES", 1)  # a batch reaches into the next group
    sources_of(X, tmp_path)
    batches = shuffled(Data(open_parquet(tmp_path / "x.parquet"), CPU, 15))
    next(batches)
    batches.close()
    assert not reads.going


# ---- answers as they are found


@pytest.mark.parametrize("ending", [".csv", ".npy", ".parquet"])
@pytest.mark.parametrize("proba", [False, True])
def test_answers_are_written_as_they_are_found(X, tmp_path, ending, proba):
    many = np.tile(X, (20, 1))
    model = TELL(3, network="identity", epochs=1, random_state=0, device="cpu").fit(X)
    out = tmp_path / f"labels{ending}"
    write(out, model.predict_in_parts(many), len(many), LabelColumns(proba))
    if ending == ".npy":
        assert (np.load(out) == model.predict(many)).all()
        return
    table = pd.read_csv(out) if ending == ".csv" else pd.read_parquet(out)
    assert (table["row"] == np.arange(3000)).all()
    assert (table["label"] == model.predict(many)).all()
    assert list(table.columns) == ["row", "label", *(["p0", "p1", "p2"] if proba else [])]
    if proba:
        assert np.allclose(table[["p0", "p1", "p2"]], model.predict_proba(many), atol=1e-6)


@pytest.mark.parametrize("ending", [".csv", ".npy", ".parquet"])
def test_what_is_written_is_forgotten(tmp_path, ending):
    given, most = [], 0

    def parts():
        nonlocal most
        for i in range(300):
            labels = np.full(10, i)
            given.append(weakref.ref(labels))
            yield labels, np.full((10, 2), 0.5, np.float32)
            most = max(most, sum(part() is not None for part in given))

    write(tmp_path / f"labels{ending}", parts(), 3000)
    assert most <= 2 * PARTS_PER_GROUP  # row groups of .parquet; the others keep none


def test_a_file_is_there_when_it_is_whole(X, tmp_path):
    model = TELL(3, network="identity", epochs=1, random_state=0, device="cpu").fit(X)
    bad = np.tile(X, (20, 1))
    bad[2500] = np.nan
    np.save(tmp_path / "bad.npy", bad)
    labels, _ = next(model.predict_in_parts(tmp_path / "bad.npy"))  # nothing further has been read
    assert (labels == model.predict(bad[:1024])).all()
    with pytest.raises(NotFittedError, match="not fitted"):
        next(TELL(3).predict_in_parts(X))
    for ending in (".csv", ".npy", ".parquet"):
        with pytest.raises(ValueError, match="first in row 2500"):
            write(tmp_path / f"out{ending}", model.predict_in_parts(tmp_path / "bad.npy"), 3000)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.npy"]


def test_the_command_reads_row_groups(works, X, tmp_path):
    sources_of(X, tmp_path)
    model = TELL(3, network="identity", epochs=1, random_state=0, device="cpu").fit(tmp_path / "x.parquet")
    model.save(tmp_path / "model")
    works("predict", "model", "x.parquet", "--out", "y.parquet", "--proba")
    assert (pd.read_parquet(tmp_path / "y.parquet")["label"] == model.labels_).all()


MEMORY = """
import sys, numpy as np
from diffclust import TELL
def anonymous():
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("RssAnon"))
small, large = (np.load(path, mmap_mode="r") for path in sys.argv[1:3])
build = lambda: TELL(3, network="identity", init="k-means++", epochs=1, batch_size=4096, random_state=0, device="cpu")
build().fit(small)
before = anonymous()
model = build().fit(large)
for _ in model.predict_in_parts(large):
    pass
print(anonymous() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_stays_flat(tmp_path):
    rows = np.random.default_rng(0).random((300_000, 64), dtype=np.float32)  # 77 MB
    np.save(tmp_path / "small.npy", rows[:40_000])
    np.save(tmp_path / "large.npy", rows)
    more = float(said_by(MEMORY, tmp_path / "small.npy", tmp_path / "large.npy"))
    assert more < 40  # megabytes: labels and the order of rows, not the rows
