"""How long computations on numbers let a limit or a signal of their caller end them.

`step` is called between the pieces of everything that can take long: rows of very long numbers, trial factors, rounds
of propagation. It does nothing unless a caller watches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_watcher: ContextVar[Callable[[], None] | None] = ContextVar("constrint.watcher", default=None)


def step() -> None:
    """Lets whoever watches look at the clock; that may raise."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher()


@contextmanager
def watched(watcher: Callable[[], None]) -> Iterator[None]:
    """Has `watcher` called often while the block runs; its exceptions end what runs there.

    A generator must not yield inside the block: the watcher would stay with whoever takes its values.
    """
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)
