"""Samples where they are: in memory, on a disk, in a sparse matrix, in a torch Dataset."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sized
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

BLOCK = 2**19  # bytes read in one go, where rows lie on a disk
WINDOW = 128  # blocks whose rows are shuffled among one another


class Rows(ABC, Sized):
    """n samples of one shape. `divisor` turns integer images into [0, 1]."""

    row_shape: tuple[int, ...]
    divisor: float = 1.0
    resident = False  # whether `take` works on the device alone, without the host
    window = WINDOW
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
