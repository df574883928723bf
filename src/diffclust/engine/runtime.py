"""Where and how a run computes: device, precision, borrowed randomness."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state

PRECISIONS = ("auto", "float32", "bf16")


def choose_device(wish: str | torch.device) -> torch.device:
    if wish == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wish)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device={wish!r} cannot be used here: {str(error).splitlines()[0]}") from None
    return device


def choose_precision(wish: str) -> str:
    """Training arithmetic; answers are always computed in float32. "auto" is float32 for now."""
    if wish not in PRECISIONS:
        raise ValueError(f"precision={wish!r} should be one of {', '.join(PRECISIONS)}.")
    return "float32" if wish == "auto" else wish


def autocast(device: torch.device, precision: str) -> contextlib.AbstractContextManager[Any]:
    if precision == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


def restart_seeds(random_state: int | np.random.RandomState | None, n: int) -> list[int]:
    """One seed a restart; the first does not depend on how many follow. None draws from the system, so that
    numpy's global state stays as it was."""
    if random_state is None:
        random_state = int(np.random.SeedSequence().generate_state(1)[0])
    draw = check_random_state(random_state)
    return [int(draw.randint(2**31 - 1)) for _ in range(n)]


@contextlib.contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Torch's generators of the CPU and of `device`, seeded inside and given back as they were."""
    generators = [torch.default_generator]
    if device.type == "cuda":
        torch.cuda.init()
        index = torch.cuda.current_device() if device.index is None else device.index
        generators.append(torch.cuda.default_generators[index])
    states = [generator.get_state() for generator in generators]
    try:
        for generator in generators:
            generator.manual_seed(seed)
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
