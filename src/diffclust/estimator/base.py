"""The scikit-learn face: what every method shares, written once."""

import contextlib
import functools
import math
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin, clone
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.optim import Optimizer

from ..callbacks import Watchers
from ..engine.checkpoint import Checkpoint, CheckpointFolder, describe
from ..engine.data import Data, TensorRows
from ..engine.distributed import Processes, current_processes
from ..engine.loop import train
from ..engine.model import Answer, ClusterModel, NeighbourPretraining, Pretraining, Trainable
from ..engine.optimizers import OPTIMIZERS, make_optimizer
from ..engine.phase import Callback, EmbeddedPhase, Phase
from ..engine.restart import Job, Restart
from ..engine.run import Run
from ..engine.runtime import Randomness, choose_device, choose_precision, learning, restart_seeds, seeded
from ..nn.augment import jitter
from ..nn.autoencoders import Autoencoder
from ..nn.cluster import Start
from ..nn.neighbours import NeighbourGraph
from ..reading.columns import KINDS
from ..reading.inputs import Given, read
from ..saving.onnx import Exportable
from ..saving.save import save
from . import networks
from .explainable import Explainable
from .knobs import check_knobs, knob
from .selection import RULES
from .state import as_it_is, become, fitted_names, learns_alone
from .streams import Online

# A network is kept where its clusters cut fewer edges of the neighbour graph than k-means on the rows: fewer than this
# share, less FEW_ROWS over the root of the number of rows, since few rows say little.
CLEARLY_LESS, FEW_ROWS = 0.85, 2.0
ALL_ROWS = 2048  # up to here a batch is all rows, where the encoder learns by neighbours
STEPS_OF_ALL_ROWS = (150, 50)  # then so many steps of the encoder alone, and of the method
STEPS = (500, 166)  # else so many,
STEPS_BY_ROOT = 8  # and of the encoder alone at least so many times the root of the number of rows

hyperparameters = dataclass(kw_only=True, eq=False, repr=False)

AUTO_AUGMENT = 0.5  # augment="auto": strength of the random changes of images


def _check_network(network: Any) -> None:
    if not isinstance(network, (str, nn.Module)):
        raise TypeError(f"network={network!r} should be a name or a module with encode and decode.")


def _check_columns(columns: Any) -> None:
    if columns is not None and not isinstance(columns, Mapping):
        raise TypeError(f"columns={columns!r} should be a dictionary of kinds by name, or None.")
    for name, kind in (columns or {}).items():
        if kind not in KINDS:
            raise ValueError(f"columns: {name!r} is to be {kind!r}, which should be one of {', '.join(KINDS)}.")


def _check_callbacks(callbacks: Any) -> None:
    if not isinstance(callbacks, Sequence) or not all(callable(each) for each in callbacks):
        raise TypeError(f"callbacks={callbacks!r} should be a list of functions of a Progress.")


def _check_precision(precision: Any) -> None:
    choose_precision(precision, torch.device("cpu"))


def _labels(answer: Answer) -> Tensor:
    """The labels of an answer, and -1 where it is not a number."""
    own = answer.logits.gather(1, answer.label[:, None])[:, 0]
    return answer.label.where(own.isfinite(), -1)


def _check_answers(answers: Tensor) -> None:
    wrong = ~answers.isfinite() if answers.is_floating_point() else answers < 0
    if bool(wrong.any()):
        raise ValueError("The model has no answer that is a number: X holds values too far from those of the fit.")


