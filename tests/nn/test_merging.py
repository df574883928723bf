"""Which of too many clusters are one."""

import torch

from diffclust.nn.merging import merge_clusters


def test_parts_of_a_long_cluster_are_joined_before_two_that_are_nearer() -> None:
    """A bar cut in three, and two round blobs between which there is nothing: Ward's rule joins the blobs."""
    torch.manual_seed(0)
    bar = torch.stack([12 * torch.rand(300), 0.3 * torch.randn(300)], 1)
    blobs = torch.tensor([[4.0, 8.0], [7.0, 8.0]]).repeat_interleave(100, 0) + 0.35 * torch.randn(200, 2)
    z = torch.cat([bar, blobs])
    labels = torch.cat([(bar[:, 0] / 4).long().clamp_max(2), torch.tensor([3, 4]).repeat_interleave(100)])
    joined = merge_clusters(z, labels, 5, 3)
    assert joined.tolist() == [0] * 300 + [1] * 100 + [2] * 100


def test_an_empty_cluster_goes_first() -> None:
    z = torch.tensor([0.0, 0.1, 5.0, 5.1])[:, None]
    assert merge_clusters(z, torch.tensor([0, 0, 3, 3]), 4, 2).tolist() == [0, 0, 1, 1]


def test_nothing_is_joined_where_there_are_as_many() -> None:
    labels = torch.tensor([1, 0, 2])
    assert merge_clusters(torch.eye(3), labels, 3, 3).tolist() == [1, 0, 2]
