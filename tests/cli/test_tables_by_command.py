"""Tables and texts by the command: from the file to labels, and forty files that are broken."""

import gzip
import json
import re
import sys

import numpy as np
import pandas as pd
import pytest

from diffclust import TELL

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


CODES = "id,sku,a,b\n" + "".join(f"{100001 + i},{i % 7:04},{i % 2 * 9 + i / 64},{i % 5}.50\n" for i in range(30))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_kept_columns_are_as_the_file_has_them(works, tmp_path, ending):
    (tmp_path / "t.csv").write_text(CODES)
    if ending == "parquet":
        pd.read_csv("t.csv", dtype={"sku": str, "b": str}).to_parquet("t.parquet")
    keep = ("--keep", "id", "--keep", "sku", "--keep", "b")
    works("fit", f"t.{ending}", "-k", 2, "--out", "a", *keep, *SHORT)
    works("predict", "a", f"t.{ending}", "--out", "n.csv", *keep)
    for written in ("a/labels.csv", "n.csv"):
        lines = [line.split(",")[1:4] for line in (tmp_path / written).read_text().splitlines()]
        assert lines[:3] == [["id", "sku", "b"], ["100001", "0000", "0.50"], ["100002", "0001", "1.50"]]
    works("predict", "a", f"t.{ending}", "--out", "n.parquet", *keep)
    kept = pd.read_parquet("n.parquet")
    assert kept["id"].tolist() == list(range(100001, 100031))
    assert kept["sku"][1] == "0001"


def numbers(n=60):
    rng = np.random.default_rng(0)
    return pd.DataFrame(rng.normal(size=(n, 3)).round(3) + 9 * (np.arange(n) % 2)[:, None], columns=list("abc"))


def test_plain_numbers_are_clustered_as_an_array(works, tmp_path):
    numbers().to_csv(tmp_path / "t.csv", index=False)
    works("fit", "t.csv", "-k", 2, "--out", "a", *SHORT)
    model = TELL(2, epochs=2, pretrain_epochs=2, random_state=0, device="cpu").fit(numbers().to_numpy())
    assert (pd.read_csv("a/labels.csv")["label"] == model.labels_).all()
    np.save("n.npy", numbers().to_numpy())
    works("predict", "a", "n.npy", "--out", "n.csv")
    assert (pd.read_csv("n.csv")["label"] == model.labels_).all()


@pytest.mark.parametrize("pandas", [True, False])
def test_new_numbers_may_lie_otherwise(works, refused, tmp_path, monkeypatch, pandas):
    table = numbers()
    table.to_csv(tmp_path / "t.csv", index=False)
    table[["c", "a", "b"]].assign(more=1).to_csv(tmp_path / "other.csv", index=False)
    table.assign(b=table["b"].where(table.index != 3)).to_csv(tmp_path / "blank.csv", index=False)
    table.drop(columns="b").to_csv(tmp_path / "less.csv", index=False)
    if not pandas:
        monkeypatch.setitem(sys.modules, "pandas", None)
    works("fit", "t.csv", "-k", 2, "--out", "a", *SHORT)
    for name in ("other.csv", "blank.csv"):
        works("predict", "a", name, "--out", "n.csv")
        assert (tmp_path / "n.csv").read_text() == (tmp_path / "a" / "labels.csv").read_text()
    refused("predict", "a", "less.csv", "--out", "n.csv", says="X has no column 'b', which fit saw")


def test_a_header_of_years(works, tmp_path):
    (tmp_path / "t.csv").write_text("2019,2020\n" + "".join(f"{i % 7},{i}.5\n" for i in range(30)))
    out = works("describe", "t.csv")
    assert "30 rows" in out
    assert "2019" in out
    assert "No header" not in out
    (tmp_path / "t.csv").write_text("2019,2020\n" + "".join(f"{i % 7},{2000 + i}\n" for i in range(30)))
    out = works("describe", "t.csv")
    assert "31 rows" in out
    assert "No header line was found: the first line is read as data." in out


def test_columns_without_names_are_kept_by_number(works, tmp_path):
    (tmp_path / "t.csv").write_text("1,2\n" + "".join(f"{i}.50,{'xy'[i % 2]}\n" for i in range(30)))
    works("fit", "t.csv", "-k", 2, "--out", "a", "--keep", "column 1", *SHORT)
    assert (tmp_path / "a" / "labels.csv").read_text().startswith("row,column 1,label\n0,1,")


def test_codes_are_left_out_and_said(works, tmp_path):
    rows = [f"{401 * i + 1067:05},{i % 2:02},{i % 2 * 9 + i / 64},{i + 5}" for i in range(30)]
    (tmp_path / "t.csv").write_text("PLZ,kind,a,n\n" + "\n".join(rows) + "\n")
    out = works("describe", "t.csv")
    assert "left out: looks like a code; --column PLZ=number to use it" in out
    assert "left out: it counts the rows; --column n=number to use it" in out
    assert "category, 2 values" in out
    assert "looks like" not in works("describe", "t.csv", "--column", "PLZ=number")
    works("fit", "t.csv", "-k", 2, "--out", "a", *SHORT)
    works("predict", "a", "t.csv", "--out", "n.csv")
    labels = pd.read_csv("a/labels.csv")["label"]
    assert (pd.read_csv("n.csv")["label"] == labels).all()
    (tmp_path / "one.csv").write_text(f"PLZ,kind,a,n\n{rows[3]}\n")
    works("predict", "a", "one.csv", "--out", "n.csv")
    assert pd.read_csv("n.csv")["label"][0] == labels[3]


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


