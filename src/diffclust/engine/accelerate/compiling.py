"""Compile Triton kernels ahead of their first launch, in processes that import only Triton, into Triton's cache.

This is run as a script, so that neither torch nor this package is imported and processes can be forked. It reads JSON
from standard input: the folder of the kernels, the GPU to compile for, and for each process a list of kernels, each by
what Triton calls its specialization data.
"""

import contextlib
import importlib
import json
import os
import sys
from types import ModuleType
from typing import Any

import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

PACKAGE = "accelerate"  # this folder, as a package without its parents


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _constant(value: Any) -> Any:
    if isinstance(value, dict):
        return tl.constexpr(value["constexpr"])
    return tl.dtype(value) if tl.dtype.is_dtype(value) else value


def _compile(each: dict[str, Any], target: GPUTarget) -> None:
    module, kernel = each["name"].split(".")[-2:]
    source = ASTSource(
        getattr(importlib.import_module(f"{PACKAGE}.{module}"), kernel),
        {name: _tuples(kind) for name, kind in each["signature"].items()},
        dict(zip(map(_tuples, each["constant_keys"]), map(_constant, each["constant_vals"]), strict=True)),
        dict(zip(map(_tuples, each["attrs_keys"]), each["attrs_vals"], strict=True)),
    )
    options = {name: _tuples(value) for name, value in each["options"].items()}
    compiled = compile(source, target=target, options=options)
    with contextlib.suppress(Exception):  # also compile the launcher, which needs a C compiler
        from triton.backends.nvidia.driver import CudaLauncher

        CudaLauncher(source, compiled.metadata)


def main() -> int:
    """Exit code 0 if all kernels were compiled."""
    task = json.load(sys.stdin)
    package = ModuleType(PACKAGE)
    package.__path__ = [task["folder"]]
    sys.modules[PACKAGE] = package
    target, children = GPUTarget(*task["target"]), []
    for share in task["kernels"]:
        child = os.fork()
        if child:
            children.append(child)
            continue
        failed = 1
        try:
            for each in map(json.loads, share):
                _compile(each, target)
            failed = 0
        finally:
            os._exit(failed)
    results = [os.waitpid(child, 0)[1] for child in children]
    return int(any(results))


if __name__ == "__main__":
    sys.exit(main())
