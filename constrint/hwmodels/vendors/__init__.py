"""GPU vendors: what differs between them, one folder each, found by the name that a GPU's file states.

A vendor from outside registers itself with `register_vendor`, or through the entry-point group `constrint.vendors`.
"""

from __future__ import annotations

from constrint.hwmodels.vendors.interface import BUILT_IN, GROUP, Vendor, get_vendor, list_vendors, register_vendor

__all__ = ["BUILT_IN", "GROUP", "Vendor", "get_vendor", "list_vendors", "register_vendor"]
