"""Writes the page: whole or not at all, and over nothing that is there unless that is asked for."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from constrint.errors import UsageError


def check_place(place: Path, *, is_forced: bool) -> None:
    """Refuse a file that cannot be written before any work is done.

    Raises:
        UsageError: When it exists and may not be written over, is a folder, or has no folder to be in.
    """
    if place.is_dir():
        raise UsageError(f"--out {place} is a folder; name a file in it, for example {place / 'report.html'}.")
    if place.exists() and not is_forced:
        raise UsageError(f"{place} exists; name another file with --out, or write over it with --force.")
    if not place.parent.is_dir():
        raise UsageError(f"--out {place}: there is no folder {place.parent}; make it first.")


def write_page(page: str, place: Path, *, is_forced: bool) -> None:
    """Write a page beside its place, then move it there.

    Raises:
        UsageError: When it cannot be written; what was there before stays.
    """
    check_place(place, is_forced=is_forced)
    if place.exists() and not place.is_file():
        _write_into(page, place)
        return
    name = ""
    try:
        handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.", suffix=".part")
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(page)
        os.chmod(name, 0o666 & ~_mask())
        os.replace(name, place)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(name)
        if not isinstance(error, OSError):
            raise
        raise UsageError(f"{place} cannot be written: {error.strerror}; name another file with --out.") from None


def _write_into(page: str, place: Path) -> None:
    """Write into what is no plain file, such as a device."""
    try:
        place.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{place} cannot be written: {error.strerror}; name another file with --out.") from None


def _mask() -> int:
    """The rights that new files are made without; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def date_of_today() -> str:
    """Today in UTC; the day of SOURCE_DATE_EPOCH where that is set, so that a page can be made again to the byte."""
    stated = os.environ.get("SOURCE_DATE_EPOCH", "")
    if stated.isascii() and stated.isdecimal() and len(stated) <= 11:
        return datetime.fromtimestamp(int(stated), timezone.utc).strftime("%Y-%m-%d")
    return datetime.now(timezone.utc).strftime("%Y-%m-%d")
