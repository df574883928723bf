"""Kernels are compiled by other processes while training goes on, and used from the next epoch on."""

import json
import os
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from conftest import train
from diffclust import TELL
from diffclust.engine import phase as phases
from diffclust.engine.accelerate import compilers, layers
from diffclust.engine.accelerate.compilers import COMPILERS, Compilation, Compilers, begin
from diffclust.engine.accelerate.launch import has_triton
from diffclust.engine.data import Data
from diffclust.engine.model import Trainable
from diffclust.engine.phase import Phase
from diffclust.engine.rows import TensorRows
from diffclust.nn.chain import Chain

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

CPU = torch.device("cpu")


class Pending:
    """A compilation that is over when told."""

    def __init__(self):
        self.done = self.waited = False
        self.asked = []

    def over(self):
        return self.done

    def compile(self, kernels, wait):
        self.asked.append(kernels)
        if wait:
            self.done = self.waited = True
        return self


class Toy(Trainable):
    def __init__(self):
        super().__init__()
        self.layers = Chain(nn.Linear(2, 1))

    def loss(self, batch):
        return {"loss": self.layers(batch.x).square().mean()}


@pytest.fixture
def pending(monkeypatch):
    """As if the phase were a long one on a GPU."""
    pending = Pending()

    class Long(layers.Fusion):
        def __init__(self, *settings):
            super().__init__(*settings)
            self.long, self.compiled = True, False

    monkeypatch.setattr(phases, "Fusion", Long)
    monkeypatch.setattr(layers, "COMPILERS", pending)
    monkeypatch.setattr(layers, "kernels_of", lambda model, x: ["a kernel"])
    return pending


def kernels_of_steps(monkeypatch, on_step):
    """Whether each of four steps in each of four epochs runs by the kernels, and under which key."""
    seen, step = [], Phase.step

    def watched(phase):
        on_step(len(seen))
        key = phase.graph_key
        step(phase)
        seen.append((key, runs[-1]))

    runs = []
    forward = Toy.loss

    def loss(model, batch):
        runs.append(Chain.runner is not None)
        return forward(model, batch)

    monkeypatch.setattr(Toy, "loss", loss)
    monkeypatch.setattr(Phase, "step", watched)
    model = Toy()
    data = Data(TensorRows(torch.randn(16, 2)), CPU, 4)
    train([Phase("toy", model, data, torch.optim.SGD(model.parameters(), 1e-3), 4)])
    return seen


@pytest.mark.skipif(not has_triton(), reason="needs Triton")
def test_the_kernels_change_between_epochs(pending, monkeypatch):
    def on_step(number):
        pending.done = number >= 6  # in the middle of the second epoch

    seen = kernels_of_steps(monkeypatch, on_step)
    assert [fused for _, fused in seen] == [False] * 8 + [True] * 8
    assert pending.asked == [["a kernel"]]
    assert not pending.waited
    keys = [key for key, _ in seen]
    assert len(set(keys[:8])) == len(set(keys[8:])) == 1
    assert keys[0] != keys[8]  # so that another graph is recorded


@pytest.mark.skipif(not has_triton(), reason="needs Triton")
@pytest.mark.parametrize("exact", [False, True])
def test_the_first_step_has_them_where_they_are_known_or_waited_for(pending, monkeypatch, exact):
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: exact)
    pending.done = not exact
    seen = kernels_of_steps(monkeypatch, lambda number: None)
    assert [fused for _, fused in seen] == [True] * 16
    assert pending.waited is exact


def test_a_phase_on_a_cpu_waits_for_nothing():
    fusion = layers.Fusion(CPU, "float32", 10**9)
    assert fusion.compiled
    assert not fusion.long
    assert fusion.copies(Toy()) is None


# ---- the processes


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def forked(tmp_path):
    """A process that forks another, and both their numbers."""
    report = tmp_path / "pids"
    code = f"import os, time; os.fork(); open({str(report)!r}, 'a').write(f'{{os.getpid()}}\\n'); time.sleep(600)"
    process = begin([sys.executable, "-c", code], "")
    deadline = time.monotonic() + 60
    while not report.exists() or len(report.read_text().split()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    yield process, [int(pid) for pid in report.read_text().split()]
    process.kill()


def gone(pids):
    deadline = time.monotonic() + 30
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(alive, pids))


