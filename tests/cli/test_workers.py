"""Runs in processes of their own: an error, a crash and a slow run end none of the others."""

import os
import signal
import time

import numpy as np
import pytest

from diffclust.cli.comparing import agreement, fitting, names_of
from diffclust.cli.workers import RunInputs, RunResult, Task, run_all
from diffclust.methods import METHODS, TRANSDUCTIVE
from processes import PROCESSES


class Trial(RunInputs):
    """Tasks that do what their name says."""

    def run(self, task):
        if task.method == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if task.method == "sleep":
            time.sleep(60)
        return RunInputs.run(self, task)


def test_a_crash_and_a_slow_run_end_no_other(blobs, monkeypatch):
    monkeypatch.setattr("multiprocessing.get_context", lambda kind: PROCESSES)  # which need not import torch
    X, y = blobs
    tasks = [Task("crash", 0), Task("sleep", 0), Task("sleep", 1), Task("nmf", 0), Task("kmeans", 0), Task("kmeans", 1)]
    tasks.append(Task("lsr1", 4))
    found = dict(run_all(Trial(X, X, 3), tasks, jobs=1, limit=3))
    assert set(found) == set(tasks)
    assert found[Task("crash", 0)].failure == "its process was ended by signal 9"
    assert found[Task("sleep", 0)].failure == "longer than 3 seconds"
    assert found[Task("sleep", 1)].failure == "skipped: another seed took too long"
    assert "Negative values" in found[Task("nmf", 0)].failure
    for seed in range(2):
        run = found[Task("kmeans", seed)]
        assert agreement([run.labels, y]) == 1
        assert run.seconds > 0
        assert run.memory >= 0
    ((task, here),) = run_all(RunInputs(X, X, 3), [Task("lsr1", 4)], jobs=0, limit=60)
    assert (here.labels == found[task].labels).all()  # in this process and in another the answer is the same


def test_an_error_without_a_text_is_named(monkeypatch):
    def broken(*args):
        raise ZeroDivisionError

    monkeypatch.setattr("diffclust.cli.options.estimator_of", broken)
    assert RunInputs(None, None, 2).run(Task("tell", 0)).failure == "ZeroDivisionError"


def test_no_run_is_charged_for_imports(monkeypatch):
    imported = []
    monkeypatch.setattr("diffclust.cli.workers.import_module", lambda name, package=None: imported.append(name))
    list(run_all(RunInputs(None, None, 2), [], jobs=0, limit=1))
    assert {f".{method.module}" for method in (*METHODS, *TRANSDUCTIVE)} < set(imported)


def test_memory_is_what_a_run_takes(monkeypatch):
    def hungry(name, k, settings):
        return type("Hungry", (), {"fit_predict": lambda self, X: np.ones(2 * 10**7)[:3]})()

    monkeypatch.setattr("diffclust.cli.options.estimator_of", hungry)
    assert RunInputs(None, None, 2).run(Task("tell", 0)).memory > 1.5e8


def test_agreement_of_seeds():
    a, b = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    assert agreement([a, 1 - a]) == 1
    assert agreement([a, 1 - a, b]) == pytest.approx((1 - 0.5 - 0.5) / 3)
    assert agreement([a, None]) is None


def test_all_leaves_out_what_does_not_fit(monkeypatch, capsys):
    monkeypatch.setattr("diffclust.baselines.clusterer.free_memory", lambda: 1e9)
    names = names_of("all")
    kept = fitting(names, np.zeros((20_000, 2)) - 1, 3)
    said = capsys.readouterr().err
    assert "lrr is left out: 20000 rows would need 6.4 GB, and 1.0 GB are free." in said
    assert "nmf is left out: it needs values >= 0, and the smallest is -1." in said
    assert {"kmeans", "lsc-k", "spectral", "tell"} <= set(kept)
    assert set(names) - set(kept) >= {"lrr", "smr", "njw", "nmf", "nmf-lp"}
    assert fitting(names, np.zeros((100, 2)), 3) == names


def test_a_run_that_failed_is_a_line_without_scores():
    from diffclust.cli.comparing import run_of

    line = run_of(Task("lrr", 0), RunResult(failure="too large"), None, np.zeros(3))
    assert line["ACC"] is line["silhouette"] is line["gigabytes"] is None
    assert line["failure"] == "too large"
