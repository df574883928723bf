"""The command `diffclust`. Slow imports happen when a command runs, so that --help answers at once."""

import contextlib
import io
import os
import signal
import sys
import warnings
from typing import Annotated

import typer

from .. import __version__
from .comparing import compare, demo, methods
from .errors import UsageError, message_and_code, say, show_warning
from .explaining import explain, report
from .fitting import describe, fit, predict
from .reproducing import reproduce
from .sigterm import TERMINATED, Terminated, sigterm_raises

__all__ = ["app", "main"]

TYPER_INTERRUPTED = 130  # exit code that typer gives for Ctrl-C

app = typer.Typer(
    pretty_exceptions_enable=False,
    help="Deep clustering with PyTorch: cluster, explain and compare your data.",
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"diffclust {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand != "fit" and int(os.environ.get("LOCAL_WORLD_SIZE", 1)) > 1:  # torchrun's
        raise UsageError(f"{context.invoked_subcommand}: only 'fit' can run in several processes.")


for command in (methods, describe, fit, predict, explain, report, compare, demo, reproduce):  # as --help lists them
    app.command()(command)


def main() -> None:
    """Exit codes: 0, 1 (failed, or stopped by Ctrl-C), 2 (wrong usage), 3 (--strict), 143 (stopped by SIGTERM). An
    error is one line; DIFFCLUST_TRACEBACK=1 shows the traceback."""
    try:
        try:
            with sigterm_raises():
                code = _run()
        except KeyboardInterrupt:
            code = TYPER_INTERRUPTED
        except Terminated as stop:
            say(f"stopped by SIGTERM.{stop}")
            code = TERMINATED
        _no_more_ctrl_c()
    except KeyboardInterrupt:  # the command had ended: its exit code stays
        _no_more_ctrl_c()
    if code == TYPER_INTERRUPTED:
        say("stopped")
        code = 1
    sys.exit(code or 0)


def _no_more_ctrl_c() -> None:
    """Ignore Ctrl-C while the process exits."""
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run() -> int | None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files may be in any encoding
    with warnings.catch_warnings():
        warnings.showwarning = show_warning
        try:
            return app(sys.argv[1:] or ["--help"], prog_name="diffclust", standalone_mode=False)
        except typer.Abort:
            return TYPER_INTERRUPTED
        except Exception as error:
            if os.environ.get("DIFFCLUST_TRACEBACK"):
                raise
            text, code = message_and_code(error)
            say(text)
            return code
