"""What a step frees stays with the command."""

import os
import subprocess
import sys

import pytest

STEPS = """
import resource
import torch
from diffclust.cli.memory import keep_memory

kept = keep_memory()
torch.set_num_threads(1)
for step in range(4):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.ones(2**20) for _ in range(32)]  # 128 MiB
    del blocks
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages_of_the_last_step(**variables):
    shown = subprocess.run(
        [sys.executable, "-c", STEPS],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | variables,
    ).stdout.split()
    return shown[0] == "True", int(shown[1])


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_memory_stays_with_the_process():
    kept, pages = pages_of_the_last_step()
    if not kept:
        pytest.skip("another libc")
    assert pages < 1000  # of 32,768, most of which are usually fetched again otherwise


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_who_has_set_the_variables_is_not_overruled():
    assert pages_of_the_last_step(MALLOC_TRIM_THRESHOLD_="131072")[0] is False
