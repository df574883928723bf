"""Data by name, `load("mnist")`, and users' own files, `read("table.csv")`: both give (X, y).

`load` looks for a file in `$DIFFCLUST_DATA`, then in `~/.cache/diffclust` (or under `$XDG_CACHE_HOME`), then
asks scikit-learn to fetch it, and keeps what was fetched in the cache. Nothing here ever unpickles a file.
"""

import csv
import gzip
import json
import os
import tempfile
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Data = tuple[Any, NDArray[np.int64]]
Arrays = dict[str, NDArray[Any]]

TERMS = 2000  # columns of every text data set, as in the papers
R8 = ("acq", "crude", "earn", "grain", "interest", "money-fx", "ship", "trade")
RCV1_ROOTS = ("CCAT", "ECAT", "GCAT", "MCAT")
SUPERCLASSES = 20

X_NAMES = ("X", "images", "data")
Y_NAMES = ("y", "labels", "target")
LABEL_COLUMNS = ("label", "labels", "y", "target", "class")
MISSING = ("", "na", "n/a", "nan", "null", "none")
IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff")


# --- data by name


def names() -> list[str]:
    """What `load` knows."""
    return list(_LOADERS)


def load(name: str) -> Data:
    """A data set: X as images (n, h, w) or (n, h, w, 3), rows (n, d) or sparse rows, and y from 0.

    digits          (1797, 8, 8)        float32 in [0, 1]; comes with scikit-learn, needs no file
    mnist           (70000, 28, 28)     uint8; mnist-test: the last 10,000
    usps            (9298, 16, 16)      uint8
    cifar10         (60000, 32, 32, 3)  uint8; cifar10-test: the last 10,000
    cifar100        (60000, 32, 32, 3)  uint8, y the 100 fine classes
    cifar100-s1..20 (3000, 32, 32, 3)   one superclass (alphabetical), y its 5 classes
    coil20          (1440, 32, 32)      uint8
    optdigits       (5620, 8, 8)        float32 in [0, 1]
    pendigits       (10992, 16)         float32, 0 to 100
    20newsgroups    (18846, 2000)       tf-idf of whole messages, as in Deep k-Means
    reuters-r8      (7674, 2000)        tf-idf of Reuters-21578, eight topics
    rcv1            (10000, 2000)       one root topic, rows drawn by a fixed seed; terms as in Deep k-Means
    reuters10k      (10000, 2000)       RCV1 from its token files, as in DEC (the Keras version)
    """
    if name not in _LOADERS:
        raise ValueError(f"Unknown data set {name!r}{_suggestion(name)} {_KNOWN}")
    return _LOADERS[name]()


def _suggestion(name: object) -> str:
    close = get_close_matches(str(name).lower(), _LOADERS, n=1)
    return f": did you mean {close[0]!r}?" if close else "."


def _digits() -> Data:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return (bunch.images / 16).astype(np.float32), bunch.target.astype(np.int64)


def _images(name: str, what: str, *, test: bool = False, scale: float | None = None) -> Data:
    """A data set kept as one .npz; `scale` makes it floating point."""
    fetch = partial(_from_openml, name) if name in _OPENML else None
    arrays, source = _stored(name, f"{what}, `labels` and `n_train`", fetch)
    X, y, n_train = _labelled(arrays, source)
    if scale is not None:
        X = (X / scale).astype(np.float32)
    return _last(X, y, n_train) if test else (X, y)


def _labelled(arrays: Arrays, source: object) -> tuple[Any, NDArray[np.int64], int]:
    """X, y and the number of training rows of a data set."""
    if "labels" not in arrays:
        raise ValueError(f"{source}: no array is called labels; there are {', '.join(arrays)}.")
    X, y = _unpack(arrays, source), arrays["labels"].astype(np.int64)
    if y.shape != (X.shape[0],):
        raise ValueError(f"{source}: labels has shape {y.shape}, but there are {X.shape[0]} rows.")
    return X, y, int(arrays.get("n_train", len(y)))


def _last(X: NDArray[Any], y: NDArray[np.int64], n_train: int) -> Data:
    if not 0 <= n_train < len(X):
        raise ValueError(f"n_train={n_train} of {len(X)} rows leaves no test part.")
    # A copy, so that the other rows can be freed.
    return X[n_train:].copy(), y[n_train:]


