"""Access to samples where they are stored: in memory, on disk, in a sparse matrix, in a torch Dataset."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sized
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

BLOCK_BYTES = 2**19  # bytes read in one go, where rows lie on a disk
SHUFFLED_BLOCKS = 128  # consecutive blocks whose rows are shuffled together
MOMENTS_ROWS, MOMENTS_CHUNK = 10_000, 1024  # rows that `moments` is taken over, and those read at a time


class Moments:
    """Running mean and deviation of each column, or of all pixels of images. Computed in float64 from differences to
    the first row, so that no digits are lost far from zero."""

    def __init__(self) -> None:
        self.n, self.first, self.sum, self.squares = 0, torch.empty(0), torch.empty(0), torch.empty(0)

    def add(self, part: Tensor) -> None:
        """`(b, *row_shape)`."""
        x = part.cpu().double()
        x = x if x.ndim == 2 else x.reshape(-1, 1)
        if self.n == 0:
            self.first, self.sum, self.squares = x[0], torch.zeros_like(x[0]), torch.zeros_like(x[0])
        x = x - self.first
        self.n += len(x)
        self.sum, self.squares = self.sum + x.sum(0), self.squares + x.square().sum(0)

    @property
    def mean(self) -> Tensor:
        return self.first + self.sum / self.n

    @property
    def deviation(self) -> Tensor:
        return (self.squares / self.n - (self.sum / self.n).square()).clamp_min(0).sqrt()


class Rows(ABC, Sized):
    """n samples of one shape. `divisor` turns integer images into [0, 1]; `origin` is subtracted from rows far from
    zero, in double precision, before they become single."""

    row_shape: tuple[int, ...]
    divisor: float = 1.0
    origin: Tensor | None = None
    origin_known = False  # whether `origin` is final, even if None; until then rows are read in float64
    is_embedding = False  # output of a network instead of the user's rows
    resident = False  # all rows are on the device
    window = SHUFFLED_BLOCKS  # blocks that are shuffled together
    forward_only = False  # rows can only be read from first to last, as a stream

    @abstractmethod
    def take(self, index: Tensor) -> Tensor: ...

    def block(self, start: int, stop: int, device: torch.device) -> Tensor:
        """Consecutive rows."""
        return self.take(torch.arange(start, stop, device=device))

    def to(self, device: torch.device) -> "Rows":
        return self

    def moments(self) -> Moments:
        """Mean and deviation of some evenly spaced rows."""
        found = Moments()
        spaced = torch.linspace(0, len(self) - 1, min(len(self), MOMENTS_ROWS), dtype=torch.float64).long()
        for part in spaced.split(MOMENTS_CHUNK):
            found.add(self.take(part))
        return found

    def subtract_origin(self, origin: Tensor | None) -> "Rows":
        """These rows with `origin` subtracted from now on."""
        self.origin, self.origin_known = origin, True
        return self

    def _moved(self, x: Tensor) -> Tensor:
        return x if self.origin is None else (x.double() - self.origin.to(x.device)).float()

    def edges(self) -> np.ndarray | None:
        """First rows of the blocks in which rows should be read, and the number of rows (blocks + 1,); None if the
        order of reading does not matter."""
        return None

    def _even_edges(self, row_bytes: int) -> np.ndarray | None:
        """Blocks of about BLOCK_BYTES; None if all fit into one window."""
        n, block = len(self), max(1, BLOCK_BYTES // max(1, row_bytes))
        return np.append(np.arange(0, n, block), n) if n > SHUFFLED_BLOCKS * block else None


class TensorRows(Rows):
    """Rows in memory, moved to the device all at once in their own type (images may stay uint8)."""

    resident = True

    def __init__(self, x: Tensor, divisor: float = 1.0) -> None:
        self.x, self.divisor, self.row_shape = x, divisor, tuple(x.shape[1:])

    def __len__(self) -> int:
        return self.x.shape[0]  # at once, unlike len(x)

    def take(self, index: Tensor) -> Tensor:
        return self.x[index.to(self.x.device)]

    def block(self, start: int, stop: int, device: torch.device) -> Tensor:
        return self.x[start:stop]

    def to(self, device: torch.device) -> Rows:
        if self.x.device == device:
            return self
        there = TensorRows(self.x.to(device), self.divisor)
        there.origin, there.origin_known, there.is_embedding = self.origin, self.origin_known, self.is_embedding
        return there

    def subtract_origin(self, origin: Tensor | None) -> Rows:
        super().subtract_origin(origin)
        self.x = self._moved(self.x)
        self.x = self.x if self.x.dtype in (torch.uint8, torch.float32) else self.x.float()
        return self


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
        enough = np.float32 if self.origin_known and self.origin is None else np.float64
        kept = np.uint8 if block.dtype == np.uint8 else enough
        return self.arrange(self._moved(torch.from_numpy(np.array(block, dtype=kept))))

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
        return self._moved(torch.from_numpy(self.matrix[index.cpu().numpy()].toarray()))


def sample(item: Any) -> Tensor:
    """The sample in an item of a Dataset: the item, or the first entry of a tuple."""
    try:
        x = torch.as_tensor(item[0] if isinstance(item, (tuple, list)) else item).detach()
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise TypeError(
            f"An item of the Dataset is a {type(item).__name__} that is no sample ({error}): it should be a tensor or "
            "an array of numbers, or a tuple that begins with one."
        ) from None
    if x.is_complex():
        raise ValueError(f"An item of the Dataset holds {x.dtype} values. Complex data not supported.")
    if x.dtype in (torch.uint16, torch.uint32, torch.uint64):  # for which torch has no arithmetic
        x = x.double() if x.ndim < 2 else x.long()
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
        return self._moved(torch.stack(items))
