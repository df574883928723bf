import itertools
import math
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn.metrics as sk
from hypothesis import given, settings
from hypothesis import strategies as st

from diffclust import metrics

WITH_LABELS = [
    metrics.accuracy,
    metrics.purity,
    metrics.nmi,
    metrics.ari,
    metrics.ami,
    metrics.homogeneity,
    metrics.completeness,
    metrics.v_measure,
    metrics.pair_precision,
]
LABEL_FREE = [metrics.silhouette, metrics.davies_bouldin, metrics.calinski_harabasz, metrics.scatter]


def random_labels(n=60, k_true=4, k_pred=5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, k_true, n), rng.integers(0, k_pred, n)


def blobs(seed=0, n=90, d=4, k=3):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % k
    return rng.normal(size=(n, d)) + 3 * rng.normal(size=(k, d))[labels], labels


# --- against independent truths


def brute_accuracy(y, p):
    """Try every naming of clusters by classes, dummies standing for 'no class' and 'no cluster'."""
    classes, clusters = sorted(set(y)), sorted(set(p))
    names = classes + [None] * len(clusters)
    return max(
        np.mean([name[b] == a for a, b in zip(y, p, strict=True)])
        for chosen in itertools.permutations(names, len(clusters))
        for name in [dict(zip(clusters, chosen, strict=True))]
    )


@pytest.mark.parametrize(("k_true", "k_pred"), [(3, 3), (4, 2), (2, 4), (1, 3), (3, 1)])
def test_accuracy_is_the_best_of_all_namings(k_true, k_pred):
    for seed in range(5):
        y, p = random_labels(20, k_true, k_pred, seed)
        assert metrics.accuracy(y, p) == pytest.approx(brute_accuracy(y.tolist(), p.tolist()))


def test_accuracy_is_not_greedy():
    # Greedy naming takes 5 of class 0 first and is left with 0: 5 right. The best gives 4 + 4.
    y, p = [0] * 5 + [1] * 4 + [0] * 4, [0] * 5 + [0] * 4 + [1] * 4
    assert metrics.accuracy(y, p) == pytest.approx(8 / 13)
    assert metrics.match(y, p) == {0: 1, 1: 0}


def test_match_explains_accuracy():
    y, p = random_labels(seed=3)
    named = metrics.match(y, p)
    assert len(named) == 4  # five clusters, four classes: one cluster stays unnamed
    assert len(set(named.values())) == 4
    right = np.mean([named.get(cluster) == true for true, cluster in zip(y, p, strict=True)])
    assert metrics.accuracy(y, p) == pytest.approx(right)


def test_match_speaks_in_the_given_labels():
    named = metrics.match(["cat", "cat", "dog"], np.array([7, 7, 3]))
    assert named == {7: "cat", 3: "dog"}
    assert all(type(cluster) is int for cluster in named)


@pytest.mark.parametrize("seed", range(5))
def test_pair_precision_is_the_double_loop(seed):
    y, p = random_labels(25, seed=seed)
    pairs = [(i, j) for i, j in itertools.combinations(range(25), 2) if p[i] == p[j]]
    assert metrics.pair_precision(y, p) == pytest.approx(np.mean([y[i] == y[j] for i, j in pairs]))


def test_pair_precision_by_hand():
    # cluster a: 2 of class 0, 1 of class 1 -> 1 good pair of 3; cluster b: 2 of class 1 -> 1 of 1
    assert metrics.pair_precision([0, 0, 1, 1, 1], list("aaabb")) == pytest.approx(2 / 4)


def test_pair_precision_without_pairs_has_no_wrong_one():
    assert metrics.pair_precision([0, 0, 1], [0, 1, 2]) == 1.0