def _cifar10(*, test: bool = False) -> Data:
    folder = "cifar-10-batches-bin"
    found = _find("cifar10.npz", folder)
    if found is None:
        raise _missing("cifar10", f"cifar10.npz, or the official binary version as the folder {folder}")
    if found.is_file():
        X, y, n_train = _labelled(_load_arrays(found), found)
    else:
        parts = [
            _cifar_records(found / f"{part}.bin", 1)
            for part in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
        ]
        X, y = np.concatenate([x for x, _ in parts]), np.concatenate([label[:, 0] for _, label in parts])
        n_train = len(X) - len(parts[-1][0])
    return _last(X, y, n_train) if test else (X, y)


def _cifar100(*, superclass: int | None = None) -> Data:
    folder = "cifar-100-binary"
    found = _find(folder)
    if found is None:
        raise _missing("cifar100", f"the official binary version as the folder {folder} (train.bin, test.bin)")
    parts = [_cifar_records(found / f"{part}.bin", 2) for part in ("train", "test")]
    X = np.concatenate([x for x, _ in parts])
    coarse, fine = np.concatenate([labels for _, labels in parts]).T
    if superclass is None:
        return X, fine
    member = coarse == superclass
    if not member.any():
        raise ValueError(f"{found}: none of its {len(X)} images is of coarse class {superclass}.")
    return X[member], np.unique(fine[member], return_inverse=True)[1].astype(np.int64)


