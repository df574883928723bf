"""A table is looked at once, and read the same way ever after."""

import datetime
import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diffclust.reading.cells import cells_of
from diffclust.reading.columns import Column
from diffclust.reading.filling import Fill
from diffclust.reading.frames import Frame
from diffclust.reading.tables import Columns, needs_column_types, non_numeric_columns
from diffclust.reading.texts import telling_words


def customers(n=60, seed=0):
    rng = np.random.default_rng(seed)
    days = pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    return pd.DataFrame(
        {
            "customer_id": np.arange(n) + 1000,
            "income": rng.normal(50_000, 9_000, n).round(2),
            "plan": rng.choice(["free", "basic", "premium"], n),
            "vip": rng.random(n) < 0.3,
            "since": days,
            "currency": "EUR",
        }
    )


# --- kinds


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ([1.5, 2, 3], "number"),
        ([1.5, None, 3, 4], "number, 25 % missing"),
        (["1.5", "2", "NA"], "number, 33 % missing"),
        (["1,200", "15", "3,400,000.5"], "number as in 1,234.5"),
        (["1,5", "2,25", "-"], "number as in 1234,5, 33 % missing"),
        (["1.200,5", "3.400.000"], "number as in 1.234,5"),
        (["1 200", "3 400 000"], "number as in 1 234.5"),
        (["a", "b", "a"], "category, 2 values"),
        ([True, False, True], "category, 2 values"),
        (["yes", "?", "no", ""], "category, 2 values, 50 % missing"),
        ([7, 7, 7], "left out: it has one value"),
        (["x", None, "x"], "left out: it has one value"),
        ([None, None], "left out: empty"),
        (["", "NA", "?"], "left out: empty"),
        (["2024-01-31", "2024-02-01"], "date"),
        (["31/01/2024", "01/02/2024"], "date as in 31/12/2024"),
        (["01/31/2024 10:00", "02/01/2024 11:30"], "date as in 12/31/2024 10:30"),
        (["31.01.2024", "n/a", "1.2.2024"], "date as in 31.12.2024, 33 % missing"),
        ([datetime.date(2024, 1, 31), datetime.date(2024, 2, 1)], "date"),
        ([f"user{i}" for i in range(20)], "left out: all its values differ, as those of an id do"),
        ([f"user{i % 15}" for i in range(20)], "left out: 15 of 20 values differ, too many for a category"),
        ([f"the cat number {i} sat down" for i in range(20)], "text, 15 words"),
        ([f"v{i % 40}" for i in range(400)], "category, 40 values, of which 30 are kept"),
        ([*range(0, 80, 2), "error"], "number; 1 cell is no number ('error'), counted as missing"),
        (
            [*range(0, 80, 2), None, "bad", "bad"],
            "number, 2.3 % missing; 2 cells are no number ('bad'), counted as missing",
        ),
        (
            [*(f"1.{i:03},5" for i in range(40)), "x"],
            "number as in 1.234,5; 1 cell is no number ('x'), counted as missing",
        ),
        (
            [*(f"2024-01-{i + 1:02}" for i in range(20)), "0000-00-00"],
            "date; 1 cell is no date ('0000-00-00'), counted as missing",
        ),
        ([1, 2, 3, "unknown"], "number; 1 cell is no number ('unknown'), counted as missing"),
        ([5] * 20 + ["error"], "category, 2 values"),
        (["13.444", "885", "2.000"], "number, read as 1.234 = 1234"),
        (["13.444", "885,5", "2.000"], "number as in 1.234,5"),
        (["13.444", "8.5", "2.000"], "number"),
        (["13.444", "1885", "2.000"], "number"),
        (["0.444", "885", "2.000"], "number"),
        (["1.234", "2.345"], "number, read as 1.234 = 1.234"),
        (["1,234", "2,345"], "number, read as 1,234 = 1234"),
        (["0,500", "1,250"], "number as in 1234,5"),
        (["1,250", "1500"], "number as in 1234,5"),
        (["1,250", "1,250.5", "1500"], "number as in 1,234.5"),
        (["1.234.567", "1.500"], "number as in 1.234,5"),
        ([f"{401 * i:05}" for i in range(20)], "left out: looks like a code"),
        ([f"{401 * i:05}" for i in range(20)] + [None, "unbekannt"], "left out: looks like a code"),
        (["01067", "95833", "01067"], "category, 2 values"),
        (["007", "95833"], "number"),
        (["0", "1", "0"], "number"),
        (["12.50 €", "13 €", "-4.20€"], "number as in 1234.5 €"),
        (["1.212,50 €", "13 €", None, "7"], "number as in 1.234,5 €, 25 % missing"),
        (["$1,200.00", "-$3.50", "$ 7.25"], "number as in 1,234.5 $"),
        (["12.5 %", "3%", "0.5 %"], "number as in 1234.5 %"),
        (["EUR 12", "EUR 13"], "number as in 1234.5 EUR"),
        (["1.250 €", "885 €"], "number, read as 1.234 = 1234"),
        (["66.9kg", "70 kg", "-4.25 kg"], "number as in 1234.5 kg"),
        (["192 cm", "1.204,5 cm"], "number as in 1.234,5 cm"),
        (["12 km/h", "13 km/h"], "number as in 1234.5 km/h"),
        (["5 min", "6 min", None], "number as in 1234.5 min, 33 % missing"),
        (["5 min", "6 m"], "category, 2 values"),
        (["m5", "m6"], "category, 2 values"),  # a unit is not in front
        (["5M", "6M"], "category, 2 values"),
        (
            [f"{i} m" for i in range(20)] + [f"{i}.5 km" for i in range(20)],
            "left out: all its values differ, as those of an id do",
        ),
        (["12 €", "$13"], "category, 2 values"),
        (["13.11.25", "01.12.24"], "date as in 31.12.24"),
        (["1.2.10", "1.11.12"], "category, 2 values"),
        (["02/01/24", "13/01/24"], "date as in 31/12/24"),
        (["02/01/24", "01/13/24"], "date as in 12/31/24"),
        (["2024-03", "2023-12"], "date as in 2024-12"),
        (["0221-03", "0221-12"], "category, 2 values"),
        (["13-Nov-2025", "1-Dec-2024"], "date as in 31-Dec-2024"),
        ([5] * 20 + ["unknown"], "left out: it has one value"),
        ([1, 2, 3] * 9 + ["4+"], "category, 4 values"),
        (["a", "b", "unknown"], "category, 3 values"),
        (["unknown", "k.A."], "category, 2 values"),
        ([*(i % 40 for i in range(400)), "V27"], "category, 41 values, of which 30 are kept"),
        ([*range(17), "a", "b", "c"], "left out: all its values differ, as those of an id do"),
    ],
)
def test_what_a_column_is(cells, told):
    column = Column.infer("c", cells_of(np.array(cells, object)))
    assert column.description == told


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("id", "left out: all its values differ, as those of an id do"),
        ("customerID", "left out: all its values differ, as those of an id do"),
        ("idea", "number"),
    ],
)
def test_numbers_are_identifiers_only_by_name(name, told):
    assert Column.infer(name, 3 * np.arange(20.0)).description == told
    assert Column.infer(name, np.arange(20.0) / 3).description == "number"


