"""Labelled tables from R's packages as .npz files for `rows.py`: sets on which no rule of ours was chosen at first.

    apt-get download r-cran-{mlbench,kernlab,mass,mclust,dslabs,modeldata,dendextend}
    for each in *.deb; do dpkg -x $each tree; done
    python benchmarks/r_sets.py tree/usr/lib/R FOLDER             # needs rdata and pandas

Columns of numbers as they are, categories as zeros and ones; rows with a blank are left out.
"""

import bz2
import gzip
import lzma
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import rdata


def value(raw: bytes) -> Any:
    return rdata.conversion.convert(rdata.parser.parse_data(raw, extension=".rds"))


class Package:
    """The data of an installed R package: files of their own, or R's lazy-load database."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "data"

    def __getitem__(self, name: str) -> Any:
        single = self.folder / f"{name}.rda"
        if single.exists():
            return rdata.conversion.convert(rdata.parser.parse_file(single))[name]
        index = value(gzip.decompress((self.folder / "Rdata.rdx").read_bytes()))
        start, size = (int(number) for number in index["variables"][name])
        return value(unpacked((self.folder / "Rdata.rdb").read_bytes()[start : start + size]))


def unpacked(record: bytes) -> bytes:
    """Four bytes of length, then zlib; or a letter that tells the packer, then its bytes."""
    packer, rest = record[4:5], record[5:]
    if packer == b"2":
        return bz2.decompress(rest)
    if packer == b"Z":
        return lzma.decompress(rest, lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2, "preset": 9}])
    return zlib.decompress(record[4:])


def table(frame: Any, label: str, drop: tuple[str, ...] = ()) -> tuple[pd.DataFrame, Any]:
    return frame.drop(columns=[label, *drop]), frame[label]


def one_hot(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.get_dummies(frame.astype(str)).astype(float)


def save(folder: Path, name: str, X: Any, y: Any) -> None:
    if isinstance(X, pd.DataFrame):
        X = X.astype(str).replace({"True": "1", "False": "0"}).apply(pd.to_numeric, errors="coerce")
    X = np.asarray(X, dtype=float)
    whole = np.isfinite(X).all(1)
    labels = pd.factorize(np.asarray(y).astype(str)[whole])[0]
    X = X[whole][:, X[whole].std(0) > 0]
    np.savez_compressed(folder / f"{name}.npz", X=X, labels=labels.astype(np.uint8))
    print(f"{name}: {X.shape[0]} x {X.shape[1]}, {labels.max() + 1} classes")


def main(r: Path, folder: Path) -> None:
    from sklearn.datasets import load_digits, load_iris

    folder.mkdir(parents=True, exist_ok=True)
    mass = Package(r / "library" / "MASS")
    mlbench, kernlab, mclust, dslabs, modeldata, dendextend = (
        Package(r / "site-library" / name)
        for name in ("mlbench", "kernlab", "mclust", "dslabs", "modeldata", "dendextend")
    )
    labels = {"Glass": "Type", "Zoo": "type", "PimaIndiansDiabetes": "diabetes"}
    for name in ("Glass", "Ionosphere", "Sonar", "Vehicle", "Zoo", "PimaIndiansDiabetes", "DNA"):
        save(folder, name.lower(), *table(mlbench[name], labels.get(name, "Class")))
    save(folder, "breastcancer_w", *table(mlbench["BreastCancer"], "Class", ("Id",)))
    save(folder, "shuttle", *table(mlbench["Shuttle"].sample(8000, random_state=0), "Class"))
    for name, data in (("housevotes", mlbench["HouseVotes84"]), ("soybean", mlbench["Soybean"])):
        save(folder, name, one_hot(data.drop(columns="Class")), data["Class"])
    save(folder, "spam", *table(kernlab["spam"], "type"))
    save(folder, "musk", *table(kernlab["musk"], "Class"))
    genes = kernlab["promotergene"]
    save(folder, "promoter", one_hot(genes.drop(columns="Class")), genes["Class"])
    crabs = mass["crabs"]
    save(folder, "crabs", crabs[["FL", "RW", "CL", "CW", "BD"]], crabs["sp"].astype(str) + crabs["sex"].astype(str))
    for name, label in (("banknote", "Status"), ("diabetes", "class"), ("thyroid", "Diagnosis"), ("chevron", "class")):
        save(folder, name, *table(mclust[name], label))
    olive = dslabs["olive"]
    save(folder, "olive3", *table(olive, "region", ("area",)))
    save(folder, "olive9", *table(olive, "area", ("region",)))
    tissue, khan = dslabs["tissue_gene_expression"], dendextend["khan"]
    save(folder, "tissue", tissue["x"], tissue["y"])
    save(folder, "khan", np.asarray(khan["train"], dtype=float).T, khan["train.classes"])
    save(folder, "cells", *table(modeldata["cells"], "class", ("case",)))
    save(folder, "oils", *table(modeldata["oils"], "class"))
    save(folder, "pd_speech", *table(modeldata["pd_speech"], "class"))
    scat = modeldata["scat"]
    measured = ["Age", "Length", "Diameter", "Taper", "TI", "Mass", "d13C", "d15N", "CN"]
    save(folder, "scat", scat[measured], scat["Species"])
    save(folder, "iris", *load_iris(return_X_y=True))
    save(folder, "digits", *load_digits(return_X_y=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
