"""Differentiable clustering for PyTorch, with the scikit-learn API."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import callbacks, datasets, metrics, nn
    from .methods.kmeansnet import KMeansNet
    from .methods.tell import TELL
    from .persistence import load

__version__ = "0.1.0"

# Loaded at first use, so that the command answers before torch is there.
_homes = {"TELL": "methods.tell", "KMeansNet": "methods.kmeansnet", "load": "persistence"}
_modules = ("callbacks", "datasets", "metrics", "nn")

__all__ = ["TELL", "KMeansNet", "callbacks", "datasets", "load", "metrics", "nn"]


def __getattr__(name: str) -> Any:
    if name in _modules:
        return import_module(f".{name}", __name__)
    if name in _homes:
        return getattr(import_module(f".{_homes[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
