"""The dictionaries of SSCNet: rows of the data, and convolutions."""

import pytest
import torch

from diffclust.nn import ConvDictionary, RowDictionary


def test_rows_become_the_atoms_and_a_row_may_not_stand_for_itself():
    x = torch.randn(6, 4)
    network = RowDictionary((4,), 6)
    step = network.set_atoms(x)
    unit = x / x.norm(dim=1, keepdim=True)
    assert torch.allclose(network.decoder.weight, unit.T)
    assert torch.allclose(network.analyse(unit), step * unit @ unit.T, atol=1e-6)
    assert step == pytest.approx(0.99 / float(torch.linalg.matrix_norm(unit, 2)) ** 2, rel=1e-4)
    assert torch.equal(network.others(unit), 1 - torch.eye(6))
    assert torch.equal(network.others(-unit), 1 - torch.eye(6))
    assert not network.decoder.weight.requires_grad


def test_zero_rows_make_no_infinite_step():
    network = RowDictionary((3,), 2)
    assert network.set_atoms(torch.zeros(2, 3)) < float("inf")
    assert network.decoder.weight.isfinite().all()


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 9, 11), (2, 4, 4)])
def test_convolutions_of_any_size_come_back(shape):
    network = ConvDictionary(shape)
    x = torch.rand(2, *shape)
    z = network.encode(x)
    assert z.shape == (2, network.embedding_dim)
    assert network.decode(z).shape == x.shape
    assert type(network)(**network.config).embedding_dim == network.embedding_dim


def test_bad_shapes_are_named():
    with pytest.raises(ValueError, match="needs images"):
        ConvDictionary((7,))
    with pytest.raises(ValueError, match="3x9"):
        ConvDictionary((1, 3, 9))


def test_a_row_knows_itself_in_bf16_too():
    rows = torch.nn.functional.normalize(torch.randn(300, 30), dim=1)
    network = RowDictionary((30,), 300)
    network.set_atoms(rows)
    with torch.autocast("cpu", torch.bfloat16):
        allowed = network.others(rows)
    assert torch.equal(allowed, 1 - torch.eye(300))
