"""Networks for rows: measurements, counts, words, embeddings, in units found from the data."""

import itertools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..chain import Chain
from .base import Autoencoder, Output

FEW_COLUMNS = 16  # rows of no more than these are points in space; in more, directions tell more than lengths


class ScaledRows(Autoencoder):
    """Scaled rows without a network. Rows of few columns are points, z = u; those of many columns are directions from
    the centre of the data, of length √(p + 1)::

        u = P (x - shift) / scale,   z = √(p + 1) (u, ℓ) / |(u, ℓ)|,   ℓ = min(1, 16 / p)² mean |u| / √p

    ℓ is one more coordinate, so that lengths matter if there are few columns, and only directions if there are many.

    Args:
        components: p, the number of principal components in P; 0: P is the identity, and p the number of columns.
        asinh: u = P asinh((x - shift) / scale), so that large values count by their logarithm.
        directions: whether rows are directions.
    """

    basis: Tensor  # P (p, d), empty if P is the identity
    length: Tensor  # ℓ

    def __init__(
        self,
        input_shape: Sequence[int],
        embedding_dim: int = 0,
        output: Output = "linear",
        components: int = 0,
        asinh: bool = False,
        directions: bool = True,
    ) -> None:
        d = int(torch.Size(tuple(input_shape)).numel())
        self.components = components or d
        super().__init__(input_shape, self.components + directions, "linear")
        self.config |= {"components": components, "asinh": asinh, "directions": directions}
        self.asinh, self.directions = asinh, directions
        self.register_buffer("basis", torch.zeros(components, d))
        self.register_buffer("length", torch.ones(()))
        self.encoder, self.decoder = nn.Flatten(), nn.Identity()

    def scaled(self, x: Tensor) -> Tensor:
        """u, (b, p), of samples. u itself is also accepted, because training multiplies wide rows by P only once."""
        if len(self.basis) and x.shape[1:] == (len(self.basis),):
            return x
        u = self.column_units(x)
        return u @ self.basis.T if len(self.basis) else u

    def column_units(self, x: Tensor) -> Tensor:
        """Samples (b, d), each column divided by its unit."""
        u = ((x - self.shift) / self.scale).flatten(1)
        return fast_asinh(u) if self.asinh else u

    def normalize(self, x: Tensor) -> Tensor:
        u = self.scaled(x)
        if not self.directions:
            return u
        z = torch.cat([u, self.length.to(u.dtype).expand(u.shape[0], 1)], dim=1)
        return (self.components + 1) ** 0.5 * F.normalize(z, dim=1)

    def decoded(self, z: Tensor) -> Tensor:
        """Codes to u, by the inverse of `normalize`."""
        if not self.directions:
            return z
        return self.length * z[:, :-1] / z[:, -1:].clamp_min(1e-6)

    def synthesise(self, z: Tensor) -> Tensor:
        u = self.decoded(z)
        u = u @ self.basis if len(self.basis) else u
        return (u.sinh() if self.asinh else u).reshape(len(z), *self.input_shape)

    def reconstruction_loss(self, x: Tensor, z: Tensor) -> Tensor:
        return F.mse_loss(self.decoded(z), self.scaled(x))

    def negative_log_likelihood(self, x: Tensor, z: Tensor) -> Tensor:
        return self.components * self.reconstruction_loss(x, z) / 2

    @torch.no_grad()
    def take_units(self, other: "ScaledRows") -> None:
        """The units of another network of the same input."""
        self.set_units(other.shift.clone(), other.scale.clone())
        self.basis.copy_(other.basis)
        self.length.copy_(other.length)

    @torch.no_grad()
    def set_rows(self, shift: Tensor, scale: Tensor, rows: Tensor) -> None:
        """Set the units, and from a sample of rows the principal components and the mean length."""
        self.set_units(shift, scale)
        if len(self.basis):
            self.basis.copy_(principal_directions(self.column_units(rows), len(self.basis)))
        length = self.scaled(rows).norm(dim=1).mean().item() / self.components**0.5
        self.length.fill_(min(1.0, FEW_COLUMNS / self.components) ** 2 * length or 1.0)


class RowAutoencoder(ScaledRows):
    """For measurements, counts, words, embeddings: scaled rows, then p-128-128-embedding with batch norm; mirrored."""

    def __init__(
        self,
        input_shape: Sequence[int],
        embedding_dim: int = 10,
        output: Output = "linear",
        components: int = 0,
        hidden: Sequence[int] = (128, 128),
        variational: bool = False,
        asinh: bool = False,
        directions: bool = True,
    ) -> None:
        super().__init__(input_shape, embedding_dim, output, components, asinh, directions)
        self.embedding_dim = embedding_dim
        self.config |= {"embedding_dim": embedding_dim, "hidden": list(hidden), "variational": variational}
        self.variational = variational
        self.encoder = Chain(*_normed_chain([self.components + directions, *hidden, embedding_dim * (1 + variational)]))
        self.decoder = Chain(*_normed_chain([embedding_dim, *reversed(hidden), self.components]))

    def decoded(self, z: Tensor) -> Tensor:
        return self.decoder(z)


def fast_asinh(x: Tensor) -> Tensor:
    """`torch.asinh` up to the last digits, four times as fast on a CPU; constant above 1e18."""
    size = x.abs().clamp_max(1e18)
    squared = size.square()
    far = torch.log1p(size + squared / (1 + (1 + squared).sqrt()))
    return torch.where(size < 1e-3, x, x.sign() * far)  # x instead of |x|, which has no slope at zero


@torch.no_grad()
def principal_directions(u: Tensor, k: int) -> Tensor:
    """The k directions in which rows u (n, d) vary most, (k, d); zeros if there are fewer."""
    u = u - u.mean(0)
    n, d = u.shape
    found = min(k, n, d)
    if min(n, d) <= 500:  # `eigh` of a small matrix is faster than iterations, and exact
        products = u.T @ u if d <= n else u @ u.T
        vectors = torch.linalg.eigh(products.double()).eigenvectors[:, -found:].flip(1).to(u.dtype)
        directions = vectors.T if d <= n else F.normalize(vectors.T @ u, dim=1)
    else:
        directions = torch.svd_lowrank(u, q=found + 10, niter=4)[2][:, :found].T
    return torch.cat([directions, directions.new_zeros(k - found, d)])


def _normed_chain(widths: Sequence[int]) -> list[nn.Module]:
    """Linear layers with batch norm and ReLU between them."""
    layers: list[nn.Module] = []
    for i, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
        layers += [nn.BatchNorm1d(fan_in), nn.ReLU()] if i else []
        layers.append(nn.Linear(fan_in, fan_out))
    return layers
