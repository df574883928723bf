"""The command. Everything heavy is imported when a command runs, so that --help answers at once."""

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
from .errors import Wrong, complaint, say, show_warning
from .explaining import explain, report
from .fitting import describe, fit, predict
from .reproducing import reproduce
from .sigterm import TERMINATED, Terminated, sigterm_raises

__all__ = ["app", "main"]

CTRL_C = 130  # typer's number for it

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
        raise Wrong(f"{context.invoked_subcommand}: only 'fit' can run in several processes.")


for command in (methods, describe, fit, predict, explain, report, compare, demo, reproduce):  # as --help lists them
    app.command()(command)


def main() -> None:
    """Exit codes: 0, 1 (it failed, or was stopped by Ctrl-C, however often), 2 (you asked wrongly), 3 (--strict), 143
    (stopped by SIGTERM). One line an error; DIFFCLUST_TRACEBACK=1 shows more."""
    try:
        try:
            with sigterm_raises():
                code = _run()
        except KeyboardInterrupt:
            code = CTRL_C
        except Terminated as stop:
            say(f"stopped by SIGTERM.{stop}")
            code = TERMINATED
        _no_more_ctrl_c()
    except KeyboardInterrupt:  # when all was done already: the code is what it was
        _no_more_ctrl_c()
    if code == CTRL_C:
        say("stopped")
        code = 1
    sys.exit(code or 0)


def _no_more_ctrl_c() -> None:
    """On the way out there is nothing left to stop."""
    with contextlib.suppress(ValueError):  # in a thread
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run() -> int | None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files are in any encoding, and none ends a command
    with warnings.catch_warnings():
        warnings.showwarning = show_warning
        try:
            return app(sys.argv[1:] or ["--help"], prog_name="diffclust", standalone_mode=False)
        except typer.Abort:
            return CTRL_C
        except Exception as error:
            if os.environ.get("DIFFCLUST_TRACEBACK"):
                raise
            text, code = complaint(error)
            say(text)
            return code
