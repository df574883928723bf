"""Compile Triton kernels ahead of their first launch, in processes that import only Triton, into Triton's cache.

This is run as a script, so that neither torch nor this package is imported and processes can be forked. It reads a
line of JSON from standard input: the folder of the kernels, the GPU to compile for, the kernels, each by what Triton
calls its specialization data, and the number of processes.
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
NUMBER = 4  # digits of a kernel's number


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _constant(value: Any) -> Any:
    if isinstance(value, dict):
        return tl.constexpr(value["constexpr"])
    return tl.dtype(value) if tl.dtype.is_dtype(value) else value


def _kernel(each: dict[str, Any]) -> Any:
    module, kernel = each["name"].split(".")[-2:]
    return getattr(importlib.import_module(f"{PACKAGE}.{module}"), kernel)


def _compile(each: dict[str, Any], target: GPUTarget) -> None:
    source = ASTSource(
        _kernel(each),
        {name: _tuples(kind) for name, kind in each["signature"].items()},
        dict(zip(map(_tuples, each["constant_keys"]), map(_constant, each["constant_vals"]), strict=True)),
        dict(zip(map(_tuples, each["attrs_keys"]), each["attrs_vals"], strict=True)),
    )
    options = {name: _tuples(value) for name, value in each["options"].items()}
    compiled = compile(source, target=target, options=options)
    with contextlib.suppress(Exception):  # also compile the launcher, which needs a C compiler
        from triton.backends.nvidia.driver import CudaLauncher

        CudaLauncher(source, compiled.metadata)


def _work(kernels: list[dict[str, Any]], target: GPUTarget, queue: int) -> int:
    """Compile the kernels whose numbers come out of a pipe, until it is empty."""
    while number := os.read(queue, NUMBER):
        _compile(kernels[int(number)], target)
    return 0


def main() -> int:
    """Exit code 0 if all kernels were compiled."""
    with contextlib.suppress(ImportError):
        from triton.runtime.cache import triton_key  # a checksum of all of Triton: once, not in each process

        triton_key()
    task = json.loads(sys.stdin.readline())
    package = ModuleType(PACKAGE)
    package.__path__ = [task["folder"]]
    sys.modules[PACKAGE] = package
    kernels = [json.loads(each) for each in task["kernels"]]
    kernels.sort(key=lambda each: -len(_kernel(each).src))  # long ones first, so that all processes end together
    target, children = GPUTarget(*task["target"]), []
    queue, numbers = os.pipe()
    os.write(numbers, b"".join(b"%*d" % (NUMBER, i) for i in range(len(kernels))))
    os.close(numbers)
    for _ in range(task["processes"]):
        child = os.fork()
        if child:
            children.append(child)
            continue
        failed = 1
        try:
            failed = _work(kernels, target, queue)
        finally:
            os._exit(failed)
    results = [os.waitpid(child, 0)[1] for child in children]
    return int(any(results))


if __name__ == "__main__":
    sys.exit(main())
