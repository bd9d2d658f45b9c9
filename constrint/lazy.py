"""Names of a package that are imported when they are first asked for, so that a command loads only what it uses."""

from __future__ import annotations

from importlib import import_module

# As type checkers know it; `typing` takes longer to import than all else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def lazily(package: str, modules: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """The `__getattr__` of a package that offers names of modules that it does not import itself.

    Args:
        package: The package's `__name__`.
        modules: The names by the module, relative to the package, that has them.
    """
    module_of = {name: f"{package}.{module}" for module, names in modules.items() for name in names}

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(module_of[name]), name)

    return load


def names_of(namespace: Mapping[str, Any], modules: Mapping[str, tuple[str, ...]]) -> Callable[[], list[str]]:
    """The `__dir__` of such a package: what it holds already, and what it offers.

    Args:
        namespace: The package's `globals()`.
        modules: The names by the module that has them.
    """
    return lambda: sorted({*namespace, *(name for names in modules.values() for name in names)})
