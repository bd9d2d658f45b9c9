"""Back-ends: the native engine and independent solvers behind one small protocol, to cross-check it.

A back-end lists all solutions of a problem as integer columns and finds one (the best, where the problem has
an objective). Each imports its library when it is used, not before.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from numpy.typing import NDArray

from constrint.errors import UnknownNameError
from constrint.model import Problem
from constrint.solve.budget import Limits
from constrint.solve.solution import Solution

Columns = dict[str, NDArray[Any]]


class Backend(Protocol):
    """What a solver must be able to do."""

    name: str

    def solutions(self, problem: Problem, limits: Limits) -> Columns:
        """Lists every solution once: one integer column per variable, in declared order of variables.

        Raises:
            LimitReachedError: When a limit ended the search before all solutions were known.
            UnsupportedError: When the problem has something that this back-end cannot express.
        """

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Finds the best solution by the problem's objective; any solution without one."""


_NAMES: Final = ("native", "numpy", "brute", "cpsat", "python-constraint")


def list_backends() -> tuple[str, ...]:
    """Names that `get_backend` takes; the default comes first."""
    return _NAMES


def get_backend(name: str) -> Backend:
    """Returns the back-end of that name.

    Raises:
        UnknownNameError: When there is none; names the nearest.
    """
    if name in ("native", "numpy"):
        from constrint.solve.backends.native import NativeBackend

        return NativeBackend(name)
    if name == "brute":
        from constrint.solve.backends.brute import BruteBackend

        return BruteBackend()
    if name == "cpsat":
        from constrint.solve.backends.cpsat import CpSatBackend

        return CpSatBackend()
    if name == "python-constraint":
        from constrint.solve.backends.python_constraint import PythonConstraintBackend

        return PythonConstraintBackend()
    raise UnknownNameError("back-end", name, _NAMES)
