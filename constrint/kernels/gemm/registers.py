"""Registers of the pointer-load GEMM: what they are made of, as integer expressions; the weights are fitted.

Two figures: an estimate, for occupancy, and a bound, for what spills. Their weights per instruction and target stand in
`register_weights.py`, written by `benchmarks/fit_gemm_registers.py`, which takes the terms from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.units import (
    ELEMENT_BYTES,
    MIN_COPY_BYTES,
    WIDEST_BYTES,
    Aligned,
    Vars,
    is_upcast,
    mma_warp_rows,
    unit,
)
from constrint.model import Expr, Var, ceildiv, const, maximum, minimum
from constrint.model.expr import add

#: AMD: registers that a promise of several waves per SIMD must leave, in percent of the bound: the compiler squeezes
#: kernels that would fit by the bound alone, and spills.
PROMISE_PERCENT = 150
#: Bytes along K that one step of the matrix instruction takes of an operand.
STEP_BYTES = 32


class RegisterModel(NamedTuple):
    """Weights of the terms in hundredths of a register: of the estimate and of the bound."""

    estimate: Mapping[str, int]
    bound: Mapping[str, int]


class Kind(NamedTuple):
    """What decides the terms beside the configuration.

    Args:
        instruction: "fma", "mma", "wgmma", "tcgen05", "mfma" or "wmma"; "mma" where a unit falls back to it.
        dtype: Element type of A and B.
        warp_size: Threads per warp.
        aligned: How wide loads and stores can be.
        is_widened: Whether fp8 is multiplied as fp16.
    """

    instruction: str
    dtype: str
    warp_size: int
    aligned: Aligned
    is_widened: bool


def kinds_of(gpu: GpuModel, dtype: str, aligned: Aligned) -> tuple[Kind, ...]:
    """The kinds that configurations for a dtype may be of: the unit's own, and the one it falls back to."""
    found = unit(gpu, dtype)
    own = Kind(found.kind, dtype, gpu.sm.warp_size, aligned, False)
    if found.fallback is None:
        return (own,)
    return own, own._replace(instruction=found.fallback, is_widened=is_upcast(found, dtype))


def model_key(gpu: GpuModel, instruction: str, known: Mapping[str, object]) -> str:
    """Name of the weights for an instruction on a GPU: of its target if there are such, else of the instruction."""
    if gpu.vendor == "amd":
        return gpu.arch.target
    own = f"{instruction} {gpu.arch.target.rstrip('a')}"
    return own if own in known else instruction


def weighted(weights: Mapping[str, int], kind: Kind, v: Vars) -> Expr:
    """The sum of weighted terms in whole registers, rounded up."""
    if all(isinstance(variable, Var) and variable.name == name for name, variable in v.items()):
        return _weighted_of_names(tuple(weights.items()), kind, tuple(v))
    return _weighted(tuple(weights.items()), kind, v)


@lru_cache(maxsize=1024)
def _weighted_of_names(weights: tuple[tuple[str, int], ...], kind: Kind, names: tuple[str, ...]) -> Expr:
    return _weighted(weights, kind, {name: Var(name) for name in names})


def _weighted(weights: tuple[tuple[str, int], ...], kind: Kind, v: Vars) -> Expr:
    terms = register_terms(kind, v)
    return ceildiv(add(*(weight * terms[name] for name, weight in weights if name in terms)), 100)


def register_terms(kind: Kind, v: Vars) -> dict[str, Expr]:
    """What a thread holds, in 32-bit registers or counts; terms that are zero for this kind are left out."""
    accumulators = ceildiv(v["tile_m"] * v["tile_n"], v["num_warps"] * kind.warp_size)
    if kind.instruction == "fma":
        return {"base": const(1), "accumulators": accumulators, "operands": v["tile_k"] * (16 + accumulators)}
    splits = minimum(1, v["split_k"] - 1)
    terms: dict[str, Expr] = {
        "base": const(1),
        "accumulators": accumulators,
        "persistent": v["persistent"],
        "split": splits,
        "split_accumulators": splits * accumulators,
    }
    if kind.aligned.c < WIDEST_BYTES:
        terms["ragged_accumulators"] = accumulators
    return terms | _load_terms(kind, v) | _fragment_terms(kind, v)


def _load_terms(kind: Kind, v: Vars) -> dict[str, Expr]:
    """Pointers, and words on their way from global to shared memory."""
    element, num_threads = ELEMENT_BYTES[kind.dtype], v["num_warps"] * kind.warp_size
    pipelined = minimum(1, v["num_stages"] - 1)
    unpipelined = 1 - pipelined
    # On AMD loads wait in registers for their turn in LDS.
    terms: dict[str, Expr] = {"pipelined": pipelined} if kind.instruction in ("mfma", "wmma") else {}
    for name, tile, width in (("a", v["tile_m"], kind.aligned.a), ("b", v["tile_n"], kind.aligned.b)):
        operand = tile * v["tile_k"] * element
        words = ceildiv(operand, 4 * num_threads)
        terms[f"words_{name}"] = words
        terms[f"unpipelined_{name}"] = unpipelined * words
        # One pointer per load: as wide as rows are aligned, or of a single element.
        if width > element and width >= MIN_COPY_BYTES:
            terms[f"loads_{name}"] = ceildiv(operand, width * num_threads)
        else:
            terms[f"elements_{name}"] = ceildiv(operand, element * num_threads)
            terms[f"ragged_{name}"] = const(1)
    if element == 1:
        terms["bytes_b"] = terms["words_b"]
        terms["is_bytes"] = const(1)
    return terms


def _fragment_terms(kind: Kind, v: Vars) -> dict[str, Expr]:
    """Operands of one warp in registers: for one step of the instruction, and for all of tile_k."""
    element = ELEMENT_BYTES[kind.dtype]
    is_direct = kind.instruction in ("wgmma", "tcgen05")
    rows = minimum(v["num_warps"], v["tile_m"] // 16) if is_direct else mma_warp_rows(v)
    columns = maximum(1, v["num_warps"] // rows)
    own = {"a": maximum(16, v["tile_m"] // rows), "b": maximum(8, v["tile_n"] // columns)}
    lanes = 4 * kind.warp_size
    step = minimum(v["tile_k"], STEP_BYTES // element)
    terms: dict[str, Expr] = {}
    for name, share in own.items():
        terms[f"step_{name}"] = ceildiv(share * step * element, lanes)
        terms[f"whole_{name}"] = ceildiv(share * v["tile_k"] * element, lanes)
    # Row-major B of 8- and 32-bit elements is gathered element by element; 8-bit A may be, too.
    if element == 1:
        terms |= {"byte_step_b": terms["step_b"], "byte_whole_b": terms["whole_b"], "byte_whole_a": terms["whole_a"]}
    elif element == 4:
        terms |= {"wide_step_a": terms["step_a"], "wide_step_b": terms["step_b"], "wide_whole_b": terms["whole_b"]}
    if kind.is_widened:
        terms["widened_step"] = terms["step_a"] + terms["step_b"]
        terms["widened_whole"] = terms["whole_a"] + terms["whole_b"]
    return terms
