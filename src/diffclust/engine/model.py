"""What a method must say: its loss, its assignment, and what it does at which moment."""

import contextlib
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

SAMPLED = 50_000  # rows at most that centres are placed on: k-means has no more work with more data
KNOWN = 0.1  # weight of what is known of some rows, beside a method's own loss
REVIVED_ON = 1024  # rows, drawn at random, among which a dead centre finds a new place


class Event(NamedTuple):
    """Something the user should know about a run: see `diagnostics_`."""

    kind: str
    message: str


class Answer(NamedTuple):
    """Of a batch, in float64."""

    z: Tensor  # (b, d) embeddings
    logits: Tensor  # (b, k)
    label: Tensor  # (b,) where the logits are largest


class Trainable(nn.Module, ABC):
    """A loss and the hooks around a step. On a GPU the step is recorded once for each `graph_key` and then replayed. So
    `loss`, `after_backward` and `after_step` may not wait for the device or branch on a tensor's value, and a Python
    value that they read may change only together with `graph_key`. The other hooks are not recorded and may do all of
    this."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.finished = False  # a method that cannot go on says so, and the loop ends the phase
        self.graph_key: Hashable = None  # of the step: whatever it depends on beside tensors; set in `before_epoch`
        self.resting: tuple[str, ...] = ()  # parts by name, as "autoencoder", that nothing moves; set in `before_epoch`
        self.epochs = 0  # how many this phase has at most; the loop says so before it begins
        self.interval: int | None = None  # steps from one `refresh` to the next, counted over the whole phase

    @property
    def step_key(self) -> Hashable:
        """All that a step depends on beside tensors."""
        return self.graph_key, self.resting

    def resting_parameters(self) -> Iterator[nn.Parameter]:
        for name in self.resting:
            yield from self.get_submodule(name).parameters()

    def note(self, kind: str, message: str) -> None:
        self.events.append(Event(kind, message))

    def note_if_settled(self, why: str) -> None:
        """After training: note that the method's own rule ended it, unless a guard did."""
        if self.finished and not any(event.kind == "collapse" for event in self.events):
            self.note("settled", why)

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Inside, the model is in eval mode; afterwards it is in the mode it was in."""
        if not self.training:  # going through all modules takes longer than a forward pass of a few rows
            yield
            return
        self.eval()
        try:
            yield
        finally:
            self.train()

    def training_state(self) -> dict[str, Any]:
        """What a checkpoint must hold beside parameters and buffers."""
        return {"events": [tuple(event) for event in self.events], "finished": self.finished}

    def load_training_state(self, state: dict[str, Any]) -> None:
        self.events = [Event(*event) for event in state["events"]]
        self.finished = state["finished"]

    def prepare(self, batch: Batch) -> Batch:
        """What `loss` sees of a batch; here random numbers may be drawn."""
        return batch

    @abstractmethod
    def loss(self, batch: Batch) -> Losses: ...

    def losses(self, batch: Batch) -> Losses:
        """All that a step minimises: `loss`, and what a kind of model adds to every method's."""
        return self.loss(batch)

    def stack_key(self) -> Hashable | None:
        """Models of one key can be trained as one, by `torch.vmap` over their tensors: so the key is all that `loss`
        depends on beside tensors and `graph_key`. None, if the model cannot be: its loss draws random numbers, or keeps
        something other than by filling buffers. A class with a loss of its own needs a `stack_key` of its own."""
        return None

    def reconstruct(self, x: Tensor) -> Tensor:
        """Through the whole network and back."""
        return x

    def rate(self, epoch: int) -> float:
        """The factor on the optimiser's learning rate in this epoch."""
        return 1.0

    def figures(self) -> dict[str, float]:
        """Numbers to keep in the epoch's record beside its losses."""
        return {}

    def refresh(self, data: Data) -> None:
        """Before the first step and every `interval` steps from there: what is computed over all rows."""

    def before_training(self, data: Data) -> None: ...
    def before_epoch(self, epoch: int, data: Data) -> None: ...
    def after_backward(self) -> None: ...
    def after_step(self, batch: Batch) -> None: ...
    def after_epoch(self, epoch: int, data: Data) -> None: ...
    def after_training(self, data: Data) -> None: ...


