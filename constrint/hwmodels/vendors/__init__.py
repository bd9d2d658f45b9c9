"""GPU vendors: what differs between them, one folder each, found by the name that a GPU's file states.

A vendor from outside registers itself with `register_vendor`, or through the entry-point group `constrint.vendors`.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from constrint import plugins
from constrint.errors import UnknownNameError, UsageError
from constrint.hwmodels.vendors.interface import Vendor

__all__ = ["GROUP", "Vendor", "get_vendor", "list_vendors", "register_vendor"]

#: Folders beside this file; each has a `VENDOR`. In the order in which GPUs are listed.
BUILT_IN = ("nvidia", "amd")
#: Entry points of other distributions: each names a `Vendor` object.
GROUP = "constrint.vendors"

_registered: dict[str, Vendor] = {}


def register_vendor(vendor: Vendor) -> None:
    """Make a vendor known under its name; registering the same object again changes nothing.

    Raises:
        UsageError: When another vendor has the name, or its SM struct is not tagged with it or lacks keys.
    """
    struct: Any = vendor.sm_type
    missing = [key for key in struct.required_keys() if key not in struct.__struct_fields__]
    if missing:
        raise UsageError(f"the SM struct of the vendor {vendor.name!r} lacks {', '.join(missing)}.")
    if struct.__struct_config__.tag != vendor.name:
        raise UsageError(f"the SM struct of the vendor {vendor.name!r} needs tag_field='vendor', tag={vendor.name!r}.")
    if _registered.setdefault(vendor.name, vendor) is not vendor:
        raise UsageError(f"a vendor named {vendor.name!r} is registered already; choose another name.")


def get_vendor(name: str) -> Vendor:
    """The vendor of that name.

    Raises:
        UnknownNameError: When none is registered; lists those that are.
    """
    _load_built_in()
    if name not in _registered:
        _load()
    if name not in _registered:
        raise UnknownNameError("vendor", name, _registered, "`register_vendor` adds one.")
    return _registered[name]


def list_vendors() -> tuple[Vendor, ...]:
    """Every vendor: those of this distribution, then the others in the order of their registration."""
    _load()
    return tuple(sorted(_registered.values(), key=lambda v: (*BUILT_IN, v.name).index(v.name)))


@functools.cache
def _load_built_in() -> None:
    """Register what stands in the folders beside this file."""
    for name in BUILT_IN:
        register_vendor(importlib.import_module(f"{__name__}.{name}").VENDOR)


@functools.cache
def _load() -> None:
    """Register these and what stands behind the entry points."""
    _load_built_in()
    plugins.use_each(plugins.offered(GROUP), lambda _, vendor: register_vendor(vendor))