@pytest.mark.slow
def test_a_million_rows_do_not_overflow():
    n = 1_000_000  # products of two counts of pairs are beyond 64 bits
    y = np.zeros(n, np.int8)
    y[: n // 2] = 1
    p = np.zeros(n, np.int8)
    half = n // 2
    assert metrics.pair_precision(y, p) == pytest.approx(half * (half - 1) / (n * (n - 1) / 2), rel=1e-12)
    assert metrics.ari(y, p) == 0.0
    assert metrics.ari(y, y) == 1.0


def test_purity_by_hand():
    assert metrics.purity([0, 0, 1, 1, 2], list("aabbb")) == pytest.approx(4 / 5)


def test_nmi_by_its_formula():
    # contingency [[2, 0], [0, 2], [0, 1]] of 5
    log = math.log
    information = 2 / 5 * log(5 / 2) + 2 / 5 * log(5 / 3) + 1 / 5 * log(5 / 3)
    h_class = -(2 * 2 / 5 * log(2 / 5) + 1 / 5 * log(1 / 5))
    h_cluster = -(2 / 5 * log(2 / 5) + 3 / 5 * log(3 / 5))
    y, p = [0, 0, 1, 1, 2], list("aabbb")
    assert metrics.nmi(y, p, "geometric") == pytest.approx(information / math.sqrt(h_class * h_cluster))
    assert metrics.nmi(y, p) == pytest.approx(2 * information / (h_class + h_cluster))


def test_k_means_net_table_4():
    # The geometric mean of homogeneity 65.04 and completeness 78.71 is the printed NMI, 71.55.
    y, p = random_labels(200, 3, 6, seed=1)
    h, c = metrics.homogeneity(y, p), metrics.completeness(y, p)
    assert metrics.nmi(y, p, "geometric") == pytest.approx(math.sqrt(h * c))
    assert math.sqrt(65.04 * 78.71) == pytest.approx(71.55, abs=0.005)


@pytest.mark.parametrize("seed", range(8))
def test_agrees_with_scikit_learn(seed):
    y, p = random_labels(80, 2 + seed % 4, 1 + seed % 5, seed)
    p = np.where(np.arange(80) % 3 == 0, y, p)
    ours = metrics.scores(y, p)
    theirs = {
        "nmi": sk.normalized_mutual_info_score(y, p),
        "nmi_geometric": sk.normalized_mutual_info_score(y, p, average_method="geometric"),
        "ari": sk.adjusted_rand_score(y, p),
        "ami": sk.adjusted_mutual_info_score(y, p),
        "homogeneity": sk.homogeneity_score(y, p),
        "completeness": sk.completeness_score(y, p),
        "v_measure": sk.v_measure_score(y, p),
    }
    for name, value in theirs.items():
        assert ours[name] == pytest.approx(value, abs=1e-12), name


def test_scores_are_the_functions():
    y, p = random_labels()
    assert metrics.scores(y, p) == {
        "acc": metrics.accuracy(y, p),
        "nmi": metrics.nmi(y, p),
        "nmi_geometric": metrics.nmi(y, p, average="geometric"),
        "ari": metrics.ari(y, p),
        "ami": metrics.ami(y, p),
        "purity": metrics.purity(y, p),
        "homogeneity": metrics.homogeneity(y, p),
        "completeness": metrics.completeness(y, p),
        "v_measure": metrics.v_measure(y, p),
        "pair_precision": metrics.pair_precision(y, p),
    }
    assert all(type(value) is float for value in metrics.scores(y, p).values())


def test_one_cluster_for_everything():
    y = [0, 0, 1, 1, 2, 2]
    assert metrics.scores(y, [5] * 6) == pytest.approx(
        {
            "acc": 1 / 3,
            "nmi": 0,
            "nmi_geometric": 0,
            "ari": 0,
            "ami": 0,
            "purity": 1 / 3,
            "homogeneity": 0,
            "completeness": 1,
            "v_measure": 0,
            "pair_precision": 3 / 15,
        },
        abs=1e-12,
    )


# --- properties

labelling = st.lists(st.integers(0, 5), min_size=1, max_size=40)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40), st.randoms())
@settings(max_examples=80, deadline=None)
def test_names_and_order_do_not_matter(pairs, random):
    y, p = map(list, zip(*pairs, strict=True))
    names = ["e", "d", "c", "b", "a"]
    random.shuffle(pairs)
    y2, p2 = map(list, zip(*pairs, strict=True))
    before, after = metrics.scores(y, p), metrics.scores([10 - a for a in y2], [names[b] for b in p2])
    assert after == pytest.approx(before, abs=1e-9)
    for name, value in before.items():
        assert value <= 1 + 1e-12
        assert name in ("ari", "ami") or value >= 0
    assert before["purity"] >= before["acc"]


