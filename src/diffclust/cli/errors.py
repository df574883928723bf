"""What the command says when something is wrong, and its exit codes: 0, 1 (it failed), 2 (you asked wrongly), 3 (it is
done, but --strict was asked for and there are warnings)."""

import sys
from typing import TextIO

ASKED_WRONGLY = (
    ValueError,
    TypeError,
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)
UNSOUND = 3


class Wrong(ValueError):
    """You asked wrongly."""


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


def complaint(error: Exception) -> tuple[str, int]:
    """What to say of an error, and the exit code."""
    if hasattr(error, "format_message"):  # typer's own
        return error.format_message(), 2
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    return text, 2 if isinstance(error, ASKED_WRONGLY) else 1
