"""A folder of files that belong together: settings (JSON), tensors (safetensors), further files, and checksums of all.

A save first writes all files under temporary names that contain a hash of the checksums. Then it renames the file of
checksums, and then the others. A reader looks for the files that the checksums list, under their own or their temporary
names, so it sees either the old or the new model. The old files get hard links first, so that going back needs no space
on the disk. `sha256sum -c SHA256SUMS` checks a folder by hand.
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
BESIDE = (WORDS, RECORD, SOURCE, LABELS, CLUSTERS)  # files that the command adds
LONGEST_SUMS = 1 << 16
PATIENCE = 600.0  # seconds to wait for others who save to the same folder


def check_folder(folder: Path) -> None:
    """Raise an error if this cannot be the folder of a model."""
    if folder.is_file():
        raise NotADirectoryError(
            f"{folder} is a file, not a fitted model: 'diffclust fit {folder}' fits one and says where it is."
        )
    if not folder.is_dir():
        raise FileNotFoundError(f"No such folder: {folder}")


def write_folder(folder: Path, blobs: dict[str, bytes]) -> None:
    """Replace the files of the folder by these, atomically. Files of the previous save that are not among them are
    removed."""
    folder.mkdir(parents=True, exist_ok=True)
    busy = f"{folder}: another process has been saving here for {PATIENCE:g} seconds."
    with folder_lock(folder, busy, PATIENCE):
        _Replacement(folder, blobs).make()


class _Replacement:
    """The replacement of the files of a folder by new ones."""

    def __init__(self, folder: Path, blobs: dict[str, bytes]) -> None:
        self.folder = folder
        self.former_sums = _bytes(folder / SUMS, LONGEST_SUMS) or b""
        listed = parse_sums(self.former_sums) or {}
        _bring_in(folder, [*listed], self.former_sums)  # completes a save that was killed
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
        """Whether all new files are in place, although an error was raised."""
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
    """Rename the temporary files that belong to these checksums, the checksums first."""
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
    except (OSError, NotImplementedError):  # a file system without hard links
        shutil.copyfile(path, other)


class Files(NamedTuple):
    """The files of a folder, all from the same save."""

    blobs: dict[str, bytes]
    damaged: list[str]  # names of files that are missing or changed
    listed: list[str]  # names of all files of the save


def read_folder(folder: Path, names: Collection[str] = (), patience: float = 10.0) -> Files:
    """Read the model, and the files in `names` that were saved with it. Another process may be saving meanwhile."""
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
    """Read the files that these checksums list."""
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
    """Read a file that has no checksum."""
    return _bytes(folder / name)


def _bytes(path: Path, most: int | None = None) -> bytes | None:
    with contextlib.suppress(FileNotFoundError):
        return read_regular(path, most)
    return None


def _holds(path: Path, blob: bytes) -> bool:
    try:
        return _bytes(path) == blob
    except (ValueError, OSError):  # no regular file, or not readable
        return False


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9_][A-Za-z0-9_.-]*)")  # no name points outside of the folder


def sums_of(blobs: dict[str, bytes]) -> bytes:
    return "".join(f"{hashlib.sha256(blob).hexdigest()}  {name}\n" for name, blob in blobs.items()).encode()


def parse_sums(sums: bytes) -> dict[str, str] | None:
    """Checksums by name, or None if this is no list of checksums."""
    *lines, last = sums.decode("ascii", "replace").split("\n")
    found = [LINE.fullmatch(line) for line in lines]
    if last or not all(found):
        return None
    return {match[2]: match[1] for match in found if match}
