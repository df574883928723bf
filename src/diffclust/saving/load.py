"""Load a saved estimator. The folder may be untrusted: everything in it is checked before use."""

import copy
import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load as load_tensors
from torch import Tensor, nn

from ..engine.runtime import learning, seeded
from ..estimator.outliers import OutlierStatistics
from ..methods import METHODS
from ..nn.autoencoders import NETWORKS, Autoencoder, Wrapped
from ..nn.regrouping import replay_regrouping
from ..reading.inputs import Shape
from ..reading.tables import Columns
from .checks import AllocationLimit, check_fitted, check_sizes, check_values
from .folder import BESIDE, MODEL, SETTINGS, SUMS, TENSORS, check_folder, read_folder, unlisted
from .formats import migrated
from .save import SCALARS


def load(folder: str | os.PathLike[str], *, network: nn.Module | None = None, device: str = "auto") -> Any:
    """Load the estimator saved in `folder`. If it was fitted with a module of your own, pass such a module as
    `network`; its weights come from the folder."""
    return open_model(folder, beside=False).estimator(network, device)


class SavedModel(NamedTuple):
    """The files of a folder, all from the same save."""

    folder: Path
    settings: dict[str, Any]
    tensors: bytes
    beside: dict[str, bytes]  # files that the command added, by name
    damaged: list[str]  # names of files that are missing or changed

    def file(self, name: str) -> bytes | None:
        """A file that was saved next to the model; None if it was not."""
        if name in self.damaged:
            raise ValueError(f"{self.folder / name} is damaged: it does not match {SUMS}.")
        return self.beside.get(name)

    def estimator(self, network: nn.Module | None = None, device: str = "auto") -> Any:
        try:
            with learning(), seeded(0, torch.device("cpu")):  # building a network draws weights
                return _rebuild(self.settings, load_tensors(self.tensors), network, device)
        except MemoryError:
            raise
        except Exception as error:  # values from a stranger may cause any error
            raise _unreadable(self.folder, error) from error


def open_model(folder: str | os.PathLike[str], *, beside: bool = True) -> SavedModel:
    """Read the files of a saved model, and check their checksums and their format."""
    folder = Path(folder)
    check_folder(folder)
    blobs, damaged, listed = read_folder(folder, BESIDE if beside else ())
    try:
        settings = json.loads(blobs[SETTINGS])
        checked = settings["format"] != 1
        settings = migrated(settings)
    except Exception as error:
        raise _unreadable(folder, error) from error
    strange = [name for name in listed if name not in (*MODEL, *BESIDE)]
    if strange:
        raise ValueError(f"{folder} is damaged: no version of diffclust writes {', '.join(strange)}.")
    others = {name: blob for name, blob in blobs.items() if name not in MODEL}
    if beside and not checked:
        found = {name: unlisted(folder, name) for name in BESIDE}
        others = {name: blob for name, blob in found.items() if blob is not None}
    return SavedModel(folder, settings, blobs[TENSORS], others, damaged)


def _unreadable(folder: Path, error: Exception) -> ValueError:
    said = f"{error} is missing" if isinstance(error, KeyError) else str(error) or type(error).__name__
    return ValueError(f"{folder} cannot be read as a diffclust model: {said}")


def _rebuild(settings: dict[str, Any], tensors: dict[str, Tensor], module: nn.Module | None, device: str) -> Any:
    cls = {method.estimator: method for method in METHODS}[settings["class"]].load()
    known = {knob.name for knob in fields(cls)}
    params = {name: value for name, value in settings["params"].items() if name in known}
    if "params.init" in tensors:
        params["init"] = tensors["params.init"].numpy()
    estimator = cls(**params)
    estimator.device = device
    check_values(settings, tensors)
    for name in SCALARS:
        setattr(estimator, name, settings["fitted"][name])
    shape = settings["shape"]
    estimator.shape_ = Shape(shape["layout"], tuple(shape["row"]))
    if settings["feature_names"]:
        estimator.feature_names_in_ = np.array(settings["feature_names"], dtype=object)
    if settings.get("columns") is not None:
        estimator.columns_ = Columns.from_dict(settings["columns"])
        if (len(estimator.columns_.features),) != estimator.shape_.row:
            raise ValueError(f"its table gives {len(estimator.columns_.features)} numbers, not {estimator.shape_.row}")
    estimator.origin_ = tensors["origin_"].numpy() if "origin_" in tensors else None
    estimator.labels_ = tensors["labels_"].numpy()
    estimator.cluster_centers_ = tensors["cluster_centers_"].numpy()
    estimator.runs_ = [{**run, "labels": tensors[f"runs.{i}.labels"].numpy()} for i, run in enumerate(settings["runs"])]
    fitted_with = {name: value for name, value in settings["fitted_with"].items() if name in known}
    builder = cls(**{**params, **fitted_with})  # settings may have been changed since the fit
    builder._check_settings()
    estimator._fitted_with = builder.get_params(deep=False)
    regrouped = settings["fitted"]["diagnostics_"].get("regrouped", [])
    estimator.model_ = _model(builder, settings["network"], tensors, module, regrouped)
    estimator._names = {int(j): name for j, name in settings.get("names", {}).items()}  # missing in older files
    estimator.resume_stream({n.removeprefix("stream."): t for n, t in tensors.items() if n.startswith("stream.")})
    if "outliers.levels" in tensors:  # missing in older files
        estimator._outlier_statistics = OutlierStatistics(
            *(tensors[f"outliers.{name}"] for name in OutlierStatistics._fields)
        )
    check_fitted(estimator)
    if module is not None:
        estimator.network = module
    return estimator


def _model(
    builder: Any,
    network: dict[str, Any],
    tensors: dict[str, Tensor],
    module: nn.Module | None,
    regrouped: list[list[Any]],
) -> Any:
    """The model with its weights, and with the merges and splits of its clusters."""
    state = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    with AllocationLimit(state):
        autoencoder = _network(network, module)
        autoencoder.set_units(state["autoencoder.shift"], state["autoencoder.scale"])
        model = builder.build_model(autoencoder, len(tensors["labels_"]))
        model.clusters = replay_regrouping(model.clusters, regrouped)
    check_sizes(model, state)
    model.load_state_dict(state)
    return model.eval()


def _network(saved: dict[str, Any], module: nn.Module | None) -> Autoencoder:
    config = saved["config"]
    if saved["kind"] is not None:
        if module is not None:
            raise ValueError(f"it has a {saved['kind']!r} network that diffclust builds: no network= is needed")
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
