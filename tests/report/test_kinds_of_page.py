"""Each kind of data as the page shows it: columns against the whole, words where they stand, pictures given."""

import numpy as np
import pandas as pd
import pytest

from diffclust import TELL, plot
from diffclust.report.contexts import AROUND, in_context

pytest.importorskip("plotly", reason="plotly is not installed: no report to write")
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

from test_report import content  # noqa: E402


def made(X, tmp_path, k=2, **options):
    model = TELL(k, network="identity", epochs=2, random_state=0, device="cpu").fit(X)
    data, _ = content(model.report(tmp_path / "r.html", X, layout="PCA", **options))
    return model, data


@pytest.fixture(scope="module")
def loads():
    """Curves of two kinds over 48 half hours."""
    rng, kind, hours = np.random.default_rng(0), np.arange(120) % 2, np.linspace(0, 2 * np.pi, 48)
    return (np.where(kind[:, None], np.sin(hours), np.cos(hours)) + rng.normal(0, 0.1, (120, 48))).astype("float32")


def test_the_summary_tells_sizes_that_differ(tmp_path, loads):
    for k, rows, says in (
        (2, loads, "120 rows fall into 2 clusters. Each has 60 rows. 0.0 %"),
        (2, loads[:119], "The largest is cluster"),
        (1, loads, "120 rows fall into 1 cluster. Each has 120 rows. 0.0 %"),
    ):
        assert says in made(rows, tmp_path, k)[1]["summary"]["sentence"]


def test_curves_have_a_mean_and_a_band(tmp_path, loads):
    model, data = made(loads, tmp_path)
    assert data["curves"]["names"] == [f"x{i}" for i in range(48)]
    assert data["curves"]["whole"] == pytest.approx(loads.mean(0), abs=1e-3)
    for card in data["clusters"]:
        own = loads[model.labels_ == card["cluster"]]
        mean, low, high = card["curve"]
        assert mean == pytest.approx(own.mean(0), abs=1e-3)
        assert low == pytest.approx(np.quantile(own, 0.1, axis=0), abs=1e-3)
        assert high == pytest.approx(np.quantile(own, 0.9, axis=0), abs=1e-3)
    figure = plot.curves(model, loads)
    assert len(figure.data) == 8
    shuffled = loads[:, np.random.default_rng(0).permutation(48)]  # embeddings have their columns in any order
    model, data = made(shuffled, tmp_path)
    assert data["curves"] is data["clusters"][0]["curve"] is None
    with pytest.raises(ValueError, match="not curves"):
        plot.curves(model, shuffled)


def test_a_blank_cell_is_said_to_be_filled(tmp_path):
    half = np.arange(60) % 2
    frame = pd.DataFrame({"income": 10.0 + 50 * half + np.arange(60) % 7, "plan": np.where(half, "gold", "free")})
    frame.loc[3, "income"] = np.nan
    frame.loc[4, "plan"] = None
    _, data = made(frame, tmp_path)
    rows = data["map"]

    def cells(row):
        i = rows["row"].index(row)
        return {
            rows["features"][at]: value for at, value in zip(rows["feature"][i], rows["feature_value"][i], strict=True)
        }

    assert cells(3)["income"].startswith("missing (filled: ")
    assert cells(3)["plan"] == "gold"
    assert cells(4)["plan"].startswith("missing (filled: free")
    assert not cells(5)["income"].startswith("missing")


def test_columns_of_a_table_against_the_whole(tmp_path):
    rng = np.random.default_rng(0)
    half = np.arange(200) % 2
    frame = pd.DataFrame(
        {
            "income": 1000.0 + 5000 * half + rng.normal(0, 100, 200),
            "plan": np.where(half, "gold", "free"),
            "children": rng.integers(0, 3, 200) + 2 * half,
            "since": pd.Timestamp("2024-01-01") + pd.to_timedelta(400 * half + rng.integers(0, 90, 200), "D"),
        }
    )
    model, data = made(frame, tmp_path)
    columns = {column["name"]: column for column in data["spreads"]}
    assert columns["plan"]["places"] == ["free", "gold"]
    assert columns["plan"]["whole"] == [0.5, 0.5]
    assert columns["children"]["places"] == ["0", "1", "2", "3", "4"]
    counts = frame["children"].value_counts(normalize=True).sort_index()
    assert columns["children"]["whole"] == pytest.approx(counts.tolist(), abs=1e-3)
    assert columns["income"]["range"]
    assert columns["since"]["places"][0].startswith("2024-0")
    for card in data["clusters"]:
        rich = frame["income"][model.labels_ == card["cluster"]].mean() > 3500
        assert len(card["name"].split(", ")) == 2
        assert set(card["name"].split(", ")) <= (
            {"high income", "late since", "high children", "plan = gold"}
            if rich
            else {"low income", "early since", "low children", "plan = free"}
        )
        inside = frame[model.labels_ == card["cluster"]]
        own = {data["spreads"][at]["name"]: shares for at, shares in card["spreads"]}
        assert own["plan"] == pytest.approx([(inside["plan"] == name).mean() for name in ("free", "gold")], abs=1e-3)
        for name, shares in own.items():
            assert sum(shares) == pytest.approx(1, abs=0.01), name
        low, high = np.quantile(frame["income"], [0.005, 0.995])
        places = np.clip((20 * (inside["income"] - low) / (high - low)).astype(int), 0, 19)
        assert own["income"] == pytest.approx(np.bincount(places, minlength=20) / len(inside), abs=1e-3)

    rows = data["map"]
    assert sorted(rows["features"]) == sorted(frame)
    for i in (0, 77):
        shown = [rows["features"][at] for at in rows["feature"][i]]
        cells = dict(zip(shown, rows["feature_value"][i], strict=True))
        row = frame.iloc[rows["row"][i]]
        assert (cells["plan"], cells["since"]) == (row["plan"], str(row["since"].date()))
        why = model.explain(frame.iloc[[rows["row"][i]]])[0]
        assert sum(rows["feature_weight"][i]) == pytest.approx(why.attributions.sum(), rel=1e-2)


