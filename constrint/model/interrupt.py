"""Interruption of long computations: their caller's limit or signal ends them.

Long computations call `step` between their pieces: rows of very long numbers, trial factors, rounds of propagation. It
does nothing outside a `watched` block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_watcher: ContextVar[Callable[[], None] | None] = ContextVar("constrint.watcher", default=None)


def step() -> None:
    """Call the watcher of the enclosing `watched` block, if any; its exceptions end the computation."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher()


@contextmanager
def watched(watcher: Callable[[], None]) -> Iterator[None]:
    """Call `watcher` at every `step` inside the block; its exceptions end the computation.

    A generator must not yield inside the block: the watcher would stay active in its consumer.
    """
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)
