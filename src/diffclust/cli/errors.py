"""Error messages of the command, and its exit codes: 0, 1 (failed), 2 (wrong usage), 3 (done, but with warnings, and
--strict is given)."""

import sys
from typing import TextIO

USAGE_ERRORS = (
    ValueError,
    TypeError,
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)
EXIT_WARNINGS = 3  # of --strict


class UsageError(ValueError):
    """The command was called with wrong arguments."""


def say(text: str) -> None:
    print(f"diffclust: {' '.join(text.split())}", file=sys.stderr)


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    say(f"warning: {message}")


def message_and_code(error: Exception) -> tuple[str, int]:
    """The message and the exit code for an error."""
    if hasattr(error, "format_message"):  # an error of typer
        return error.format_message(), 2
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    return text, 2 if isinstance(error, USAGE_ERRORS) else 1
