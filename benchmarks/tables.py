"""Tables and texts as people have them: TELL's defaults on the file itself, beside k-means and k-prototypes, k given.

    python benchmarks/tables.py --data FOLDER                # whole tables, five seeds
    python benchmarks/tables.py --data FOLDER --blanks       # the same with 20 % of the cells blanked at random
    python benchmarks/tables.py --data FOLDER --sets "penguins.csv;wine" --seeds 3,4
    python benchmarks/tables.py --show                       # the tables, from the CSV

FOLDER has penguins.csv, mushroom.csv, mice_protein.csv, gtzan30.csv, bbc.csv.gz and searchsnippets.csv.gz; wine and
breast_cancer are scikit-learn's, "customers" is made up (examples/customers.py). The column of labels is left out of
the fit, of mice_protein also the three columns that its classes are made of; within this script labels score and
choose nothing. k-means: scikit-learn's with ten starts, on numbers and days filled with means and categories one-hot
and filled with the commonest, all standardised; on tf-idf with English stop words as it is. "k-means, our rows": on
what TELL's reading of a mixed table gives, in its units. k-prototypes (k-modes where all columns are categories; ten
starts on up to 1,000 rows, else three; dates left out) needs kmodes. Results are appended to
benchmarks/results/tables.csv (or --out); what is there is not run again.
"""

import argparse
import csv
import os
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "tables.csv"
FIELDS = ("data", "method", "seed", "blank", "acc", "nmi", "seconds", "network")
LABELS = {"penguins.csv": "species", "customers": "kind"}
SKIPPED = {"mice_protein.csv": ("Genotype", "Treatment", "Behavior")}
WHOLE = ("penguins.csv", "mushroom.csv", "mice_protein.csv", "gtzan30.csv", "customers", "bbc.csv.gz")
WHOLE += ("searchsnippets.csv.gz", "wine", "breast_cancer")
MIXED = ("penguins.csv", "mushroom.csv", "customers")
ONLY = {"k-prototypes": MIXED[:2], "k-means, our rows": MIXED}
BLANKED = ("penguins.csv", "mice_protein.csv", "wine", "breast_cancer", "customers")


def load(folder: Path, data: str) -> tuple[pd.DataFrame, np.ndarray]:
    from diffclust.reading.files import read

    if data == "customers":
        sys.path.insert(0, str(HERE.parent / "examples"))
        from customers import customers

        table = customers()
        return table, table.pop("kind").to_numpy()
    if data in ("wine", "breast_cancer"):
        from sklearn import datasets

        X, y = getattr(datasets, f"load_{data}")(return_X_y=True)
        return pd.DataFrame(X).add_prefix("x"), y
    table, y, _ = read(folder / data, label=LABELS.get(data))
    return table.drop(columns=list(SKIPPED.get(data, ()))), np.asarray(y)


def blanked(table: pd.DataFrame, share: float) -> pd.DataFrame:
    """The same cells for every method."""
    if not share:
        return table
    hidden = np.random.default_rng(0).random(table.shape) < share
    return table.astype(object).mask(hidden)


def rows_for_kmeans(table: pd.DataFrame) -> Any:
    from sklearn.compose import make_column_transformer
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    from diffclust.reading.cells import as_words, cells_of, dates, numbers
    from diffclust.reading.tables import Columns

    reading = Columns.fit(table, {})
    if reading.is_text:
        texts = table[reading.used[0].name].fillna("")
        return TfidfVectorizer(max_features=2000, sublinear_tf=True, stop_words="english").fit_transform(texts)
    values: dict[str, Any] = {}
    for column in reading.used:
        cells = cells_of(table[column.name])
        if column.kind == "number":
            values[column.name] = numbers(cells, column.style)
        elif column.kind == "date":
            values[column.name] = pd.Series(dates(cells, column.style)).astype("int64").where(pd.notna(cells)) / 8.64e10
        else:
            values[column.name] = pd.Series(as_words(cells), dtype=object)
    frame = pd.DataFrame(values)
    words = [column.name for column in reading.used if column.kind == "category"]
    plain = [name for name in frame if name not in words]
    encode = make_pipeline(
        SimpleImputer(strategy="most_frequent", missing_values=None), OneHotEncoder(sparse_output=False)
    )
    rows = make_column_transformer((SimpleImputer(), plain), (encode, words)).fit_transform(frame)
    return StandardScaler().fit_transform(rows)