def _cifar_records(path: Path, n_labels: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Records of label bytes, then 1024 red, 1024 green and 1024 blue pixels."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: the folder should hold the whole official binary version.")
    record = n_labels + 3072
    raw = np.fromfile(path, np.uint8)
    if raw.size == 0 or raw.size % record:
        raise ValueError(f"{path} has {raw.size} bytes, which is not a whole number of {record}-byte records.")
    rows = raw.reshape(-1, record)
    pixels = rows[:, n_labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(pixels), rows[:, :n_labels].astype(np.int64)


def _newsgroups() -> Data:
    # Deep k-Means: nothing removed, not even the headers, which name the group: easier than it looks.
    def fetch() -> Arrays:
        from sklearn.datasets import fetch_20newsgroups

        bunch = fetch_20newsgroups(subset="all", shuffle=False, n_retries=1)
        return _csr_arrays(_tfidf(bunch.data), bunch.target)

    found = _find("20newsgroups.jsonl.gz", "20newsgroups.npz")
    if found is None or found.suffix == ".npz":
        what = "a sparse matrix as scipy saves it, and `labels`; or 20newsgroups.jsonl.gz with text and label"
        return _labelled(*_stored("20newsgroups", what, fetch))[:2]
    texts, y = read_texts(found)
    if y is None or y.dtype.kind != "i":
        raise ValueError(f'{found}: every line should have a whole number as "label".')
    return _tfidf(texts), y


def _reuters_r8() -> Data:
    file, what = "reuters21578.jsonl.gz", "a JSON object a line with modapte, topics, title and text"
    found = _find(file)
    if found is None:
        raise _missing("reuters-r8", f"{file} ({what})")
    texts, y = [], []
    for number, document in _json_lines(found):
        absent = {"modapte", "topics", "title", "text"} - document.keys()
        if absent:
            raise ValueError(f"{found}, line {number}: expected {what}; no {', '.join(sorted(absent))}.")
        topics = document["topics"]
        if document["modapte"] != "unused" and len(topics) == 1 and topics[0] in R8:
            texts.append(f"{document['title']}\n{document['text']}")
            y.append(R8.index(topics[0]))
    if not texts:
        raise ValueError(f"{found}: no document has one of the topics {', '.join(R8)} alone.")
    return _tfidf(texts, stop_words="english", sublinear_tf=True), np.array(y, np.int64)


def _rcv1() -> Data:
    def fetch() -> Arrays:
        from sklearn.datasets import fetch_rcv1

        bunch = fetch_rcv1(subset="all", n_retries=1)
        roots = bunch.target[:, [list(bunch.target_names).index(root) for root in RCV1_ROOTS]].toarray()
        single = np.flatnonzero(roots.sum(axis=1) == 1)
        # Deep k-Means lists its 10,000 documents; ours are drawn in the same way, not the same ones.
        rng = np.random.default_rng(0)
        rows = np.sort(rng.choice(single, min(10_000, len(single)), replace=False))
        X = sp.csr_matrix(bunch.data[rows])
        weights = np.asarray(X.sum(axis=0)).ravel()
        columns = np.sort(np.argsort(-weights, kind="stable")[:TERMS])
        return _csr_arrays(X[:, columns], roots[rows].argmax(axis=1))

    return _labelled(*_stored("rcv1", "a sparse matrix as scipy saves it, and `labels`", fetch))[:2]


def _reuters10k() -> Data:
    """DEC-keras: the first 10,000 documents of one root topic, log tf-idf of length sqrt(2000)."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    tokens = [*(f"lyrl2004_tokens_test_pt{i}.dat" for i in range(4)), "lyrl2004_tokens_train.dat"]
    topics, order = "rcv1-v2.topics.qrels", ("CCAT", "GCAT", "MCAT", "ECAT")
    folder = _find("reuters10k")
    if folder is None:
        raise _missing("reuters10k", f"RCV1's token files as the folder reuters10k ({topics}, {', '.join(tokens)})")
    for file in (topics, *tokens):
        if not (folder / file).is_file():
            raise FileNotFoundError(f"{folder / file} is missing.")
    root: dict[str, list[str]] = {}
    with (folder / topics).open(encoding="latin-1") as lines:
        for line in lines:  # "E11 2286 1": topic, document, 1
            topic, document = (*line.split(), "", "")[:2]
            if topic in order:
                root.setdefault(document, []).append(topic)
    texts, y = [], []
    for document, text in _token_documents(folder / file for file in tokens):
        if len(root.get(document, ())) == 1:
            texts.append(text)
            y.append(order.index(root[document][0]))
    if not texts:
        raise ValueError(f"{folder}: no document has exactly one of the topics {', '.join(order)}.")
    # The vocabulary is of all documents, not only of those kept.
    X = TfidfVectorizer(max_features=TERMS, sublinear_tf=True).fit_transform(texts)[:10_000]
    return (X * np.sqrt(X.shape[1])).astype(np.float32), np.array(y[:10_000], np.int64)


def _token_documents(paths: Iterator[Path]) -> Iterator[tuple[str, str]]:
    """(number, words) of each document: a line ".I number", a line ".W", then lines of stemmed words."""
    for path in paths:
        number, words = "", list[str]()
        with path.open(encoding="latin-1") as lines:
            for line in lines:
                if line.startswith(".I"):
                    if number:
                        yield number, " ".join(words)
                    number, words = line.split()[1], []
                elif not line.startswith(".W"):
                    words.append(line.strip())
        if number:
            yield number, " ".join(words)


_LOADERS: dict[str, Callable[[], Data]] = {
    "digits": _digits,
    "mnist": partial(_images, "mnist", "`images` uint8 (n, 28, 28)"),
    "mnist-test": partial(_images, "mnist", "`images` uint8 (n, 28, 28)", test=True),
    "usps": partial(_images, "usps", "`images` uint8 (n, 16, 16)"),
    "cifar10": _cifar10,
    "cifar10-test": partial(_cifar10, test=True),
    "cifar100": _cifar100,
    **{f"cifar100-s{s + 1}": partial(_cifar100, superclass=s) for s in range(SUPERCLASSES)},
    "coil20": partial(_images, "coil20", "`images` uint8 (n, 32, 32)"),
    # Not bytes: integer images are taken to reach to 255, and these reach to 16.
    "optdigits": partial(_images, "optdigits", "`images` uint8 (n, 8, 8), 0 to 16", scale=16),
    "pendigits": partial(_images, "pendigits", "`X` (n, 16)", scale=1),
    "20newsgroups": _newsgroups,
    "reuters-r8": _reuters_r8,
    "rcv1": _rcv1,
    "reuters10k": _reuters10k,
}
_KNOWN = (
    f"Known: {', '.join(name for name in _LOADERS if not name.startswith('cifar100-s'))}, "
    f"cifar100-s1 to cifar100-s{SUPERCLASSES}."
)


# --- where data sets lie


def _folders() -> list[Path]:
    given = os.environ.get("DIFFCLUST_DATA")
    return [*([Path(given).expanduser()] if given else []), _cache()]


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "diffclust"


def _find(*files: str) -> Path | None:
    """The first that exists, in the order of folders."""
    candidates = (folder / file for folder in _folders() for file in files)
    return next((path for path in candidates if path.exists()), None)


def _stored(name: str, what: str, fetch: Callable[[], Arrays] | None) -> tuple[Arrays, object]:
    """The arrays of NAME.npz and where they are from; fetched and put into the cache if there is no file."""
    file = f"{name}.npz"
    found = _find(file)
    if found is not None:
        return _load_arrays(found), found
    if fetch is None:
        raise _missing(name, f"{file} ({what})")
    try:
        with warnings.catch_warnings():
            # We say it ourselves, once, if it comes to nothing.
            warnings.filterwarnings("ignore", message="Retry downloading|A network error occurred")
            arrays = fetch()
    except ImportError as error:
        raise ImportError(f'Fetching {name} needs pandas: pip install "diffclust[data]" ({error})') from error
    except Exception as error:  # no network has many faces: URLError, timeouts, half files, OpenML's own
        reason = str(error).strip().split("\n")[0]
        why = f", and it could not be fetched ({type(error).__name__}: {reason})"
        raise _missing(name, f"{file} ({what})", why) from error
    _keep(file, arrays)
    return arrays, name


def _missing(name: str, wanted: str, why: str = "") -> FileNotFoundError:
    given = os.environ.get("DIFFCLUST_DATA")
    first = f"$DIFFCLUST_DATA ({given})" if given else "$DIFFCLUST_DATA (not set)"
    return FileNotFoundError(f"{name} is neither in {first} nor in {_cache()}{why}. Put there: {wanted}.")


def _keep(file: str, arrays: Arrays) -> None:
    """Write to the cache; whole or not at all, so that a kill leaves no half file."""
    path = _cache() / file
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as stream:
                np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        warnings.warn(f"{path} could not be written, so it will be fetched again ({error}).", stacklevel=2)


# OpenML number, shape of a row, training rows, smallest and largest value, smallest label.
_OPENML: dict[str, tuple[int, tuple[int, ...], int, tuple[float, float], int]] = {
    "mnist": (554, (28, 28), 60_000, (0, 255), 0),
    "usps": (41082, (16, 16), 7_291, (-1, 1), 1),
    "optdigits": (28, (8, 8), 3_823, (0, 16), 0),
    "pendigits": (32, (16,), 7_494, (0, 100), 0),
}


def _from_openml(name: str) -> Arrays:
    """As bytes, in the form of our own files."""
    from sklearn.datasets import fetch_openml

    number, shape, n_train, (low, high), first = _OPENML[name]
    bunch = fetch_openml(data_id=number, as_frame=False, n_retries=1)
    X, y = np.asarray(bunch.data, np.float64), np.asarray(bunch.target).astype(np.int64) - first
    if X.shape[1] != np.prod(shape) or X.min() < low or X.max() > high or y.min() < 0:
        raise ValueError(
            f"OpenML {number} has rows of {X.shape[1]} values from {X.min():g} to {X.max():g}: not {name}."
        )
    if low < 0:
        X = (X - low) / (high - low) * 255
    key = "images" if len(shape) == 2 else "X"
    pixels = np.rint(X).astype(np.uint8).reshape(-1, *shape)
    return {key: pixels, "labels": y.astype(np.uint8), "n_train": np.array(n_train)}


# --- users' files


def read(path: str | Path, *, image_shape: tuple[int, ...] | None = None) -> tuple[Any, NDArray[Any] | None]:
    """A user's data: X, and y where the file has labels (else None).

    .npy            an array, mapped and not loaded
    .npz            X (or images, data), y (or labels, target); one array alone is X; sparse as scipy saves it
    .csv, .parquet  numeric columns; one named label, labels, y, target or class is y ("y" beside "x" is not);
                    a DataFrame where pandas is installed; a first column without a name is an index, not data
    .jsonl(.gz)     a JSON object a line with "text", perhaps "label": tf-idf of the 2000 commonest terms
    a folder        images, in sorted order, brought to the commonest size, or to `image_shape` (h, w) or
                    (h, w, 3); grey if all are; names of sub-folders are y
    else            the name of a data set, as in `load`
    """
    path = Path(path).expanduser()
    if path.is_dir():
        return _read_images(path, image_shape)
    if not path.exists():
        if str(path) in _LOADERS:
            return load(str(path))
        is_name = not path.suffix and len(path.parts) == 1
        raise FileNotFoundError(
            f"No file, folder or data set {str(path)!r}{_suggestion(path)}{' ' + _KNOWN if is_name else ''}"
        )
    ending = next((ending for ending in _READERS if path.name.lower().endswith(ending)), None)
    if ending is None:
        raise ValueError(
            f"{path}: unknown ending {path.suffix!r}. Known: {', '.join(_READERS)}, and folders of images."
        )
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty: 0 bytes.")
    return _READERS[ending](path)


def read_texts(path: str | Path) -> tuple[list[str], NDArray[Any] | None]:
    """The texts of a .jsonl or .jsonl.gz, as they are, and their labels if every line has one."""
    path = Path(path)
    texts: list[str] = []
    labels: list[Any] = []
    for number, entry in _json_lines(path):
        text = entry.get("text")
        if not isinstance(text, str):
            raise ValueError(f'{path}, line {number}: expected an object with a "text" string.')
        if texts and ("label" in entry) != bool(labels):
            has = "a" if "label" in entry else "no"
            raise ValueError(f'{path}, line {number}: {has} "label", unlike the lines before.')
        texts.append(text)
        if "label" in entry:
            labels.append(entry["label"])
    if not texts:
        raise ValueError(f"{path} is empty: no lines.")
    return texts, _plain(labels) if labels else None


def _read_npy(path: Path) -> tuple[Any, None]:
    try:
        X = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise _unsafe(path, error) from error
    if not isinstance(X, np.ndarray):  # np.load looks at the content: a .npz by another name
        raise ValueError(f"{path} is not a .npy file: it holds several arrays. Name it .npz.")
    return _numbers(X, path), None


def _read_npz(path: Path) -> tuple[Any, NDArray[Any] | None]:
    arrays = _load_arrays(path)
    y_name = next((name for name in Y_NAMES if name in arrays), None)
    y = None if y_name is None else arrays[y_name]
    X = _unpack(arrays, path)
    if y is not None and y.shape != (X.shape[0],):
        raise ValueError(f"{path}: {y_name} has shape {y.shape}, but there are {X.shape[0]} rows.")
    return _numbers(X, path), y


def _read_csv(path: Path) -> tuple[Any, NDArray[Any] | None]:
    rows = _csv_rows(path)
    start = list(islice(rows, 2))
    if not start:
        raise ValueError(f"{path} is empty: no lines.")
    header = [cell.strip() for cell in start[0]] if _has_header(start) else None
    indexed = header is not None and header[0] == "" and len(header) > 1
    try:
        import pandas as pd
    except ImportError:
        return _csv_array([*start, *rows], header, indexed, path)
    for _ in rows:  # pandas fills up short rows without a word: have every row counted first
        pass
    try:
        table = pd.read_csv(
            path,
            header=None if header is None else 0,
            index_col=0 if indexed else False,
            encoding="utf-8-sig",
            skipinitialspace=True,
            low_memory=False,
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if header is not None:
        table.columns = table.columns.str.strip()
    return _split_table(table, path, named=header is not None)


def _read_parquet(path: Path) -> tuple[Any, NDArray[Any] | None]:
    pandas = _extra("pandas", "a .parquet file")
    _extra("pyarrow", "a .parquet file")
    try:
        table = pandas.read_parquet(path, engine="pyarrow")
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read as parquet ({error}).") from error
    return _split_table(table, path, named=True)


def _read_jsonl(path: Path) -> tuple[Any, NDArray[Any] | None]:
    texts, y = read_texts(path)
    try:
        return _tfidf(texts), y
    except ValueError as error:
        raise ValueError(f"{path}: no words in its {len(texts)} texts ({error}).") from error


_READERS: dict[str, Callable[[Path], tuple[Any, NDArray[Any] | None]]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".jsonl": _read_jsonl,
    ".jsonl.gz": _read_jsonl,
}


# --- arrays


def _load_arrays(path: Path) -> Arrays:
    try:
        with path.open("rb") as stream:  # given a path, numpy leaves broken files open
            file = np.load(stream, allow_pickle=False)
            if isinstance(file, np.ndarray):  # it looks at the content, not at the ending
                raise ValueError("It holds one bare array: name it .npy.")
            return {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise _unsafe(path, error) from error


def _unsafe(path: Path, error: Exception) -> ValueError:
    with path.open("rb") as stream:
        start = stream.read(6)
    if start.startswith((b"\x93NUMPY", b"PK")):
        why = str(error).rstrip(".")
    else:  # numpy takes whatever it does not know for a pickle, and says how to load it unsafely
        why = "it is a pickle" if start[:1] == b"\x80" else "numpy did not write it"
    return ValueError(f"{path} cannot be read: {why}. Pickled objects are never read, as they can run code.")


def _unpack(arrays: Arrays, source: object) -> Any:
    """X among the arrays of a .npz."""
    if {"data", "indices", "indptr", "shape"} <= arrays.keys():
        return _csr(arrays, source)
    if "residual" in arrays:
        return _decode(arrays["residual"])
    name = next((name for name in X_NAMES if name in arrays), None)
    if name is None and len(arrays) == 1:
        (name,) = arrays
    if name is None:
        raise ValueError(f"{source}: no array is called {', '.join(X_NAMES)}; there are {', '.join(arrays)}.")
    return arrays[name]


def _decode(residual: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(3, n, h, w) planes R-G, G, B-G, differenced along h and w, modulo 256 -> RGB (n, h, w, 3)."""
    planes = np.cumsum(np.cumsum(residual, 2, dtype=np.uint8), 3, dtype=np.uint8)
    planes[0] += planes[1]
    planes[2] += planes[1]
    return np.ascontiguousarray(planes.transpose(1, 2, 3, 0))


def _csr(arrays: Arrays, source: object) -> sp.csr_matrix:
    kind = arrays["format"].item() if "format" in arrays else b"csr"
    if kind not in (b"csr", "csr"):
        raise ValueError(f"{source}: sparse rows should be saved as CSR, not {kind!r}.")
    try:
        X = sp.csr_matrix((arrays["data"], arrays["indices"], arrays["indptr"]), shape=tuple(arrays["shape"].tolist()))
        X.check_format(full_check=True)
    except ValueError as error:
        raise ValueError(f"{source}: not a sparse matrix ({error}).") from error
    return X


def _csr_arrays(X: sp.csr_matrix, y: NDArray[Any]) -> Arrays:
    """As `scipy.sparse.save_npz` would write it, and the labels."""
    X = sp.csr_matrix(X).astype(np.float32)
    shape, kind = np.array(X.shape), np.array(b"csr")
    arrays = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": shape, "format": kind}
    return arrays | {"labels": np.asarray(y, np.int64), "n_train": np.array(X.shape[0])}


def _numbers(X: Any, path: Path) -> Any:
    if X.dtype.kind not in "biuf":
        raise ValueError(f"{path}: expected numbers, but the dtype is {X.dtype}.")
    if X.ndim < 2:
        raise ValueError(f"{path}: expected rows (n, d) or images, but the shape is {X.shape}.")
    if 0 in X.shape:
        raise ValueError(f"{path} is empty: its shape is {X.shape}.")
    return X


# --- tables


def _csv_rows(path: Path) -> Iterator[list[str]]:
    """The lines that are not blank, all of one width."""
    width = None
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, skipinitialspace=True)
            for row in filter(None, reader):
                width = width or len(row)
                if len(row) != width:
                    raise ValueError(
                        f"{path}, line {reader.line_num}: {len(row)} cells, but the first line has {width}."
                    )
                yield row
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error}).") from error
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}.") from error


