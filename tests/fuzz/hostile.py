"""Hostile files, arrays and settings by the thousand: `python tests/fuzz/hostile.py --cases 50000`, or `make fuzz`.

From saved models, checkpoints, records of training and data files that are whole, others are made that are not: bytes
flipped, ends cut off, files swapped, settings and tensors forged with checksums that fit, huge shapes declared, names
that lead out of the folder, links, pipes, deep JSON, NaN and infinity in numbers that steer. Each is read. And every
estimator and baseline is given arrays and settings of every kind, right and wrong (`--kinds arrays,settings,...`).

What must hold: an answer without NaN, or a clear error of a known kind, which names the setting that is wrong; never
another exception, ten seconds of work, a minute of waiting, or a gigabyte.

A case is made from its number and the seed alone: `--only 1234 --seed 0` does it again.
"""

import argparse
import contextlib
import csv
import functools
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import torch
from hostile_arrays import Arrays, Baselines, Questions, Settings
from hostile_models import Checkpoints, Models, Records
from hostile_tables import Tables

SECONDS, WAITING, MEGABYTES = 10, 60, 1024  # of work, of the clock on a busy machine, of memory
KINDS = {
    "models": Models, "checkpoints": Checkpoints, "records": Records, "tables": Tables,
    "arrays": Arrays, "questions": Questions, "settings": Settings, "baselines": Baselines,
}  # fmt: skip
FILES = ("models", "checkpoints", "records", "tables")
SHARES = {
    "models": 6, "checkpoints": 2, "records": 1, "tables": 4, "arrays": 4, "questions": 4, "settings": 4, "baselines": 2
}  # fmt: skip
ALLOWED = {"model": (ValueError, OSError), "checkpoint": (ValueError, OSError), "record": ValueError}
ALLOWED |= {"data": (ValueError, TypeError, OSError), "setting": (ValueError, TypeError, OSError)}
PART = 250  # cases that a process does at a time


class TooLong(BaseException):
    pass


def _too_long(*_):
    raise TooLong


@contextlib.contextmanager
def in_time():
    """Inside, too much work and too much waiting end in an error; work that never comes back to Python, the process."""
    kinds = (
        (signal.SIGPROF, signal.ITIMER_PROF, SECONDS, _too_long),
        (signal.SIGALRM, signal.ITIMER_REAL, WAITING, _too_long),
        (signal.SIGVTALRM, signal.ITIMER_VIRTUAL, 3 * SECONDS, signal.SIG_DFL),
    )
    before = [signal.signal(number, handler) for number, _, _, handler in kinds]
    for _, timer, seconds, _ in kinds:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (number, timer, _, _), handler in zip(kinds, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


@functools.cache
def makers_of(names):
    return {name: KINDS[name]() for name in names}


def try_one(makers, seed, number, home):
    """Its kind, how it ended, and what is wrong with that, where something is."""
    rng = random.Random(f"{seed}-{number}")
    names = list(makers)
    name = rng.choices(names, [SHARES[each] for each in names])[0]
    folder = home / "case"
    shutil.rmtree(folder, ignore_errors=True)
    kind, read = makers[name].make(rng, folder)
    try:
        with in_time():
            read()
    except ALLOWED.get(kind.split(":")[0], (ValueError, TypeError)) as error:
        said = str(error).strip()
        return kind, type(error).__name__, None if said else "an error without a word"
    except (Exception, TooLong):
        return kind, "failed", traceback.format_exc(limit=-6)
    return kind, "answered", None


def fuzz(cases, seed=0, names=tuple(KINDS), begin=None, say=None, warm=20):
    """Counts of (kind, end), and what failed: (number, kind, traceback). `begin` and `say` hear of every case; `warm`
    others come first."""
    makers = makers_of(names)
    counts, failures = Counter(), []
    where = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=where) as home, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(-warm, 0):  # what is imported and cached once is not a case's memory
            try_one(makers, seed, number, Path(home))
        least = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in cases:
            if begin is not None:
                begin(number)
            kind, end, wrong = try_one(makers, seed, number, Path(home))
            counts[kind, end] += 1
            if wrong is not None:
                failures.append((number, kind, wrong))
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            if most - least > 1024 * MEGABYTES:
                failures.append((number, kind, f"{(most - least) // 1024} MB more than before"))
                least = most
            if say is not None:
                say(number, failures)
        shutil.rmtree(Path(home) / "case", ignore_errors=True)
    return counts, failures


