"""The training loop."""

import contextlib
from collections.abc import Hashable, Sequence

from .accelerate.capture import Steps
from .restart import Job, Restart


def train(restarts: Sequence[Restart]) -> None:
    """Train every restart until it has a result. Restarts that may run side by side do so, one epoch of each at a time;
    the result of a restart does not depend on the others.

    Ctrl-C ends the phase of the running restarts: each is then measured in its current state, and restarts that have
    not begun have no result.
    """
    jobs = list(dict.fromkeys(restart.job for restart in restarts))
    with contextlib.ExitStack() as watching:
        for job in jobs:
            watching.enter_context(job.watchers)
        for group in _side_by_side(restarts):
            steps = Steps(
                group[0].job.device,
                expected=max(restart.expected_steps for restart in group),
                capture=group[0].job.capture,
            )
            for restart in group:
                restart.advance()
            while running := [restart for restart in group if restart.result is None]:
                for job in jobs:
                    job.checkpoint.write()
                try:
                    for restart in running:
                        restart.begin_epoch()
                    steps.epoch([(restart.current, restart.randomness) for restart in running])
                    for restart in running:
                        restart.end_epoch()
                except KeyboardInterrupt:
                    if not all(restart.data.processes.alone for restart in running):
                        raise  # the other processes would wait for this one's next step
                    for restart in running:
                        restart.interrupt()
                for restart in running:
                    restart.advance()
            for job in jobs:
                job.checkpoint.write()
            if any(job.interrupted for job in jobs):
                break
    for job in jobs:
        if all(restart.result is not None for restart in restarts if restart.job is job) and not job.interrupted:
            job.checkpoint.clear()


def _side_by_side(restarts: Sequence[Restart]) -> list[list[Restart]]:
    """Groups of restarts that run at once: of several fits where these are on one device and allow for it, else of one
    fit."""
    alike: dict[Hashable, list[Restart]] = {}
    for restart in restarts:
        job: Job = restart.job
        alike.setdefault((job.device, job.at_once, job.capture) if job.at_once > 1 else id(job), []).append(restart)
    return [
        each[first : first + each[0].job.at_once]
        for each in alike.values()
        for first in range(0, len(each), each[0].job.at_once)
    ]
