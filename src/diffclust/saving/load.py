"""A saved estimator, read back."""

import copy
import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor, nn

from ..engine.runtime import learning, seeded
from ..methods import METHODS
from ..nn.autoencoders import NETWORKS, Autoencoder, Wrapped
from ..reading.inputs import Shape
from .folder import SETTINGS, TENSORS, read_folder
from .save import FORMAT, SCALARS


def load(folder: str | os.PathLike[str], *, network: nn.Module | None = None, device: str = "auto") -> Any:
    """The estimator saved in `folder`. One that was fitted with a module of the user's own needs such a
    module again, as `network`; its weights come from the folder."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"No such folder: {folder}")
    blobs = read_folder(folder)
    try:
        settings = json.loads(blobs[SETTINGS])
        if settings["format"] != FORMAT:
            raise ValueError(f"it has format {settings['format']}, this version reads {FORMAT}")
        with learning(), seeded(0, torch.device("cpu")):  # building a network draws weights
            return _rebuild(settings, load_tensors(blobs[TENSORS]), network, device)
    except (KeyError, TypeError, RuntimeError, ValueError, AttributeError, SafetensorError) as error:
        raise ValueError(f"{folder} cannot be read as a diffclust model: {error}") from error


def _rebuild(settings: dict[str, Any], tensors: dict[str, Tensor], module: nn.Module | None, device: str) -> Any:
    cls = {method.estimator: method for method in METHODS}[settings["class"]].load()
    known = {knob.name for knob in fields(cls)}
    params = {name: value for name, value in settings["params"].items() if name in known}
    params |= {name.removeprefix("params."): t.numpy() for name, t in tensors.items() if name.startswith("params.")}
    estimator = cls(**params)
    estimator.device = device
    diagnostics = settings["fitted"]["diagnostics_"]
    if "reports" in diagnostics:  # their name in older files
        diagnostics["events"] = diagnostics.pop("reports")
    for name in SCALARS:
        setattr(estimator, name, settings["fitted"][name])
    shape = settings["shape"]
    estimator.shape_ = Shape(shape["layout"], tuple(shape["row"]))
    if settings["feature_names"]:
        estimator.feature_names_in_ = np.array(settings["feature_names"], dtype=object)
    estimator.labels_ = tensors["labels_"].numpy()
    estimator.cluster_centers_ = tensors["cluster_centers_"].numpy()
    estimator.runs_ = [{**run, "labels": tensors[f"runs.{i}.labels"].numpy()} for i, run in enumerate(settings["runs"])]
    state = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    autoencoder = _network(settings["network"], module)
    autoencoder.set_units(state["autoencoder.shift"], state["autoencoder.scale"])
    builder = cls(**{**params, **settings["fitted_with"]})  # settings may have been changed since the fit
    estimator._fitted_with = builder.get_params(deep=False)
    model = builder.build_model(autoencoder, len(estimator.labels_))
    model.load_state_dict(state)
    estimator.model_ = model.eval()
    estimator.resume_stream({n.removeprefix("stream."): t for n, t in tensors.items() if n.startswith("stream.")})
    if module is not None:
        estimator.network = module
    return estimator


def _network(saved: dict[str, Any], module: nn.Module | None) -> Autoencoder:
    config = saved["config"]
    if saved["kind"] is not None:
        if module is not None:
            raise ValueError(f"it has a {saved['kind']!r} network of its own: no module is needed")
        return NETWORKS[saved["kind"]](**config)
    if module is None:
        raise ValueError(
            f"it was fitted with a module of your own ({saved['module']}): give one as load(..., network=...)"
        )
    if not isinstance(module, Autoencoder):
        return Wrapped(copy.deepcopy(module), config["input_shape"], config["embedding_dim"])
    if list(module.input_shape) != config["input_shape"]:
        raise ValueError(
            f"it was fitted on samples {tuple(config['input_shape'])}, your network takes {module.input_shape}"
        )
    return copy.deepcopy(module)
