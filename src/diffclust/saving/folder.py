"""A folder of files that belong together: settings (JSON), tensors (safetensors), further files, and checksums of all.

A save writes its files aside, under names that tell whose they are, then puts its checksums in place, then the rest.
The checksums are the switch: from then on a reader, who goes by them, finds the new files aside or in place. The
former files are linked aside before, so that going back needs no room on the disk. `sha256sum -c SHA256SUMS` checks a
folder by hand.
"""

import contextlib
import hashlib
import os
import re
import shutil
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from ..engine.disk import flush, folder_lock, read_regular, reporting_as, write_flushed

SETTINGS, TENSORS, SUMS = "estimator.json", "tensors.safetensors", "SHA256SUMS"
WORDS, RECORD, SOURCE, LABELS = "words.json", "record.safetensors", "source.json", "labels.csv"
CLUSTERS = "clusters.csv"
MODEL = (SETTINGS, TENSORS)
BESIDE = (WORDS, RECORD, SOURCE, LABELS, CLUSTERS)  # what the command puts there
LONGEST_SUMS = 1 << 16
PATIENCE = 600.0  # seconds to wait for others who save to the same folder


def check_folder(folder: Path) -> None:
    """That it may be the folder of a model."""
    if folder.is_file():
        raise NotADirectoryError(
            f"{folder} is a file, not a fitted model: 'diffclust fit {folder}' fits one and says where it is."
        )
    if not folder.is_dir():
        raise FileNotFoundError(f"No such folder: {folder}")


def write_folder(folder: Path, blobs: dict[str, bytes]) -> None:
    """The model and what is beside it, at one moment. Files of the former save that this
    one does not have are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    busy = f"{folder}: another process has been saving here for {PATIENCE:g} seconds."
    with folder_lock(folder, busy, PATIENCE):
        _Replacement(folder, blobs).make()


class _Replacement:
    """From the former files of a folder to new ones."""

    def __init__(self, folder: Path, blobs: dict[str, bytes]) -> None:
        self.folder = folder
        self.former_sums = _bytes(folder / SUMS, LONGEST_SUMS) or b""
        listed = parse_sums(self.former_sums) or {}
        _bring_in(folder, [*listed], self.former_sums)  # of one who was killed
        self.sums = sums_of(blobs)
        files = {SUMS: self.sums, **blobs}
        self.new = {name: blob for name, blob in files.items() if not _holds(folder / name, blob)}
        self.gone = [name for name in listed if name not in blobs]
        self.former = [name for name in [*self.new, *self.gone] if os.path.lexists(folder / name)]
        self.names = dict.fromkeys([*files, *self.gone])

    def make(self) -> None:
        try:
            for name, blob in self.new.items():
                part = _aside(self.folder, name, self.sums)
                with reporting_as(self.folder / name, part):
                    write_flushed(part, blob)
            for name in self.former:
                _link(self.folder / name, _aside(self.folder, name, self.former_sums))
            flush(self.folder)
            _bring_in(self.folder, [*self.new], self.sums)
            for name in self.gone:
                (self.folder / name).unlink(missing_ok=True)
            flush(self.folder)
        except BaseException:
            if not self._is_made():
                self._roll_back()
            self._clean()
            raise
        self._clean()

    def _is_made(self) -> bool:
        """Whether an interrupt came when all was done."""
        return all(_holds(self.folder / name, blob) for name, blob in self.new.items())

    def _roll_back(self) -> None:
        if SUMS not in self.former:
            (self.folder / SUMS).unlink(missing_ok=True)
        _bring_in(self.folder, self.former, self.former_sums)
        for name in self.new:
            if name not in self.former:
                (self.folder / name).unlink(missing_ok=True)

    def _clean(self) -> None:
        for name in self.names:
            for left in self.folder.glob(f".{name}.*.part"):
                left.unlink(missing_ok=True)


def _aside(folder: Path, name: str, sums: bytes) -> Path:
    return folder / f".{name}.{hashlib.sha256(sums).hexdigest()[:16]}.part"


def _bring_in(folder: Path, names: list[str], sums: bytes) -> None:
    """The files that were written aside for these checksums, the checksums first."""
    for name in sorted(names, key=lambda name: name != SUMS):
        part = _aside(folder, name, sums)
        if part.exists():
            part.replace(folder / name)
            if name == SUMS:
                flush(folder)


def _link(path: Path, other: Path) -> None:
    other.unlink(missing_ok=True)
    try:
        os.link(path, other, follow_symlinks=False)
    except (OSError, NotImplementedError):  # a file system without links
        shutil.copyfile(path, other)


class Files(NamedTuple):
    """What a folder holds, all of one save."""

    blobs: dict[str, bytes]
    damaged: list[str]  # were saved, and are gone or not as they were
    listed: list[str]  # all that was saved


def read_folder(folder: Path, names: Collection[str] = (), patience: float = 10.0) -> Files:
    """The model, and those of `names` that were saved with it, though somebody may be saving meanwhile."""
    give_up = time.monotonic() + patience
    while True:
        switch = _stamp(folder / SUMS), _bytes(folder / SUMS, LONGEST_SUMS)
        files = _read(folder, switch[1] or b"", names)
        settled = (_stamp(folder / SUMS), _bytes(folder / SUMS, LONGEST_SUMS)) == switch
        if files.blobs.keys() >= {*MODEL} and (settled or not files.damaged):
            return files
        if settled or time.monotonic() > give_up:
            break
    missing = [name for name in (*MODEL, SUMS) if not (folder / name).is_file()]
    if missing:
        raise ValueError(f"{folder} is not a saved diffclust model: {', '.join(missing)} missing.")
    raise ValueError(f"{folder} is damaged: its files do not match {SUMS}.")


def _read(folder: Path, sums: bytes, names: Collection[str]) -> Files:
    """What goes by these checksums."""
    listed, blobs, damaged = parse_sums(sums) or {}, {}, []
    for name in listed:
        if name in MODEL or name in names:
            blob = _bytes(_aside(folder, name, sums)) or _bytes(folder / name)
            if blob is not None and hashlib.sha256(blob).hexdigest() == listed[name]:
                blobs[name] = blob
            else:
                damaged.append(name)
    return Files(blobs, damaged, [*listed])


def unlisted(folder: Path, name: str) -> bytes | None:
    """A file as it lies there, which no checksum knows."""
    return _bytes(folder / name)


def _bytes(path: Path, most: int | None = None) -> bytes | None:
    with contextlib.suppress(FileNotFoundError):
        return read_regular(path, most)
    return None


def _holds(path: Path, blob: bytes) -> bool:
    try:
        return _bytes(path) == blob
    except (ValueError, OSError):  # something that is no file, or not to be read
        return False


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9_][A-Za-z0-9_.-]*)")  # no name leads out of the folder


def sums_of(blobs: dict[str, bytes]) -> bytes:
    return "".join(f"{hashlib.sha256(blob).hexdigest()}  {name}\n" for name, blob in blobs.items()).encode()


def parse_sums(sums: bytes) -> dict[str, str] | None:
    """Checksums by name, or None where this is no list of them."""
    *lines, last = sums.decode("ascii", "replace").split("\n")
    found = [LINE.fullmatch(line) for line in lines]
    if last or not all(found):
        return None
    return {match[2]: match[1] for match in found if match}