def test_whole_numbers_without_a_gap_count_the_rows():
    count = np.random.default_rng(0).permutation(20) + 100_001.0
    assert Column.infer("c", count).description == "left out: it counts the rows"
    assert Column.infer("c", cells_of([*map(str, count.astype(int)), None])).why == "count"
    assert Column.infer("c", count[:19]).description == "number"
    assert Column.infer("c", np.where(count == 100_001, 7, count)).description == "number"
    assert Column.infer("c", np.append(count, 100_001)).description == "number"


def test_years_are_no_running_number():
    years = np.arange(2001.0, 2021.0)
    assert Column.infer("year", years).description == "number"
    assert Column.infer("c", cells_of([*map(str, years.astype(int)), None])).kind == "number"
    assert Column.infer("c", np.arange(2090.0, 2111.0)).why == "count"  # beyond all years
    assert Column.infer("c", np.arange(1.0, 2001.0)).why == "count"
    assert Column.infer("year_id", years).why == "all distinct"


def test_whole_numbers_of_pandas_with_blanks():
    assert Column.infer("c", cells_of(pd.Series([10, None, 7], dtype="Int64"))).description == "number, 33 % missing"


def test_what_the_user_says_counts():
    table = customers()
    reading = Columns.fit(table, {"income": "skip", "customer_id": "number", "plan": "text", "currency": "category"})
    kinds = {column.name: column.kind for column in reading.columns}
    assert kinds == {
        "customer_id": "number", "income": "skip", "plan": "text", "vip": "category", "since": "date",
        "currency": "category",
    }  # fmt: skip