def our_rows(table: pd.DataFrame) -> np.ndarray:
    """A table of mixed kinds as TELL reads it, in its units: what the reading gives without the network."""
    from diffclust.reading.tables import Columns

    reading = Columns.fit(table, {})
    assert reading.scale is not None
    return np.asarray(reading.transform(table)) / reading.scale


def prototypes(table: pd.DataFrame, k: int, seed: int) -> np.ndarray:
    from kmodes.kmodes import KModes
    from kmodes.kprototypes import KPrototypes

    from diffclust.reading.cells import as_words, cells_of, numbers
    from diffclust.reading.tables import Columns

    reading, starts = Columns.fit(table, {}), 10 if len(table) <= 1000 else 3
    columns, categories = [], []
    for column in reading.used:
        cells = cells_of(table[column.name])
        if column.kind == "number":
            values = numbers(cells, column.style)
            columns.append(np.nan_to_num((values - np.nanmean(values)) / np.nanstd(values)))
        elif column.kind == "category":
            categories.append(len(columns))
            columns.append(np.array([word or "blank" for word in as_words(cells)], object))
    rows = np.array(columns, object).T
    if len(categories) == len(columns):
        return KModes(k, n_init=starts, random_state=seed).fit_predict(rows)
    return KPrototypes(k, n_init=starts, random_state=seed).fit_predict(rows, categorical=categories)


def run(method: str, table: pd.DataFrame, k: int, seed: int) -> tuple[np.ndarray, str]:
    from sklearn.cluster import KMeans

    from diffclust import TELL

    if method == "TELL":
        model = TELL(k, random_state=seed, device="cpu").fit(table)
        return model.labels_, type(model.model_.autoencoder).__name__
    if method == "k-prototypes":
        return prototypes(table, k, seed), ""
    if method == "k-means, our rows":
        return KMeans(k, n_init=10, random_state=seed).fit_predict(our_rows(table)), ""
    return KMeans(k, n_init=10, random_state=seed).fit_predict(rows_for_kmeans(table)), ""


def measure(arguments: argparse.Namespace, results: Path) -> None:
    from diffclust.metrics import accuracy, nmi

    share = 0.2 if arguments.blanks else 0.0
    wanted = arguments.sets.split(";") if arguments.sets else BLANKED if share else WHOLE
    done = {(r["data"], r["method"], r["seed"], r["blank"]) for r in recorded(results)}
    for data in wanted:
        table, y = load(arguments.data, data)
        table = blanked(table, share)
        for method in arguments.methods.split(";"):
            for seed in map(int, arguments.seeds.split(",")):
                key = (data, method, str(seed), f"{share:g}")
                if key in done or data not in ONLY.get(method, (data,)):
                    continue
                began = time.process_time()
                labels, network = run(method, table, len(set(y)), seed)
                seconds = time.process_time() - began
                scores = [f"{100 * score(y, labels):.2f}" for score in (accuracy, nmi)]
                line = [*key, *scores, f"{seconds:.1f}", network]
                print(*line, flush=True)
                fresh = not results.exists()
                with results.open("a", newline="") as file:
                    csv.writer(file, lineterminator="\n").writerows([FIELDS, line] if fresh else [line])


def recorded(results: Path) -> list[dict[str, str]]:
    if not results.exists():
        return []
    with results.open(newline="") as file:
        return list(csv.DictReader(file))


def show(results: Path) -> None:
    groups: dict[tuple[str, str, str], list[dict[str, str]]] = {}
    for line in recorded(results):
        groups.setdefault((line["blank"], line["data"], line["method"]), []).append(line)
    for (share, data, method), lines in sorted(groups.items()):
        acc, nmi = ([float(line[name]) for line in lines] for name in ("acc", "nmi"))
        print(f"{share} {data} {method}: {statistics.mean(acc):.1f} / {statistics.mean(nmi):.1f} ({len(lines)} seeds)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--blanks", action="store_true")
    parser.add_argument("--sets", help="with semicolons between")
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument(
        "--methods", default="TELL;k-means;k-means, our rows;k-prototypes", help="with semicolons between"
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--show", action="store_true")
    arguments = parser.parse_args()
    if not arguments.show:
        warnings.simplefilter("ignore")
        measure(arguments, arguments.out)
    show(arguments.out)