def _has_header(start: Sequence[Sequence[str]]) -> bool:
    """Does the first line hold names? Yes if it names the labels, or has words where the next has numbers."""
    first = [cell.strip() for cell in start[0]]
    counted = [str(i) for i in range(len(first))]
    if (first == counted and len(first) > 2) or (first[0] == "" and first[1:] == counted[:-1]):
        return True  # what pandas writes where columns have no names
    if any(cell.casefold() in LABEL_COLUMNS for cell in first):
        return True
    words = [i for i, cell in enumerate(first) if _number(cell) is None]
    filled = sum(cell != "" for cell in first)
    return bool(words) and (len(words) == filled or any(_number(start[-1][i]) is not None for i in words))


def _number(cell: str) -> float | None:
    cell = cell.strip().lower()
    if cell in MISSING:
        return float("nan")
    if cell in ("true", "false"):
        return float(cell == "true")
    try:
        return float(cell)
    except ValueError:
        return None


def _label_column(columns: Sequence[str], path: Path) -> int | None:
    folded = [column.strip().casefold() for column in columns]
    found = [i for i, column in enumerate(folded) if column in LABEL_COLUMNS]
    if "x" in folded:  # then y is a coordinate
        found = [i for i in found if folded[i] != "y"]
    if len(found) > 1:
        raise ValueError(f"{path}: {_quoted(columns[i] for i in found)} could all be the labels. Keep one.")
    return found[0] if found else None


