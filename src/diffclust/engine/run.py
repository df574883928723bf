"""A finished restart, measured without labels."""

import functools
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..metrics import effective_number
from ..nn.cluster import ClusterLayer
from .data import Data
from .model import ClusterModel, Event
from .phase import Record
from .runtime import seeded

# A run has collapsed if its effective number of clusters is below 1 + COLLAPSED * k and more than UNEXPLAINED of the
# variance is within clusters. With less variance within, the small clusters are outlying groups of rows.
COLLAPSED, UNEXPLAINED = 0.02, 0.5
SAVED_FIGURES = ("seed", "history", "terms", "inertia", "scatter", "clustering_loss", "reconstruction", "temperature")
TEMPERATURE_ROWS = 10_000  # rows the temperature is fitted on
EVENTS_WITHOUT_WARNING = ("repaired", "settled", "stopped", "fallback")  # events that went well


@dataclass(eq=False)
class Run:
    """What a finished restart gave."""

    model: ClusterModel
    seed: int
    history: list[Record]
    terms: list[str]  # names of the loss terms of the last phase in the history
    events: list[Event]
    labels: np.ndarray
    centers: np.ndarray
    inertia: float  # sum of squared distances to the own centre
    scatter: float  # share of the embedding's variance within clusters, independent of its scale
    clustering_loss: float
    reconstruction: float
    temperature: float
    other: "Run | None" = None  # the same with the model's other assignment, if it has one

    @classmethod
    def evaluate(
        cls,
        model: ClusterModel,
        data: Data,
        *,
        seed: int,
        history: list[Record],
        terms: list[str],
        events: list[Event],
    ) -> "Run":
        """Measure a trained model on all rows, in eval mode, with sums in float64."""
        model.eval()
        clusters = model.clusters
        with torch.no_grad():
            centers = clusters.centers.double()

        def measure(x: Tensor) -> Tensor:
            z, _, label = model.answer(x)
            own = (z - centers[label]).square().sum(1)
            # one tensor, because `data.parts` carries one for each part; labels are exact in float64
            return torch.stack([label.double(), own, model.loss_of_members(z, own)], dim=1)

        labels = torch.empty(len(data.own), dtype=torch.long, device=data.device)
        done, sums = 0, centers.new_zeros(3)
        for part in data.parts(measure):
            labels[done : done + len(part)] = part[:, 0].long()
            done += len(part)
            sums += part.sum(0)
        _, own, loss = data.total(sums)[0].tolist()
        labels = data.join(labels)
        z = model.sample_embedding(data, TEMPERATURE_ROWS)
        variance = (z - z.mean(0)).double().square().sum(1).mean().item()
        return cls(
            model=model,
            seed=seed,
            history=history,
            terms=terms,
            events=events,
            labels=labels.cpu().numpy(),
            centers=centers.float().cpu().numpy(),
            inertia=own,
            scatter=own / len(data) / max(variance, 1e-12),
            clustering_loss=loss / len(data),
            reconstruction=next(
                (each["reconstruction"] for each in reversed(history) if "reconstruction" in each), 0.0
            ),
            temperature=temperature_of(clusters, z),
        )

    def with_model(self, model: ClusterModel, data: Data, events: Sequence[Event] = ()) -> "Run":
        """This run with another model, measured anew, and with additional events."""
        events = [*self.events, *events]
        return Run.evaluate(model, data, seed=self.seed, history=self.history, terms=self.terms, events=events)

    def with_other_assignment(self, data: Data) -> "Run":
        """The run with `other` measured, if the model has another assignment."""
        model = self.model.with_other_assignment()
        if model is None:
            return self
        with seeded(self.seed, data.device):
            return replace(self, other=self.with_model(model, data))

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint, which `restore` reads."""
        kept = {name: getattr(self, name) for name in SAVED_FIGURES}
        arrays = {"labels": torch.from_numpy(self.labels), "centers": torch.from_numpy(self.centers)}
        return {**kept, **arrays, "events": [tuple(event) for event in self.events], "model": self.model.state_dict()}

    @classmethod
    def restore(cls, model: ClusterModel, state: dict[str, Any]) -> "Run":
        model.load_state_dict(state["model"])
        arrays = {name: state[name].numpy() for name in ("labels", "centers")}
        events = [Event(*event) for event in state["events"]]
        state = {"terms": [], **state}  # older checkpoints have no terms
        return cls(model=model.eval(), events=events, **arrays, **{name: state[name] for name in SAVED_FIGURES})

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("labels", *SAVED_FIGURES)} | {"diagnostics": self.diagnostics()}

    @property
    def collapsed(self) -> bool:
        uneven = len(self.centers) > 1 and effective_number(self.sizes) < 1 + COLLAPSED * len(self.centers)
        return uneven and (int((self.sizes > 0).sum()) == 1 or self.scatter > UNEXPLAINED)

    @functools.cached_property
    def sizes(self) -> np.ndarray:
        return np.bincount(self.labels, minlength=len(self.centers))

    def diagnostics(self) -> dict[str, Any]:
        """Cluster sizes, warnings and repairs."""
        k = len(self.centers)
        sizes = self.sizes
        empty = np.flatnonzero(sizes == 0).tolist()
        messages = warnings_of(self.events)
        if self.collapsed:
            messages.append(
                f"Collapse: {sizes.max()} of {sizes.sum()} rows are in one of {k} clusters. "
                "Another seed, or a smaller weight of the clustering loss where there is one, may help."
            )
        elif empty:
            messages.append(f"{len(empty)} of {k} clusters are empty: {empty}.")
        repaired = sum(event.kind == "repaired" for event in self.events)
        if repaired >= k:
            messages.append(
                f"Centres without rows were moved to rows far from their own centre {repaired} times: "
                f"{k} clusters may be too many."
            )
        return {
            "sizes": sizes.tolist(),
            "effective_clusters": effective_number(sizes),
            "empty_clusters": empty,
            "collapsed": self.collapsed,
            "repaired": repaired,
            "events": [tuple(event) for event in self.events],
            "warnings": messages,
        }


def warnings_of(events: Sequence[Event]) -> list[str]:
    """The warnings for the user, without repetitions."""
    counts = Counter(event.message for event in events if event.kind not in EVENTS_WITHOUT_WARNING)
    return [message if count == 1 else f"{message} ({count} times)" for message, count in counts.items()]


def last_change(history: Sequence[Record], terms: Collection[str]) -> float | None:
    """The relative change of the mean total loss between the last two tenths of the clustering epochs. A tenth is
    rounded to an even number of epochs, because some methods alternate between two kinds of epoch. None with too few
    epochs.

    Args:
        history: a record for each epoch.
        terms: names of the loss terms; a record also has other numbers.
    """
    records = [record for record in history if record["phase"] == "clustering"]
    names = set(terms).intersection(*records) if records else set()
    total = np.array([sum(record[name] for name in names) for record in records])
    window = max(2, len(total) // 10 // 2 * 2)
    if not names or len(total) < 2 * window or not np.isfinite(total).all():
        return None
    before, last = total[-2 * window : -window].mean(), total[-window:].mean()
    return float((last - before) / max(abs(before), 1e-12))


def temperature_of(clusters: ClusterLayer, z: Tensor) -> float:
    """The layer's own temperature, or one fitted to embedded rows."""
    free = clusters.embedding_dim - clusters.sphere  # dimensions: on the sphere one less
    return clusters.temperature or fit_temperature(clusters.distances(z).double(), free)


def fit_temperature(distances: Tensor, dim: int) -> float:
    """The temperature of `predict_proba`, found without labels.

    The centres are read as a mixture of equal round Gaussians; T = 2σ² is its maximum-likelihood width, by
    expectation-maximisation: `T = (2 / dim) mean_i Σ_j p_ij |z_i - Ω_j|²`, `p_i = softmax_j(-|z_i - Ω_j|² / T)`.
    """
    nearest = distances.amin(1, keepdim=True).clamp_max(0)
    distances = distances - nearest  # decoupled weights may give negative ones
    floor = 1e-6 * distances.mean().item() or 1.0
    temperature = max(2 / max(dim, 1) * distances.amin(1).mean().item(), floor)
    for _ in range(100):
        p = torch.softmax(-distances / temperature, dim=1)
        update = max(2 / max(dim, 1) * (p * distances).sum(1).mean().item(), floor)
        if abs(update - temperature) <= 1e-6 * temperature:
            break
        temperature = update
    return temperature
