"""Tables and texts by the command: from the file to labels, and forty files that are broken."""

import gzip
import json
import re

import numpy as np
import pandas as pd
import pytest

SHORT = ("--epochs", "2", "--set", "pretrain_epochs=2", "--quiet", "--device", "cpu")
PLANS = ("free", "premium")
GOOD = b"id,income,plan,since\n" + b"".join(
    f"c{i},{20 + 70 * (i % 2) + i % 5},{PLANS[i % 2]},2024-01-{i + 1:02}\n".encode() for i in range(30)
)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture
def customers(tmp_path):
    (tmp_path / "t.csv").write_bytes(GOOD)
    return tmp_path / "t.csv"


def test_a_table_from_the_file_to_the_report(works, tmp_path, customers):
    out = works("fit", customers, "-k", 2, "--out", "a", "--keep", "id", *SHORT)
    assert "left out: all its values differ, as those of an id do" in out
    assert "set apart by" in out
    labels = pd.read_csv("a/labels.csv")
    assert list(labels.columns) == ["row", "id", "label"]
    assert labels["id"].tolist() == [f"c{i}" for i in range(30)]
    clusters = pd.read_csv("a/clusters.csv")
    assert clusters["rows"].sum() == 30
    works("predict", "a", customers, "--out", "n.csv", "--keep", "all", "--names")
    again = pd.read_csv("n.csv")
    assert list(again.columns) == ["row", "id", "income", "plan", "since", "label", "name"]
    assert again.groupby("label")["name"].unique().str[0].tolist() == clusters["name"].tolist()
    assert again["name"].iloc[0] in out
    assert (again["label"] == labels["label"]).all()
    said = works("explain", "a", "--row", 3)
    assert said.startswith("Row 3: c3\n")
    assert "plan = " in said
    counted = [line.split("│")[1].strip() for line in said.splitlines() if line.startswith("│") and "z" not in line]
    assert sorted(counted[:3]) == ["income", "plan", "since"]  # a line a column, not one a feature
    assert re.search(r"since +│ 20\d\d-\d\d-\d\d ", said)
    assert "stands out by" in works("explain", "a", "--cluster", 0)
    works("report", "a", "--layout", "PCA")
    page = (tmp_path / "a" / "report.html").read_text(encoding="utf-8")
    content = json.loads(page.split('<script id="data" type="application/json">')[1].split("</script>")[0])
    assert content["map"]["caption"][3] == "c3"
    assert any("plan" in fact for fact in content["clusters"][0]["columns"])


def test_a_folder_of_its_own(works, tmp_path, customers):
    for name in ("runs/t", "runs/t-2"):
        assert f"Saved to {name}:" in works("fit", customers, "-k", 2, *SHORT)
        assert (tmp_path / name / "labels.csv").exists()


def test_describe(works, customers):
    out = works("describe", customers, "--column", "income=category", "--skip", "since")
    assert "30 rows of" in out
    assert "left out: as you said" in out
    told = json.loads(works("describe", customers, "--label", "plan", "--json"))
    assert told["shape"] == [30, 3]
    assert told["classes"] == 2
    assert {column["name"]: column["kind"] for column in told["columns"]} == {
        "id": "skip", "income": "number", "since": "date",
    }  # fmt: skip
    assert "numbers of type" in works("describe", "digits")


def test_json_for_scripts(works, customers):
    told = json.loads(works("fit", customers, "-k", 2, "--out", "a", "--label", "plan", "--json", *SHORT))
    assert told["rows"] == 30
    assert sum(told["sizes"]) == 30
    assert told["columns"]["id"] == "left out: all its values differ, as those of an id do"
    assert 0 <= told["scores"]["acc"] <= 1
    assert json.loads(works("predict", "a", customers, "--out", "n.csv", "--json")) == {"out": "n.csv", "rows": 30}


def test_options_from_a_file(works, refused, tmp_path, customers):
    (tmp_path / "c.toml").write_text(
        'k = 2\nout = "a"\nepochs = 2\nquiet = true\nskip = ["since"]\n[column]\nincome = "category"\n'
        "[set]\npretrain_epochs = 2\n"
    )
    told = json.loads(works("fit", customers, "--config", "c.toml", "--device", "cpu", "--json"))
    assert told["columns"]["income"].startswith("category")
    assert told["columns"]["since"] == "left out: as you said"
    other = json.loads(works("fit", customers, "--config", "c.toml", "-k", 3, "--device", "cpu", "--json"))
    assert len(other["sizes"]) == 3
    (tmp_path / "bad.toml").write_text("clutters = 3\n")
    refused("fit", customers, "--config", "bad.toml", says="bad.toml: unknown option 'clutters'; there are ")
    (tmp_path / "bad.toml").write_text("k = = 3\n")
    refused("fit", customers, "--config", "bad.toml", says="bad.toml is not TOML")
    refused("fit", customers, "--config", "none.toml", says="none.toml")


