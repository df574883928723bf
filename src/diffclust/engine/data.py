"""Data and Batch: samples as the loop and the methods see them."""

import functools
import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ..nn.autoencoders import ScaledRows, Wrapped
from ..nn.knowledge import Knowledge
from ..nn.neighbours import NeighbourGraph
from ..nn.parallel import batch_mean, totals
from .distributed import ONE_PROCESS, Processes
from .rows import Rows
from .runtime import without_caller_modes

if TYPE_CHECKING:
    from .model import ClusterModel

CHUNK = 1024  # rows computed at a time, of data that are not in memory
# Of others, by device: the values of a chunk of rows, the fewest rows and the most.
CHUNKS = {"cpu": (2**19, 256, 8192), "cuda": (2**23, 1024, 8192)}
# The same on a CPU for networks of ours, of whose widest layer these are the values: they should stay in the cache.
CHUNKS_OF_OURS = 2**20, 256, 2**15
ALIGNED = 64  # chunks of a multiple of so many rows: else products with few columns take a fifth longer
MIN_ROWS_AT_ONCE = 16  # with fewer rows other matrix kernels run, and a row's last bits would depend on the batch


def _rows_of_a_chunk(values: int, values_at_once: int, fewest: int, most: int) -> int:
    """The number of rows that are computed at a time, if each has so many values."""
    rows = values_at_once // max(1, values)
    return max(fewest, min(most, rows - rows % ALIGNED))


@dataclass(frozen=True)
class Batch:
    """The rows of one step. If several processes share a fit, each has a part of the batch: the loop corrects the mean
    of the loss, but a method must compute every other statistic over rows with `mean` and `total`."""

    x: Tensor  # (b, ...) samples as training sees them, augmented if the data are
    clean: Tensor  # the same samples without augmentation
    index: Tensor  # (b,) their positions in the data set, for methods with per-sample state
    # with a neighbour graph: `neighbour`, or `near` if the batch is all rows
    neighbour: Tensor | None = None  # (b, ...) a neighbour of each sample
    near: Tensor | None = None  # (b, m) which of the batch's samples are neighbours of each
    far: Tensor | None = None  # (b, s) which of the batch's samples, of all processes, repel each sample
    # with knowledge about some rows:
    known_x: Tensor | None = None  # (m + 2 p, ...) m samples of known cluster, then the first and the second of p pairs
    known_labels: Tensor | None = None  # (m,) these clusters
    same_cluster: Tensor | None = None  # (p,) whether the two of a pair belong to one cluster

    def mean(self, values: Tensor) -> Tensor:
        """The mean over the rows of the whole batch, across all processes: (b, ...) -> (...)."""
        return batch_mean(values)

    def total(self, *sums: Tensor) -> Sequence[Tensor]:
        """Sums over these rows, summed across all processes; tensors of one type are exchanged together."""
        return totals(*sums)


class Summary(NamedTuple):
    """Statistics of all rows; tensors have one number per value of a row, (*row_shape,)."""

    lows: Tensor
    highs: Tensor
    mean: Tensor
    deviation: Tensor
    spread: float  # root mean square distance of a value from its mean
    zeros: float  # share of zeros among the user's values
    nonnegative: bool  # whether none of the user's values is negative
    shortest: float  # smallest Euclidean length of a row other than zero
    longest: float

    @property
    def low(self) -> float:
        return self.lows.min().item()

    @property
    def high(self) -> float:
        return self.highs.max().item()

    @property
    def reach(self) -> Tensor:
        return self.highs - self.lows

    @property
    def two_valued(self) -> Tensor:
        """Whether a column has exactly two values: only then is its variance the largest possible for its range."""
        largest = (self.highs - self.mean).double() * (self.mean - self.lows).double()
        return (largest > 0) & (self.deviation.double().square() > (1 - 1e-4) * largest)


