"""Save and load: a folder with tensors in safetensors, everything else in JSON, and checksums of both.

No pickle anywhere, so a folder from a stranger cannot run code. `sha256sum -c SHA256SUMS` checks it by hand.
"""

import contextlib
import copy
import hashlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from . import __version__
from .engine.runtime import learning, seeded
from .inputs import Shape
from .methods import METHODS
from .nn.autoencoders import NETWORKS, Autoencoder, Wrapped

FORMAT = 1
SETTINGS, TENSORS, SUMS = "estimator.json", "tensors.safetensors", "SHA256SUMS"
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


def save(estimator: Any, folder: str | os.PathLike[str]) -> None:
    """Write a fitted estimator. Settings that are code (callables, callbacks, a user's module) are named in
    the file but not kept; a user's module is asked for again by `load`.

    Where the folder holds a model, it becomes the new one at one moment: who loads it meanwhile gets the former or the
    new one whole, even where this process is killed; a save that fails leaves the former. Of several that save to the
    same folder, the last one's model stays, as long as the file system has locks (`flock`; not on Windows)."""
    check_is_fitted(estimator)
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file: give a folder to save to.")
    tensors = {f"model.{name}": value for name, value in estimator.model_.state_dict().items()}
    tensors["labels_"] = torch.from_numpy(estimator.labels_)
    tensors["cluster_centers_"] = torch.from_numpy(estimator.cluster_centers_)
    tensors |= {f"stream.{name}": value for name, value in estimator.stream_state().items()}
    for i, run in enumerate(estimator.runs_):
        tensors[f"runs.{i}.labels"] = torch.from_numpy(run["labels"])
    for name in estimator.code:
        if callable(estimator._fitted_with[name]):
            raise TypeError(f"{name} is a function of your own, without which the model means nothing: use pickle.")
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
    network = estimator.model_.autoencoder
    kind = next((kind for kind, cls in NETWORKS.items() if type(network) is cls), None)
    settings = {
        "format": FORMAT,
        "diffclust": __version__,
        "class": type(estimator).__name__,
        "params": params,
        "fitted_with": {
            name: estimator._fitted_with[name] for name in params if _is_plain(estimator._fitted_with[name])
        },
        "not_saved": not_saved,
        "network": {
            "kind": kind,
            "module": type(network.module).__name__ if isinstance(network, Wrapped) else None,
            "config": network.config,
        },
        "shape": asdict(estimator.shape_),
        "feature_names": getattr(estimator, "feature_names_in_", np.empty(0)).tolist(),
        "fitted": {name: getattr(estimator, name) for name in SCALARS},
        "runs": [{k: v for k, v in run.items() if k != "labels"} for run in estimator.runs_],
    }
    blobs = {
        SETTINGS: json.dumps(settings, indent=1, default=_plain).encode(),
        TENSORS: save_tensors({name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}),
    }
    folder.mkdir(parents=True, exist_ok=True)
    with _only_writer(folder):
        _publish(folder, {SUMS: _sums(blobs), **blobs})


