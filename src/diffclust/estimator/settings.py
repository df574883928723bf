"""The settings that all methods share, and what their "auto" means for given data."""

import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn
from torch.optim import Optimizer

from ..engine.checkpoint import comparable
from ..engine.data import Data
from ..engine.optimizers import OPTIMIZERS
from ..engine.phase import Callback
from ..engine.rows import Rows
from ..engine.runtime import PRECISIONS, choose_precision
from ..nn.augment import jitter, photo_jitter
from ..reading.columns import KINDS
from . import networks
from .knobs import Limits, Rule, check_knobs, check_seed, knob
from .selection import RULES

# For an encoder that learns from the neighbour graph; steps are those of pretraining, and of the method:
ALL_ROWS = 2048  # with at most so many rows, a batch is all of them
SOME_ROWS = 768  # batch size with more rows; one neighbour of each row comes with it
STEPS_OF_ALL_ROWS = (150, 50)  # steps of pretraining and of clustering, if a batch is all rows
STEPS_OF_SOME_ROWS = (500, 166)  # the same otherwise
STEPS_BY_ROOT = 8  # but pretraining has at least so many steps times the root of the number of rows
AUTO_AUGMENT = 0.5  # augment="auto": strength of the random changes of images

hyperparameters = dataclass(kw_only=True, eq=False, repr=False)


def _check_number(n_clusters: Any) -> None:
    Rule.of("n_clusters", int | Literal["auto"], Limits(low=1)).check(n_clusters)


def check_network(network: Any) -> None:
    """Of `network`: a wrong name, and a module that does not fit, show when it is built."""
    if not isinstance(network, (str, nn.Module)):
        raise TypeError(f"network={network!r} should be a name or a module with encode and decode.")


def _check_columns(columns: Any) -> None:
    if columns is not None and not isinstance(columns, Mapping):
        raise TypeError(f"columns={columns!r} should be a dictionary of kinds by name, or None.")
    for name, kind in (columns or {}).items():
        if kind not in KINDS:
            raise ValueError(f"columns: {name!r} is to be {kind!r}, which should be one of {', '.join(KINDS)}.")


def _check_callbacks(callbacks: Any) -> None:
    listed = isinstance(callbacks, Sequence) and not isinstance(callbacks, (str, bytes))
    if not listed or not all(callable(each) for each in callbacks):
        raise TypeError(f"callbacks={callbacks!r} should be a list of functions of a Progress.")


def _check_precision(precision: Any) -> None:
    if not isinstance(precision, str):
        raise TypeError(f"precision={precision!r:.50} should be one of {', '.join(PRECISIONS)}.")
    choose_precision(precision, torch.device("cpu"))


def check_device(device: Any) -> None:
    """Of `device`: whether it is there is asked when it is needed."""
    if not isinstance(device, (str, torch.device)):
        raise TypeError(f"device={device!r:.50} should be a name: 'auto', 'cpu', 'cuda', 'cuda:1'.")


def _check_checkpoint(checkpoint: Any) -> None:
    if checkpoint is not None and not isinstance(checkpoint, (str, os.PathLike)):
        raise TypeError(f"checkpoint={checkpoint!r:.50} should be a folder, or None.")


