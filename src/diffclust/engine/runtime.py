"""Device, precision, and scoped random numbers."""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor

PRECISIONS = ("auto", "float32", "bf16")
DEVICE_TYPES = ("cpu", "cuda")
CUBLAS_VARIABLE = "CUBLAS_WORKSPACE_CONFIG"


def choose_device(wish: str | torch.device) -> torch.device:
    if wish == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wish)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device={wish!r} cannot be used here: {str(error).splitlines()[0]}") from None
    return device


def free_memory(device: str = "cpu") -> float:
    """Bytes of free memory on the device."""
    place = choose_device(device)
    if place.type == "cuda":
        return float(torch.cuda.mem_get_info(place)[0])
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        (line,) = (line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable"))
        return 1024 * float(line.split()[1])
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def choose_precision(wish: str, device: torch.device) -> str:
    """Training arithmetic; answers are always computed in float32. "auto" is bf16 on a GPU that has it: twice as fast,
    and over five seeds no less accurate (`benchmarks/precision.py`)."""
    if wish not in PRECISIONS:
        raise ValueError(f"precision={wish!r} should be one of {', '.join(PRECISIONS)}.")
    if wish != "auto":
        return wish
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False) else "float32"


def autocast(device: torch.device, precision: str) -> contextlib.AbstractContextManager[Any]:
    if precision == "bf16":
        torch.clear_autocast_cache()  # inside a caller's autocast it holds the weights of the previous step
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


@contextlib.contextmanager
def without_caller_modes() -> Iterator[None]:
    """A context, or a decorator, in which the caller's autocast and default device have no effect."""
    modes: list[Any] = [torch.autocast(kind, enabled=False) for kind in DEVICE_TYPES if torch.is_autocast_enabled(kind)]
    if torch.empty(0).device.type != "cpu":  # faster than torch.get_default_device
        modes.append(torch.device("cpu"))
    if not modes:
        yield
        return
    with contextlib.ExitStack() as inside:
        for mode in modes:
            inside.enter_context(mode)
        yield


def restart_seeds(random_state: int | np.random.RandomState | None, n: int) -> list[int]:
    """One seed a restart; the first does not depend on how many follow. None draws from the system, so that
    numpy's global state stays as it was."""
    if random_state is None:
        random_state = int(np.random.SeedSequence().generate_state(1)[0])
    draw = check_random_state(random_state)
    return [int(draw.randint(2**31 - 1)) for _ in range(n)]


_turn = threading.RLock()  # for torch's default generators, which are global: one thread at a time may swap them


def _renew_turn() -> None:
    global _turn
    _turn = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_turn)  # the thread that holds the lock does not exist in the child


@contextlib.contextmanager
def _float32() -> Iterator[None]:
    """A context with float32 as the default dtype, in which networks are built. The default is global, so only the
    thread that holds the lock may change it."""
    outer = torch.get_default_dtype()
    if outer == torch.float32:
        yield
        return
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(outer)


class DeterministicMode:
    """Torch's switches for deterministic results on a GPU. They are global: the first fit that needs them turns them
    on, and the last one restores them."""

    def __init__(self) -> None:
        self.lock, self.wanting, self.before = threading.Lock(), 0, contextlib.ExitStack()

    def __enter__(self) -> None:
        with self.lock:
            self.wanting += 1
            if self.wanting > 1:
                return
            only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
            was_on = torch.are_deterministic_algorithms_enabled()
            self.before.callback(torch.use_deterministic_algorithms, was_on, warn_only=only_warns)
            torch.use_deterministic_algorithms(True)
            self._set(torch.backends.cudnn, "deterministic", True)
            self._set(torch.backends.cudnn, "benchmark", False)
            self._set(torch.utils.deterministic, "fill_uninitialized_memory", False)  # such memory is never read
            if CUBLAS_VARIABLE not in os.environ:  # torch requires it
                os.environ[CUBLAS_VARIABLE] = ":4096:8"
                self.before.callback(os.environ.pop, CUBLAS_VARIABLE, None)

    def _set(self, place: Any, name: str, value: bool) -> None:
        self.before.callback(setattr, place, name, getattr(place, name))
        setattr(place, name, value)

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.wanting -= 1
            if self.wanting == 0:
                self.before.close()


