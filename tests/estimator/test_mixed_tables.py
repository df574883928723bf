"""Estimators on tables: words, dates and blanks go in as they are."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import diffclust
from diffclust import TELL, KMeansNet

SHORT = {"epochs": 2, "pretrain_epochs": 2, "device": "cpu", "random_state": 0}

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # training is far too short


@pytest.fixture(scope="module")
def table():
    """Two kinds of customers, and some blanks."""
    rng = np.random.default_rng(0)
    rich = np.arange(80) % 2 == 0
    frame = pd.DataFrame(
        {
            "income": np.where(rich, 90_000, 20_000) + rng.normal(0, 5_000, 80),
            "plan": np.where(rich, "premium", rng.choice(["free", "basic"], 80)),
            "since": pd.date_range("2022-01-01", periods=80).strftime("%Y-%m-%d"),
            "id": [f"c{i}" for i in range(80)],
        }
    )
    frame.loc[::7, "income"] = np.nan
    frame.loc[3::9, "plan"] = None
    return frame


@pytest.fixture(scope="module")
def model(table):
    return TELL(2, **SHORT).fit(table)


def test_a_table_there_and_back(tmp_path, table, model):
    assert model.labels_.tolist() == model.predict(table).tolist()
    assert metrics_of(model, table) > 0.95
    assert list(model.feature_names_in_) == ["income", "plan", "since", "id"]
    assert model.n_features_in_ == 4
    assert model.columns_.describe().splitlines()[-1] == "id: left out: all its values differ, as those of an id do"
    model.save(tmp_path)
    again = diffclust.load(tmp_path)
    assert (again.predict(table) == model.labels_).all()
    assert again.columns_.describe() == model.columns_.describe()
    assert again.inverse_transform(again.cluster_centers_).shape == (2, len(model.columns_.features))


def metrics_of(model, table):
    return diffclust.metrics.accuracy(np.arange(len(table)) % 2, model.labels_)


def test_wishes_are_kept(tmp_path, table):
    model = TELL(2, columns={"since": "skip"}, scale=True, **SHORT).fit(table)
    model.save(tmp_path)
    again = diffclust.load(tmp_path)
    assert again.get_params()["columns"] == {"since": "skip"}
    assert again.get_params()["scale"] is True
    assert (again.predict(table.drop(columns="since")) == model.labels_).all()


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 100))
def test_order_and_types_do_not_change_the_labels(table, model, seed):
    rng = np.random.default_rng(seed)
    other = table[rng.permutation(table.columns)].copy()
    other["plan"] = other["plan"].astype("category")
    other["since"] = pd.to_datetime(other["since"])
    other["income"] = other["income"].astype("Float64")
    assert (TELL(2, **SHORT).fit_predict(other) == model.labels_).all()
    rows = rng.permutation(len(table))
    assert (model.predict(other.iloc[rows]) == model.labels_[rows]).all()


def test_new_rows(table, model):
    assert model.predict(table[:1].assign(income=np.nan, since=None)).shape == (1,)
    for ask in (model.predict, model.transform, model.columns_.transform):
        with pytest.warns(UserWarning, match="categories that fit did not see") as warned:
            ask(table[:1].assign(plan="gold"))
        assert [each.filename for each in warned] == [__file__]
    with pytest.raises(ValueError, match="no column 'income'"):
        model.predict(table[["plan", "since"]])
    assert model.predict(table[["since", "plan", "income"]]).tolist() == model.labels_.tolist()
    assert model.predict(table.to_numpy()).tolist() == model.labels_.tolist()


@pytest.mark.parametrize("values", [np.float64, np.int64])
def test_numbers_alone_are_as_ever(values):
    X = np.random.default_rng(0).normal(0, 50, (60, 4)).astype(values)
    frame = pd.DataFrame(X, columns=list("dcba"))
    plain, framed = TELL(2, **SHORT).fit(X), TELL(2, **SHORT).fit(frame)
    assert not hasattr(framed, "columns_")
    assert (plain.cluster_centers_ == framed.cluster_centers_).all()
    with pytest.raises(ValueError, match="feature names should match"):
        framed.predict(frame[list("abcd")])
    with pytest.raises(ValueError, match=r"contains NaN or words, in 'c', but TELL was fitted on numbers"):
        framed.predict(frame.assign(c=np.nan))
    looked_at = TELL(2, columns={}, **SHORT).fit(frame)
    assert looked_at.predict(frame.assign(c=np.nan)).shape == (60,)


def test_blank_arrays_are_refused_as_ever():
    X = np.random.default_rng(0).normal(size=(30, 3))
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        TELL(2, **SHORT).fit(X)


def test_a_list_of_texts_is_told_what_to_be():
    with pytest.raises(ValueError, match=r"X is a list of texts: .* pandas\.DataFrame\(\{'text': texts\}\)"):
        TELL(2, **SHORT).fit(["a cat sat", "a dog ran", "cats and dogs"])


@pytest.mark.parametrize(
    ("settings", "says", "error"),
    [
        ({"columns": {"plan": "colour"}}, "'plan' is to be 'colour'", ValueError),
        ({"columns": ["plan"]}, "should be a dictionary of kinds", TypeError),
        ({"columns": {"salary": "skip"}}, "no column 'salary'", ValueError),
        ({"scale": "yes"}, "scale='yes' should be", ValueError),
    ],
)
def test_bad_settings(table, settings, says, error):
    with pytest.raises(error, match=says):
        TELL(2, **SHORT, **settings).fit(table)


def test_scale_is_what_the_user_says():
    X = np.random.default_rng(0).normal(size=(50, 3)) * [1, 1.5, 2]
    scales = {wish: TELL(2, scale=wish, **SHORT).fit(X).model_.autoencoder.scale for wish in ("auto", True, False)}
    assert scales[True].numpy() == pytest.approx(X.std(0), rel=1e-5)
    assert scales[False].numpy() == pytest.approx(np.full(3, X.std(0).mean()), rel=0.1)
    assert len(set(scales["auto"].tolist())) == 1
    dense = TELL(2, scale=True, network="dense", **SHORT).fit(X)
    assert dense.model_.autoencoder.scale.numpy() == pytest.approx(X.std(0), rel=1e-5)


def test_explanations_speak_of_the_table(table, model):
    cluster = model.explain_cluster(int(model.labels_[0]), table)
    facts = {fact.column: fact for fact in cluster.columns}
    assert facts["plan"].sentence.startswith("plan = premium ")
    own, whole = facts["plan"].shares["premium"]
    assert own > 0.9
    assert 0.4 < whole < 0.6
    assert "sd above (" in facts["income"].sentence
    assert cluster.said.split(" ")[0] in ("plan", "income")
    assert cluster.to_dict()["columns"][0]["column"] in ("plan", "income")
    why = model.explain(table[:1])[0]
    assert any(phrase in why.sentence for phrase in ("plan = premium", "sd above", "plan is not"))
    assert model.explain_pair(table[:1], table[1:2]).feature_names == model.columns_.features


def test_streams_of_tables(table):
    model = KMeansNet(2, **SHORT)
    model.partial_fit(table[:40])
    assert model.columns_.names == list(table.columns)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(table[40:])
    assert len(model.labels_) == 40


def test_together_each_with_its_own_reading(table, model):
    one, other = diffclust.fit_together([TELL(2, **SHORT), TELL(2, columns={"since": "skip"}, **SHORT)], table)
    assert (one.labels_ == model.labels_).all()
    assert "since" in one.columns_.features
    assert "since" not in other.columns_.features


def test_pipelines(table):
    numbers = make_pipeline(
        make_column_transformer(
            (StandardScaler(), ["income"]),
            (OneHotEncoder(sparse_output=False), ["plan"]),
            verbose_feature_names_out=False,
        ),
        TELL(2, **SHORT),
    ).set_output(transform="pandas")
    whole = table.dropna()
    embedding = numbers.fit_transform(whole)
    assert list(embedding.columns) == [f"tell{i}" for i in range(embedding.shape[1])]
    framed = TELL(2, **SHORT).set_output(transform="pandas").fit(table).transform(table)
    assert list(framed.index) == list(table.index)


def as_polars(table):
    polars = pytest.importorskip("polars")
    return polars.DataFrame({name: [None if v != v else v for v in table[name].tolist()] for name in table})


def test_polars_in_and_out(table, model):
    polars = pytest.importorskip("polars")
    theirs = as_polars(table)
    fitted = TELL(2, **SHORT).set_output(transform="polars").fit(theirs)
    assert (fitted.labels_ == model.labels_).all()
    embedding = fitted.transform(theirs)
    assert isinstance(embedding, polars.DataFrame)
    assert embedding.columns == list(fitted.get_feature_names_out())
    assert (model.predict(theirs[["since", "id", "plan", "income"]].reverse()) == model.labels_[::-1]).all()


def test_types_of_polars_do_not_change_the_labels(table, model):
    polars = pytest.importorskip("polars")
    column = polars.col
    theirs = as_polars(table).select(
        column("plan").cast(polars.Categorical),
        column("id"),
        column("since").str.to_date(),
        column("income").cast(polars.Decimal(18, 9)).cast(polars.Float64),
    )
    assert (model.predict(theirs) == model.labels_).all()
    assert (TELL(2, **SHORT).fit_predict(theirs) == model.labels_).all()


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_table_within_a_pipeline(table, model, kind):
    """What scikit-learn lets through is read as the table was; labels go by names, not by the order of columns."""
    given = table if kind == "pandas" else as_polars(table)
    let_through = make_column_transformer(
        ("passthrough", ["plan", "id", "since"]), ("passthrough", ["income"]), verbose_feature_names_out=False
    )
    pipeline = make_pipeline(let_through, TELL(2, **SHORT)).set_output(transform=kind)
    assert (pipeline.fit_predict(given) == model.labels_).all()
    assert (pipeline.predict(given) == model.labels_).all()
    assert type(pipeline.transform(given)) is type(given)


def test_parquet_in_parts(tmp_path, table, model):
    table.to_parquet(tmp_path / "t.parquet", row_group_size=11)
    assert (model.predict(tmp_path / "t.parquet") == model.labels_).all()
