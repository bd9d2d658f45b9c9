"""The kernels there are, by name; a spec is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, cast

from constrint.errors import UnknownNameError

if TYPE_CHECKING:
    from constrint.hwmodels import GpuModel
    from constrint.select.spec import Config, KernelSpec, Workload
    from constrint.tune import CompiledKernel

#: Where a kernel's spec is (a module, and the name in its SPECS where it has several), and what compiles it.
_SPECS = {"gemm": "constrint.kernels.gemm.spec"}
_COMPILERS = {"gemm": "constrint.kernels.gemm.build"}
for _cell in ("lstm", "gru", "slstm", "elman"):
    for _name in (_cell, f"{_cell}-backward"):
        _SPECS[_name] = "constrint.kernels.rnn.spec"
        _COMPILERS[_name] = "constrint.kernels.rnn.build"
#: What is meant where no kernel is named.
DEFAULT_KERNEL = "gemm"


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
    found = import_module(module)
    several = getattr(found, "SPECS", None)
    return cast("KernelSpec", several[name.lower()] if several else found.SPEC)


def load_compiler(name: str) -> Callable[[GpuModel, Workload, Config], CompiledKernel]:
    """Load the function that compiles one configuration of a kernel for a named GPU (needs triton when called)."""
    module = import_module(_COMPILERS[load_kernel(name).name])
    return cast("Callable[[GpuModel, Workload, Config], CompiledKernel]", module.compile_config)
