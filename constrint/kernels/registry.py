"""The kernels there are, by name; a spec is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from constrint.errors import UnknownNameError

if TYPE_CHECKING:
    from constrint.select.spec import KernelSpec

_SPECS = {"gemm": "constrint.kernels.gemm.spec"}


def list_kernels() -> tuple[str, ...]:
    """Names of all kernels."""
    return tuple(_SPECS)


def load_kernel(name: str) -> KernelSpec:
    """Load a kernel's spec by name, case-insensitively.

    Raises:
        UnknownNameError: When there is no such kernel.
    """
    module = _SPECS.get(name.lower())
    if module is None:
        raise UnknownNameError("kernel", name, _SPECS)
    return cast("KernelSpec", import_module(module).SPEC)
