"""Kernels are compiled ahead, by other processes, and found by those who launch them."""

import json
import threading

import pytest
import torch

from diffclust.engine.accelerate import launch as launching
from diffclust.engine.accelerate.launch import _compile, can_rehearse, launch, rehearsal
from diffclust.engine.accelerate.side_stream import SideStream, runs_alone, side_by_side
from diffclust.engine.accelerate.sphere import FusedSphere
from diffclust.nn.cluster import PlainSphere


def test_several_runs_leave_no_room():
    assert runs_alone()
    with side_by_side(5):
        assert not runs_alone()
        with side_by_side(1):
            assert runs_alone()
    assert runs_alone()


def test_on_a_cpu_nothing_is_aside():
    side = SideStream(torch.device("cpu"))
    with side.overlap(torch.ones(1)):
        pass
    side.join()
    assert side.main is None


class Kernel:
    """Remembers what was done with it."""

    def __init__(self):
        self.done = []

    def __getitem__(self, grid):
        return lambda *arguments, **options: self.done.append("run")

    def warmup(self, *arguments, **options):
        self.done.append("collected")


@pytest.fixture
def knobs(tmp_path, monkeypatch):
    if not can_rehearse():
        pytest.skip("needs a Triton with knobs")
    from triton import knobs

    monkeypatch.setattr(knobs.cache, "dir", str(tmp_path))
    return knobs


def test_other_threads_run_their_kernels_during_a_rehearsal(knobs, monkeypatch):
    monkeypatch.setattr("diffclust.engine.accelerate.launch._compile", lambda collected: None)
    ours, theirs, hooks = Kernel(), Kernel(), []

    def use(kernel):
        launch(kernel, (1,), torch.ones(1))
        hooks.append(knobs.runtime.jit_cache_hook(compile={"specialization_data": ""}))  # True: do not compile

    with rehearsal():
        use(ours)
        other = threading.Thread(target=use, args=[theirs])
        other.start()
        other.join()
    launch(ours, (1,), torch.ones(1))
    assert (ours.done, theirs.done, hooks) == (["collected", "run"], ["run"], [True, False])


@pytest.fixture
def hopper(monkeypatch):
    """No GPU is needed to compile for one."""
    from triton.runtime import driver

    class Target:
        backend, arch, warp_size = "cuda", 90, 32

    class Active:
        def get_current_target(self):
            return Target()

    monkeypatch.setattr(driver, "_active", Active())
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def fold_mean(block):
    """What Triton calls specialization data."""
    return json.dumps(
        {
            "name": "diffclust.engine.accelerate.small_kernels.fold_mean",
            "signature": {
                "partial": "*fp32",
                "out": "*fp32",
                "programs": "i32",
                "count": "i32",
                "BLOCK": "constexpr",
                "PDL": "constexpr",
            },
            "constant_keys": [[4], [5]],
            "constant_vals": [block, False],
            "attrs_keys": [],
            "attrs_vals": [],
            "options": {"num_warps": 4},
        }
    )


def test_processes_share_the_kernels(knobs, hopper, tmp_path, monkeypatch):
    """Every kernel is compiled once, and what is in the cache not again, in this process or the next."""
    for name, empty in (("_compiled", set()), ("_ready", [])):
        monkeypatch.setattr(launching, name, empty)
    kernels = [fold_mean(block) for block in (32, 64, 128)]
    _compile(kernels)
    made = sorted(tmp_path.rglob("*.cubin"))
    assert [each.name for each in made] == ["fold_mean.cubin"] * 3
    assert launching._compiled == set(kernels)
    waiting = launching._start()
    launching._ready.append(waiting)
    times = [each.stat().st_mtime_ns for each in made]
    _compile(kernels[::-1])
    assert waiting.returncode is not None  # it was not needed, and has ended
    assert not launching._ready
    assert [each.stat().st_mtime_ns for each in made] == times


def test_a_process_that_has_ended_is_replaced(knobs, hopper, tmp_path, monkeypatch):
    ended = launching._start()
    ended.kill()
    ended.wait()
    monkeypatch.setattr(launching, "_ready", [ended])
    _compile([fold_mean(256)])
    assert ended.stdin.closed
    assert len(list(tmp_path.rglob("*.cubin"))) == 1


def test_what_was_not_compiled_is_tried_again(knobs, hopper, tmp_path, monkeypatch):
    """By the next rehearsal."""
    monkeypatch.setattr(launching, "_compiled", set())
    monkeypatch.setattr(launching, "FOLDER", tmp_path / "nothing")
    _compile([fold_mean(512)])
    assert not launching._compiled


def test_one_process_is_prepared_and_ended(monkeypatch):
    if not can_rehearse():
        pytest.skip("needs a Triton with knobs")
    monkeypatch.setattr(launching, "_was_ready", threading.Event())
    threads = [threading.Thread(target=launching.prepare_to_compile) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    (process,) = launching._ready
    launching.dismiss_compiler()
    assert process.returncode is not None
    assert not launching._ready


@pytest.mark.gpu
def test_a_rehearsal_compiles_and_runs_nothing(knobs, tmp_path):
    """Neither forward nor backward."""
    sphere, x = FusedSphere(), torch.randn(5, 300, device="cuda", requires_grad=True)  # a width that no other test has
    with rehearsal():
        torch.autograd.grad(sphere.unit_rows(x).sum(), x)
    kernels = sorted(tmp_path.rglob("*.cubin"))
    assert sorted(kernel.stem for kernel in kernels) == ["unit_rows", "unit_rows_gradient"]
    ours, plain = sphere.unit_rows(x), PlainSphere().unit_rows(x)
    torch.testing.assert_close(ours, plain)
    weights = torch.randn_like(x)
    torch.testing.assert_close(*(torch.autograd.grad((y * weights).sum(), x)[0] for y in (ours, plain)))
    assert sorted(tmp_path.rglob("*.cubin")) == kernels
