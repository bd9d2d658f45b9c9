"""The address of a store: the user's own file, a named file, or a database that a team shares.

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
from constrint.tune.store.backends import SCHEME, backend_named, shown

#: File of the user's own store, in the user's cache folder. It outlives upgrades, unlike `constrint.cache`.
FILE_NAME = "records.sqlite"
#: Ways to name a store, for errors.
WAYS = "name a file, sqlite:///FILE or postgresql://USER@HOST/DATABASE"


def default_path() -> Path:
    """The file of the user's own store."""
    from platformdirs import user_cache_path

    return (cache.user_folder() or user_cache_path("constrint")) / FILE_NAME


def url_of(named: str | Path | None) -> URL:
    """The address of a store.

    Args:
        named: A path, a URL, or None for the store of the environment, else the user's own.

    Raises:
        UsageError: When it is neither a file nor a database that can hold records.
    """
    named = named or os.environ.get("CONSTRINT_STORE") or default_path()
    if isinstance(named, Path) or not SCHEME.match(named):
        return url_of_file(str(named))
    try:
        url = make_url(named)
    except (ArgumentError, ValueError):
        raise UsageError(f"the store's URL {shown(named)} cannot be read: {WAYS}.") from None
    backend = backend_named(url.get_backend_name())
    address = None if backend is None else backend.address(url)
    if address is None:
        raise UsageError(f"{shown(url)} cannot hold records: {WAYS}.")
    return address


def url_of_file(name: str) -> URL:
    """The address of a file.

    Raises:
        UsageError: When the name is empty or has a NUL character.
    """
    if not name or "\0" in name:
        raise UsageError(f"{name!r} is no name of a file: {WAYS}.")
    return URL.create("sqlite", database=os.path.abspath(os.path.expanduser(name)))
