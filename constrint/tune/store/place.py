"""Where a store is: the user's own file, a file that is named, or a PostgreSQL database that a team shares.

Environment:
    CONSTRINT_STORE: The store where none is named: a path, `sqlite:///…` or `postgresql://…`.
    CONSTRINT_CACHE: The folder of the user's own store where neither is; `0` leaves the default.
"""

from __future__ import annotations

import os
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from constrint import cache
from constrint.errors import UsageError

#: The file of the user's own store, in the user's cache folder. It outlives upgrades, unlike `constrint.cache`.
FILE_NAME = "records.sqlite"
#: What an error says about how to name a store.
WAYS = "name a file, sqlite:///FILE or postgresql://USER@HOST/DATABASE"


def default_path() -> Path:
    """The file of the user's own store."""
    from platformdirs import user_cache_path

    return (cache.user_folder() or user_cache_path("constrint")) / FILE_NAME


def url_of(named: str | Path | None) -> URL:
    """The address of a store.

    Args:
        named: A path, a URL, or None for the one of the environment or else the user's own.

    Raises:
        UsageError: When it is neither a file nor a PostgreSQL database.
    """
    named = named or os.environ.get("CONSTRINT_STORE") or default_path()
    if isinstance(named, Path) or "://" not in named:
        return _of_file(str(named))
    try:
        url = make_url(named)
    except (ArgumentError, ValueError):
        raise UsageError(f"the store's URL {named!r} cannot be read: {WAYS}.") from None
    kind = url.get_backend_name()
    if kind == "sqlite" and url.database and url.database != ":memory:" and not url.query:
        return _of_file(url.database)
    if kind in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    raise UsageError(f"{shown(url)} cannot hold records: {WAYS}.")


def shown(url: URL) -> str:
    """The address as it may be printed: the path of a file, a URL without its password."""
    # Bytes of a file's name that are no text are shown escaped.
    if url.get_backend_name() == "sqlite" and url.database:
        return url.database.encode(errors="backslashreplace").decode()
    return url.set(drivername=url.get_backend_name()).render_as_string(hide_password=True)


def _of_file(name: str) -> URL:
    if not name or "\0" in name:
        raise UsageError(f"{name!r} is no name of a file: {WAYS}.")
    return URL.create("sqlite", database=os.path.abspath(os.path.expanduser(name)))