def test_codes_are_categories_only_if_told():
    table = pd.DataFrame({"zip": [8000, 8001, 8000, 9000] * 5, "x": np.arange(20.0) / 2})
    assert Columns.fit(table, {}).features == ["x", "zip"]
    reading = Columns.fit(table, {"zip": "category"})
    assert reading.features == ["x", "zip = 8000", "zip = 8001", "zip = 9000"]
    words = table.assign(zip=table["zip"].astype(str))
    assert (reading.transform(words) == reading.transform(table)).all()


def test_labels_are_left_out():
    reading = Columns.fit(customers().assign(target=np.arange(60) % 7), {})
    assert "target" not in reading.features
    assert reading.describe().endswith("target: left out: labels, by its name")
    assert "target" in Columns.fit(customers().assign(target=np.arange(60) % 7), {"target": "number"}).features


@pytest.mark.parametrize(
    ("n", "values", "are"),
    [
        (60, lambda i: i % 7, True),
        (60, lambda i: f"class {i % 7}", True),
        (60, lambda i: i, False),
        (60, lambda i: i % 7 + 0.5, False),
        (40, lambda i: i, True),
        (60, lambda i: f"{i % 7}.25", False),
    ],
)
def test_a_name_alone_makes_no_labels(n, values, are):
    table = pd.DataFrame({"a": np.linspace(0, 1, n), "target": [values(i) for i in range(n)]})
    assert (Columns.fit(table, {}).columns[1].why == "labels, by its name") == are


@pytest.mark.parametrize(
    ("wishes", "says"),
    [
        ({"salary": "number"}, "no column 'salary'; there are 'customer_id', 'income'"),
        ({"Inkome": "number"}, r"no column 'Inkome' \(did you mean 'income'\?\); there are 'customer_id'"),
        ({"plan": "colour"}, "'plan' is to be 'colour', which should be one of number, category"),
        ({"plan": "number"}, "Column 'plan' should be a number, but has 'f|Column 'plan' should be a number"),
        ({"plan": "date"}, "Column 'plan' should be a date"),
        (dict.fromkeys(("income", "plan", "vip", "since"), "skip"), "No column of the table is left"),
    ],
)
def test_bad_wishes(wishes, says):
    with pytest.raises(ValueError, match=says):
        Columns.fit(customers(), wishes)


def test_names_that_are_there_twice():
    table = pd.DataFrame([[1, "a"], [2, "b"]], columns=["x", "x"])
    with pytest.raises(ValueError, match="more than one column named 'x'"):
        Columns.fit(table)


