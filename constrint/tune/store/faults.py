"""What databases complain of, as errors of this project that say the way out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from constrint.errors import StoreDamagedError, StoreError, StoreFullError, StoreReadOnlyError
from constrint.tune.store.place import shown

#: Seconds that a writer waits for the writers before it.
BUSY_S = 60.0
#: What SQLite says of a file that is no longer a database.
DAMAGED = ("malformed", "not a database", "unsupported file format")
Fault = tuple[type[StoreError], str]
#: SQLite's words -> the error, and what may be done.
SAID: dict[str, Fault] = {
    **dict.fromkeys(DAMAGED, (StoreDamagedError, "open it again: it is then set aside, and a fresh one begun")),
    "disk is full": (StoreFullError, "free some space, or name a store elsewhere with CONSTRINT_STORE"),
    "disk I/O error": (StoreFullError, "free some space or see to the disk, or name a store elsewhere"),
    "readonly database": (StoreReadOnlyError, "change its permissions, or name a store elsewhere with CONSTRINT_STORE"),
    "unable to open": (StoreReadOnlyError, "see that its folder can be written to, or name a store elsewhere"),
    "database is locked": (StoreError, "another process has been writing for a long time; end it or try again later"),
}
#: How PostgreSQL's SQLSTATE code begins -> the same.
STATES: dict[str, Fault] = {
    "53100": (StoreFullError, "the server has no room for it; ask its administrator, or name another store"),
    "25006": (StoreReadOnlyError, "the server takes no writes now; name the primary, or another store"),
    "42501": (StoreReadOnlyError, "the user may not do this; ask for the right, or name another store"),
}
OTHERWISE = "see that the server runs and the URL is right, or name another store"


@contextmanager
def told(url: URL) -> Iterator[None]:
    """Raise what a database complains of inside the block as a `StoreError`."""
    try:
        yield
    except DBAPIError as error:
        raise fault_of(url, error) from error
    except PoolTimeoutError as error:
        raise StoreError(f"the store {shown(url)} has no free connection: close some searches of it.") from error


def fault_of(url: URL, error: DBAPIError) -> StoreError:
    """What is wrong with a store, and the way out."""
    text = " ".join(str(error.orig).split())
    code = getattr(error.orig, "sqlstate", None) or ""
    by_words = (fault for words, fault in SAID.items() if words in text)
    by_state = (fault for state, fault in STATES.items() if code.startswith(state))
    kind, way_out = next(by_state if code else by_words, (StoreError, OTHERWISE))
    return kind(f"the store {shown(url)} failed: {text}; {way_out}.")
