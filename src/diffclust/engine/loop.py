"""The training loop."""

import contextlib
from collections.abc import Hashable, Sequence

from .accelerate.capture import StepRunner
from .accelerate.launch import dismiss_compiler
from .restart import FitContext, Restart
from .threads import threads_for


def train(restarts: Sequence[Restart]) -> None:
    """Train every restart until it has a result. Restarts that may run side by side do so, one epoch of each at a time;
    the result of a restart does not depend on the others.

    Ctrl-C ends the phase of the running restarts: each is then measured in its current state, and restarts that have
    not begun have no result.
    """
    contexts = list(dict.fromkeys(restart.context for restart in restarts))  # one for each fit
    with contextlib.ExitStack() as watching:
        watching.callback(dismiss_compiler)
        for context in contexts:
            watching.enter_context(context.watchers)
        for group in _side_by_side(restarts):
            runner = StepRunner(
                group[0].context.device,
                expected=max(restart.expected_steps for restart in group),
                capture=group[0].context.capture,
            )
            for restart in group:
                restart.advance()  # starts the first phase
            while running := [restart for restart in group if restart.result is None]:
                with threads_for(all(restart.current.short_steps for restart in running)):
                    while not any(restart.current.over for restart in running):
                        for context in contexts:
                            context.checkpoint.write()
                        try:
                            for restart in running:
                                restart.begin_epoch()
                            runner.run_epoch([(restart.current, restart.randomness) for restart in running])
                            for restart in running:
                                restart.end_epoch()
                        except KeyboardInterrupt:
                            if not all(restart.data.processes.alone for restart in running):
                                raise  # the other processes would wait for this one's next step
                            for restart in running:
                                restart.interrupt()
                for restart in running:
                    restart.advance()  # to the next phase, or to the result
            for context in contexts:
                context.checkpoint.write()
            if any(context.interrupted for context in contexts):
                break
    for context in contexts:
        if (
            all(restart.result is not None for restart in restarts if restart.context is context)
            and not context.interrupted
        ):
            context.checkpoint.clear()


def _side_by_side(restarts: Sequence[Restart]) -> list[list[Restart]]:
    """Groups of restarts that run side by side: restarts of several fits if all are on the same device and allow it,
    otherwise of one fit."""
    alike: dict[Hashable, list[Restart]] = {}
    for restart in restarts:
        context: FitContext = restart.context
        alike.setdefault(
            (context.device, context.at_once, context.capture) if context.at_once > 1 else id(context), []
        ).append(restart)
    return [
        each[first : first + each[0].context.at_once]
        for each in alike.values()
        for first in range(0, len(each), each[0].context.at_once)
    ]