_deterministic_mode = DeterministicMode()


@contextlib.contextmanager
def learning(deterministic: bool = False) -> Iterator[None]:
    """A context in which gradients are recorded even inside a caller's `torch.no_grad` or `torch.inference_mode`; other
    modes of the caller have no effect either.

    Args:
        deterministic: results on a GPU are bit-identical every time; operations that cannot be raise an error. On a
            CPU they always are.
    """
    # a value that is no bool is reported later, by the check of all settings
    exact = isinstance(deterministic, (bool, np.bool_)) and bool(deterministic) and torch.cuda.is_available()
    exactly = _deterministic_mode if exact else contextlib.nullcontext()
    with torch.inference_mode(False), torch.enable_grad(), without_caller_modes(), exactly:
        try:
            yield
        except RuntimeError as error:
            if not exact or "deterministic" not in str(error):
                raise
            reason = str(error).strip().splitlines()[0].split(", but you set")[0]
            raise RuntimeError(
                f"deterministic=True: {reason}. Leave it out, or fit on the CPU, where a seed gives the same labels."
            ) from error


class Randomness:
    """An own state of torch's default generators (CPU and `device`). Inside `borrowed` they have this state; afterwards
    they continue as if nothing had been drawn. Only one thread at a time can borrow them."""

    def __init__(self, seed: int, device: torch.device) -> None:
        if device.type == "cuda":
            torch.cuda.init()
        self.device = device
        self.lent = False
        self.cpu = torch.Generator().manual_seed(seed).get_state()
        self.cuda = torch.Generator(device).manual_seed(seed) if device.type == "cuda" else None

    @contextlib.contextmanager
    def borrowed(self) -> Iterator[None]:
        with _turn:
            if self.lent:
                yield
                return
            self.lent = True
            try:
                with _float32(), self._swapped():
                    yield
            finally:
                self.lent = False

    @contextlib.contextmanager
    def _swapped(self) -> Iterator[None]:
        outer = torch.get_rng_state()
        torch.set_rng_state(self.cpu)
        if self.cuda is None:
            try:
                yield
            finally:
                self.cpu = torch.get_rng_state()
                torch.set_rng_state(outer)
            return
        index = torch.cuda.current_device() if self.device.index is None else self.device.index
        default = torch.cuda.default_generators[index]
        outer_cuda = default.graphsafe_get_state()
        default.graphsafe_set_state(self.cuda)  # by reference, so that a captured graph uses this generator
        try:
            yield
        finally:
            default.graphsafe_set_state(outer_cuda)
            self.cpu = torch.get_rng_state()
            torch.set_rng_state(outer)

    def branch(self, number: int) -> "Randomness":
        """Derive another state from this one and `number`, without changing this one."""
        seed = 2654435761 * number  # consecutive numbers should not give consecutive seeds
        for state in [self.cpu] if self.cuda is None else [self.cpu, self.cuda.get_state()]:
            generator = torch.Generator(self.device if state is not self.cpu else "cpu")
            generator.set_state(state)
            seed += int(torch.randint(2**31, (), generator=generator, device=generator.device))
        return Randomness(seed % 2**32, self.device)

    def renew(self, state: Tensor) -> None:
        """Replace the CUDA generator by a new one in this state: a failed capture leaves the old one unusable."""
        self.cuda = torch.Generator(self.device)
        self.cuda.set_state(state)


def seeded(seed: int, device: torch.device) -> contextlib.AbstractContextManager[None]:
    """A context in which torch's generators (CPU and `device`) are seeded; afterwards they are restored. The default
    dtype is float32 inside."""
    return Randomness(seed, device).borrowed()


def random_states(device: torch.device) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
