"""The interface of a method: its loss, its assignment, and hooks around training."""

import contextlib
import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from ..nn.autoencoders import Autoencoder, DenseAutoencoder, RowAutoencoder
from ..nn.cluster import ClusterLayer, Start
from ..nn.knowledge import knowledge_loss
from ..nn.neighbours import neighbour_loss
from ..nn.ops import largest
from ..nn.parallel import gathered
from .data import Batch, Data
from .guard import Guard
from .placing import place_centers

Losses = dict[str, Tensor]  # named scalar terms, already weighted; the engine minimises their sum

PLACING_ROWS = 50_000  # rows at most that centres are placed on: k-means has no more work with more data
KNOWLEDGE_WEIGHT = 0.1  # weight of what is known of some rows, beside a method's own loss
REVIVAL_ROWS = 1024  # rows, drawn at random, among which a dead centre finds a new place


class Event(NamedTuple):
    """Something the user should know about a run: see `diagnostics_`."""

    kind: str
    message: str


class Answer(NamedTuple):
    """The output of a model for a batch, in float64."""

    z: Tensor  # (b, d) embeddings
    logits: Tensor  # (b, k)
    label: Tensor  # (b,) where the logits are largest


class Trainable(nn.Module, ABC):
    """A loss and hooks around a training step. On a GPU the step is captured once for each `graph_key` and then
    replayed. So `prepare`, `loss`, `after_backward` and `after_step` must not synchronise with the device or branch on
    tensor values, and a Python value that they read may change only together with `graph_key`. The other hooks are not
    captured and may do all of this."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.finished = False  # true once the method's own stopping rule holds: the loop then ends the phase
        self.graph_key: Hashable = None  # of the step: whatever it depends on beside tensors; set in `before_epoch`
        self.frozen_parts: tuple[str, ...] = ()  # submodules by name that steps must not change; set in `before_epoch`
        self.epochs = 0  # how many this phase has at most; the loop says so before it begins
        self.interval: int | None = None  # steps from one `refresh` to the next, counted over the whole phase

    @property
    def step_key(self) -> Hashable:
        """All non-tensor values that a step depends on."""
        return self.graph_key, self.frozen_parts

    def frozen_parameters(self) -> Iterator[nn.Parameter]:
        for name in self.frozen_parts:
            yield from self.get_submodule(name).parameters()

    def note(self, kind: str, message: str) -> None:
        self.events.append(Event(kind, message))

    def note_if_settled(self, why: str) -> None:
        """After training: note that the method's own rule ended it, unless a guard did."""
        if self.finished and not any(event.kind == "collapse" for event in self.events):
            self.note("settled", why)

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """A context in which the model is in eval mode."""
        if not self.training:  # going through all modules takes longer than a forward pass of a few rows
            yield
            return
        self.eval()
        try:
            yield
        finally:
            self.train()

    def training_state(self) -> dict[str, Any]:
        """What a checkpoint must hold besides parameters and buffers."""
        return {"events": [tuple(event) for event in self.events], "finished": self.finished}

    def load_training_state(self, state: dict[str, Any]) -> None:
        self.events = [Event(*event) for event in state["events"]]
        self.finished = state["finished"]

    def prepare(self, batch: Batch) -> Batch:
        """The input of `loss` for a batch; random numbers may be drawn here, by torch: others would be those of the
        captured step for ever."""
        return batch

    @abstractmethod
    def loss(self, batch: Batch) -> Losses:
        """The method's own terms: the same names in every epoch, one of them "clustering". A term that rests is
        detached."""

    def losses(self, batch: Batch) -> Losses:
        """All terms that a step minimises: `loss`, and the terms that a kind of model adds for every method."""
        return self.loss(batch)

    def stack_key(self) -> Hashable | None:
        """Models with the same key can be trained as one, by `torch.vmap` over their tensors. So the key must contain
        everything that `loss` depends on besides tensors and `graph_key`. None if that is impossible: the loss draws
        random numbers, or stores something other than by filling buffers. A class that overrides `loss` must also
        override `stack_key`."""
        return None

    def reconstruct(self, x: Tensor) -> Tensor:
        """Through the whole network and back."""
        return x

    def lr_factor(self, epoch: int) -> float:
        """The factor on the optimiser's learning rate in this epoch."""
        return 1.0

    def extra_metrics(self) -> dict[str, float]:
        """Numbers to keep in the epoch's record beside its losses."""
        return {}

    def refresh(self, data: Data) -> None:
        """Called before the first step and then every `interval` steps, for computations over all rows."""

    def before_training(self, data: Data) -> None: ...
    def before_epoch(self, epoch: int, data: Data) -> None: ...
    def after_backward(self) -> None: ...
    def after_step(self, batch: Batch) -> None: ...
    def after_epoch(self, epoch: int, data: Data) -> None: ...
    def after_training(self, data: Data) -> None: ...


