"""The back-ends by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from constrint.errors import UnknownNameError
from constrint.solve.backends.backend import Backend
from constrint.solve.backends.brute import BruteBackend
from constrint.solve.backends.cpsat import CpSatBackend
from constrint.solve.backends.native import NativeBackend
from constrint.solve.backends.python_constraint import PythonConstraintBackend

_BACKENDS: Final[dict[str, Callable[[], Backend]]] = {
    "native": NativeBackend,
    "numpy": lambda: NativeBackend("numpy"),
    "brute": BruteBackend,
    "cpsat": CpSatBackend,
    "python-constraint": PythonConstraintBackend,
}


def list_backends() -> tuple[str, ...]:
    """Names that `get_backend` takes; the default comes first."""
    return tuple(_BACKENDS)


def get_backend(name: str) -> Backend:
    """Returns the back-end of that name.

    Raises:
        UnknownNameError: When there is none; names the nearest.
    """
    if name not in _BACKENDS:
        raise UnknownNameError("back-end", name, _BACKENDS)
    return _BACKENDS[name]()
