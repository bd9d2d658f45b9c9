"""The compiled core: reads restrictions, lists tables and walks solutions in C++, many times faster than numpy.

It is optional: `compiled` is None where it was not built (no C++ compiler at install time), and everything works
without it. It takes problems whose domains are listed, have at most 4,096 values each and whose values stay below
2^62, and declines others, which the numpy path solves. It knows nothing of the rest of the package.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

# An extension that was built from other sources (an old editable install) is not used: install again.
INTERFACE: Final = 13


def _loaded() -> ModuleType | None:
    try:
        from constrint.core import _core
    except ImportError:
        return None
    return _core if _core.INTERFACE == INTERFACE else None


compiled: Final = _loaded()