@hyperparameters
class SharedSettings(BaseEstimator):
    """The settings of every method that trains a network with centres.

    Args:
        n_clusters: the number of clusters, or "auto" to estimate it: two networks are trained on different halves of
            the rows, and the number on which they agree best is taken. `diagnostics_["number"]` has the scores.
        max_clusters: the largest number that n_clusters="auto" considers. "auto": the square root of the number of
            rows, between 10 and 50.
        overcluster: start with this many times as many clusters. Half-way through training, clusters without a density
            valley between them are merged. This repairs runs that split one cluster and merge two others. 1: start with
            n_clusters.
        n_init: number of complete restarts, each with another seed.
        select: the rule that keeps one of the restarts, without labels: "scatter" (the smallest share of the
            embedding's variance within clusters, independent of its scale), "loss" (the smallest clustering loss,
            TELL's rule), "agreement" (the run whose labels agree most with the other runs) or "balance" (the most even
            cluster sizes, for data whose clusters are known to be of similar size).
        network: "auto" (dense for rows, convolutional for images), "dense", "conv", "conv-pool", "residual" (deeper,
            for photographs), "identity" (no network: the features are the embedding), or any module with `encode` and
            `decode`, which gets the values unchanged.
        embedding_dim: dimension of the embedding.
        features: what the network learns from, before the centres are placed and while the method trains:
            "reconstruction" (an autoencoder) or "neighbours" (the k-nearest-neighbour graph, with UMAP's loss). "auto":
            neighbours for rows and for images that are views of the same objects, such as film frames; reconstruction
            for other images, and for every network that is given by name or as a module.
        columns: types of table columns by name, to override what is inferred: "number", "category", "date", "text", or
            "skip" to leave a column out. The types of a table of only numbers are inferred only if this is given; `{}`
            is enough.
        scale: scaling of rows: True divides each column by its standard deviation, False divides all by one number.
            "auto": in a table of mixed types all columns count equally; for other rows the values decide.
        pretrain_epochs: epochs of pretraining the network. "auto": depends on the number of rows.
        epochs: epochs of the clustering method. "auto": depends on the number of rows.
        batch_size: rows per step. "auto": 64 below 5,000 rows, 128 below 20,000, 256 from there on; if the network
            learns from neighbours, all rows up to 2,048, and 768 beyond that.
        augment: random augmentation during training: the strength of small rotations, zooms and shifts of images;
            "photos" (random crops, mirrored, in another light); a callable from a batch to an augmented batch; or None.
            "auto": 0.5 for images that are learnt by reconstruction, otherwise None.
        optimizer: adadelta (or adadelta-keras), adagrad, adam, adamw, momentum, rmsprop, sgd, or a callable from
            parameters to an optimiser.
        lr: learning rate; None: the optimiser's usual one. Ignored if `optimizer` is a callable.
        device: "auto", "cpu", "cuda", ...
        precision: precision of training: "float32", "bf16", or "auto": bf16 on a GPU that supports it, float32
            otherwise.
        random_state: an int for reproducible results; on a GPU up to rounding, which training may amplify.
        deterministic: with an int as random_state, bit-identical results on one GPU too; raises an error if that is
            impossible. On a CPU results are identical anyway.
        verbose: show a progress bar.
        callbacks: functions of a Progress, called after each epoch.
        checkpoint: folder for checkpoints. A fit that was killed resumes from there when it is called again with the
            same settings and data, and ends with the labels it would have had. Emptied at the end.
        checkpoint_every: epochs between checkpoints.
    """

    n_clusters: int = knob(8, check=_check_number, kw_only=False)  # always a number when a model is built
    max_clusters: int | Literal["auto"] = knob("auto", low=1)
    overcluster: float = knob(1.0, low=1)
    n_init: int = knob(1, low=1)
    select: str = knob("scatter", choices=RULES)
    network: str | nn.Module = knob("auto", check=check_network)
    embedding_dim: int = knob(10, low=1)
    features: Literal["auto", "reconstruction", "neighbours"] = knob("auto")
    columns: Mapping[str, str] | None = knob(None, check=_check_columns)
    scale: bool | Literal["auto"] = knob("auto")
    pretrain_epochs: int | Literal["auto"] = knob("auto", low=0)
    epochs: int | Literal["auto"] = knob("auto", low=0)
    batch_size: int | Literal["auto"] = knob("auto", low=2)  # batch norm needs two rows
    augment: float | Callable[[Tensor], Tensor] | Literal["auto", "photos"] | None = knob("auto", low=0)
    optimizer: str | Callable[..., Optimizer] = knob("adam", choices=OPTIMIZERS)
    lr: float | None = knob(None, above=0)
    device: str = knob("auto", check=check_device)
    precision: str = knob("auto", check=_check_precision)
    random_state: int | np.random.RandomState | None = knob(None, check=check_seed)
    deterministic: bool = False
    verbose: bool | int = False
    callbacks: Sequence[Callback] = knob((), check=_check_callbacks)
    checkpoint: str | os.PathLike[str] | None = knob(None, check=_check_checkpoint)
    checkpoint_every: int = knob(10, low=1)

    papers: ClassVar[dict[str, dict[str, Any]]] = {}
    # epochs="auto", for pretraining and clustering: this many steps, within these limits on the epochs
    auto_steps: ClassVar[tuple[int, int]] = (2800, 1400)
    auto_most: ClassVar[tuple[int, int]] = (200, 100)
    auto_least: ClassVar[tuple[int, int]] = (20, 20)
    learns_by_neighbours: ClassVar[bool] = True  # whether features="auto" means neighbours for rows

    @classmethod
    def paper(cls, name: str, **changes: Any) -> Self:
        """An estimator with the paper's settings for a data set; `changes` override single settings."""
        if name not in cls.papers:
            raise ValueError(f"{cls.__name__} has no paper settings for {name!r}, only for: {', '.join(cls.papers)}.")
        return cls(**{**cls.papers[name], **changes})

    def auto_epochs(self, phase: int, steps: int) -> int:
        """The number of epochs that "auto" stands for, in pretraining (phase 0) or clustering (phase 1), given the
        steps per epoch."""
        wanted = math.ceil(self.auto_steps[phase] / steps)
        return min(self.auto_most[phase], max(self.auto_least[phase], wanted))

    @classmethod
    @functools.cache
    def _get_param_names(cls) -> list[str]:
        """Cached: scikit-learn inspects the signature of `__init__` on every call, which is slow compared with a small
        fit."""
        return super()._get_param_names()

    @property
    def _n_clusters_is_auto(self) -> bool:
        return isinstance(self.n_clusters, str)

    def _check_settings(self) -> None:
        check_knobs(self)

    def _result_settings(self) -> dict[str, Any]:
        """The settings that influence the result."""
        fleeting = ("device", "deterministic", "verbose", "callbacks", "checkpoint", "checkpoint_every")
        settings = {name: comparable(value) for name, value in self.get_params().items() if name not in fleeting}
        return {"class": type(self).__name__, **settings}

    def _by_neighbours(self, rows: Rows) -> bool:
        """Whether the encoder learns from the neighbour graph."""
        if self.features != "auto":
            return self.features == "neighbours"
        free = isinstance(self.network, str) and self.network == "auto"
        if not free or not self.learns_by_neighbours:
            return False
        return len(rows.row_shape) == 1 or networks.are_views(rows)

    def _epochs(self, wish: int | str, data: Data, phase: int) -> int:
        return int(wish) if wish != "auto" else self._usual_epochs(phase, len(data), data.steps, data.graph is not None)

    def _usual_epochs(self, phase: int, rows: int, steps: int, neighbours: bool) -> int:
        """The number of epochs that "auto" stands for, given the steps per epoch."""
        if not neighbours:
            return self.auto_epochs(phase, steps)
        if steps == 1:
            return STEPS_OF_ALL_ROWS[phase]
        wanted = max(STEPS_OF_SOME_ROWS[0], STEPS_BY_ROOT * math.sqrt(rows)) if phase == 0 else STEPS_OF_SOME_ROWS[1]
        return math.ceil(wanted / steps)

    def _batch_size(self, n: int, neighbours: bool = False) -> int:
        if self.batch_size == "auto":
            if neighbours:
                return n if n <= ALL_ROWS else SOME_ROWS
            return 64 if n < 5_000 else 128 if n < 20_000 else 256
        return self.batch_size

    def _augmentation(self, row_shape: tuple[int, ...], neighbours: bool = False) -> Callable[[Tensor], Tensor] | None:
        images = len(row_shape) == 3
        if callable(self.augment):
            return functools.partial(_of_a_copy, self.augment)
        if (
            self.augment is None
            or self.augment == 0
            or self.network == "identity"
            or (self.augment == "auto" and (neighbours or not images))
        ):
            return None
        if not images:
            raise ValueError(f"augment={self.augment} needs images; for rows give a callable or None.")
        if self.augment == "photos":
            return photo_jitter
        return functools.partial(jitter, strength=AUTO_AUGMENT if self.augment == "auto" else float(self.augment))


def _of_a_copy(augment: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A user's function may change what it is given."""
    return augment(x.clone())
