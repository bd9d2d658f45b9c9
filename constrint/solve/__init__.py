"""Finds, counts and explains the solutions of a `constrint.model.Problem`, natively on numpy.

The package can be called: `constrint.solve(problem)` is `constrint.solve.solve(problem)`, so that
`from constrint import solve` is the function, whatever was imported before. `__init__.pyi` lists the names; each is
imported at its first use.
"""

import sys
from types import ModuleType
from typing import Any

from constrint.lazy import from_stub

__getattr__, __dir__, __all__ = from_stub(globals())


class _Callable(ModuleType):
    """A package that is called like the function of its name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from constrint.solve.optimise import solve

        return solve(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
