"""The optimisers by name, with their default learning rates."""

from collections.abc import Callable
from functools import partial

import torch
from torch.optim import Optimizer

from ..nn.optimizers import SGD, Adagrad, Adam, AdamW, RMSprop
from .accelerate.adadelta import FusedAdadelta
from .model import Trainable

OPTIMIZERS: dict[str, tuple[Callable[..., Optimizer], float]] = {
    "adadelta": (FusedAdadelta, 1.0),
    "adadelta-keras": (partial(FusedAdadelta, rho=0.95, eps=1e-7), 1.0),  # torch has 0.9 and 1e-6
    "adagrad": (Adagrad, 1e-2),
    "adam": (Adam, 1e-3),
    "adamw": (AdamW, 1e-3),
    "momentum": (partial(SGD, momentum=0.9), 1e-2),
    "rmsprop": (RMSprop, 1e-3),
    "sgd": (SGD, 1e-1),
}
FUSED = (torch.optim.Adam, torch.optim.AdamW, Adam, AdamW)
FUSED_ON_GPU = (torch.optim.SGD, SGD)


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
    known = kind in FUSED or (on_gpu and kind in FUSED_ON_GPU)
    return partial(build, fused=True) if free and known else build
