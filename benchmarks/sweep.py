"""Benchmarks that go over sets and seeds: their options, and the runs that are not in the CSV yet."""

import argparse
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import sheet
from jobs import results_of

Lines = list[dict[str, Any]]


def options(doc: str | None, *, sets: str, seeds: int, results: Path) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", default=sets)
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--results", type=Path, default=results)
    parser.add_argument("--show", action="store_true")
    return parser


def sets_by_seed(wish: argparse.Namespace) -> list[tuple[str, int]]:
    """All sets with the first seed, then with the next one."""
    return [(name, seed) for seed in range(wish.seeds) for name in wish.sets.split(",")]


def sweep(
    run: Callable[..., Lines],
    work: Iterable[tuple[Any, ...]],
    wish: argparse.Namespace,
    *,
    keys: Sequence[str],
    columns: Sequence[str],
) -> list[dict[str, str]]:
    """All lines of the CSV, after those of `run(folder, device, *each)` were appended for every piece of work that is
    not there; with --show, as they are. `keys` are the columns that name a piece of work."""
    if not wish.show:
        done = {tuple(line[key] for key in keys) for line in sheet.read(wish.results)}
        missing = [each for each in work if tuple(map(str, each)) not in done]
        for lines in results_of(partial(_alone, run, wish.data, wish.device), missing, wish.jobs):
            sheet.append(wish.results, columns, lines)
            print(*(lines[0][key] for key in keys), flush=True)
    return sheet.read(wish.results)


def _alone(run: Callable[..., Lines], folder: Path, device: str, *each: Any) -> Lines:
    """In silence, and on a CPU on one thread."""
    import torch

    if device == "cpu":
        torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run(folder, device, *each)
