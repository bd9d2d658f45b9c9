"""Launches of a user's epilogue: gemm.cuda with the epilogue compiled in, and the pass on a product. Needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cuda.launch import cuda_launches, is_added_in_boxes
from constrint.kernels.gemm.cuda.source import FOLDER as GEMM_FOLDER
from constrint.kernels.gemm.epilogue.added import ADDED as TYPES
from constrint.kernels.gemm.epilogue.added import OUTPUTS
from constrint.kernels.gemm.epilogue.compiled import ADDED as NUMBERS
from constrint.kernels.gemm.epilogue.compiled import OUTPUTS as OUTPUT_NUMBERS
from constrint.kernels.gemm.launch import Epilogue, GemmCall, Machine
from constrint.kernels.gemm.traced.expression import Expression
from constrint.kernels.gemm.traced.text import (
    AS_BIAS,
    AS_SOURCE,
    COLUMN,
    FULL,
    ROW,
    SCALAR,
    Placed,
    TracedEnd,
    pass_text,
)
from constrint.kernels.launch.cuda.nvrtc import CudaSource
from constrint.kernels.launch.cuda.source_spec import CudaLaunch
from constrint.kernels.launch.plan.scratch import TORCH_SCRATCH, Scratch

FOLDER = Path(__file__).with_name("source")
#: Threads of a block of the pass, its most elements of a thread, and its most threads.
THREADS, MOST_VECTOR, MOST_ITEMS = 256, 8, 2**31 - 256


@dataclass(frozen=True)
class TracedCall:
    """One product with a user's epilogue: out = epilogue(a @ b, operands).

    Args:
        a: (M, K).
        b: (K, N).
        out: (M, N), contiguous.
        expression: The epilogue.
        operands: Tensors by name: of one element (0 axes), (M, 1), (1, N) or (M, N), those of N columns with a step of
            1 from column to column, of types that kernels read (`epilogue/added.py`).
        scratch: Allocates partial sums and counters.
    """

    a: Tensor
    b: Tensor
    out: Tensor
    expression: Expression
    operands: Mapping[str, Tensor]
    scratch: Scratch = TORCH_SCRATCH


def lies_of(t: Tensor, columns: int) -> str:
    """How an operand of `TracedCall` lies."""
    if t.dim() == 0:
        return SCALAR
    if t.shape[1] == 1 and columns > 1:
        return ROW
    return COLUMN if t.shape[0] == 1 else FULL


def fused_launch(gpu: GpuModel, call: TracedCall, config: Mapping[str, int]) -> CudaLaunch:
    """The one launch of gemm.cuda for a call.

    Raises:
        UsageError: For operands A and B that the kernel does not take.
    """
    end = epilogue_of(call, config)
    product = GemmCall(call.a[None], call.b[None], call.out[None], Machine.of(gpu), end, "ieee", call.scratch)
    (launch,) = cuda_launches(product, config)
    return launch


def epilogue_of(call: TracedCall, config: Mapping[str, int]) -> Epilogue:
    """The operands in their places: a row and a matrix where gemm.cuda reads these ahead, others beside them."""
    bias: Tensor | None = None
    source: Tensor | None = None
    placed, extras = [], []
    for name in call.expression.operands:
        t = call.operands[name]
        lies = lies_of(t, call.out.shape[1])
        if lies == COLUMN and bias is None and is_added_in_boxes(config, t[0], None, call.out[None]):
            bias, lies = t[0], AS_BIAS
        elif lies == FULL and source is None and is_added_in_boxes(config, None, t[None], call.out[None]):
            source, lies = t[None], AS_SOURCE
        else:
            extras.append(t)
        placed.append(Placed(name, lies, TYPES[t.dtype]))
    traced = TracedEnd(call.expression.text, tuple(placed), OUTPUTS[call.out.dtype])
    return Epilogue(bias, source, 1.0, 0.0 if source is None else 1.0, None, traced, tuple(extras))


def pass_launch(
    gpu: GpuModel, product: Tensor, out: Tensor, expression: Expression, operands: Mapping[str, Tensor]
) -> CudaLaunch | None:
    """The pass from a product (M, N), contiguous, to C; None for more elements than one launch takes.

    Args:
        gpu: The device's model.
        product: Of 16 bits or fp32.
        out: (M, N), contiguous, of 16 bits or fp32.
        expression: The epilogue.
        operands: As in `TracedCall`.
    """
    columns = out.shape[1]
    used = [operands[name] for name in expression.operands]
    placed = tuple(
        Placed(name, lies_of(t, columns), TYPES[t.dtype]) for name, t in zip(expression.operands, used, strict=True)
    )
    vector = MOST_VECTOR
    while vector > 1 and not _fits(vector, columns, (product, out), used, placed):
        vector //= 2
    items = out.numel() // vector
    if items > MOST_ITEMS:
        return None
    end = TracedEnd(expression.text, placed, OUTPUTS[out.dtype])
    arguments: list[object] = [product, out, np.int32(items), np.int32(columns // vector)]
    for each, t in zip(placed, used, strict=True):
        arguments += [t, np.int64(t.stride(0) if each.lies in (ROW, FULL) else 0)]
    source = _pass_source(end, TYPES[product.dtype], vector)
    return CudaLaunch(gpu, source, (-(-items // THREADS),), (THREADS,), tuple(arguments))


def _fits(
    vector: int, columns: int, ends: tuple[Tensor, Tensor], used: list[Tensor], placed: tuple[Placed, ...]
) -> bool:
    """Whether all rows are whole vectors that start at multiples of their bytes, of 16 at most."""
    wide = [*ends, *(t for t, each in zip(used, placed, strict=True) if each.lies in (COLUMN, FULL))]
    for t in wide:
        step = min(16, vector * t.element_size())
        if t.data_ptr() % step or (t.shape[0] > 1 and t.stride(0) * t.element_size() % step):
            return False
    return columns % vector == 0


@lru_cache(maxsize=1024)
def _pass_source(end: TracedEnd, product: str, vector: int) -> CudaSource:
    macros = {"OUT": OUTPUT_NUMBERS[end.output], "ACTIVATION": 0, "BIAS": 0, "SOURCE": 0}
    macros |= {"Z": NUMBERS[product], "VECTOR": vector}
    folders = (FOLDER, GEMM_FOLDER)
    text = pass_text(end, end.operands)
    return CudaSource(text, "epilogue_pass", macros, ("-std=c++17",), folders, "epilogue_pass.cu", is_settled=True)


def readable(t: Tensor) -> Tensor:
    """An operand of a type that the kernels read, with a step of 1 between columns; copied where need be."""
    if t.dtype not in (*OUTPUTS, torch.float64):
        t = t.float()
    return t.contiguous() if t.dim() == 2 and t.shape[1] > 1 and t.stride(1) != 1 else t
