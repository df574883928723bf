"""How many CPU threads a training step is worth.

torch's threads wait for one another after every operation. In the short steps of rows and small images a second thread
saves little, and where other programs use the cores, threads wait for those too: a fit of 10,000 rows took 8 s with one
thread and 6 s with two, but beside two busy programs 12 s and 43 s. So short steps use one thread.
"""

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from ..nn.autoencoders import Autoencoder, Wrapped

SHORT = 200e6  # multiply-adds of a batch, up to which a second thread saves less than a third of the time


class OneThread:
    """A context in which torch uses one thread.

    torch keeps one number for each Python thread and another, the last that was set, for Python threads to come. So
    each that leaves sets the number that the first had found.
    """

    def __init__(self) -> None:
        self.lock, self.inside, self.before = threading.Lock(), 0, 1

    def __enter__(self) -> None:
        with self.lock:
            if self.inside == 0:
                self.before = torch.get_num_threads()
            self.inside += 1
            torch.set_num_threads(1)

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.inside -= 1
            torch.set_num_threads(self.before)


_one_thread = OneThread()


def threads_for(short: bool) -> AbstractContextManager[None]:
    """The context for steps that are short, or not."""
    return _one_thread if short else nullcontext()


def has_short_steps(model: nn.Module, row_shape: Sequence[int], batch_size: int) -> bool:
    """Whether a batch of such rows is little work for the model's network. Of a network that is not ours nothing is
    known."""
    network = next((module for module in model.modules() if isinstance(module, Autoencoder)), None)
    if network is None or isinstance(network, Wrapped):
        return False
    return batch_size * multiply_adds(network, torch.zeros(1, *row_shape, dtype=torch.float32, device="cpu")) <= SHORT


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
