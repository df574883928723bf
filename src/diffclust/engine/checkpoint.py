"""Checkpoints: the whole state of a fit in one file, so that a killed run can resume exactly.

A checkpoint is written to a temporary file, flushed to disk and renamed, and starts with its own SHA-256. The last two
are kept, so at least one is complete at any moment. Tensors are safetensors, the rest is JSON: no pickle. A folder
serves one fit at a time. A checkpoint that cannot be written or removed ends no fit: that is a warning.
"""

import contextlib
import errno
import functools
import hashlib
import inspect
import json
import os
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from .disk import FolderBusy, flush, folder_lock, read_regular, reporting_as, write_flushed
from .distributed import ONE_PROCESS, Processes

STATE_FORMAT = 2  # format of the state; format 1 had no number
N_KEPT = 2  # checkpoints in the folder: the one before the last is read if the last is damaged
LOCK_SECONDS = 10.0  # seconds to wait for another fit in the folder, such as the last process of a killed one
REMEDY = "Give another folder, or remove it to start afresh."
MALFORMED = (AttributeError, IndexError, KeyError, RecursionError, SafetensorError, TypeError, ValueError)
NAME, SUFFIX, PARTIAL = "diffclust-{}", ".ckpt", ".part"  # numbered; other files in the folder are ignored


def pack(state: Any) -> bytes:
    """Nested dicts, lists and tuples of tensors and plain values -> bytes."""
    tensors: dict[str, Tensor] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, Tensor):
            tensors[str(len(tensors))] = value.detach().cpu().contiguous().clone()
            return {"tensor": str(len(tensors) - 1)}
        if isinstance(value, dict):
            return {"items": [[plain(k), plain(v)] for k, v in value.items()]}
        if isinstance(value, (list, tuple)):
            return {"list" if isinstance(value, list) else "tuple": [plain(v) for v in value]}
        return value.item() if isinstance(value, np.generic) else value

    return save_tensors(tensors, metadata={"state": json.dumps(plain(state))})


def unpack(blob: bytes) -> Any:
    """The reverse of `pack`; a ValueError for other bytes."""
    try:
        tensors = load_tensors(blob)
        header = json.loads(blob[8 : 8 + int.from_bytes(blob[:8], "little")])
        return _restored(json.loads(header["__metadata__"]["state"]), tensors)
    except MALFORMED as error:
        raise ValueError(f"no packed state: {error}") from error


