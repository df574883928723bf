"""Processes that compile Triton kernels, while training goes on without these kernels or waits for them."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
MOST = 16  # processes that compile


class Compilation:
    """Some kernels on their way into Triton's cache."""

    def __init__(self, process: subprocess.Popen[bytes] | None = None, mark: Any = None) -> None:
        self.process, self.mark = process, mark

    def over(self) -> bool:
        """Whether they are there. One that could not be compiled is compiled at its first launch, which says what is
        wrong."""
        if self.process is not None and self.process.poll() is not None:
            if self.process.returncode == 0 and self.mark is not None:
                self.mark.put(b"", "compiled")
            self.process = None
        return self.process is None

    def wait(self) -> None:
        if self.process is not None:
            self.process.wait()
        self.over()

    def stop(self) -> None:
        """End the processes, which are a group of their own."""
        if self.over():
            return
        assert self.process is not None
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except (OSError, AttributeError):
            self.process.kill()
        self.process.wait()


class Compilers:
    """All compilations of this Python. While a training is on they run beside it; those that are not over when the last
    training ends are stopped."""

    def __init__(self) -> None:
        self.lock, self.trainings = threading.Lock(), 0
        self.running: dict[str, Compilation] = {}

    def __enter__(self) -> None:
        with self.lock:
            self.trainings += 1

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.trainings -= 1
            if self.trainings == 0:
                for compilation in self.running.values():
                    compilation.stop()
                self.running = {}

    @property
    def busy(self) -> bool:
        with self.lock:
            return any(not compilation.over() for compilation in self.running.values())

    def compile(self, specializations: list[str], wait: bool = False) -> Compilation:
        """Begin with these kernels, given by what Triton calls their specialization data; who asks for the same ones
        shares the work.

        Args:
            wait: until they are there. So it is in any case where no training is on, which would end the work.
        """
        from triton import __version__
        from triton.runtime import driver
        from triton.runtime.cache import get_cache_manager

        target = driver.active.get_current_target()
        sources = [file.read_text() for file in sorted(FOLDER.glob("*kernels.py"))]
        everything = [__version__, str(target), *sources, *sorted(specializations)]
        key = hashlib.sha256("\n".join(everything).encode()).hexdigest()
        mark = get_cache_manager(key)
        if not specializations or mark.get_file("compiled") is not None:
            return Compilation()
        with self.lock:
            compilation = self.running.get(key)
            if compilation is None:
                compilation = Compilation(_start(specializations, target), mark)
                self.running[key] = compilation
            wait = wait or self.trainings == 0
        if wait:
            compilation.wait()
        return compilation


def _start(specializations: list[str], target: Any) -> subprocess.Popen[bytes] | None:
    from triton import knobs

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = min(MOST, cores, len(specializations))
    task = {
        "folder": str(FOLDER),
        "target": [target.backend, target.arch, target.warp_size],
        "kernels": [sorted(specializations)[first::count] for first in range(count)],
    }
    return begin([sys.executable, str(FOLDER / "compiling.py")], json.dumps(task), TRITON_CACHE_DIR=knobs.cache.dir)


def begin(command: list[str], given: str, **environment: str) -> subprocess.Popen[bytes] | None:
    """A process group that reads `given`; None where there can be none."""
    with tempfile.TemporaryFile() as file:  # a pipe would have to be filled as it is read
        file.write(given.encode())
        file.seek(0)
        try:
            return subprocess.Popen(
                command,
                stdin=file,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        except OSError:
            return None


COMPILERS = Compilers()
