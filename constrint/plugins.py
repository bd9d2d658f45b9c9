"""Plug-ins: what installed packages offer as entry points, loaded one by one, so that one that fails costs no other."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, cast

from constrint.errors import ConstrintError, printed_line

#: Most characters of an exception in a message.
MAX_SHOWN = 200


class PluginWarning(UserWarning):
    """A package's entry point that cannot be used; its message is one line of printable text."""


def offered(group: str) -> list[Any]:
    """The entry points of a group; one name may be offered by several packages.

    A package whose list of entry points cannot be read is left out with a warning.
    """
    from importlib import metadata  # 30 ms that nothing that is built in waits for

    try:
        return list(metadata.entry_points(group=group))
    except Exception:  # noqa: BLE001 - the list of one package is broken: each is read alone
        points: list[Any] = []
        for package in metadata.distributions():
            with left_out(f"the package {package.metadata['Name']!r} has a broken list of entry points and"):
                points += package.entry_points.select(group=group)
        return points


def load(point: Any) -> Any:
    """The object of an entry point that a user named.

    Raises:
        ConstrintError: When the package cannot be imported; names the entry point and the reason.
    """
    try:
        return _loaded(point)
    except (Exception, SystemExit) as error:
        raise ConstrintError(f"{_named(point)} cannot be loaded: {_reason(error)}.") from error


def function_named(group: str, name: str) -> Callable[..., Any] | None:
    """The function that a package offers under a name; None where none does.

    Raises:
        ConstrintError: When the package cannot be imported, or offers something else.
    """
    for point in offered(group):
        if point.name == name:
            found = load(point)
            if not callable(found):
                raise ConstrintError(f"{_named(point)} is no function but {type(found).__name__}.")
            return cast("Callable[..., Any]", found)
    return None


def use_each(points: Iterable[Any], use: Callable[[str, Any], object]) -> None:
    """Hand the name and the object of each entry point on; one that fails on the way is left out with a warning."""
    for point in points:
        with left_out(_named(point)):
            use(point.name, _loaded(point))


@contextmanager
def left_out(what: str) -> Iterator[None]:
    """Turn any failure inside the block into a `PluginWarning` that names the plug-in."""
    try:
        yield
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a package may raise anything
        warnings.warn(f"{what} is left out: {_reason(error)}", PluginWarning, stacklevel=2)


def _loaded(point: Any) -> Any:
    with redirect_stdout(sys.stderr):  # what a package prints is no part of an answer
        return point.load()


def _named(point: Any) -> str:
    place = " ".join(filter(None, (getattr(point, "group", ""), getattr(point, "value", ""))))
    return f"the plug-in {point.name!r}" + (f" ({place})" if place else "")


def _reason(error: BaseException) -> str:
    """An exception as a line of printable text of bounded length."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - so may its exception
        text = ""
    text = printed_line(text if isinstance(error, ConstrintError) else f"{type(error).__name__}: {text}").rstrip(": ")
    return (text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}...").rstrip(".")