def test_when_a_table_is_looked_at():
    numbers = pd.DataFrame({"a": [1.0, 2], "b": [3, 4]})
    assert not needs_column_types(numbers, None)
    assert needs_column_types(numbers, {})
    assert not needs_column_types(numbers.to_numpy(), {})
    assert needs_column_types(numbers.assign(b=["x", "y"]), None)
    assert needs_column_types(numbers.assign(b=[np.nan, 1]), None)
    assert needs_column_types(pd.DataFrame({"id": range(20), "a": np.linspace(0, 1, 20)}), None)
    assert not needs_column_types(pd.DataFrame({"id": [1, 1] * 10, "a": np.linspace(0, 1, 20)}), None)
    assert non_numeric_columns(numbers.assign(b=[np.nan, 1], c=["x", "y"])) == ["b", "c"]


# --- rows


def test_rows_by_hand():
    table = pd.DataFrame({"b": ["x", "y", "x"], "a": [1.0, 2, 4], "d": ["2020-01-01", "2020-01-03", "2020-01-02"]})
    reading = Columns.fit(table)
    assert reading.features == ["a", "b = x", "b = y", "d"]
    assert reading.transform(table).tolist() == [[1, 1, 0, 18262], [2, 0, 1, 18264], [4, 1, 0, 18263]]
    np.testing.assert_allclose(reading.scale, [np.std([1, 2, 4]), 2**0.5, 2**0.5, np.std([0, 2, 1])])


def test_dates_come_round():
    days = pd.date_range("2020-01-01", periods=800, freq="D")
    reading = Columns.fit(pd.DataFrame({"d": days}))
    rows = reading.transform(pd.DataFrame({"d": ["2021-03-01", "2021-03-08", "2022-03-01"]}))
    names = reading.features
    assert [name.split(" (")[-1] for name in names[1:]] == [
        "time of year, sine)", "time of year, cosine)", "day of week, sine)", "day of week, cosine)",
    ]  # fmt: skip
    assert rows[0, 3:] == pytest.approx(rows[1, 3:])  # a week later
    assert rows[0, 1:3] == pytest.approx(rows[2, 1:3], abs=0.01)  # a year later
    hours = Columns.fit(pd.DataFrame({"d": pd.date_range("2020-01-01", periods=40, freq="h")})).features
    assert hours == ["d", "d (time of day, sine)", "d (time of day, cosine)"]


def test_two_categories_are_one_deviation_apart():
    reading = Columns.fit(customers())
    place = reading.features.index("plan = free")
    u = np.eye(3) / reading.scale[place]
    assert np.linalg.norm(u[0] - u[1]) == pytest.approx(1)


def test_numbers_alone_and_texts_alone_have_no_scale():
    assert Columns.fit(pd.DataFrame({"a": [1.0, None, 3], "b": [4, 5, 6]})).scale is None
    texts = pd.DataFrame({"text": ["a cat sat", "a dog ran", "cat and dog"]})
    reading = Columns.fit(texts)
    assert reading.scale is None
    assert reading.is_text
    assert reading.captions(texts) == texts["text"].tolist()
    assert Columns.fit(texts.assign(a=[1.0, 2, 3])).features[:2] == ["a", "text “and”"]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000))
def test_order_and_types_do_not_count(seed):
    """A table with its columns in another order, its numbers as words and its words as categories is the same one."""
    rng = np.random.default_rng(seed)
    table = customers(seed=seed).drop(columns="customer_id")
    table.loc[rng.integers(0, 60, 5), "income"] = np.nan
    table.loc[rng.integers(0, 60, 5), "plan"] = None
    other = table[rng.permutation(table.columns)].copy()
    other["plan"] = other["plan"].astype("category")
    other["income"] = [None if math.isnan(value) else repr(value) for value in other["income"]]
    other["vip"] = other["vip"].astype(str)
    other["since"] = other["since"].dt.strftime("%Y-%m-%d")
    one, two = Columns.fit(table), Columns.fit(other)
    assert one.features == two.features
    rows = one.transform(table)
    assert (two.transform(other) == rows).all()
    assert (one.transform(other) == rows).all()
    assert (one.scale == two.scale).all()
    order = rng.permutation(60)
    assert one.transform(table.iloc[order]) == pytest.approx(rows[order])