def _split_table(table: Any, path: Path, *, named: bool) -> tuple[Any, NDArray[Any] | None]:
    """A DataFrame into its numeric columns and its labels."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    columns = [str(column) if named else f"column {i + 1}" for i, column in enumerate(table.columns)]
    label = _label_column(columns, path) if named else None
    kinds = [table.dtypes.iloc[i] for i in range(len(columns))]
    words = [i for i, kind in enumerate(kinds) if i != label and not is_numeric_dtype(kind)]
    _check_columns([columns[i] for i in words], len(columns) - (label is not None), len(table), path)
    X = table.iloc[:, [i for i in range(len(columns)) if i != label]]
    X = X.astype({name: np.uint8 for name, kind in X.dtypes.items() if is_bool_dtype(kind)})
    return X, None if label is None else _plain(table.iloc[:, label].tolist())


def _csv_array(
    rows: list[list[str]], header: list[str] | None, indexed: bool, path: Path
) -> tuple[Any, NDArray[Any] | None]:
    """The same without pandas: an array in place of a DataFrame."""
    cells = np.array(rows[int(header is not None) :], dtype=object).reshape(-1, len(rows[0]))[:, int(indexed) :]
    width = cells.shape[1]
    columns = [f"column {i + 1}" for i in range(width)] if header is None else header[int(indexed) :]
    label = None if header is None else _label_column(columns, path)
    features = [i for i in range(width) if i != label]
    numbers = {i: [_number(cell) for cell in cells[:, i]] for i in features}
    words = [columns[i] for i in features if None in numbers[i]]
    _check_columns(words, len(features), len(cells), path)
    X = np.array([numbers[i] for i in features], np.float64).T
    return X, None if label is None else _plain([_guess(cell) for cell in cells[:, label]])


def _guess(cell: str) -> Any:
    """A label's cell as pandas would read it."""
    try:
        return int(cell)
    except ValueError:
        number = _number(cell)
        return cell.strip() if number is None else number


