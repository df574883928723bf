"""Data and Batch: samples on the device, or streamed from wherever they are."""

import functools
import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ..nn.autoencoders import ScaledRows
from ..nn.neighbours import NeighbourGraph
from ..nn.parallel import batch_mean, totals
from .distributed import ALONE, Processes

CHUNK = 1024  # rows answered at a time, on a CPU
MANY_VALUES = 2**23  # on a GPU up to eight times as many rows, where they have no more values than that together
BLOCK = 2**19  # bytes read in one go, where rows lie on a disk
WINDOW = 128
DRAWS = 3  # neighbours drawn a sample, where the batch is all rows and they are in it already
FAR = 8  # samples that each is compared with as no neighbours
FEWEST = 16  # below this, matrix kernels change and a row's last bits would depend on its company


@dataclass(frozen=True)
class Batch:
    """Rows of one step. Where several processes share the work, each has a part of them: the mean of a loss is put
    right by the loop, but whatever else a method takes over the rows it must take by `mean` and `total`."""

    x: Tensor  # (b, ...) samples as training sees them: changed at random, where the data are augmented
    clean: Tensor  # the same samples as they are
    index: Tensor  # (b,) their positions in the data set, for methods with per-sample state
    # where the data have a neighbour graph, drawn for this batch:
    neighbour: Tensor | None = None  # (b, ...) a neighbour of each sample; None where the batch is all rows,
    near: Tensor | None = None  # (b, m) which of the batch's samples are neighbours of each, then
    far: Tensor | None = None  # (b, s) which of the batch's samples, of all processes, are compared with each

    def mean(self, values: Tensor) -> Tensor:
        """Over the rows of the whole batch, (b, ...) -> (...)."""
        return batch_mean(values)

    def total(self, *sums: Tensor) -> Sequence[Tensor]:
        """Sums over these rows as sums over the whole batch; tensors of one type are exchanged at once."""
        return totals(*sums)