def test_features_of_an_array_have_spreads_and_constant_ones_none(tmp_path):
    X = np.concatenate([np.random.default_rng(j).normal(6 * j, 1, (60, 3)) for j in range(2)])
    X[:, 2] = 7.0
    _, data = made(X, tmp_path)
    assert [column["name"] for column in data["spreads"]] == ["x0", "x1"]


def test_a_table_says_what_its_rows_are_called(tmp_path):
    frame = pd.DataFrame({"id": [f"c{i}" for i in range(40)], "a": np.arange(40) % 2 * 9.0, "b": np.arange(40.0)})
    _, data = made(frame, tmp_path)
    assert data["map"]["caption"] == frame["id"].tolist()
    assert data["kind"] == "table"


def test_words_where_they_stand():
    texts = ["nothing here", "The CAT sat; a catalogue", "a dog and a cat", "x" * 90 + " dog " + "y" * 90, "猫が好き"]
    found = in_context(["cat", "dog", "fish", "猫"], texts, [0, 1, 2, 3, 4])
    assert found[0] == (1, "The ", "CAT", " sat; a catalogue")  # as it is written, and not within another word
    assert found[1] == (2, "a ", "dog", " and a cat")
    assert found[2] == (4, "", "猫", "が好き")
    assert len(found) == 3
    row, before, word, after = in_context(["dog"], texts, [3])[0]
    assert (row, word) == (3, "dog")
    assert before.startswith("…")
    assert after.endswith("…")
    assert max(len(before), len(after)) <= AROUND + 3


def test_embeddings_with_texts_and_pictures(tmp_path):
    X = np.concatenate([np.random.default_rng(j).normal(8 * j, 1, (30, 4)) for j in range(2)])
    texts = [f"the {'green tea' if i < 30 else 'red wine'} of house {i}" for i in range(60)]
    pictures = np.zeros((60, 6, 9, 3), np.uint8)
    pictures[:, :, :, 1] = np.arange(60)[:, None, None]
    model, data = made(X, tmp_path, texts=texts, thumbnails=pictures)
    assert data["kind"] == "text"
    assert data["map"]["caption"] == texts
    first = int(model.labels_[0])
    words = {card["cluster"]: card["words"] for card in data["clusters"]}
    assert {"green", "tea"} <= set(words[first][:3])
    assert {"red", "wine"} <= set(words[1 - first][:3])
    for card in data["clusters"]:
        for place, before, word, after in card["contexts"]:
            assert before + word + after in texts[data["map"]["row"][place]]
            assert data["map"]["cluster"][place] == card["cluster"]
    sprite = data["pictures"]["thumbnails"]
    assert (sprite["w"], sprite["h"], sprite["n"]) == (9, 6, 60)
    assert "heat" not in data["pictures"]


@pytest.mark.parametrize("dtype", ["uint8", "float32", "bool", "int64"])
def test_pictures_of_any_number(dtype):
    from diffclust.report.pictures import given_pictures

    given = (np.arange(2 * 3 * 3).reshape(2, 3, 3) % 2).astype(dtype)
    found = given_pictures(list(given * (255 if dtype == "uint8" else 1)), [1, 0])
    assert found.shape == (2, 3, 3, 1)
    assert np.allclose(found[..., 0], given[[1, 0]])


def test_pictures_of_two_sizes_are_refused():
    from diffclust.report.pictures import given_pictures

    with pytest.raises(ValueError, match="of one size"):
        given_pictures([np.zeros((2, 2)), np.zeros((3, 3))], [0, 1])