def fuzz_part(cases, seed, names, diary):
    """A part of the cases, in a process of its own; the diary says where it is."""
    torch.set_num_threads(1)
    found = fuzz(cases, seed, names, begin=lambda number: diary.write_text(str(number)))
    return *found, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class Worker(threading.local):
    """A process for each thread, and another one where it has died."""

    def __init__(self, home):
        self.pool, self.diary = None, Path(home) / str(threading.get_ident())

    def __call__(self, cases, seed, names):
        counts, failures, most = Counter(), [], 0
        while cases:
            self.pool = self.pool or ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
            self.diary.write_text(str(cases[0]))
            try:
                found, wrong, most = self.pool.submit(fuzz_part, cases, seed, names, self.diary).result()
                return counts + found, failures + wrong, most
            except BrokenProcessPool:  # what it had counted is lost with it, and done again without this case
                died, self.pool = int(self.diary.read_text()), None
                failures.append((died, "process", "the process died"))
                cases = [number for number in cases if number != died]
        return counts, failures, most


def fuzz_in_processes(cases, seed, names, jobs, tell=lambda *so_far: None):
    """The same, a part at a time in each of so many processes; `tell` hears after each part."""
    counts, failures, most = Counter(), [], 0
    parts = [cases[i : i + PART] for i in range(0, len(cases), PART)]
    with tempfile.TemporaryDirectory() as home, ThreadPoolExecutor(jobs) as threads:
        work = Worker(home)
        for done in as_completed([threads.submit(work, list(part), seed, names) for part in parts]):
            found, wrong, peak = done.result()
            counts, failures, most = counts + found, failures + wrong, max(most, peak)
            tell(counts, failures, most)
    return counts, failures, most


def write_summary(path, counts, failures, seed, seconds, most):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["kind", "end", "cases"])
        writer.writerows([kind, end, n] for (kind, end), n in sorted(counts.items()))
        writer.writerow(["all", "failed", len(failures)])
        writer.writerow(["all", "cases", sum(counts.values())])
        writer.writerow(["all", f"seconds, seed {seed}", round(seconds)])
        writer.writerow(["all", "most memory of a process, MB", most // 1024])
        writer.writerows([f"case {number}, {kind}", wrong, ""] for number, kind, wrong in failures)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", type=int, help="this case alone")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"of {', '.join(KINDS)}; files for the first four")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--summary", help="a .csv file for the counts and failures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    names = tuple(options.kinds.replace("files", ",".join(FILES)).split(","))

    def say(number, failures):
        if failures and failures[-1][0] == number:
            print(f"case {number} failed", flush=True)

    cases = range(options.first, options.first + options.cases) if options.only is None else [options.only]

    def write(counts, failures, most):
        if options.summary:
            write_summary(options.summary, counts, failures, options.seed, time.monotonic() - began, most)

    if options.jobs > 1:
        counts, failures, most = fuzz_in_processes(cases, options.seed, names, options.jobs, write)
    else:
        counts, failures = fuzz(cases, options.seed, names, say=say)
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    write(counts, failures, most)
    seconds = time.monotonic() - began
    for kind in sorted({kind for kind, _ in counts}):
        ends = ", ".join(f"{n:,} {end}" for (k, end), n in sorted(counts.items()) if k == kind)
        print(f"{kind:30} {ends}")
    alike = {
        (kind.split(":")[0], wrong.strip().splitlines()[-1][:60]): (number, kind, wrong)
        for number, kind, wrong in failures
    }
    for number, kind, wrong in alike.values():  # one of each sort
        print(f"\n--- case {number}, {kind}\n{wrong}")
    print(
        f"{sum(counts.values()):,} cases with seed {options.seed}: {len(failures)} failed, {seconds:.0f} s, "
        f"at most {most // 1024} MB in a process"
    )
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
