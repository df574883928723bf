"""From settings and data to restarts that can be trained."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import scipy.sparse as sp
import torch
from torch import Tensor

from ..callbacks import Watchers
from ..engine.checkpoint import Checkpoint, CheckpointFolder, comparable
from ..engine.data import Data
from ..engine.distributed import current_processes
from ..engine.model import ClusterModel, Trainable
from ..engine.overclustering import OVERCLUSTERING, OverclusteringPhase
from ..engine.phase import EmbeddedPhase, Phase
from ..engine.pretraining import NeighbourPretraining
from ..engine.restart import FitContext, Restart
from ..engine.rows import SparseRows, TensorRows
from ..engine.runtime import Randomness, choose_device, choose_precision, restart_seeds, seeded
from ..nn.autoencoders import ScaledRows
from ..nn.knowledge import Knowledge
from ..nn.n_clusters import Choice
from ..nn.neighbours import N_NEIGHBOURS, NeighbourGraph, neighbours_by_words
from ..reading.inputs import UserInput
from . import networks
from .state import snapshot

if TYPE_CHECKING:
    from .base import PrototypeClusterer

NEAREST_VIEWS = 4  # neighbours of an image: two on either side, where views follow one another
MIN_NEIGHBOURS = 4  # of a row
# Raise it when `neighbour_graph` finds other neighbours: a checkpoint with another number is refused, because its fit
# would continue with another graph than it began with.
GRAPH_RULES = 2


def build_restarts(
    estimator: "PrototypeClusterer",
    given: UserInput,
    quiet: bool = False,
    knowledge: Knowledge | None = None,
    directions_alone: bool = False,
    choice: Choice | None = None,
) -> list[Restart]:
    """Build everything that training needs; raises if the network does not fit the data."""
    processes, device = current_processes(), choose_device(estimator.device)
    neighbours = estimator._by_neighbours(given.rows)
    augmentation = estimator._augmentation(given.rows.row_shape, neighbours)
    batch_size = estimator._batch_size(len(given.rows), neighbours)
    data = Data(given.rows, device, batch_size, augmentation, processes)
    data.scale = _scale(estimator, given, data)
    data.knowledge = None if knowledge is None else knowledge.to(device)
    if neighbours:
        data.graph = neighbour_graph(data, estimator.n_clusters, directions_alone)
    if callable(estimator.augment):
        _check_augment(estimator.augment, data)
    watchers = Watchers(estimator, quiet)
    watchers.check(len(data))
    context = FitContext(
        device,
        _checkpoint(estimator, data, choice),
        watchers,
        attributes=given.attributes,
        at_once=watchers.at_once(device),
        capture=None if processes.alone else False,  # exchanges between processes are not captured
    )
    trained_on = _reduced(estimator, data)
    restarts = [_restart(estimator, context, number, data, trained_on) for number in range(estimator.n_init)]
    watchers.expect(restarts[0].plan)
    return restarts


def _check_augment(augment: Callable[[Tensor], Tensor], data: Data) -> None:
    """Try the user's augmentation on two rows, so that an error shows before training."""
    x = data.take(torch.arange(2, device=data.device))
    with seeded(0, data.device):
        try:
            changed = augment(x.clone())
        except Exception as error:
            raise ValueError(f"augment={augment!r:.80} does not take samples {data.row_shape}: {error}") from error
    if not isinstance(changed, Tensor) or changed.shape != x.shape or not changed.is_floating_point():
        gave = tuple(changed.shape) if isinstance(changed, Tensor) else type(changed).__name__
        raise ValueError(f"augment={augment!r:.80} gave {gave} for samples of shape {tuple(x.shape)}.")


def _scale(estimator: "PrototypeClusterer", given: UserInput, data: Data) -> Tensor | None:
    """The divisors of the columns, if the table or the user gives them."""
    if estimator.scale == "auto" or len(data.row_shape) != 1:
        return given.scale
    return networks.even_units(data.summary, each=bool(estimator.scale))


