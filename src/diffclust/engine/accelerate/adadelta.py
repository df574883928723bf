"""Adadelta with fewer passes over the memory."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...nn import optimizers
from .launch import has_triton, launch
from .side_stream import SideStream, runs_alone

BLOCK = 1024  # numbers per program of the kernel
LAUNCH_ALONE_FROM = 2**16  # numbers of a parameter, from which on a launch of its own pays


class FusedAdadelta(optimizers.Adadelta):
    """torch's Adadelta, with fewer passes over the memory. On a GPU each moment is one tensor for all parameters, so a
    step takes a dozen launches for any number of parameters, and three with Triton. With Triton, a large parameter has
    a launch of its own that reads and writes each number once."""

    def __init__(self, parameters: Any, **options: Any) -> None:
        super().__init__(parameters, **options)
        self.flat: dict[str, Tensor] = {}
        self.members: list[Tensor] = []

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.flat = {}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        group = self.param_groups[0]
        members = [p for p in group["params"] if p.grad is not None]
        simple = len(self.param_groups) == 1 and not (group["weight_decay"] or group["maximize"] or closure)
        simple = simple and bool(members) and all(p.dtype == torch.float32 for p in members)
        if simple and all(p.is_cuda for p in members):
            small = [p for p in members if not self._moves_alone(p)]
            if small and not self.flat:
                self._flatten(small)
            if len(small) == len(self.members) and all(a is b for a, b in zip(small, self.members, strict=True)):
                side = SideStream(members[0].device, wanted=runs_alone())
                with side.overlap():
                    for p in members:
                        if self._moves_alone(p):
                            _move_at_once(p, self._state_of(p), group)
                if small:
                    gradient = self.flat["gradient"]
                    torch._foreach_copy_(self._views(gradient), [p.grad for p in small])
                    advance = _advance_at_once if has_triton() else _advance
                    delta = advance(gradient, self.flat["square_avg"], self.flat["acc_delta"], group)
                    torch._foreach_add_(small, self._views(delta), alpha=-group["lr"])
                side.join()
                return None  # otherwise other parameters have gradients, by another graph_key: one by one
        elif simple and all(p.device.type == "cpu" for p in members):
            for p in members:
                state = self._state_of(p)
                delta = _advance(p.grad, state["square_avg"], state["acc_delta"], group)
                p.add_(delta, alpha=-group["lr"])
            return None
        return super().step(closure)

    def _moves_alone(self, p: Tensor) -> bool:
        tensors = (p, p.grad, *(self.state[p][name] for name in ("square_avg", "acc_delta") if self.state[p]))
        return (
            has_triton()
            and p.numel() >= LAUNCH_ALONE_FROM
            and all(t is not None and t.is_contiguous() for t in tensors)
        )

    def _state_of(self, p: Tensor) -> dict[str, Tensor]:
        state = self.state[p]
        if not state:
            state["step"] = torch.zeros((), device=p.device)
            for name in ("square_avg", "acc_delta"):
                state[name] = torch.zeros_like(p, memory_format=torch.preserve_format)
        return state

    def _flatten(self, members: list[Tensor]) -> None:
        """Copy the moments into common tensors; the state then holds views of them."""
        self.members = members
        size = sum(p.numel() for p in members)
        self.flat = {name: members[0].new_zeros(size) for name in ("gradient", "square_avg", "acc_delta")}
        for name in ("square_avg", "acc_delta"):
            for p, view in zip(members, self._views(self.flat[name]), strict=True):
                state = self.state[p]
                state.setdefault("step", torch.zeros((), device=p.device))
                if name in state:
                    view.copy_(state[name])
                state[name] = view

    def _views(self, flat: Tensor) -> list[Tensor]:
        """The members' parts, each in its member's shape and order."""
        parts = zip(flat.split([p.numel() for p in self.members]), self.members, strict=True)
        return [part.as_strided(p.shape, p.stride(), part.storage_offset()) for part, p in parts]


def _advance(gradient: Tensor, square: Tensor, travelled: Tensor, group: dict[str, Any]) -> Tensor:
    """Update both moments and return the step: torch's formula, with one square root in place of two."""
    rho, eps = group["rho"], group["eps"]
    square.mul_(rho).addcmul_(gradient, gradient, value=1 - rho)
    delta = (travelled + eps).div_(square + eps).sqrt_().mul_(gradient)
    travelled.mul_(rho).addcmul_(delta, delta, value=1 - rho)
    return delta


def _advance_at_once(gradient: Tensor, square: Tensor, travelled: Tensor, group: dict[str, Any]) -> Tensor:
    """The same by one kernel; the step overwrites the gradient."""
    _launch(gradient, gradient, square, travelled, group, moves=False)
    return gradient


def _move_at_once(p: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
    """The whole step of a parameter by one kernel."""
    assert p.grad is not None
    _launch(p, p.grad, state["square_avg"], state["acc_delta"], group, moves=True)


def _launch(
    parameter: Tensor, gradient: Tensor, square: Tensor, travelled: Tensor, group: dict[str, Any], moves: bool
) -> None:
    from . import small_kernels as kernels

    count, settings = gradient.numel(), (group["lr"], group["rho"], group["eps"])
    with torch.cuda.device_of(gradient):
        launch(
            kernels.adadelta, (-(-count // BLOCK),),
            parameter, gradient, square, travelled, count, *settings, MOVES=moves, BLOCK=BLOCK,
        )  # fmt: skip
