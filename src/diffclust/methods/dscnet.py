"""DSC-Net: deep subspace clustering. The embeddings of an autoencoder reconstruct one another.

Ji, Zhang, Li, Salzmann, Reid: "Deep Subspace Clustering Networks", NeurIPS 2017.

An autoencoder f, g is trained alone. Then a layer of weights C (n, n) is put between its halves, which reconstructs
each embedding in Z = f(X) from the others, and everything is trained together on all rows at once, eq. (4)::

    min ½ |X - g(C Z)|² + λ1 |C|² + λ2/2 |Z - C Z|²,   diag(C) = 0

Without a network (f and g the identity) this is ridge regression, LSR1 with λ = 2 λ1 / (1 + λ2). The graph of C is then
cleaned as in the authors' code. In each column the largest coefficients are kept, up to a share of their sum. With S
the symmetric part of the result, I + S is reduced to rank d k + 1; its rows M, scaled to unit length, give the affinity
W = max(0, M Mᵀ)^p, and spectral clustering cuts W (`ssc.spectral_labels`). The coefficients are small, so I matters:
without it eigenvectors of negative eigenvalues would count like the others, and those of small ones hardly.

The method is transductive: there are coefficients only for pairs of training rows.
"""

import contextlib
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..engine.checkpoint import Checkpoint
from ..engine.data import Batch, Data
from ..engine.loop import train
from ..engine.model import ClusterModel, Losses
from ..engine.optimizers import make_optimizer
from ..engine.phase import Callback, Phase
from ..engine.pretraining import Pretraining
from ..engine.restart import FitContext, Restart
from ..engine.run import warnings_of
from ..engine.runtime import Randomness, choose_device, free_memory, learning, restart_seeds
from ..estimator import networks
from ..estimator.knobs import check_seed, knob
from ..estimator.settings import check_device, check_network, hyperparameters
from ..nn.autoencoders import Autoencoder
from ..nn.cluster import ClusterLayer
from .ssc import join_strays, spectral_labels
from .transductive import TransductiveClusterer

FIRST_COEFFICIENT = 1e-8  # initial value of every coefficient, as in the authors' code
MAPS = (15,)  # of the authors' network for COIL-20: one convolution of stride 2
PRETRAIN_BATCH_SIZE = 256  # batch size while the autoencoder is trained alone
COPIES = 8  # tensors of the size of C in memory: its gradient, Adam's moments, intermediate results


class DSCNetModel(ClusterModel):
    def __init__(self, autoencoder: Autoencoder, clusters: ClusterLayer, settings: "DSCNet", n_samples: int) -> None:
        super().__init__(autoencoder, clusters)
        self.weight, self.expression = settings.weight, settings.expression
        self.c = nn.Parameter(torch.full((n_samples, n_samples), FIRST_COEFFICIENT))
        clusters.weight.requires_grad_(False)

    def coefficients(self) -> Tensor:
        """C, zero on the diagonal."""
        return self.c - torch.diag_embed(self.c.diagonal())

    def loss(self, batch: Batch) -> Losses:
        """Eq. (4), divided by the number of rows."""
        n = len(self.c)
        z = self.embed(batch.x)
        c = self.coefficients()[batch.index][:, batch.index]
        written = c @ z
        losses = {
            "expression": self.expression / 2 * (z - written).square().sum() / n,
            "coefficients": self.weight * c.square().sum() / n,
        }
        reconstruction = self.autoencoder.reconstruction_loss(batch.clean, written)
        return {"reconstruction": self.autoencoder.n_values / 2 * reconstruction, **losses}

    def clustering_loss(self, z: Tensor) -> Tensor:
        return self.clusters.distances(z).amin(1)


class Unwatched(contextlib.nullcontext[None]):
    """No callbacks."""

    callbacks: list[Callback] = []  # noqa: RUF012


