"""Data by name: `load("mnist")` gives (X, y).

Files are searched in `$DIFFCLUST_DATA`, then in `~/.cache/diffclust` (or under `$XDG_CACHE_HOME`). If a file is in
neither, scikit-learn downloads the data if it can, and the cache keeps them. No file is ever unpickled.
"""

import contextlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .reading.formats import Arrays, json_lines, load_arrays, split
from .reading.texts import TERMS

__all__ = ["load", "names"]

Samples = tuple[Any, NDArray[np.int64]]

R8 = ("acq", "crude", "earn", "grain", "interest", "money-fx", "ship", "trade")
RCV1_ROOTS = ("CCAT", "ECAT", "GCAT", "MCAT")
SUPERCLASSES = 20


def names() -> list[str]:
    """The names that `load` knows."""
    return list(_LOADERS)


def load(name: str) -> Samples:
    """A data set: X as images (n, h, w) or (n, h, w, 3), rows (n, d) or sparse rows, and y from 0.

    By name::

        digits          (1797, 8, 8)        float32 in [0, 1]; comes with scikit-learn, needs no file
        mnist           (70000, 28, 28)     uint8; mnist-test: the last 10,000
        usps            (9298, 16, 16)      uint8; usps-signed: float32 in [-1, 1], as in Deep k-Means
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
        raise ValueError(f"Unknown data set {name!r}{suggestion(name)}")
    return _LOADERS[name]()


def suggestion(name: str) -> str:
    """The end of a message about an unknown name."""
    close = get_close_matches(name.lower(), _LOADERS, n=1)
    known = ", ".join(known for known in _LOADERS if not known.startswith("cifar100-s"))
    return (
        f": did you mean {close[0]!r}?" if close else "."
    ) + f" Known: {known}, cifar100-s1 to cifar100-s{SUPERCLASSES}."


def not_there(data: str) -> str:
    """The message about data that are neither a file or folder nor a data set. It names a file that is there and is
    called nearly so; the data sets it lists only if `data` does not look like a path."""
    path, said = Path(data).expanduser(), f"No file, folder or data set {data!r}"
    if not path.parent.is_dir():
        return f"{said}: there is no folder {str(path.parent)!r}."
    with contextlib.suppress(OSError):  # a folder that cannot be listed
        there = {name.lower(): name for name in sorted(os.listdir(path.parent))}
        close = get_close_matches(path.name.lower(), there, n=1, cutoff=0.75)
        if close:
            return f"{said}: did you mean {str(path.parent / there[close[0]])!r}?"
    if path.suffix or path.name != data:
        return f"{said}{'' if path.is_absolute() else f' in {Path.cwd()}'}."
    return said + suggestion(data)


# --- images and rows


def _digits() -> Samples:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return (bunch.images / 16).astype(np.float32), bunch.target.astype(np.int64)


def _arrays(name: str, what: str, *, test: bool = False, scale: float | None = None) -> Samples:
    """A data set kept as one .npz; `scale` makes it floating point."""
    fetch = partial(_from_openml, name) if name in _OPENML else None
    arrays, source = _stored(name, f"{what}, `labels` and `n_train`", fetch)
    X, y = _labelled(arrays, source)
    if scale is not None:
        X = (X / scale).astype(np.float32)
    return _last(X, y, int(arrays.get("n_train", len(y)))) if test else (X, y)


def _usps_signed() -> Samples:
    """In the range the set was published with, unchanged if the file is in that range."""
    what = "`images` uint8 (n, 16, 16) or `images_2000` (value / 1000 - 1), `labels` and `n_train`"
    arrays, source = _stored("usps", what, partial(_from_openml, "usps"))
    _, y = _labelled(arrays, source)
    exact = arrays.get("images_2000")
    X = arrays["images"] / 127.5 - 1 if exact is None else exact / 1000 - 1
    return X.astype(np.float32), y


def _last(X: NDArray[Any], y: NDArray[np.int64], n_train: int) -> Samples:
    if not 0 <= n_train < len(X):
        raise ValueError(f"n_train={n_train} of {len(X)} rows leaves no test part.")
    # a copy, so that the other rows can be freed
    return X[n_train:].copy(), y[n_train:]


def _cifar10(*, test: bool = False) -> Samples:
    folder = "cifar-10-batches-bin"
    found = _find("cifar10.npz", folder)
    if found is None:
        raise _missing("cifar10", f"cifar10.npz, or the official binary version as the folder {folder}")
    if found.is_file():
        arrays = load_arrays(found)
        if "residual" in arrays:
            arrays["images"] = _from_residual(arrays.pop("residual"))
        X, y = _labelled(arrays, found)
        n_train = int(arrays.get("n_train", len(y)))
    else:
        parts = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
        X, labels = _cifar_records(found, parts, 1)
        y, n_train = labels[:, 0], len(X) * 5 // 6
    return _last(X, y, n_train) if test else (X, y)


def _from_residual(residual: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(3, n, h, w) planes R-G, G, B-G, differenced along h and w, modulo 256 -> RGB (n, h, w, 3)."""
    planes = np.cumsum(np.cumsum(residual, 2, dtype=np.uint8), 3, dtype=np.uint8)
    planes[0] += planes[1]
    planes[2] += planes[1]
    return np.ascontiguousarray(planes.transpose(1, 2, 3, 0))