def _restored(value: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "items":
        return {_restored(k, tensors): _restored(v, tensors) for k, v in content}
    return {"list": list, "tuple": tuple}[kind](_restored(v, tensors) for v in content)


_kept: ContextVar[bool] = ContextVar("kept", default=False)


@contextlib.contextmanager
def keeping_checkpoints() -> Iterator[None]:
    """A context in which a finished fit does not clear its checkpoint: the caller does, after saving the result."""
    token = _kept.set(True)
    try:
        yield
    finally:
        _kept.reset(token)


@contextlib.contextmanager
def restoring() -> Iterator[None]:
    """A context in which errors are reported as those of a checkpoint that does not fit the model."""
    try:
        yield
    except (*MALFORMED, RuntimeError) as error:
        said = " ".join(str(error).split())[:200]
        raise ValueError(f"The checkpoint does not fit the model ({said}). {REMEDY}") from error


class CheckpointFolder:
    """Numbered checkpoints in a folder; the newest complete one counts."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise NotADirectoryError(f"checkpoint={self.folder} is a file: give a folder.")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise type(error)(error.errno, f"checkpoint: {error.strerror}", str(self.folder)) from error
        self.inode = self._inode()

    def check_writable(self) -> None:
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "checkpoint: the folder cannot be written to", str(self.folder))

    def reserved(self, patience: float | None = None) -> contextlib.AbstractContextManager[None]:
        """A context in which the folder belongs to one fit."""
        busy = f"checkpoint={self.folder}: another fit is at work in this folder. Give each fit a folder of its own."
        return folder_lock(self.folder, busy, LOCK_SECONDS if patience is None else patience)

    def _inode(self) -> tuple[int, int]:
        """Identifies the folder, in case another one takes its name."""
        status = self.folder.stat()
        return status.st_dev, status.st_ino

    def _still_reserved(self) -> contextlib.AbstractContextManager[None]:
        """`reserved` during a fit: create the folder again if it was deleted, and also reserve a folder that replaced
        it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return contextlib.nullcontext() if self._inode() == self.inode else self.reserved(patience=0)

    def files(self) -> list[Path]:
        """Our checkpoints in the folder, newest first."""
        return sorted(self.folder.glob(NAME.format("[0-9]" * 8) + SUFFIX), reverse=True)

    def write(self, state: Any) -> None:
        blob = pack(state)
        with self._still_reserved():
            files = self.files()
            number = int(files[0].stem[-8:]) + 1 if files else 0
            self._write(self.folder / (NAME.format(f"{number:08d}") + SUFFIX), blob)
            for old in self.files()[N_KEPT:]:
                old.unlink(missing_ok=True)

    def _write(self, path: Path, blob: bytes) -> None:
        part = path.with_suffix(PARTIAL)
        try:
            with reporting_as(path, part):
                write_flushed(part, hashlib.sha256(blob).digest() + blob)
                part.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise
        flush(self.folder)

    def read(self) -> Any | None:
        """The newest whole state, or None; a damaged one is skipped with a warning."""
        for path in self.files():
            try:
                content = read_regular(path)
                if hashlib.sha256(content[32:]).digest() == content[:32]:
                    return unpack(content[32:])
            except FileNotFoundError:
                continue
            except ValueError:
                pass
            warnings.warn(f"{path} is damaged: trying the checkpoint before it.", UserWarning, stacklevel=2)
        return None

    def clear(self) -> None:
        """Remove the checkpoints of a finished fit."""
        with self._still_reserved():
            for path in [*self.files(), *self.folder.glob(NAME.format("[0-9]" * 8) + PARTIAL)]:
                path.unlink(missing_ok=True)


def snapshot(state: Any) -> Any:
    """A copy on the CPU, because training continues to change the tensors."""
    if isinstance(state, Tensor):
        return state.detach().cpu().clone()
    if isinstance(state, dict):
        return {key: snapshot(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(map(snapshot, state)) if type(state) in (list, tuple) else tuple(map(snapshot, state))
    return state


class Checkpoint:
    """The state of a fit, with one entry per restart; without a folder nothing is kept.

    An entry has "result" (of a finished restart), "phases" (the results of finished phases, by name) and "current" (the
    name and the state of the current phase).
    """

    def __init__(
        self,
        folder: CheckpointFolder | None,
        every: int,
        identity: dict[str, Any],
        seeds: list[int],
        processes: Processes = ONE_PROCESS,
        defaults: dict[str, Any] | None = None,
        found: tuple[Any, ...] | None = None,
    ) -> None:
        """Start a new state, or read the one in the folder.

        Args:
            folder: folder of the checkpoints; None: keep none.
            every: epochs between checkpoints.
            identity: settings and data that must be equal to those of the fit that wrote the folder.
            seeds: seeds of the restarts.
            processes: the processes that share the fit.
            defaults: values for parts of the identity that an older checkpoint does not have.
            found: results from before training (the number of clusters), which a resumed fit need not compute again.
        """
        self.folder, self.every, self.processes = folder, every, processes
        self.has_news = False
        self.has_warned = False
        self.state: dict[str, Any] = {
            "format": STATE_FORMAT,
            "identity": identity,
            "seeds": seeds,
            "found": found,
            "entries": [{"result": None, "phases": {}, "current": None} for _ in seeds],
        }
        kept = processes.broadcast(folder.read) if folder else None
        if kept is not None:
            self._check(kept, identity, seeds, defaults or {})
            self.state = kept
        self.seeds: list[int] = self.state["seeds"]
        self.entries: list[dict[str, Any]] = self.state["entries"]

    @staticmethod
    def _check(kept: Any, identity: dict[str, Any], seeds: list[int], defaults: dict[str, Any]) -> None:
        if not isinstance(kept, dict) or kept.get("format") != STATE_FORMAT:
            raise ValueError(f"The checkpoint was written by another version of diffclust. {REMEDY}")
        with restoring():
            known = {**defaults, **kept["identity"]}
            entries = [{"result", "phases", "current"} <= entry.keys() for entry in kept["entries"]]
            numbers = [type(seed) is int for seed in kept["seeds"]]
        different = [name for name in identity if known.get(name) != identity[name]]
        if different:
            raise ValueError(f"The checkpoint is of another fit: {', '.join(different)} differ. {REMEDY}")
        if not len(entries) == len(numbers) == len(seeds) or not all(entries + numbers):
            raise ValueError(f"The checkpoint does not fit the model (its restarts are not {len(seeds)}). {REMEDY}")

    def is_due(self, epochs_done: int) -> bool:
        return self.folder is not None and epochs_done % self.every == 0

    def note(self, entry: dict[str, Any], news: dict[str, Any]) -> None:
        """Update a restart's entry. Tensors are copied, because training continues to change them."""
        if self.folder is not None and self.processes.leads:
            entry.update(snapshot(news))
            self.has_news = True

    def write(self) -> None:
        """Write the state if it has changed. If that fails, warn and continue: training matters more than its
        checkpoint."""
        if self.folder is not None and self.has_news:
            try:
                self.folder.write(self.state)
            except (OSError, FolderBusy) as error:
                self._warn_once(f"could not be written ({error}). Training goes on, and tries again at the next.")
        self.has_news = False

    def _warn_once(self, trouble: str) -> None:
        if not self.has_warned and self.folder is not None:
            self.has_warned = True
            warnings.warn(f"checkpoint={self.folder.folder}: a checkpoint {trouble}", UserWarning, stacklevel=3)

    def clear(self) -> None:
        """Remove the files of a finished fit, except inside `keeping_checkpoints`."""
        if self.folder is not None and self.processes.leads and not _kept.get():
            try:
                self.folder.clear()
            except (OSError, FolderBusy) as error:
                self._warn_once(f"could not be removed ({error}), though the fit is done.")


def comparable(value: Any) -> Any:
    """A setting as plain values that are comparable across processes."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (np.ndarray, np.generic, Tensor)):
        return np.asarray(value).tolist()
    if isinstance(value, (tuple, list)):
        return [comparable(item) for item in value]
    if isinstance(value, dict):
        return {key: comparable(entry) for key, entry in sorted(value.items())}
    if isinstance(value, functools.partial):
        return [comparable(value.func), comparable(value.args), comparable(sorted(value.keywords.items()))]
    if isinstance(value, nn.Module):  # its first weights may be drawn anew in every process
        return [repr(value), {name: list(tensor.shape) for name, tensor in value.state_dict().items()}]
    name = getattr(value, "__qualname__", type(value).__qualname__)
    caught = inspect.getclosurevars(value).nonlocals if inspect.isfunction(value) else {}
    plain = {key: inner for key, inner in sorted(caught.items()) if isinstance(inner, (bool, int, float, str))}
    return [name, plain] if plain else name