def test_the_same_from_any_library():
    polars = pytest.importorskip("polars")
    table = customers()
    reading = Columns.fit(table)
    rows = reading.transform(table)
    theirs = polars.DataFrame({name: table[name].tolist() for name in table})
    assert (reading.transform(theirs) == rows).all()
    assert (Columns.fit(theirs).transform(theirs) == rows).all()
    assert (reading.transform(Frame({name: table[name].to_numpy() for name in table})) == rows).all()
    assert (reading.transform(table.to_numpy()) == rows).all()


# --- new rows


def test_a_new_category_is_blank_and_said():
    table = customers()
    reading = Columns.fit(table)
    new = table[:2].assign(plan=["gold", "free"])
    with pytest.warns(
        UserWarning, match="Column 'plan' has categories that fit did not see, treated as missing: 'gold'"
    ):
        rows = reading.transform(new)
    blank = reading.transform(table[:2].assign(plan=[None, "free"]))
    assert (rows == blank).all()
    assert np.isfinite(rows).all()


def test_columns_that_are_missing_or_more():
    table = customers()
    reading = Columns.fit(table)
    with pytest.raises(
        ValueError, match=r"X has no column 'income', which .* 'currency'. Add it empty to have it filled"
    ):
        reading.transform(table.drop(columns="income"))
    rows = reading.transform(table.drop(columns=["customer_id", "currency"]).assign(more=1))
    assert (rows == reading.transform(table)).all()
    with pytest.raises(ValueError, match="X has 5 features, but the estimator is expecting 6"):
        reading.transform(table.to_numpy()[:, 1:])


@pytest.mark.parametrize(
    ("name", "cell", "says"),
    [
        ("income", "much", "Column 'income' has cells that are no number, treated as missing: 'much'"),
        ("since", "soon", "Column 'since' has cells that are no date, treated as missing: 'soon'"),
    ],
)
def test_cells_that_are_not_what_they_were(name, cell, says):
    table = customers()
    reading = Columns.fit(table)
    new = table[:3].astype(object)
    new.loc[1, name] = None
    blank = reading.transform(new)
    new.loc[1, name] = "unknown"
    assert (reading.transform(new) == blank).all()
    new.loc[1, name] = cell
    with pytest.warns(UserWarning, match=says):
        rows = reading.transform(new)
    assert (rows == blank).all()


@pytest.mark.parametrize(
    ("cells", "rows"),
    [
        (["12.50 €", "1300 €", "-4.20€"], [12.5, 1300, -4.2]),
        (["$1,200.00", "-$3.50", "$ 7.25"], [1200, -3.5, 7.25]),
        (["1.250 €", "885 €", "2.000 €"], [1250, 885, 2000]),
        (["12,5 %", "3%", "7"], [12.5, 3, 7]),
        (["66.9kg", "70 kg", "1e2 kg"], [66.9, 70, 100]),
        (["13.11.25", "01.12.24", "02.12.24"], [20405, 20058, 20059]),
        (["2024-03", "2023-12", "2024-01"], [19783, 19692, 19723]),
    ],
)
def test_what_is_written_with_a_sign_or_in_short(cells, rows):
    reading = Columns.fit(pd.DataFrame({"a": cells}))
    again = Columns.from_dict(json.loads(json.dumps(reading.to_dict())))
    assert again.transform(pd.DataFrame({"a": cells}))[:, 0].tolist() == pytest.approx(rows)


def test_infinity_is_refused():
    table = customers()
    new = table[:3].assign(income=math.inf)
    with pytest.raises(ValueError, match="contains infinity: column 'income', row 0"):
        Columns.fit(table).transform(new)


