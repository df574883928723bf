"""Files on disk: atomic writes, reads of regular files only, locks on folders."""

import contextlib
import errno
import os
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # errors that say nothing of which file


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write to, which becomes `path` when the block has ended and the bytes are on the disk. Where that
    fails, a former file stays as it was, and the error names `path`."""
    path = Path(path)
    part = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        with reporting_as(path, part):
            yield part
            flush(part)
            part.replace(path)
            flush(path.parent)
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def reporting_as(path: Path, part: Path) -> Iterator[None]:
    """Errors of writing `part` name `path` instead, which is the one that the user knows."""
    try:
        yield
    except OSError as error:
        unnamed = error.filename is None and error.errno in WRITE_ERRORS
        if error.errno is None or not (unnamed or str(error.filename) == str(part)):
            raise
        raise OSError(error.errno, error.strerror or os.strerror(error.errno), str(path)) from error


def write_flushed(path: Path, blob: bytes) -> None:
    with path.open("wb") as file:
        file.write(blob)
        file.flush()
        os.fsync(file.fileno())


def flush(path: Path) -> None:
    """Make a file, or the names in a folder, survive a power cut, where the system can."""
    if path.is_dir() and not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_regular(path: Path, most: int | None = None) -> bytes:
    """The bytes of a regular file, or of a link to one: a pipe would be waited for, and a device has no end.

    most: bytes at most, where more cannot be right.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path} is not a regular file.")
        if most is not None and status.st_size > most:
            raise ValueError(f"{path} has {status.st_size:,} bytes, more than the {most:,} allowed.")
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(handle)


class FolderBusy(ValueError):
    """Somebody else is in the folder."""


@contextlib.contextmanager
def folder_lock(folder: Path, busy: str, patience: float) -> Iterator[None]:
    """Inside, nobody else is in the folder, in this process or another: they are waited for, and after `patience`
    seconds that is an error, `FolderBusy(busy)`. Windows and some file systems have no such locks: nothing is waited
    for."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        _lock(handle, busy, time.monotonic() + patience)
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)  # closing would not do where a fork has the door open, too
        os.close(handle)


def _lock(handle: int, busy: str, until: float) -> None:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise FolderBusy(busy) from None
            time.sleep(0.01)
        except OSError:  # a file system without locks
            return
        else:
            return