def neighbour_graph(data: Data, n_clusters: int = 1, directions_alone: bool = False) -> NeighbourGraph:
    """The k-nearest-neighbour graph: in the units that the network sees, or, for texts, by the cosine of their words.
    A row has at most half as many neighbours as an average cluster has rows: more would be in other clusters.
    `directions_alone`: rows of many columns are compared by their cosine alone."""
    if networks.compared_as_they_are(data):
        near = neighbours_by_words(_sparse(data))
        if near is not None:
            return NeighbourGraph.weighted(near).to(data.device)
    with seeded(0, data.device):  # the same for every restart and process
        units = networks.scaled_rows(data).to(data.device)
        if len(data.row_shape) == 3:
            return NeighbourGraph.of(data.map(units.encode), NEAREST_VIEWS)
        n_neighbors = min(N_NEIGHBOURS, max(MIN_NEIGHBOURS, len(data) // (2 * n_clusters)))
        if not units.directions:
            return NeighbourGraph.of(data.map(units.encode), n_neighbors, "euclidean")
        counts = networks.is_sparse(data.summary)  # the length of a row is how much was counted
        if directions_alone or counts or data.scale is not None:
            return NeighbourGraph.of(data.map(units.encode), n_neighbors)
        return NeighbourGraph.of(_places_and_directions(data, units), n_neighbors, "euclidean")


def _places_and_directions(data: Data, units: ScaledRows) -> Tensor:
    """The scaled rows beside their directions, each divided by its root mean square, so that both count in a Euclidean
    distance. Which of the two is better differs from one data set to another."""
    parts = (data.map(units.scaled), data.map(units.encode))
    return torch.cat([part / part.square().sum(1).mean().sqrt().clamp_min(1e-30) for part in parts], dim=1)


def _sparse(data: Data) -> sp.csr_matrix:
    """All rows, whichever process reads them."""
    if isinstance(data.rows, SparseRows) and data.rows.origin is None:
        return data.rows.matrix
    parts = range(0, len(data), data.chunk)
    blocks = [sp.csr_matrix(data.block(i, min(i + data.chunk, len(data))).cpu().numpy()) for i in parts]
    return sp.vstack(blocks, format="csr")


def _reduced(estimator: "PrototypeClusterer", data: Data) -> Data:
    """The training data: the data themselves, or the principal components of wide rows if the network starts with
    them; it takes both (see `ScaledRows.scaled`)."""
    named = isinstance(estimator.network, str) and estimator.network in ("auto", "rows")
    if data.graph is None or not named or data.augment is not None:
        return data
    units = networks.scaled_rows(data).to(data.device)
    if not len(units.basis):
        return data
    components = TensorRows(data.map(units.scaled))
    reduced = Data(components, data.device, data.batch_size, processes=data.processes)
    reduced.graph, reduced.scaled, reduced.knowledge = data.graph, units, data.knowledge
    return reduced


def _restart(
    estimator: "PrototypeClusterer", context: FitContext, number: int, data: Data, trained_on: Data
) -> Restart:
    """One run: pretraining, then the method."""
    randomness = Randomness(context.checkpoint.seeds[number], data.device)
    with randomness.borrowed():
        model = estimator.build_model(estimator.build_autoencoder(data), len(data)).to(data.device)
    for each in (data, trained_on):
        each.fit_chunks_to(model)
    options: dict[str, Any] = {"restart": number, "precision": choose_precision(estimator.precision, data.device)}
    epochs = estimator._epochs(estimator.pretrain_epochs, data, 0)
    plan: list[tuple[str, Trainable, int]] = []
    if model.network_learns and data.graph is not None:
        plan = [("pretraining", NeighbourPretraining(model), epochs)]
    elif model.network_learns:
        plan = estimator.pretraining_plan(model, epochs)
    phases = [
        Phase(name, learner, trained_on, estimator.build_optimizer(learner), its_epochs, **options)
        for name, learner, its_epochs in plan
    ]
    epochs = estimator._epochs(estimator.epochs, data, 1)
    if estimator.overcluster > 1:
        phases.append(_overclustering_phase(estimator, model, trained_on, epochs // 2, options))
        model.start, epochs = "kept", epochs - epochs // 2
    if estimator.is_joint() or not model.network_learns:
        phases.append(Phase("clustering", model, trained_on, estimator.build_optimizer(model), epochs, **options))
    else:
        phases.append(
            EmbeddedPhase(
                "clustering", model, trained_on, estimator.build_model, estimator.build_optimizer, epochs, **options
            )
        )
    return Restart(context, number, model, data, phases, randomness)


def _overclustering_phase(
    estimator: "PrototypeClusterer", model: ClusterModel, data: Data, epochs: int, options: dict[str, Any]
) -> OverclusteringPhase:
    """The phase with `overcluster` times as many clusters, around the same network."""
    wide = snapshot(estimator)
    wide.n_clusters = min(len(data), math.ceil(estimator.overcluster * estimator.n_clusters))
    more = wide.build_model(model.autoencoder, len(data)).to(data.device)
    return OverclusteringPhase(OVERCLUSTERING, more, model, data, estimator.build_optimizer(more), epochs, **options)


def _checkpoint(estimator: "PrototypeClusterer", data: Data, choice: Choice | None) -> Checkpoint:
    """The state of the fit: its beginning, or the checkpoint in the folder."""
    processes = data.processes
    seeds = processes.broadcast(lambda: restart_seeds(estimator.random_state, estimator.n_init))
    if estimator.checkpoint is None:
        return Checkpoint(None, 1, {}, seeds)
    identity = {"data": processes.broadcast(data.fingerprint), **estimator._result_settings()}
    if data.knowledge is not None:
        identity["what is known"] = data.knowledge.digest()
    defaults = {name: comparable(value) for name, value in type(estimator)().get_params().items()}
    if data.graph is not None:
        rules = "the rules of the neighbour graph (another version of diffclust)"
        identity[rules], defaults[rules] = GRAPH_RULES, 1
    folder = CheckpointFolder(estimator.checkpoint)
    return Checkpoint(folder, estimator.checkpoint_every, identity, seeds, processes, defaults, choice)
