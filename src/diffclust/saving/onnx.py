"""Export a fitted estimator: as a `torch.export` program, and as an ONNX file that runs without torch."""

import contextlib
import copy
import logging
import os
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from ..engine.disk import atomic_write
from ..extras import extra
from ..reading.inputs import Shape

if TYPE_CHECKING:
    from ..engine.model import ClusterModel


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """A context without the exporter's warnings about its own deprecations and about a missing torchvision."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _distances(x: Tensor, centers: Tensor, p: float = 2, mode: int | None = None) -> Tensor:
    """`torch.cdist` from operations that ONNX has."""
    return torch.linalg.vector_norm(x.unsqueeze(-2) - centers.unsqueeze(-3), ord=p, dim=-1)


class PredictionModule(nn.Module):
    """Samples as `predict` takes them -> labels (b,) and probabilities (b, k). Samples are float32, or float64 if they
    are far from zero."""

    origin: Tensor | None

    def __init__(
        self,
        model: "ClusterModel",
        shape: Shape,
        divisor: float | None,
        origin: Tensor | None,
        temperature: float,
    ) -> None:
        super().__init__()
        self.model, self.shape, self.divisor, self.temperature = model, shape, divisor, temperature
        self.register_buffer("origin", origin)

    def forward(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        x = self.shape.arrange(samples)
        x = x if self.origin is None else (x - self.origin).float()
        x = x if self.divisor is None else x / self.divisor
        z, _, label = self.model.answer(x)
        return label, self.model.clusters.probabilities(z, self.temperature).float()


class ExportMixin:
    """`export_program` and `export_onnx`."""

    if TYPE_CHECKING:
        model_: ClusterModel
        shape_: Shape
        image_divisor_: float | None
        origin_: np.ndarray | None
        temperature_: float

    def export_program(self) -> torch.export.ExportedProgram:
        """Encoder and assignment by `torch.export`: any number of samples (float32) to labels and probabilities. Pass
        integer images as float32 with their original values; they are divided inside. If `origin_` is not None,
        samples are float64."""
        check_is_fitted(self)
        model = copy.deepcopy(self.model_).cpu().eval().requires_grad_(False)
        for weight in model.parameters():
            weight.data = weight.data.contiguous()  # those of networks for images are channels-last
        origin = None if self.origin_ is None else torch.from_numpy(self.origin_)
        answers = PredictionModule(model, self.shape_, self.image_divisor_, origin, float(self.temperature_)).eval()
        kind = torch.float32 if origin is None else torch.float64
        samples = self.shape_.restore(torch.zeros(3, *self.shape_.row, dtype=kind))
        rows = torch.export.Dim("rows", min=1)
        return torch.export.export(answers, (samples,), dynamic_shapes=({0: rows},))

    def export_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write `export_program` as an ONNX file: input "samples", outputs "labels" and "probabilities"."""
        for package in ("onnx", "onnxscript"):
            extra(package, "onnx", "export_onnx")
        outputs = ["labels", "probabilities"]
        with _quiet():
            program = self.export_program().run_decompositions({torch.ops.aten.cdist.default: _distances})
            file: Any = torch.onnx.export(program, input_names=["samples"], output_names=outputs, verbose=False)
        _forget_origin(file.model)
        with atomic_write(path) as part:
            file.save(part, external_data=False)


def _forget_origin(model: Any) -> None:
    """Remove the source positions that the exporter notes for every node, which contain paths of this machine."""
    for graph in (model.graph, *model.functions.values()):
        for node in graph:
            node.metadata_props.clear()
            node.doc_string = None
