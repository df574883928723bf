"""The optimisers by name, with their default learning rates."""

from collections.abc import Callable
from functools import partial

import torch
from torch.optim import Optimizer

from .accelerate.adadelta import Adadelta
from .model import Trainable

OPTIMIZERS: dict[str, tuple[Callable[..., Optimizer], float]] = {
    "adadelta": (Adadelta, 1.0),
    "adadelta-keras": (partial(Adadelta, rho=0.95, eps=1e-7), 1.0),  # torch has 0.9 and 1e-6
    "adagrad": (torch.optim.Adagrad, 1e-2),
    "adam": (torch.optim.Adam, 1e-3),
    "adamw": (torch.optim.AdamW, 1e-3),
    "momentum": (partial(torch.optim.SGD, momentum=0.9), 1e-2),
    "rmsprop": (torch.optim.RMSprop, 1e-3),
    "sgd": (torch.optim.SGD, 1e-1),
}


def make_optimizer(model: Trainable, wish: str | Callable[..., Optimizer], lr: float | None) -> Optimizer | None:
    """The optimiser of a model; None if it has no parameters to train."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        return None
    if isinstance(wish, str):
        kind, usual = OPTIMIZERS[wish]
        wish = partial(kind, lr=usual if lr is None else lr)
    try:
        made = _at_once(wish, on_gpu=all(p.is_cuda for p in parameters))(parameters)
    except Exception as error:
        raise ValueError(f"optimizer={wish!r:.80} cannot be made with lr={lr!r}: {error}") from error
    if not isinstance(made, Optimizer):
        raise TypeError(f"optimizer={wish!r:.80} makes a {type(made).__name__}, which is not a torch optimiser.")
    return made


def _at_once(build: Callable[..., Optimizer], on_gpu: bool) -> Callable[..., Optimizer]:
    """Use the fused form of Adam, and of SGD on a GPU, unless the caller chose a form."""
    kind, said = (build.func, build.keywords) if isinstance(build, partial) else (build, {})
    free = said.keys().isdisjoint(("fused", "foreach", "differentiable"))
    known = kind in (torch.optim.Adam, torch.optim.AdamW) or (on_gpu and kind is torch.optim.SGD)
    return partial(build, fused=True) if free and known else build