def load(folder: str | os.PathLike[str], *, network: nn.Module | None = None, device: str = "auto") -> Any:
    """The estimator saved in `folder`. One that was fitted with a module of the user's own needs such a
    module again, as `network`; its weights come from the folder."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"No such folder: {folder}")
    blobs = _read(folder)
    try:
        settings = json.loads(blobs[SETTINGS])
        if settings["format"] != FORMAT:
            raise ValueError(f"it has format {settings['format']}, this version reads {FORMAT}")
        with learning(), seeded(0, torch.device("cpu")):  # building a network draws weights
            return _rebuild(settings, load_tensors(blobs[TENSORS]), network, device)
    except (KeyError, TypeError, RuntimeError, ValueError, AttributeError, SafetensorError) as error:
        raise ValueError(f"{folder} cannot be read as a diffclust model: {error}") from error


# ---- the folder
#
# A save writes its files aside, under names that tell whose they are, then puts its checksums in place, then the rest.
# The checksums are the switch: from then on a reader, who goes by them, finds the new files aside or in place.


def _aside(folder: Path, name: str, sums: bytes) -> Path:
    return folder / f".{name}.{hashlib.sha256(sums).hexdigest()[:16]}.part"


def _publish(folder: Path, blobs: dict[str, bytes]) -> None:
    """Put the files in place: the checksums, which come first, and those that go with them."""
    former = {name: _bytes(folder / name) for name in (SUMS, SETTINGS)}
    new = {name: blob for name, blob in blobs.items() if _bytes(folder / name) != blob}
    parts = {name: _aside(folder, name, blobs[SUMS]) for name in new}
    try:
        for name, part in parts.items():
            if _bytes(part) != new[name]:
                part.write_bytes(new[name])
        for name, part in parts.items():
            part.replace(folder / name)
    except BaseException:
        if all(_bytes(folder / name) == blob for name, blob in new.items()):
            raise  # an interrupt, but the save is whole
        if _bytes(folder / SUMS) != former[SUMS]:
            _put_back(folder, former)
        for part in parts.values():
            part.unlink(missing_ok=True)
        raise
    for name in blobs:
        for left in folder.glob(f".{name}.*.part"):  # of one who was killed
            left.unlink(missing_ok=True)


def _put_back(folder: Path, former: dict[str, bytes | None]) -> None:
    """The tensors are the last to be replaced, and so need not be kept."""
    kept = {name: blob for name, blob in former.items() if blob is not None}
    if len(kept) == len(former):
        _publish(folder, kept)
        return
    for name in former:  # there was no model
        (folder / name).unlink(missing_ok=True)
    for name, blob in kept.items():
        (folder / name).write_bytes(blob)


def _read(folder: Path, patience: float = 10.0) -> dict[str, bytes]:
    """Settings and tensors that go together, though somebody may be saving."""
    give_up = time.monotonic() + patience
    while True:
        switch = _stamp(folder / SUMS)
        sums = _bytes(folder / SUMS)
        found = {
            name: None if sums is None else _bytes(_aside(folder, name, sums)) or _bytes(folder / name)
            for name in (SETTINGS, TENSORS)
        }
        blobs = {name: blob for name, blob in found.items() if blob is not None}
        if len(blobs) == len(found) and sums == _sums(blobs):
            return blobs
        if (_stamp(folder / SUMS), _bytes(folder / SUMS)) == (switch, sums) or time.monotonic() > give_up:
            break
    missing = [name for name in (SETTINGS, TENSORS, SUMS) if not (folder / name).is_file()]
    if missing:
        raise ValueError(f"{folder} is not a saved diffclust model: {', '.join(missing)} missing.")
    raise ValueError(f"{folder} is damaged: its files do not match {SUMS}.")


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        return None


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


@contextlib.contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """Wait for others who save to the folder, in this process or another. Not where there are no such locks."""
    if fcntl is None:
        yield
        return
    door = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(door, fcntl.LOCK_EX)
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(door, fcntl.LOCK_UN)  # closing would not do where a fork has the door open, too
        os.close(door)


def _sums(blobs: dict[str, bytes]) -> bytes:
    return "".join(f"{hashlib.sha256(blob).hexdigest()}  {name}\n" for name, blob in blobs.items()).encode()


# ---- from files to an estimator


def _rebuild(settings: dict[str, Any], tensors: dict[str, Tensor], module: nn.Module | None, device: str) -> Any:
    cls = {method.estimator: method for method in METHODS}[settings["class"]].load()
    known = {knob.name for knob in fields(cls)}
    params = {name: value for name, value in settings["params"].items() if name in known}
    params |= {name.removeprefix("params."): t.numpy() for name, t in tensors.items() if name.startswith("params.")}
    estimator = cls(**params)
    estimator.device = device
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
    return Wrapped(copy.deepcopy(module), config["input_shape"], config["embedding_dim"])


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return len(value) > 0 and all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str, np.integer, np.floating, np.bool_))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be saved as JSON")