class ClusterModel(Trainable):
    """A network with a cluster layer behind it. A method that looks after its clusters sets `guard`.

    By habit a method's model takes its estimator as a third argument, and copies the settings it needs: it keeps no
    reference, so that changing the estimator later does not change what was fitted."""

    start: Any  # where the centres begin: a `Start`, or a tensor of centres

    def __init__(self, autoencoder: Autoencoder, clusters: ClusterLayer) -> None:
        super().__init__()
        self.guard: Guard | None = None
        self.autoencoder = autoencoder
        self.clusters = clusters
        self.network_learns = any(parameter.requires_grad for parameter in autoencoder.parameters())

    def network_stack_key(self) -> Hashable | None:
        """What the network depends on beside tensors. None where it cannot be stacked, as a user's own or one that
        drops values at random, or where that would not pay: of convolutions."""
        network = self.autoencoder
        dense = type(network) in (DenseAutoencoder, RowAutoencoder) and self.network_learns
        still = not any(isinstance(module, nn.Dropout) for module in network.modules())
        return repr(network.config) if dense and still else None

    def embed(self, x: Tensor) -> Tensor:
        return self.clusters.normalize(self.autoencoder.encode(x).float())

    def represent(self, x: Tensor) -> Tensor:
        """What pretraining trains: the embedding, or the codes before it where a method has a map between the two."""
        return self.embed(x)

    def losses(self, batch: Batch) -> Losses:
        """The method's own loss; where the data have a neighbour graph and the network learns, the loss of that graph;
        and where something is known of some rows, the loss of that."""
        if batch.far is None or not self.network_learns or "autoencoder" in self.resting:
            losses = self.loss(batch)
        else:
            with self.embedding_once(batch):
                losses = {**self.loss(batch), "neighbours": self.neighbour_loss(batch)[0]}
        if batch.told is not None:
            losses = {**losses, "knowledge": self.knowledge_loss(batch)}
        return losses

    def knowledge_loss(self, batch: Batch) -> Tensor:
        """How far the clusters are from what is known: see `nn.knowledge`."""
        assert batch.told is not None
        assert batch.codes is not None
        assert batch.together is not None
        return KNOWN * knowledge_loss(self.clusters, self.embed(batch.told), batch.codes, batch.together)

    def embedding_once(self, batch: Batch) -> contextlib.AbstractContextManager[None]:
        """Inside, the samples and their neighbours go through the encoder once, as one batch."""
        return self.autoencoder.once(*([] if batch.neighbour is None else [batch.x, batch.neighbour]))

    def neighbour_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """How far neighbours are apart and others near, and the embedded samples: see `nn.neighbours`."""
        assert batch.far is not None
        z = self.represent(batch.x)
        near = self.represent(batch.neighbour)[:, None] if batch.near is None else z[batch.near]  # type: ignore[arg-type]
        return neighbour_loss(z, near, gathered(z)[batch.far]), z

    def answer(self, x: Tensor) -> Answer:
        """What the fitted estimator says of samples. In float64, since the last bits of narrow float32 products depend
        on a row's place in the batch."""
        z = self.embed(x).double()
        logits = self.clusters.logits(z)
        return Answer(z, logits, largest(logits))

    def decider(self) -> Callable[[Tensor], Tensor]:
        """What gives the labels of `answer`, and -1 where they are of no number, for one batch after another."""
        decide = self.clusters.decider()
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

    def hold_centers(self) -> None:
        """From here on `loss` is that of a step in which the network learns and the centres rest."""

    @abstractmethod
    def clustering_loss(self, z: Tensor) -> Tensor:
        """The method's clustering loss of each embedded row, (b, d) -> (b,), on the paper's scale."""

    def loss_of_members(self, z: Tensor, own: Tensor) -> Tensor:
        """`clustering_loss` where each row's squared distance to its own centre is known, for methods that need no
        other."""
        return self.clustering_loss(z)

    def place_centers(self, data: Data, start: Start | Tensor) -> Tensor | None:
        """Where the centres begin: see `placing`. Where rows are laid out for it, the cluster (n,) that each begins in,
        or -1."""
        return place_centers(self, data, start)

    @torch.no_grad()
    def sample_embedding(self, data: Data, size: int = SAMPLED) -> Tensor:
        """Embedded rows in eval mode, at most `size`, for placing centres."""
        with self.evaluating():
            return data.map(self.embed, data.draw(size))

    def revive(self, dead: Tensor, data: Data) -> None:
        """Move the centres marked in `dead` (k,) to rows that the others serve badly, and say so."""
        if not bool(dead.any()):
            return
        self.clusters.revive_(dead, self.sample_embedding(data, REVIVED_ON))
        for _ in range(int(dead.sum())):
            self.note("repaired", "A centre without rows was moved to a row far from its own centre.")

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if not self.network_learns:
            self.autoencoder.eval()  # a frozen network keeps its statistics too
        return self
