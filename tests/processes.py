"""Processes for the tests that need others than their own. They come from a server that has imported what they need:
torch alone takes seconds. `PROCESSES.Process(target=..., args=...)` takes a function of a module."""

import multiprocessing
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["torch._dynamo", "sklearn.datasets", "diffclust.cli.fitting", "diffclust.methods.tell", "diffclust.saving.save"]
)  # torch imports the first of them with its first optimiser


def die_while_saving(model, folder):
    """When the second of its files is put into place."""
    import diffclust

    original, calls = Path.replace, []
    Path.replace = lambda *args: os._exit(9) if len(calls) == 1 else (calls.append(args), original(*args))
    diffclust.load(model).save(folder)


def said_by(code, *arguments):
    """What a script prints, which runs in a process of its own with one thread."""
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder) / "said"
        process = PROCESSES.Process(target=script, args=[code, [*map(str, arguments)], said])
        process.start()
        process.join(300)
        assert process.exitcode == 0
        return said.read_text()


def script(code, arguments, said):
    import torch

    torch.set_num_threads(1)
    sys.argv = ["-c", *arguments]
    with said.open("w") as sys.stdout:
        exec(code, {"__name__": "__main__"})


def command(folder, words):
    """The command in a folder, with what it says in the files `said` and `err` there."""
    from diffclust.cli import main

    os.chdir(folder)
    sys.argv, sys.stdout, sys.stderr = ["diffclust", *words], Path("said").open("a"), Path("err").open("a")  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background ignore it
    main()


def command_that_waits(folder, words):
    """The same, in the midst of writing its third checkpoint."""
    from diffclust.engine import checkpoint

    write, written = checkpoint.write_flushed, []

    def write_and_wait(path, blob):
        write(path, blob)
        written.append(path)
        if len(written) == 3:
            time.sleep(600)

    checkpoint.write_flushed = write_and_wait
    command(folder, words)
