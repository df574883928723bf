"""CrossMetric: an embedding in which different distances give the same assignment.

Peng, Zhu, Feng, Shen, Zhang, Zhou: "Deep Clustering With Sample-Assignment Invariance Prior", TNNLS 2020. Its variants
are HOMO (metric="euclidean"), HOE ("cosine"), HOT ("correlation") and HIT ("cityblock").

Embeddings h = f(x) and centres ω give distances z_ij, these a closeness Q, and this an assignment P, in which close
clusters have more weight (r = 2) and frequent ones less::

    P_ij = (Q_ij^r / f_j) / Σ_j' (Q_ij'^r / f_j'),   f_j = Σ_i Q_ij

The prediction P₁ is sparse and Euclidean; the target P₂ is dense, by the metric of the variant::

    P₁ from Q_ij = max(0, u_i - z_ij),   z_ij = |h_i - ω_j|,   u_i = mean_j z_ij
    P₂ from Q_ij = (1 + z_ij²)^-1 / Σ_j' (1 + z_ij'²)^-1

    L = mean_i KL(P₂ ‖ P₁)

A denoising autoencoder is trained first and k-means places the centres. Then the decoder is dropped, and L trains the
network and the centres, until fewer than 0.03 % of the labels argmax_j P₁ change from one epoch to the next.

Differences from the printed paper: cosine and correlation are distances (1 - similarity), otherwise the farthest centre
would be the closest. Small distances are multiplied (`spread`): these two are at most 2, so P₂ would be nearly flat,
and P₁ would follow it and lose its clusters. P₁ has zeros, so probabilities are clipped to 1e-7 in the logarithms, as
in Keras. The learning rate is multiplied by its decay, not divided. By default P₂ has a larger r than P₁ (`matched`);
the paper has one r for both. If clusters begin to empty, training goes back to the last good epoch and stops
(`repair`). With several metrics L is the sum over all pairs of assignments.
"""

import copy
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..engine.data import Batch, Data
from ..engine.guard import Guard
from ..engine.model import ClusterModel, Losses
from ..engine.pretraining import Pretraining
from ..estimator.knobs import knob
from ..estimator.settings import hyperparameters
from ..estimator.state import set_attributes, write_lock
from ..nn.autoencoders import Autoencoder
from ..nn.cross_metric import RESCALE_FROM, CrossMetricLayer, Side
from ..nn.ops import METRICS, log_balance
from .autoencoder import AutoencoderClusterer, paper_settings


def check_metric(metric: Any) -> None:
    wrong = ValueError(f"metric={metric!r} should be one or several of {', '.join(METRICS)}, each once.")
    try:
        names = metric_names(metric)
        known = bool(names) and set(names) <= set(METRICS) and len(set(names)) == len(names)
    except TypeError:
        raise wrong from None
    if not known:
        raise wrong


def metric_names(metric: str | Sequence[str]) -> tuple[str, ...]:
    return (metric,) if isinstance(metric, str) else tuple(metric)


