"""Frozen parts do not move: not by the method's own loss, not by the term that the engine adds for neighbours."""

import pytest
import torch

from conftest import train
from diffclust import TELL
from diffclust.engine.data import Data
from diffclust.engine.model import ClusterModel
from diffclust.engine.phase import Phase
from diffclust.engine.rows import TensorRows
from diffclust.engine.runtime import Randomness
from diffclust.estimator.restarts import neighbour_graph
from diffclust.nn.autoencoders import DenseAutoencoder
from diffclust.nn.cluster import ClusterLayer

CPU = torch.device("cpu")
EPOCHS = (0, 1, 2, 3, 10)
CURE = "The loss gives the network no gradient in these epochs: set `frozen_parts` in before_epoch, or it moves."
IDLE = "Nothing learns in these epochs: without a network that learns (`network_learns`), centres must not be frozen."


@pytest.fixture
def data(blobs):
    data = Data(TensorRows(torch.from_numpy(blobs[0][:60]).float()), CPU, 30)
    data.graph = neighbour_graph(data)
    return data


def epochs_of(phase):
    """The epochs of EPOCHS, each begun."""
    phase.start()
    for epoch in EPOCHS:
        phase.history = [{}] * epoch
        phase.begin_epoch()
        yield epoch


def moved_against_the_loss(phase):
    """Epochs in which a weight of the network moves although the method's own loss gives it no gradient."""
    model, own_loss, learns = phase.model, phase.model.loss, []
    weights = list(model.autoencoder.parameters())

    def watched(batch):
        losses = own_loss(batch)
        total = sum(losses.values())
        learnt = [w for w in weights if w.requires_grad]
        grads = torch.autograd.grad(total, learnt, retain_graph=True, allow_unused=True) if total.requires_grad else ()
        learns.append({id(w) for w, grad in zip(learnt, grads, strict=False) if grad is not None})
        return losses

    model.loss = watched
    found = []
    for epoch in epochs_of(phase):
        phase.begin_step(0, Randomness(0, CPU))
        before = [weight.detach().clone() for weight in weights]
        phase.step()
        moved = {id(w) for w, was in zip(weights, before, strict=True) if not torch.equal(w, was)}
        found += [epoch] if moved - learns[-1] else []
    assert len(learns) == len(EPOCHS)
    return found


def test_a_network_moves_only_where_the_loss_says_so(method, quick, data):
    changes = {"joint": True} if "joint" in method.__dataclass_fields__ else {}
    estimator = quick(features="neighbours", **changes)
    if not estimator.is_joint():
        pytest.skip("its network never learns beside the centres")
    model = estimator.build_model(estimator.build_autoencoder(data), len(data))
    phase = Phase("clustering", model, data, estimator.build_optimizer(model), 100)
    assert moved_against_the_loss(phase) == [], CURE


def test_without_a_network_the_centres_never_rest(method, quick, blobs):
    data = Data(TensorRows(torch.from_numpy(blobs[0][:60]).float()), CPU, 30)
    estimator = quick(network="identity")
    model = estimator.build_model(estimator.build_autoencoder(data), len(data))
    phase = Phase("clustering", model, data, estimator.build_optimizer(model), 100)
    assert [epoch for epoch in epochs_of(phase) if "clusters" in model.frozen_parts] == [], IDLE


class Careless(ClusterModel):
    """Its network rests in odd epochs, or so it thinks."""

    def __init__(self):
        super().__init__(DenseAutoencoder((6,), 2, hidden=(4,)), ClusterLayer(3, 2))

    def before_epoch(self, epoch, data):
        self.turn = self.graph_key = epoch % 2

    def loss(self, batch):
        z = self.embed(batch.x)
        return {"clustering": self.clustering_loss(z.detach() if self.turn else z).mean()}

    def clustering_loss(self, z):
        return self.clusters.distances(z).amin(1)


class DecoderAlone(Careless):
    """The decoder learns in every epoch, which does not excuse the encoder."""

    def loss(self, batch):
        z = self.embed(batch.x)
        back = self.autoencoder.reconstruction_loss(batch.x, z.detach() if self.turn else z)
        return {**super().loss(batch), "reconstruction": back}


class Careful(Careless):
    def before_epoch(self, epoch, data):
        super().before_epoch(epoch, data)
        self.frozen_parts = ("autoencoder",) if self.turn else ()


class AllAtRest(Careful):
    """No gradient is left in odd epochs."""

    def __init__(self):
        super().__init__()
        self.clusters.requires_grad_(False)


def phase_of(toy, data, epochs=4):
    model = toy()
    learnt = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(learnt, 1e-2, momentum=0.9, weight_decay=0.1)
    return Phase("clustering", model, data, optimizer, epochs)


TOYS = [(Careless, [1, 3]), (DecoderAlone, [1, 3]), (Careful, []), (AllAtRest, [])]


@pytest.mark.parametrize(("toy", "epochs"), TOYS)
def test_a_network_that_only_seems_to_rest_is_found(toy, epochs, data):
    assert moved_against_the_loss(phase_of(toy, data, 100)) == epochs


def test_the_neighbour_term_is_left_out_of_the_record_too(data):
    (history,) = train([phase_of(Careful, data)])
    assert ["neighbours" in record for record in history] == [True, False, True, False]
    assert all(record["clustering"] > 0 for record in history)


def test_centres_rest_in_odd_epochs_whatever_the_momentum(data):
    settings = {"center_update": "unnormalized", "sphere": True, "features": "neighbours", "device": "cpu"}
    estimator = TELL(3, optimizer="momentum", **settings)
    model = estimator.build_model(estimator.build_autoencoder(data), len(data))
    phase = Phase("clustering", model, data, estimator.build_optimizer(model), 4)
    centers = []
    phase.callbacks = [lambda progress: centers.append(model.clusters.weight.detach().clone())]
    train([phase])
    same = [torch.allclose(centers[i], centers[i + 1], rtol=1e-5) for i in range(3)]  # their length is put right
    assert same == [True, False, True]
