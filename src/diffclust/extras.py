"""Optional dependencies: a missing one is a clear error that names the extra to install."""

from importlib import import_module
from typing import Any


def extra(module: str, name: str, what: str, *, package: str | None = None) -> Any:
    """The module, or an ImportError: `what` needs `package`, which the extra `name` installs."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f'{what} needs {package or module}: pip install "diffclust[{name}]"') from error
