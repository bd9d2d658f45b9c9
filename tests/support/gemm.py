"""The GEMM's workloads and kernels as its tests ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.spec import GemmSpec, gemm_spec
from constrint.kernels.registry import load_kernel
from constrint.model import Problem, Var
from constrint.select import BlockUse, KernelSpec, Operation, Workload

if TYPE_CHECKING:
    from constrint.kernels.gemm.launch import GemmCall

POINTER: GemmSpec = gemm_spec("gemm.pointer")
DESCRIPTOR: GemmSpec = gemm_spec("gemm.descriptor")
CUDA: GemmSpec = gemm_spec("gemm.cuda")
SKINNY: GemmSpec = gemm_spec("gemm.skinny")
#: Those that compute products of any sizes.
KERNELS = (DESCRIPTOR, CUDA, POINTER)


@cache
def gemm_operation() -> Operation:
    """The operation with all its kernels that have tiles."""
    return Operation("gemm", tuple(spec for spec in load_kernel("gemm").implementations if spec in KERNELS))


def gemm(m: int, n: int, k: int, dtype: str = "bf16", /, **options: int) -> Workload:
    """A matrix product as a workload; options as the command line names them."""
    return Workload("gemm", {"m": m, "n": n, "k": k}, dtype, options)


def product(m: int, n: int, k: int, dtype: str = "bf16", /, **options: int) -> Product:
    """A matrix product as the kernels' rules see it."""
    return Product.of(gemm(m, n, k, dtype, **options))


def use_of(spec: KernelSpec, gpu: GpuModel, workload: Workload, problem: Problem) -> BlockUse:
    """What one block takes, over the problem's parameters."""
    use = spec.use(gpu, workload, {name: Var(name) for name in problem.variables})
    assert use is not None
    return use


def smem_of(use: BlockUse, config: Mapping[str, int]) -> int:
    """Shared memory of a whole configuration, free parameters included."""
    return use.smem_stated.value(config)


def broken_rules(problem: Problem, config: Mapping[str, int]) -> set[str]:
    """Names of the rules that a configuration breaks."""
    return {str(rule.name) for rule in problem.constraints if not rule.holds(config)}


def unlikely_rules(problem: Problem, config: Mapping[str, int]) -> set[str]:
    """Names of the estimated rules that a configuration breaks: it stays in the space."""
    return {str(rule.name) for rule in problem.estimates if not rule.holds(config)}


def able_kernels(gpu: GpuModel, workload: Workload) -> list[GemmSpec]:
    """The kernels that compute a workload on a GPU, in the operation's order; none where the GPU lacks the dtype."""
    if not gpu.matrix_shapes(workload.dtype) or gpu.dot_unit(workload.dtype) is None:
        return []
    return [spec for spec in KERNELS if not spec.refusal(gpu, Product.of(workload))]


def launch(kernel: str, call: GemmCall, config: Mapping[str, int]) -> None:
    """Enqueue a call by one of the operation's kernels, by its full name."""
    for each in gemm_spec(kernel).call_launches(call, config):
        each.run()
