"""A folder of files that go together: settings in JSON, tensors in safetensors, and checksums of both.

A save writes its files aside, under names that tell whose they are, then puts its checksums in place, then the rest.
The checksums are the switch: from then on a reader, who goes by them, finds the new files aside or in place.
`sha256sum -c SHA256SUMS` checks a folder by hand.
"""

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

SETTINGS, TENSORS, SUMS = "estimator.json", "tensors.safetensors", "SHA256SUMS"


def write_folder(folder: Path, blobs: dict[str, bytes]) -> None:
    """Settings and tensors, at one moment."""
    folder.mkdir(parents=True, exist_ok=True)
    with _only_writer(folder):
        _publish(folder, {SUMS: _sums(blobs), **blobs})


def _aside(folder: Path, name: str, sums: bytes) -> Path:
    return folder / f".{name}.{hashlib.sha256(sums).hexdigest()[:16]}.part"


def _publish(folder: Path, blobs: dict[str, bytes]) -> None:
    """Put the files in place: the checksums, which come first, and those that go with them."""
    former = {name: _bytes(folder / name) for name in (SUMS, SETTINGS)}
    new = {name: blob for name, blob in blobs.items() if _bytes(folder / name) != blob}
    parts = {name: _aside(folder, name, blobs[SUMS]) for name in new}
    try:
        for name, part in parts.items():
            if _bytes(part) != new[name]:
                part.write_bytes(new[name])
        for name, part in parts.items():
            part.replace(folder / name)
    except BaseException:
        if all(_bytes(folder / name) == blob for name, blob in new.items()):
            raise  # an interrupt, but the save is whole
        if _bytes(folder / SUMS) != former[SUMS]:
            _put_back(folder, former)
        for part in parts.values():
            part.unlink(missing_ok=True)
        raise
    for name in blobs:
        for left in folder.glob(f".{name}.*.part"):  # of one who was killed
            left.unlink(missing_ok=True)


def _put_back(folder: Path, former: dict[str, bytes | None]) -> None:
    """The tensors are the last to be replaced, and so need not be kept."""
    kept = {name: blob for name, blob in former.items() if blob is not None}
    if len(kept) == len(former):
        _publish(folder, kept)
        return
    for name in former:  # there was no model
        (folder / name).unlink(missing_ok=True)
    for name, blob in kept.items():
        (folder / name).write_bytes(blob)


def read_folder(folder: Path, patience: float = 10.0) -> dict[str, bytes]:
    """Settings and tensors that go together, though somebody may be saving."""
    give_up = time.monotonic() + patience
    while True:
        switch = _stamp(folder / SUMS)
        sums = _bytes(folder / SUMS)
        found = {
            name: None if sums is None else _bytes(_aside(folder, name, sums)) or _bytes(folder / name)
            for name in (SETTINGS, TENSORS)
        }
        blobs = {name: blob for name, blob in found.items() if blob is not None}
        if len(blobs) == len(found) and sums == _sums(blobs):
            return blobs
        if (_stamp(folder / SUMS), _bytes(folder / SUMS)) == (switch, sums) or time.monotonic() > give_up:
            break
    missing = [name for name in (SETTINGS, TENSORS, SUMS) if not (folder / name).is_file()]
    if missing:
        raise ValueError(f"{folder} is not a saved diffclust model: {', '.join(missing)} missing.")
    raise ValueError(f"{folder} is damaged: its files do not match {SUMS}.")


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        return None


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


@contextlib.contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """Wait for others who save to the folder, in this process or another. Not where there are no such locks."""
    if fcntl is None:
        yield
        return
    door = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(door, fcntl.LOCK_EX)
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(door, fcntl.LOCK_UN)  # closing would not do where a fork has the door open, too
        os.close(door)


def _sums(blobs: dict[str, bytes]) -> bytes:
    return "".join(f"{hashlib.sha256(blob).hexdigest()}  {name}\n" for name, blob in blobs.items()).encode()
