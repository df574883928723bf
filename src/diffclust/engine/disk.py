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

WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # raised without the name of the file


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path to write to, renamed to `path` at the end of the block, once the bytes are on the disk. If that
    fails, a previous file at `path` is unchanged, and the error names `path`."""
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
    """A context in which errors of writing `part` name `path` instead, which the user knows."""
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
    """Flush a file, or the names in a folder, to the disk, if the system supports it."""
    if path.is_dir() and not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_regular(path: Path, most: int | None = None) -> bytes:
    """The bytes of a regular file, or of a link to one. Pipes, which may block, and devices, which may not end, raise.

    most: largest allowed size in bytes.
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
    """Another thread or process has locked the folder."""


@contextlib.contextmanager
def folder_lock(folder: Path, busy: str, patience: float) -> Iterator[None]:
    """A context that holds the lock of a folder, across threads and processes. Waits up to `patience` seconds for it,
    then raises `FolderBusy(busy)`. Does nothing where there are no locks: on Windows, and on some file systems."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        _lock(handle, busy, time.monotonic() + patience)
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)  # closing is not enough if a forked process has the file open too
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
