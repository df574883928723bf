"""torch's optimisers without the import of its compiler."""

import inspect
from typing import TypeVar

import torch
from torch.optim import Optimizer

WRAPPED = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")

Kind = TypeVar("Kind", bound=type[Optimizer])


def without_compiler(kind: Kind) -> Kind:
    """Let an optimiser run without importing torch's compiler. torch wraps some methods to keep the compiler away from
    them, and imports it for that, which takes more than a second of the first fit."""
    for name in WRAPPED:
        setattr(kind, name, inspect.unwrap(getattr(kind, name)))
    setattr(kind, "step", torch.no_grad()(inspect.unwrap(kind.step)))  # noqa: B010 (mypy: a method is not assigned to)
    return kind


@without_compiler
class Adadelta(torch.optim.Adadelta):
    """torch's Adadelta."""


@without_compiler
class Adagrad(torch.optim.Adagrad):
    """torch's Adagrad."""


@without_compiler
class Adam(torch.optim.Adam):
    """torch's Adam."""


@without_compiler
class AdamW(torch.optim.AdamW):
    """torch's AdamW."""


@without_compiler
class RMSprop(torch.optim.RMSprop):
    """torch's RMSprop."""


@without_compiler
class SGD(torch.optim.SGD):
    """torch's SGD."""
