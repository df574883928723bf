"""Two models or two dates: clusters matched, flows, moves and drift against counts made by hand; the page of it."""

import copy
import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_blobs

from diffclust import SSC, TELL, compare_models
from diffclust.report import comparison
from diffclust.report.names import Names

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
QUICK = {"network": "identity", "epochs": 2, "device": "cpu"}


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(300, 4, centers=4, cluster_std=0.6, random_state=2)[0].astype("float32")


@pytest.fixture(scope="module")
def three(blobs):
    return TELL(3, random_state=0, **QUICK).fit(blobs)


@pytest.fixture(scope="module")
def four(blobs):
    return TELL(4, random_state=1, **QUICK).fit(blobs)


def test_clusters_have_the_names_of_their_models(monkeypatch, blobs):
    a, b = (TELL(3, random_state=seed, **QUICK).fit(blobs) for seed in (0, 1))
    assert compare_models(a, b, blobs).called == ({}, {})
    monkeypatch.setattr(TELL, "given_names_", ["small", None, "large"], raising=False)
    found = compare_models(a, b, blobs)
    assert found.to_dict()["called"] == [{0: "small", 2: "large"}] * 2


def test_flows_are_counts_and_the_match_is_the_best(three, four, blobs):
    found = compare_models(three, four, blobs)
    a, b = three.predict(blobs), four.predict(blobs)
    counted = [[int(((a == i) & (b == j)).sum()) for j in range(4)] for i in range(3)]
    assert found.flows.tolist() == counted
    stays = max(sum(counted[i][j] for i, j in enumerate(way)) for way in itertools.permutations(range(4), 3))
    assert found.stayed == pytest.approx(stays / 300)
    assert sum(pair.shared for pair in found.pairs) == stays
    assert sorted(pair.after for pair in found.pairs) == [0, 1, 2, 3]  # every cluster once
    assert next(pair for pair in found.pairs if pair.before is None).sizes[0] == 0
    assert found.far is None
    moved = sum(move.size for move in found.moves)
    assert moved == 300 - stays
    for move in found.moves:
        assert all(a[row] == move.before and b[row] == move.after for row in move.rows)


def test_a_permutation_of_clusters_moves_nothing(three, blobs):
    again = copy.deepcopy(three)
    order = [2, 0, 1]
    again.model_.clusters.set_centers(three.model_.clusters.centers.detach()[order])
    again.cluster_centers_ = three.cluster_centers_[order]
    found = compare_models(three, again, blobs)
    assert found.stayed == 1.0
    assert found.agreement == pytest.approx(1.0)
    assert found.moves == []
    assert {pair.before: pair.after for pair in found.pairs} == {2: 0, 0: 1, 1: 2}


def test_the_later_rows_drift(three, blobs):
    labels = three.predict(blobs)
    most = np.bincount(labels).argmax()
    new = np.concatenate([blobs[labels == most], blobs[labels == most] + np.float32([0, 0, 0, 0.5])])
    found = compare_models(three, three, blobs, new)
    by = {pair.before: pair for pair in found.pairs}
    assert found.flows is None
    assert found.moves == []
    own = by[int(most)]
    assert own.sizes == ((labels == most).sum(), (three.predict(new) == most).sum())
    assert own.drifted
    assert own.distance > 1
    assert any(said.startswith("x3") and said.endswith("above") for said in own.said)
    distance = ((three.transform(blobs) - three.cluster_centers_[labels]) ** 2).sum(1)
    limit = np.quantile(distance[labels == most], 0.99)
    later = ((three.transform(new) - three.cluster_centers_[most]) ** 2).sum(1)
    assert own.far == pytest.approx((later[three.predict(new) == most] > limit).mean(), abs=1e-6)


def test_the_same_rows_again_do_not_drift(three, blobs):
    found = compare_models(three, three, blobs, blobs[::-1])
    assert not any(pair.drifted for pair in found.pairs)
    assert all(pair.distance == pytest.approx(1.0) and pair.said == [] for pair in found.pairs)
    assert found.far <= sum(np.ceil(0.01 * pair.sizes[0]) for pair in found.pairs) / 300
    assert "No cluster changed its share by more than chance" in found.sentence


def test_the_largest_move_is_told_with_its_match_and_names(three, four, blobs):
    found = compare_models(three, four, blobs)
    move = found.moves[0]
    match = next(pair.after for pair in found.pairs if pair.before == move.before)
    told = f"from cluster {move.before} of A (which is matched with {match}) to cluster {move.after} of B."
    assert told in found.sentence
    named = replace(found, called=({move.before: "students"}, {}))
    assert f"cluster {move.before} “students” of A" in named.sentence


@pytest.mark.parametrize(("far", "says"), [(0.01, "no drift"), (0.097, "no drift"), (0.2, "have moved away")])
def test_what_training_explains_is_no_drift(three, blobs, far, says):
    found = replace(compare_models(three, three, blobs, blobs), far=far)
    assert says in found.sentence
    assert found.moved_away == found.to_dict()["moved_away"] == (far > 0.1)
    assert compare_models(three, copy.deepcopy(three), blobs).moved_away is None