def _cifar100(*, superclass: int | None = None) -> Samples:
    folder = "cifar-100-binary"
    found = _find(folder)
    if found is None:
        raise _missing("cifar100", f"the official binary version as the folder {folder} (train.bin, test.bin)")
    X, labels = _cifar_records(found, ["train", "test"], 2)
    coarse, fine = labels.T
    if superclass is None:
        return X, fine
    member = coarse == superclass
    if not member.any():
        raise ValueError(f"{found}: none of its {len(X)} images is of coarse class {superclass}.")
    return X[member], np.unique(fine[member], return_inverse=True)[1].astype(np.int64)


def _cifar_records(folder: Path, parts: list[str], n_labels: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Records of label bytes, then 1024 red, 1024 green and 1024 blue pixels."""
    record = n_labels + 3072
    blocks = []
    for part in parts:
        path = folder / f"{part}.bin"
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing: the folder should hold the whole official binary version.")
        raw = np.fromfile(path, np.uint8)
        if raw.size == 0 or raw.size % record:
            raise ValueError(f"{path} has {raw.size} bytes, which is not a whole number of {record}-byte records.")
        blocks.append(raw.reshape(-1, record))
    rows = np.concatenate(blocks)
    pixels = rows[:, n_labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(pixels), rows[:, :n_labels].astype(np.int64)


# --- texts


def _newsgroups() -> Samples:
    # as in Deep k-Means, headers are kept; they name the group, which makes the task easier
    def fetch() -> Arrays:
        from sklearn.datasets import fetch_20newsgroups

        bunch = fetch_20newsgroups(subset="all", shuffle=False, n_retries=1)
        return _csr_arrays(_tfidf(bunch.data), bunch.target)

    found = _find("20newsgroups.jsonl.gz", "20newsgroups.npz")
    if found is None or found.suffix == ".npz":
        what = "a sparse matrix as scipy saves it, and `labels`; or 20newsgroups.jsonl.gz with text and label"
        return _labelled(*_stored("20newsgroups", what, fetch))
    texts, y = [], []
    for _, entry in json_lines(found, text=str, label=int):
        texts.append(entry["text"])
        y.append(entry["label"])
    return _tfidf(texts), np.array(y, np.int64)


def _reuters_r8() -> Samples:
    file = "reuters21578.jsonl.gz"
    found = _find(file)
    if found is None:
        raise _missing("reuters-r8", f"{file} (a JSON object a line with modapte, topics, title and text)")
    texts, y = [], []
    for _, document in json_lines(found, modapte=str, topics=list, title=str, text=str):
        topics = document["topics"]
        if document["modapte"] != "unused" and len(topics) == 1 and topics[0] in R8:
            texts.append(f"{document['title']}\n{document['text']}")
            y.append(R8.index(topics[0]))
    if not texts:
        raise ValueError(f"{found}: no document has one of the topics {', '.join(R8)} alone.")
    return _tfidf(texts, stop_words="english", sublinear_tf=True), np.array(y, np.int64)


def _rcv1() -> Samples:
    def fetch() -> Arrays:
        from sklearn.datasets import fetch_rcv1

        bunch = fetch_rcv1(subset="all", n_retries=1)
        roots = bunch.target[:, [list(bunch.target_names).index(root) for root in RCV1_ROOTS]].toarray()
        single = np.flatnonzero(roots.sum(axis=1) == 1)
        # Deep k-Means publishes a list of its 10,000 documents; ours are others, drawn in the same way
        rng = np.random.default_rng(0)
        rows = np.sort(rng.choice(single, min(10_000, len(single)), replace=False))
        X = sp.csr_matrix(bunch.data[rows])
        weights = np.asarray(X.sum(axis=0)).ravel()
        columns = np.sort(np.argsort(-weights, kind="stable")[:TERMS])
        return _csr_arrays(X[:, columns], roots[rows].argmax(axis=1))

    return _labelled(*_stored("rcv1", "a sparse matrix as scipy saves it, and `labels`", fetch))


def _reuters10k() -> Samples:
    """DEC-keras: the first 10,000 documents of one root topic, log tf-idf of length sqrt(2000)."""
    tokens = [*(f"lyrl2004_tokens_test_pt{i}.dat" for i in range(4)), "lyrl2004_tokens_train.dat"]
    topics, order = "rcv1-v2.topics.qrels", ("CCAT", "GCAT", "MCAT", "ECAT")
    folder = _find("reuters10k")
    if folder is None:
        raise _missing("reuters10k", f"RCV1's token files as the folder reuters10k ({topics}, {', '.join(tokens)})")
    for file in (topics, *tokens):
        if not (folder / file).is_file():
            raise FileNotFoundError(f"{folder / file} is missing.")
    roots: dict[str, list[str]] = {}
    with (folder / topics).open(encoding="latin-1") as lines:
        for line in lines:  # "E11 2286 1": topic, document, 1
            topic, document = (*line.split(), "", "")[:2]
            if topic in order:
                roots.setdefault(document, []).append(topic)
    texts, y = [], []
    for document, text in _token_documents(folder / file for file in tokens):
        if len(roots.get(document, ())) == 1:
            texts.append(text)
            y.append(order.index(roots[document][0]))
    if not texts:
        raise ValueError(f"{folder}: no document has exactly one of the topics {', '.join(order)}.")
    # the vocabulary comes from all documents, not only from those that are kept
    X = _tfidf(texts, sublinear_tf=True)[:10_000]
    return X * np.float32(np.sqrt(X.shape[1])), np.array(y[:10_000], np.int64)


def _token_documents(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """(number, words) of each document: a line ".I number", a line ".W", then lines of stemmed words."""
    for path in paths:
        for document in path.read_text(encoding="latin-1").split(".I ")[1:]:
            number, _, words = document.partition("\n.W\n")
            yield number.strip(), words


def _tfidf(texts: list[str], **options: Any) -> sp.csr_matrix:
    """Rows of length one: term counts times log((1 + n) / (1 + documents with the term)) + 1."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(max_features=TERMS, **options).fit_transform(texts).astype(np.float32)


_LOADERS: dict[str, Callable[[], Samples]] = {
    "digits": _digits,
    "mnist": partial(_arrays, "mnist", "`images` uint8 (n, 28, 28)"),
    "mnist-test": partial(_arrays, "mnist", "`images` uint8 (n, 28, 28)", test=True),
    "usps": partial(_arrays, "usps", "`images` uint8 (n, 16, 16)"),
    "usps-signed": _usps_signed,
    "cifar10": _cifar10,
    "cifar10-test": partial(_cifar10, test=True),
    "cifar100": _cifar100,
    **{f"cifar100-s{s + 1}": partial(_cifar100, superclass=s) for s in range(SUPERCLASSES)},
    "coil20": partial(_arrays, "coil20", "`images` uint8 (n, 32, 32)"),
    # not as bytes: integer images are divided by 255, and the largest value of these is 16
    "optdigits": partial(_arrays, "optdigits", "`images` uint8 (n, 8, 8), 0 to 16", scale=16),
    "pendigits": partial(_arrays, "pendigits", "`X` (n, 16)", scale=1),
    "20newsgroups": _newsgroups,
    "reuters-r8": _reuters_r8,
    "rcv1": _rcv1,
    "reuters10k": _reuters10k,
}


# --- where data sets lie


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "diffclust"


def _find(*files: str) -> Path | None:
    """The first of these files that exists, in the order of the folders."""
    given = os.environ.get("DIFFCLUST_DATA")
    folders = [Path(given).expanduser(), _cache()] if given else [_cache()]
    return next((path for folder in folders for file in files if (path := folder / file).exists()), None)


def _missing(name: str, wanted: str, why: str = "") -> FileNotFoundError:
    given = os.environ.get("DIFFCLUST_DATA", "not set")
    return FileNotFoundError(
        f"{name} is neither in $DIFFCLUST_DATA ({given}) nor in {_cache()}{why}. Put there: {wanted}."
    )


def _stored(name: str, what: str, fetch: Callable[[], Arrays] | None) -> tuple[Arrays, object]:
    """The arrays of NAME.npz and where they are from; fetched and put into the cache if there is no file."""
    file = f"{name}.npz"
    found = _find(file)
    if found is not None:
        return load_arrays(found), found
    if fetch is None:
        raise _missing(name, f"{file} ({what})")
    try:
        with warnings.catch_warnings():
            # if the download fails, our own error says so
            warnings.filterwarnings("ignore", message="Retry downloading|A network error occurred")
            arrays = fetch()
    except ImportError as error:
        raise ImportError(f'Fetching {name} needs pandas: pip install "diffclust[data]" ({error})') from error
    except Exception as error:  # many kinds: URLError, timeouts, incomplete files, OpenML's own errors
        reason = str(error).strip().split("\n")[0]
        why = f", and it could not be fetched ({type(error).__name__}: {reason})"
        raise _missing(name, f"{file} ({what})", why) from error
    _keep(_cache() / file, arrays)
    return arrays, name


def _keep(path: Path, arrays: Arrays) -> None:
    """Write to the cache atomically."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as stream:
            np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
        part.replace(path)
    except OSError as error:
        warnings.warn(f"{path} could not be written, so it will be fetched again ({error}).", stacklevel=2)


# OpenML's number, shape of a row, training rows, range of the values, smallest label
_OPENML: dict[str, tuple[int, tuple[int, ...], int, tuple[float, float], int]] = {
    "mnist": (554, (28, 28), 60_000, (0, 255), 0),
    "usps": (41082, (16, 16), 7_291, (-1, 1), 1),
    "optdigits": (28, (8, 8), 3_823, (0, 16), 0),
    "pendigits": (32, (16,), 7_494, (0, 100), 0),
}


def _from_openml(name: str) -> Arrays:
    """The arrays in the form of our own files, as bytes."""
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


def _labelled(arrays: Arrays, source: object) -> Samples:
    X, y = split(arrays, source)
    if y is None:
        raise ValueError(f"{source}: no array is called labels; there are {', '.join(arrays)}.")
    return X, y.astype(np.int64)


def _csr_arrays(X: sp.csr_matrix, y: NDArray[Any]) -> Arrays:
    """As `scipy.sparse.save_npz` would write it, and the labels."""
    X = sp.csr_matrix(X).astype(np.float32)
    arrays = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
    return arrays | {"format": np.array(b"csr"), "labels": np.asarray(y, np.int64)}
