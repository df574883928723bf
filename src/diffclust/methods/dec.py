"""DEC and IDEC: soft assignments trained towards a sharper version of themselves.

Xie, Girshick, Farhadi: "Unsupervised Deep Embedding for Clustering Analysis", ICML 2016.
Guo, Gao, Liu, Yin: "Improved Deep Embedded Clustering with Local Structure Preservation", IJCAI 2017.

Embeddings z and centres μ give soft assignments by a Student-t kernel. From these a target is computed that is sharper
and evens out the cluster sizes::

    q_ij = (1 + |z_i - μ_j|²)^-1 / Σ_j' (...)                              DEC eq. (1)
    p_ij = (q_ij² / f_j) / Σ_j' (q_ij'² / f_j'),   f_j = Σ_i q_ij           DEC eq. (3)

The target is computed over all rows and kept for `interval` steps, while the network and the centres are trained on
it::

    L = KL(P ‖ Q)                                     DEC eq. (2), the decoder is dropped
    L = reconstruction per value + γ KL(P ‖ Q)        IDEC eq. (4)

KL is a sum over clusters and a mean over rows. Training stops when a share below `tolerance` of the labels changes
from one target to the next.
"""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..engine.data import Batch, Data
from ..engine.model import ClusterModel, Losses
from ..estimator.knobs import knob
from ..estimator.settings import hyperparameters
from ..nn.autoencoders import Autoencoder
from ..nn.cluster import ClusterLayer
from ..nn.ops import log_student_t, sharpen
from .autoencoder import AutoencoderClusterer, paper_settings

PAPERS_BATCH = 256  # batch size of both papers
LONGEST_INTERVAL = 140  # steps between two targets: that of both papers for MNIST


class DECModel(ClusterModel):
    weight: Tensor
    frequency: Tensor  # f / n (k,)
    target: Tensor  # p (n, k)
    labels: Tensor  # argmax_j q_ij when the target was last computed (n,)

    def __init__(
        self, autoencoder: Autoencoder, clusters: ClusterLayer, settings: "DEC | IDEC", n_samples: int
    ) -> None:
        super().__init__(autoencoder, clusters)
        self.keep_decoder, self.tolerance = settings.keep_decoder, settings.tolerance
        self.start = settings.first_centers(clusters.embedding_dim)
        self.interval = settings.target_interval(n_samples)
        self.register_buffer("weight", torch.tensor(float(settings.weight)), persistent=False)
        self.register_buffer("frequency", torch.full((clusters.n_clusters,), 1 / clusters.n_clusters))
        self.forget_rows()

    def forget_rows(self, n: int = 0) -> None:
        """Reset the tensors of the training rows, for n rows. They are not part of the fitted model."""
        device = self.clusters.weight.device
        self.register_buffer("target", torch.zeros(n, self.clusters.n_clusters, device=device), persistent=False)
        self.register_buffer("labels", torch.full((n,), -1, device=device), persistent=False)

    def before_training(self, data: Data) -> None:
        self.place_centers(data, self.start)
        self.forget_rows(len(data))

    def before_epoch(self, epoch: int, data: Data) -> None:
        self.finished = False  # set by any refresh in this epoch

    def log_q(self, z: Tensor) -> Tensor:
        return log_student_t(self.clusters.distances(z))

    @torch.no_grad()
    def refresh(self, data: Data) -> None:
        with self.evaluating():
            q = data.map(self.assign)
        if not q.isfinite().all():  # the loop will restore a finite state, for which the last target is right
            return
        labels = q.argmax(1)
        self.finished |= (labels != self.labels).double().mean().item() < self.tolerance
        self.labels.copy_(labels)
        self.frequency.copy_(q.mean(0))
        self.target.copy_(sharpen(q, self.frequency))

    def loss(self, batch: Batch) -> Losses:
        z = self.embed(batch.x)
        p = self.target[batch.index]
        divergence = (torch.xlogy(p, p) - p * self.log_q(z)).sum(1)
        losses = {"clustering": self.weight * divergence.mean()}
        if self.network_learns and self.keep_decoder:
            losses["reconstruction"] = self.autoencoder.reconstruction_loss(batch.x, z)
        return losses

    def stack_key(self) -> Hashable | None:
        network = self.network_stack_key()
        return network and (network, self.keep_decoder)

    def clustering_loss(self, z: Tensor) -> Tensor:
        log_q = self.log_q(z)
        p = sharpen(log_q.exp(), self.frequency.to(z.dtype))
        return (torch.xlogy(p, p) - p * log_q).sum(1)

    def assign(self, x: Tensor) -> Tensor:
        return self.log_q(self.embed(x)).exp()

    def after_training(self, data: Data) -> None:
        self.note_if_settled(f"fewer labels changed than tolerance={self.tolerance:g}")
        self.refresh(data)  # f of the trained model
        self.forget_rows()

    def training_state(self) -> dict[str, Any]:
        return {**super().training_state(), "target": self.target, "labels": self.labels}

    def load_training_state(self, state: dict[str, Any]) -> None:
        super().load_training_state(state)
        self.target, self.labels = state["target"].to(self.target), state["labels"].to(self.labels)


@hyperparameters
class SelfSharpening(AutoencoderClusterer):
    """What DEC and IDEC share besides the model."""

    interval: int | Literal["auto"] = knob("auto", low=1)
    tolerance: float = knob(0.001, low=0, high=1)

    own_optimizer: ClassVar[bool] = True
    keep_decoder: ClassVar[bool]

    def target_interval(self, n_samples: int) -> int:
        """Steps between two targets. "auto": about one pass over the rows, and at most as many as both papers have for
        MNIST."""
        wanted = min(LONGEST_INTERVAL, n_samples // PAPERS_BATCH) if self.interval == "auto" else int(self.interval)
        return max(1, wanted)

    def why_not_online(self) -> str:
        return "its target needs all rows"


@hyperparameters
class DEC(SelfSharpening):
    """Deep embedded clustering: the network is trained towards a sharper version of its own assignments.

    Shared parameters: see `PrototypeClusterer`; `optimizer` and `lr` are used for clustering, the autoencoder is
    pretrained with Adam. `DEC.paper("mnist")` has the settings of the Keras version that IDEC's authors maintain,
    except for its pretraining optimiser; the paper itself pretrains layer by layer (`layer_epochs`).

    Args:
        interval: steps between two targets over all rows. "auto": about an epoch, at most 140.
        tolerance: stop when a smaller share of the labels changes from one target to the next; 0: never.
    """

    optimizer: str | Callable[..., Optimizer] = "sgd"

    keep_decoder: ClassVar[bool] = False
    weight: ClassVar[float] = 1.0  # of KL(P ‖ Q), the only term
    papers: ClassVar[dict[str, dict[str, Any]]] = {
        name: paper_settings(
            k,
            embedding_dim=10,
            pretrain_epochs=pretrain_epochs,
            epochs=epochs,
            optimizer=partial(torch.optim.SGD, lr=0.01, momentum=0.9),
            interval=interval,
            tolerance=0.001,
        )
        for name, k, pretrain_epochs, epochs, interval in (
            ("mnist", 10, 300, 73, 140),  # 20,000 steps at most
            ("usps", 10, 50, 550, 30),
            ("reuters10k", 4, 50, 510, 30),
        )
    }

    def build_model(self, autoencoder: Autoencoder, n_samples: int) -> DECModel:
        return DECModel(autoencoder, self.build_clusters(autoencoder), self, n_samples)


@hyperparameters
class IDEC(SelfSharpening):
    """Improved deep embedded clustering: DEC with a decoder, so that the embedding preserves the structure of the data.

    Shared parameters: see `PrototypeClusterer`; `optimizer` and `lr` are used for clustering, the autoencoder is
    pretrained with Adam. `IDEC.paper("mnist")` has the authors' settings; they do not give the length of their
    layer-wise pretraining, which is 50 epochs per layer and 200 for the whole network here.

    Args:
        weight: γ, the weight of KL(P ‖ Q) relative to the reconstruction loss per value.
        interval: steps between two targets over all rows. "auto": about an epoch, at most 140.
        tolerance: stop when a smaller share of the labels changes from one target to the next; 0: never.
    """

    weight: float = knob(0.1, low=0)

    keep_decoder: ClassVar[bool] = True
    papers: ClassVar[dict[str, dict[str, Any]]] = {
        name: paper_settings(
            k,
            embedding_dim=10,
            layer_epochs=50,
            pretrain_epochs=200,
            epochs=epochs,
            optimizer=optimizer,
            weight=0.1,
            interval=interval,
            tolerance=0.001,
        )
        for name, k, epochs, optimizer, interval in (
            ("mnist", 10, 73, "adam", 140),  # 20,000 steps at most
            ("usps", 10, 550, partial(torch.optim.SGD, lr=0.1, momentum=0.99), 30),
            ("reuters10k", 4, 510, partial(torch.optim.SGD, lr=0.1, momentum=0.99), 3),
        )
    }

    def build_model(self, autoencoder: Autoencoder, n_samples: int) -> DECModel:
        return DECModel(autoencoder, self.build_clusters(autoencoder), self, n_samples)
