"""Clusters as a tree."""

import numpy as np
import pytest
from scipy.cluster import hierarchy as scipy_hierarchy

from diffclust.nn.hierarchy import cut_tree, ward_tree


def test_the_tree_of_single_rows_is_scipys() -> None:
    x = np.random.default_rng(0).normal(size=(12, 3))
    np.testing.assert_allclose(ward_tree(x, np.ones(12, int)), scipy_hierarchy.linkage(x, "ward"), atol=1e-10)


def test_a_centre_with_rows_is_as_good_as_its_rows() -> None:
    """Rows in heaps: once scipy has joined each heap at height 0, its tree goes on as ours begins."""
    rng = np.random.default_rng(1)
    centers, sizes = rng.normal(size=(5, 2)), np.array([3, 1, 4, 2, 6])
    whole = scipy_hierarchy.linkage(np.repeat(centers, sizes, 0), "ward")
    ours = ward_tree(centers, sizes)
    np.testing.assert_allclose(ours[:, 2:], whole[-4:, 2:], atol=1e-10)


def test_an_empty_cluster_joins_first_and_moves_nothing() -> None:
    centers = np.array([[0.0], [10.0], [4.0]])
    tree = ward_tree(centers, np.array([5, 5, 0]))
    assert tree[0, 2] == 0
    assert tree[1, 2] == pytest.approx(np.sqrt(2 * 25 / 10) * 10)


@pytest.mark.parametrize("k", [1, 2, 4, 7])
def test_cuts_are_scipys(k: int) -> None:
    x = np.random.default_rng(2).normal(size=(7, 2))
    tree = ward_tree(x, np.ones(7, int))
    wanted = scipy_hierarchy.cut_tree(tree, k)[:, 0]
    np.testing.assert_array_equal(cut_tree(tree, k), wanted)


@pytest.mark.parametrize("k", [0, 8])
def test_a_cut_outside_the_tree_is_an_error(k: int) -> None:
    with pytest.raises(ValueError, match=f"k={k} should be from 1 to 7"):
        cut_tree(ward_tree(np.eye(7), np.ones(7, int)), k)


def test_one_cluster_has_a_tree_of_nothing() -> None:
    assert ward_tree(np.zeros((1, 2)), np.array([9])).shape == (0, 4)
    np.testing.assert_array_equal(cut_tree(np.zeros((0, 4)), 1), [0])