@given(labelling)
@settings(max_examples=60, deadline=None)
def test_perfect_is_one(y):
    assert metrics.scores(y, [f"cluster {a}" for a in y]) == pytest.approx(dict.fromkeys(metrics.scores(y, y), 1))


@given(labelling)
@settings(max_examples=30, deadline=None)
def test_effective_clusters_lie_between_one_and_k(labels):
    effective = metrics.effective_clusters(labels)
    assert 1 - 1e-9 <= effective <= len(set(labels)) + 1e-9


def test_many_labels_raise_no_warning():
    # scikit-learn warns of more than half as many classes as rows; a clustering may well be like that.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metrics.scores(np.arange(50) // 2, np.arange(50))


# --- labels of every kind


@pytest.mark.parametrize(
    "p",
    [
        ["a", "a", "b", "c"],
        np.array(["a", "a", "b", "c"]),
        [1, 1, "1", "x"],
        (True, True, 3, 4),
        np.array([1.5, 1.5, 2.5, -1.0]),
        pd.Series(["a", "a", "b", "c"]),
        pd.Categorical(["a", "a", "b", "c"]),
        pd.Series([1, 1, 2, 3], dtype="Int64"),
        np.array([0, 0, 1, 2], dtype=np.uint8),
    ],
)
def test_any_labels_will_do(p):
    assert metrics.accuracy([5, 5, 6, 7], p) == 1.0
    assert len(metrics.match([5, 5, 6, 7], p)) == 3


# --- bad input


@pytest.mark.parametrize("score", [*WITH_LABELS, metrics.match, metrics.scores])
def test_bad_labels_are_refused_with_numbers(score):
    with pytest.raises(ValueError, match="y_true has 3 labels but y_pred has 2"):
        score([0, 1, 2], [0, 1])
    with pytest.raises(ValueError, match="y_true is empty: 0 labels"):
        score([], [])
    with pytest.raises(ValueError, match=r"y_pred .* shape \(2, 1\)"):
        score([0, 1], [[0], [1]])
    with pytest.raises(ValueError, match="y_true has 2 missing"):
        score([0.0, np.nan, np.nan], [0, 1, 2])


@pytest.mark.parametrize("labels", [["a", None, "b"], ["a", float("nan"), "b"], pd.Series([1, None, 2], dtype="Int64")])
def test_missing_labels_hide_in_no_type(labels):
    with pytest.raises(ValueError, match=r"y_pred has 1 missing .* among 3"):
        metrics.accuracy([0, 1, 2], labels)


def test_unknown_average():
    with pytest.raises(ValueError, match="average='max'"):
        metrics.nmi([0, 1], [0, 1], average="max")


@pytest.mark.parametrize("score", [*LABEL_FREE, metrics.label_free_scores])
def test_bad_rows_are_refused_with_numbers(score):
    with pytest.raises(ValueError, match="Z has 4 rows but there are 3 labels"):
        score(np.ones((4, 2)), [0, 1, 2])
    with pytest.raises(ValueError, match=r"shape \(4, 2, 2\)"):
        score(np.ones((4, 2, 2)), [0, 1, 2, 3])
    with pytest.raises(ValueError, match="1 values that are NaN"):
        score(np.array([[0.0, 1.0], [np.nan, 1.0]]), [0, 1])
    with pytest.raises(ValueError, match="real numbers"):
        score(np.array([["a", "b"], ["c", "d"]]), [0, 1])
    with pytest.raises(ValueError, match="labels is empty"):
        score(np.ones((0, 2)), [])