def _check_columns(words: Sequence[str], n_features: int, n_rows: int, path: Path) -> None:
    if n_rows == 0:
        raise ValueError(f"{path} is empty: 0 rows under the header.")
    if words:
        raise ValueError(
            f"{path}: not numeric: {_quoted(words)}. "
            f"Only a column named {', '.join(LABEL_COLUMNS)} may hold words: encode the others or drop them."
        )
    if n_features == 0:
        raise ValueError(f"{path} has no column but the labels.")


def _quoted(words: Any) -> str:
    return ", ".join(repr(word) for word in words)


def _plain(labels: list[Any]) -> NDArray[Any]:
    """Labels as whole numbers or strings where they all are; else as they were (None and NaN stay)."""
    for kind, dtype in ((int, np.int64), (str, np.str_), (float, np.float64)):
        if all(isinstance(label, kind) for label in labels):
            return np.array(labels, dtype)
    kept = np.empty(len(labels), object)
    kept[:] = labels
    return kept


# --- texts


def _json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of each line that is not blank."""
    try:
        with _open_text(path) as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    entry = json.loads(line)
                except json.JSONDecodeError as error:
                    raise ValueError(
                        f"{path}, line {number}: not JSON ({error.msg} at column {error.colno})."
                    ) from error
                if not isinstance(entry, dict):
                    raise ValueError(f"{path}, line {number}: expected an object, got {type(entry).__name__}.")
                yield number, entry
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error}).") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a whole gzip file ({error}).") from error


def _open_text(path: Path) -> IO[str]:
    # newline="\n": a lone carriage return ends no line.
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="\n")
    return path.open(encoding="utf-8-sig", newline="\n")


def _tfidf(texts: list[str], **options: Any) -> sp.csr_matrix:
    """Rows of length one: term counts times log((1 + n) / (1 + documents with the term)) + 1."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(max_features=TERMS, **options).fit_transform(texts).astype(np.float32)