def test_all_processes_end_with_the_last_training(forked):
    process, pids = forked
    all_of_them = Compilers()
    with all_of_them:
        with all_of_them:
            all_of_them.running["key"] = compilation = Compilation(process)
            assert all_of_them.busy
        assert not compilation.over()  # another training is on
    assert gone(pids)
    assert not all_of_them.busy


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, None])
def test_a_fit_leaves_none_behind(forked, blobs, error):
    process, pids = forked

    def note(progress):
        COMPILERS.running["key"] = Compilation(process)
        if error is not None:
            raise error

    model = TELL(3, network="identity", epochs=2, device="cpu", random_state=0, callbacks=[note])
    if error is RuntimeError:
        with pytest.raises(RuntimeError):
            model.fit(blobs[0][:60])
    else:
        model.fit(blobs[0][:60])
    assert gone(pids)
    assert not COMPILERS.running


def test_what_was_compiled_is_marked_and_what_failed_is_not():
    marks = []
    mark = SimpleNamespace(put=lambda content, name: marks.append(name))
    for code in (0, 1):
        compilation = Compilation(begin([sys.executable, "-c", f"raise SystemExit({code})"], ""), mark)
        compilation.wait()
        assert compilation.over()
        compilation.stop()  # nothing to stop
        assert marks == ["compiled"]
    assert begin(["/no/such/program"], "") is None
    assert Compilation(None).over()


def test_a_process_reads_what_it_is_given(tmp_path):
    long = "x" * 2**20  # more than a pipe holds
    code = f"import sys; open({str(tmp_path / 'read')!r}, 'w').write(sys.stdin.read())"
    begin([sys.executable, "-c", code], long).wait()
    assert (tmp_path / "read").read_text() == long


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """Triton believes that there is an H200."""
    triton = pytest.importorskip("triton")
    from triton import knobs
    from triton.backends.compiler import GPUTarget

    active = SimpleNamespace(get_current_target=lambda: GPUTarget("cuda", 90, 32))
    monkeypatch.setattr(triton.runtime, "driver", SimpleNamespace(active=active))
    monkeypatch.setattr(knobs.cache, "dir", str(tmp_path / "cache"))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def test_who_asks_for_the_same_kernels_shares_the_work(offline, monkeypatch):
    started = []
    monkeypatch.setattr(
        compilers, "_start", lambda kernels, target: started.append(kernels) or begin(["sleep", "600"], "")
    )
    ours = Compilers()
    with ours:
        first, second = ours.compile(["a", "b"]), ours.compile(["b", "a"])
        third = ours.compile(["c"])
        assert ours.compile([]).over()
        assert first is second
        assert started == [["a", "b"], ["c"]]
        assert not first.over()
        assert not third.over()
    assert first.over()


def test_without_a_training_it_waits(offline, monkeypatch):
    monkeypatch.setattr(compilers, "_start", lambda kernels, target: begin(["sleep", "0.2"], ""))
    ours = Compilers()
    assert ours.compile(["a"]).over()
    monkeypatch.setattr(compilers, "_start", None)
    assert ours.compile(["a"]).over()  # marked as done


def test_kernels_are_compiled_for_a_gpu_that_is_not_here(offline, tmp_path):
    kernel = {
        "name": "accelerate.small_kernels.fold_mean",
        "signature": {
            **{"partial": "*fp32", "out": "*fp32", "programs": "i32", "count": "i32"},
            **{"BLOCK": "constexpr", "PDL": "constexpr"},
        },
        "constant_keys": [[4], [5]],
        "constant_vals": [128, False],
        "attrs_keys": [],
        "attrs_vals": [],
        "options": {"num_warps": 4},
    }  # fmt: skip
    Compilers().compile([json.dumps(kernel)])
    assert [file.stem for file in (tmp_path / "cache").rglob("*.cubin")] == ["fold_mean"]
