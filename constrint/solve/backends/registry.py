"""The back-ends by name."""

from __future__ import annotations

from importlib import import_module
from typing import Final, cast

from constrint.errors import UnknownNameError
from constrint.solve.backends.backend import Backend

#: Module and class of each back-end, and the arguments that make it; a module is imported when it is asked for.
_BACKENDS: Final[dict[str, tuple[str, str, tuple[str, ...]]]] = {
    "auto": ("auto", "AutoBackend", ()),
    "native": ("native", "NativeBackend", ()),
    "numpy": ("native", "NativeBackend", ("numpy",)),
    "brute": ("brute", "BruteBackend", ()),
    "cpsat": ("cpsat", "CpSatBackend", ()),
    "python-constraint": ("python_constraint", "PythonConstraintBackend", ()),
}


def list_backends() -> tuple[str, ...]:
    """Names that `backend=` takes; the default of `solve` comes first."""
    return tuple(_BACKENDS)


def get_backend(name: str) -> Backend:
    """Returns the back-end of that name.

    Raises:
        UnknownNameError: When there is none; names the nearest.
    """
    if name not in _BACKENDS:
        raise UnknownNameError("back-end", name, _BACKENDS)
    module, class_name, arguments = _BACKENDS[name]
    made = getattr(import_module(f"constrint.solve.backends.{module}"), class_name)(*arguments)
    return cast(Backend, made)