# --- images


def _read_images(folder: Path, shape: tuple[int, ...] | None) -> tuple[Any, NDArray[Any] | None]:
    _extra("PIL.Image", "images", package="Pillow")
    places = sorted(
        path.relative_to(folder).parts
        for path in folder.rglob("*")
        if path.suffix.lower() in IMAGE_ENDINGS and path.is_file()
    )
    # macOS leaves "._name.jpg" beside each image on foreign disks.
    places = [parts for parts in places if not any(part.startswith(".") for part in parts)]
    if not places:
        raise ValueError(f"{folder} holds no images ({', '.join(IMAGE_ENDINGS)}).")
    paths = [folder.joinpath(*parts) for parts in places]
    if shape is None:
        (height, width), _ = Counter(map(_image_size, paths)).most_common(1)[0]
    elif len(shape) == 2 or (len(shape) == 3 and shape[2] == 3):
        height, width = shape[:2]
    else:
        raise ValueError(f"image_shape={shape} should be (h, w) or (h, w, 3).")
    X = np.empty((len(paths), height, width, 3), np.uint8)
    for i, path in enumerate(paths):
        X[i] = _image_pixels(path, height, width)
    grey = all((x == x[..., :1]).all() for x in X) if shape is None else len(shape) == 2
    if grey:
        X = np.stack([_luma(x) for x in X])
    in_folders = all(len(parts) > 1 for parts in places)
    return X, np.array([parts[0] for parts in places]) if in_folders else None