@hyperparameters
class PrototypeClusterer(
    Online,
    Exportable,
    Explainable,
    ClassNamePrefixFeaturesOutMixin,
    CallbackSupportMixin,
    ClusterMixin,
    TransformerMixin,
    BaseEstimator,
):
    """A network with centres in its embedding, trained by gradients; it answers for rows it has not seen.

    Args:
        n_clusters: how many.
        n_init: whole restarts, each from another seed.
        select: the label-free rule that picks one of the restarts: "scatter" (the least share of the embedding's
            variance left inside clusters, so that its scale does not count), "loss" (smallest clustering loss, TELL's
            rule), "agreement" (the run whose labels are most like those of the others), "balance" (the most even
            clusters, for data whose clusters are known to be about as large as one another).
        network: "auto" (rows: dense, images: convolutional), "dense", "conv", "conv-pool", "identity" (the features are
            the embedding), or any module with `encode` and `decode`, which gets the values as they are.
        embedding_dim: width of the embedding.
        features: how the network learns before the centres are placed, and what holds it while the method trains:
            "reconstruction" (an autoencoder) or "neighbours" (rows that are near stay near, as in UMAP). "auto":
            neighbours for rows, reconstruction for images, and for every network that is given by name or as a module.
        columns: of a table, kinds by name where they are not what they look like: "number", "category", "date", "text",
            or "skip" to leave it out. A table with words, dates or blanks is looked at in any case, one of numbers
            alone where this is given, be it empty.
        scale: of rows: True divides each column by its standard deviation, False all by one number. "auto": so that
            all columns of a table of mixed kinds count alike; other rows as their values suggest.
        pretrain_epochs: epochs of the autoencoder alone. "auto" follows the number of rows.
        epochs: epochs of the method. "auto" follows the number of rows.
        batch_size: rows a step. "auto": 64 below 5,000 rows, 128 below 20,000, 256 from there on; where the network
            learns by neighbours, all rows up to 2,048, and 1,024 of more.
        augment: random changes of the samples in training: the strength of small turns, zooms and shifts of images, or
            a callable from a batch to a changed batch; None for none. "auto": 0.5 for images, none for rows.
        optimizer: adadelta (or adadelta-keras), adagrad, adam, adamw, momentum, rmsprop, sgd, or a callable from
            parameters to an optimiser.
        lr: learning rate; None takes the optimiser's usual one. A callable brings its own.
        device: "auto", "cpu", "cuda", ...
        precision: of training: "float32", "bf16", or "auto": bf16 on a GPU that has it, float32 elsewhere.
        random_state: an int for the same answer every time.
        verbose: show a progress bar.
        callbacks: functions of a Progress, called after each epoch.
        checkpoint: a folder to keep the state of the fit in. A fit that was killed goes on from there when it is called
            again with the same settings and data, and ends with the labels it would have had. Emptied at the end.
        checkpoint_every: epochs between checkpoints.

    Attributes:
        labels_: the cluster of each row of X (n,).
        cluster_centers_: (n_clusters, embedding_dim); `inverse_transform` shows what they look like.
        inertia_: sum of squared distances to the own centre, in the embedding.
        clustering_loss_: the method's own loss over all of X, on the paper's scale.
        temperature_: of `predict_proba`, found without labels.
        history_: a dict for each epoch: phase, epoch, and every part of the loss.
        n_iter_: how many of these epochs were of clustering.
        runs_: every restart as a dict: labels, history, losses, seed.
        seed_: of the restart that was kept.
        diagnostics_: sizes of the clusters, repairs, warnings.
        model_: the `nn.Module`, usable on its own.
        n_features_in_: columns of X.
        feature_names_in_: their names, where X had some.
        columns_: how a table was read; not there for rows of numbers.
        shape_: of one row or image, as `fit` saw it.
        image_divisor_: what images are divided by; None where they are taken as they are.
    """

    n_clusters: int = knob(8, low=1, kw_only=False)
    n_init: int = knob(1, low=1)
    select: str = knob("scatter", choices=RULES)
    network: str | nn.Module = knob("auto", check=_check_network)
    embedding_dim: int = knob(10, low=1)
    features: Literal["auto", "reconstruction", "neighbours"] = knob("auto")
    columns: Mapping[str, str] | None = knob(None, check=_check_columns)
    scale: bool | Literal["auto"] = knob("auto")
    pretrain_epochs: int | Literal["auto"] = knob("auto", low=0)
    epochs: int | Literal["auto"] = knob("auto", low=0)
    batch_size: int | Literal["auto"] = knob("auto", low=2)  # batch norm needs two rows
    augment: float | Callable[[Tensor], Tensor] | Literal["auto"] | None = knob("auto", low=0)
    optimizer: str | Callable[..., Optimizer] = knob("adam", choices=OPTIMIZERS)
    lr: float | None = knob(None, above=0)
    device: str = "auto"
    precision: str = knob("auto", check=_check_precision)
    random_state: int | np.random.RandomState | None = None
    verbose: bool | int = False
    callbacks: Sequence[Callback] = knob((), check=_check_callbacks)
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: int = knob(10, low=1)

    papers: ClassVar[dict[str, dict[str, Any]]] = {}
    code: ClassVar[tuple[str, ...]] = ()  # knobs that may be functions, and without which the model means nothing
    starts: ClassVar[tuple[str, ...]] = ("k-means", "k-means++", "random")
    indivisible: ClassVar[str] = ""  # why several processes cannot share a fit, where they cannot
    # What "auto" epochs mean, for pretraining and for the method: so many steps, within these limits.
    auto_steps: ClassVar[tuple[int, int]] = (2800, 1400)
    auto_most: ClassVar[tuple[int, int]] = (200, 100)
    auto_least: ClassVar[tuple[int, int]] = (20, 20)
    learns_by_neighbours: ClassVar[bool] = True  # what features="auto" means for rows
    falls_back: ClassVar[bool] = True  # whether the method has an answer without a network

    # ---- what a method says

    @abstractmethod
    def build_model(self, autoencoder: Autoencoder, n_samples: int) -> ClusterModel:
        """The network with the method's cluster layer and loss."""

    def network_options(self) -> dict[str, dict[str, Any]]:
        """Constructor arguments for each kind of network, where the method has its own."""
        return {}

    def pretraining(self, model: ClusterModel) -> Trainable:
        """What the network learns from before the method begins."""
        return Pretraining(model)

    def pretraining_plan(self, model: ClusterModel, epochs: int) -> list[tuple[str, Trainable, int]]:
        """What is trained before the method begins: phases by name, and their epochs."""
        return [("pretraining", self.pretraining(model), epochs)]

    def auto_epochs(self, phase: int, steps: int) -> int:
        """What "auto" means, for pretraining (0) and for the method (1), with so many steps an epoch."""
        wanted = math.ceil(self.auto_steps[phase] / steps)
        return min(self.auto_most[phase], max(self.auto_least[phase], wanted))

    def is_joint(self) -> bool:
        """Whether the network goes on learning beside the centres."""
        return True

    @classmethod
    def paper(cls, name: str, **changes: Any) -> Self:
        """An estimator with the paper's own settings for a data set; `changes` override single ones."""
        if name not in cls.papers:
            raise ValueError(f"{cls.__name__} has no paper settings for {name!r}, only for: {', '.join(cls.papers)}.")
        return cls(**{**cls.papers[name], **changes})

    # ---- learning

    @with_callbacks
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn network and centres from the rows X; y is ignored."""
        with learning():
            given = self._read(X)
            with self._reserved(), current_processes().sharing():
                restarts = self._restarts(given)
                train(restarts)
                run = self._choose(restarts)
            self._adopt(restarts, run)
        self._warn(stacklevel=3)  # the caller of fit, past scikit-learn's wrapper
        return self

    def _read(self, X: Any) -> Given:
        """Settings and data, checked: what is wrong shows before any training."""
        processes = current_processes()
        with processes.together():
            self._check_settings()
            given = read(self, X, fitting=True)
            self._check_size(given)
            self._augmentation(given.rows.row_shape)
            self._check_sharing(processes, choose_device(self.device))
        processes.check_same({"data": f"{len(given.rows)} rows of {given.rows.row_shape}", **self._described()})
        return given

    def _restarts(self, given: Given, quiet: bool = False) -> list[Restart]:
        """All that training needs, built: a misfit of network and data shows here."""
        processes, device = current_processes(), choose_device(self.device)
        augmentation = self._augmentation(given.rows.row_shape)
        neighbours = self._by_neighbours(given.rows.row_shape)
        batch_size = self._batch_size(len(given.rows), neighbours)
        data = Data(given.rows, device, batch_size, augmentation, processes)
        data.scale = self._scale(given, data)
        if neighbours:
            data.graph = self._graph(data)
        watchers = Watchers(self, quiet)
        job = Job(
            device,
            self._checkpoint(data),
            watchers,
            attributes=given.attributes,
            at_once=watchers.at_once(device),
            capture=None if processes.alone else False,  # exchanges between processes are not captured
        )
        narrow = self._narrowed(data)
        restarts = [self._restart(job, number, data, narrow) for number in range(self.n_init)]
        watchers.expect(epochs=restarts[0].expected_epochs)
        return restarts

    def _scale(self, given: Given, data: Data) -> Tensor | None:
        """What columns are divided by, where the table or the user says it."""
        if self.scale == "auto" or len(data.row_shape) != 1:
            return given.scale
        return networks.even_units(data.summary, each=bool(self.scale))

    def _narrowed(self, data: Data) -> Data:
        """What is trained on: the data, or the principal components of wide rows where the network begins with them."""
        begins_with_them = (
            isinstance(self.network, str) and self.network in ("auto", "rows") and len(data.row_shape) == 1
        )
        if data.graph is None or data.scaled is None or not len(data.scaled.basis) or not begins_with_them:
            return data
        rows = TensorRows(data.map(data.scaled.to(data.device).scaled))
        narrow = Data(rows, data.device, data.batch_size, data.augment, data.processes)
        narrow.graph, narrow.scaled = data.graph, data.scaled
        return narrow

    def _restart(self, job: Job, number: int, data: Data, trained_on: Data) -> Restart:
        """One run: the network alone, then the method."""
        randomness = Randomness(job.checkpoint.seeds[number], data.device)
        with randomness.borrowed():
            model = self.build_model(self.build_autoencoder(data), len(data)).to(data.device)
        options: dict[str, Any] = {"restart": number, "precision": choose_precision(self.precision, data.device)}
        epochs = self._epochs(self.pretrain_epochs, data, 0)
        plan: list[tuple[str, Trainable, int]] = []
        if model.network_learns and data.graph is not None:
            plan = [("pretraining", NeighbourPretraining(model), epochs)]
        elif model.network_learns:
            plan = self.pretraining_plan(model, epochs)
        phases = [
            Phase(name, learner, trained_on, self.build_optimizer(learner), epochs, **options)
            for name, learner, epochs in plan
        ]
        epochs = self._epochs(self.epochs, data, 1)
        if self.is_joint() or not model.network_learns:
            phases.append(Phase("clustering", model, trained_on, self.build_optimizer(model), epochs, **options))
        else:
            phases.append(
                EmbeddedPhase(
                    "clustering", model, trained_on, self.build_model, self.build_optimizer, epochs, **options
                )
            )
        return Restart(job, number, model, data, phases, randomness)

    def _checkpoint(self, data: Data) -> Checkpoint:
        """Where the fit stands: at its beginning, or where the folder says."""
        processes = data.processes
        seeds = processes.of_leader(lambda: restart_seeds(self.random_state, self.n_init))
        if self.checkpoint is None:
            return Checkpoint(None, 1, {}, seeds)
        identity = {"data": processes.of_leader(data.fingerprint), **self._described()}
        folder = CheckpointFolder(self.checkpoint)
        defaults = {name: describe(value) for name, value in type(self)().get_params().items()}
        return Checkpoint(folder, self.checkpoint_every, identity, seeds, processes, defaults)

    @contextlib.contextmanager
    def _reserved(self) -> Iterator[None]:
        """Inside, the checkpoint folder, where there is one, is for this fit alone."""
        processes = current_processes()
        with contextlib.ExitStack() as held:
            with processes.together():
                if self.checkpoint is not None:
                    folder = CheckpointFolder(self.checkpoint)
                    held.enter_context(folder.reserved() if processes.leads else contextlib.nullcontext())
            yield

    def _described(self) -> dict[str, Any]:
        """The settings that decide what comes out."""
        fleeting = ("device", "verbose", "callbacks", "checkpoint", "checkpoint_every")
        settings = {name: describe(value) for name, value in self.get_params().items() if name not in fleeting}
        return {"class": type(self).__name__, **settings}

    def build_autoencoder(self, data: Data) -> Autoencoder:
        """The network that the settings name, for these data."""
        neighbours = self._by_neighbours(data.row_shape)
        return networks.build(self.network, data, self.embedding_dim, self.network_options(), neighbours=neighbours)

    def build_optimizer(self, model: Trainable) -> Optimizer | None:
        """The optimiser of a model; None where nothing in it learns by gradients."""
        if isinstance(model, NeighbourPretraining):
            return make_optimizer(model, "adam", model.lr if self.lr is None else self.lr)
        return make_optimizer(model, self.optimizer, self.lr)

    def first_centers(self, embedding_dim: int) -> Start | Tensor:
        """The method's `init`, checked: a name, or centres as a tensor."""
        init: Any = getattr(self, "init", "k-means")
        if isinstance(init, str):
            if init not in self.starts:
                raise ValueError(f"init={init!r} should be one of {', '.join(self.starts)}, or an array.")
            return init  # type: ignore[return-value]
        centers = torch.from_numpy(
            np.array(init.detach().cpu().numpy() if isinstance(init, Tensor) else init, np.float32)
        )
        if centers.shape != (self.n_clusters, embedding_dim):
            raise ValueError(
                f"init has shape {tuple(centers.shape)}, expected "
                f"(n_clusters, embedding_dim) = ({self.n_clusters}, {embedding_dim})."
            )
        if not centers.isfinite().all():
            raise ValueError("init contains NaN or infinity.")
        return centers

    def _by_neighbours(self, row_shape: tuple[int, ...]) -> bool:
        """Whether the encoder learns by neighbours."""
        if self.features != "auto":
            return self.features == "neighbours"
        free = isinstance(self.network, str) and self.network == "auto"
        return self.learns_by_neighbours and free and len(row_shape) == 1

    def _graph(self, data: Data) -> NeighbourGraph:
        """Who is near whom, in the units that the network sees."""
        with seeded(0, data.device):  # the same for every restart and process
            network = networks.build("scaled", data, 0, {}).to(data.device)
            return NeighbourGraph.of(data.map(network.encode))

    def _epochs(self, wish: int | str, data: Data, phase: int) -> int:
        if wish != "auto":
            return int(wish)
        if data.graph is None:
            return self.auto_epochs(phase, data.steps)
        if data.steps == 1:
            return STEPS_OF_ALL_ROWS[phase]
        steps = max(STEPS[0], STEPS_BY_ROOT * math.sqrt(len(data))) if phase == 0 else STEPS[1]
        return math.ceil(steps / data.steps)

    def _batch_size(self, n: int, neighbours: bool = False) -> int:
        if self.batch_size == "auto":
            if neighbours:
                return n if n <= ALL_ROWS else 1024
            return 64 if n < 5_000 else 128 if n < 20_000 else 256
        return self.batch_size

    def _augmentation(self, row_shape: tuple[int, ...]) -> Callable[[Tensor], Tensor] | None:
        images = len(row_shape) == 3
        if callable(self.augment):
            return self.augment
        if (
            self.augment is None
            or self.augment == 0
            or self.network == "identity"
            or (self.augment == "auto" and not images)
        ):
            return None
        if not images:
            raise ValueError(f"augment={self.augment} needs images; for rows give a callable or None.")
        return functools.partial(jitter, strength=AUTO_AUGMENT if self.augment == "auto" else float(self.augment))

    # ---- answering

    def predict(self, X: Any) -> Any:
        """The cluster of each row (n,), in the form X came in."""
        return self._answer(X, lambda fitted, x: _labels(fitted.model_.answer(x)))

    def predict_proba(self, X: Any) -> Any:
        """`softmax_j(-|z - Ω_j|² / temperature_)`: see `temperature_`."""
        return self._answer(X, lambda fitted, x: fitted._probabilities(fitted.model_.embed(x).double()))

    def predict_in_parts(self, X: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Labels and probabilities, some thousand rows at a time and in order: for answers larger than memory."""
        fitted = as_it_is(self)
        check_is_fitted(fitted)
        data, model = fitted._ready(read(fitted, X, fitting=False))

        def ask(x: Tensor) -> Tensor:
            answer = model.answer(x)
            probabilities = fitted._probabilities(answer.z).double()
            return torch.cat([_labels(answer)[:, None].double(), probabilities], dim=1)

        for part in data.parts(ask):
            _check_answers(part)
            answers = part.cpu().numpy()
            yield answers[:, 0].astype(np.int64), answers[:, 1:].astype(np.float32)

    def transform(self, X: Any) -> Any:
        """The embedding of each row (n, embedding_dim), in the form X came in."""
        return self._answer(X, lambda fitted, x: fitted.model_.embed(x))

    def inverse_transform(self, Z: Any) -> Any:
        """Embeddings back to samples of the shape `fit` was given."""
        fitted = as_it_is(self)
        check_is_fitted(fitted)
        width = fitted.cluster_centers_.shape[1]
        if not isinstance(Z, Tensor):
            Z = check_array(Z, dtype=np.float32, copy=True, input_name="Z", estimator=self)
        z = Z.detach().float() if isinstance(Z, Tensor) else torch.from_numpy(Z)
        if z.ndim != 2 or len(z) == 0 or z.shape[1] != width:
            raise ValueError(f"Z has shape {tuple(z.shape)}, expected (n, {width}): rows of the embedding.")
        device = choose_device(self.device)
        model = fitted.model_.to(device)
        samples = fitted.shape_.restore(Data(TensorRows(z), device).map(model.decode))
        return samples.to(Z.device) if isinstance(Z, Tensor) else samples.cpu().numpy()

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the clustering loss, mean over the rows: larger is better."""
        losses = self._answer(X, lambda fitted, x: fitted.model_.clustering_loss(fitted.model_.embed(x).double()))
        return -float(losses.mean())

    def _answer(self, X: Any, ask: Callable[[Any, Tensor], Tensor]) -> Any:
        """ask of the estimator, as it is now, and of the samples, with the model where they are and in eval mode; the
        answers in the form X came in."""
        fitted = as_it_is(self)
        check_is_fitted(fitted)
        given = read(fitted, X, fitting=False)
        data, _ = fitted._ready(given)
        answers = data.map(lambda x: ask(fitted, x))
        _check_answers(answers)
        return given.give(answers)

    def _ready(self, given: Given) -> tuple[Data, ClusterModel]:
        data, model = Data(given.rows, choose_device(self.device)), self.model_
        # else it is left alone: other threads may be asking it
        if model.training or model.clusters.weight.device != data.device:
            model.to(data.device).eval()
        return data, model

    def _probabilities(self, z: Tensor) -> Tensor:
        return self.model_.clusters.probabilities(z, self.temperature_).float()

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a folder, for `diffclust.load`: safetensors and JSON, no pickle."""
        save(as_it_is(self), folder)

    # ---- bookkeeping

    def _choose(self, restarts: list[Restart]) -> Run:
        """The best restart by the rule `select`; for features="auto", k-means on the rows where that is as good."""
        runs = [restart.result for restart in restarts if restart.result is not None]
        if not runs:
            raise KeyboardInterrupt  # before the first had anything to show
        best, data = runs[RULES[self.select](runs)], restarts[0].data
        given_centers = not isinstance(getattr(self, "init", "k-means"), str)  # in the network's embedding
        if data.graph is None or self.features != "auto" or not self.falls_back or given_centers:
            return best
        rows = self._on_the_rows(data, best)
        learnt_cut, rows_cut = (
            data.graph.cut(torch.from_numpy(run.labels).to(data.device), self.n_clusters) for run in (best, rows)
        )
        return best if learnt_cut < (CLEARLY_LESS - FEW_ROWS / math.sqrt(len(data))) * rows_cut else rows

    def _on_the_rows(self, data: Data, learnt: Run) -> Run:
        """What the method gives without a network: k-means on the rows in their units."""
        with seeded(learnt.seed, data.device):
            plain = clone(self).set_params(**({"init": "k-means"} if hasattr(self, "init") else {}))
            model = plain.build_model(networks.build("scaled", data, 0, {}), len(data)).to(data.device)
            placing = Phase("clustering", model, data, None, epochs=0)
            placing.start()
            placing.finish()
            model.note(
                "fallback", "The network's clusters cut no fewer neighbours apart than k-means on the rows: kept that."
            )
            return Run.evaluate(
                model, data, seed=learnt.seed, history=learnt.history, events=[*learnt.events, *model.events]
            )

    def _adopt(self, restarts: list[Restart], best: Run) -> None:
        """Keep the chosen run; nothing of an earlier fit survives."""
        runs = [restart.result for restart in restarts if restart.result is not None]
        fitted = {
            **restarts[0].job.attributes,
            "runs_": [run.to_dict() for run in runs],
            "_fitted_with": self.get_params(deep=False),
            **self._described_by(best),
        }
        with learns_alone(self):
            become(self, fitted, without=(*fitted_names(self), "_stream", "_waiting"))

    @staticmethod
    def _described_by(run: Run) -> dict[str, Any]:
        """The fitted attributes, all read off one run."""
        return {
            "diagnostics_": run.diagnostics(),
            "model_": run.model,
            "seed_": run.seed,
            "labels_": run.labels,
            "cluster_centers_": run.centers,
            "inertia_": run.inertia,
            "clustering_loss_": run.clustering_loss,
            "temperature_": run.temperature,
            "history_": run.history,
            "n_iter_": sum(record["phase"] == "clustering" for record in run.history),
        }

    def _warn(self, stacklevel: int) -> None:
        for message in self.diagnostics_["warnings"] if current_processes().leads else []:
            warnings.warn(message, ConvergenceWarning, stacklevel=stacklevel + 1)

    @property
    def _n_features_out(self) -> int:
        return self.cluster_centers_.shape[1]

    def _check_size(self, given: Given) -> None:
        n = len(given.rows)
        if n < 2:
            raise ValueError(
                f"Found array with {n} sample(s) while a minimum of 2 is required by {type(self).__name__}."
            )
        if n < self.n_clusters:
            raise ValueError(f"n_samples={n} should be >= n_clusters={self.n_clusters}.")

    def _check_sharing(self, processes: Processes, device: torch.device) -> None:
        if processes.alone:
            return
        if self.indivisible:
            raise ValueError(
                f"{type(self).__name__} cannot be shared by {processes.size} processes: {self.indivisible}."
            )
        if device.type == "cuda" and processes.local >= torch.cuda.device_count():
            raise ValueError(
                f"There are {torch.cuda.device_count()} GPUs here, and more processes: start as many, or set device."
            )

    def _check_settings(self) -> None:
        check_knobs(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags
