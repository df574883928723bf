"""What is particular to DCN: the alternation, and centres that are running means."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from diffclust import DCN
from diffclust.engine.data import Batch
from diffclust.nn import DenseAutoencoder, Identity


def small(**settings):
    model = DCN(3, **settings).build_model(DenseAutoencoder((6,), 4, hidden=(8,)), 50)
    x = torch.randn(20, 6)
    return model, Batch(x, x, torch.arange(20))


def test_the_loss_is_the_papers_by_loops():
    model, batch = small(weight=0.3)
    z = model.embed(batch.x)
    back, centers = model.autoencoder.decode(z), model.clusters.centers
    reconstruction = clustering = 0.0
    for i in range(20):
        reconstruction += float((batch.x[i] - back[i]).square().sum().detach())
        clustering += min(float((z[i] - centers[k]).square().sum().detach()) for k in range(3))
    losses = model.loss(batch)
    assert float(losses["reconstruction"].detach()) == pytest.approx(reconstruction / 20, rel=1e-5)
    assert float(losses["clustering"].detach()) == pytest.approx(0.3 / 2 * clustering / 20, rel=1e-4)


def test_the_centre_update_is_the_papers_loop_over_samples():
    model = DCN(3, first_count=7).build_model(Identity((4,)), 50).double()
    centers, counts = model.clusters.centers.detach().clone(), [7.0] * 3
    for _ in range(3):  # counts go on from batch to batch
        z = torch.randn(30, 4, dtype=torch.float64)
        nearest = [min(range(3), key=lambda k: float((row - centers[k]).square().sum())) for row in z]
        for row, k in zip(z, nearest, strict=True):
            counts[k] += 1
            centers[k] = (1 - 1 / counts[k]) * centers[k] + row / counts[k]
        model.update_centers(z, Batch(z, z, torch.arange(30)))
        assert torch.allclose(model.clusters.centers, centers)
        assert model.counts[:, 0].tolist() == counts


def test_a_worked_example():
    """Centres 0 and 10 worth one row each; rows 1, 2 and 8 come: (0 + 1 + 2) / 3 and (10 + 8) / 2."""
    model = DCN(2, first_count=1).build_model(Identity((1,)), 3)
    model.clusters.set_centers(torch.tensor([[0.0], [10.0]]))
    z = torch.tensor([[1.0], [2.0], [8.0]])
    model.update_centers(z, Batch(z, z, torch.arange(3)))
    assert model.clusters.centers[:, 0].tolist() == [1.0, 9.0]


def test_the_network_learns_by_gradient_and_the_centres_do_not():
    model, batch = small()
    assert not model.clusters.weight.requires_grad
    before = model.clusters.centers.clone()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
    sum(model.loss(batch).values()).backward()
    optimizer.step()
    assert (model.clusters.centers == before).all()
    model.after_step(batch)
    assert (model.clusters.centers != before).any()
    assert model.autoencoder.encoder[1].weight.grad.abs().sum() > 0


def test_the_centres_move_after_the_network():
    """Algorithm 1: the rows are embedded by the network that has just taken its step."""
    model, batch = small(first_count=1)
    model.loss(batch)
    with torch.no_grad():
        for p in model.autoencoder.parameters():
            p.mul_(2)
    before = model.clusters.centers.clone()
    z = model.embed(batch.x).detach()
    nearest = torch.cdist(z, before).argmin(1)
    model.after_step(batch)
    for k in nearest.unique():
        rows = torch.cat([before[k : k + 1], z[nearest == k]])
        assert torch.allclose(model.clusters.centers[k], rows.mean(0), atol=1e-6)


def test_a_dead_centre_is_repaired(blobs):
    far = torch.zeros(3, 6).index_fill_(0, torch.tensor([2]), 1e4)
    settings = {"network": "identity", "init": far, "epochs": 3, "random_state": 0}
    model = DCN(3, **settings).fit(blobs[0])
    assert model.diagnostics_["repaired"] >= 1
    assert "dead centre" in str(model.explain_model())
    with pytest.warns(ConvergenceWarning, match=r"empty|Collapse"):
        assert DCN(3, **settings, repair=False).fit(blobs[0]).diagnostics_["repaired"] == 0


def test_bad_settings_are_named(blobs):
    with pytest.raises(ValueError, match="first_count"):
        DCN(3, first_count=0).fit(blobs[0])
    with pytest.raises(ValueError, match="repair"):
        DCN(3, repair="yes").fit(blobs[0])


def test_repairs_without_end_are_told():
    X = np.repeat([[0.0, 0.0], [5.0, 5.0]], 20, axis=0)  # two points, and four centres
    with pytest.warns(ConvergenceWarning) as told:
        model = DCN(4, network="identity", epochs=6, random_state=0, device="cpu").fit(X)
    assert model.diagnostics_["repaired"] >= 4
    assert any("4 clusters may be too many" in str(warning.message) for warning in told)
