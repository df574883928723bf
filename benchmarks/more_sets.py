"""The sets of `rows_more.csv` as .npz files for `rows.py`: 20 Newsgroups, R8, pendigits, and optdigits as rows.

    DIFFCLUST_DATA=... python benchmarks/more_sets.py FOLDER
    python benchmarks/rows.py --data FOLDER --results benchmarks/results/rows_more.csv

Texts as tf-idf of 2,000 words, with sublinear counts and without English stop words. Of 20 Newsgroups headers, quotes
and footers are removed, which name the group, and then texts without any of the words.
"""

import os
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import _twenty_newsgroups as stripping
from sklearn.feature_extraction.text import TfidfVectorizer

from diffclust import datasets
from diffclust.reading.formats import json_lines


def newsgroups() -> tuple[np.ndarray, np.ndarray]:
    entries = json_lines(Path(os.environ["DIFFCLUST_DATA"]) / "20newsgroups.jsonl.gz", text=str, label=int)
    texts, labels = zip(*((entry["text"], int(entry["label"])) for _, entry in entries), strict=True)
    for strip in ("strip_newsgroup_header", "strip_newsgroup_footer", "strip_newsgroup_quoting"):
        texts = [getattr(stripping, strip)(text) for text in texts]
    X = TfidfVectorizer(max_features=2000, sublinear_tf=True, stop_words="english").fit_transform(texts).toarray()
    some = X.any(1)
    return X[some].astype(np.float32), np.array(labels)[some]


def rows_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    X, labels = datasets.load(name)
    X = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
    return X.reshape(len(X), -1), labels


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    sets = {"20newsgroups": newsgroups()}
    sets |= {name.removeprefix("reuters-"): rows_of(name) for name in ("reuters-r8", "pendigits", "optdigits")}
    for name, (X, labels) in sets.items():
        np.savez_compressed(folder / f"{name}.npz", X=X, labels=labels)
        print(name, X.shape, int(labels.max()) + 1)


if __name__ == "__main__":
    main()