@pytest.mark.parametrize(("sizes", "beyond"), [((50, 50), False), ((50, 60), False), ((50, 90), True)])
def test_chance(sizes, beyond):
    assert comparison.beyond_chance(sizes, (100, 100)) == beyond  # 5.0 standard errors are 0.35, 1.4 are 0.1


def test_tables_tell_moves_and_drift_in_their_words():
    rng = np.random.default_rng(0)
    half = np.arange(120) % 2
    table = pd.DataFrame({"income": 30 + 40 * half + rng.normal(0, 2, 120), "plan": np.where(half, "premium", "free")})
    model = TELL(2, random_state=0, **QUICK).fit(table)
    later = table.assign(income=table["income"] + 6)
    found = compare_models(model, model, table, later, names=("january", "february"))
    said = [text for pair in found.pairs for text in pair.said]
    assert said
    assert all("income" in text and "above" in text for text in said)


def test_as_plain_values_and_in_a_notebook(three, four, blobs):
    found = compare_models(three, four, blobs)
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["sentence"] == str(found)
    assert len(plain["pairs"]) == 4
    assert "adjusted Rand index" in found._repr_html_()


def test_rows_of_a_table_that_moved_are_told_as_the_table_writes_them(tmp_path):
    rng = np.random.default_rng(0)
    plan = rng.choice(["free", "premium"], 120)
    table = pd.DataFrame({"income": rng.integers(20_000, 90_000, 120), "plan": plan})
    a, b = (TELL(k, random_state=0, **QUICK).fit(table) for k in (2, 4))
    found = compare_models(a, b, table)
    called = pd.Series([f"c{i}" for i in range(120)], index=range(500, 620))  # in the order of the rows
    for captions, start in ((None, ""), (called, "c{}: ")):
        page = found.report(tmp_path / "c.html", captions=captions).read_text()
        content = json.loads(page.split('<script id="data" type="application/json">')[1].split("</script>")[0])
        assert content["rows"]
        for row, said in zip(content["rows"], content["captions"], strict=True):
            assert said == f"{start.format(row)}income {table['income'][row]}, plan {plan[row]}"


def test_bad_questions(three, blobs, tmp_path):
    with pytest.raises(ValueError, match="cannot be compared with itself"):
        compare_models(three, three, blobs)
    with pytest.raises(TypeError, match="SSC cannot label"):
        compare_models(SSC(3).fit(blobs[:60]), three, blobs)
    with pytest.raises(ValueError, match="features"):
        compare_models(three, three, blobs, blobs[:, :3])
    found = compare_models(three, three, blobs, blobs[:50])
    with pytest.raises(ValueError, match="2 entries for 50 rows"):
        found.report(tmp_path / "c.html", captions=["a", "b"])
    with pytest.raises(IsADirectoryError):
        found.report(tmp_path)


def test_hostile_captions_are_text(three, four, blobs, tmp_path):
    found = compare_models(three, four, blobs, names=("</script><b>", "B"))
    page = found.report(tmp_path / "c.html", captions=["</script><script>alert(1)</script>"] * 300).read_text()
    assert "<script>alert" not in page
    assert page.count("</script>") == len(re.findall("<script", page))


def test_the_command(works, refused, tmp_path):
    rng = np.random.default_rng(0)
    for name, shift in (("january", 0.0), ("february", 3.0)):
        half = np.arange(60) % 2
        rows = {"income": 30 + 40 * half + rng.normal(0, 2, 60) + shift, "plan": np.where(half, "premium", "free")}
        pd.DataFrame(rows).to_csv(f"{name}.csv", index=False)
        short = ("--epochs", "2", "--set", "pretrain_epochs=2", "--quiet", "--device", "cpu")
        works("fit", f"{name}.csv", "-k", 2, *short, "--out", f"runs/{name}")
    drift = ("report", "runs/january", "--new", "february.csv")
    for option, value in (("--sample", 50), ("--layout", "PCA"), ("--embeddings", "february.csv")):
        refused(*drift, option, value, says=f"{option} is for the report of one model")
    Names({0: "early birds"}).save("names.csv")
    works(*drift, "--names", "names.csv", "--out", "named.html")
    assert "early birds" in Path("named.html").read_text("utf-8")
    said = works(*drift, "--out", "drift.html")
    assert "60 later rows and 60 earlier ones" in " ".join(said.split())
    assert "income" in (tmp_path / "drift.html").read_text()
    assert f"drift.html: {Path('drift.html').stat().st_size / 1000:.0f} kB" in said  # 0.0 MB
    said = works("report", "runs/january", "runs/february", "february.csv")
    assert "of 60 rows stay" in " ".join(said.split())
    assert (tmp_path / "runs/january/comparison.html").exists()
    refused("report", "runs/january", "february.csv", "january.csv", says="is not the folder of a model")