class ClusterModel(Trainable):
    """A network with a cluster layer. A method that watches its clusters sets `guard`.

    By convention the constructor takes the estimator as its third argument and copies the settings it needs. It keeps
    no reference, so changing the estimator later does not change the fitted model.
    """

    start: Any  # where the centres begin: a `Start`, or a tensor of centres

    def __init__(self, autoencoder: Autoencoder, clusters: ClusterLayer) -> None:
        super().__init__()
        self.guard: Guard | None = None
        self.autoencoder = autoencoder
        self.clusters = clusters
        self.network_learns = any(parameter.requires_grad for parameter in autoencoder.parameters())

    def network_stack_key(self) -> Hashable | None:
        """The non-tensor values that the network depends on. None if it cannot be stacked, such as a user's own network
        or one with dropout, or if that would not pay, as for convolutions."""
        network = self.autoencoder
        dense = type(network) in (DenseAutoencoder, RowAutoencoder) and self.network_learns
        still = not any(isinstance(module, nn.Dropout) for module in network.modules())
        return repr(network.config) if dense and still else None

    def embed(self, x: Tensor) -> Tensor:
        return self.clusters.normalize(self.autoencoder.encode(x).float())

    def represent(self, x: Tensor) -> Tensor:
        """What pretraining trains: the embedding, or the codes before it if the method has a map between the two."""
        return self.embed(x)

    def losses(self, batch: Batch) -> Losses:
        """The method's own loss; plus the loss of the neighbour graph if there is one and the network is trained; plus
        the loss of the knowledge about some rows if there is any."""
        if batch.far is None or not self.network_learns or "autoencoder" in self.frozen_parts:
            losses = self.loss(batch)
        else:
            with self.embedding_once(batch):
                losses = {**self.loss(batch), "neighbours": self.neighbour_loss(batch)[0]}
        if batch.known_x is not None:
            losses = {**losses, "knowledge": self.knowledge_loss(batch)}
        return losses

    def knowledge_loss(self, batch: Batch) -> Tensor:
        """The loss of the knowledge about some rows: see `nn.knowledge`."""
        assert batch.known_x is not None
        assert batch.known_labels is not None
        assert batch.same_cluster is not None
        return KNOWLEDGE_WEIGHT * knowledge_loss(
            self.clusters, self.embed(batch.known_x), batch.known_labels, batch.same_cluster
        )

    def embedding_once(self, batch: Batch) -> contextlib.AbstractContextManager[None]:
        """A context in which the samples and their neighbours pass through the encoder once, as one batch."""
        return self.autoencoder.once(*([] if batch.neighbour is None else [batch.x, batch.neighbour]))

    def neighbour_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss of the neighbour graph, and the embedded samples: see `nn.neighbours`."""
        assert batch.far is not None
        z = self.represent(batch.x)
        near = self.represent(batch.neighbour)[:, None] if batch.near is None else z[batch.near]  # type: ignore[arg-type]
        return neighbour_loss(z, near, gathered(z)[batch.far]), z

    def answer(self, x: Tensor) -> Answer:
        """The fitted model's output for samples. In float64, because the last bits of narrow float32 products depend on
        a row's position in the batch."""
        z = self.embed(x).double()
        logits = self.clusters.logits(z)
        return Answer(z, logits, largest(logits))

    def label_function(self) -> Callable[[Tensor], Tensor]:
        """A function for the labels of `answer`, or -1 if NaN, for many batches."""
        decide = self.clusters.label_function()
        return lambda x: decide(self.embed(x))

    def assign(self, x: Tensor) -> Tensor:
        """(b, ...) -> (b, k), rows sum to 1: the method's own assignment."""
        return self.clusters.assignment(self.clusters.logits(self.embed(x)))

    def forward(self, x: Tensor) -> Tensor:
        return self.assign(x)

    def decode(self, z: Tensor) -> Tensor:
        """Embeddings back to samples."""
        return self.autoencoder.decode(z)

    def reconstruct(self, x: Tensor) -> Tensor:
        return self.decode(self.embed(x))

    def training_state(self) -> dict[str, Any]:
        return {**super().training_state(), "guard": self.guard.training_state() if self.guard else None}

    def load_training_state(self, state: dict[str, Any]) -> None:
        super().load_training_state(state)
        if self.guard:
            self.guard.load_training_state(state["guard"])

    def after_training(self, data: Data) -> None:
        if self.guard:
            self.guard.state = {}

    def freeze_centers(self) -> None:
        """From here on `loss` is that of a step which trains the network with fixed centres. A method that alternates
        by a flag of its own sets it here."""
        self.frozen_parts = ("clusters",)

    @abstractmethod
    def clustering_loss(self, z: Tensor) -> Tensor:
        """The method's clustering loss of each embedded row, (b, d) -> (b,), on the paper's scale."""

    def with_other_assignment(self) -> Self | None:
        """A copy that gives another assignment, for methods whose user may choose one after the fit."""
        return None

    def as_trained(self) -> Self:
        """The model before clusters were merged or split; all tensors are shared."""
        if self.clusters.original is self.clusters:
            return self
        model = copy.copy(self)
        model._modules = {**self._modules, "clusters": self.clusters.original}
        return model

    def loss_of_members(self, z: Tensor, own: Tensor) -> Tensor:
        """`clustering_loss` from the known squared distance of each row to its own centre, for methods that need
        nothing else."""
        return self.clustering_loss(z)

    def place_centers(self, data: Data, start: Start | Tensor) -> Tensor | None:
        """Set the initial centres: see `placing`. Returns the initial cluster of each row (n,), or -1, if a layout was
        used for it."""
        return place_centers(self, data, start)

    @torch.no_grad()
    def sample_embedding(self, data: Data, size: int = PLACING_ROWS) -> Tensor:
        """Embedded rows in eval mode, at most `size`, for placing centres."""
        with self.evaluating():
            return data.map(self.embed, data.draw(size))

    def revive(self, dead: Tensor, data: Data) -> None:
        """Move the centres marked in `dead` (k,) to rows that are far from the other centres, and note it as an
        event."""
        if not bool(dead.any()):
            return
        self.clusters.revive_(dead, self.sample_embedding(data, REVIVAL_ROWS))
        for _ in range(int(dead.sum())):
            self.note("repaired", "A centre without rows was moved to a row far from its own centre.")

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if not self.network_learns:
            self.autoencoder.eval()  # a frozen network keeps its statistics too
        return self
