"""Checks of a saved model before it is used: sizes against bytes, finite numbers, numbers within their ranges."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

LAYOUTS = {"rows": 1, "grey": 3, "channels-first": 3, "channels-last": 3}  # name -> dimensions of a sample
MAKERS = {torch.empty, torch.eye, torch.full, torch.ones, torch.rand, torch.randn, torch.zeros}


class AllocationLimit(TorchFunctionMode):
    """A context in which building a model may allocate little more memory than the tensors of the file need. Settings
    from a stranger could ask for any size. A little more, because some tensors are created twice or not kept."""

    def __init__(self, state: dict[str, Tensor]) -> None:
        super().__init__()
        self.values = 1_000_000 + 8 * sum(value.numel() for value in state.values())
        self.tensors = 100 + 8 * len(state)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in MAKERS:
            self.tensors -= 1
            self.values -= _size(func, args, kwargs or {})
            if min(self.tensors, self.values) < 0:
                raise ValueError("its settings describe a larger model than its tensors")
        return func(*args, **(kwargs or {}))


def _size(func: Any, args: Any, kwargs: dict[str, Any]) -> int:
    if func is torch.eye:
        sizes = [*args, *(kwargs[name] for name in ("n", "m") if name in kwargs)]
        return int(sizes[0]) * int(sizes[-1])
    size = kwargs.get("size", args)
    size = size[0] if size and isinstance(size[0], (list, tuple)) else size
    return math.prod(abs(each) for each in size if isinstance(each, int))


def check_sizes(model: nn.Module, state: dict[str, Tensor]) -> None:
    """Check that the tensors in the file have the shapes that the settings ask for."""
    wanted = model.state_dict()
    if wanted.keys() != state.keys():
        odd = sorted(wanted.keys() ^ state.keys())
        raise ValueError(f"its settings and its tensors belong to different models: {', '.join(odd[:3])}")
    for name, value in wanted.items():
        if value.shape != state[name].shape or value.is_floating_point() != state[name].is_floating_point():
            said, have = tuple(value.shape), tuple(state[name].shape)
            raise ValueError(f"{name} should have shape {said} by its settings, and has {have}")


def check_values(settings: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Check every saved value by itself."""
    for name, value in tensors.items():
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise ValueError(f"{name} contains NaN or infinity")
        if name.endswith("running_var") and bool((value < 0).any()):
            raise ValueError(f"{name} contains a negative variance")
    fitted, shape = settings["fitted"], settings["shape"]
    _check_number("temperature_", fitted["temperature_"], above=0)
    _check_number("inertia_", fitted["inertia_"])
    _check_number("clustering_loss_", fitted["clustering_loss_"])
    for name in ("n_features_in_", "n_iter_", "seed_"):
        _check_number(name, fitted[name], above=-1, whole=True)
    if fitted["image_divisor_"] is not None:
        _check_number("image_divisor_", fitted["image_divisor_"], above=0)
    if not isinstance(fitted["history_"], list) or not all(isinstance(each, dict) for each in fitted["history_"]):
        raise ValueError("history_ should be a list of records")
    row = shape["row"]
    for size in row:
        _check_number("shape", size, above=0, whole=True)
    if LAYOUTS[shape["layout"]] != len(row):
        raise ValueError(f"a sample that lies as {shape['layout']!r} cannot have the shape {row}")
    if row != settings["network"]["config"]["input_shape"]:
        raise ValueError(f"its network takes {settings['network']['config']['input_shape']}, its samples are {row}")
    names = settings["feature_names"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("feature_names should be a list of names")
    if names and len(names) != fitted["n_features_in_"]:
        raise ValueError(f"it has {len(names)} feature names for {fitted['n_features_in_']} features")
    for name in ("shift", "scale"):
        unit = tensors[f"model.autoencoder.{name}"]
        if torch.broadcast_shapes(unit.shape, row) != torch.Size(row):
            raise ValueError(f"{name} has shape {tuple(unit.shape)}, and a sample {tuple(row)}")
    if bool((tensors["model.autoencoder.scale"] <= 0).any()):
        raise ValueError("scale should be > 0")
    origin = tensors.get("origin_")
    if origin is not None and (origin.dtype != torch.float64 or origin.shape not in ((), torch.Size(row))):
        raise ValueError(f"origin_ is {origin.dtype} of shape {tuple(origin.shape)}, and a sample {tuple(row)}")


def check_fitted(estimator: Any) -> None:
    """Check the whole estimator: its parts fit together, and it can predict."""
    model, clusters = estimator.model_, estimator.model_.clusters
    k, centers = len(clusters.weight), clusters.centers
    if estimator.cluster_centers_.shape != tuple(centers.shape):
        raise ValueError(f"its centres have shape {estimator.cluster_centers_.shape}, and not {tuple(centers.shape)}")
    n = len(estimator.labels_)
    for labels in (estimator.labels_, *(run["labels"] for run in estimator.runs_)):
        if labels.dtype != "int64" or labels.ndim != 1:
            raise ValueError("its labels are not a list of whole numbers")
        if len(labels) and not 0 <= labels.min() <= labels.max() < k:
            raise ValueError(f"its labels reach from {labels.min()} to {labels.max()}, and there are {k} clusters")
    for run in estimator.runs_:
        _check_number("seed", run["seed"], above=-1, whole=True)
        if "stream" not in estimator.diagnostics_ and len(run["labels"]) != n:
            raise ValueError(f"a run has {len(run['labels'])} labels, and there are {n}")
    sizes = estimator.diagnostics_["sizes"]
    if not isinstance(sizes, list) or len(sizes) != k:
        raise ValueError(f"diagnostics_ should have {k} sizes")
    for size in sizes:
        _check_number("sizes", size, above=-1, whole=True)
    for j, name in estimator._names.items():
        if not 0 <= j < k or not isinstance(name, str):
            raise ValueError(f"cluster {j} is called {name!r:.50}, and there are {k} clusters with names")
    for name, value in estimator.stream_state().items():
        expected = tuple(centers.shape) if name == "origin" else (k,)
        if tuple(value.shape) != expected:
            raise ValueError(f"stream.{name} should have shape {expected}, and has {tuple(value.shape)}")
    if estimator.stream_state():
        for name in ("rows", "batches"):
            _check_number(name, estimator.diagnostics_["stream"][name], above=-1, whole=True)
    statistics = vars(estimator).get("_outlier_statistics")
    if statistics is not None:
        if (
            any(tuple(part.shape) != (k, 2) for part in statistics[:2])
            or statistics.levels.ndim != 1
            or not len(statistics.levels)
        ):
            raise ValueError(f"its outliers are not measured against {k} clusters")
        if bool((statistics.width <= 0).any()):
            raise ValueError("outliers.width should be > 0")
    _check_answer(estimator, model)


@torch.no_grad()
def _check_answer(estimator: Any, model: Any) -> None:
    """Predict a sample in the middle of the range: weights may be finite, but too large."""
    network = model.autoencoder
    middle = network.shift.expand(network.input_shape)[None]
    z, logits, _ = model.answer(middle)
    if not all(bool(part.isfinite().all()) for part in (z, logits, estimator._probabilities(z))):
        raise ValueError("its answer is NaN or infinite")


def _check_number(name: str, value: Any, *, above: float | None = None, whole: bool = False) -> None:
    kinds = (int,) if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not math.isfinite(value):
        raise ValueError(f"{name}={value!r:.50} should be a {'whole' if whole else 'finite'} number")
    if above is not None and value <= above:
        raise ValueError(f"{name}={value!r} should be > {above:g}")
