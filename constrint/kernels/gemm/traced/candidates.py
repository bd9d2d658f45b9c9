"""Candidates for a product with a user's epilogue: gemm.cuda with it compiled in, or a product and a pass. No torch.

The composition takes the program that `matmul` chooses for the plain product; the pass that follows costs its bytes at
the rate of copies. The fused kernel, which rounds once, runs where the composition is not predicted to be clearly
faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from constrint.choose.decide import Refusal, decide
from constrint.choose.decision import Decision, Program, Request, Step
from constrint.errors import ConstrintError, InfeasibleError, UnknownNameError, UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.candidates import request_of
from constrint.kernels.gemm.library.candidates import FOLLOWING_SHARE, PASS_SHARE
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.traced.expression import Expression
from constrint.select.cost import launch_s

OPERATION = "traced_gemm"
FUSED, COMPOSITION = "cuda", "composition"
NAMES = (FUSED, COMPOSITION)
#: Share of the fused kernel's predicted time that the composition has to save at least.
LEAST_SHARE = 0.1


class Traced(NamedTuple):
    """A product with a user's epilogue, for its candidates.

    Args:
        product: The product; its activation is the tape, and a row and a matrix among the operands are its bias and its
            source.
        operand_bytes: Bytes of all operands of the epilogue.
        extra_bytes: Bytes of those that are neither the bias nor the source.
        refusal: Why gemm.cuda does not compute the call, besides sizes and layouts of A and B; empty where it does.
    """

    product: Product
    operand_bytes: int
    extra_bytes: int
    refusal: str = ""


def candidates(request: Request, refused: Sequence[Refusal]) -> list[Program]:
    """The candidates, the one that runs first.

    Raises:
        UnknownNameError: When the request names another kernel.
        UnsupportedError: When the named kernel does not compute the product; says why.
        UsageError: When the named configuration is not valid.
    """
    if request.kernel and request.kernel not in NAMES:
        raise UnknownNameError("kernel", request.kernel, ("auto", *NAMES))
    traced = request.detail
    assert isinstance(traced, Traced)
    fused = _fused(request, traced)
    if request.kernel == FUSED:
        if fused.refusal:
            raise UnsupportedError(f"gemm.cuda does not compute this product: {fused.refusal}.")
        return [fused]
    composition = _composition(request, traced)
    if request.kernel == COMPOSITION or fused.refusal:
        return [composition, fused]
    least = (1 - LEAST_SHARE) * (fused.seconds or 0.0)
    if composition.seconds is not None and composition.seconds < least:
        return [replace(composition, why="clearly faster by prediction than one launch"), fused]
    return [fused, composition]


def force_hint(decision: Decision) -> str:
    """Arguments of `matmul` by which a caller forces another candidate."""
    names = " or ".join(f'"{name}"' for name in NAMES)
    return f"matmul(..., epilogue=..., kernel={names}), with config={{...}} for one configuration of gemm.cuda"


def _fused(request: Request, traced: Traced) -> Program:
    """The best configuration of gemm.cuda, or why it does not run."""
    name, gpu = f"gemm.{FUSED}", request.gpu
    if gpu is None or traced.refusal:
        return Program(name, refusal=traced.refusal or "there is no model of the device")
    own = request_of(gpu, traced.product, device=request.device, kernel=FUSED, config=request.config)
    try:
        program = decide(own).program
    except (UnsupportedError, InfeasibleError) as error:
        return Program(name, refusal=str(error))
    extra_s = traced.extra_bytes / gpu.memory.dram.bandwidth_bytes_per_s
    steps = tuple(replace(step, seconds=(step.seconds or 0.0) + extra_s) for step in program.steps)
    shown = Expression.of_text(traced.product.activation)
    note = f"{shown}: the model's time with its instructions, and the bytes of operands beside a row and a matrix"
    return replace(program, steps=steps, band=None, note=note)


def _composition(request: Request, traced: Traced) -> Program:
    """The plain product by the program that `matmul` chooses, then one pass."""
    name, gpu = f"gemm.{COMPOSITION}", request.gpu
    plain = replace(traced.product, activation="", has_bias=False, has_source=False, no_library_end="")
    note = (
        f"{Expression.of_text(traced.product.activation)}: the product as matmul chooses it, and the pass by its bytes"
    )
    if gpu is None:
        steps: tuple[Step, ...] = (Step("product", "gemm.pointer", workload=plain.workload),)
        return Program(name, (*steps, Step("pointwise", "gemm.traced")), note=note)
    try:
        steps = decide(request_of(gpu, plain, device=request.device)).program.steps
    except ConstrintError as error:
        return Program(name, refusal=str(error))
    return Program(name, (*steps, Step("pointwise", "gemm.traced", seconds=pass_s(gpu, traced))), note=note)


def composed(composition: Program, product: Program) -> Program:
    """The composition with another program of its product."""
    return replace(composition, steps=(*product.steps, composition.step("pointwise")), band=product.band)


def pass_s(gpu: GpuModel, traced: Traced) -> float:
    """Time of the pass: a launch that follows another one, and its bytes at the rate of copies."""
    p = traced.product
    moved = 2 * p.batch * p.m * p.n * p.output_bytes + traced.operand_bytes
    return FOLLOWING_SHARE * launch_s(gpu) + moved / (PASS_SHARE * gpu.memory.dram.bandwidth_bytes_per_s)
