"""Differentiable clustering for PyTorch, with the scikit-learn API."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .methods import METHODS, TRANSDUCTIVE

if TYPE_CHECKING:
    from . import callbacks, datasets, metrics, nn, plot
    from .engine.distributed import distributed
    from .estimator.together import fit_together
    from .methods.ae_kmeans import AEKMeans
    from .methods.cross_metric import CrossMetric
    from .methods.dcn import DCN
    from .methods.dec import DEC, IDEC
    from .methods.deep_kmeans import DeepKMeans
    from .methods.dscnet import DSCNet
    from .methods.iic import IIC
    from .methods.imsat import IMSAT
    from .methods.kmeansnet import KMeansNet
    from .methods.spectralnet import SpectralNet
    from .methods.ssc import SSC
    from .methods.sscnet import SSCNet
    from .methods.tell import TELL
    from .methods.vade import VaDE
    from .report.comparison import compare_models
    from .report.names import load_names
    from .saving.load import load

__version__ = "0.1.0"
__all__ = [
    "DCN",
    "DEC",
    "IDEC",
    "IIC",
    "IMSAT",
    "SSC",
    "TELL",
    "AEKMeans",
    "CrossMetric",
    "DSCNet",
    "DeepKMeans",
    "KMeansNet",
    "SSCNet",
    "SpectralNet",
    "VaDE",
    "callbacks",
    "compare_models",
    "datasets",
    "distributed",
    "fit_together",
    "load",
    "load_names",
    "metrics",
    "nn",
    "plot",
]


def __getattr__(name: str) -> Any:
    """Public names are loaded at first use, so that the command answers before torch is there."""
    if name in ("callbacks", "datasets", "metrics", "nn", "plot"):
        return import_module(f".{name}", __name__)
    if name == "distributed":
        return import_module(".engine.distributed", __name__).distributed
    if name == "fit_together":
        return import_module(".estimator.together", __name__).fit_together
    if name == "compare_models":
        return import_module(".report.comparison", __name__).compare_models
    if name == "load_names":
        return import_module(".report.names", __name__).load_names
    if name == "load":
        return import_module(".saving.load", __name__).load
    for method in (*METHODS, *TRANSDUCTIVE):
        if name == method.estimator:
            return method.load()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