TEXTS = [f"{animal} {verb} {place}" for animal in ("cat", "dog") for verb in ("sat", "ran") for place in ("here", "up")]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "folder"])
def test_texts_are_told_by_their_words(works, tmp_path, kind):
    if kind == "folder":
        (tmp_path / "t").mkdir()
        for i, text in enumerate(TEXTS):
            (tmp_path / "t" / f"{i}.txt").write_text(text)
        data = "t"
    elif kind == "csv":
        pd.DataFrame({"text": TEXTS}).to_csv("t.csv", index=False)
        data = "t.csv"
    else:
        pd.DataFrame({"text": TEXTS}).to_json("t.jsonl", orient="records", lines=True)
        data = "t.jsonl"
    out = works("fit", data, "-k", 2, "--out", "a", *SHORT)
    assert "words: " in out
    assert "words: " in (tmp_path / "a" / "clusters.csv").read_text()
    assert ("file" in pd.read_csv("a/labels.csv")) == (kind == "folder")
    assert works("explain", "a", "--row", 0).startswith("Row 0: cat sat here\n")
    works("predict", "a", data, "--out", "n.csv")
    assert (pd.read_csv("n.csv")["label"] == pd.read_csv("a/labels.csv")["label"]).all()


def test_embeddings_of_ones_own(works, refused, tmp_path):
    pd.DataFrame({"text": TEXTS}).to_json("t.jsonl", orient="records", lines=True)
    np.save("e.npy", np.random.default_rng(0).normal(size=(8, 5)))
    out = works("fit", "t.jsonl", "--embeddings", "e.npy", "-k", 2, "--out", "a", *SHORT)
    assert "words: " in out
    works("predict", "a", "t.jsonl", "--embeddings", "e.npy", "--out", "n.csv")
    assert (pd.read_csv("n.csv")["label"] == pd.read_csv("a/labels.csv")["label"]).all()
    refused("predict", "a", "t.jsonl", "--out", "n.csv", says="a was fitted on embeddings: give --embeddings")
    assert works("explain", "a", "--row", 0).startswith("Row 0: cat sat here\n")
    (tmp_path / "names.csv").write_text("kind,number,name\ncluster,1,the cats\nrow,0,a good one\n")
    works("report", "a", "--layout", "PCA", "--names", "names.csv")
    page = (tmp_path / "a" / "report.html").read_text()
    names = json.loads(re.search(r'"names":(\{"clusters":.*?\},"rows":\{.*?\}\})', page).group(1))
    assert names["clusters"]["1"] == "the cats"  # the other keeps the name that the fit gave it
    assert names["rows"] == {"0": "a good one"}
    refused("report", "a", "--names", "e.npy", says="names are kept in a .json or a .csv file")
    np.save("e.npy", np.zeros((7, 5)))
    refused("fit", "t.jsonl", "--embeddings", "e.npy", "-k", 2, "--out", "b", says="e.npy has 7 rows, but")


def test_bad_words_about_columns(refused, tmp_path, customers):
    fit = ("fit", customers, "-k", 2, "--out", "a", *SHORT)
    refused(*fit, "--column", "income", says="--column income: expected NAME=KIND")
    refused(*fit, "--column", "income=colour", says="with KIND one of number, category, date, text, skip")
    refused(*fit, "--column", "salary=number", says="there is no column 'salary'")
    refused(*fit, "--skip", "salary", says="there is no column 'salary'")
    refused(*fit, "--label", "salary", says="there is no column 'salary' for the labels")
    refused(*fit, "--keep", "salary", says="--keep salary: there is no such column")
    np.save("x.npy", np.eye(5))
    refused("describe", "x.npy", "--label", "salary", says="x.npy has no columns with names")
    assert not (tmp_path / "a").exists()


@pytest.mark.filterwarnings("default:Column 'plan'")
def test_new_rows_that_do_not_fit(works, run, refused, tmp_path, customers):
    works("fit", customers, "-k", 2, "--out", "a", *SHORT)
    (tmp_path / "n.csv").write_text("plan,since,id\nfree,2024-01-01,x\n")
    refused("predict", "a", "n.csv", "--out", "o.csv", says="X has no column 'income', which fit saw")
    (tmp_path / "n.csv").write_text("plan,since,income\nfree,2024-01-01,much\n")
    refused(
        "predict", "a", "n.csv", "--out", "o.csv", says="Column 'income', row 0 (the first is 0): 'much' is no number"
    )
    (tmp_path / "n.csv").write_text("since,plan,income\n,gold,\n2024-01-02,free,30\n")
    code, out, err = run("predict", "a", "n.csv", "--out", "o.csv")
    assert (code, out) == (0, "2 labels in o.csv\n")
    assert err == (
        "diffclust: warning: Column 'plan' has categories that fit did not see, treated as missing: 'gold'.\n"
    )