def batches(n: int, batch_size: int) -> tuple[int, int]:
    """The number of batches in an epoch of n rows, and the rows per batch."""
    steps = max(1, n // batch_size)
    if steps * batch_size < 0.9 * n:
        steps += 1
    steps = max(1, min(steps, n // 2))  # batch norm needs two rows
    return steps, min(batch_size, n // steps)


class Data:
    """Samples as the loop and the methods see them: floating point, on the device, in batches.

    All batches have the same size. An epoch has as many full batches as there are rows for, in a new random order, and
    leaves out the few remaining rows; if more than a tenth would be left out, batches are made smaller instead.

    If several processes share the work, `own` are the rows of this process, and `slot` is its part of a batch.
    """

    def __init__(
        self,
        rows: Rows,
        device: torch.device,
        batch_size: int = CHUNK,
        augment: Callable[[Tensor], Tensor] | None = None,
        processes: Processes = ONE_PROCESS,
    ) -> None:
        n = len(rows)
        self.graph: NeighbourGraph | None = None  # if set, batches have neighbours
        self.knowledge: Knowledge | None = None  # if set, batches have known rows
        self.scaled: ScaledRows | None = None  # the scaling of the rows, once it is computed
        self.scale: Tensor | None = None  # divisors of the columns, if the table or the user gives them
        self.rows, self.device, self.augment, self.processes = rows.to(device), device, augment, processes
        self.steps, self.batch_size = batches(n, batch_size)
        if processes.size > max(1, self.batch_size):
            raise ValueError(
                f"{processes.size} processes cannot share batches of {self.batch_size} rows, out of {n}: "
                f"{processes.size - self.batch_size} of them would have no rows. Start fewer, or give a larger "
                "batch_size."
            )
        self.chunk = CHUNK
        if device.type in CHUNKS and (rows.resident or device.type != "cpu"):
            self.chunk = _rows_of_a_chunk(math.prod(rows.row_shape), *CHUNKS[device.type])
        self.slot = processes.part(self.batch_size)
        self.own = self._rows_of(self.slot)

    def fit_chunks_to(self, model: "ClusterModel") -> None:
        """Compute as many rows at a time as suits the model's network and the distances to its centres. Of a network
        that is not ours nothing is known."""
        known = not isinstance(model.autoencoder, Wrapped)
        if known and self.device.type == "cpu" and self.rows.resident and len(self) > CHUNKS_OF_OURS[1]:
            values = max(model.autoencoder.widest, model.clusters.n_clusters)
            self.chunk = _rows_of_a_chunk(values, *CHUNKS_OF_OURS)

    def _rows_of(self, slot: slice) -> range:
        """The rows of the process that has this part of every batch: enough for its batches of an epoch."""
        n, size = len(self), max(1, self.batch_size)
        return range(n * slot.start // size, n * slot.stop // size)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.rows.row_shape

    def take(self, index: Tensor) -> Tensor:
        return self.values(self.rows.take(index))

    def values(self, x: Tensor) -> Tensor:
        """Convert rows as read to what the methods see: floating point, on the device, images divided."""
        if self.device.type == "cuda":
            x = x.to(self.device, non_blocking=x.is_pinned())
        elif x.device != self.device:
            x = x.to(self.device)
        if self.rows.divisor != 1 and not x.is_floating_point() and torch.get_default_dtype() == torch.float32:
            return x / self.rows.divisor  # float32, at once
        x = x if x.dtype == torch.float32 else x.float()
        return x if self.rows.divisor == 1 else x / self.rows.divisor

    def take_checked(self, index: Tensor) -> Tensor:
        """`take`, but raise on values that are not finite; synchronises with the device, so not for training steps."""
        return self._checked(self.take(index), index)

    def block(self, start: int, stop: int) -> Tensor:
        """Consecutive rows; raises on values that are not finite."""
        return self._checked(self.values(self.rows.block(start, stop, self.device)), range(start, stop))

    def _checked(self, x: Tensor, index: Tensor | range) -> Tensor:
        if math.isfinite(x.sum().item()):  # then every value is
            return x
        bad = (~x.flatten(1).isfinite().all(1)).nonzero()
        if len(bad):
            row = int(index[int(bad[0])])
            if self.rows.is_embedding:
                raise ValueError(
                    f"Training diverged: the network's embedding is not finite, first in row {row}. A smaller lr, or "
                    "rows in other units, may help."
                )
            raise ValueError(f"Input X contains NaN, infinity or a value too large for float32, first in row {row}.")
        return x

    def draw(self, size: int) -> Tensor:
        """The positions of at most `size` rows, drawn without repetition, in order."""
        if size >= len(self):
            return torch.arange(len(self), device=self.device)
        return torch.randperm(len(self), device=self.device)[:size].sort().values

    def spaced(self, size: int) -> Tensor:
        """The positions of at most `size` rows, evenly spaced: no random numbers are drawn."""
        if size >= len(self):
            return torch.arange(len(self), device=self.device)
        return torch.linspace(0, len(self) - 1, size, dtype=torch.float64, device=self.device).long()

    def weighted_by_share(self, losses: dict[str, Tensor]) -> dict[str, Tensor]:
        """Means over this process's rows of a batch, times the share that these are of the batch: their sum over all
        processes is the mean over the whole batch."""
        if self.processes.alone:
            return losses
        share = (self.slot.stop - self.slot.start) / self.batch_size
        return {name: share * value for name, value in losses.items()}

    def total(self, *sums: Tensor) -> Sequence[Tensor]:
        """Sums over this process's rows -> sums over the rows of all processes."""
        return totals(*sums)

    def map(self, fn: Callable[[Tensor], Tensor], index: Tensor | None = None) -> Tensor:
        """Apply fn to all rows, or to the rows at `index`, in order. A row's result does not depend on the other rows.
        Processes that share the work compute a part each, and all get all results."""
        if self.processes.alone or (index is not None and len(index) <= max(CHUNK, self.processes.size)):
            return self._map(fn, index)
        if index is None:
            return self.join(self._map(fn, None))
        sizes = [slot.stop - slot.start for slot in self.processes.parts(len(index))]
        return self.processes.all_gather_rows(self._map(fn, index[self.processes.part(len(index))]), sizes)

    def join(self, results: Tensor) -> Tensor:
        """Gather the results of all rows, given those of this process's own rows."""
        return self.processes.all_gather_rows(
            results, [len(self._rows_of(slot)) for slot in self.processes.parts(self.batch_size)]
        )

    def _map(self, fn: Callable[[Tensor], Tensor], index: Tensor | None) -> Tensor:
        n = len(self.own) if index is None else len(index)
        done, results = 0, torch.empty(0)
        for part in self.parts(fn, index, kept=n <= self.chunk):
            count = part.shape[0]
            if count == n:
                return part
            if done == 0:
                results = part.new_empty(n, *part.shape[1:])
            results[done : done + count] = part
            done += count
        return results

    def parts(self, fn: Callable[[Tensor], Tensor], index: Tensor | None = None, kept: bool = True) -> Iterator[Tensor]:
        """Yield fn of this process's rows, or of those at `index`, a chunk at a time. Unless `kept`, results may share
        memory with the user's rows."""
        places = self.own if index is None else range(len(index))
        for start in places[:: self.chunk]:
            stop = min(start + self.chunk, places.stop)
            x = self.block(start, stop) if index is None else self.take_checked(index[start:stop])
            n = x.shape[0]
            padded = x if n >= MIN_ROWS_AT_ONCE else torch.cat([x, x[:1].expand(MIN_ROWS_AT_ONCE - n, *x.shape[1:])])
            with torch.no_grad(), without_caller_modes():
                answers = fn(padded)
            if kept and answers.data_ptr() == padded.data_ptr():  # the rows themselves, which may be the user's
                answers = answers.clone()
            yield answers if padded is x else answers[:n]

    def fingerprint(self, most: int = 200_000) -> str:
        """A digest of the rows' shape, number and values; of more than `most` rows, of that many evenly spaced."""
        digest = hashlib.sha256(str((len(self), self.row_shape)).encode())
        index = torch.linspace(0, len(self) - 1, min(len(self), most), dtype=torch.float64).long()
        for chunk in index.split(CHUNK):
            digest.update(self.take(chunk.to(self.device)).cpu().numpy().tobytes())
        return digest.hexdigest()

    @functools.cached_property
    def summary(self) -> Summary:
        """Statistics from one pass over the values; raises on values that are not finite."""
        total = torch.zeros(self.row_shape, dtype=torch.float64, device=self.device)
        squares, zeros = torch.zeros_like(total), torch.zeros_like(total)
        origin = torch.zeros((), dtype=torch.float64) if self.rows.origin is None else self.rows.origin
        zero = -origin.float().to(self.device)
        low, high = total.float() + torch.inf, total.float() - torch.inf
        lengths = torch.tensor([torch.inf, 0.0], device=self.device)  # shortest and longest, squared
        with self.processes.raising_together():
            for start in self.own[::CHUNK]:
                x = self.block(start, min(start + CHUNK, self.own.stop))
                low, high = torch.minimum(low, x.amin(0)), torch.maximum(high, x.amax(0))
                total += x.sum(0, dtype=torch.float64)
                squares += x.double().square().sum(0)
                zeros += (x == zero).sum(0)
                squared = x.flatten(1).square().sum(1)
                shortest = squared.where(squared > 0, torch.inf).amin()
                lengths = torch.stack([torch.minimum(lengths[0], shortest), torch.maximum(lengths[1], squared.amax())])
        lows, highs, every = zip(*self.processes.all_gather((low.cpu(), high.cpu(), lengths.sqrt().cpu())), strict=True)
        total, squares, zeros = self.total(total, squares, zeros)
        mean = total / len(self)
        variance = (squares / len(self) - mean.square()).clamp_min(0)
        return Summary(
            lows=torch.stack(lows).amin(0).to(mean.device),
            highs=torch.stack(highs).amax(0).to(mean.device),
            mean=mean.float(),
            deviation=variance.sqrt().float(),
            spread=variance.mean().sqrt().item(),
            zeros=zeros.mean().item() / len(self),
            nonnegative=bool((torch.stack(lows) + origin >= 0).all()),
            shortest=min(length[0].item() for length in every),
            longest=max(length[1].item() for length in every),
        )