def test_labels_by_their_name_are_said(works, tmp_path):
    (tmp_path / "t.csv").write_text("a,b,target\n" + "".join(f"{i % 9},{i % 7}.5,{i % 3}\n" for i in range(60)))
    said = "Column 'target' is taken as labels, not clustered by (--column target=number to use it"
    for command in (("describe", "t.csv"), ("fit", "t.csv", "-k", 2, "--out", "a", *SHORT)):
        assert said in works(*command)
        assert said not in works(*command, "--label", "target")
        out = works(*command, "--column", "target=number")
        assert said not in out
        assert "target" in out
    told = json.loads(works("describe", "t.csv", "--json"))
    assert (told["shape"], told["label"]) == ([60, 2], "target")
    works("predict", "a", "t.csv", "--out", "n.csv")
    assert (pd.read_csv("n.csv")["label"] == pd.read_csv("a/labels.csv")["label"]).all()


def test_json_for_scripts(works, customers):
    told = json.loads(works("fit", customers, "-k", 2, "--out", "a", "--label", "plan", "--json", *SHORT))
    assert told["rows"] == 30
    assert sum(told["sizes"]) == 30
    assert told["columns"]["id"] == "left out: all its values differ, as those of an id do"
    assert 0 <= told["scores"]["acc"] <= 1
    assert json.loads(works("predict", "a", customers, "--out", "n.csv", "--json")) == {"out": "n.csv", "rows": 30}


def test_a_fit_says_that_it_keeps_kmeans_instead_of_the_network(works, customers):
    said = "k-means is used."
    out = works("fit", customers, "-k", 2, "--out", "a", *SHORT)  # thirty rows: too few for a network
    assert said in out
    assert json.loads(works("fit", customers, "-k", 2, "--out", "a", "--json", *SHORT))["fallback"].endswith(said)
    learnt = (*SHORT, "--set", "features=neighbours")
    assert said not in works("fit", customers, "-k", 2, "--out", "b", *learnt)
    assert json.loads(works("fit", customers, "-k", 2, "--out", "b", "--json", *learnt))["fallback"] is None


def test_a_fit_into_a_used_folder_says_which_pages_are_old(works, customers):
    command = ("fit", customers, "-k", 2, "--out", "a", *SHORT)
    assert "the model that was there" not in works(*command)
    assert "the model that was there" not in works(*command)  # it had no page
    works("report", "a")
    assert "report.html in a is about the model that was there." in works(*command)
    works("report", "a", "--new", customers)
    assert "report.html and comparison.html in a are about the model that was there." in works(*command)


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
    for j, apart in enumerate(pd.read_csv("a/clusters.csv")["set apart by"]):
        assert f"It stands out by {apart}." in works("explain", "a", "--cluster", j).replace("\n", " ")
        assert json.loads(works("explain", "a", "--cluster", j, "--json"))["columns"][0]["column"] == "text"
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
    refused(*fit, "--skip", "sinc", says="there is no column 'sinc' (did you mean 'since'?)")
    refused(*fit, "--label", "plam", says="there is no column 'plam' for the labels (did you mean 'plan'?)")
    refused(*fit, "--keep", "Id", says="--keep Id: there is no such column (did you mean 'id'?)")
    np.save("x.npy", np.eye(5))
    refused("describe", "x.npy", "--label", "salary", says="x.npy has no columns with names")
    assert not (tmp_path / "a").exists()


@pytest.mark.filterwarnings("default:Column ")
def test_new_rows_that_do_not_fit(works, run, refused, tmp_path, customers):
    works("fit", customers, "-k", 2, "--out", "a", *SHORT)
    (tmp_path / "n.csv").write_text("plan,since,id\nfree,2024-01-01,x\n")
    refused("predict", "a", "n.csv", "--out", "o.csv", says="X has no column 'income', which fit saw")
    (tmp_path / "n.csv").write_text("plan,since,income\nfree,2024-01-01,much\n")
    code, out, err = run("predict", "a", "n.csv", "--out", "o.csv")
    assert code == 0
    assert "Column 'income' has cells that are no number, treated as missing: 'much'" in err
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
    "table.xlsx": (b"PK\x03\x04", ".txt files. Save the sheet as .csv."),
}


def test_there_are_forty():
    assert len(SPOILED) >= 40


@pytest.mark.parametrize("name", SPOILED)
def test_broken_files_are_one_clear_line(refused, tmp_path, name):
    content, says = SPOILED[name]
    (tmp_path / name).write_bytes(content)
    refused("fit", name, "-k", 3, "--out", "a", *SHORT, says=says)
    assert [path.name for path in tmp_path.iterdir()] == [name]
