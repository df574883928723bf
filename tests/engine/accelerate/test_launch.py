"""Kernels are compiled ahead, by other processes, and found by those who launch them."""

import pytest
import torch

from diffclust.engine.accelerate.launch import can_rehearse, rehearsal
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


@pytest.mark.gpu
def test_a_rehearsal_compiles_and_runs_nothing(tmp_path, monkeypatch):
    if not can_rehearse():
        pytest.skip("needs a Triton with knobs")
    from triton import knobs

    monkeypatch.setattr(knobs.cache, "dir", str(tmp_path))
    sphere, x = FusedSphere(), torch.randn(5, 300, device="cuda")  # a width that no other test has
    with rehearsal():
        sphere.unit_rows(x)
    kernels = sorted(tmp_path.rglob("*.cubin"))
    assert [kernel.stem for kernel in kernels] == ["unit_rows"]
    torch.testing.assert_close(sphere.unit_rows(x), PlainSphere().unit_rows(x))
    assert sorted(tmp_path.rglob("*.cubin")) == kernels
