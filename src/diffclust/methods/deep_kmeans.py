"""Deep k-Means: k-means made differentiable by a softmax whose temperature is annealed.

Moradi Fard, Thonet, Gaussier: "Deep k-Means: Jointly clustering with k-Means and learning representations",
Pattern Recognition Letters 2020.

With embeddings h = f(x), reconstructions A(x) and centres r_k, eq. (3) with f and g squared Euclidean distances::

    L = mean_x [ g(x, A(x)) + λ Σ_k G_k(h) f(h, r_k) ],   G_k(h) = softmax_k(-α f(h, r_k))

As α grows, G becomes the indicator of the nearest centre, and the second term becomes the objective of k-means. The
network and the centres are trained together by gradient steps. In DKM-a, α is annealed from nearly uniform assignments,
starting from random centres and a random network, with the schedule of section 4.2::

    α_1 = 0.1,   α_i+1 = 2^(1 / ln(i + 1)²) α_i

In DKM-p, the autoencoder is trained first, k-means places the centres, and α is large throughout. Nothing in L fixes
the scale of h: see section 3.4, and `l2`.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..engine.data import Batch, Data
from ..engine.model import ClusterModel, Losses
from ..estimator.knobs import knob
from ..estimator.settings import hyperparameters
from ..nn.autoencoders import Autoencoder
from ..nn.cluster import ClusterLayer, DistanceLayer
from ..nn.ops import Distance
from .autoencoder import AutoencoderClusterer, paper_settings

Between = Literal["euclidean", "cosine"] | Callable[[Tensor, Tensor], Tensor]

SPREAD_ROWS = 1024  # rows that the spread is measured on before training
MIN_SPREAD = 0.1  # warn if the spread of the embedding falls below this share of its maximum
LARGE_ALPHA = 1000.0  # the paper's α without annealing: practically only the nearest centre has a share


def annealing_schedule(n: int = 40, first: float = 0.1) -> tuple[float, ...]:
    """α_1, α_2, ... of section 4.2; the paper's index starts one too early, at ln(1) = 0."""
    alphas = [first]
    for i in range(1, n):
        alphas.append(alphas[-1] * 2 ** (1 / math.log(i + 1) ** 2))
    return tuple(alphas)


def check_alphas(alphas: Any) -> None:
    wrong = ValueError(f"alphas={alphas!r} should be 'auto' or numbers > 0.")
    if isinstance(alphas, str):
        if alphas != "auto":
            raise wrong
        return
    try:
        values = [float(alpha) for alpha in alphas]
    except (TypeError, ValueError):
        raise wrong from None
    if not values or not all(0 < value < math.inf for value in values):
        raise wrong