class Rows(ABC, Sized):
    """n samples of one shape. `divisor` turns integer images into [0, 1]."""

    row_shape: tuple[int, ...]
    divisor: float = 1.0
    resident = False  # whether `take` works on the device alone, without the host
    window = WINDOW  # blocks whose rows are shuffled among one another
    forward = False  # whether rows can only be read from the first to the last

    @abstractmethod
    def take(self, index: Tensor) -> Tensor: ...

    def block(self, start: int, stop: int, device: torch.device) -> Tensor:
        """Rows that follow one another."""
        return self.take(torch.arange(start, stop, device=device))

    def to(self, device: torch.device) -> "Rows":
        return self

    def edges(self) -> np.ndarray | None:
        """Where the blocks begin that are best read together, and the end; None where any order is as good."""
        return None

    def _even_edges(self, row_bytes: int) -> np.ndarray | None:
        """Blocks of about BLOCK bytes, where there is more than a window of them."""
        n, block = len(self), max(1, BLOCK // max(1, row_bytes))
        return np.append(np.arange(0, n, block), n) if n > WINDOW * block else None


class TensorRows(Rows):
    """In memory; moves to the device whole, in the type it has (images may stay uint8)."""

    resident = True

    def __init__(self, x: Tensor, divisor: float = 1.0) -> None:
        self.x, self.divisor, self.row_shape = x, divisor, tuple(x.shape[1:])

    def __len__(self) -> int:
        return len(self.x)

    def take(self, index: Tensor) -> Tensor:
        return self.x[index.to(self.x.device)]

    def block(self, start: int, stop: int, device: torch.device) -> Tensor:
        return self.x[start:stop]

    def to(self, device: torch.device) -> Rows:
        return TensorRows(self.x.to(device), self.divisor)


class ArrayRows(Rows):
    """A numpy array too large to copy, such as a memory map. `arrange` brings a block to `(b, *row_shape)`."""

    def __init__(
        self,
        array: np.ndarray,
        row_shape: tuple[int, ...],
        arrange: Callable[[Tensor], Tensor],
        divisor: float = 1.0,
    ) -> None:
        self.array, self.row_shape, self.arrange, self.divisor = array, row_shape, arrange, divisor

    def __len__(self) -> int:
        return len(self.array)

    def take(self, index: Tensor) -> Tensor:
        return self._tensor(self.array[index.cpu().numpy()])

    def block(self, start: int, stop: int, device: torch.device) -> Tensor:
        return self._tensor(self.array[start:stop])

    def _tensor(self, block: np.ndarray) -> Tensor:
        kept = np.uint8 if block.dtype == np.uint8 else np.float32
        return self.arrange(torch.from_numpy(np.array(block, dtype=kept)))

    def edges(self) -> np.ndarray | None:
        return self._even_edges(self.array[:1].nbytes)


class SparseMatrix(Protocol):
    shape: tuple[int, int]

    def __getitem__(self, index: Any) -> Any: ...


class SparseRows(Rows):
    """A scipy CSR matrix, made dense a block at a time."""

    def __init__(self, matrix: SparseMatrix) -> None:
        self.matrix, self.row_shape = matrix, (matrix.shape[1],)

    def __len__(self) -> int:
        return self.matrix.shape[0]

    def take(self, index: Tensor) -> Tensor:
        return torch.from_numpy(self.matrix[index.cpu().numpy()].toarray())


def sample(item: Any) -> Tensor:
    """Of what a Dataset gives: the thing itself, or the first of a tuple."""
    try:
        x = torch.as_tensor(item[0] if isinstance(item, (tuple, list)) else item).detach()
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise TypeError(
            f"An item of the Dataset is a {type(item).__name__} that is no sample ({error}): it should be a tensor or "
            "an array of numbers, or a tuple that begins with one."
        ) from None
    return x[None] if x.ndim == 2 else x


class DatasetRows(Rows):
    """A torch Dataset with a length; an item is a sample, or a tuple that starts with one."""

    def __init__(self, dataset: Any, row_shape: tuple[int, ...], divisor: float = 1.0) -> None:
        self.dataset, self.row_shape, self.divisor = dataset, row_shape, divisor

    def __len__(self) -> int:
        return len(self.dataset)

    def take(self, index: Tensor) -> Tensor:
        items = [sample(self.dataset[i]) for i in index.tolist()]
        for i, item in zip(index.tolist(), items, strict=True):
            if tuple(item.shape) != self.row_shape:
                raise ValueError(f"Sample {i} has shape {tuple(item.shape)}, the others {self.row_shape}.")
        return torch.stack(items)


class Summary(NamedTuple):
    low: float
    high: float
    mean: Tensor  # of each value of a row, (*row_shape,)
    spread: float  # root mean square distance of a value from its mean
    deviation: Tensor  # of each value of a row, (*row_shape,)
    reach: Tensor  # largest less smallest, of each value of a row
    zeros: float  # share of values that are zero


class Data:
    """Samples as the loop and the methods see them: floating point, on the device, a batch at a time.

    Batches all have one size. An epoch is every full batch of `batch_size` rows, and the few rows left over
    sit it out; where more than a tenth would be left over, batches are made smaller instead.

    Where several processes share the work, `own` are the rows this one goes over, and `slot` its part of a batch.
    """

    def __init__(
        self,
        rows: Rows,
        device: torch.device,
        batch_size: int = CHUNK,
        augment: Callable[[Tensor], Tensor] | None = None,
        processes: Processes = ALONE,
    ) -> None:
        n = len(rows)
        self.graph: NeighbourGraph | None = None  # batches then come with neighbours
        self.scaled: ScaledRows | None = None  # the rows' own units, once they are known
        self.scale: Tensor | None = None  # what columns are divided by, where that is said and not told from the values
        self.rows, self.device, self.augment, self.processes = rows.to(device), device, augment, processes
        self.steps = max(1, n // batch_size)
        if self.steps * batch_size < 0.9 * n:
            self.steps += 1
        self.steps = max(1, min(self.steps, n // 2))  # batch norm needs two rows
        self.batch_size = min(batch_size, n // self.steps)
        if processes.size > max(1, self.batch_size):
            raise ValueError(
                f"{processes.size} processes cannot share batches of {self.batch_size} rows, out of {n}: "
                f"{processes.size - self.batch_size} of them would have no rows. Start fewer, or give a larger "
                "batch_size."
            )
        values = max(1, math.prod(rows.row_shape))
        self.chunk = CHUNK if device.type == "cpu" else max(CHUNK, min(8 * CHUNK, MANY_VALUES // values))
        self.slot = processes.part(self.batch_size)
        self.own = self._rows_of(self.slot)

    def _rows_of(self, slot: slice) -> range:
        """The rows of the process with this part of every batch: at least as many as its batches of an epoch need."""
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
        """Rows as they were read, as the methods see them."""
        x = x.to(self.device, non_blocking=x.is_pinned() if self.device.type == "cuda" else False)
        x = x if x.dtype == torch.float32 else x.float()
        return x if self.rows.divisor == 1 else x / self.rows.divisor

    def take_checked(self, index: Tensor) -> Tensor:
        """`take`, refusing what is not finite; it waits for the device, so not in a training step."""
        return self._checked(self.take(index), index)

    def block(self, start: int, stop: int) -> Tensor:
        """Rows that follow one another, refusing what is not finite."""
        return self._checked(self.values(self.rows.block(start, stop, self.device)), range(start, stop))

    def _checked(self, x: Tensor, index: Tensor | range) -> Tensor:
        if math.isfinite(x.sum().item()):  # then every value is
            return x
        bad = (~x.flatten(1).isfinite().all(1)).nonzero()
        if len(bad):
            row = int(index[int(bad[0])])
            raise ValueError(f"Input X contains NaN, infinity or a value too large for float32, first in row {row}.")
        return x

    def shuffled(self) -> Iterator[Batch]:
        """One epoch."""
        feed = Feed(self)
        feed.begin()
        for step in range(self.steps):
            feed.bring(step)
            yield feed.batch()

    def draw(self, size: int) -> Tensor:
        """The positions of at most `size` rows, drawn without repetition, in order."""
        if size >= len(self):
            return torch.arange(len(self), device=self.device)
        return torch.randperm(len(self), device=self.device)[:size].sort().values

    def portion(self, losses: dict[str, Tensor]) -> dict[str, Tensor]:
        """Means over this process's part of a batch, as parts of the means over the whole."""
        if self.processes.alone:
            return losses
        share = (self.slot.stop - self.slot.start) / self.batch_size
        return {name: share * value for name, value in losses.items()}

    def total(self, *sums: Tensor) -> Sequence[Tensor]:
        """Sums over the rows that this process has seen, as in an epoch, as sums over those of all processes."""
        return totals(*sums)

    def map(self, fn: Callable[[Tensor], Tensor], index: Tensor | None = None) -> Tensor:
        """fn over everything, or over the rows at `index`, in order: a row's result does not depend on the rows
        asked for with it. Processes that share the work all have all results."""
        if self.processes.alone or (index is not None and len(index) <= max(CHUNK, self.processes.size)):
            return self._map(fn, index)
        if index is None:
            return self.join(self._map(fn, None))
        sizes = [slot.stop - slot.start for slot in self.processes.parts(len(index))]
        return self.processes.join(self._map(fn, index[self.processes.part(len(index))]), sizes)

    def join(self, results: Tensor) -> Tensor:
        """Of every row, from what each process has of its own."""
        return self.processes.join(
            results, [len(self._rows_of(slot)) for slot in self.processes.parts(self.batch_size)]
        )

    def _map(self, fn: Callable[[Tensor], Tensor], index: Tensor | None) -> Tensor:
        n = len(self.own) if index is None else len(index)
        done, results = 0, torch.empty(0)
        for part in self.parts(fn, index):
            if len(part) == n:
                return part
            if done == 0:
                results = part.new_empty(n, *part.shape[1:])
            results[done : done + len(part)] = part
            done += len(part)
        return results

    def parts(self, fn: Callable[[Tensor], Tensor], index: Tensor | None = None) -> Iterator[Tensor]:
        """fn over this process's rows, or over those at `index`, a chunk at a time."""
        places = self.own if index is None else range(len(index))
        for start in places[:: self.chunk]:
            stop = min(start + self.chunk, places.stop)
            x = self.block(start, stop) if index is None else self.take_checked(index[start:stop])
            missing = max(0, FEWEST - len(x))
            padded = torch.cat([x, x[:1].expand(missing, *x.shape[1:])]) if missing else x
            with torch.no_grad():
                yield fn(padded)[: len(x)]

    def fingerprint(self, most: int = 200_000) -> str:
        """A digest of the rows' shape, number and values; of more than `most` rows, of that many evenly spaced."""
        digest = hashlib.sha256(str((len(self), self.row_shape)).encode())
        index = torch.linspace(0, len(self) - 1, min(len(self), most), dtype=torch.float64).long()
        for chunk in index.split(CHUNK):
            digest.update(self.take(chunk.to(self.device)).cpu().numpy().tobytes())
        return digest.hexdigest()

    @functools.cached_property
    def summary(self) -> Summary:
        """One pass over the values; refuses what is not finite."""
        total = torch.zeros(self.row_shape, dtype=torch.float64, device=self.device)
        squares, zeros = torch.zeros_like(total), torch.zeros_like(total)
        low, high = total.float() + torch.inf, total.float() - torch.inf
        with self.processes.together():
            for start in self.own[::CHUNK]:
                x = self.block(start, min(start + CHUNK, self.own.stop))
                low, high = torch.minimum(low, x.amin(0)), torch.maximum(high, x.amax(0))
                total += x.sum(0, dtype=torch.float64)
                squares += x.double().square().sum(0)
                zeros += (x == 0).sum(0)
        lows, highs = zip(*self.processes.every((low.cpu(), high.cpu())), strict=True)
        low, high = torch.stack(lows).amin(0), torch.stack(highs).amax(0)
        total, squares, zeros = self.total(total, squares, zeros)
        mean = total / len(self)
        variance = (squares / len(self) - mean.square()).clamp_min(0)
        return Summary(
            low=low.min().item(),
            high=high.max().item(),
            mean=mean.float(),
            spread=variance.mean().sqrt().item(),
            deviation=variance.sqrt().float(),
            reach=(high - low).to(mean.device),
            zeros=zeros.mean().item() / len(self),
        )


READER = ThreadPoolExecutor(1, "diffclust-reader")


class Feed:
    """The batches of one epoch after another, in tensors that stay where they are, so that a captured step finds
    the next batch by itself."""

    def __init__(self, data: Data) -> None:
        self.data = data
        width = data.slot.stop - data.slot.start
        self.order = torch.empty(data.steps, width, dtype=torch.long, device=data.device)
        self.cursor = torch.zeros(1, dtype=torch.long, device=data.device)
        self.brought: Tensor | None = None
        self.ahead: Future[Tensor] | None = None
        self.all_rows = data.steps == 1 and width == len(data)
        if data.graph is not None:
            draws, pairs = (DRAWS, DRAWS * FAR // 4) if self.all_rows else (1, FAR)
            self.neighbours = torch.empty(data.steps, width, draws, dtype=torch.long, device=data.device)
            self.shifts = torch.empty(data.steps, pairs, dtype=torch.long, device=data.device)

    def begin(self) -> None:
        edges = self.data.rows.edges()
        if edges is None:
            data = self.data
            order = torch.randperm(len(data), device=data.device)
            self.order.copy_(order[: data.steps * data.batch_size].view(data.steps, -1)[:, data.slot])
        else:
            self._shuffle_blocks(edges)
        if self.data.graph is not None:
            self._draw_neighbours(self.data.graph)
        self.cursor.zero_()
        self.ahead = None

    def _draw_neighbours(self, graph: NeighbourGraph) -> None:
        """For all of the epoch, from the random numbers that processes have in common: each then takes its part."""
        data = self.data
        steps, _, draws = self.neighbours.shape
        uniform = torch.rand(steps, data.batch_size, draws, device=data.device)[:, data.slot]
        for step in range(steps):
            self.neighbours[step] = graph.draw(self.order[step], uniform[step])
        if self.all_rows:
            place = torch.empty_like(self.order[0])
            place[self.order[0]] = torch.arange(len(place), device=place.device)
            self.neighbours.copy_(place[self.neighbours])
        self.shifts.copy_(torch.randint(1, max(2, data.batch_size), self.shifts.shape, device=data.device))

    def _shuffle_blocks(self, edges: np.ndarray) -> None:
        """Blocks in random order, or as they come where rows are read forward; the rows of a window of blocks are
        shuffled among one another. So a disk is read in long runs, and a batch has rows of many places. A process
        stays with its own rows, of which its disk cache may hold all."""
        own, processes, generator = self.data.own, self.data.processes, None
        if not processes.alone:
            edges = np.unique(np.clip(edges, own.start, own.stop))
            # how much is drawn differs from process to process: not from the common source
            generator = torch.Generator().manual_seed(int(torch.randint(2**31, ())) * processes.size + processes.rank)
        flat, done, count = self.order.view(-1), 0, len(edges) - 1
        blocks = np.arange(count) if self.data.rows.forward else torch.randperm(count, generator=generator).numpy()
        for first in range(0, count, self.data.rows.window):
            window = blocks[first : first + self.data.rows.window]
            rows = torch.cat([torch.arange(edges[b], edges[b + 1]) for b in window])
            rows = rows[torch.randperm(len(rows), generator=generator)][: len(flat) - done]
            flat[done : done + len(rows)] = rows.to(flat.device)
            done += len(rows)

    def bring(self, step: int) -> None:
        """Fetch the rows of this step from the host, where they do not live on the device."""
        if self.data.rows.resident:
            return
        read = self.ahead.result() if self.ahead is not None else self._read(step)
        more = self.data.rows.edges() is not None and not self.data.rows.forward and step + 1 < len(self.order)
        self.ahead = READER.submit(self._read, step + 1) if more else None  # while this step is taken
        rows = self.data.values(read)
        self.brought = rows if self.brought is None else self.brought.copy_(rows)

    def _read(self, step: int) -> Tensor:
        index = self.order[step]
        if self.data.graph is not None and not self.all_rows:
            index = torch.cat([index, self.neighbours[step, :, 0]])
        rows = self.data.rows.take(index)
        return rows.pin_memory() if self.data.device.type == "cuda" else rows

    def batch(self) -> Batch:
        index = self.order.index_select(0, self.cursor)[0]
        company = {} if self.data.graph is None else self._company()
        self.cursor += 1
        clean = self.data.take(index) if self.brought is None else self.brought[: len(index)]
        return Batch(self.data.augment(clean) if self.data.augment else clean, clean, index, **company)

    def _company(self) -> dict[str, Tensor]:
        """What a batch has to say of neighbours: see `Batch`."""
        data, neighbours = self.data, self.neighbours.index_select(0, self.cursor)[0]
        place = torch.arange(data.slot.start, data.slot.stop, device=data.device)
        far = (place[:, None] + self.shifts.index_select(0, self.cursor)) % data.batch_size
        if self.all_rows:
            return {"near": neighbours, "far": far}
        neighbour = data.take(neighbours[:, 0]) if self.brought is None else self.brought[len(neighbours) :]
        return {"neighbour": data.augment(neighbour) if data.augment else neighbour, "far": far}
