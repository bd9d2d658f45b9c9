"""The back-ends by name."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Final, cast

from constrint.errors import UnknownNameError, UsageError
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

#: The library of each back-end that the core does without: what is imported, and what it is called.
_LIBRARIES: Final = {"cpsat": ("ortools", "OR-tools"), "python-constraint": ("constraint", "python-constraint2")}


def list_backends() -> tuple[str, ...]:
    """Names that `backend=` takes; the default of `solve` comes first."""
    return tuple(_BACKENDS)


def get_backend(name: str) -> Backend:
    """Returns the back-end of that name.

    Raises:
        UnknownNameError: When there is none; names the nearest.
        UsageError: When its library is not installed; names the extra.
    """
    if name not in _BACKENDS:
        raise UnknownNameError("back-end", name, _BACKENDS)
    imported, library = _LIBRARIES.get(name, ("", ""))
    if imported and find_spec(imported) is None:
        raise UsageError(
            f"back-end {name!r} needs {library}, which is not installed: pip install 'constrint[solvers]'. "
            "The native back-end needs nothing."
        )
    module, class_name, arguments = _BACKENDS[name]
    made = getattr(import_module(f"constrint.solve.backends.{module}"), class_name)(*arguments)
    return cast(Backend, made)
