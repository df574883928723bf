"""Save a fitted estimator: tensors in safetensors, everything else in JSON, and checksums of all.

There is no pickle, so loading an untrusted folder cannot run code.
"""

import json
import os
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as save_tensors
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .. import __version__
from ..nn.autoencoders import NETWORKS, Autoencoder, Wrapped
from .folder import SETTINGS, TENSORS, write_folder
from .formats import FORMAT

SCALARS = (
    "n_features_in_",
    "image_divisor_",
    "inertia_",
    "clustering_loss_",
    "temperature_",
    "n_iter_",
    "seed_",
    "history_",
    "diagnostics_",
)


def save(estimator: Any, folder: str | os.PathLike[str], beside: dict[str, bytes] | None = None) -> None:
    """Write a fitted estimator. Settings that are code (callables, callbacks, a user's module) are named in
    the file but not kept; a user's module is asked for again by `load`.

    A model in the folder is replaced atomically: `load` gets either the old or the new one, even if this process is
    killed, and a failed save leaves the old one. If several processes save to the same folder, the last one wins, if
    the file system has locks (`flock`; not on Windows).

    Args:
        estimator: the fitted estimator; no other thread may change it meanwhile.
        folder: created if it does not exist; other files in it do not change.
        beside: contents of further files of this model by name (`folder.BESIDE`), saved together with it.
    """
    check_is_fitted(estimator)
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file: give a folder to save to.")
    _check_functions(estimator)
    tensors = _tensors(estimator)
    params, not_saved = {}, []
    for knob in fields(estimator):
        value = getattr(estimator, knob.name)
        if _is_plain(value):
            params[knob.name] = value.item() if isinstance(value, np.generic) else value
        elif knob.name == "init":
            tensors["params.init"] = torch.as_tensor(np.asarray(value))
        elif isinstance(value, os.PathLike):
            params[knob.name] = os.fspath(value)
        elif not isinstance(value, (tuple, list)) or len(value):
            not_saved.append(knob.name)
    settings = {
        "format": FORMAT,
        "diffclust": __version__,
        "class": type(estimator).__name__,
        "params": params,
        "fitted_with": {
            name: estimator._fitted_with[name] for name in params if _is_plain(estimator._fitted_with[name])
        },
        "not_saved": not_saved,
        "network": _described_network(estimator.model_.autoencoder),
        "shape": asdict(estimator.shape_),
        "feature_names": getattr(estimator, "feature_names_in_", np.empty(0)).tolist(),
        "columns": None if getattr(estimator, "columns_", None) is None else estimator.columns_.to_dict(),
        "fitted": {name: getattr(estimator, name) for name in SCALARS},
        "names": {str(j): name for j, name in vars(estimator).get("_names", {}).items()},
        "runs": [{k: v for k, v in run.items() if k != "labels"} for run in estimator.runs_],
    }
    blobs = {
        SETTINGS: json.dumps(settings, indent=1, default=_plain).encode(),
        TENSORS: save_tensors({name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}),
    }
    write_folder(folder, {**blobs, **(beside or {})})


def _check_functions(estimator: Any) -> None:
    """Raise an error if the model needs a function of the user."""
    for name in estimator.function_knobs:
        if callable(estimator._fitted_with[name]):
            raise TypeError(
                f"{name} is your own function, which cannot be saved and which the model needs: use pickle."
            )


def _tensors(estimator: Any) -> dict[str, Tensor]:
    """All fitted tensors by their names in the file."""
    tensors = {f"model.{name}": value for name, value in estimator.model_.state_dict().items()}
    tensors["labels_"] = torch.from_numpy(estimator.labels_)
    tensors["cluster_centers_"] = torch.from_numpy(estimator.cluster_centers_)
    if estimator.origin_ is not None:
        tensors["origin_"] = torch.from_numpy(estimator.origin_)
    tensors |= {f"stream.{name}": value for name, value in estimator.stream_state().items()}
    statistics = vars(estimator).get("_outlier_statistics")
    if statistics is not None:
        tensors |= {f"outliers.{name}": value for name, value in statistics._asdict().items()}
    for i, run in enumerate(estimator.runs_):
        tensors[f"runs.{i}.labels"] = torch.from_numpy(run["labels"])
    return tensors


def _described_network(network: Autoencoder) -> dict[str, Any]:
    """What is needed to build the network again; of a user's own module only its name."""
    kind = next((kind for kind, cls in NETWORKS.items() if type(network) is cls), None)
    own = network.module if isinstance(network, Wrapped) else network
    return {"kind": kind, "module": type(own).__name__ if kind is None else None, "config": network.config}


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return len(value) > 0 and all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and isinstance(entry, str) for key, entry in value.items())
    return value is None or isinstance(value, (bool, int, float, str, np.integer, np.floating, np.bool_))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be saved as JSON")
