"""Hostile data files of every kind: read, and brought to rows as `fit` would."""

import gzip
import io
import json
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from damage import BYTES, DEEP, NUMBERS, THINGS, as_json, odd
from PIL import Image

from diffclust import TELL
from diffclust.engine.data import Data
from diffclust.reading import files
from diffclust.reading.inputs import read_rows

FEW = 50_000_000  # bytes that a part of a bomb becomes
WORDS = ["", "x", "1", "-1", "1e308", "9" * 400, "nan", "inf", "2024-02-30", "2024-01-01", "0001-01-01", "9999-12-31"]
WORDS += ["NaT", "é" * 300, "\x0b", "=1+1", "1,5", "12:61", "٣", "a b c d e f g"]


def as_file(save, *args, **options):
    file = io.BytesIO()
    save(file, *args, **options)
    return file.getvalue()


class Tables:
    def __init__(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(20, 4)).astype(np.float32)
        frame = pd.DataFrame(X, columns=list("abcd")).assign(label=["u", "v"] * 10)
        mixed = frame.assign(kind=list("xyzx") * 5, when=pd.date_range("2024-01-01", periods=20))
        self.mixed = mixed.drop(columns="label").astype(str)
        picture = Image.fromarray(rng.integers(0, 255, (8, 8), dtype=np.uint8))
        lines = "".join(json.dumps({"text": f"word{i % 3} other{i % 5}", "label": i % 2}) + "\n" for i in range(20))
        csv = mixed.to_csv(index=False).encode()
        self.whole = {
            "x.npy": as_file(np.save, X),
            "x.npz": as_file(np.savez_compressed, X=X, y=np.arange(20)),
            "x.parquet": as_file(mixed.to_parquet),
            "x.feather": as_file(mixed.to_feather, compression="lz4"),
            "x.csv": frame.to_csv(index=False).encode(),
            "x.tsv": mixed.to_csv(index=False, sep="\t").encode(),
            "x.csv.gz": gzip.compress(csv),
            "x.csv.zst": pa.compress(csv, "zstd", asbytes=True),
            "x.jsonl": lines.encode(),
            "x.jsonl.gz": gzip.compress(lines.encode()),
            "x.png": as_file(picture.save, "PNG"),
            "x.jpg": as_file(picture.save, "JPEG"),
            "x.tif": as_file(picture.save, "TIFF"),
            "x.gif": as_file(picture.save, "GIF"),
            "x.bmp": as_file(picture.save, "BMP"),
            "x.txt": b"some words in a text",
        }
        self.bombs = bombs()

    def make(self, rng, folder):
        name = rng.choice(list(self.whole))
        blob, kind = (
            self.whole[name],
            rng.choice(["bytes"] * 16 + ["particular"] * 6 + ["cells"] * 10 + ["odd"] * 6 + ["bomb"]),
        )
        if kind == "bytes":
            blob = rng.choice(BYTES)(rng, blob)
        elif kind == "particular":
            blob = self.particular(rng, name, blob)
        elif kind == "cells":
            name, blob = self.cells(rng)
        elif kind == "bomb":
            name, blob = rng.choice(self.bombs)
        folder.mkdir()
        path = folder / name
        in_folder = path.suffix in (".png", ".jpg", ".tif", ".gif", ".bmp", ".txt")
        if in_folder:
            path = folder / "inside" / name
            path.parent.mkdir()
            (path.parent / f"whole{path.suffix}").write_bytes(self.whole[name])
        path.write_bytes(blob)
        if kind == "odd":
            odd(rng, path)
        place = path.parent if in_folder else path
        return f"data: {name} {kind}", lambda: self.read(place)

    def cells(self, rng):
        """A table that is whole, with cells that no table should have."""
        table = self.mixed.copy()
        for _ in range(rng.choice([1, 3, 20])):
            table.iloc[rng.randrange(len(table)), rng.randrange(table.shape[1])] = rng.choice(WORDS)
        if rng.random() < 0.5:
            return "x.csv", table.to_csv(index=False).encode()
        lines = table.to_dict("records")
        for _ in range(rng.choice([0, 1, 5])):
            thing = DEEP if rng.random() < 0.05 else rng.choice(NUMBERS + THINGS)
            lines[rng.randrange(len(lines))][rng.choice([*table.columns, "new"])] = thing
        return "x.jsonl", "".join(as_json(line) + "\n" for line in lines).encode()

    def particular(self, rng, name, blob):
        if name == "x.npy":
            shape = rng.choice(
                ["(-20, 4)", "(20, 4000000000)", "(99999999999999,)", "(20, 4, 0)", "()", "(True,)", "[1]"]
            )
            return blob.replace(b"(20, 4)", shape.encode())
        if name == "x.npz":
            flag = blob.index(b"PK\x01\x02") + 8
            return blob[:flag] + b"\x01" + blob[flag + 1 :]  # encrypted
        if name in ("x.csv", "x.tsv"):
            return rng.choice(
                [
                    b'"' * 1001,
                    b"a,b\n" + b"1," * 5000,
                    blob.replace(b",", b"\0"),
                    b"\xff\xfe" + blob,
                    b"a,b\nnan,inf\n1,2\n",
                    b",".join(b"c%d" % i for i in range(3000)) + b"\n" + b",".join([b"1"] * 3000) + b"\n",
                ]
            )
        if name.startswith("x.jsonl"):
            text = b'{"text": ' + rng.choice([b"[" * 100_000, b'"a"', b"1", b"NaN", b'"\\ud800"', b"9" * 5000]) + b"}\n"
            return gzip.compress(text) if name.endswith("gz") else text
        return rng.choice(BYTES)(rng, rng.choice(list(self.whole.values())))

    def read(self, path):
        table = files.read(path)
        given = read_rows(TELL(2, device="cpu"), table.X, fitting=True)
        rows = Data(given.rows, torch.device("cpu"))
        assert bool(rows.block(0, min(len(rows), 100)).isfinite().all()), "a row that is not finite"


def bombs():
    """Small files that become gigabytes, or say so; and some that stay just below the limit."""
    found = []
    for rows in (10**9, 10**15):
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (rows, 4)})
        found.append(("x.npy", header.getvalue() + bytes(1000)))
    for rows, said in ((FEW // 64, None), (10**9, None), (10**9, 2**32 - 2)):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed, packed.open("X.npy", "w") as member:
            np.lib.format.write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": (rows, 8)})
            member.write(bytes(FEW // 64 * 64))
        blob = bytearray(file.getvalue())
        place = blob.index(b"PK\x01\x02") + 24
        blob[place : place + 4] = blob[place : place + 4] if said is None else said.to_bytes(4, "little")
        found.append(("x.npz", bytes(blob)))
    part = gzip.compress(b"1,2\n" * (FEW // 4))  # parts of a file follow one another
    found += [("x.csv.gz", part * 100), ("x.jsonl.gz", gzip.compress(b'{"a": 1}\n' * 200_000) * 1000)]
    found.append(("x.csv.zst", pa.compress(b"1,2\n" * (FEW // 4), "zstd", asbytes=True) * 100))
    for side in (4_000, 20_000):
        found.append(("x.png", as_file(Image.new("1", (side, side)).save, "PNG")))
    for rows in (1_000_000, 40_000_000):
        table = pa.table({"a": pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), [0.0])})
        found.append(("x.parquet", as_file(lambda file, table=table: pa.parquet.write_table(table, file))))
    return found
