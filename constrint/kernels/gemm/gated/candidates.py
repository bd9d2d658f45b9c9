"""The candidates for a gated pair: one launch, or two products and a pointwise pass. No torch.

The composition takes the programs that `matmul` chooses for both factors; its pointwise pass is a multiplication by
torch, whose time is its bytes at the rate that copies reach. The fused kernel runs where it is not predicted to be
clearly slower, since its factors are not rounded in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from constrint.choose.decide import Refusal, decide
from constrint.choose.decision import Decision, Program, Request, Step
from constrint.errors import ConstrintError, InfeasibleError, UnknownNameError, UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.candidates import request_of
from constrint.kernels.gemm.measured import MEASURED
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.units import OUTPUT_BYTES
from constrint.select.cost import LAUNCH_S
from constrint.select.workload import Workload

FUSED, COMPOSITION = "cuda", "composition"
#: Kernels that compute a pair in one launch, preferred ones first; the others run where it is not written for the GPU.
KERNELS = (FUSED, "pointer")
NAMES = (*KERNELS, COMPOSITION)
#: Measured over predicted time of Triton's kernels (`GemmSpec.optimism`): a pair in Triton has to be faster by that.
TRITON_OPTIMISM = 1.1
#: Share of the fused kernel's predicted time that the composition has to save at least. Of five pairs on an H100 the
#: fused kernel took 0.65 to 0.92 of the composition's time, and predictions said 0.64 to 1.15.
LEAST_SHARE = 0.2


def candidates(request: Request, refused: Sequence[Refusal]) -> list[Program]:
    """The candidates, the one that runs first.

    Raises:
        InfeasibleError: When the device refused all.
        UnknownNameError: When the request names another kernel.
        UnsupportedError: When the named kernel does not compute the pair; says why.
        UsageError: When the named configuration is not valid.
    """
    if request.kernel and request.kernel not in NAMES:
        raise UnknownNameError("kernel", request.kernel, ("auto", *NAMES))
    if request.kernel in KERNELS:
        named = _fused(request, request.kernel)
        if named is None or named.refusal:
            raise UnsupportedError(named.refusal if named else f"gated.{request.kernel} needs a model of the device.")
        return [named]
    fused = _fused(request, FUSED) if request.kernel != COMPOSITION else None
    composition = _composition(request.gpu, request.workload, str(request.detail or "silu"))
    if fused is None:
        return [composition]
    if fused.refusal:
        other = _fused(request, KERNELS[1])
        if other is None or other.refusal or other.seconds is None:
            return [composition, fused, *([other] if other else [])]
        if composition.seconds is not None and composition.seconds <= TRITON_OPTIMISM * other.seconds:
            return [composition, other, fused]
        return [other, composition, fused]
    if any(refusal.kernel == fused.name for refusal in refused) and fused.seconds is None:
        raise InfeasibleError("the device refused every configuration of gated.cuda")
    least = (1 - LEAST_SHARE) * (fused.seconds or 0.0)
    if composition.seconds is not None and composition.seconds < least:
        why = "clearly faster by prediction than one launch, whose tiles hold columns of both factors"
        return [replace(composition, why=why), fused]
    return [fused, composition]


def force_hint(decision: Decision) -> str:
    """Arguments of `gated_matmul` by which a caller forces another candidate."""
    names = " or ".join(f'"{name}"' for name in NAMES)
    return f"gated_matmul(..., kernel={names}), with config={{...}} for one configuration of gated.cuda"


def _fused(request: Request, name: str) -> Program | None:
    """The best configuration of a fused kernel, or why it does not run; None without a model of the device."""
    if request.gpu is None:
        return None
    own = Request(f"gated.{name}", request.workload, request.gpu, request.device, config=request.config)
    try:
        program = decide(own).program
    except (UnsupportedError, InfeasibleError) as error:
        return Program(f"gated.{name}", refusal=str(error))
    return replace(program, note=f"modelled: gemm.{name}'s time for both factors")


def _composition(gpu: GpuModel | None, workload: Workload, activation: str) -> Program:
    """Both products by the programs that `matmul` chooses, then one pass that multiplies their results."""
    m, n, k = (workload.sizes[name] for name in ("m", "n", "k"))
    options = {name: value for name, value in workload.options.items() if name in ("transpose_b", "bias")}
    alone = Workload("gemm", {"m": m, "n": n, "k": k}, workload.dtype, options)
    note = "two products as matmul chooses them, and torch's multiplication by its bytes"
    if gpu is None:
        steps = tuple(Step("product", "gemm.pointer", workload=alone) for _ in range(2))
        return Program(f"gated.{COMPOSITION}", steps, note=note)
    second = Product.of(alone)
    first = replace(second, activation=activation)
    steps = ()
    for product in (first, second):
        try:
            steps += decide(request_of(gpu, product)).program.steps
        except ConstrintError as error:
            return Program(f"gated.{COMPOSITION}", refusal=str(error))
    moved = 3 * m * n * OUTPUT_BYTES[workload.dtype]
    seconds = LAUNCH_S + moved / (gpu.memory.dram.bandwidth_bytes_per_s * MEASURED.pack_share)
    return Program(f"gated.{COMPOSITION}", (*steps, Step("pointwise", "torch.mul", seconds=seconds)), note=note)
