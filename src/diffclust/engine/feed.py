"""Training batches, shuffled every epoch; with neighbours if the data have a neighbour graph."""

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np
import torch
from torch import Tensor

from ..nn.knowledge import Knowledge
from ..nn.neighbours import NeighbourGraph
from .data import Batch, Data

# Neighbours that are drawn for each sample, and others that repel it. If the batch is all rows, it contains all
# neighbours, and more of them cost little.
NEAR_PER_ROW, FAR_PER_ROW = 1, 8
NEAR_OF_ALL, FAR_OF_ALL = 3, 6
MAX_KNOWN = 64  # samples of known cluster that come with a batch, and as many pairs, at most


class Reader:
    """A background thread that reads the next batch; a forked process starts a new one."""

    def __init__(self) -> None:
        self.start()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.start)

    def start(self) -> None:
        self.thread = ThreadPoolExecutor(1, "diffclust-reader")


READER = Reader()


class Feed:
    """The batches of each epoch, in tensors that keep their memory, so that a captured step finds the next batch."""

    def __init__(self, data: Data) -> None:
        self.data = data
        width = data.slot.stop - data.slot.start
        self.order = torch.empty(data.steps, width, dtype=torch.long, device=data.device)
        self.cursor = torch.zeros(1, dtype=torch.long, device=data.device)
        self.loaded: Tensor | None = None  # the rows of this step on the device, unless all rows are there
        self.prefetched: Future[Tensor] | None = None  # those of the next step, being read
        self.all_rows = data.steps == 1 and width == len(data)
        if data.graph is not None:
            draws, far = (NEAR_OF_ALL, FAR_OF_ALL) if self.all_rows else (NEAR_PER_ROW, FAR_PER_ROW)
            self.neighbours = torch.empty(data.steps, width, draws, dtype=torch.long, device=data.device)
            self.shifts = torch.empty(data.steps, far, dtype=torch.long, device=data.device)
        if data.knowledge is not None:
            known = data.knowledge
            self.known_x = data.take(torch.cat([known.rows, known.pairs.T.flatten()]))
            counts = min(MAX_KNOWN, len(known.rows)), min(MAX_KNOWN, len(known.pairs))
            self.known, self.linked = (
                torch.empty(data.steps, count, dtype=torch.long, device=data.device) for count in counts
            )

    def begin_epoch(self) -> None:
        """Draw the order of the rows of an epoch, their neighbours and the known rows."""
        self.cancel_prefetch()
        edges = self.data.rows.edges()
        if edges is None:
            data = self.data
            order = torch.randperm(len(data), device=data.device)
            self.order.copy_(order[: data.steps * data.batch_size].view(data.steps, -1)[:, data.slot])
        else:
            self._shuffle_blocks(edges)
        if self.data.graph is not None:
            self._draw_neighbours(self.data.graph)
        if self.data.knowledge is not None:
            self._draw_knowledge(self.data.knowledge)
        self.cursor.zero_()

    def cancel_prefetch(self) -> None:
        """Cancel reading ahead, or wait for its end."""
        if self.prefetched is not None and not self.prefetched.cancel():
            wait([self.prefetched])
        self.prefetched = None

    def _draw_neighbours(self, graph: NeighbourGraph) -> None:
        """Draw for the whole epoch from random numbers that are equal in all processes; each process takes its part."""
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

    def _draw_knowledge(self, known: Knowledge) -> None:
        """Draw known rows and pairs for the whole epoch, uniformly."""
        for drawn, among in ((self.known, len(known.rows)), (self.linked, len(known.pairs))):
            drawn.copy_(torch.randint(max(1, among), drawn.shape, device=drawn.device))

    def _shuffle_blocks(self, edges: np.ndarray) -> None:
        """Shuffle the blocks (unless rows can only be read forward), and the rows within each window of blocks. So the
        disk is read sequentially, yet a batch has rows from many places. A process reads only its own rows, which its
        disk cache may hold."""
        own, processes, generator = self.data.own, self.data.processes, None
        if not processes.alone:
            edges = np.unique(np.clip(edges, own.start, own.stop))
            # processes draw different amounts, so this cannot use their common generator
            generator = torch.Generator().manual_seed(int(torch.randint(2**31, ())) * processes.size + processes.rank)
        flat, done, count = self.order.view(-1), 0, len(edges) - 1
        blocks = np.arange(count) if self.data.rows.forward_only else torch.randperm(count, generator=generator).numpy()
        for first in range(0, count, self.data.rows.window):
            window = blocks[first : first + self.data.rows.window]
            rows = torch.cat([torch.arange(edges[b], edges[b + 1]) for b in window])
            rows = rows[torch.randperm(len(rows), generator=generator)][: len(flat) - done]
            flat[done : done + len(rows)] = rows.to(flat.device)
            done += len(rows)

    def load(self, step: int) -> None:
        """Load the rows of this step to the device, unless all rows are there."""
        if self.data.rows.resident:
            return
        read = self.prefetched.result() if self.prefetched is not None else self._read(step)
        more = self.data.rows.edges() is not None and not self.data.rows.forward_only and step + 1 < len(self.order)
        self.prefetched = READER.thread.submit(self._read, step + 1) if more else None  # during this step
        rows = self.data.values(read)
        self.loaded = rows if self.loaded is None else self.loaded.copy_(rows)

    def _read(self, step: int) -> Tensor:
        index = self.order[step]
        if self.data.graph is not None and not self.all_rows:
            index = torch.cat([index, self.neighbours[step, :, 0]])
        rows = self.data.rows.take(index)
        return rows.pin_memory() if self.data.device.type == "cuda" else rows

    def batch(self) -> Batch:
        index = self.order.index_select(0, self.cursor)[0]
        beside = {} if self.data.graph is None else self._neighbour_fields()
        beside |= {} if self.data.knowledge is None else self._knowledge_fields(self.data.knowledge)
        self.cursor += 1
        clean = self.data.take(index) if self.loaded is None else self.loaded[: len(index)]
        return Batch(self.data.augment(clean) if self.data.augment else clean, clean, index, **beside)

    def _neighbour_fields(self) -> dict[str, Tensor]:
        """`neighbour`, `near` and `far` of a `Batch`."""
        data, neighbours = self.data, self.neighbours.index_select(0, self.cursor)[0]
        place = torch.arange(data.slot.start, data.slot.stop, device=data.device)
        far = place[:, None] + self.shifts.index_select(0, self.cursor)
        far = torch.where(far < data.batch_size, far, far - data.batch_size)  # on a CPU faster than a remainder
        if self.all_rows:
            return {"near": neighbours, "far": far}
        neighbour = data.take(neighbours[:, 0]) if self.loaded is None else self.loaded[len(neighbours) :]
        return {"neighbour": data.augment(neighbour) if data.augment else neighbour, "far": far}

    def _knowledge_fields(self, known: Knowledge) -> dict[str, Tensor]:
        """`known_x`, `known_labels` and `same_cluster` of a `Batch`."""
        rows, pairs = (drawn.index_select(0, self.cursor)[0] for drawn in (self.known, self.linked))
        m, p = len(known.rows), len(known.pairs)
        x = self.known_x[torch.cat([rows, m + pairs, m + p + pairs])]
        x = self.data.augment(x) if self.data.augment else x
        labels, same = known.labels[rows], known.same_cluster[pairs]
        return {"known_x": x, "known_labels": labels, "same_cluster": same}


def shuffled(data: Data) -> Iterator[Batch]:
    """The batches of one epoch."""
    feed = Feed(data)
    feed.begin_epoch()
    try:
        for step in range(data.steps):
            feed.load(step)
            yield feed.batch()
    finally:
        feed.cancel_prefetch()
