"""From the look of the data to a network: its kind, its units, its output activation."""

import copy
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..engine.data import Data, Summary
from ..nn.autoencoders import NETWORKS, Autoencoder, Identity, Wrapped

BARELY = 1e-6


def choose_kind(wish: str, row_shape: tuple[int, ...]) -> str:
    """Rows -> dense, images -> convolutional."""
    if wish == "auto":
        return "conv" if len(row_shape) == 3 else "dense"
    if wish not in NETWORKS:
        raise ValueError(f"network={wish!r} should be 'auto', one of {', '.join(sorted(NETWORKS))}, or a module.")
    return wish


def units(values: Summary, row_shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Shift and scale to the network's units.

    Rows are centred and divided by one number for all features, so that the geometry is kept. Images that fill [0, 1]
    stay as they are, others are stretched to it.
    """
    if len(row_shape) != 3:
        return values.mean.cpu(), torch.tensor(values.spread or 1.0)
    if values.low >= 0 and 0.5 <= values.high <= 1 + BARELY:
        return torch.zeros(()), torch.ones(())
    return torch.tensor(values.low), torch.tensor(values.high - values.low or 1.0)


def build(
    wish: str | nn.Module,
    data: Data,
    embedding_dim: int,
    options: dict[str, dict[str, Any]],
    rescale: bool | Literal["mean"] = True,
) -> Autoencoder:
    """A fresh network for the data. `options` are a method's own settings for each kind of network. Without `rescale`
    it takes the values as they are, and with "mean" less the mean of each; its output is linear then."""
    if isinstance(wish, Autoencoder):
        return _copy(wish, data)
    if isinstance(wish, nn.Module):
        return _wrap(wish, data)
    kind = choose_kind(wish, data.row_shape)
    values = data.summary
    if kind == "identity":
        return Identity(data.row_shape)
    shift, scale = units(values, data.row_shape) if rescale is True else (torch.zeros(()), torch.ones(()))
    if rescale == "mean":
        shift = values.mean.cpu()
    bounded = rescale is True and len(data.row_shape) == 3
    network = NETWORKS[kind](
        data.row_shape,
        embedding_dim,
        output="sigmoid" if bounded else "linear",
        **options.get(kind, {}),
    )
    network.set_units(shift, scale)
    return network


def _copy(network: Autoencoder, data: Data) -> Autoencoder:
    """A copy of one of our own networks, perhaps trained before: it goes on from the weights and units it has."""
    if network.input_shape != data.row_shape:
        raise ValueError(f"network: it takes samples {network.input_shape}, and these are {data.row_shape}.")
    _ = data.summary  # refuses what is not finite
    return copy.deepcopy(network)


def _wrap(module: nn.Module, data: Data) -> Autoencoder:
    """A copy of the user's module, tried on two rows so that a misfit shows before training."""
    for name in ("encode", "decode"):
        if not callable(getattr(module, name, None)):
            raise TypeError(f"network: {type(module).__name__} has no method {name!r}.")
    _ = data.summary  # refuses what is not finite
    module = copy.deepcopy(module).to(data.device).eval()
    x = data.take(torch.arange(min(2, len(data)), device=data.device))
    with torch.no_grad():
        try:
            z = module.encode(x)  # type: ignore[operator]
            back = module.decode(z)  # type: ignore[operator]
        except (RuntimeError, TypeError, AttributeError) as error:
            raise ValueError(
                f"network: {type(module).__name__} does not take samples {data.row_shape}: {error}"
            ) from None
    if z.ndim != 2 or len(z) != len(x):
        raise ValueError(f"network: encode gave shape {tuple(z.shape)}, expected ({len(x)}, embedding_dim).")
    if back.shape != x.shape:
        raise ValueError(f"network: decode gave shape {tuple(back.shape)}, expected {tuple(x.shape)} as it went in.")
    return Wrapped(module, data.row_shape, z.shape[1])
