"""A description of the model and its training."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..engine.run import last_change
from . import words

SETTLED = 0.01  # relative change of the mean loss between the last two tenths of the epochs


@dataclass(frozen=True, eq=False)
class ModelExplanation:
    """The parts of the model and their purpose; how training went.

    Attributes:
        parts: what each part is, what it does, and its number of parameters.
        centers_read_from_weights: `max |Ω - W / 2α|`, the weights of the cluster layer against `cluster_centers_`: zero
            means that the layer consists of the centres. None if there is no such layer.
        losses: each term over the epochs, by phase.
        change: relative change of the mean total loss between the last two tenths of the clustering epochs.
        converged: whether that is below one per cent. None if there are too few epochs to say.
        stopped: why the method's own rule ended training early; None if it did not.
        fallback: why the network was not kept; None if it was. The losses are then those of that network.
    """

    method: str
    parts: list[dict[str, Any]]
    centers_read_from_weights: float | None
    losses: dict[str, dict[str, list[float]]]
    epochs: dict[str, int]
    change: float | None
    converged: bool | None
    stopped: str | None
    fallback: str | None
    repaired: int
    warnings: list[str]
    unchecked: list[str]
    runs: list[dict[str, Any]]

    @property
    def sentence(self) -> str:
        """All of it in words."""
        chain = ", then ".join(part["what"] for part in self.parts)
        said = [f"{self.method}: {chain}."]
        if self.centers_read_from_weights is not None:
            exact = self.centers_read_from_weights < 1e-5
            said.append("The weights of its cluster layer are the centres." if exact else "Weights and centres differ.")
        counts = words.listing(f"{n} epoch{'s' * (n > 1)} of {phase}" for phase, n in self.epochs.items())
        unsure = any(what.startswith("convergence") for what in self.unchecked)  # the check of the fit asks for more
        if self.fallback:
            said.append(f"After {counts} the network was not kept. {self.fallback}")
        elif self.converged is None or unsure:
            said.append(f"After {counts or 'no epochs'} it is too early to say whether it converged.")
        else:
            state = "had settled" if self.converged else "was still moving"
            said.append(f"After {counts} the loss {state} ({100 * (self.change or 0):+.2f} % over the last tenth).")
        if self.stopped:
            said.append(f"It stopped by its own rule: {self.stopped}.")
        if len(self.runs) > 1:
            said.append(f"It is the best of {len(self.runs)} restarts by the label-free rule.")
        said.append(f"{self.repaired} dead centres were repaired." if self.repaired else "Nothing had to be repaired.")
        said += [f"Warning: {text}" for text in self.warnings]
        said += [f"Not checked: {what}." for what in self.unchecked]
        return " ".join(said)

    def __str__(self) -> str:
        return self.sentence

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain lists and numbers."""
        names = (
            "method", "parts", "centers_read_from_weights", "losses", "epochs", "change", "converged", "stopped",
            "fallback", "repaired", "warnings", "unchecked", "runs", "sentence",
        )  # fmt: skip
        return {name: words.plain(getattr(self, name)) for name in names}

    def _repr_html_(self) -> str:
        rows = [(part["name"], part["what"], part["why"], f"{part['numbers']:,}") for part in self.parts]
        return words.card(
            self.method,
            words.paragraph(self.sentence),
            words.table(("part", "what it is", "what it is for", "numbers learnt"), rows),
        )


def explain_model(estimator: Any) -> ModelExplanation:
    check_is_fitted(estimator)
    model = estimator.model_
    losses: dict[str, dict[str, list[float]]] = {}
    epochs: dict[str, int] = {}
    for record in estimator.history_:
        phase = record["phase"]
        epochs[phase] = epochs.get(phase, 0) + 1
        for name, value in record.items():
            if name not in ("phase", "epoch"):
                losses.setdefault(phase, {}).setdefault(name, []).append(value)
    clusters: Any = getattr(model, "clusters", None)
    gap = None
    if hasattr(clusters, "weight") and hasattr(clusters, "alpha"):
        weight = clusters.weight.detach().cpu().numpy() / (2 * clusters.alpha)
        gap = float(np.abs(weight - estimator.cluster_centers_).max())
    change = last_change(estimator.history_, _terms(estimator, losses.get("clustering", {})))
    found = estimator.diagnostics_
    return ModelExplanation(
        method=type(estimator).__name__,
        parts=_parts(model),
        centers_read_from_weights=gap,
        losses=losses,
        epochs=epochs,
        change=change,
        converged=None if change is None else abs(change) < SETTLED,
        stopped=next((why for kind, why in found["events"] if kind == "settled"), None),
        fallback=why_no_network(estimator),
        repaired=found["repaired"],
        warnings=list(found["warnings"]),
        unchecked=list(found.get("unchecked", [])),
        runs=[
            {name: run[name] for name in ("seed", "scatter", "clustering_loss", "inertia") if name in run}
            | {"effective_clusters": run["diagnostics"]["effective_clusters"]}
            | {"chosen": run["seed"] == estimator.seed_}
            for run in estimator.runs_
        ],
    )


def why_no_network(estimator: Any) -> str | None:
    """Why k-means on the rows was kept instead of the network that was trained; None if the network was kept."""
    events = estimator.diagnostics_["events"]
    return next((why for kind, why in events if kind == "fallback"), None)


def _terms(estimator: Any, recorded: Collection[str]) -> Collection[str]:
    """The loss terms among what was recorded of clustering; of a model saved by an older version, all but what the
    method records beside them."""
    kept: dict[str, Any] = next((run for run in estimator.runs_ if run["seed"] == estimator.seed_), {})
    beside: dict[str, float] = getattr(estimator.model_, "extra_metrics", dict)()
    return kept.get("terms") or set(recorded) - set(beside)


def _parts(model: Any) -> list[dict[str, Any]]:
    def numbers(module: Any) -> int:
        return sum(p.numel() for p in module.parameters()) if module is not None else 0

    parts = []
    network = getattr(model, "autoencoder", None)
    if network is not None:
        kind = type(network).__name__
        shape = "x".join(map(str, network.input_shape))
        inner = getattr(network, "module", None)  # a user's own
        encoder, decoder = getattr(network, "encoder", None), getattr(network, "decoder", None)
        whole = numbers(inner) if inner is not None else numbers(encoder)
        name = type(inner).__name__ if inner is not None else kind
        parts.append(
            {
                "name": "encoder",
                "what": f"{name} from {shape} to {network.embedding_dim} numbers",
                "why": "maps a row to its embedding z, in which similar rows lie close together",
                "numbers": whole,
            }
        )
    clusters = getattr(model, "clusters", None)
    if clusters is not None:
        parts.append(
            {
                "name": "cluster layer",
                "what": f"{type(clusters).__name__} of {getattr(clusters, 'extra_repr', str)()}",
                "why": "compares z with every centre; the largest logit is the cluster",
                "numbers": numbers(clusters),
            }
        )
    if network is not None:
        parts.append(
            {
                "name": "decoder",
                "what": f"its mirror, from {network.embedding_dim} numbers to {shape}",
                "why": "decodes a centre to what the cluster looks like; in training, makes z keep what a row is like",
                "numbers": 0 if inner is not None else numbers(decoder),
            }
        )
    known = {id(p) for part in (network, clusters) if part is not None for p in part.parameters()}
    rest = sum(p.numel() for p in model.parameters() if id(p) not in known)
    if rest:
        parts.append({"name": "more", "what": "the method's own parameters", "why": "see its page", "numbers": rest})
    return parts
