"""Inspection of compiled kernels before their launch: whether they spill, and whether blocks that wait are resident."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from constrint.select.candidate import CompiledKernel

#: Bytes of a register; Triton counts spills in registers.
REGISTER_BYTES = 4


class SpilledError(Exception):
    """Raised before a launch: a kernel's registers go to memory.

    Args:
        compiled: The compiler's figures of the kernel.
    """

    def __init__(self, compiled: CompiledKernel) -> None:
        super().__init__(f"{compiled.spill_bytes} bytes of a thread's registers go to memory")
        self.compiled = compiled


def look(launches: Sequence[Any], *, may_spill: bool = False) -> None:
    """Compile launches for the device of their tensors; raise where one spills or would wait for ever.

    Args:
        launches: Launches that have `compiled` or `check_resident`; others are passed over.
        may_spill: Whether a kernel that spills is accepted.

    Raises:
        SpilledError: When one spills and may not.
        CompileError, triton.errors.TritonError: When one does not compile, or does not fit the device.
        DoesNotFitError: When one does not fit the device, or its blocks wait for others that are not resident.
    """
    if not may_spill:
        check_spills(launch.compiled() for launch in launches if hasattr(launch, "compiled"))
    for launch in launches:
        if hasattr(launch, "check_resident"):
            launch.check_resident()


def check_spills(kernels: Iterable[Any]) -> None:
    """Raise for the first compiled kernel that spills.

    Args:
        kernels: Compiled kernels of Triton or `CompiledCuda`; None for launches without a kernel.

    Raises:
        SpilledError: With the compiler's figures.
    """
    for kernel in kernels:
        if getattr(kernel, "n_spills", 0):
            raise SpilledError(_figures_of(kernel))


def _figures_of(kernel: Any) -> CompiledKernel:
    if hasattr(kernel, "stated"):
        stated: CompiledKernel = kernel.stated
        return stated
    import triton

    target = kernel.metadata.target
    name = f"sm_{target.arch}" if target.backend == "cuda" else str(target.arch)
    return CompiledKernel(
        target=name,
        triton_version=triton.__version__,
        smem_bytes=int(kernel.metadata.shared),
        registers_per_thread=int(kernel.n_regs),
        accumulator_registers=0,
        spill_bytes=REGISTER_BYTES * int(kernel.n_spills),
        instruction="",
    )