HEAD, LINES = GOOD.split(b"\n", 1)
SPOILED = {  # name: content, and what is said of it
    "empty.csv": (b"", "empty.csv is empty: 0 bytes"),
    "blank.csv": (b"\n\n \n", "it is empty: 0 rows"),
    "head.csv": (HEAD + b"\n", "it is empty: 0 rows"),
    "mark.csv": (b"\xef\xbb\xbf", "it is empty: 0 rows"),
    "short.csv": (GOOD + b"c99,5\n", "line 32 has 2 cells, the first has 4 cells"),
    "long.csv": (GOOD + b"c99,5,free,2024-01-01,1\n", "line 32 has 5 cells, the first has 4 cells"),
    "quote.csv": (HEAD + b'\n"c1,20,free,2024-01-01\n' + LINES, "cell"),
    "twice.csv": (GOOD.replace(b"since", b"plan", 1), "more than one column named 'plan'"),
    "labels.csv": (b"a,label,target\n1,2,3\n2,3,4\n", "'label', 'target' could all be the labels"),
    "only.csv": (b"label\ncat\ndog\n", "there are no columns besides the labels"),
    "ids.csv": (b"id\n" + b"".join(b"u%d\n" % i for i in range(20)), "No column of the table is left to cluster by"),
    "same.csv": (b"a,b\nx,x\nx,x\nx,x\n", "No column of the table is left to cluster by"),
    "blanks.csv": (b"a,b\nNA,?\n-,\n", "No column of the table is left to cluster by"),
    "infinite.csv": (b"a,b\n1,2\n3,inf\n4,5\n", "infinity"),
    "infinite_words.csv": (b"a,b\n1,x\ninf,y\n4,x\n", "infinity: column 'a', row 1"),
    "one.csv": (b"a,b\n1,x\n", "No column of the table is left"),
    "two.csv": (b"a,b\n1,x\n2,y\n", "n_samples=2 should be >= n_clusters=3"),
    "zeros.csv": (b"a,b\n1,\0\n", "it is not text"),
    "picture.csv": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "it is not text"),
    "excel.csv": (b"PK\x03\x04\x14\0\x06\0", "it is not text"),
    "utf16.csv": (b"\xff\xfea\0,\0b", "it starts like utf-16, but is not"),
    "field.csv": (b"a,b\n1," + b"x" * 200_000 + b"\n", "field larger than field limit"),
    "empty.tsv": (b"", "empty.tsv is empty: 0 bytes"),
    "commas.tsv": (b"a\tb\n1\t2\n1,2\n", "line 3 has 1 cell, the first has 2 cells"),
    "plain.csv.gz": (GOOD, "is not a complete gzip file"),
    "cut.csv.gz": (gzip.compress(GOOD)[:-12], "is not a complete gzip file"),
    "nothing.csv.gz": (gzip.compress(b""), "it is empty: 0 rows"),
    "plain.csv.zst": (GOOD, "is not a complete zstd file"),
    "empty.parquet": (b"", "empty.parquet is empty: 0 bytes"),
    "plain.parquet": (GOOD, "plain.parquet: "),
    "cut.parquet": (b"PAR1" + bytes(30) + b"PAR1", "cut.parquet: "),
    "plain.feather": (GOOD, "plain.feather: "),
    "empty.jsonl": (b"", "empty.jsonl is empty: 0 bytes"),
    "blank.jsonl": (b"\n\n", "blank.jsonl is empty: no lines"),
    "broken.jsonl": (b'{"a": 1}\n{"a": \n', "broken.jsonl, line 2: not JSON"),
    "list.jsonl": (b'{"a": 1}\n[1]\n', "list.jsonl, line 2: expected an object"),
    "nested.jsonl": (b'{"a": {"b": 1}}\n', "nested.jsonl, line 1: 'a' is not a plain value"),
    "latin.jsonl": ('{"text": "größe"}'.encode("latin-1"), "latin.jsonl is not UTF-8 text"),
    "labels.jsonl": (b'{"label": 1}\n', "there is nothing besides the labels"),
    "wordless.jsonl": (b'{"text": "."}\n{"text": "!"}\n{"text": "..."}\n', "Column 'text': no words in its 3 texts"),
    "plain.jsonl.gz": (b'{"a": 1}\n', "is not a complete gzip file"),
    "plain.npy": (GOOD, "plain.npy cannot be read as .npy"),
    "plain.npz": (GOOD, "plain.npz cannot be read as .npz"),
    "table.xlsx": (b"PK\x03\x04", "unknown ending '.xlsx'. Known: .npy"),
}


def test_there_are_forty():
    assert len(SPOILED) >= 40


@pytest.mark.parametrize("name", SPOILED)
def test_broken_files_are_one_clear_line(refused, tmp_path, name):
    content, says = SPOILED[name]
    (tmp_path / name).write_bytes(content)
    refused("fit", name, "-k", 3, "--out", "a", *SHORT, says=says)
    assert [path.name for path in tmp_path.iterdir()] == [name]