def _luma(rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """0.299 R + 0.587 G + 0.114 B, as Pillow and television do."""
    return np.rint(rgb @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from PIL import Image

    try:
        with Image.open(path) as image:
            yield image
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path} cannot be read as an image ({error}).") from error


def _image_size(path: Path) -> tuple[int, int]:
    """(h, w) as it is looked at: cameras turn photographs by a note in the file."""
    with _opened(path) as image:
        # Other formats hardly have the note, and Pillow would unpack a whole PNG to look for it.
        turned = image.format in ("JPEG", "MPO", "TIFF") and image.getexif().get(0x0112, 1) >= 5
        return image.size if turned else image.size[::-1]


def _image_pixels(path: Path, height: int, width: int) -> NDArray[np.uint8]:
    """(h, w, 3) in bytes."""
    from PIL import Image, ImageOps

    with _opened(path) as image:
        upright = ImageOps.exif_transpose(image)
        if upright.mode.startswith("I"):
            # 16 bits a pixel: Pillow would cut off at 255 where we want the upper byte.
            upright = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
        elif upright.mode == "F":
            raise ValueError("pixels in floating point")
        elif upright.mode in ("P", "PA"):
            upright = upright.convert("RGBA")  # else Pillow warns of palettes with transparency
        upright = upright.convert("RGB")
        if upright.size != (width, height):
            upright = upright.resize((width, height), Image.Resampling.BILINEAR)
        return np.asarray(upright)


def _extra(module: str, what: str, *, package: str | None = None) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f'Reading {what} needs {package or module}: pip install "diffclust[data]"') from error
