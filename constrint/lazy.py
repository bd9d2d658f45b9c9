"""Packages whose names are imported at their first use, so that a command loads only the files it uses."""

from __future__ import annotations

import sys
from importlib import import_module

# As type checkers know it; `typing` takes longer to import than all else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def from_stub(namespace: dict[str, Any]) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Make `__getattr__`, `__dir__` and `__all__` of a package from its stub, the list that type checkers read too.

    Args:
        namespace: The package's `globals()`; the stub beside its file is `__init__.pyi` and consists of
            `from module import name as name`.
    """
    package = namespace["__name__"]
    modules = _stub_names(package, namespace["__file__"])
    offered = sorted(name for names in modules.values() for name in names)
    return lazily(package, modules), names_of(namespace, modules), offered


def lazily(package: str, modules: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Make the `__getattr__` of a package that offers names of modules which it does not import itself.

    A name is searched for once; then it is an attribute of the package.

    Args:
        package: The package's `__name__`.
        modules: The names by the module, relative to the package, that defines them.
    """
    module_of = {name: f"{package}.{module}" for module, names in modules.items() for name in names}

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(module_of[name]), name)
        # From here on the package has the name itself: to search for it takes longer than to enqueue a kernel.
        vars(sys.modules[package]).setdefault(name, found)
        return found

    return load


def names_of(namespace: Mapping[str, Any], modules: Mapping[str, tuple[str, ...]]) -> Callable[[], list[str]]:
    """Make the `__dir__` of such a package: its own names and those it offers.

    Args:
        namespace: The package's `globals()`.
        modules: The names by the module that defines them.
    """
    return lambda: sorted({*namespace, *(name for names in modules.values() for name in names)})


def _stub_names(package: str, file: str) -> dict[str, tuple[str, ...]]:
    """The names of a package's stub by module, relative to the package; submodules of the package stand under ""."""
    names: dict[str, tuple[str, ...]] = {}
    module = ""
    with open(file + "i", encoding="utf-8") as lines:
        for line in lines:
            words = line.replace(",", " ").split()
            if words[:1] == ["from"]:
                module, words = words[1][len(package) + 1 :], words[3:]
            names[module] = names.get(module, ()) + tuple(
                name for name, word in zip(words[2:], words[1:], strict=False) if word == "as"
            )
    return names
