"""Predictions of a fitted estimator, for training rows and new rows."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ..engine.data import Data
from ..engine.model import Answer, ClusterModel
from ..engine.rows import TensorRows
from ..engine.runtime import choose_device, without_caller_modes
from ..reading.inputs import Shape, UserInput, check_tensor, in_numbers, read_rows
from .outliers import RejectionMixin
from .state import snapshot


def _labels(answer: Answer) -> Tensor:
    """The labels of an answer, and -1 where it is not a number."""
    own = answer.logits.gather(1, answer.label[:, None])[:, 0]
    return answer.label.where(own.isfinite(), -1)


def _check_answers(answers: Tensor) -> None:
    wrong = ~answers.isfinite().all() if answers.is_floating_point() else answers.amin() < 0
    if bool(wrong):
        raise ValueError("The model's answer is NaN or infinite: X has values too far from the training data.")


class PredictionMixin(
    RejectionMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
):  # which wraps `transform` for `set_output`
    """`predict`, `outlier_score`, `predict_proba`, `transform`, `inverse_transform` and `score`."""

    if TYPE_CHECKING:
        device: str
        model_: ClusterModel
        cluster_centers_: np.ndarray
        shape_: Shape
        origin_: np.ndarray | None
        temperature_: float

    def predict(self, X: Any, reject: float | None = None) -> Any:
        """The cluster of each row (n,), in the form of X: a tensor for a tensor, otherwise a numpy array.

        Args:
            reject: label outliers -1: rows whose `outlier_score` is higher than that of all but this share of the
                training rows. None: every row gets a cluster.
        """
        if reject is not None:
            return self._labels_or_none(X, reject)
        return self._answer(X, lambda fitted: fitted.model_.label_function())

    def predict_proba(self, X: Any) -> Any:
        """The probability of each cluster (n, k): `softmax_j(-|z - Ω_j|² / temperature_)`."""
        return self._answer(X, lambda fitted: lambda x: fitted._probabilities(fitted.model_.embed(x).double()))

    def predict_in_parts(self, X: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield labels and probabilities in order, a part of the rows at a time, for results larger than memory."""
        fitted = snapshot(self)
        check_is_fitted(fitted)
        with without_caller_modes():
            data, model = fitted._ready(read_rows(fitted, X, fitting=False))

        def ask(x: Tensor) -> Tensor:
            answer = model.answer(x)
            probabilities = fitted._probabilities(answer.z).double()
            return torch.cat([_labels(answer)[:, None].double(), probabilities], dim=1)

        for part in data.parts(ask):
            _check_answers(part)
            answers = part.cpu().numpy()
            yield answers[:, 0].astype(np.int64), answers[:, 1:].astype(np.float32)

    def transform(self, X: Any) -> Any:
        """The embedding of each row (n, embedding_dim), in the form of X."""
        return self._answer(X, lambda fitted: fitted.model_.embed)

    @without_caller_modes()
    def inverse_transform(self, Z: Any) -> Any:
        """Decode embeddings to samples of the shape that `fit` was given."""
        fitted = snapshot(self)
        check_is_fitted(fitted)
        width = fitted.cluster_centers_.shape[1]
        if isinstance(Z, Tensor):
            check_tensor(Z)
        else:
            how: dict[str, Any] = {"dtype": np.float32, "copy": True, "input_name": "Z", "estimator": self}
            Z = in_numbers(lambda Z: check_array(Z, **how), Z, "Z")
        z = Z.detach().float() if isinstance(Z, Tensor) else torch.from_numpy(Z)
        if z.ndim != 2 or len(z) == 0 or z.shape[1] != width:
            raise ValueError(f"Z has shape {tuple(z.shape)}, expected (n, {width}): rows of the embedding.")
        samples = fitted.shape_.restore(fitted._as_given(fitted._decoded(z)))
        return samples.to(Z.device) if isinstance(Z, Tensor) else samples.cpu().numpy()

    def _decoded(self, z: Tensor) -> Tensor:
        """Decoded embeddings in the units of the model, `(n, *row)`."""
        device = choose_device(self.device)
        data = Data(TensorRows(z), device)
        data.fit_chunks_to(self.model_)
        return data.map(self.model_.to(device).decode)

    def _as_given(self, samples: Tensor) -> Tensor:
        """Samples from the units of the model to the user's units; float64 if these are far from zero."""
        if self.origin_ is None:
            return samples
        return samples.double() + torch.from_numpy(self.origin_).to(samples.device)

    def score(self, X: Any, y: Any = None) -> float:
        """The negative clustering loss, averaged over the rows: larger is better. It stays that of the trained clusters
        when these are merged or split."""

        def ask(fitted: Any) -> Callable[[Tensor], Tensor]:
            model = fitted.model_.as_trained()
            return lambda x: model.clustering_loss(model.embed(x).double())

        return -float(self._answer(X, ask).mean())

    @without_caller_modes()
    def _answer(
        self,
        X: Any,
        ask: Callable[[Any], Callable[[Tensor], Tensor]],
        settle: Callable[[Any, Tensor], Tensor] | None = None,
    ) -> Any:
        """Apply `ask(estimator)(x)` to all samples, on a snapshot of the estimator with its model in eval mode on the
        device of the samples. Returns the answers, or `settle(estimator, answers)`, in the form of X. Raises if
        answers are not finite."""
        fitted = snapshot(self)
        if "model_" not in vars(fitted):  # else there is no need to look through all attributes
            check_is_fitted(fitted)
        given = read_rows(fitted, X, fitting=False)
        data, _ = fitted._ready(given)
        answers = data.map(ask(fitted))
        _check_answers(answers)
        return given.give(answers if settle is None else settle(fitted, answers))

    def _ready(self, given: UserInput) -> tuple[Data, ClusterModel]:
        data, model = Data(given.rows, choose_device(self.device)), self.model_
        data.fit_chunks_to(model)
        # else it is left alone: other threads may be asking it
        if model.training or model.clusters.weight.device != data.device:
            model.to(data.device).eval()
        return data, model

    def _probabilities(self, z: Tensor) -> Tensor:
        return self.model_.clusters.probabilities(z, self.temperature_).float()

    @property
    def _n_features_out(self) -> int:
        return self.cluster_centers_.shape[1]