class DeepKMeansModel(ClusterModel):
    weight: Tensor
    alpha: Tensor
    sizes: Tensor  # Σ over the epoch's steps of the mean |h|, and of the mean |h - mean h|
    steps: Tensor

    def __init__(self, autoencoder: Autoencoder, clusters: ClusterLayer, settings: "DeepKMeans") -> None:
        super().__init__(autoencoder, clusters)
        self.alphas, self.start = settings.schedule(), settings.first_centers(clusters.embedding_dim)
        self.between, self.l2 = settings.reconstruction, settings.l2
        self.last = self.widest = 0.0  # spread of the embedding in the last epoch, and the largest so far
        self.register_buffer("weight", torch.tensor(float(settings.weight)), persistent=False)
        self.register_buffer("alpha", torch.tensor(float(self.alphas[-1])))
        self.register_buffer("sizes", torch.zeros(2))
        self.register_buffer("steps", torch.zeros(()))

    def before_training(self, data: Data) -> None:
        if isinstance(self.start, str) and self.start == "uniform":
            self.clusters.set_centers(torch.empty_like(self.clusters.weight).uniform_(-1, 1))
        else:
            self.place_centers(data, self.start)
        with self.evaluating():
            h = data.map(self.embed, data.spaced(SPREAD_ROWS))
        self.last = self.widest = (h - h.mean(0)).norm(dim=1).mean().item()

    def before_epoch(self, epoch: int, data: Data) -> None:
        self.alpha.fill_(self.alphas[epoch * len(self.alphas) // self.epochs])
        self.sizes.zero_()
        self.steps.zero_()

    def f(self, h: Tensor) -> Tensor:
        """(b, k): squared distances, 1 - cosine, or the user's own."""
        distances = self.clusters.distances(h)
        return distances / 2 if self.clusters.sphere else distances  # |h - r|² = 2 (1 - cos) on the sphere

    def g(self, x: Tensor, h: Tensor) -> Tensor:
        if self.between == "euclidean":
            return self.autoencoder.n_values * self.autoencoder.reconstruction_loss(x, h)
        back = self.autoencoder.decode(h)
        if callable(self.between):
            return self.between(x, back).mean()
        return 1 - F.cosine_similarity(x.flatten(1), back.flatten(1)).mean()

    def loss(self, batch: Batch) -> Losses:
        h = self.embed(batch.x)
        with torch.no_grad():
            self.sizes += batch.mean(torch.stack([h, h - batch.mean(h)]).norm(dim=2).T)
            self.steps += 1
        losses = {"clustering": self.weight * self.clustering_loss(h).mean()}
        if self.network_learns:
            losses["reconstruction"] = self.g(batch.x, h)
        if self.network_learns and self.l2:
            weights = [p for p in self.autoencoder.parameters() if p.requires_grad and p.ndim > 1]
            losses["l2"] = self.l2 * torch.stack([w.square().sum() for w in weights]).sum()
        return losses

    def stack_key(self) -> Hashable | None:
        network, own = self.network_stack_key(), callable(self.between) or isinstance(self.clusters, DistanceLayer)
        return None if own or self.l2 else network and (network, self.between, self.clusters.sphere)

    def clustering_loss(self, z: Tensor) -> Tensor:
        f = self.f(z)
        return (torch.softmax(-self.alpha * f, dim=1) * f).sum(1)

    def assign(self, x: Tensor) -> Tensor:
        return torch.softmax(-self.alpha * self.f(self.embed(x)), dim=1)

    def after_step(self, batch: Batch) -> None:
        if self.clusters.sphere:
            self.clusters.project_()

    def extra_metrics(self) -> dict[str, float]:
        length, spread = (self.sizes / self.steps).tolist()
        centers = self.clusters.centers.detach().norm(dim=1).mean().item()
        return {"embedding length": length, "embedding spread": spread, "centre length": centers}

    def after_epoch(self, epoch: int, data: Data) -> None:
        self.last = self.extra_metrics()["embedding spread"]
        self.widest = max(self.widest, self.last)

    def after_training(self, data: Data) -> None:
        if self.network_learns and self.last < MIN_SPREAD * self.widest:
            self.note(
                "shrunk",
                f"The embedding shrank: its spread went from {self.widest:.3g} to {self.last:.3g}, so part of the fall "
                f"of the clustering loss is only scale. A smaller weight than {self.weight:g}, or l2 > 0, may help.",
            )

    def training_state(self) -> dict[str, Any]:
        return {**super().training_state(), "spreads": (self.last, self.widest)}

    def load_training_state(self, state: dict[str, Any]) -> None:
        super().load_training_state(state)
        self.last, self.widest = state["spreads"]


@hyperparameters
class DeepKMeans(AutoencoderClusterer):
    """k-means and the representation trained together by gradients, through a softmax that is annealed or sharp.

    Shared parameters: see `PrototypeClusterer`. `DeepKMeans.paper("mnist")` is the paper's DKM-p, `"mnist-a"` its
    DKM-a. The paper draws each batch of an epoch independently; here an epoch is a permutation of the rows.

    Args:
        annealing: start from a random network and random centres, and anneal α (DKM-a). False: pretrain, and place the
            centres by k-means (DKM-p).
        weight: λ, the weight of the clustering term. Both terms are sums over coordinates and means over rows, as in
            the paper. The paper's code has 1 by default, its tables a value chosen by labels; a large weight empties
            clusters of small samples.
        alphas: the values of α, each for an equal share of the epochs. "auto": 1000 throughout; when annealing, the
            paper's forty values.
        distance: f, the distance between embeddings and centres: "euclidean" (squared), "cosine" (both are scaled to
            unit length), or a callable from rows (b, d) and centres (k, d) to (b, k).
        reconstruction: g, the distance between samples and reconstructions: "euclidean" (squared), "cosine", or a
            callable to (b,).
        l2: weight of the squared weights of the network, against an embedding that only shrinks (section 3.4).
        init: initial centres: "auto", "uniform" (each coordinate in [-1, 1]), "k-means", "k-means++", "random" (rows),
            or an array. "auto": uniform when annealing, k-means otherwise.
    """

    annealing: bool = False
    weight: float = knob(0.1, low=0)
    alphas: Sequence[float] | Literal["auto"] = knob("auto", check=check_alphas)
    distance: Literal["euclidean", "cosine"] | Distance = "euclidean"
    reconstruction: Between = "euclidean"
    l2: float = knob(0.0, low=0)
    init: str | Any = "auto"

    init_choices: ClassVar[tuple[str, ...]] = ("auto", "uniform", "k-means", "k-means++", "neighbours", "random")
    function_knobs: ClassVar[tuple[str, ...]] = ("distance", "reconstruction")
    papers: ClassVar[dict[str, dict[str, Any]]] = {
        name + suffix: paper_settings(k, **settings)
        for name, k in (("mnist", 10), ("usps", 10), ("20newsgroups", 20), ("rcv1", 4))
        for suffix, settings in (
            ("", {"pretrain_epochs": 50, "epochs": 100, "weight": 1.0}),
            ("-a", {"annealing": True, "pretrain_epochs": 0, "epochs": 200, "weight": 1.0}),
        )
    }

    def auto_epochs(self, phase: int, steps: int) -> int:
        if not self.annealing:
            return super().auto_epochs(phase, steps)
        # at least the steps of both phases, because a random start needs them
        return 0 if phase == 0 else max(sum(self.auto_least), math.ceil(sum(self.auto_steps) / steps))

    def build_clusters(self, autoencoder: Autoencoder) -> ClusterLayer:
        if callable(self.distance):
            return DistanceLayer(self.n_clusters, autoencoder.embedding_dim, self.distance, alpha=0.5)
        sphere = self.distance == "cosine"
        return ClusterLayer(self.n_clusters, autoencoder.embedding_dim, alpha=0.5, sphere=sphere)

    def build_model(self, autoencoder: Autoencoder, n_samples: int) -> DeepKMeansModel:
        return DeepKMeansModel(autoencoder, self.build_clusters(autoencoder), self)

    def first_centers(self, embedding_dim: int) -> Any:
        start: Any = super().first_centers(embedding_dim)
        if isinstance(start, str) and start == "auto":
            return "uniform" if self.annealing else "k-means"
        return start

    def schedule(self) -> Sequence[float]:
        """The values of α, in order."""
        if isinstance(self.alphas, str):
            return annealing_schedule() if self.annealing else (LARGE_ALPHA,)
        return [float(alpha) for alpha in self.alphas]

    def why_not_online(self) -> str:
        return "under a distance of your own the mean is not the centre" if callable(self.distance) else ""
