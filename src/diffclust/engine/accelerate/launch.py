"""Launch Triton kernels, and compile them before their first launch, several at once."""

import contextlib
import functools
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from .side_stream import runs_alone

FOLDER = Path(__file__).parent
MAX_PROCESSES = 16  # processes that compile


class _Thread(threading.local):
    rehearsing = False


_this_thread = _Thread()


@functools.cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def takes_kernels(x: torch.Tensor) -> bool:
    """Whether kernels can run on this tensor: it is on a GPU, or Triton interprets kernels."""
    return x.is_cuda or os.environ.get("TRITON_INTERPRET") == "1"


@functools.cache
def _can_overlap() -> bool:
    """Whether a kernel may start before the previous one has ended (programmatic dependent launch): from NVIDIA's
    Hopper on, if Triton supports it."""
    if not torch.cuda.is_available() or torch.version.hip or torch.cuda.get_device_capability() < (9, 0):
        return False
    from triton.backends.nvidia.compiler import CUDAOptions
    from triton.language.extra import cuda

    return "launch_pdl" in CUDAOptions.__dataclass_fields__ and hasattr(cuda, "gdc_wait")


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """`kernel[grid](...)` on the device of the first argument; inside `rehearsal` nothing is run."""
    options |= {"PDL": True, "launch_pdl": True} if runs_alone() and _can_overlap() else {"PDL": False}
    with torch.cuda.device_of(arguments[0]):  # Triton takes the current device
        if _this_thread.rehearsing:
            kernel.warmup(*arguments, grid=grid, **options)
        else:
            kernel[grid](*arguments, **options)


@functools.cache
def can_rehearse() -> bool:
    return has_triton() and importlib.util.find_spec("triton.knobs") is not None


@contextlib.contextmanager
def rehearsal() -> Iterator[None]:
    """A context in which kernels are not launched but collected; at its end those that are not in Triton's cache are
    compiled by several processes. Compiling them one by one at their first launch takes five times as long. Kernels of
    other threads, which may predict meanwhile, are launched as ever."""
    from triton import knobs  # missing in old versions

    found: dict[str, None] = {}

    def note(compile: dict[str, Any], **_: Any) -> bool:
        if _this_thread.rehearsing:
            found[compile["specialization_data"]] = None
        return _this_thread.rehearsing  # then it is not compiled now

    before, knobs.runtime.jit_cache_hook = knobs.runtime.jit_cache_hook, note
    _this_thread.rehearsing = True
    try:
        with torch.autograd.set_multithreading_enabled(False):  # a backward pass belongs to this thread, too
            yield
    finally:
        _this_thread.rehearsing, knobs.runtime.jit_cache_hook = False, before
    _compile([each for each in found if each not in _compiled])


_compiled: set[str] = set()  # what this process had compiled, by specialization data
_ready: list[subprocess.Popen[str]] = []  # at most one process that waits for kernels to compile
_lock = threading.Lock()
_was_ready = threading.Event()


def prepare_to_compile() -> None:
    """Start the process that compiles, because it needs a second until it can. Only the first call does so: later
    phases seldom have something to compile."""
    with _lock, contextlib.suppress(OSError):
        if not _was_ready.is_set():
            _was_ready.set()
            _ready.append(_start())


def dismiss_compiler() -> None:
    """End the process that waits, if there is one."""
    with _lock:
        while _ready:
            with _ready.pop() as process:
                process.kill()


def _checksum() -> None:
    """Triton's checksum of itself, which it keeps."""
    with contextlib.suppress(ImportError):
        from triton.runtime.cache import triton_key

        triton_key()


def _start() -> "subprocess.Popen[str]":
    from triton import knobs

    return subprocess.Popen(
        [sys.executable, str(FOLDER / "compiling.py")],
        env={**os.environ, "TRITON_CACHE_DIR": knobs.cache.dir},
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # Ctrl-C is for this process
    )


def _compile(specializations: list[str]) -> None:
    from triton import __version__
    from triton.runtime import driver
    from triton.runtime.cache import get_cache_manager

    target = driver.active.get_current_target()
    sources = [file.read_text() for file in sorted(FOLDER.glob("*kernels.py"))]
    everything = [__version__, str(target), *sources, *sorted(specializations)]
    done = get_cache_manager(hashlib.sha256("\n".join(everything).encode()).hexdigest())
    if not specializations or done.get_file("compiled") is not None:
        _compiled.update(specializations)
        dismiss_compiler()
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    task = {
        "folder": str(FOLDER),
        "target": [target.backend, target.arch, target.warp_size],
        "kernels": sorted(specializations),
        "processes": min(MAX_PROCESSES, cores, len(specializations)),
    }
    with contextlib.suppress(OSError):  # a kernel that fails here fails again at its launch
        if _ready and _ready[-1].poll() is not None:  # somebody ended it
            dismiss_compiler()
        with _lock:
            process = _ready.pop() if _ready else _start()
        assert process.stdin is not None
        with process:
            process.stdin.write(json.dumps(task) + "\n")  # a line: forked processes may hold the pipe open
            process.stdin.flush()
            _checksum()  # which the first launch needs, while others work
            process.wait()
        if process.returncode == 0:
            _compiled.update(specializations)
            done.put(b"", "compiled")