class CrossMetricModel(ClusterModel):
    clusters: CrossMetricLayer
    seen: Tensor  # Σ over the epoch's steps of what `extra_metrics` returns (3,)
    steps: Tensor
    labels: Tensor  # argmax_j P₁ after the last epoch (n,)

    def __init__(self, autoencoder: Autoencoder, clusters: CrossMetricLayer, settings: "CrossMetric") -> None:
        super().__init__(autoencoder, clusters)
        self.start, self.centered = settings.first_centers(clusters.embedding_dim), settings.centered
        self.spread, self.matched = settings.spread, settings.matched
        self.tolerance, self.decay, self.decay_every = settings.tolerance, settings.decay, settings.decay_every
        self.guard = Guard(self) if settings.repair else None
        self.changed = 1.0
        self.register_buffer("seen", torch.zeros(3), persistent=False)
        self.register_buffer("steps", torch.zeros(()), persistent=False)
        self.forget_rows()

    def forget_rows(self) -> None:
        """Remove the labels of the training rows, which are not part of the fitted model."""
        labels = torch.empty(0, dtype=torch.long, device=self.clusters.weight.device)
        self.register_buffer("labels", labels, persistent=False)

    def before_training(self, data: Data) -> None:
        self.place_centers(data, self.start)
        z = self.sample_embedding(data)
        factor = self.clusters.factors(z, self.spread)[0].item()
        if factor > RESCALE_FROM and self.network_learns and self.autoencoder.magnify(factor):
            self.clusters.set_centers(factor * self.clusters.centers)
            z = factor * z
        if self.centered:
            self.clusters.look_from(z)
        self.clusters.stretch_to(z, self.spread)
        if self.matched:
            self.clusters.match_powers(z)
        self.refresh_labels(data)
        if self.guard:
            self.guard.check(self.sizes())

    def sizes(self) -> Tensor:
        """Cluster sizes, by the current labels."""
        return self.labels.bincount(minlength=self.clusters.n_clusters)

    def before_epoch(self, epoch: int, data: Data) -> None:
        self.seen.zero_()
        self.steps.zero_()

    def lr_factor(self, epoch: int) -> float:
        return self.decay ** (epoch // self.decay_every)

    def loss(self, batch: Batch) -> Losses:
        assignments = self.clusters.assignments(self.embed(batch.x))
        with torch.no_grad():
            first, second = assignments[:2]
            differing = (first.argmax(1) != second.argmax(1)).to(first)
            undecided = (-torch.xlogy(p, p).sum(1) for p in (first, second))
            self.seen += batch.mean(torch.stack([differing, *undecided], dim=1))
            self.steps += 1
        return {"clustering": self.clusters.discrepancy(assignments).mean()}

    def stack_key(self) -> Hashable | None:
        clusters, network = self.clusters, self.network_stack_key()
        return network and (network, clusters.metrics, clusters.divergence, clusters.detach)

    def extra_metrics(self) -> dict[str, float]:
        """Share of rows that P₁ and P₂ put into different clusters, and the mean entropy of either."""
        names = ("disagreement", "entropy", "target_entropy")
        return dict(zip(names, (self.seen / self.steps).tolist(), strict=True))

    @torch.no_grad()
    def refresh_labels(self, data: Data) -> None:
        """Update the frequencies and labels from all rows, and count how many labels have changed."""
        with self.evaluating():
            closeness = data.map(lambda x: torch.stack(self.clusters.closeness(self.embed(x)), dim=1))  # (n, 1 + m, k)
        if not closeness.isfinite().all():  # the loop will restore a finite state, whose labels are kept
            return
        self.clusters.count(closeness)
        labels = log_balance(closeness[:, 0], self.clusters.frequencies[0], self.clusters.powers[0]).argmax(1)
        known = self.labels
        self.changed = (labels != known).double().mean().item() if len(known) else 1.0
        self.labels = labels

    def after_epoch(self, epoch: int, data: Data) -> None:
        self.refresh_labels(data)
        self.finished = self.changed < self.tolerance
        if self.guard and not self.guard.check(self.sizes()):
            self.guard.restore(epoch)

    def after_training(self, data: Data) -> None:
        super().after_training(data)
        self.refresh_labels(data)  # f of the trained model
        self.forget_rows()
        self.note_if_settled(f"fewer labels changed than tolerance={self.tolerance:g}")

    def clustering_loss(self, z: Tensor) -> Tensor:
        return self.clusters.losses(z)

    def assign(self, x: Tensor) -> Tensor:
        return self.clusters(self.embed(x))

    def with_other_assignment(self) -> Self:
        """P₂ in place of P₁, or the reverse; the network is shared."""
        twin = copy.deepcopy(self, {id(self.autoencoder): self.autoencoder})
        clusters: Any = twin.clusters.original
        clusters.answer = "target" if clusters.answer == "prediction" else "prediction"
        return twin

    def training_state(self) -> dict[str, Any]:
        return {**super().training_state(), "labels": self.labels}

    def load_training_state(self, state: dict[str, Any]) -> None:
        super().load_training_state(state)
        self.labels = state["labels"].to(self.labels)


@hyperparameters
class CrossMetric(AutoencoderClusterer):
    """Deep clustering by sample-assignment invariance: train the network and the centres until two distances agree.

    Shared parameters: see `PrototypeClusterer`; `optimizer` and `lr` are used for clustering, the autoencoder is
    pretrained with Adam. `predict_proba` returns P₁ or P₂, as set by `inference`; with two clusters P₁ is 0 or 1.
    `CrossMetric.paper("mnist", metric="cosine")` has the paper's settings, except for what it does not say or our copy
    does not show: the learning rate, its weight decay (none here) and the length of pretraining (50 epochs here, as in
    Deep k-Means, whose network is the same). It also differs in `spread`, without which angles lose clusters; in the
    mean, which the paper subtracts from the data (pixels are unscaled here, because HOMO loses accuracy without the
    mean of each pixel); and in angles behind the CNN's sigmoid, which are measured from the mean.

    Args:
        metric: metric of the target P₂: "euclidean" (HOMO), "cosine" (HOE), "correlation" (HOT), "cityblock" (HIT), or
            several of them, for a loss over all pairs of assignments.
        divergence: divergence between assignments: "kl", "jensen-shannon" or "hellinger" (squared).
        detach: side without gradients: "none" (the paper's objective), "prediction" or "target".
        inference: the assignment used by `predict`: "prediction" (P₁) or "target" (P₂, of the first metric). It can be
            changed after the fit with `set_params`.
        centered: measure angles (cosine, correlation) from the mean of the embedding before clustering. False: from
            zero.
        spread: smallest mean distance under the target's metric before clustering; smaller distances are multiplied up
            to it, because 1 / (1 + z²) is nearly flat for small z. If the mean Euclidean distance between rows and
            centres is less than half of it, the last layer of the network is multiplied too, because centres would jump
            at the usual learning rate. Behind a sigmoid or in a network of your own the steps of the centres are made
            smaller instead, if the optimiser is plain gradient descent. 0: no scaling.
        power: r, the exponent of the closeness.
        matched: raise the target's power before clustering until P₂ is as certain as P₁, by their mean entropies (up to
            8). If P₁ is 0 or 1, as with two clusters, the power does not change. False: the same r for both, as in the
            paper.
        noise: share of the values that are masked while the autoencoder is pretrained.
        decay: factor on the learning rate after every `decay_every` epochs.
        decay_every: number of epochs between two decays.
        tolerance: stop when a smaller share of the labels changes from one epoch to the next; 0: never.
        repair: go back to the last good epoch when clusters begin to empty, and stop. False: continue, as in the paper.
    """

    optimizer: str | Callable[..., Optimizer] = "momentum"
    lr: float | None = 0.001
    metric: str | Sequence[str] = knob("euclidean", check=check_metric)
    divergence: Literal["kl", "jensen-shannon", "hellinger"] = "kl"
    detach: Literal["none", "target", "prediction"] = "none"
    inference: Literal["prediction", "target"] = "prediction"
    centered: bool = True
    spread: float = knob(6.0, low=0, high=1e6)
    power: float = knob(2.0, low=1, high=10)
    matched: bool = True
    noise: float = knob(0.3, low=0, high=1)
    decay: float = knob(0.9, above=0, high=1)
    decay_every: int = knob(300, low=1)
    tolerance: float = knob(0.0003, low=0, high=1)
    repair: bool = True

    own_optimizer: ClassVar[bool] = True
    papers: ClassVar[dict[str, dict[str, Any]]] = {
        name: paper_settings(
            k,
            network=network,
            embedding_dim=embedding_dim,
            rescale=False,
            pretrain_epochs=50,
            epochs=epochs,
            optimizer=optimizer,
            lr=lr,
            metric="cosine",
            detach="none",
            centered=network != "dense",
            spread=6.0,
            matched=False,
            noise=0.3,
            decay=decay,
            decay_every=decay_every,
            tolerance=0.0003,
            repair=False,
        )
        for name, k, network, embedding_dim, epochs, optimizer, lr, decay, decay_every in (
            ("mnist", 10, "dense", 10, 4500, "momentum", 0.001, 0.9, 300),
            ("mnist-cnn", 10, "conv-pool", 10, 4500, "momentum", 0.001, 0.9, 300),
            ("mnist-test", 10, "dense", 10, 3000, "momentum", 0.001, 0.9, 300),
            ("mnist-test-cnn", 10, "conv-pool", 10, 3000, "momentum", 0.001, 0.9, 300),
            ("reuters10k", 4, "dense", 10, 3000, "momentum", 1.0, 0.9, 500),
            ("cifar10-test", 10, "dense", 100, 4500, "momentum", 1e-5, 0.9, 300),
            ("cifar100", 5, "dense", 10, 3000, "adadelta", 1.0, 1.0, 300),
        )
    }

    def build_model(self, autoencoder: Autoencoder, n_samples: int) -> CrossMetricModel:
        clusters = CrossMetricLayer(
            self.n_clusters,
            autoencoder.embedding_dim,
            metric_names(self.metric),
            power=self.power,
            divergence=self.divergence,
            detach=self.detach,
            answer=self.inference,
        )
        return CrossMetricModel(autoencoder, clusters, self)

    def set_params(self, **params: Any) -> Self:
        """As in scikit-learn; a new `inference` takes effect on a fitted estimator at once. Of one that was loaded, or
        whose clusters were merged or split, `labels_` are gone then: they would need the training rows."""
        super().set_params(**params)
        if "inference" in params and hasattr(self, "model_"):
            self._check_settings()
            with write_lock(self):
                self._answer_by(self.inference)
        return self

    def _answer_by(self, inference: Side) -> None:
        clusters: Any = self.model_.clusters
        if clusters.original.answer == inference:
            return
        kept = vars(self).get("_other_assignment")
        fitted: dict[str, Any] = {"_fitted_with": {**self._fitted_with, "inference": inference}}
        if kept is None or clusters is not clusters.original:
            fitted["model_"] = self.model_.with_other_assignment()
            set_attributes(self, fitted, without=("labels_", "_other_assignment"))
        else:
            now = {name: vars(self)[name] for name in kept}
            set_attributes(self, {**fitted, **kept, "_other_assignment": now})

    def pretraining(self, model: ClusterModel) -> Pretraining:
        return Pretraining(model, noise=self.noise)

    def why_not_online(self) -> str:
        return "its predictions depend on frequencies over all rows"