@hyperparameters
class DSCNet(TransductiveClusterer):
    """Deep subspace clustering, for up to a few thousand images, such as faces, or objects seen from all sides.

    The method is transductive: `fit_predict` labels the rows it is given, and there is no `predict`. Memory and time
    per step grow with the square of the number of rows; the memory is checked before training. The defaults are the
    authors' for COIL-20. They chose when to stop by looking at the labels; here `epochs` decides.

    Args:
        n_clusters: number of clusters.
        network: "auto" (images: one convolution of stride 2 with 15 maps; rows: dense), another name, or a module with
            `encode` and `decode`.
        embedding_dim: dimension of the embedding of a dense network.
        weight: λ1, of `|C|²`.
        expression: λ2, of `|Z - C Z|²`.
        pretrain_epochs: epochs of the autoencoder alone.
        epochs: steps on all rows at once.
        lr: Adam's learning rate.
        keep: share of the sum of a column's coefficients that is kept, the largest first.
        subspace_dim: d, about the dimension of a subspace.
        power: p; a larger value sharpens the affinity.
        device: "auto", "cpu", "cuda", ...
        random_state: an int for reproducible results.

    Attributes:
        labels_: the cluster of each row of X (n,).
        coefficients_: C (n, n).
        affinity_matrix_: W (n, n).
        history_: a dict per epoch: phase, epoch, and every term of the loss.
        diagnostics_: cluster sizes and warnings.
    """

    n_clusters: int = knob(8, low=1, kw_only=False)
    network: str | nn.Module = knob("auto", check=check_network)
    embedding_dim: int = knob(64, low=1)
    weight: float = knob(0.5, low=0)
    expression: float = knob(75.0, low=0)
    pretrain_epochs: int = knob(200, low=0)
    epochs: int = knob(40, low=1)
    lr: float = knob(1e-3, above=0)
    keep: float = knob(0.04, above=0, high=1)
    subspace_dim: int = knob(12, low=1)
    power: float = knob(8.0, above=0)
    device: str = knob("auto", check=check_device)
    random_state: int | np.random.RandomState | None = knob(None, check=check_seed)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Label the rows X; y is ignored."""
        given = self._read(X)
        n, device = len(given.rows), choose_device(self.device)
        self._check_memory(n)
        (seed,) = restart_seeds(self.random_state, 1)
        with learning():
            restart = self._restart(Data(given.rows, device, n), Data(given.rows, device, PRETRAIN_BATCH_SIZE), seed)
            train([restart])
            model = restart.model
            assert isinstance(model, DSCNetModel)
            c = model.coefficients().detach().double().cpu()
            z = F.normalize(restart.data.map(model.embed).double().cpu(), dim=1)
            w = self.affinity(c)
            labels, found = spectral_labels(sp.csr_array(w.numpy()), self.n_clusters, seed)
            labels = join_strays(z, labels)
        messages = warnings_of(restart.events)
        if found["isolated"]:
            messages.append(f"{found['isolated']} rows have no coefficients.")
        self._adopt(
            given,
            labels,
            messages,
            {},
            coefficients_=c.numpy(),
            affinity_matrix_=w.numpy(),
            history_=restart.history,
            n_iter_=sum(record["phase"] == "clustering" for record in restart.history),
        )
        return self

    def affinity(self, c: Tensor) -> Tensor:
        """W of the coefficients C (n, n)."""
        kept = keep_largest(c, self.keep)
        values, vectors = torch.linalg.eigh((kept + kept.T) / 2 + torch.eye(len(kept), dtype=kept.dtype))
        largest = values.abs().argsort(descending=True)[: self.subspace_dim * self.n_clusters + 1]
        m = F.normalize(vectors[:, largest] * values[largest].abs().sqrt(), dim=1)
        w = (m @ m.T).clamp_min(0) ** self.power
        return w.fill_diagonal_(0)

    def _check_memory(self, n: int) -> None:
        needs, free = 4.0 * COPIES * n**2, free_memory(self.device)
        if needs > free:
            raise ValueError(
                f"DSCNet on {n} rows needs {needs / 1e9:.1f} GB, a coefficient for each pair, and "
                f"{free / 1e9:.1f} GB are free. Give fewer rows, or take SSCNet, which learns in batches."
            )

    def _restart(self, data: Data, parts: Data, seed: int) -> Restart:
        """Train the autoencoder alone in batches, then everything together on all rows at once."""
        randomness = Randomness(seed, data.device)
        with randomness.borrowed():
            network = self._network(data)
            clusters = ClusterLayer(self.n_clusters, network.embedding_dim)
            model = DSCNetModel(network, clusters, self, len(data)).to(data.device)
        phases = [Phase("clustering", model, data, make_optimizer(model, "adam", self.lr), int(self.epochs))]
        if model.network_learns:
            alone = Pretraining(model)
            optimizer = make_optimizer(alone, "adam", self.lr)
            phases.insert(0, Phase("pretraining", alone, parts, optimizer, int(self.pretrain_epochs)))
        context = FitContext(data.device, Checkpoint(None, 1, {}, [seed]), Unwatched())
        return Restart(context, 0, model, data, phases, randomness)

    def _network(self, data: Data) -> Autoencoder:
        if self.network == "auto" and len(data.row_shape) == 3:
            return networks.build("conv-dictionary", data, 0, {"conv-dictionary": {"maps": MAPS, "rectified": True}})
        return networks.build(self.network, data, self.embedding_dim, {})


def keep_largest(c: Tensor, share: float) -> Tensor:
    """In each column, keep the largest absolute values until they make up this share of their sum, and set the others
    to zero."""
    size, places = c.abs().sort(dim=0, descending=True)
    kept = size.cumsum(0) - size < share * size.sum(0)
    return torch.zeros_like(c).scatter_(0, places, torch.where(kept, c.gather(0, places), 0.0))
