"""Checkpoints: the whole state of a fit in one file, so that a killed run goes on as if nothing had happened.

A checkpoint is written aside, flushed to disk and renamed, and starts with its own SHA-256. The last two are kept:
whatever moment a kill hits, at least one of them is whole. Tensors are safetensors, the rest is JSON: no pickle.
"""

import copy
import functools
import hashlib
import inspect
import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from .distributed import ALONE, Processes

KEPT = 2
NAME, SUFFIX, ASIDE = "diffclust-{}", ".ckpt", ".part"  # with a number; the folder may hold other things


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
        return value

    return save_tensors(tensors, metadata={"state": json.dumps(plain(state))})


def unpack(blob: bytes) -> Any:
    tensors = load_tensors(blob)
    header = json.loads(blob[8 : 8 + int.from_bytes(blob[:8], "little")])

    def rich(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        if kind == "tensor":
            return tensors[content]
        if kind == "items":
            return {rich(k): rich(v) for k, v in content}
        return (list if kind == "list" else tuple)(rich(v) for v in content)

    return rich(json.loads(header["__metadata__"]["state"]))


class CheckpointFolder:
    """Numbered checkpoints in a folder; the newest whole one counts."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise NotADirectoryError(f"checkpoint={self.folder} is a file: give a folder.")
        self.folder.mkdir(parents=True, exist_ok=True)

    def files(self) -> list[Path]:
        """Newest first; no files but our own."""
        return sorted(self.folder.glob(NAME.format("[0-9]" * 8) + SUFFIX), reverse=True)

    def write(self, state: Any) -> None:
        blob = pack(state)
        files = self.files()
        number = int(files[0].stem[-8:]) + 1 if files else 0
        path = self.folder / (NAME.format(f"{number:08d}") + SUFFIX)
        aside = path.with_suffix(ASIDE)
        with aside.open("wb") as file:
            file.write(hashlib.sha256(blob).digest() + blob)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        self._flush_names()
        for old in self.files()[KEPT:]:
            old.unlink()

    def _flush_names(self) -> None:
        """Make a rename survive a power cut, where the system can."""
        if hasattr(os, "O_DIRECTORY"):
            handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def read(self) -> Any | None:
        """The newest whole state, or None; a damaged one is passed over with a word."""
        for path in self.files():
            content = path.read_bytes()
            digest, blob = content[:32], content[32:]
            if hashlib.sha256(blob).digest() == digest:
                return unpack(blob)
            warnings.warn(f"{path} is damaged: trying the checkpoint before it.", UserWarning, stacklevel=2)
        return None

    def clear(self) -> None:
        """The work is done: nothing to go on with."""
        for path in [*self.files(), *self.folder.glob(NAME.format("[0-9]" * 8) + ASIDE)]:
            path.unlink()


def snapshot(state: Any) -> Any:
    """The state as it is now, on the CPU: training goes on with the tensors."""
    if isinstance(state, Tensor):
        return state.detach().cpu().clone()
    if isinstance(state, dict):
        return {key: snapshot(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(map(snapshot, state)) if type(state) in (list, tuple) else tuple(map(snapshot, state))
    return state


class Ledger:
    """What a fit has done so far, a page for each restart. Without a folder nothing is kept."""

    def __init__(
        self,
        folder: CheckpointFolder | None,
        every: int,
        identity: dict[str, Any],
        seeds: list[int],
        among: Processes = ALONE,
    ) -> None:
        self.folder, self.every, self.among = folder, every, among
        blank: dict[str, Any] = {"run": None, "phases": {}, "present": None}
        self.state: dict[str, Any] = {
            "identity": identity,
            "seeds": seeds,
            "pages": [copy.deepcopy(blank) for _ in seeds],
        }
        kept = among.of_leader(folder.read) if folder else None
        if kept is not None:
            different = [name for name in identity if kept["identity"].get(name) != identity[name]]
            if different:
                raise ValueError(
                    f"The checkpoint is of another fit: {', '.join(different)} differ. "
                    "Give another folder, or remove it to start afresh."
                )
            self.state = kept
        self.seeds: list[int] = self.state["seeds"]
        self.pages = [Page(self, entries) for entries in self.state["pages"]]
        self.interrupted = False
        self.news = False

    def commit(self) -> None:
        """Write what the pages have to say; after an interruption the last word before it stands."""
        if self.folder is not None and self.news and not self.interrupted:
            self.folder.write(self.state)
        self.news = False

    def close(self) -> None:
        """Nothing is left to go on with, unless the user broke off."""
        if self.folder is not None and self.among.leads and not self.interrupted:
            self.folder.clear()


class Page:
    """One restart in the ledger: its result once it has one, the phases behind it, and where the present one is.
    The loop asks it where to begin and tells it after every epoch."""

    def __init__(self, ledger: Ledger, entries: dict[str, Any]) -> None:
        self.ledger, self.entries = ledger, entries

    @property
    def run(self) -> Any | None:
        return self.entries["run"]

    def finished(self, phase: str) -> dict[str, Any] | None:
        """What a phase left behind that this restart has behind it."""
        return self.entries["phases"].get(phase)

    def resume(self, phase: str) -> dict[str, Any] | None:
        """Where this phase was left."""
        present = self.entries["present"]
        return present["state"] if present is not None and present["phase"] == phase else None

    def due(self, epoch: int) -> bool:
        return self.ledger.folder is not None and epoch % self.ledger.every == self.ledger.every - 1

    def note(self, **news: Any) -> None:
        if self.ledger.folder is not None and self.ledger.among.leads:
            self.entries.update(snapshot(news))
            self.ledger.news = True

    def reached(self, phase: str, state: dict[str, Any]) -> None:
        self.note(present={"phase": phase, "state": state})

    def finish_phase(self, phase: str, outcome: dict[str, Any]) -> None:
        self.note(phases={**self.entries["phases"], phase: outcome}, present=None)

    def finish_run(self, run: Any) -> None:
        self.note(run=run, phases={}, present=None)


def random_states(device: torch.device) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


def describe(value: Any) -> Any:
    """A setting as something that can be compared from one process to the next."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (np.ndarray, np.generic, Tensor)):
        return np.asarray(value).tolist()
    if isinstance(value, (tuple, list)):
        return [describe(item) for item in value]
    if isinstance(value, functools.partial):
        return [describe(value.func), describe(value.args), describe(sorted(value.keywords.items()))]
    if isinstance(value, nn.Module):  # its first weights may be drawn anew in every process
        return [repr(value), {name: list(tensor.shape) for name, tensor in value.state_dict().items()}]
    name = getattr(value, "__qualname__", type(value).__qualname__)
    caught = inspect.getclosurevars(value).nonlocals if inspect.isfunction(value) else {}
    plain = {key: inner for key, inner in sorted(caught.items()) if isinstance(inner, (bool, int, float, str))}
    return [name, plain] if plain else name
