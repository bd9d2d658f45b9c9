"""Text of a user's file: read up to a limit, or refused with the reason."""

from __future__ import annotations

from pathlib import Path

from constrint.errors import UsageError


def read_text(path: Path, what: str, most: int) -> str:
    """Read a UTF-8 text file, at most `most` + 1 characters of it.

    Args:
        path: The file.
        what: Name of the file in error messages: "the problem file".
        most: Characters.

    Raises:
        UsageError: When it cannot be read, or is no text.
    """
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(most + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read {what} {path}: {reason}.") from None
