"""How many CPU threads a training step is worth.

torch's threads wait for one another after every operation. In the short steps of rows and small images a second thread
saves little, and where other programs use the cores, threads wait for those too: a fit of 10,000 rows took 5.5 s with
two threads, and 43 s beside two busy programs. With one thread for epochs of short steps it takes 6.7 and 14 s.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from ..nn.autoencoders import Autoencoder, Wrapped
from ..nn.cluster import ClusterLayer

OURS = f"{__name__.partition('.')[0]}."  # the beginning of our modules' names
SHORT = 200e6  # multiply-adds of a batch, up to which a second thread saves less than a third of the time


class OneThread(threading.local):
    """A context in which torch uses one thread for the work of this Python thread; it may be entered again inside."""

    depth, before = 0, 1

    def __enter__(self) -> None:
        if self.depth == 0:
            self.before = torch.get_num_threads()
            _set_here(1)
        self.depth += 1

    def __exit__(self, *error: object) -> None:
        self.depth -= 1
        if self.depth == 0:
            _set_here(self.before)


_lock = threading.Lock()


def _set_here(count: int) -> None:
    """Set the number for this Python thread alone: torch gives the last one that was set to every Python thread to
    come, so that is set back, in a thread of its own."""
    with _lock:
        for_others = _in_new_thread(torch.get_num_threads)
        torch.set_num_threads(count)
        _in_new_thread(lambda: torch.set_num_threads(for_others))


def _in_new_thread(ask: Callable[[], Any]) -> Any:
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(ask()))
    thread.start()
    thread.join()
    return answers[0]


_one_thread = OneThread()


def threads_for(short: bool) -> AbstractContextManager[None]:
    """The context for steps that are short, or not."""
    return _one_thread if short else nullcontext()


def has_short_steps(model: nn.Module, row_shape: Sequence[int], batch_size: int) -> bool:
    """Whether a batch of such rows is little work for the model's network and its centres. Of a network that is not
    ours nothing is known."""
    network = next((module for module in model.modules() if isinstance(module, Autoencoder)), None)
    if network is None or isinstance(network, Wrapped) or not type(network).__module__.startswith(OURS):
        return False
    work = multiply_adds(network, torch.zeros(1, *row_shape, dtype=torch.float32, device="cpu"))
    work += sum(layer.weight.numel() for layer in model.modules() if isinstance(layer, ClusterLayer))
    return batch_size * work <= SHORT


@torch.no_grad()
def multiply_adds(network: Autoencoder, x: Tensor) -> int:
    """Those of the linear layers and convolutions, when x is encoded and decoded."""
    counted = 0

    def count(layer: Any, inputs: tuple[Tensor, ...], out: Tensor) -> None:
        nonlocal counted
        if isinstance(layer, nn.Linear):
            counted += out.numel() * layer.in_features
        elif isinstance(layer, nn.ConvTranspose2d):
            counted += inputs[0].numel() // layer.in_channels * layer.weight.numel()
        else:
            counted += out.numel() // layer.out_channels * layer.weight.numel()

    learning = network.training
    layers = [each for each in network.modules() if isinstance(each, (nn.Linear, nn.Conv2d, nn.ConvTranspose2d))]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    try:
        network.eval()
        network.decode(network.encode(x))
    finally:
        network.train(learning)
        for hook in hooks:
            hook.remove()
    return counted
