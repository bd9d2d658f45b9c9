"""`constrint.rank`: the best configurations of a kernel, a GPU and a workload that the caller names."""

from __future__ import annotations

from pathlib import Path

from constrint.errors import UsageError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.registry import load_kernel
from constrint.select.rank import rank as ranked
from constrint.select.ranking import Ranking
from constrint.select.spec import KernelSpec, Operation
from constrint.select.workload import Workload, check_all_sizes, workload_of


def rank(
    kernel: str | Operation | KernelSpec,
    gpu: str | Path | GpuModel,
    workload: Workload | None = None,
    *,
    dtype: str | None = None,
    top: int = 10,
    compile: int = 0,
    strict: bool = False,
    **sizes: int,
) -> Ranking:
    """Find the `top` valid configurations with the least predicted time; no GPU is needed.

    rank("gemm", "mi300x", m=8192, n=8192, k=8192, dtype="bf16")

    Args:
        kernel: A name (`gemm`, `gemm.pointer`, `FILE.py:NAME`; `list_kernels()` has the built-in ones), an operation,
            all of whose implementations compete, or one implementation.
        gpu: A name (`h200`; `list_gpus()` has them all), the path of a model's YAML file, or a model.
        workload: The workload, in place of sizes and dtype; the operation's default workload if neither is passed.
        dtype: Type of the operands, such as `fp16`; that of the default workload if None.
        top: Number of candidates to return, at least 1.
        compile: Number of the best configurations to compile for the GPU, which need not be present, and to rank again
            with the compiler's resources. Compiled resources are cached on disk.
        strict: Leave out what breaks an estimated rule, too.
        sizes: Every size of the operation by name (`load_kernel(name).sizes` has them), in elements, and those of its
            options that differ from their defaults.

    Raises:
        InfeasibleError: When no configuration is valid; carries a minimal conflict.
        UnknownNameError: When there is no such kernel, GPU, size or dtype; names the nearest.
        UsageError: When a size is missing or is no whole number, when the kernels or the GPU cannot take the workload,
            or when `compile` is set and triton is not installed.
    """
    operation = _operation(kernel)
    model = gpu if isinstance(gpu, GpuModel) else load_gpu(gpu)
    if workload is not None:
        if sizes or dtype is not None:
            named = ", ".join([*sizes, *(["dtype"] if dtype is not None else [])])
            raise UsageError(
                f"rank takes a workload or its parts by name, not both; leave out the workload or {named}."
            )
    elif sizes or dtype is not None:
        workload = workload_of(operation, model, sizes, dtype)
        if any(size.name in sizes for size in operation.sizes):
            whole = ", ".join(f"{size.name}={size.default}" for size in operation.sizes)
            check_all_sizes(operation, sizes, f"A whole call: rank({operation.name!r}, {model.name!r}, {whole}).")
    return ranked(operation, model, workload, top=top, compile=compile, strict=strict)


def _operation(kernel: object) -> Operation:
    if isinstance(kernel, str):
        return load_kernel(kernel)
    if isinstance(kernel, Operation):
        return kernel
    if isinstance(kernel, KernelSpec):
        return Operation(kernel.full_name, (kernel,))
    made = f"; write {kernel.__name__}()" if isinstance(kernel, type) and issubclass(kernel, KernelSpec) else ""
    raise UsageError(f"a kernel is a name, an Operation or a KernelSpec, got {kernel!r}{made}.")