def test_a_file_that_is_written_otherwise_is_told_with_how_much_of_it_is_lost():
    reading = Columns.fit(
        pd.DataFrame({"income": [f"{i}.5" for i in range(40)], "day": ["2024-12-31", "2024-11-30"] * 20})
    )
    new = pd.DataFrame({"income": [f"1.00{i % 9},5" for i in range(30)], "day": ["31.12.2024"] * 29 + [None]})
    with pytest.warns(UserWarning, match="treated as missing") as told:
        reading.transform(new)
    of_days, of_income = sorted(str(each.message) for each in told)
    assert of_income.endswith(" and 1 more. These are 30 of its 30 cells; in fit they were written as 1234.5.")
    assert of_days.endswith("'31.12.2024'. These are 29 of its 29 cells; in fit they were written as 2024-12-31.")
    new = pd.DataFrame({"income": ["1.5"] * 20 + ["much"] * 10, "day": ["2024-12-31"] * 30})
    with pytest.warns(UserWarning, match=r"treated as missing: 'much'\.$"):
        reading.transform(new)


def test_a_column_in_capitals_is_told():
    table = pd.DataFrame({"age": [1.5, 2.5, 3.0], "pay": [2.5, 1.5, 3.5]})
    reading = Columns.fit(table)
    with pytest.raises(ValueError, match=r"no column 'age', which fit saw; it has 'Age'\. Capitals count: rename it\."):
        reading.transform(table.rename(columns={"age": "Age"}))
    with pytest.raises(ValueError, match=r"no column 'age', 'pay', .* it has 'Age'\. Add them empty"):
        reading.transform(table.rename(columns={"age": "Age"}).drop(columns="pay"))


def test_a_wish_bears_cells_that_are_something_else():
    cells = ["1.5", "2.5", "x", "y", "3.5"]
    table = pd.DataFrame({"a": cells, "b": range(5)})
    assert Columns.fit(table, {}).columns[0].kind == "category"
    reading = Columns.fit(table, {"a": "number"})
    assert reading.columns[0].description == "number; 2 cells are no number ('x', 'y'), counted as missing"
    assert Columns.from_dict(json.loads(json.dumps(reading.to_dict()))).describe() == reading.describe()
    with pytest.raises(ValueError, match="Column 'a' should be a number, but has 'x'"):
        Columns.fit(table.assign(a=["1.5", "2.5", "x", "y", "z"]), {"a": "number"})


def test_a_column_saved_before_unread_cells_were_counted():
    saved = Columns.fit(customers()).to_dict()
    for column in saved["columns"]:
        del column["unread"], column["unread_words"]
    assert Columns.from_dict(saved).describe() == Columns.fit(customers()).describe()


def test_kept_as_json():
    table = customers().assign(text=[f"words of many kinds {i % 7}" for i in range(60)])
    reading = Columns.fit(table)
    again = Columns.from_dict(json.loads(json.dumps(reading.to_dict())))
    assert again.describe() == reading.describe()
    assert abs(again.transform(table) - reading.transform(table)).max() == 0
    damaged = reading.to_dict()
    damaged["columns"] = damaged["columns"][2:]
    with pytest.raises(ValueError, match="do not fit together"):
        Columns.from_dict(damaged)
    damaged["columns"][0]["kind"] = "colour"
    with pytest.raises(ValueError, match="unknown kind 'colour'"):
        Columns.from_dict(damaged)


# --- blanks


def low_rank(n=400, d=12, q=2, noise=0.1):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, q)) @ rng.normal(size=(q, d)) * 3 + noise * rng.normal(size=(n, d)) + 5


def test_blanks_are_filled_from_the_rest_of_the_row():
    whole = low_rank()
    hidden = np.random.default_rng(1).random(whole.shape) < 0.2
    rows = np.where(hidden, np.nan, whole)
    filled = Fill.fit(rows).transform(rows)
    assert (filled[~hidden] == whole[~hidden]).all()
    error = (filled - whole)[hidden].std()
    by_means = (whole - np.nanmean(rows, 0))[hidden].std()
    assert error < 0.15 * by_means
    assert np.isnan(rows[hidden]).all()