# --- without labels


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [np.float64, np.float32, sp.csr_matrix, pd.DataFrame])
def test_label_free_agree_with_scikit_learn(seed, kind):
    Z, labels = blobs(seed)
    ours = metrics.label_free_scores(kind(Z), labels + 10)
    assert ours["silhouette"] == pytest.approx(sk.silhouette_score(Z, labels), rel=1e-4)
    assert ours["davies_bouldin"] == pytest.approx(sk.davies_bouldin_score(Z, labels), rel=1e-4)
    assert ours["calinski_harabasz"] == pytest.approx(sk.calinski_harabasz_score(Z, labels), rel=1e-4)
    means = np.stack([Z[labels == j].mean(0) for j in range(3)])[labels]
    assert ours["scatter"] == pytest.approx(((Z - means) ** 2).sum() / ((Z - Z.mean(0)) ** 2).sum(), rel=1e-4)
    assert ours["effective_clusters"] == pytest.approx(3)


def test_scale_and_place_do_not_matter():
    Z, labels = blobs()
    ours = metrics.label_free_scores(Z, labels)
    assert metrics.label_free_scores(1000 * Z + 50, labels) == pytest.approx(ours)


def test_integers_are_rows_too():
    Z = np.array([[0], [2], [200], [202]], dtype=np.uint8)  # in bytes, 0 - 200 is not -200
    assert metrics.scatter(Z, [0, 0, 1, 1]) == pytest.approx(4 / (4 + 4 * 100**2))


def test_silhouette_samples_large_data_by_seed():
    Z, labels = blobs(n=3000)
    part = metrics.silhouette(Z, labels, sample=300)
    assert part == metrics.silhouette(Z, labels, sample=300)
    assert part != metrics.silhouette(Z, labels, sample=300, random_state=1)
    assert part == pytest.approx(metrics.silhouette(Z, labels), abs=0.05)
    with pytest.raises(ValueError, match="sample=1"):
        metrics.silhouette(Z, labels, sample=1)


def test_one_cluster_gives_nan_not_an_error():
    Z, _ = blobs()
    ours = metrics.label_free_scores(Z, np.zeros(90))
    assert all(np.isnan(ours[name]) for name in ("silhouette", "davies_bouldin", "calinski_harabasz"))
    assert ours["scatter"] == 1.0
    assert ours["effective_clusters"] == 1.0


def test_every_row_its_own_cluster():
    Z, _ = blobs()
    ours = metrics.label_free_scores(Z, np.arange(90))
    assert np.isnan(ours["silhouette"])
    assert np.isnan(ours["calinski_harabasz"])
    assert ours["scatter"] == 0.0
    assert ours["effective_clusters"] == pytest.approx(90)


def test_points_without_width():
    points = np.array([[0.0], [0.0], [1.0], [1.0]])
    assert metrics.calinski_harabasz(points, [0, 0, 1, 1]) == np.inf
    assert metrics.davies_bouldin(points, [0, 0, 1, 1]) == 0.0
    assert metrics.davies_bouldin(points, [0, 1, 0, 1]) == np.inf  # both centres at 1/2
    assert np.isnan(metrics.scatter(np.ones((4, 2)), [0, 0, 1, 1]))
    assert np.isnan(metrics.calinski_harabasz(np.ones((4, 2)), [0, 0, 1, 1]))


def test_effective_clusters_by_hand():
    assert metrics.effective_clusters(["a", "b", "c", "d"]) == pytest.approx(4)
    assert metrics.effective_clusters([0, 0, 0, 1]) == pytest.approx(
        math.exp(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
    )


def test_imports_neither_torch_nor_scikit_learn():
    code = "import sys, diffclust.metrics; print([m for m in ('torch', 'sklearn', 'pandas') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_confusion_puts_clusters_beside_their_classes():
    classes, clusters, table = metrics.confusion(["a", "b", "b", "c", "c", "c", "a"], [2, 0, 0, 1, 1, 0, 7])
    assert (classes, clusters) == (["a", "b", "c"], [2, 0, 1, 7])
    assert table.tolist() == [[1, 0, 0, 1], [0, 2, 0, 0], [0, 1, 2, 0]]
