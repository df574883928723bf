"""Names of clusters and rows: to a file and back, into a report, and what is no such file."""

import json
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from diffclust import TELL, load_names
from diffclust.explain.clusters import cluster_facts
from diffclust.explain.names import names_by_facts
from diffclust.report.names import Names, given_names

called = st.dictionaries(st.integers(0, 10**9), st.text(min_size=1, max_size=30).map(str.strip).filter(bool))


@pytest.mark.parametrize("kind", ["json", "csv"])
@given(names=st.builds(Names, called, called))
def test_there_and_back(tmp_path_factory, kind, names):
    path = tmp_path_factory.mktemp("names") / f"names.{kind}"
    names.save(path)
    assert load_names(path) == names


def test_labels_and_names_of_rows():
    names = Names({0: "cats", 2: "dogs"}, {1: "odd", 3: "fine"})
    assert names.labels(5).tolist() == [None, "odd", None, "fine", None]
    assert names.of([0, 1, 2, 2]).tolist() == ["cats", "1", "dogs", "dogs"]
    with pytest.raises(ValueError, match="row 3 has a name, but there are 2 rows"):
        names.labels(2)


def test_the_callers_names_go_before_the_models(tmp_path):
    model = SimpleNamespace(given_names_=["cats", None, "dogs"])
    assert given_names(SimpleNamespace(), None) == Names()
    assert given_names(model, None).clusters == {0: "cats", 2: "dogs"}
    assert given_names(SimpleNamespace(given_names_={1: "birds"}), None).clusters == {1: "birds"}
    assert given_names(model, {2: "wolves"}).clusters == {0: "cats", 2: "wolves"}
    Names({0: "lions"}, {7: "odd"}).save(tmp_path / "names.csv")
    assert given_names(model, tmp_path / "names.csv") == Names({0: "lions", 2: "dogs"}, {7: "odd"})


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.json", "{", "no names as a report exports"),
        ("a.json", "[" * 100_000, "no names as a report exports"),
        ("a.json", "[1]", "it should be"),
        ("a.json", '{"clusters": {"x": "cats"}}', "'x' should be the number of a cluster"),
        ("a.json", '{"rows": {"-1": "cats"}}', "should be the number of a row"),
        ("a.json", '{"clusters": {"1": 7}}', "the name of cluster 1 should be a text"),
        ("a.csv", "", "its first line should be kind,number,name"),
        ("a.csv", "row,label\n1,a\n", "its first line should be"),
        ("a.csv", "kind,number,name\ncluster,1\n", "line 2 should be"),
        ("a.csv", "kind,number,name\ncluster,1,a\nplanet,1,b\n", "line 3 should be"),
        ("a.txt", "", "a .json or a .csv file"),
    ],
)
def test_what_is_no_file_of_names(tmp_path, name, text, says):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=says):
        load_names(tmp_path / name)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_names_reach_the_page(blobs, tmp_path):
    pytest.importorskip("plotly")
    from test_report import content

    X = blobs[0].astype("float32")
    model = TELL(3, network="identity", epochs=2, random_state=0, device="cpu").fit(X)
    path = tmp_path / "names.json"
    path.write_text(json.dumps({"clusters": {"1": "small ones"}, "rows": {"4": "odd"}}))
    data, _ = content(model.report(tmp_path / "r.html", X, layout="PCA", names=path))
    assert data["names"] == {"clusters": {"1": "small ones"}, "rows": {"4": "odd"}}
    other, _ = content(model.report(tmp_path / "r.html", X, layout="PCA"))
    assert other["key"] == data["key"]  # one model and its rows: the browser keeps their names together
    again = TELL(3, network="identity", epochs=3, random_state=1, device="cpu").fit(X)
    third, _ = content(again.report(tmp_path / "r.html", X, layout="PCA"))
    assert third["key"] != data["key"]
    assert np.unique([data["key"], third["key"]]).size == 2


TABLE_ROWS = 600


@pytest.fixture(scope="module")
def mixed():
    """Two groups that a number, a date and a category tell apart; the others are noise."""
    rng, half = np.random.default_rng(0), np.arange(TABLE_ROWS) % 2
    days = rng.integers(0, 300, TABLE_ROWS) + 700 * half
    return pd.DataFrame(
        {
            "income": 30 + 40 * half + rng.normal(0, 5, TABLE_ROWS),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(days, unit="D"),
            "plan": np.where(half, "premium", rng.choice(["free", "basic"], TABLE_ROWS)),
            "shoes": rng.normal(40, 3, TABLE_ROWS),
            "hand": rng.choice(["left", "right"], TABLE_ROWS),
        }
    )


@pytest.fixture(scope="module")
def told(mixed):
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        return TELL(2, random_state=0, device="cpu", epochs=4, pretrain_epochs=4).fit(mixed)


def test_facts_are_beyond_chance_and_names_are_made_of_them(told, mixed):
    facts = cluster_facts(told, mixed)
    assert {fact.column for own in facts for fact in own} == {"income", "since", "plan"}
    rich = int(told.labels_[1])
    phrases = {fact.column: fact.phrase for fact in facts[rich]}
    assert phrases == {"income": "high income", "since": "late since", "plan": "plan = premium"}
    assert {fact.phrase for fact in facts[1 - rich]} >= {"low income", "early since", "plan not premium"}
    assert names_by_facts(facts)[rich] == ", ".join(fact.phrase for fact in facts[rich][:2])
    (name,) = names_by_facts([facts[0]])
    assert names_by_facts([facts[0], facts[0], []]) == [f"{name} (0)", f"{name} (1)", "cluster 2"]


def test_without_rows_a_name_has_one_phrase_a_column(told, mixed):
    for name in told.names_:
        columns = [column for column in mixed.columns for part in name.split(", ") if column in part.split()]
        assert len(columns) == len(set(columns)) == 2
        assert "time of year" not in name
