"""Files that are small and become large, and files that are damaged: a clear word, before memory is taken."""

import gzip
import io
import json
import os
import tracemalloc
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image

from diffclust import TELL
from diffclust.reading.files import read
from diffclust.reading.formats import open_parquet
from diffclust.reading.unpacking import MAX_RATIO, MIN_LIMIT, unpack_limit


def test_the_limit(monkeypatch):
    assert unpack_limit(10) == MIN_LIMIT
    assert unpack_limit(10**9) == MAX_RATIO * 10**9
    monkeypatch.setenv("DIFFCLUST_UNPACK_GB", "0.5")
    assert unpack_limit(10**9) == 5 * 10**8
    for wrong in ("much", "-1", "nan", "0", "inf"):
        monkeypatch.setenv("DIFFCLUST_UNPACK_GB", wrong)
        with pytest.raises(ValueError, match="number of gigabytes"):
            unpack_limit(1)


def write_large(path):
    """200,000 rows of zeros: a megabyte and more, in a few kilobytes."""
    zeros, n = np.zeros((200_000, 1)), 200_000
    if path.suffix == ".npz":
        np.savez_compressed(path, X=zeros)
    elif path.suffix == ".parquet":
        pd.DataFrame({"a": zeros[:, 0]}).to_parquet(path)
    elif path.suffix == ".feather":
        pd.DataFrame({"a": zeros[:, 0]}).to_feather(path, compression="zstd")
    elif path.suffix == ".zst":
        path.write_bytes(pa.compress(b"a,b\n" + b"0,0\n" * n, "zstd", asbytes=True))
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(b'{"a": 0}\n' * n))
    else:
        path.mkdir()
        Image.new("1", (1000, 1000)).save(path / "a.png")


@pytest.mark.parametrize("name", ["x.npz", "x.parquet", "x.feather", "x.csv.zst", "x.jsonl.gz", "pictures"])
def test_what_unpacks_to_more_than_it_may(tmp_path, monkeypatch, name):
    path = tmp_path / name
    write_large(path)
    monkeypatch.setenv("DIFFCLUST_UNPACK_GB", "0.0007")
    with pytest.raises(ValueError, match=rf"{path}.*over the limit of 700 kB.*DIFFCLUST_UNPACK_GB"):
        read(path)
    monkeypatch.setenv("DIFFCLUST_UNPACK_GB", "0.1")
    assert len(read(path).X)
    monkeypatch.delenv("DIFFCLUST_UNPACK_GB")
    assert len(read(path).X)


def test_row_groups_that_are_too_large(tmp_path, monkeypatch):
    write_large(tmp_path / "x.parquet")
    monkeypatch.setenv("DIFFCLUST_UNPACK_GB", "0.0007")
    with pytest.raises(ValueError, match="over the limit"):
        open_parquet(tmp_path / "x.parquet")


def test_a_bomb_takes_no_memory(tmp_path):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file, file.open("X.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(
            member, {"descr": "<f8", "fortran_order": False, "shape": (MIN_LIMIT // 8 + 2**20, 1)}
        )
        for _ in range(MIN_LIMIT // 2**23 + 1):
            member.write(bytes(2**23))
    assert path.stat().st_size < 1_000_000
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="over the limit"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def declared(path, shape, packed):
    """An array of 20 x 4 that says it has another shape."""
    blob = io.BytesIO()
    np.save(blob, np.zeros((20, 4), np.float32))
    raw = blob.getvalue().replace(b"(20, 4), }" + b" " * (len(shape) - 7), shape.encode() + b", }")
    if not packed:
        path.write_bytes(raw)
        return
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("X.npy", raw)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("shape", ["(-20, 4)", "(20, 4000000000)", "(99999999999999,)", "(True, 8)", "[1, 2, 3]"])
def test_arrays_that_are_not_as_large_as_they_say(tmp_path, shape, packed):
    path = tmp_path / ("x.npz" if packed else "x.npy")
    declared(path, shape, packed)
    with pytest.raises(ValueError, match=f"{path} cannot be read"):
        read(path)


def test_damaged_headers_and_encrypted_archives(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((20, 4)))
    raw = path.read_bytes()
    for at in (b"'shape'", b"False", b"(20"):
        path.write_bytes(raw.replace(at, at[:1] + b"\xbf\xe0'{" + at[5:]))
        with pytest.raises(ValueError, match=r"x\.npy cannot be read"):
            read(path)
    path = tmp_path / "x.npz"
    np.savez(path, X=np.zeros((20, 4)))
    raw = path.read_bytes()
    flag = raw.index(b"PK\x01\x02") + 8
    path.write_bytes(raw[:flag] + b"\x01" + raw[flag + 1 :])
    with pytest.raises(ValueError, match=r"x\.npz cannot be read"):
        read(path)


@pytest.mark.parametrize(
    "line", ['{"a": ' + "[" * 100_000 + "}", '{"a": ' + "9" * 5000 + "}", '{"text": "\\ud800"}'], ids=str.__len__
)
def test_json_that_python_cannot_read(tmp_path, line):
    path = tmp_path / "x.jsonl"
    path.write_text(f"{json.dumps({'a': 1})}\n{line}\n")
    with pytest.raises(ValueError, match=r"x\.jsonl, line 2: not JSON"):
        read(path)


@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_damaged_tables_of_arrow(tmp_path, ending):
    path = tmp_path / f"x.{ending}"
    getattr(pd.DataFrame({"a": range(50), "b": list("uvwxy") * 10}), f"to_{ending}")(path)
    raw, rng, said = path.read_bytes(), np.random.default_rng(0), []
    for _ in range(100):
        blob = bytearray(raw)
        blob[rng.integers(len(raw))] = rng.integers(256)
        path.write_bytes(blob)
        try:
            read(path)
        except ValueError as error:
            said.append(str(error))
    assert said
    assert all(text.startswith(str(path)) for text in said)


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zero.npy").symlink_to("/dev/zero")
    for name in ("pipe.csv", "zero.npy"):
        with pytest.raises(ValueError, match=f"{name} is not a regular file"):
            read(tmp_path / name)
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "loop.csv")
    with pytest.raises(ValueError, match="not a regular file"):
        TELL(2).fit(tmp_path / "zero.npy")


def test_a_label_larger_than_any_number_is_a_word(tmp_path):
    (tmp_path / "x.csv").write_text(f"a,label\n1,{'9' * 30}\n2,3\n")
    assert read(tmp_path / "x.csv").y.tolist() == ["9" * 30, "3"]