def test_the_fill_is_the_expectation_of_a_gaussian():
    """x_m = μ_m + C_mo C_oo^-1 (x_o - μ_o), with C = W W' + σ² I."""
    fill = Fill.fit(low_rank(d=6))
    row = fill.mean + fill.deviation * np.array([0.5, -0.2, 0.3, 0.1, np.nan, np.nan])
    C = fill.factors @ fill.factors.T + fill.noise * np.eye(6)
    expected = C[4:, :4] @ np.linalg.solve(C[:4, :4], [0.5, -0.2, 0.3, 0.1])
    found = (fill.transform(row[None])[0] - fill.mean) / fill.deviation
    assert found[4:] == pytest.approx(np.clip(expected, (fill.low - fill.mean)[4:], None), abs=1e-9)


def test_a_row_of_blanks_is_the_mean():
    fill = Fill.fit(low_rank())
    assert fill.transform(np.full((1, 12), np.nan))[0] == pytest.approx(fill.mean)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_few_columns_are_filled(d):
    rows = low_rank(d=d)
    rows[::3, 0] = np.nan
    assert np.isfinite(Fill.fit(rows).transform(rows)).all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_column_whose_mean_is_no_number_leaves_the_others_filled():
    rows = low_rank(d=6)
    rows[:, 0] = np.finfo(np.float64).max  # the sum is infinite
    rows[::4, 1] = np.nan
    assert np.isfinite(Fill.fit(rows).transform(rows)[:, 1]).all()


# --- words


def test_telling_words_by_hand():
    means = np.array([[0.6, 0.5, 0.0], [0.0, 0.5, 0.2]])
    # whole: 0.6, 1.0, 0.2; scores: 0.6 log 2 = 0.42, 0.5 log 1.6 = 0.24, 0.2 log 4 = 0.28
    assert telling_words(means, ["cat", "the", "dog"], 2) == [["cat", "the"], ["dog", "the"]]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (2019, "2019"),
        (95_833, "95833"),
        (1234.56, "1234.56"),
        (1234.5, "1234.5"),
        (300, "300"),
        (-0.123456, "-0.1235"),
        (99.999, "100"),
        (1_234_567.8, "1,234,568"),
    ],
)
def test_figures(value, said):
    assert Column("a", "number").shown(value) == said


def test_two_numbers_of_one_phrase_are_written_in_one_way():
    income = Column("a", "number")
    assert [income.shown(48_722, 141_814), income.shown(141_814, 48_722)] == ["48,722", "141,814"]
    assert [income.shown(48_722, 62_476), income.shown(9_512.5, 141_814)] == ["48722", "9512.5"]


def test_decoded_rows_in_words():
    frame = pd.DataFrame(
        {
            "since": ["2024-01-01", "2024-01-03", "2024-01-02", "2024-01-03"],
            "income": [1200.0, 2400.0, 52_000.0, 3.0],
            "plan": ["free", "premium", "basic", "free"],
        }
    )
    reading = Columns.fit(frame)
    assert reading.features == ["income", "plan = basic", "plan = free", "plan = premium", "since"]
    rows = [[51_999.6, 0.2, -0.1, 0.8, 19724.2], [12.25, -1, -1, -1, 19723], [0, 0.001, 1.3, 0.5, 19724]]
    said = reading.in_words(np.array(rows))
    assert list(said.columns) == ["since", "income", "plan"]
    assert said["income"].tolist() == ["52000", "12.25", "0"]
    assert said["since"].tolist() == ["2024-01-02", "2024-01-01", "2024-01-02"]
    assert said["plan"].tolist() == [
        "premium 80 %, basic 20 %",
        "basic 33 %, free 33 %, premium 33 %",
        "free 67 %, premium 33 %",
    ]
    with pytest.raises(ValueError, match=r"shape \(3, 4\), but the table becomes 5 numbers"):
        reading.in_words(np.array(rows)[:, 1:])
